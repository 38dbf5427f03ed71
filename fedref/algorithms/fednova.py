"""FedNova: normalised averaging, so that clients that take more steps do not pull harder.

Wang, Liu, Liang, Joshi, Poor, *Tackling the objective inconsistency problem in heterogeneous
federated optimization*, NeurIPS 2020, https://arxiv.org/abs/2007.07481.

Objective: f(w) = Σ_k p_k f_k(w). If client k takes τ_k steps, FedAvg descends Σ_k p_k τ_k f_k
instead. FedNova divides each client's change by its number of steps before averaging.

    symbol  name  shape
    w       w        (..., d)
    w_k     w_k      (..., d)  a client's model after its steps
    τ_eff   tau_eff  number, Σ_k p_k τ_k
    τ_k     tau      (...)  local steps
    d_k     d        (..., d)  (wᵗ − w_k)/(ητ_k), the mean gradient along the client's path
    η       lr       number

Equations, all of [fednova alg.1]: `normalised_change` · `FedNova.combine`.

Decisions
  solver. Plain SGD, for which the paper's vector a_k is τ_k ones; with momentum or proximal steps it
    is another.
  τ_eff = Σ_k p_k τ_k, the paper's default: with equal τ_k FedNova is FedAvg.
  weighting. By samples. Stragglers' partial work is aggregated (`drop = false`): normalising makes up
    for unequal numbers of steps.
  cost. A client sends τ_k beside d_k. It is a counter: its bytes are not counted.

>>> import numpy as np
>>> normalised_change(np.array([1.0, 2.0]), np.array([0.5, 2.0]), tau=5, lr=0.1)
array([1., 0.])
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedref.algorithm import Algorithm, ClientResult, Cohort, Participant, Server, weighted_mean
from fedref.algorithms.fedavg import local_step
from fedref.boundary.values import POSITIVE
from fedref.models.base import Model
from fedref.models.batch import AllData, Batch
from fedref.models.numerics import Array


def normalised_change(w: Array, w_k: Array, *, tau: int, lr: float) -> Array:
    """d_k = (wᵗ − w_k)/(ητ_k): (d,) [fednova alg.1]."""
    return (w - w_k) / (lr * tau)  # [fednova alg.1] d_k = (w − w_k)/(ητ_k)


class Local(NamedTuple):
    w: Array
    tau: Array


class Upload(NamedTuple):
    d: Array
    tau: Array


@dataclass(frozen=True)
class FedNova(Algorithm[Server, Server, Local, None], stacks=True):
    """FedAvg's clients, averaged per step."""

    drop: bool = False
    lr: float = 0.05
    bounds: ClassVar = {"lr": POSITIVE}

    def start(self, model: Model, sent: Server, client_state: None, client: Participant) -> Local:
        return Local(sent.w, np.array(0))

    def step(self, model: Model, sent: Server, local: Local, *batches: Batch) -> Local:
        (D,) = batches
        return Local(local_step(model, local.w, D, lr=self.lr), local.tau + 1)

    def finish(
        self, model: Model, sent: Server, local: Local, client_state: None, data: AllData
    ) -> ClientResult:
        d_k = normalised_change(sent.w, local.w, tau=int(local.tau), lr=self.lr)
        return ClientResult(Upload(d_k, local.tau))

    def combine(self, model: Model, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        p = cohort.weights(self.weighting)
        # [fednova alg.1] τ_eff = Σ_k p_k τ_k
        tau_eff = float(sum(p_k * tau for p_k, tau in zip(p, uploads.tau)))
        # [fednova alg.1] w = w − τ_eff ηΣ_k p_k d_k
        return Server(server.w - tau_eff * self.lr * weighted_mean(p, uploads.d))
