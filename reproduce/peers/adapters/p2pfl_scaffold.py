"""p2pfl: SCAFFOLD's aggregator, and its callback in Lightning's own Trainer."""

import lightning
import numpy as np
import torch
from adapters.p2pfl import Model
from in_torch import Net, client_batches, cut, loss
from p2pfl.learning.aggregators.scaffold import Scaffold
from p2pfl.learning.frameworks.pytorch.callbacks.scaffold_callback import SCAFFOLDCallback

QUIET = dict.fromkeys(("logger", "enable_progress_bar", "enable_checkpointing"), False)
QUIET |= {"accelerator": "cpu", "enable_model_summary": False, "max_epochs": 1}


class Module(lightning.LightningModule):
    """The network as Lightning trains it."""

    def __init__(self, net, lr):
        super().__init__()
        self.net, self.lr = net, lr

    training_step = lambda self, D, i: loss(self.net(D["X"]), D["y"])  # noqa: E731
    configure_optimizers = lambda self: torch.optim.SGD(self.parameters(), self.lr)  # noqa: E731


def round(algorithm, model, hyper, state, data, plan):
    w, it = state["server"]["w"], state.get("object")
    callbacks, c = state.get("objects") or [SCAFFOLDCallback() for _ in range(2)], state.get("c")
    parts = [x.numpy() for x in cut(Net(model, w), w)]
    if it is None:
        it = Scaffold(global_lr=hyper["server_lr"])
        it.set_addr("server")
        it.global_model_params = parts
    sent = []
    for k, n in zip(plan["clients"], plan["sizes"]):
        callbacks[k].additional_info = {"global_c": c} if c else {}
        net, pairs = Net(model, w), [{"X": X, "y": y} for X, y in client_batches(data, plan, k)]
        loader = torch.utils.data.DataLoader(pairs, batch_size=None)
        lightning.Trainer(**QUIET, callbacks=[callbacks[k]]).fit(Module(net, hyper["lr"]), loader)
        sent.append(Model([p.detach().numpy() for p in net.parameters()], int(n)))
        sent[-1].info = callbacks[k].additional_info
    new = np.concatenate([x.ravel() for x in it.aggregate(sent).parts])
    return {"server": {"w": new}, "object": it, "objects": callbacks, "c": it.c}
