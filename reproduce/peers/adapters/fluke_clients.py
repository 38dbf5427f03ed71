"""fluke: clients of fluke/algorithms alone, with our batches for a loader."""

from copy import deepcopy

from adapters.fluke import make
from fluke_loader import Loader
from in_torch import Net, batches, flat


def client(algorithm, model, hyper, server, data, rows, client=None):
    net = Net(model, server["w"])
    loader = Loader([b for lines in zip(*rows.values()) for b in batches(data, lines)])
    loader.n_batches = len(rows["D"])
    it = make(algorithm, hyper, net, [loader], float(client["a"]) if client else None).clients[0]
    it.model = deepcopy(net)
    if client:
        it.personalized_model = Net(model, client["v"])
    it.fit()
    kept = {"client": {"v": flat(it.personalized_model)}} if client else {}
    return {"upload": {"w": flat(it.model)}, **kept}
