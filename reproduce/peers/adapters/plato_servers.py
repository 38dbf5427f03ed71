"""Plato, the package: plato/servers/strategies/aggregation, after FedAvg's local steps."""

import asyncio

import torch
from in_torch import do_without, space, train_clients

do_without("tenseal", "lightly", "torch_optimizer", "timm", "munch")

from plato.servers.strategies.aggregation.fedavg import FedAvgAggregationStrategy  # noqa: E402
from plato.servers.strategies.aggregation.fednova import FedNovaAggregationStrategy  # noqa: E402

SERVERS = {"fedavg": FedAvgAggregationStrategy, "fednova": FedNovaAggregationStrategy}


def round(algorithm, model, hyper, state, data, plan):
    w, c = state["server"]["w"], space(trainer=space(zeros=torch.zeros))
    ends = train_clients(model, hyper, w, data, plan)
    reports = [space(num_samples=n, epochs=int(e)) for n, e in zip(plan["sizes"], plan["amount"])]
    deltas = [{"w": torch.tensor(w_k - w)} for _, w_k, _ in ends]
    updates = [space(report=one) for one in reports]
    step = asyncio.run(SERVERS[algorithm]().aggregate_deltas(updates, deltas, c))
    return {"server": {"w": w + step["w"].numpy()}}
