"""FedSim: FedProx's change of gradients, FedNova's and FedAvg's server, in loops of ours."""

import torch
from in_torch import Net, batches, do_without, flat, loss, train_clients, without_init

do_without(
    "logall", "hydra", "optuna", "sklearn", "tensorboard", "click", "tqdm", "yaml", "torchvision"
)
without_init("fedsim", "fedsim.distributed", "fedsim.distributed.centralized", "fedsim.local")

from fedsim.distributed.centralized.training import fedavg, fednova, fedprox  # noqa: E402
from fedsim.utils import SerialAggregator  # noqa: E402

SERVERS = {"fedavg": fedavg.FedAvg, "fednova": fednova.FedNova}


class Storage(dict):
    read, write = dict.__getitem__, dict.__setitem__


def client(algorithm, model, hyper, server, data, rows):
    net, pairs = Net(model, server["w"]), batches(data, rows["D"])
    sgd = torch.optim.SGD(net.parameters(), lr=hyper["lr"])

    def train(
        *_, step_closure, **__
    ):  # in the place of FedAvg's, whose loader draws its own batches
        for X, y in pairs:
            sgd.zero_grad()
            step_closure(X, y, net, loss, sgd, {})

    fedprox.FedAvg.send_to_server = train
    context = {"model": net, "mu": hyper["mu"]}
    fedprox.FedProx.send_to_server(0, 0, *10 * [None], ctx=context)
    return {"upload": {"w": flat(net)}}


def round(algorithm, model, hyper, state, data, plan):
    w, it, sums = state["server"]["w"], SERVERS[algorithm], SerialAggregator()
    cloud = torch.tensor(w, requires_grad=True)
    kept = Storage(
        cloud_params=cloud, lr_scheduler=None, optimizer=torch.optim.SGD([cloud], lr=1.0)
    )
    for (k, w_k, n), steps in zip(train_clients(model, hyper, w, data, plan), plan["steps"]):
        sent = {
            "local_params": torch.tensor(w_k),
            "num_steps": int(steps),
            "num_samples": {"train": n},
        }
        it.receive_from_client(
            kept, k, {**sent, "diverged": False, "metrics": {}}, "train", sums, None
        )
    it.optimize(kept, sums, None)
    return {"server": {"w": cloud.detach().numpy().copy()}}
