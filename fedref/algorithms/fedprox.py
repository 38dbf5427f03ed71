"""FedProx: a proximal term for statistical, partial work for systems heterogeneity.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, *Federated optimization in heterogeneous networks*,
MLSys 2020, https://arxiv.org/abs/1812.06127, from notes that quote its algorithm 2.

Objective of client k in round t [fedprox alg.2]: h_k(w; wᵗ) = F_k(w) + (μ/2)‖w − wᵗ‖², solved
γ-inexactly: ‖∇h_k(w*; wᵗ)‖ ≤ γ ‖∇h_k(wᵗ; wᵗ)‖ [fedprox γ] on the client's full data.

    symbol  name   shape
    w       w      (..., d)
    wᵗ      w0     (d,)  the model that the server sent
    μ       mu     number
    γ       gamma  (...)  measured by `inexactness`
    η       lr     number
    p_k     p      (K,)  n_k/Σn_k
    g_k     gradients  (K, d)  ∇F_k(w) on all of client k's data
    B       B      number, the dissimilarity sqrt(E_k‖∇F_k‖² / ‖∇f‖²) [fedprox B]

Equations: [fedprox alg.2] `objective`, `prox_gradient`, `FedProx` · [fedprox γ] `inexactness` ·
[fedprox B] `dissimilarity` · [fedprox μ] `adapt_mu`.

Decisions
  weighting. [fedprox alg.2] draws clients with probability p_k and averages uniformly (run with
    `sampling = "by-samples"`, `weighting = "uniform"`). The default is FedAvg's weighting, so that
    μ = 0 is FedAvg bit for bit; other implementations average FedProx uniformly and FedAvg by n_k.
  stragglers. ⌊pK⌉ of the cohort do U{1..E} epochs from a random stream of their own; FedProx
    aggregates their work (`drop = false`), FedAvg drops them.
    A client that was drawn twice works once, and counts as one among the stragglers.
  cost. μ travels down as one float beside w: clients need it where it adapts.
  γ is measured after every local solve (`measure_gamma`; other implementations assume it). It can
    also end the solve: with `until_gamma` it is measured after each local epoch (or each step of a
    run in steps). The run's epochs or steps stay the upper limit.
  adaptive μ. +0.1 when the global training loss rises; −0.1 (not below 0) after 5 consecutive
    falls, after which the count starts anew; an unchanged loss ends a series of falls. Losses are
    compared from the first round on: the loss before training is not one of them.
  E_k weights clients by p_k = n_k/n, as f = Σ p_k F_k does.

>>> import numpy as np
>>> from fedref import Batch
>>> from fedref.models import Logistic
>>> model, w0 = Logistic(2, 2), np.zeros(6)
>>> D = Batch(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 1]))
>>> float(inexactness(model, w0, w0, D, mu=1.0))      # no work done yet
1.0
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedref.algorithm import Algorithm, Cohort, weighted_mean
from fedref.models.base import Model
from fedref.models.batch import AllData, Batch
from fedref.models.numerics import Array


def objective(model: Model, w: Array, w0: Array, D: Batch, *, mu: float) -> Array:
    """h_k(w; wᵗ) = F_k(w) + (μ/2)‖w − wᵗ‖²: (...) [fedprox alg.2]."""
    # [fedprox alg.2] h(w; wᵗ) = F(w; D) + (μ/2)‖w − wᵗ‖²
    return model.loss(w, D) + (mu / 2) * np.sum((w - w0) ** 2, -1)


def prox_gradient(model: Model, w: Array, w0: Array, D: Batch, *, mu: float) -> Array:
    """∇h_k(w; wᵗ) = ∇F_k(w) + μ(w − wᵗ): (..., d) [fedprox alg.2]."""
    return model.grad(w, D) + mu * (w - w0)  # [fedprox alg.2] ∇h(w; wᵗ) = g(w; D) + μ(w − wᵗ)


def inexactness(model: Model, w: Array, w0: Array, D: Batch, *, mu: float) -> Array:
    """γ = ‖∇h_k(w; wᵗ)‖ / ‖∇h_k(wᵗ; wᵗ)‖, D all of the client's data: (...) [fedprox γ].

    0 is an exact solution. Where wᵗ is already stationary: 0 if w is too, else inf.
    """
    now = np.sum(prox_gradient(model, w, w0, D, mu=mu) ** 2, -1)
    start = np.sum(prox_gradient(model, w0, w0, D, mu=mu) ** 2, -1)
    stationary = np.where(now == 0, 0.0, np.inf)
    ratio = np.sqrt(now / np.where(start == 0, 1, start))
    # [fedprox γ] γ = ‖g(w; D) + μ(w − wᵗ)‖ / ‖g(wᵗ; D)‖
    return np.where(start == 0, stationary, ratio)


class Dissimilarity(NamedTuple):
    B: float
    variance: float


def dissimilarity(model: Model, w: Array, clients: Sequence[Batch]) -> Dissimilarity:
    """B(w) = sqrt(E_k‖∇F_k‖² / ‖∇f‖²) and E_k‖∇F_k − ∇f‖², with E_k by p_k = n_k/n [fedprox B].

    clients : each client's full data. B is 1 where all gradients agree, inf where f is stationary
    and the clients are not.
    """
    n = np.array([D.y.shape[-1] if D.s is None else D.s.sum() for D in clients])
    p, gradients = n / n.sum(), np.stack([model.grad(w, D) for D in clients])
    f = weighted_mean(p, gradients)
    mean_square = float(p @ np.sum(gradients**2, -1))
    variance = float(p @ np.sum((gradients - f) ** 2, -1))
    square = float(np.sum(f**2))
    if square == 0:
        return Dissimilarity(1.0 if mean_square == 0 else float("inf"), variance)
    # [fedprox B] B(w) = sqrt((Σ_k p_k ‖g_k‖²) / ‖Σ_k p_k g_k‖²)
    return Dissimilarity(float(np.sqrt(mean_square / square)), variance)


def adapt_mu(mu: float, falls: int, last_loss: float, loss: float) -> tuple[float, int]:
    """Return (μ, consecutive falls) after one more round [fedprox μ].

    falls : how many rounds in a row the loss has fallen.
    last_loss : the training loss a round earlier.
    loss : the training loss now.
    """
    if loss > last_loss:
        return mu + 0.1, 0  # [fedprox μ] μ = μ + 0.1
    falls = falls + 1 if loss < last_loss else 0
    # [fedprox μ] μ = max(μ − 0.1, 0)
    return (max(mu - 0.1, 0.0), 0) if falls == 5 else (mu, falls)


class ProxServer(NamedTuple):
    w: Array  # (d,)
    mu: float
    falls: int
    loss: float | None  # the last training loss, once there is one


class ProxSent(NamedTuple):
    w: Array
    mu: float


@dataclass(frozen=True)
class FedProx(Algorithm[ProxServer, ProxSent, Array, None], stacks=True):
    """SGD on a client's loss plus a proximal term; the partial work of stragglers counts."""

    drop: bool = False
    lr: float = 0.05
    mu: float = 1.0
    adaptive_mu: bool = False
    until_gamma: float = 0.0
    measure_gamma: bool = True
    needs_two_steps: ClassVar[tuple[str, ...]] = ("mu",)  # the first step is at w = wᵗ

    @property
    def watches_loss(self) -> bool:
        return self.adaptive_mu

    @property
    def stops_early(self) -> bool:
        return self.until_gamma > 0

    def initial(self, model: Model, w: Array) -> ProxServer:
        return ProxServer(w, self.mu, 0, None)

    def download(self, server: ProxServer) -> ProxSent:
        return ProxSent(server.w, server.mu)

    def step(self, model: Model, sent: ProxSent, local: Array, *batches: Batch) -> Array:
        (D,) = batches
        return local - self.lr * prox_gradient(model, local, sent.w, D, mu=sent.mu)

    def stop(self, model: Model, sent: ProxSent, local: Array, data: AllData) -> bool:
        return bool(inexactness(model, local, sent.w, data(), mu=sent.mu) <= self.until_gamma)

    def client_metrics(
        self, model: Model, sent: ProxSent, local: Array, data: AllData
    ) -> dict[str, float]:
        penalty = float(sent.mu / 2 * np.sum((local - sent.w) ** 2))
        if not self.measure_gamma:
            return {"penalty": penalty}
        gamma = inexactness(model, local, sent.w, data(), mu=sent.mu)
        return {"gamma": float(gamma), "penalty": penalty}

    def combine(
        self, model: Model, server: ProxServer, uploads: Array, cohort: Cohort
    ) -> ProxServer:
        return server._replace(w=weighted_mean(cohort.weights(self.weighting), uploads))

    def observe_loss(self, server: ProxServer, loss: float) -> ProxServer:
        if not self.adaptive_mu:
            return server
        before = loss if server.loss is None else server.loss
        mu, falls = adapt_mu(server.mu, server.falls, before, loss)
        return server._replace(mu=mu, falls=falls, loss=loss)

    def server_metrics(self, server: ProxServer) -> dict[str, float]:
        return {"mu": server.mu}
