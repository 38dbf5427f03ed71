"""The same runs with clients that keep their rows: fedref's rounds over Flower, see README.md here.

messages  what travels, as named records of arrays or of plain values
answers   what the server takes of a reply, and what it refuses
roster    which node holds which clients
part      the rows that one node holds
store     what its clients keep between rounds, on its disk
node      a node's side: a pure function of request, part and store
nodes     asking nodes over any `Network`: one answer to each message, within a time
engine    the rounds and evaluations of a unit, asked of nodes; missed.csv
server    a run: its directory, and the engine that `experiments.run.execute` is given
apps      Flower's ServerApp and ClientApp around both; nothing else here imports flwr
writing   `fedref flower write`: the app's folder and the nodes' parts
"""
