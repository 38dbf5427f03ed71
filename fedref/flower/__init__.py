"""fedref's runs over Flower, with clients that keep their rows; see README.md in this folder.

protocol  the messages, and their checks on both sides
client    a node: its rows, its clients' states, and its answers to requests
nodes     the server's view of the nodes: which are online and which clients they hold
server    the engine of a unit, missed.csv, and a run
project   `fedref flower write`: the app's folder and the nodes' parts
apps      Flower's ServerApp and ClientApp; the only module that imports flwr
"""
