"""PFLlib: clients of system/flcore/clients, as they are but for the loader, which yields our batches."""

import numpy as np
import torch
from in_torch import Net, batch, batches, do_without, flat, space

do_without("sklearn", "ujson", "h5py", "pandas", "torchtext")

from flcore.clients.clientapfl import clientAPFL  # noqa: E402
from flcore.clients.clientavg import clientAVG  # noqa: E402
from flcore.clients.clientperavg import clientPerAvg  # noqa: E402
from flcore.clients.clientprox import clientProx  # noqa: E402

KINDS = {"fedavg": clientAVG, "fedprox": clientProx, "per-fedavg-fo": clientPerAvg}
KINDS["apfl-deng"] = clientAPFL
SETTINGS = {
    "algorithm": "", "dataset": "", "device": "cpu", "save_folder_name": "", "num_classes": 3,
    "batch_size": 4, "local_epochs": 1, "few_shot": 0, "learning_rate_decay_gamma": 1.0,
    "learning_rate_decay": False,
}  # fmt: skip


def client(algorithm, model, hyper, server, data, rows, client=None):
    net = Net(model, server["w"])
    lr = hyper["alpha"] if algorithm == "per-fedavg-fo" else hyper["lr"]
    args = space(model=net, local_learning_rate=lr, mu=hyper.get("mu"), **SETTINGS)
    args.alpha = np.float64(client["a"]) if client else None
    it = KINDS[algorithm](args, 0, 9, 0, train_slow=False, send_slow=False)
    loader = batches(data, rows["D"])
    if algorithm == "fedprox":
        it.set_parameters(net)
    if algorithm == "per-fedavg-fo":  # one batch of 2B: the first half steps, the second half tests
        pairs = np.concatenate([rows["D"], rows["D1"]], axis=1)
        loader = [batch(data, line) for line in pairs]
    if client:
        it.model_per = Net(model, client["v"])
        it.optimizer_per = torch.optim.SGD(it.model_per.parameters(), lr=lr)
    it.load_train_data = lambda size=None: loader
    it.train()
    kept = {"client": {"v": flat(it.model_per)}} if client else {}
    return {"upload": {"w": flat(it.model)}, **kept}
