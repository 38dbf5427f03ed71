"""FedML: FedProx's and SCAFFOLD's trainers, SCAFFOLD's `Client`, and `FedMLAggOperator.agg`."""

import sys
from types import ModuleType

import torch
from in_torch import Net, batches, client_batches, cut, flat, space, without_init

without_init("fedml", "fedml.core", "fedml.core.alg_frame", "fedml.core.common", "fedml.ml")
without_init("fedml.ml.trainer", "fedml.ml.aggregator", "fedml.utils", "fedml.simulation")
without_init("fedml.simulation.sp", "fedml.simulation.sp.scaffold")


class Trainer:
    """In the place of the base class, which sets up attacks, privacy and encryption."""

    def __init__(self, model, args):
        self.model, self.args, self.id = model, args, 0


base = sys.modules.setdefault("fedml.core.alg_frame.client_trainer", ModuleType("client_trainer"))
base.ClientTrainer = Trainer

from fedml.ml.aggregator.agg_operator import FedMLAggOperator  # noqa: E402
from fedml.ml.trainer.fedprox_trainer import FedProxModelTrainer  # noqa: E402
from fedml.ml.trainer.scaffold_trainer import ScaffoldModelTrainer  # noqa: E402
from fedml.simulation.sp.scaffold.client import Client  # noqa: E402

CPU = torch.device("cpu")


def settings(hyper, **more):
    return space(client_optimizer="sgd", learning_rate=hyper["lr"], epochs=1, **more)


def client(algorithm, model, hyper, server, data, rows):
    it = FedProxModelTrainer(Net(model, server["w"]), None)
    it.train(batches(data, rows["D"]), CPU, settings(hyper, fedprox_mu=hyper["mu"]))
    return {"upload": {"w": flat(it.model)}}


def round(algorithm, model, hyper, state, data, plan):
    x, kept, net = state["server"]["w"], state.get("objects", {}), Net(model, state["server"]["w"])
    N = len(data["offsets"]) - 1
    args = settings(hyper, federated_optimizer="SCAFFOLD", client_num_in_total=N)
    trainer = ScaffoldModelTrainer(net, args)
    names = [name for name, _ in net.named_parameters()]
    c = state.get("c", dict(zip(names, cut(net, 0 * x))))
    replies = []
    for k, n in zip(plan["clients"], plan["sizes"]):
        if k not in kept:
            kept[k] = Client(k, None, None, None, args, CPU, trainer)
        kept[k].model_trainer, kept[k].local_training_data = trainer, client_batches(data, plan, k)
        replies.append((int(n), *kept[k].train(dict(zip(names, cut(net, x))), c)))
    moved, dc = FedMLAggOperator.agg(args, replies)
    w = x + hyper["server_lr"] * flat(moved[name] for name in names)
    return {"server": {"w": w}, "c": {name: c[name] + dc[name] for name in names}, "objects": kept}
