"""fedref's runs over Flower, with clients that keep their rows; see README.md in this folder.

messages  trees of arrays as bytes, and their check against the tree that was asked for
node      a node: its rows, its clients' states, and its answers
server    the engine that asks the nodes, and a run
project   `fedref flower write`: the app's folder and the nodes' parts
apps      Flower's ServerApp and ClientApp; the only module that imports flwr
"""
