"""FedDyn: a regulariser that follows each client, so that local minima agree with the global one.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama, *Federated learning based on dynamic
regularization*, ICLR 2021, https://arxiv.org/abs/2111.04263.

Objective of client k in round t [feddyn objective]: L_k(θ) − ⟨h_k, θ⟩ + (α/2)‖θ − θᵗ‖², where
h_k = ∇L_k(θ_k) at the client's own minimum of the round in which it last took part.

    symbol  name      shape
    θ       w         (..., d)
    θᵗ      w0        (d,)  the model that the server sent
    h_k     h_k       (..., d)  kept by the client between rounds, 0 at first
    h       h         (d,)  the server's: the mean of all h_k
    α       alpha     number
    η       lr        number
    N       Cohort.N  number of all clients

Equations: [feddyn objective] `objective`, `gradient` · [feddyn alg.1] `renewed_gradient`, `FedDyn.combine`.

Decisions
  solver. The paper minimises the local objective; a client takes E epochs (or τ steps) of SGD on it,
    as the authors' code does. Where that finds the minimum, h_k is ∇L_k(θ_k) after the round.
  signs. h_k is the gradient itself, ∇L_k, as printed; some implementations keep its negative.
  α/N. The server divides by all N clients, not by those of the round: h stays the mean of all h_k.
    A client that was drawn twice worked once, and counts once in h.
  weighting. The paper averages θ_k uniformly. Stragglers are dropped as FedAvg does.
  α is the weight of the penalty α/2‖θ − θᵗ‖². The authors' code computes its part α/2‖θ‖² by the
    optimiser's weight decay: copies of it that drop the decay lose the term αθ of the gradient.

>>> import numpy as np
>>> renewed_gradient(np.zeros(2), np.array([0.5, 2.0]), np.array([1.0, 3.0]), alpha=0.1)
array([0.05, 0.1 ])
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedref.algorithm import Algorithm, ClientResult, Cohort, Participant, Server, weighted_mean
from fedref.boundary.values import POSITIVE
from fedref.models.base import Model
from fedref.models.batch import AllData, Batch
from fedref.models.numerics import Array, weighted_sum


def objective(model: Model, w: Array, w0: Array, h_k: Array, D: Batch, *, alpha: float) -> Array:
    """L_k(θ; D) − ⟨h_k, θ⟩ + (α/2)‖θ − θᵗ‖²: (...) [feddyn objective]."""
    linear, square = np.sum(h_k * w, -1), np.sum((w - w0) ** 2, -1)
    return model.loss(w, D) - linear + alpha / 2 * square  # [feddyn objective]


def gradient(model: Model, w: Array, w0: Array, h_k: Array, D: Batch, *, alpha: float) -> Array:
    """∇L_k(θ; D) − h_k + α(θ − θᵗ): (..., d) [feddyn objective]."""
    # [feddyn objective] ∇r_k = g(θ; D) − h_k + α(θ − θᵗ)
    return model.grad(w, D) - h_k + alpha * (w - w0)


def renewed_gradient(h_k: Array, w: Array, w0: Array, *, alpha: float) -> Array:
    """h_k − α(θ_k − θᵗ): ∇L_k(θ_k) where θ_k minimises the objective [feddyn alg.1]."""
    return h_k - alpha * (w - w0)  # [feddyn alg.1] h_k = h_k − α(θ − θᵗ)


class DynServer(NamedTuple):
    w: Array  # (d,)
    h: Array  # (d,)


class ClientState(NamedTuple):
    h_k: Array  # (d,)


class Local(NamedTuple):
    w: Array
    h_k: Array


@dataclass(frozen=True)
class FedDyn(Algorithm[DynServer, Server, Local, ClientState], stacks=True):
    """SGD on the dynamically regularised loss; only θ travels."""

    weighting: str = "uniform"
    lr: float = 0.05
    alpha: float = 0.1
    bounds: ClassVar = {"alpha": POSITIVE}

    def initial(self, model: Model, w: Array) -> DynServer:
        return DynServer(w, np.zeros_like(w))

    def download(self, server: DynServer) -> Server:
        return Server(server.w)

    def start(
        self, model: Model, sent: Server, client_state: ClientState | None, client: Participant
    ) -> Local:
        return Local(sent.w, np.zeros_like(sent.w) if client_state is None else client_state.h_k)

    def step(self, model: Model, sent: Server, local: Local, *batches: Batch) -> Local:
        w, h_k = local
        (D,) = batches
        return Local(w - self.lr * gradient(model, w, sent.w, h_k, D, alpha=self.alpha), h_k)

    def finish(
        self,
        model: Model,
        sent: Server,
        local: Local,
        client_state: ClientState | None,
        data: AllData,
    ) -> ClientResult:
        h_k = renewed_gradient(local.h_k, local.w, sent.w, alpha=self.alpha)
        return ClientResult(upload=local.w, client_state=ClientState(h_k))

    def combine(self, model: Model, server: DynServer, uploads: Array, cohort: Cohort) -> DynServer:
        K = len(cohort.clients)
        total_change = weighted_sum(np.ones(K), uploads) - K * server.w  # Σ_k (θ_k − θᵗ)
        h = server.h - self.alpha / cohort.N * total_change  # [feddyn alg.1]
        # [feddyn alg.1]
        return DynServer(weighted_mean(cohort.weights(self.weighting), uploads) - h / self.alpha, h)
