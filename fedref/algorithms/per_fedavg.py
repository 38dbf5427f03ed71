"""Per-FedAvg: personalised federated averaging, with the exact Hessian and its two approximations.

Fallah, Mokhtari, Ozdaglar, *Personalized federated learning with theoretical guarantees: a
model-agnostic meta-learning approach*, NeurIPS 2020, https://arxiv.org/abs/2002.07948. Numbers of
equations are those of a text that retells this paper.

Objective [per-fedavg eq.2]: F(w) = (1/n) Σ_i F_i(w) with F_i(w) = f_i(w − α∇f_i(w)): a start from
which one gradient step fits each user. It replaces f(w) = (1/n) Σ_i f_i(w) [per-fedavg eq.1].

    symbol     name        shape
    w          w           (..., d)
    D          D           Batch: a mini-batch of a client, for the inner step; g(w; D) is its mean [eq.4]
    D′         D1          Batch: an independent one, for the gradient after the inner step
    D″         D2          Batch: an independent one, for the Hessian
    u          u           (..., d)  gradient after the inner step
    d          d           (..., d)  difference of gradients, for Hu
    ∇F         meta_gradient  (..., d)  exact, first order or Hessian free
    α          alpha       number, the inner step
    β          beta        number, the local step
    δ          delta       number, half-width of the difference
    ν          inner_steps   number of inner steps (the paper takes 1, and names more as an extension)

Equations: [per-fedavg eq.1] objective of FedAvg · [eq.2] `meta_objective` · [eq.3] `meta_gradient`
with D = D′ = D″ · [eq.4] the batch mean, `Model.grad` · [eq.5] `local_step` · [eq.6] `meta_gradient` ·
[eq.7] and [eq.8] `meta_gradient_hf` · [alg.1] `PerFedAvg`.

Decisions
  [eq.2] prints ∇f_i(x) for ∇f_i(w): a misprint. [eq.7] prints α·d_i(w) where we write αd.
  FO and HF are both there, as printed. The paper calls FO "more accurate", but HF approximates eq.6
    with error O(δ²), and FO drops a term.
  batches. D, D′, D″ are drawn independently (other implementations cut them from one iterator that
    wraps around, so that small clients get the same rows). A client with n_k < B uses all its rows in
    each of the three.
  α and β are separate (some implementations set α ≡ β).
  δ. The error of d is O(δ²) by truncation and O(ε/δ) by rounding, ε the precision: 10⁻³ serves
    float64 and float32; far smaller ones only float64 (in float32 10⁻⁶ is a known mistake).
  test. One step of size α on a fresh batch of *training* rows, then the client's own test rows.
  ν > 1. The factors (I − αH(w_j; D_j″)) are chained right to left (FO: none of them; HF: each by its
    difference); every inner step has a D and a D″ of its own. At test time: ν steps on the one D.

>>> import numpy as np
>>> from fedref import Batch
>>> from fedref.checks import complex_step_gradient, relative_error
>>> from fedref.models import Logistic
>>> model, rng = Logistic(3, 2), np.random.default_rng(0)
>>> D = Batch(rng.normal(size=(5, 3)), rng.integers(0, 2, 5))
>>> w = rng.normal(size=model.d)
>>> exact = complex_step_gradient(lambda w: meta_objective(model, w, D, alpha=0.1), w)
>>> relative_error(meta_gradient(model, w, D, D, D, alpha=0.1), exact) < 1e-14
True
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedref.algorithm import Algorithm, Server
from fedref.algorithms.fedavg import adapt
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array


def meta_objective(model: Model, w: Array, D: Batch, *, alpha: float) -> Array:
    """F_i(w) = f_i(w − α∇f_i(w; D); D): (...) [per-fedavg eq.2]."""
    # [per-fedavg eq.2] F(w) = f(w − αg(w; D); D)
    return model.loss(w - alpha * model.grad(w, D), D)


def meta_gradient(model: Model, w: Array, D: Batch, D1: Batch, D2: Batch, *, alpha: float) -> Array:
    """(I − αH(w; D″)) g(w − αg(w; D); D′) [per-fedavg eq.6]; with D = D′ = D″ ∇F_i [per-fedavg eq.3]."""
    u = model.grad(w - alpha * model.grad(w, D), D1)
    return u - alpha * model.hvp(w, u, D2)  # [per-fedavg eq.6] ∇F = u − αH(w; D″)u


def meta_gradient_fo(model: Model, w: Array, D: Batch, D1: Batch, *, alpha: float) -> Array:
    """First order: the Hessian term is dropped [per-fedavg §3.3]."""
    u = model.grad(w - alpha * model.grad(w, D), D1)  # [per-fedavg §3.3] u = g(w − αg(w; D); D′)
    return u


def meta_gradient_hf(
    model: Model, w: Array, D: Batch, D1: Batch, D2: Batch, *, alpha: float, delta: float = 1e-3
) -> Array:
    """Hessian free: H(w; D″)u by a central difference of gradients [per-fedavg eq.8] [per-fedavg eq.7]."""
    u = model.grad(w - alpha * model.grad(w, D), D1)
    # [per-fedavg eq.8] d = (g(w + δu; D″) − g(w − δu; D″)) / (2δ)
    d = (model.grad(w + delta * u, D2) - model.grad(w - delta * u, D2)) / (2 * delta)
    return u - alpha * d  # [per-fedavg eq.7] ∇F = u − αd


def meta_gradient_steps(
    model: Model, w: Array, Ds: Sequence[Batch], D1: Batch, D2s: Sequence[Batch], *, alpha: float
) -> Array:
    """ν inner steps, w_{j+1} = w_j − αg(w_j; D_j): the factors (I − αH(w_j; D_j″)) right to left.

    First order: no D2s. Hessian free: model is `HessianFree`.
    """
    ws = [w]
    for D in Ds:
        ws.append(ws[-1] - alpha * model.grad(ws[-1], D))
    u = model.grad(ws.pop(), D1)
    for w_j, D2 in zip(reversed(ws), reversed(D2s)):
        u = u - alpha * model.hvp(w_j, u, D2)
    return u


@dataclass(frozen=True)
class HessianFree:
    """A model whose Hessian-vector product is the difference of eq.8."""

    model: Model
    delta: float

    def grad(self, w: Array, D: Batch) -> Array:
        return self.model.grad(w, D)

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        ends = self.grad(w + self.delta * v, D), self.grad(w - self.delta * v, D)
        return (ends[0] - ends[1]) / (2 * self.delta)


def local_step(w: Array, meta_gradient: Array, *, beta: float) -> Array:
    """w ← w − β∇F_i(w) [per-fedavg eq.5]."""
    return w - beta * meta_gradient  # [per-fedavg eq.5] w = w − β∇F


@dataclass(frozen=True)
class PerFedAvg(Algorithm[Server, Server, Array, None], stacks=True):
    """Per-FedAvg [per-fedavg alg.1] with the exact Hessian-vector product."""

    weighting: str = "uniform"
    alpha: float = 0.1
    beta: float = 0.05
    inner_steps: int = 1
    personalised: ClassVar[bool] = True
    adapts_on: ClassVar[str | None] = "D"
    #: The batches of an inner step.
    inner: ClassVar[tuple[str, ...]] = ("D", "D2")

    bounds: ClassVar[Mapping[str, tuple[Any, ...]]] = {"inner_steps": (1, np.inf)}

    @property
    def roles(self) -> tuple[str, ...]:  # type: ignore[override]
        """D, D1 and D2, then the batches of each further inner step: "D of step 2", ..."""
        later_steps = (
            f"{role} of step {j + 2}" for j in range(self.inner_steps - 1) for role in self.inner
        )
        return ("D", "D1", *self.inner[1:], *later_steps)

    def gradient(self, model: Model, w: Array, *batches: Batch) -> Array:
        return meta_gradient(model, w, *batches, alpha=self.alpha)

    def gradient_steps(
        self, model: Any, w: Array, D: Batch, D1: Batch, *more_batches: Batch
    ) -> Array:
        """Return the meta-gradient after ν inner steps, on the batches that `roles` names."""
        n, batches = len(self.inner), (D, *more_batches)
        D2s = batches[1::n] if n > 1 else ()
        return meta_gradient_steps(model, w, batches[::n], D1, D2s, alpha=self.alpha)

    def step(self, model: Model, sent: Server, local: Array, *batches: Batch) -> Array:
        gradient = self.gradient if self.inner_steps == 1 else self.gradient_steps
        return local_step(local, gradient(model, local, *batches), beta=self.beta)

    def personalised_params(
        self, model: Model, sent: Server, client_state: None, D: Batch | None
    ) -> Array:
        if D is None:
            return sent.w
        return adapt(model, sent.w, D, alpha=self.alpha, steps=self.inner_steps)


@dataclass(frozen=True)
class PerFedAvgFO(PerFedAvg, stacks=True):
    """Per-FedAvg, first order."""

    inner: ClassVar[tuple[str, ...]] = ("D",)

    def gradient(self, model: Model, w: Array, *batches: Batch) -> Array:
        return meta_gradient_fo(model, w, *batches, alpha=self.alpha)


@dataclass(frozen=True)
class PerFedAvgHF(PerFedAvg, stacks=True):
    """Per-FedAvg, Hessian free."""

    delta: float = 1e-3
    bounds: ClassVar = {**PerFedAvg.bounds, "delta": (1e-12, 1.0)}  # eq.8 divides by 2δ

    def gradient(self, model: Model, w: Array, *batches: Batch) -> Array:
        return meta_gradient_hf(model, w, *batches, alpha=self.alpha, delta=self.delta)

    def gradient_steps(self, model: Any, w: Array, *batches: Batch) -> Array:
        return super().gradient_steps(HessianFree(model, self.delta), w, *batches)
