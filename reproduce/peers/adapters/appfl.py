"""APPFL: aggregators of appfl/algorithm/aggregator, after FedAvg's local steps in loops of ours."""

from importlib import import_module

import torch
from in_torch import do_without, train_clients
from omegaconf import OmegaConf

do_without(
    "grpc", "mpi4py", "globus_sdk", "proxystore", "zfpy", "torchvision", "matplotlib", "wandb"
)
do_without(
    "globus_compute_sdk", "boto3", "ray", "lz4", "pympler", "requests", "tqdm", "sklearn", "opacus"
)

NAMES = {"fedavg": "FedAvg", "fedadam": "FedAdam", "fedyogi": "FedYogi", "fedadagrad": "FedAdagrad"}
NAMES["fedavgm"] = "FedAvgM"


def make(algorithm, h, w):
    module = import_module(f"appfl.algorithm.aggregator.{algorithm}_aggregator")
    kind = getattr(module, f"{NAMES[algorithm]}Aggregator")
    settings = {"client_weights_mode": "sample_size", "server_momentum_param_1": h.get("momentum")}
    if "tau" in h:
        settings |= {"server_learning_rate": h["server_lr"], "server_adapt_param": h["tau"]}
        settings |= {"server_momentum_param_1": h["beta1"], "server_momentum_param_2": h["beta2"]}
    net = torch.nn.Module()
    net.w = torch.nn.Parameter(torch.tensor(w))
    return kind(net, OmegaConf.create(settings), None)


def round(algorithm, model, hyper, state, data, plan):
    w = state["server"]["w"]
    it = state.get("object") or make(algorithm, hyper, w)
    ends = train_clients(model, hyper, w, data, plan)
    for k, _, n in ends:
        it.set_client_sample_size(k, n)
    new = it.aggregate({k: {"w": torch.tensor(w_k)} for k, w_k, _ in ends})
    return {"server": {"w": new["w"].numpy()}, "object": it}
