"""fluke: clients and servers of fluke/algorithms, over its own channel; loaders yield our batches."""

from copy import deepcopy
from importlib import import_module

from in_torch import Net, client_batches, do_without, flat, loss

do_without("omegaconf", "pandas", "sklearn", "psutil", "rich", "seaborn", "torchmetrics")
do_without("diskcache", "cerberus", "matplotlib")

from fluke.config import OptimizerConfigurator  # noqa: E402
from fluke_loader import Loader  # noqa: E402

NAMES = {"fedavg": "CentralizedFL", "apfl-deng": "APFL", "fedavgm": "FedAVGM", "fedprox": "FedProx"}
NAMES |= dict.fromkeys(("fedadam", "fedyogi", "fedadagrad"), "FedOpt") | {"pfedme": "PFedMe"}
NAMES |= dict.fromkeys(("per-fedavg-fo", "per-fedavg-hf"), "PerFedAVG")
NAMES |= {"scaffold": "SCAFFOLD", "feddyn": "FedDyn", "fednova": "FedNova"}
FILES = {"CentralizedFL": "", "FedOpt": ".fedopt", "PerFedAVG": ".per_fedavg"}


def make(algorithm, hyper, net, loaders, a=None):
    """Return the algorithm with its clients, its server and the channel between them."""
    name, h = NAMES[algorithm], hyper
    kind = getattr(import_module("fluke.algorithms" + FILES.get(name, "." + name.lower())), name)
    it = kind.__new__(kind)  # without its files and splitters
    client = {"mu": h.get("mu"), "lam": a, "beta": h.get("beta"), "alpha": h.get("alpha")}
    client |= {"mode": algorithm[-2:].upper(), "k": h.get("inner_steps"), "clipping": 0}
    lr, more = h["alpha"] if name == "PerFedAVG" else h["lr"], {}
    if name == "PFedMe":
        more = {"lamda": h["lam"], "mu": 0.0}
    config = {"name": it.get_optimizer_class(), "lr": lr, **more}
    own = {"model": deepcopy(net)} if name == "APFL" else {}
    it.clients = [it.get_client_class()(
        index=k, train_set=loader, test_set=None, optimizer_cfg=OptimizerConfigurator(config),
        loss_fn=loss, local_epochs=1, **client, **own) for k, loader in enumerate(loaders)]  # fmt: skip
    server = {"PFedMe": {"beta": h.get("beta")}, "FedDyn": {"alpha": h.get("alpha")}}.get(name, {})
    if name == "FedOpt":
        server = {"mode": algorithm[3:], "beta1": h["beta1"], "beta2": h["beta2"], "tau": h["tau"]}
        server["lr"] = h["server_lr"]
    server |= {"momentum": h["momentum"]} if name == "FedAVGM" else {}
    server |= {"global_step": h["server_lr"]} if name == "SCAFFOLD" else {}
    by = h["weighting"] == "samples"
    it.server = it.get_server_class()(net, None, it.clients, weighted=by, **server)
    for one in it.clients:
        one.set_channel(it.server.channel)
    it._round_zero()
    return it


def round(algorithm, model, hyper, state, data, plan):
    loaders = [Loader(client_batches(data, plan, k)) for k in range(2)]
    net = Net(model, state["server"]["w"])
    it = state.get("object") or make(algorithm, hyper, net, loaders)
    some = [it.clients[k] for k in plan["clients"]]
    it.server.broadcast_model(some)
    for one in some:
        one.local_update(int(plan["round"]))
    it.server.aggregate(some, it.server.receive_client_models(some, state_dict=False))
    new = getattr(it.server, "cld_mdl", it.server.model)  # FedDyn's clients begin with it
    return {"server": {"w": flat(new)}, "object": it}
