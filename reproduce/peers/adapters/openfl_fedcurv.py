"""OpenFL: `FedCurv` in loops of ours; its buffers _u, _v and _w come back as sums of the server's."""

import numpy as np
import torch
from in_torch import Net, client_batches, do_without, loss, take_steps

do_without("dynaconf", "grpc", "tqdm", "rich", "docker", "tensorboard", "flatten_json")

from openfl.interface.aggregation_functions import FedCurvWeightedAverage  # noqa: E402
from openfl.utilities.fedcurv.torch import FedCurv  # noqa: E402
from openfl.utilities.types import LocalTensor  # noqa: E402


def round(algorithm, model, hyper, state, data, plan):
    clients = state.get("objects") or []
    w, sums, sent = state["server"]["w"], state.get("sums", {}), []
    for k in range(2):
        if "objects" not in state:
            clients = [*clients, (net := Net(model, w), FedCurv(net, hyper["lam"]))]
        net, curv = clients[k]
        names = [n for n, _ in net.named_parameters()]
        net.load_state_dict(dict(zip(names, Net(model, w).parameters())) | sums, strict=False)
        curv.on_train_begin(net)
        pairs = client_batches(data, plan, k)
        take_steps(net, hyper["lr"], pairs, lambda z, y: loss(z, y) + curv.get_penalty(net))  # noqa: B023
        curv.on_train_end(net, pairs, "cpu")
        sent.append({n: x.detach().numpy().copy() for n, x in net.state_dict().items()})
    p, mean, new = plan["sizes"] / plan["sizes"].sum(), FedCurvWeightedAverage(), {}
    for name in sent[0]:
        each = [LocalTensor(str(k), x[name], p[k]) for k, x in enumerate(sent)]
        new[name] = torch.tensor(mean.call(each, None, name, 0, ()))
    w = np.concatenate([new.pop(n).numpy().ravel() for n in names])
    return {"server": {"w": w}, "sums": new, "objects": clients}
