"""declearn: modules of declearn/optimizer in loops of ours, on its NumPy vectors."""

import numpy as np
from in_torch import Net, client_batches, do_without, flat, loss, train_clients

do_without("sklearn", "pandas", "fire", "tomli", "grpc", "websockets", "joblib", "gmpy2")

from declearn.model.sklearn import NumpyVector  # noqa: E402
from declearn.optimizer import Optimizer  # noqa: E402
from declearn.optimizer.modules import ScaffoldClientModule, ScaffoldServerModule  # noqa: E402

MODULES = {"fedadam": "adam", "fedyogi": "yogi", "fedadagrad": "adagrad", "fedavgm": "momentum"}


def vector(x):
    return NumpyVector({"w": np.array(x)})


def train(model, w, pairs, step):
    """Run local steps; step : of (gradient, w)."""
    for X, y in pairs:
        net = Net(model, w)
        loss(net(X), y).backward()
        w = step(flat(p.grad for p in net.parameters()), w)
    return w


def round(algorithm, model, hyper, state, data, plan):
    w, h = state["server"]["w"], hyper
    if algorithm == "scaffold":
        return scaffold_round(model, h, state, data, plan)
    it = state.get("object")
    if it is None:
        config = {"beta": h["momentum"]} if algorithm == "fedavgm" else {"eps": h["tau"]}
        if algorithm in ("fedadam", "fedyogi"):
            config |= {"beta_1": h["beta1"], "beta_2": h["beta2"]}
        rate = h["server_lr"] if "tau" in h else 1.0
        it = Optimizer(rate, modules=[(MODULES[algorithm], config)])
    ends = train_clients(model, h, w, data, plan)
    mean = sum(n * w_k for _, w_k, n in ends) / sum(n for *_, n in ends)
    step = it.compute_updates_from_gradients(None, vector(w - mean))
    return {"server": {"w": w + step.coefs["w"]}, "object": it}


def scaffold_round(model, h, state, data, plan):
    server = state.get("object") or ScaffoldServerModule()
    clients = state.get("objects") or [ScaffoldClientModule() for _ in range(2)]
    w, ends = state["server"]["w"], []
    for k in plan["clients"]:
        clients[k].process_aux_var(server.collect_aux_var())
        step = lambda g, w: w - h["lr"] * clients[k].run(vector(g)).coefs["w"]  # noqa: E731, B023
        ends.append(train(model, w, client_batches(data, plan, k), step))
    sent = [clients[k].collect_aux_var() for k in plan["clients"]]
    server.process_aux_var(sent[0] if len(sent) == 1 else sent[0] + sent[1])
    return {"server": {"w": np.mean(ends, 0)}, "object": server, "objects": clients}
