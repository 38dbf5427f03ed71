"""Flower, the framework: `aggregate` of its strategies (flwr/server/strategy/aggregate.py)."""

import numpy as np
from flwr.server.strategy.aggregate import aggregate as flower_aggregate


def aggregate(algorithm, model, hyper, server, uploads, n, counts):
    if algorithm != "fedavg":
        raise NotImplementedError
    sent = [([w], int(m)) for w, m in zip(uploads["w"], n * counts)]
    return {"server": {"w": np.asarray(flower_aggregate(sent)[0])}}
