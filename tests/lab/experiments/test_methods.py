"""Eight methods of papers as generators of at most 20 lines, beside classes that compute the same."""

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from pages import FILES
from running import run_beside, worst_of

from fedref import checks, spec
from fedref.algorithm import ClientResult, Server, weighted_mean
from fedref.algorithms.fedavg import FedAvg
from fedref.models import MLP


def mask_of(f, w, layer):
    """Return which parameters are in a layer: 0 is the first, −1 the last."""
    mask = np.zeros(len(w), bool)
    for part in f.model.unpack(mask)[2 * layer :][:2]:
        part[...] = True
    return mask


# ---- as their authors would write them ---------------------------------------------------------------


def fedper(f, w, rounds, eta=0.05, layer=-1):
    """Arivazhagan et al. 2019: the last layer of a client's model stays with it."""
    own, kept = mask_of(f, w, layer), {}
    for clients in rounds:
        for client in clients:
            w_k = np.where(own, kept.get(client.k, w), w)
            for (D,) in client.steps:
                w_k = w_k - eta * f.grad(w_k, D)
            kept[client.k] = w_k
        ws = [kept[client.k] for client in clients]
        w = np.where(own, w, spec.average(spec.sample_weights(clients), ws))
        yield w, {k: np.where(own, w_k, w) for k, w_k in kept.items()}


def lg_fedavg(f, w, rounds, eta=0.05):
    """Liang et al. 2020: the first layer, a representation, stays with its client."""
    yield from fedper(f, w, rounds, eta, layer=0)


def fedrep(f, w, rounds, eta=0.05, tau=1, layer=-1):
    """Collins et al. 2021: first tau steps of the own head, the others of the shared body."""
    own, kept = mask_of(f, w, layer), {}
    for clients in rounds:
        for client in clients:
            w_k = np.where(own, kept.get(client.k, w), w)
            for t, (D,) in enumerate(client.steps):
                w_k = w_k - eta * np.where(t < tau, own, ~own) * f.grad(w_k, D)
            kept[client.k] = w_k
        ws = [kept[client.k] for client in clients]
        w = np.where(own, w, spec.average(spec.sample_weights(clients), ws))
        yield w, {k: np.where(own, w_k, w) for k, w_k in kept.items()}


def fedalt(f, w, rounds, eta=0.05, tau=2):
    """Pillutla et al. 2022: any part of one's own, here the first layer, is trained before what is shared."""
    yield from fedrep(f, w, rounds, eta, tau, layer=0)


def qffl(f, w, rounds, eta=0.05, q=1.0):
    """Li et al. 2020, q-FedAvg: clients with a large loss weigh more."""
    for clients in rounds:
        deltas, hs = [], []
        for client in clients:
            F, w_k = f(w, client.data), w
            for (D,) in client.steps:
                w_k = w_k - eta * f.grad(w_k, D)
            delta = (w - w_k) / eta
            deltas.append(F**q * delta)
            hs.append(q * F ** (q - 1) * delta @ delta + F**q / eta)
        w = w - sum(deltas) / sum(hs)
        yield w


def fedcm(f, w, rounds, eta=0.05, alpha=0.3):
    """Xu et al. 2021: each step follows the server's last direction, too."""
    direction = 0 * w
    for clients in rounds:
        ws, directions = [], []
        for client in clients:
            w_k = w
            for (D,) in client.steps:
                w_k = w_k - eta * (alpha * f.grad(w_k, D) + (1 - alpha) * direction)
            ws.append(w_k)
            directions.append((w - w_k) / (eta * len(client.steps)))
        p = spec.sample_weights(clients)
        w, direction = spec.average(p, ws), spec.average(p, directions)
        yield w


def ifca(f, w, rounds, eta=0.05):
    """Ghosh et al. 2020: two models; a client trains that which fits it better, by its first batch."""
    models, chosen = [w, -w], {}
    for clients in rounds:
        trained = [[], []]
        for client, p in zip(clients, spec.sample_weights(clients)):
            j = int(np.argmin([f(w_j, client.steps[0][0]) for w_j in models]))
            w_k, chosen[client.k] = models[j], j
            for (D,) in client.steps:
                w_k = w_k - eta * f.grad(w_k, D)
            trained[j].append((p, w_k))
        for j, pairs in enumerate(trained):
            if pairs:
                models[j] = sum(p * w_k for p, w_k in pairs) / sum(p for p, _ in pairs)
        yield models[0] + 0, {k: models[j] for k, j in chosen.items()}


# ---- the same with stacks ----------------------------------------------------------------------------


class WithModel(NamedTuple):
    model: Any


@dataclass(frozen=True)
class FedPer(FedAvg):
    tau: int = 0
    layer: ClassVar[int] = -1
    joint: ClassVar[bool] = True
    personalised: ClassVar[bool] = True

    def compose(self, model, sent, state):
        own = mask_of(WithModel(model), np.zeros(model.d), self.layer)
        return sent.w if state is None else np.where(own, state, sent.w)

    def start(self, model, sent, client_state, client):
        return self.compose(model, sent, client_state), np.array(0.0)

    def step(self, model, sent, local, D):
        w, t = local
        own = mask_of(WithModel(model), np.zeros(model.d), self.layer)
        moves = 1 if self.joint else np.where(t[..., None] < self.tau, own, ~own)
        return w - self.lr * moves * model.grad(w, D), t + 1

    def finish(self, model, sent, local, client_state, data):
        return ClientResult(local[0], local[0])

    def combine(self, model, server, uploads, cohort):
        w = weighted_mean(cohort.weights(self.weighting), uploads)
        return Server(self.compose(model, Server(w), server.w))

    def personalised_params(self, model, sent, client_state, D):
        return self.compose(model, sent, client_state)


@dataclass(frozen=True)
class LGFedAvg(FedPer):
    layer: ClassVar[int] = 0


@dataclass(frozen=True)
class FedRep(FedPer):
    tau: int = 1
    joint: ClassVar[bool] = False


@dataclass(frozen=True)
class FedAlt(FedRep):
    tau: int = 2
    layer: ClassVar[int] = 0


@dataclass(frozen=True)
class QFFL(FedAvg):
    q: float = 1.0

    def finish(self, model, sent, local, client_state, data):
        F, delta = model.loss(sent.w, data()), (sent.w - local) / self.lr
        h = self.q * F ** (self.q - 1) * (delta**2).sum() + F**self.q / self.lr
        return ClientResult((F**self.q * delta, h))

    def combine(self, model, server, uploads, cohort):
        return Server(server.w - uploads[0].sum(0) / uploads[1].sum())


class CMServer(NamedTuple):
    w: Any
    direction: Any


@dataclass(frozen=True)
class FedCM(FedAvg):
    alpha: float = 0.3

    def initial(self, model, w):
        return CMServer(w, 0 * w)

    def start(self, model, sent, client_state, client):
        return sent.w, np.array(0.0)

    def step(self, model, sent, local, D):
        w, t = local
        g = self.alpha * model.grad(w, D) + (1 - self.alpha) * sent.direction
        return w - self.lr * g, t + 1

    def finish(self, model, sent, local, client_state, data):
        w, t = local
        return ClientResult((w, (sent.w - w) / (self.lr * t)))

    def combine(self, model, server, uploads, cohort):
        p = cohort.weights(self.weighting)
        return CMServer(*(weighted_mean(p, x) for x in uploads))


@dataclass(frozen=True)
class IFCA(FedAvg):
    personalised: ClassVar[bool] = True

    def initial(self, model, w):
        return CMServer(w, -w)

    def start(self, model, sent, client_state, client):
        return sent.w, np.array(-1.0)

    def step(self, model, sent, local, D):
        w, j = local
        new = 1.0 * (model.loss(sent.direction, D) < model.loss(sent.w, D))
        start = np.where(new[..., None] > 0, sent.direction, sent.w)
        w, j = np.where(j[..., None] < 0, start, w), np.where(j < 0, new, j)
        return w - self.lr * model.grad(w, D), j

    def finish(self, model, sent, local, client_state, data):
        return ClientResult(local, local[1])

    def combine(self, model, server, uploads, cohort):
        ws, chosen = uploads
        p, new = cohort.weights(self.weighting), []
        for j, before in enumerate(server):
            p_j = p * (chosen == j)
            new.append(weighted_mean(p_j / p_j.sum(), ws) if p_j.any() else before)
        return CMServer(*new)

    def personalised_params(self, model, sent, client_state, D):
        return sent.w if client_state is None else sent[int(client_state)]


PAIRS = [(fedper, FedPer), (lg_fedavg, LGFedAvg), (fedrep, FedRep), (fedalt, FedAlt), (qffl, QFFL),
         (fedcm, FedCM), (ifca, IFCA)]  # fmt: skip


def first_of(generator):
    """Return a generator of w alone: what clients keep and what they are tested with may differ."""

    def mine(f, w, rounds):
        for x in generator(f, w, rounds):
            yield x[0] if isinstance(x, tuple) else x

    return mine


@pytest.mark.parametrize(("generator", "cls"), PAIRS, ids=[cls.__name__ for _, cls in PAIRS])
def test_a_method_in_20_lines_is_the_class(generator, cls):
    assert len(inspect.getsource(generator).splitlines()) <= 22  # its name and its paper, too
    with np.errstate(
        all="ignore"
    ):  # where all losses drawn are 0, q-FFL divides 0 by 0: no draw that counts
        report = checks.check_rounds(cls(), first_of(generator), draws=25)
    assert report.ok, report.where
    how = {"model": MLP(64, (6,), 10), "rounds": 4, "clients-per-round": 2, "epochs": 2}
    built, own = run_beside(
        cls, generator, **how, split={"rule": "per-fedavg", "users": 6, "a": 4}
    ).records
    assert worst_of(built, own) < 1e-12
    (fedavg,) = run_beside(
        "fedavg", **how, split={"rule": "per-fedavg", "users": 6, "a": 4}
    ).records
    assert worst_of(fedavg, own) > 1e-6


def test_the_eighth_is_readme_s():
    scope = {"__name__": "pages"}
    exec(FILES["ditto.py"], scope)
    report = checks.check_rounds(FedAvg(lr=0.05), first_of(scope["ditto"]), draws=25)
    assert report.ok, report.where
