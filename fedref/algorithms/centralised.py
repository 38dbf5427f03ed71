"""Centralised mini-batch SGD on the pooled, re-shuffled data: the IID baseline of [apfl §4.1.1].

Objective: the same f(w) = Σ_k p_k f_k(w) as FedAvg's [apfl eq.1], but one learner sees all rows.

    symbol  name   shape
    w       local  (d,)
    D       D      Batch
    η       lr     number

Equations: [apfl §4.1.1] `Centralised.step`, plain SGD: the line of [apfl eq.2].

Decisions
  a round is one epoch (E = 1) over the pooled training rows, as the paper says, whatever the
    epochs of the other algorithms. The pooling draws one permutation; each epoch its own order.
  "sequentially over all clients of an IID re-division" and "over the re-shuffled rows" differ only
    in where short batches fall; we do the latter.
  evaluation is the federation's: per client, on its own test rows. Nothing travels.

>>> Centralised(lr=0.1).pooled
True
"""

from dataclasses import dataclass
from typing import ClassVar

from fedref.algorithm import Algorithm, Server
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array


@dataclass(frozen=True)
class Centralised(Algorithm[Server, Server, Array, None]):
    lr: float = 0.05
    pooled: ClassVar[bool] = True

    def step(self, model: Model, sent: Server, local: Array, *batches: Batch) -> Array:
        (D,) = batches
        return local - self.lr * model.grad(local, D)  # [apfl §4.1.1] w − ηg(w; D)
