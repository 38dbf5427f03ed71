"""FLGo: servers and clients of flgo/algorithm, without its tasks, clocks and devices."""

from copy import deepcopy
from importlib import import_module

import numpy as np
import torch
from in_torch import Net, client_batches, do_without, flat, loss, space, without_init

without_init("flgo")
do_without("tqdm", "matplotlib", "ray", "yaml", "prettytable", "pynvml", "wget", "torchvision")

import flgo.utils.fmodule as fmodule  # noqa: E402

CALCULATOR = space(
    get_optimizer=lambda net, **settings: torch.optim.SGD(net.parameters(), **settings),
    compute_loss=lambda net, batch: {"loss": loss(net(batch[0]), batch[1])},
)


def bare(kind, **settings):
    """Return a server or a client with these settings, and what its own `initialize` adds."""
    it = object.__new__(kind)
    vars(it).update(settings)
    vars(it).update(init_algo_para=lambda settings: None, register_cache_var=lambda name: None)
    it.initialize()
    return it


def make(algorithm, model, hyper, w, data, plan):
    def module(self, w=0 * w):
        Net.__init__(self, model, w)

    net = type("Module", (Net, fmodule.FModule), {"__init__": module})(w)
    code = import_module(f"flgo.algorithm.{algorithm}")
    own = {"learning_rate": hyper["lr"], "weight_decay": 0.0, "momentum": 0.0, "clip_grad": 0.0}
    own |= {"calculator": CALCULATOR, "device": "cpu", "alpha": hyper["alpha"]}
    clients = [bare(code.Client, datavol=n, **own) for n in np.diff(data["offsets"])]
    settings = {"eta": hyper["server_lr"], "alpha": hyper["alpha"], "aggregation_option": ""}
    return bare(code.Server, model=net, clients=clients, num_clients=2, device="cpu", **settings)


def round(algorithm, model, hyper, state, data, plan):
    w = state["server"]["w"]
    server = state.get("object") or make(algorithm, model, hyper, w, data, plan)
    drawn = server.received_clients = [int(k) for k in plan["clients"]]

    def communicate(selected):
        sent = []
        for k, steps in zip(selected, plan["steps"]):
            client, batches = server.clients[k], iter(client_batches(data, plan, k))
            client.num_steps, client.get_batch_data = int(steps), batches.__next__
            package = deepcopy(server.pack(k))
            sent.append(client.reply(package))
        return {name: [one[name] for one in sent] for name in sent[0]}

    server.sample, server.communicate = lambda: drawn, communicate
    server.iterate()
    return {"server": {"w": flat(server.model)}, "object": server}
