"""iflearner: the server's optimisers (strategy/opt) and `FedNovaServer`, after FedAvg's local steps."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
from in_torch import do_without, train_clients

do_without("loguru", "grpc", "tensorboardX", "visualdl", "matplotlib")
wire = sys.modules["iflearner.communication.homo.homo_pb2"] = ModuleType("homo_pb2")
wire.Parameter = lambda shape: SimpleNamespace(shape=shape, values=[])
wire.RegistrationResponse = wire.UploadParam = wire.MSG_REGISTER = object

from iflearner.business.homo.strategy import fednova_server, strategy_server  # noqa: E402
from iflearner.business.homo.strategy.opt import FedAdagrad, FedAdam, FedAvgm, FedYogi  # noqa: E402

strategy_server.Metric = lambda **_: None
NAMES = {"fedadam": FedAdam, "fedyogi": FedYogi, "fedadagrad": FedAdagrad}


def round(algorithm, model, hyper, state, data, plan):
    w, ends = state["server"]["w"], train_clients(model, hyper, state["server"]["w"], data, plan)
    if algorithm == "fednova":
        return {"server": {"w": nova(w, ends, plan)}}
    it = state.get("object")
    if it is None:
        if algorithm == "fedavgm":
            it = FedAvgm(hyper["server_lr"], hyper["momentum"])
        else:
            betas = hyper["beta1"], hyper["beta2"]
            it = NAMES[algorithm](hyper["server_lr"], betas, hyper["tau"])
        it.set_params({"w": w})
    p = np.array([n for _, _, n in ends])
    mean = p / p.sum() @ np.stack([w_k for _, w_k, _ in ends])
    return {"server": {"w": it.step({"w": mean - w})["w"]}, "object": it}


def nova(w, ends, plan):
    it = fednova_server.FedNovaServer(len(ends), 1)
    it._params = {"w": w.copy()}
    for (name, _, n), steps in zip(ends, plan["steps"]):
        it._clients_samples[name], it._step_nums[name] = n, int(steps)
        it._training_clients[name] = {}
    for name, w_k, _ in ends:
        sent = {"w": SimpleNamespace(shape=w.shape, values=w_k - w)}
        it.handler_upload_param(name, SimpleNamespace(epoch=0, parameters=sent, metrics=None))
    return np.array(it._server_param["w"].values)
