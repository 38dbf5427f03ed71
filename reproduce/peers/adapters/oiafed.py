"""oiafed: aggregators of oiafed/methods/aggregators, after FedAvg's local steps in loops of ours."""

from importlib import import_module

import torch
from in_torch import do_without, train_clients

do_without("sklearn", "pandas", "flamby", "gymnasium", "loguru", "mlflow", "omegaconf")
do_without("torchvision", "grpc", "yaml", "rich", "psutil", "tqdm")

from oiafed.core.types import ClientUpdate  # noqa: E402

NAMES = {"fedadam": "FedAdam", "fedyogi": "FedYogi", "fednova": "FedNova", "feddyn": "FedDyn"}
NAMES |= {"fedavg": "FedAvg"}


def make(algorithm, hyper):
    module = import_module(f"oiafed.methods.aggregators.{algorithm}")
    kind = getattr(module, f"{NAMES[algorithm]}Aggregator")
    settings = {"device": "cpu"}
    if "tau" in hyper:
        settings |= {"server_lr": hyper["server_lr"], "eps": hyper["tau"]}
        settings |= {"beta1": hyper["beta1"], "beta2": hyper["beta2"]}
    return kind(**settings | ({"alpha": hyper["alpha"]} if algorithm == "feddyn" else {}))


def round(algorithm, model, hyper, state, data, plan):
    w, it = state["server"]["w"], state.get("object") or make(algorithm, hyper)
    updates = [
        ClientUpdate(k, {"w": torch.tensor(w_k)}, n, metadata={"local_epochs": int(epochs)})
        for (k, w_k, n), epochs in zip(train_clients(model, hyper, w, data, plan), plan["amount"])
    ]
    return {"server": {"w": it.aggregate(updates, None)["w"].double().numpy()}, "object": it}
