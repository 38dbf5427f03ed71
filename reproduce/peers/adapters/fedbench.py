"""fedbench: FedNova's and SCAFFOLD's clients and servers. Of Flower, the mean of lists alone is called."""

import sys
import tempfile
from types import ModuleType

import numpy as np
from in_torch import Net, client_batches, do_without, space

do_without("omegaconf", "hydra", "torchvision", "datasets")
do_without("flwr", always=True)
wire = sys.modules["flwr.common"] = ModuleType("flwr.common")
for name in ("Context", "FitRes", "GetParametersIns", "NDArrays", "Parameters", "Scalar"):
    setattr(wire, name, object)
wire.ndarrays_to_parameters = wire.parameters_to_ndarrays = list
wire.logger = sys.modules["flwr.common.logger"] = space(log=lambda *said: None)
wire.typing = sys.modules["flwr.common.typing"] = wire
means = sys.modules["flwr.server.strategy.aggregate"] = ModuleType("aggregate")
means.aggregate = lambda sent: [
    np.average(x, axis=0, weights=[n for _, n in sent]) for x in zip(*(xs for xs, _ in sent))
]

from fedbench.algorithms.fednova.client import FlowerClientFedNova  # noqa: E402
from fedbench.algorithms.fednova.strategy import FedNovaStrategy  # noqa: E402
from fedbench.algorithms.scaffold import server as scaffold  # noqa: E402
from fedbench.algorithms.scaffold.client import FlowerClientScaffold  # noqa: E402
from fedbench.algorithms.scaffold.strategy import ScaffoldStrategy  # noqa: E402


def sent(algorithm, model, hyper, data, plan, w, parameters):
    """Yield what each client sends; each is made anew, as fedbench's simulation does in every round."""
    for i, k in enumerate(plan["clients"]):
        loader = type("Loader", (list,), {"dataset": range(plan["sizes"][i])})
        batches = loader(client_batches(data, plan, k)[: plan["per_epoch"][i]])
        own = Net(model, w), batches, None, "cpu", int(plan["amount"][i]), hyper["lr"], 0.0, 0.0
        with tempfile.TemporaryDirectory() as folder:
            it = FlowerClientFedNova(*own)
            if algorithm == "scaffold":
                it = FlowerClientScaffold(int(k), *own, folder)
            arrays, n, metrics = it.fit(parameters, {})
        yield None, space(parameters=arrays, num_examples=n, metrics=metrics)


def round(algorithm, model, hyper, state, data, plan):
    w, server = state["server"]["w"], state.get("object")
    net, given = Net(model, w), (algorithm, model, hyper, data, plan, w)
    it = FedNovaStrategy() if algorithm == "fednova" else ScaffoldStrategy()
    it.accept_failures, it.fit_metrics_aggregation_fn = True, None
    if algorithm == "fednova":
        arrays = [p.detach().numpy() for p in net.parameters()]
        new, _ = it.aggregate_fit_custom(1, arrays, [*sent(*given, arrays)], [])
    else:
        it.configure_fit = lambda server_round, parameters, **_: [*sent(*given, parameters)]
        scaffold.fit_clients = lambda client_instructions, **_: (client_instructions, [])
        server = server or scaffold.ScaffoldServer(it, net, None)
        server.strategy, server.max_workers = it, 1
        server._client_manager = space(all=lambda: range(2), num_available=lambda: 2)
        new = server.parameters = server.fit_round(1, None)[0]
    return {"server": {"w": np.concatenate([x.ravel() for x in new])}, "object": server}
