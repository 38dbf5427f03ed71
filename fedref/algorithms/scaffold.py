"""SCAFFOLD: control variates that correct the drift of each client's steps.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, *SCAFFOLD: stochastic controlled averaging for
federated learning*, ICML 2020, https://arxiv.org/abs/1910.06378.

Objective: f(x) = (1/N) Σ_i f_i(x). A client adds c − c_i to every gradient: the server's estimate of
∇f(x) less its own estimate of ∇f_i(x). Its steps then follow the mean of all clients' gradients.

    symbol  name       shape
    x       w          (d,)  the server's model
    y_i     y          (..., d)  the client's
    c       c          (d,)  the server's control variate; the mean of all c_i
    c_i     c_i        (..., d)  the client's control variate, kept between rounds
    K       K          (...)  local steps
    η_l     lr         number
    η_g     server_lr  number
    N       Cohort.N   number of all clients

Equations, all of [scaffold alg.1]: `corrected_gradient` · `difference` and `Scaffold.finish` (c_i⁺,
options II and I) · `Scaffold.combine`.

Decisions
  c_i⁺. Option II, c_i − c + (x − y_i)/(Kη_l), is the default as in the paper's experiments;
    `control = "gradient"` is option I, ∇f_i(x) on all of the client's data.
  K is the number of steps that this client took, not of epochs: it differs with the client's size.
  c. The paper adds |S|/N times the mean of Δc_i, which is Σ_{i∈S} Δc_i / N: the mean of all c_i
    stays c, whichever clients take part. A client that was drawn twice worked once, and counts once.
    fl4health 0.4.2 does so too; nvflare 2.9.0 takes the mean over those that took part, weighted by
    steps; declearn 2.9.1 the mean of the c_i of those seen so far.
  weighting. The paper averages uniformly. Stragglers are dropped as FedAvg does; with
    `drop = false` a straggler's K is that of its partial work.
  A client that is not drawn keeps its c_i. Other implementations lose it (c_i = 0 in every round is
    FedAvg with a delay), send c_i⁺ in place of Δc_i, or leave out |S|/N.
  A reply that is lost. The paper commits c_i⁺ on the client before the server has Δc_i: if that never
    arrives, c − mean c_i is wrong for good, while c → 0 looks converged. Two clients ½(w + 1)² and
    (3/2)(w − 2)² with η_l = 0.05, K = 5, from 0, lose the first's reply of round 4: the mean gradient
    stays at 0.082, which is |c − mean c_i|. Here c_i⁺ counts with the reply: a client that failed keeps
    the c_i that it had; over Flower a request names the round whose state counts; a checkpoint holds c
    and all c_i.

>>> import numpy as np
>>> x, y, c = np.array([1.0, 2.0]), np.array([0.5, 2.0]), np.zeros(2)
>>> difference(c, c, x, y, K=5, lr=0.1)               # the mean gradient along the way
array([1., 0.])
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedref.algorithm import Algorithm, ClientResult, Cohort, Participant, weighted_mean
from fedref.boundary.values import POSITIVE
from fedref.models.base import Model
from fedref.models.batch import AllData, Batch
from fedref.models.numerics import Array, weighted_sum


def corrected_gradient(model: Model, y: Array, c_i: Array, c: Array, D: Batch) -> Array:
    """g_i(y; D) − c_i + c: (..., d) [scaffold alg.1]."""
    return model.grad(y, D) - c_i + c  # [scaffold alg.1] v = g(y; D) − c_i + c


def difference(c_i: Array, c: Array, x: Array, y: Array, *, K: int, lr: float) -> Array:
    """c_i⁺ of option II, c_i − c + (x − y)/(Kη_l): the mean of the gradients along the path [scaffold alg.1].

    x : the server's model, (d,).
    """
    return c_i - c + (x - y) / (K * lr)  # [scaffold alg.1] c*_i = c_i − c + (x − y)/(Kη_l)


class ScaffoldServer(NamedTuple):
    w: Array  # (d,)
    c: Array  # (d,)


class ClientState(NamedTuple):
    c_i: Array  # (d,)


class Local(NamedTuple):
    y: Array
    c_i: Array
    K: Array


class Upload(NamedTuple):
    dy: Array  # Δy_i = y_i − x
    dc: Array  # Δc_i = c_i⁺ − c_i


@dataclass(frozen=True)
class Scaffold(Algorithm[ScaffoldServer, ScaffoldServer, Local, ClientState], stacks=True):
    """SGD with corrected gradients; twice as much travels as in FedAvg, both down and up."""

    weighting: str = "uniform"
    lr: float = 0.05
    server_lr: float = 1.0
    control: str = "difference"
    choices: ClassVar = {"control": ("difference", "gradient")}
    bounds: ClassVar = {"lr": POSITIVE}

    def initial(self, model: Model, w: Array) -> ScaffoldServer:
        return ScaffoldServer(w, np.zeros_like(w))

    def start(
        self,
        model: Model,
        sent: ScaffoldServer,
        client_state: ClientState | None,
        client: Participant,
    ) -> Local:
        c_i = np.zeros_like(sent.w) if client_state is None else client_state.c_i
        return Local(sent.w, c_i, np.array(0))

    def step(self, model: Model, sent: ScaffoldServer, local: Local, *batches: Batch) -> Local:
        y, c_i, K = local
        (D,) = batches
        return Local(y - self.lr * corrected_gradient(model, y, c_i, sent.c, D), c_i, K + 1)

    def finish(
        self, model: Model, sent: ScaffoldServer, local: Local,
        client_state: ClientState | None, data: AllData,
    ) -> ClientResult:  # fmt: skip
        x, (y, c_i, K) = sent.w, local
        if self.control == "gradient":
            new = model.grad(x, data())  # [scaffold alg.1]
        else:
            new = difference(c_i, sent.c, x, y, K=int(K), lr=self.lr)
        return ClientResult(Upload(y - x, new - c_i), ClientState(new))

    def combine(
        self, model: Model, server: ScaffoldServer, uploads: Upload, cohort: Cohort
    ) -> ScaffoldServer:
        p, ones = cohort.weights(self.weighting), np.ones(len(cohort.clients))
        # [scaffold alg.1]
        w = server.w + self.server_lr * weighted_mean(p, uploads.dy)
        # [scaffold alg.1]
        return ScaffoldServer(w, server.c + weighted_sum(ones, uploads.dc) / cohort.N)
