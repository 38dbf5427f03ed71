"""NVIDIA FLARE: `PTFedProxLoss` and `PTScaffoldHelper` (nvflare/app_opt/pt), in loops of ours."""

from copy import deepcopy
from functools import partial

import numpy as np
from in_torch import Net, batches, client_batches, cut, flat, loss, take_steps
from nvflare.app_opt.pt.fedproxloss import PTFedProxLoss
from nvflare.app_opt.pt.scaffold import PTScaffoldHelper


def client(algorithm, model, hyper, server, data, rows):
    net, there = Net(model, server["w"]), Net(model, server["w"])
    penalty = PTFedProxLoss(hyper["mu"])

    def objective(z, y):
        return loss(z, y) + penalty(net, there)

    return take_steps(net, hyper["lr"], batches(data, rows["D"]), objective)


def round(algorithm, model, hyper, state, data, plan):
    x, lr = state["server"]["w"], hyper["lr"]
    c = state.get("c", np.zeros_like(x))
    clients = state.get("objects", tuple((Net(model, x), PTScaffoldHelper()) for _ in range(2)))
    sent, controls = [], []
    for k, (net, helper) in enumerate(clients):
        if "objects" not in state:
            helper.init(net)
        names = [name for name, _ in net.named_parameters()]
        net.load_state_dict(dict(zip(names, cut(net, x))))
        helper.load_global_controls(dict(zip(names, cut(net, c))))
        there = deepcopy(net)
        global_and_local = helper.get_params()
        after = partial(helper.model_update, net, lr, *global_and_local)
        take_steps(net, lr, client_batches(data, plan, k), loss, after)
        helper.terms_update(net, lr, *global_and_local, there)
        sent.append(flat(net))
        controls.append(np.concatenate([x.ravel() for x in helper.get_delta_controls().values()]))
    c = c + np.mean(controls, 0)
    return {"server": {"w": np.mean(sent, 0)}, "c": c, "objects": clients}
