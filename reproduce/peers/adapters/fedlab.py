"""FedLab: trainers and servers of fedlab/contrib/algorithm, and `Aggregators.fedavg_aggregate`."""

import torch
from in_torch import Net, batches, client_batches, do_without, space

do_without("torchvision", always=True)  # for data sets alone, and it asks for a build of its own

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # noqa: E402
from fedlab.contrib.algorithm.feddyn import FedDynSerialClientTrainer, FedDynServerHandler  # noqa: E402
from fedlab.contrib.algorithm.fedprox import FedProxSerialClientTrainer  # noqa: E402
from fedlab.contrib.algorithm.scaffold import ScaffoldSerialClientTrainer, ScaffoldServerHandler  # noqa: E402
from fedlab.utils.aggregator import Aggregators  # noqa: E402


def client(algorithm, model, hyper, server, data, rows):
    kinds = {"fedavg": SGDSerialClientTrainer, "fedprox": FedProxSerialClientTrainer}
    trainer = kinds[algorithm](Net(model, server["w"]), 1)
    more = {"mu": hyper["mu"]} if algorithm == "fedprox" else {}
    trainer.setup_optim(1, hyper["B"], hyper["lr"], **more)
    trainer.setup_dataset(space(get_dataloader=lambda id, size: batches(data, rows["D"])))
    trainer.local_process([torch.tensor(server["w"])], [0])
    return {"upload": {"w": trainer.uplink_package[0][0].numpy()}}


def aggregate(algorithm, model, hyper, server, uploads, n, counts):
    sent = [torch.tensor(w) for w in uploads["w"]]
    return {"server": {"w": Aggregators.fedavg_aggregate(sent, n * counts * 1.0).numpy()}}


def round(algorithm, model, hyper, state, data, plan):
    if "objects" in state:
        server, trainer = state["objects"]
    elif algorithm == "scaffold":
        server = ScaffoldServerHandler(Net(model, state["server"]["w"]), 1, 1.0)
        server.setup_optim(1.0)
        trainer = ScaffoldSerialClientTrainer(Net(model, state["server"]["w"]), 2)
        trainer.setup_optim(1, 4, hyper["lr"])
    else:
        server = FedDynServerHandler(Net(model, state["server"]["w"]), 1, 1.0)
        server.setup_optim(hyper["alpha"])
        trainer = FedDynSerialClientTrainer(Net(model, state["server"]["w"]), 2)
        trainer.setup_optim(1, 4, hyper["lr"], hyper["alpha"])
    server.num_clients = 2
    loader = space(get_dataloader=lambda k, size: client_batches(data, plan, k))
    trainer.setup_dataset(loader)
    trainer.local_process([x.clone() for x in server.downlink_package], [0, 1])
    server.global_update(trainer.uplink_package)
    return {"server": {"w": server.model_parameters.numpy()}, "objects": (server, trainer)}
