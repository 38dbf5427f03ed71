"""FedMAML: clients adapt in several steps, the server sums their meta-gradients.

Each client is a task of MAML: Finn, Abbeel, Levine, *Model-agnostic meta-learning for fast adaptation
of deep networks*, ICML 2017, https://arxiv.org/abs/1703.03400. Sections and letters are those of an
unsigned tutorial that applies it to clients, with binary logistic regression as its example.

Objective [fedmaml §3.2]: min_θ Σ_k L_k(θ*_k; D_val), where client k reaches θ*_k from θ by s ≥ 1
steps θ ← θ − α∇L_k(θ; D_tr) [fedmaml §4.2].

    symbol       name           shape
    θ            theta          (..., d)  the meta-state
    θ*_k         theta_star     (..., d)  after adaptation
    θ′           theta1         (d,)      candidate global model (1/K) Σ_k θ*_k [fedmaml §4.3]
    D_tr         tr             Batch, to adapt on
    D_val        val            Batch, disjoint, for the meta-gradient
    θ_j          theta_j        (..., d)  θ after j steps
    g            g              (..., d)  the gradient, carried back through the steps
    g_k          gradients      (K, d)   the g that each client sent
    n_k          counts         (K,)     how often each client was drawn, usually once
    α            alpha          number, the step of adaptation
    β            beta           number, the server's step
    s            inner_steps    number of steps of adaptation

Equations: [fedmaml §3.2] `meta_gradient`, the server's `meta_update` · [fedmaml §4.2] `adapt` ·
[fedmaml §4.3] θ′, `candidate`.

Decisions
  server. The paper states two steps: averaging to θ′, and the meta-update of θ. We keep θ as the state
    and θ′ beside it. `evaluate` says which is tested: "theta" (each client adapts it first, as in
    meta-learning) or "theta1" (not adapted: it already is an average of adapted models).
  the meta-update *sums* over clients, as printed (FedMeta takes the mean): β is per client.
  the gradient runs through all s steps; the paper only says ∇_θ.
  cost. With `evaluate = "theta1"` θ and θ′ both travel down (2d): clients train from θ and use θ′.
  stragglers that are not dropped do all their work: a round is one step, which cannot be split.
  D_tr and D_val are drawn afresh each round, disjoint; with a single row D_tr is empty.

>>> import numpy as np
>>> from fedref import Batch
>>> from fedref.models import BinaryLogistic
>>> model = BinaryLogistic(1, bias=False)                 # f_θ(x) = σ(θx), as in §4.2
>>> tr, val = Batch(np.array([[2.0]]), np.array([1])), Batch(np.array([[1.0]]), np.array([1]))
>>> adapt(model, np.zeros(1), tr, alpha=0.5, steps=1)     # 0 − 0.5·(σ(0) − 1)·2
array([0.5])
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedref.algorithm import Algorithm, Cohort, Participant
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array, weighted_sum


def adapt(model: Model, theta: Array, tr: Batch, *, alpha: float, steps: int) -> Array:
    """θ*_k: s steps θ ← θ − α∇L_k(θ; D_tr) [fedmaml §4.2]."""
    for _ in range(steps):
        theta = theta - alpha * model.grad(theta, tr)  # [fedmaml §4.2] θ*_k = θ − αg(θ; D_tr)
    return theta


def meta_objective(
    model: Model, theta: Array, tr: Batch, val: Batch, *, alpha: float, steps: int
) -> Array:
    """L_k(θ*_k; D_val) of one client (or of each of a stack): the objective is the sum of these."""
    return model.loss(adapt(model, theta, tr, alpha=alpha, steps=steps), val)


def meta_gradient(
    model: Model, theta: Array, tr: Batch, val: Batch, *, alpha: float, steps: int
) -> tuple[Array, Array]:
    """(∇_θ L_k(θ*_k; D_val), θ*_k), differentiated through all s steps [fedmaml §3.2]."""
    path = [theta]
    for _ in range(steps):
        path.append(adapt(model, path[-1], tr, alpha=alpha, steps=1))
    theta_star = path.pop()
    g = model.grad(theta_star, val)
    for theta_j in reversed(path):
        g = g - alpha * model.hvp(theta_j, g, tr)  # [fedmaml §3.2] g = (I − αH(θ_j; D_tr)) g
    return g, theta_star


def meta_update(theta: Array, gradients: Array, counts: Array, *, beta: float) -> Array:
    """θ ← θ − β Σ_k n_k ∇_θ L_k(θ*_k; D_val): (d,) [fedmaml §3.2]. Drawn n_k times, it counts n_k times."""
    # [fedmaml §3.2] θ = θ − β Σ_k n_k g_k
    return theta - beta * weighted_sum(counts, gradients)


def candidate(theta_star: Array, counts: Array) -> Array:
    """θ′, the mean of the adapted models θ*_k (K, d): (d,) [fedmaml §4.3]."""
    # [fedmaml §4.3] θ′ = (Σ_k n_k θ*_k) / (Σ_k n_k)
    return weighted_sum(counts / counts.sum(), theta_star)


class MetaState(NamedTuple):
    theta: Array  # (d,) the meta-state
    theta1: Array | None  # (d,) θ′, the candidate global model of the last round


class Upload(NamedTuple):
    g: Array
    theta_star: Array


@dataclass(frozen=True)
class FedMAML(Algorithm[MetaState, MetaState, Upload, None], stacks=True):
    """Clients adapt in several steps; the server sums their meta-gradients."""

    alpha: float = 0.1
    beta: float = 0.05
    inner_steps: int = 1
    evaluate: str = "theta"
    unused: ClassVar[tuple[str, ...]] = ("weighting",)
    roles: ClassVar[tuple[str, ...]] = ("S", "Q")
    personalised: ClassVar[bool] = True
    adapts_on: ClassVar[str | None] = "S"

    choices: ClassVar = {"evaluate": ("theta", "theta1")}
    bounds: ClassVar = {"inner_steps": (1, np.inf)}

    def initial(self, model: Model, w: Array) -> MetaState:
        return MetaState(w, w)

    def download(self, server: MetaState) -> MetaState:
        return server if self.evaluate == "theta1" else server._replace(theta1=None)

    def start(
        self, model: Model, sent: MetaState, client_state: None, client: Participant
    ) -> Upload:
        return Upload(np.zeros_like(sent.theta), sent.theta)

    def step(self, model: Model, sent: MetaState, local: Upload, *batches: Batch) -> Upload:
        tr, val = batches
        theta = local.theta_star
        return Upload(
            *meta_gradient(model, theta, tr, val, alpha=self.alpha, steps=self.inner_steps)
        )

    def combine(
        self, model: Model, server: MetaState, uploads: Upload, cohort: Cohort
    ) -> MetaState:
        counts = cohort.counts
        theta = meta_update(server.theta, uploads.g, counts, beta=self.beta)
        return MetaState(theta, candidate(uploads.theta_star, counts))

    def personalised_params(
        self, model: Model, sent: MetaState, client_state: None, D: Batch | None
    ) -> Array:
        if sent.theta1 is not None:
            return sent.theta1
        if D is None:
            return sent.theta
        return adapt(model, sent.theta, D, alpha=self.alpha, steps=self.inner_steps)
