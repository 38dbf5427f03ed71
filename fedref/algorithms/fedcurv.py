"""FedCurv: elastic weight consolidation towards the other clients' last solutions.

Shoham, Avidor, Keren, Israel, Benditkis, Mor-Yosef, Zeitak, *Overcoming forgetting in federated
learning on non-IID data*, NeurIPS workshop 2019, https://arxiv.org/abs/1910.07796; a baseline in
[apfl §4.1.2].

Objective of client s [fedcurv penalty]:
    f_s(θ) + λ Σ_{j ∈ previous cohort, j ≠ s} (θ − θ̂_j)ᵀ diag(I_j) (θ − θ̂_j)

    symbol      name       shape
    θ           theta      (..., d)
    θ̂_j         theta_j    (d,)  client j's last solution
    I_j         I          (d,)  its diagonal empirical Fisher
    u           u          (d,)  Σ_j I_j, which travels down beside θ
    v           v          (d,)  Σ_j I_j θ̂_j, which does so too
    u_s         own_u      (d,)  client s's own I_s
    v_s         own_v      (d,)  client s's own I_s θ̂_s
    D_j         D          sample j of the client's data, alone
    n           n          number of its samples
    λ           lam        number

Equations: [fedcurv penalty] `penalty`, `penalty_gradient` · [fedcurv Fisher]
`fisher` (importance.py), the mean of squared per-sample gradients.

Decisions
  own term. The sum runs over j ≠ s, so a client subtracts its own I_s, I_sθ̂_s, but only if it was
    in the previous cohort. Otherwise the sum does not contain them, and subtracting them would
    add negative curvature.
  Fisher. I_j is the mean over *samples* of squared per-sample gradients at θ̂_j, on all of client
    j's data: it depends on neither batch size nor order. Other implementations square the mean of a
    batch, or use one batch. If the model has an L2 term, its gradient is part of each sample's.
  cost. Down w, u, v (3d), up θ̂_s and I_s (2d): the server makes I_sθ̂_s itself.
    The APFL paper (§4.2.1) counts twice FedAvg's cost, 2d down and 2d up, as with one matrix of
    importance in place of u and v. It does not print that algorithm: neither the point that its penalty
    pulls towards, nor where the Fisher information is taken, nor how the clients' are combined.
  λ. The APFL paper, where FedCurv is a baseline, sets it to its own μ ("equivalently set to 1").

>>> import numpy as np
>>> from fedref import Batch
>>> from fedref.models import BinaryLogistic
>>> D = Batch(np.array([[2.0], [4.0]]), np.array([1, 0]))
>>> fisher(BinaryLogistic(1, bias=False), np.zeros(1), D)   # mean of (−½·2)² and (½·4)²
array([2.5])
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithm import Algorithm, ClientResult, Cohort, Participant, weighted_mean
from fedref.algorithms.importance import fisher
from fedref.models.base import Model
from fedref.models.batch import AllData, Batch
from fedref.models.numerics import Array, weighted_sum


def penalty(theta: Array, pairs: Iterable[tuple[Array, Array]], *, lam: float) -> Any:
    """λ Σ_j (θ − θ̂_j)ᵀ diag(I_j) (θ − θ̂_j): (...) [fedcurv penalty].

    pairs : (I_j, θ̂_j), the other clients' importance and model, each (d,).
    """
    # [fedcurv penalty] r(θ) = λ Σ_j (θ − θ̂_j)ᵀ diag(I_j) (θ − θ̂_j)
    return lam * sum(np.sum(I * (theta - theta_j) ** 2, -1) for I, theta_j in pairs)


def penalty_gradient(
    theta: Array, u: Array, v: Array, own_u: Array | float, own_v: Array | float, *, lam: float
) -> Array:
    """2λ[(u − I_s) ⊙ θ − (v − I_s θ̂_s)] [fedcurv penalty]; own terms 0 if s was not in the cohort before."""
    # [fedcurv penalty] ∇r = 2λ((u − u_s) ⊙ θ − (v − v_s))
    return 2 * lam * ((u - own_u) * theta - (v - own_v))


class CurvServer(NamedTuple):
    """The server's state. All of it travels down."""

    w: Array
    u: Array
    v: Array
    t: int


class ClientState(NamedTuple):
    """The client's I, and v = I ⊙ θ̂, of round t, the last in which it took part."""

    I: Array
    v: Array
    t: int


class Local(NamedTuple):
    theta: Array
    own_u: Array
    own_v: Array


class Upload(NamedTuple):
    theta: Array
    I: Array


@dataclass(frozen=True)
class FedCurv(Algorithm[CurvServer, CurvServer, Local, ClientState], stacks=True):
    """SGD with a penalty that pulls towards the others' last solutions, by Fisher information."""

    lr: float = 0.05
    lam: float = 1.0

    def initial(self, model: Model, w: Array) -> CurvServer:
        return CurvServer(w, np.zeros_like(w), np.zeros_like(w), 0)

    def start(
        self, model: Model, sent: CurvServer, client_state: ClientState | None, client: Participant
    ) -> Local:
        if client_state is not None and client_state.t == sent.t - 1:
            return Local(sent.w, client_state.I, client_state.v)
        return Local(sent.w, np.zeros_like(sent.w), np.zeros_like(sent.w))

    def step(self, model: Model, sent: CurvServer, local: Local, *batches: Batch) -> Local:
        (D,) = batches
        theta, own_u, own_v = local
        pull = penalty_gradient(theta, sent.u, sent.v, own_u, own_v, lam=self.lam)
        return local._replace(theta=theta - self.lr * (model.grad(theta, D) + pull))

    def finish(
        self,
        model: Model,
        sent: CurvServer,
        local: Local,
        client_state: ClientState | None,
        data: AllData,
    ) -> ClientResult:
        theta = local.theta
        I = fisher(model, theta, data())  # [fedcurv Fisher] I_s = (Σ_j g(θ; D_j)²) / n
        return ClientResult(Upload(theta, I), ClientState(I, I * theta, sent.t))

    def combine(
        self, model: Model, server: CurvServer, uploads: Upload, cohort: Cohort
    ) -> CurvServer:
        theta, I = uploads
        ones = np.ones(len(theta))  # a client drawn twice is still one client
        return CurvServer(
            weighted_mean(cohort.weights(self.weighting), theta),
            weighted_sum(ones, I),
            weighted_sum(ones, I * theta),
            server.t + 1,
        )
