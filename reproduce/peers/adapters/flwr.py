"""Flower, the framework: its strategies (flwr/server/strategy) after what clients return."""

import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi

KINDS = {"fedavg": FedAvg, "fedavgm": FedAvgM, "fedadam": FedAdam, "fedyogi": FedYogi}
KINDS["fedadagrad"] = FedAdagrad


def aggregate(algorithm, model, hyper, server, uploads, n, counts):
    w, settings = server["w"], {}
    if "momentum" in hyper:
        settings = {"server_momentum": hyper["momentum"], "server_learning_rate": 1.0}
    if "tau" in hyper:
        settings = {"eta": hyper["server_lr"], "tau": hyper["tau"]}
    if algorithm in ("fedadam", "fedyogi"):
        settings |= {"beta_1": hyper["beta1"], "beta_2": hyper["beta2"]}
    it = KINDS[algorithm](initial_parameters=ndarrays_to_parameters([w]), **settings)
    if "m" in server:
        it.m_t, it.v_t = [server["m"]], [server["v"]]
    if algorithm == "fedavgm":
        it.momentum_vector = [-server["v"]]  # of gradients, which are the opposite of updates
    sent = [
        (None, FitRes(Status(Code.OK, ""), ndarrays_to_parameters([x]), int(m), {}))
        for x, m in zip(uploads["w"], n * counts)
    ]
    found, _ = it.aggregate_fit(2 if algorithm == "fedavgm" else 1, sent, [])
    new = {"w": np.asarray(parameters_to_ndarrays(found)[0])}
    if "m" in server:
        new |= {"m": it.m_t[0], "v": it.v_t[0]}
    if algorithm == "fedavgm":
        new |= {"v": -it.momentum_vector[0]}
    return {"server": new}
