"""pFedMe: personal models near the global one, which descends the clients' Moreau envelopes.

Dinh, Tran, Nguyen, *Personalized federated learning with Moreau envelopes*, NeurIPS 2020,
https://arxiv.org/abs/2006.08848.

Objective: F(w) = (1/N) Σ_i F_i(w), F_i(w) = min_θ f_i(θ) + (λ/2)‖θ − w‖² [pfedme envelope], the Moreau
envelope of f_i; its gradient is ∇F_i(w) = λ(w − θ̂_i(w)), θ̂_i(w) the minimiser.

    symbol  name         shape
    w       w            (..., d)
    θ       theta        (..., d)  θ̃_i(w), an approximation of θ̂_i(w)
    λ       lam          number
    η       lr           number
    α       alpha        number, step size of the solver for θ̃, of `inner_steps` steps
    β       beta         number, the server's step towards the clients' mean

Equations: [pfedme envelope] `objective` · [pfedme alg.1] `personalise` (θ̃), `envelope_gradient`,
`PFedMe.combine`.

Decisions
  R. A local round of the paper is a local step here: one batch D, θ̃ solved on it, one step of w.
  θ̃ is found by gradient descent on D, from w; the paper too takes 3 to 7 steps. λ(w − θ̃)
    is ∇F_i(w; D) to the accuracy of θ̃. Choose alpha < 2/(λ + L), where L bounds the Hessian of f_i:
    with a larger one the steps diverge.
  personal model. θ̃_i(w) of the model w that the client receives, on fresh training rows; nothing is
    kept. Other implementations store θ̃ in place of w before w's step, or adapt on test rows.
  weighting. The paper averages uniformly. Stragglers are dropped as FedAvg does.

>>> import numpy as np
>>> envelope_gradient(np.array([1.0, 2.0]), np.array([0.5, 2.0]), lam=2.0)
array([1., 0.])
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedref.algorithm import Algorithm, Cohort, Server, weighted_mean
from fedref.algorithms import fedprox
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array


def objective(model: Model, theta: Array, w: Array, D: Batch, *, lam: float) -> Array:
    """f_i(θ; D) + (λ/2)‖θ − w‖², FedProx's objective with μ = λ: (...) [pfedme envelope]."""
    return fedprox.objective(model, theta, w, D, mu=lam)  # [pfedme envelope]


def personalise(model: Model, w: Array, D: Batch, *, lam: float, alpha: float, steps: int) -> Array:
    """θ̃(w) by gradient steps of size α on the objective, from w: (..., d) [pfedme alg.1]."""
    theta = w
    for _ in range(steps):
        # [pfedme alg.1] θ = θ − α(g(θ; D) + λ(θ − w))
        theta = theta - alpha * fedprox.prox_gradient(model, theta, w, D, mu=lam)
    return theta


def envelope_gradient(w: Array, theta: Array, *, lam: float) -> Array:
    """λ(w − θ̃): ∇F_i(w), to the accuracy of θ̃ [pfedme alg.1]."""
    return lam * (w - theta)  # [pfedme alg.1] ∇F_k(w) = λ(w − θ)


@dataclass(frozen=True)
class PFedMe(Algorithm[Server, Server, Array, None], stacks=True):
    """Clients step along the envelope's gradient and are tested with their θ̃."""

    weighting: str = "uniform"
    lr: float = 0.05
    lam: float = 15.0
    alpha: float = 0.05
    inner_steps: int = 5
    beta: float = 1.0
    personalised: ClassVar[bool] = True
    adapts_on: ClassVar[str | None] = "D"
    bounds: ClassVar = {"inner_steps": (1, np.inf)}

    def solve_personal(self, model: Model, w: Array, D: Batch) -> Array:
        """Return θ̃(w) for this algorithm's λ, α and number of steps."""
        steps = self.inner_steps
        return personalise(model, w, D, lam=self.lam, alpha=self.alpha, steps=steps)

    def step(self, model: Model, sent: Server, local: Array, *batches: Batch) -> Array:
        (D,) = batches
        theta = self.solve_personal(model, local, D)
        return local - self.lr * envelope_gradient(local, theta, lam=self.lam)

    def combine(self, model: Model, server: Server, uploads: Array, cohort: Cohort) -> Server:
        mean = weighted_mean(cohort.weights(self.weighting), uploads)
        return Server((1 - self.beta) * server.w + self.beta * mean)  # [pfedme alg.1]

    def personalised_params(
        self, model: Model, sent: Server, client_state: None, D: Batch | None
    ) -> Array:
        return sent.w if D is None else self.solve_personal(model, sent.w, D)
