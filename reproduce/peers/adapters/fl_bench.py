"""FL-bench: clients of src/client, and SCAFFOLD's and FedDyn's servers, with our batches for a loader."""

from collections import OrderedDict
from functools import partial
from importlib import import_module

import torch
from in_torch import Net, batches, client_batches, cut, do_without, flat, space

do_without("omegaconf", "pandas", "torchvision", "PIL", "pynvml", "ray", "rich", "sklearn", "hydra")
do_without("matplotlib", "tqdm", "visdom", "tensorboard", "fedlab")

NAMES = {"per": "PerFedAvg", "apfl": "APFL", "scaffold": "SCAFFOLD", "feddyn": "FedDyn"}
NAMES |= {"fedavg": "FedAvg", "fedprox": "FedProx"}
NO_TEST = space(train=False, val=False, test=False)
DATA = space(train=lambda: None, eval=lambda: None)


def make_client(algorithm, net, hyper, epochs, a=0.0):
    name, lr = NAMES[algorithm.split("-")[0]], hyper["alpha" if "per" in algorithm else "lr"]
    common = space(buffers="local", batch_size=4, local_epoch=epochs, client_side_evaluation=False)
    common.reset_optimizer_on_global_epoch, common.test = True, space(client=NO_TEST)
    args = space(common=common, optimizer=space(lr=lr), fedprox=space(mu=hyper.get("mu")))
    args.apfl, args.scaffold = space(alpha=a, adaptive_alpha=False), space(global_lr=1.0)
    args.feddyn = args.perfedavg = space(max_grad_norm=1e9, version=algorithm[-2:], **hyper)
    sgd, rows = partial(torch.optim.SGD, lr=lr), [{"train": [0] * 8, "val": [], "test": []}] * 2
    kind = getattr(import_module(f"src.client.{name.lower()}"), f"{name}Client")
    return kind(model=net, optimizer_cls=sgd, lr_scheduler_cls=None, args=args, dataset=DATA,
                data_indices=rows, device=torch.device("cpu"), return_diff=True)  # fmt: skip


def client(algorithm, model, hyper, server, data, rows, client=None):
    net = Net(model, server["w"])
    it = make_client(algorithm, net, hyper, 1, float(client["a"]) if client else 0.0)
    it.trainloader = [b for lines in zip(*rows.values()) for b in batches(data, lines)]
    if client:
        it.local_model.load_state_dict(dict(zip(net.state_dict(), cut(net, client["v"]))))
    it.fit()
    return {"upload": {"w": flat(net)}, "client": {"v": flat(it.local_model)} if client else {}}


def round(algorithm, model, hyper, state, data, plan):
    w = state["server"]["w"]  # one object plays both clients, as in FL-bench's serial mode
    it = make_client(algorithm, Net(model, w), hyper, 2 if algorithm == "scaffold" else 1)
    server = state.get("object")
    if server is None:  # its own __init__, without its base's files and logs
        kind = getattr(import_module(f"src.server.{algorithm}"), f"{NAMES[algorithm]}Server")
        names = {"args": it.args, "client_num": 2, "train_clients": [0, 1], "model": Net(model, w),
                 "client_local_epoches": [it.local_epoch] * 2}  # fmt: skip
        for name in ("client_optimizer_states", "client_lr_scheduler_states"):
            names[name] = names["clients_personal_model_params"] = [{}, {}]
        names["public_model_params"] = OrderedDict(Net(model, w).state_dict())
        kind.__base__.__init__ = lambda self, args: self.__dict__.update(names)
        server = kind(it.args)
    packages = OrderedDict()
    for k in range(2):
        it.trainloader = client_batches(data, plan, k)
        packages[k] = it.train(server.package(k))
    server.aggregate_client_updates(packages)
    return {"server": {"w": flat(server.public_model_params.values())}, "object": server}
