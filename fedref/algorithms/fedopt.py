"""FedOpt: the server uses FedAvg's change of the model as the gradient of an adaptive optimiser.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan, *Adaptive federated optimization*,
ICLR 2021, https://arxiv.org/abs/2003.00295: FedAdagrad, FedYogi, FedAdam. Hsu, Qi, Brown, *Measuring
the effects of non-identical data distribution for federated visual classification*, 2019,
https://arxiv.org/abs/1909.06335: FedAvgM.

Objective: FedAvg's. Clients train as in FedAvg; the server computes Δ = Σ_k p_k (w_k − w).

    symbol  name          shape
    w       w             (d,)
    Δ       delta         (d,)
    m       m             (d,)  the first moment
    v       v             (d,)  the second moment; FedAvgM's velocity
    η_l     lr            number
    η       server_lr     number
    β₁      beta1         number
    β₂      beta2         number
    t       t             number; the rounds so far, counted where `bias_correction` is set
    τ       tau           number; the larger, the less adaptive the steps
    β       momentum      number, FedAvgM's

Equations: [fedopt alg.2] `adagrad`, `yogi`, `adam` (v), `FedAdagrad.combine` (m and the step) ·
[fedopt fedavgm] `FedAvgM.combine`.

Decisions
  bias correction. [fedopt alg.2] has none. With `bias_correction` FedAdam and FedYogi divide m by 1 − β₁ᵗ
    and v, which then starts at 0, by 1 − β₂ᵗ, as Kingma and Ba do, and FedAdam of openfl 1.9, declearn
    2.9.1 and oiafed 0.2.3; p2pfl 0.4.4 corrects FedAdam's rate alone, and flwr 1.42 does so with t + 1
    for t. FedMeta's Adam (`server = "adam"`) has it. All add τ or ε after taking the root. FedAdagrad's
    v is a sum, which nothing corrects.
  v₋₁. τ², the least that [fedopt alg.2] allows, as in appfl 1.12.0; 0 in flwr 1.42, openfl 1.9,
    declearn 2.9.1, p2pfl 0.4.4, oiafed 0.2.3 and fluke-fl 0.8.1. In FedAdagrad's v the difference stays.
  β₁. 0 for Adagrad, as in the paper's experiments, else 0.9; β₂ = 0.99, τ = 0.001.
    FedAdagrad has no β₂: the field is inherited, and not used.
  weighting. By samples, as in both papers' experiments; [fedopt alg.2] prints 1/|S|.
  FedAvgM. v ← βv + Δ, without a factor 1 − β. Hsu et al. have no η, so η = 1 is usual. With β = 0
    the server takes plain steps of size η, which is FedAvg where η = 1.

>>> import numpy as np
>>> yogi(np.array([1.0, 0.0]), np.array([0.0, 1.0]), 0.99).round(4)     # v after Δ = (0, 1)
array([1.  , 0.01])
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedref.algorithm import Algorithm, Cohort, Server, ServerState, weighted_mean
from fedref.algorithms.fedavg import local_step
from fedref.boundary.values import POSITIVE, Bounds
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array


def adagrad(v: Array, delta: Array, beta2: float) -> Array:
    """Add the squares of all changes so far [fedopt alg.2]."""
    return v + delta**2  # [fedopt alg.2] v = v + Δ²


def yogi(v: Array, delta: Array, beta2: float) -> Array:
    """Move v towards Δ², by a step that does not grow with their distance [fedopt alg.2]."""
    # [fedopt alg.2] v = v − (1 − β₂)Δ² sign(v − Δ²)
    return v - (1 - beta2) * delta**2 * np.sign(v - delta**2)


def adam(v: Array, delta: Array, beta2: float) -> Array:
    """Forget old squares by the factor β₂ [fedopt alg.2]."""
    return beta2 * v + (1 - beta2) * delta**2  # [fedopt alg.2] v = β₂v + (1 − β₂)Δ²


@dataclass(frozen=True)
class AveragedClients(Algorithm[ServerState, Server, Array, None], stacks=True):
    """FedAvg's clients, for servers whose state holds more than w."""

    lr: float = 0.05

    def download(self, server: Any) -> Server:
        return Server(server.w)

    def step(self, model: Model, sent: Server, local: Array, *batches: Batch) -> Array:
        (D,) = batches
        return local_step(model, local, D, lr=self.lr)


BELOW_1 = Bounds(0, 1, open="high")


class FedOptServer(NamedTuple):
    w: Array  # (d,)
    m: Array  # (d,)
    v: Array  # (d,)
    t: int | None = None


@dataclass(frozen=True)
class FedAdagrad(AveragedClients[FedOptServer], stacks=True):
    """FedAvg's clients, and a server that steps by Adagrad, whose v only grows."""

    server_lr: float = 0.1
    beta1: float = 0.0
    beta2: float = 0.99
    tau: float = 1e-3
    bounds: ClassVar = {"beta1": BELOW_1, "beta2": BELOW_1, "tau": POSITIVE}
    unused: ClassVar[tuple[str, ...]] = ("beta2",)
    second_moment = staticmethod(adagrad)
    bias_correction: ClassVar[bool] = False

    def initial(self, model: Model, w: Array) -> FedOptServer:
        if self.bias_correction:
            return FedOptServer(w, np.zeros_like(w), np.zeros_like(w), 0)
        return FedOptServer(w, np.zeros_like(w), np.full_like(w, self.tau**2))

    def combine(
        self, model: Model, server: FedOptServer, uploads: Array, cohort: Cohort
    ) -> FedOptServer:
        delta = weighted_mean(cohort.weights(self.weighting), uploads) - server.w
        m = self.beta1 * server.m + (1 - self.beta1) * delta  # [fedopt alg.2] m = β₁m + (1 − β₁)Δ
        v = self.second_moment(server.v, delta, self.beta2)
        m_hat, v_hat, t = m, v, server.t
        if t is not None:
            t = t + 1
            m_hat, v_hat = m / (1 - self.beta1**t), v / (1 - self.beta2**t)
        # [fedopt alg.2] w = w + ηm/(sqrt(v) + τ)
        w = server.w + self.server_lr * m_hat / (np.sqrt(v_hat) + self.tau)
        return FedOptServer(w, m, v, t)


@dataclass(frozen=True)
class FedAdam(FedAdagrad, stacks=True):
    """FedAvg's clients, and a server that steps by Adam; without bias correction, unless asked for."""

    beta1: float = 0.9
    bias_correction: bool = False  # type: ignore[misc]
    unused: ClassVar[tuple[str, ...]] = ()
    second_moment = staticmethod(adam)


@dataclass(frozen=True)
class FedYogi(FedAdam, stacks=True):
    """FedAdam with Yogi's v, which moves towards Δ² by (1 − β₂)Δ²."""

    second_moment = staticmethod(yogi)


class MomentumServer(NamedTuple):
    w: Array  # (d,)
    v: Array  # (d,)


@dataclass(frozen=True)
class FedAvgM(AveragedClients[MomentumServer], stacks=True):
    """FedAvg with momentum on the server; with β = 0 that is FedOpt's plain SGD."""

    server_lr: float = 1.0
    momentum: float = 0.9
    bounds: ClassVar = {"momentum": (0, 1)}

    def initial(self, model: Model, w: Array) -> MomentumServer:
        return MomentumServer(w, np.zeros_like(w))

    def combine(
        self, model: Model, server: MomentumServer, uploads: Array, cohort: Cohort
    ) -> MomentumServer:
        delta = weighted_mean(cohort.weights(self.weighting), uploads) - server.w
        v = self.momentum * server.v + delta  # [fedopt fedavgm] v = βv + Δ
        return MomentumServer(server.w + self.server_lr * v, v)
