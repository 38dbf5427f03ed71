"""The same runs with clients that keep their rows: fedref's rounds over Flower, see README.md here.

protocol  what travels, and all that either side refuses of it
client    a node: its rows, what its clients keep on its disk, and what it answers
server    asking nodes over any `Network`, the engine of a unit, missed.csv, a run
project   `fedref flower write`: the app's folder and the nodes' parts
apps      Flower's ServerApp and ClientApp around both; nothing else here imports flwr
"""
