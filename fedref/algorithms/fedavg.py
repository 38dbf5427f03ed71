"""FedAvg: federated averaging, two variants that adapt at test time, and the centralised baseline.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas, *Communication-efficient learning of deep networks
from decentralized data*, AISTATS 2017, https://arxiv.org/abs/1602.05629; the baseline of every other
paper here, e.g. [apfl §4.1.2].

Objective [apfl eq.1–2]: f(w) = Σ_k p_k f_k(w), p_k = n_k/Σn_k, f_k the mean loss on client k's data.

One round: sample K of N clients; each starts at wᵗ and takes E epochs (or τ steps) of mini-batch
SGD, w ← w − η g(w; D) `[apfl eq.2]`; the server averages, wᵗ⁺¹ = Σ_k p_k w_k `[apfl eq.1]`.
Centralised, the IID baseline [apfl §4.1.1]: the same f, but one learner sees all rows.

    symbol  name       shape
    w       w          (..., d)
    D       D          Batch, X (..., B, p)
    η       lr         number
    α       alpha      number, step size at test time
    p_k     weighting  (K,) from Cohort.weights

Decisions
  weighting. [per-fedavg alg.1] averages uniformly, [apfl] by n_k, [fedprox alg.2] draws by n_k and
    averages uniformly. Many implementations hide this choice; here it is the options `weighting` and
    `sampling` of a run.
  with update. Per-FedAvg's baseline: the global model plus *one* gradient step at test time, on a
    fresh batch of training rows; other implementations adapt on the test batch.
  FedAvg(Meta). [fedmeta] fine-tunes FedAvg's model on the support set before it is tested.
  a client with n_k < B takes one batch of n_k rows; it is neither skipped nor padded with repeats.
  centralised. A round is one epoch over the pooled training rows, as the paper says, whatever the
    epochs of the other algorithms. Pooling draws one permutation; each epoch draws its own order.
    The paper goes "sequentially over all clients of an IID re-division", we go over the re-shuffled
    rows: they differ only in which batches are short. The model is tested as every other is: per
    client, on the client's own test rows. Nothing is sent.

>>> import numpy as np
>>> from fedref import Batch
>>> from fedref.models import Logistic
>>> model = Logistic(2, 2)
>>> D = Batch(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 1]))
>>> w = local_step(model, np.zeros(model.d), D, lr=1.0)
>>> bool(model.loss(w, D) < model.loss(np.zeros(model.d), D))
True
"""

from dataclasses import dataclass
from typing import ClassVar

from fedref.algorithm import Algorithm, Server
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array


def local_step(model: Model, w: Array, D: Batch, *, lr: float) -> Array:
    """w ← w − η ∇f_k(w; D): one step of mini-batch SGD [apfl eq.2]."""
    return w - lr * model.grad(w, D)  # [apfl eq.2] w_k = w − ηg(w; D)


def adapt(model: Model, w: Array, D: Batch, *, alpha: float, steps: int = 1) -> Array:
    """Adapt w at test time: `steps` gradient steps of size α on one batch of training rows."""
    for _ in range(steps):
        w = local_step(model, w, D, lr=alpha)
    return w


@dataclass(frozen=True)
class FedAvg(Algorithm[Server, Server, Array, None], stacks=True):
    """Clients take E epochs, or τ steps, of SGD; the server averages."""

    lr: float = 0.05

    def step(self, model: Model, sent: Server, local: Array, *batches: Batch) -> Array:
        (D,) = batches
        return local_step(model, local, D, lr=self.lr)

    # The server's average, Σ_k p_k w_k [apfl eq.1], is the default of `Algorithm.combine`.


@dataclass(frozen=True)
class FedAvgUpdate(FedAvg, stacks=True):
    """FedAvg *with update*: trained as FedAvg, tested after one step of size α (or a few)."""

    alpha: float = 0.1
    inner_steps: int = 1
    personalised: ClassVar[bool] = True
    adapts_on: ClassVar[str | None] = "D"

    def personalised_params(
        self, model: Model, sent: Server, client_state: None, D: Batch | None
    ) -> Array:
        if D is None:
            return sent.w
        return adapt(model, sent.w, D, alpha=self.alpha, steps=self.inner_steps)


@dataclass(frozen=True)
class FedAvgMeta(FedAvgUpdate, stacks=True):
    """FedAvg(Meta): FedAvg with update, fine-tuned on the support set of an episode."""

    adapts_on: ClassVar[str | None] = "S"


@dataclass(frozen=True)
class Centralised(Algorithm[Server, Server, Array, None], stacks=True):
    """Mini-batch SGD on the pooled, re-shuffled data."""

    lr: float = 0.05
    pooled: ClassVar[bool] = True
    unused: ClassVar[tuple[str, ...]] = ("weighting", "drop")

    def step(self, model: Model, sent: Server, local: Array, *batches: Batch) -> Array:
        (D,) = batches
        return local - self.lr * model.grad(local, D)  # [apfl §4.1.1] w = w − ηg(w; D)
