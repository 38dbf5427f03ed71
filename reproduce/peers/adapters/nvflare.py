"""NVIDIA FLARE: `PTFedProxLoss`, `PTScaffoldHelper` and `scaffold_aggregate_fn`, in loops of ours."""

from copy import deepcopy
from functools import partial

import numpy as np
from in_torch import Net, batches, client_batches, cut, flat, loss, take_steps
from nvflare.apis.fl_constant import FLMetaKey as Meta
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.app_constant import AlgorithmConstants as Known
from nvflare.app_common.workflows.scaffold import scaffold_aggregate_fn
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
    c, kept, replies = state.get("c", np.zeros_like(x)), state.get("objects", {}), []
    for k in plan["clients"]:
        if k not in kept:
            kept[k] = Net(model, x), PTScaffoldHelper()
            kept[k][1].init(kept[k][0])
        net, helper = kept[k]
        names = [name for name, _ in net.named_parameters()]
        net.load_state_dict(dict(zip(names, cut(net, x))))
        helper.load_global_controls(dict(zip(names, cut(net, c))))
        there = deepcopy(net)
        global_and_local = helper.get_params()
        after = partial(helper.model_update, net, lr, *global_and_local)
        steps = client_batches(data, plan, k)
        take_steps(net, lr, steps, loss, after)
        helper.terms_update(net, lr, *global_and_local, there)
        dc = np.concatenate([x.ravel() for x in helper.get_delta_controls().values()])
        meta = {Known.SCAFFOLD_CTRL_DIFF: {"w": dc}, Meta.NUM_STEPS_CURRENT_ROUND: len(steps)}
        replies.append(FLModel(params={"w": flat(net)}, current_round=0, meta=meta))
    found = scaffold_aggregate_fn(replies)
    c = c + found.meta[Known.SCAFFOLD_CTRL_DIFF]["w"]
    return {"server": {"w": found.params["w"]}, "c": c, "objects": kept}
