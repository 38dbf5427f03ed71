"""The same runs with clients that keep their rows: fedref's rounds over Flower, see README.md here.

messages  what travels, as named records of arrays or of plain values
answers   what the server takes of a reply, and what it refuses
roster    which node holds which clients
part      the rows that one node holds
store     what its clients keep between rounds, on its disk
node      a node's side: a pure function of request, part and store
server    the server's side: the engine of a run, over any `Network`
apps      Flower's ServerApp and ClientApp around both; nothing else here imports flwr
writing   `fedref flower write`: the app's folder and the nodes' parts
"""
