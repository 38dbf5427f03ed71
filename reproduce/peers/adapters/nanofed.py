"""nanofed: `FedAvgAggregator` (nanofed/server/aggregator), after local steps in loops of ours."""

import torch
from in_torch import do_without, train_clients

do_without("aiohttp", "aiofiles", "torchvision", "pydantic", "yaml", "tqdm", "rich")

from nanofed.server.aggregator import FedAvgAggregator  # noqa: E402


def round(algorithm, model, hyper, state, data, plan):
    w = state["server"]["w"]
    net = torch.nn.ParameterDict({"w": torch.tensor(w)})
    ends = train_clients(model, hyper, w, data, plan)
    updates = [
        {"client_id": k, "round_number": 0, "model_state": {"w": torch.tensor(w_k)},
         "metrics": {"num_samples": n}}
        for k, w_k, n in ends
    ]  # fmt: skip
    FedAvgAggregator().aggregate(net, updates)
    return {"server": {"w": net["w"].detach().numpy()}}
