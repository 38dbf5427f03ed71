"""APFL of Deng et al.: each client's model is a mixture of its own and of the global one.

Deng, Kamani, Mahdavi, *Adaptive personalized federated learning*, 2020,
https://arxiv.org/abs/2003.13461. It shares its acronym with the APFL of Ni, Shen, Zhang 2022 in
`apfl`, and nothing else.

Objective of client i: min over its own v and α_i of f_i(v̄), v̄ = α_i v + (1 − α_i) w. The global w has
FedAvg's objective.

    symbol  name   shape
    w       w      (..., d)  FedAvg's model, which travels
    v       v      (..., d)  the client's own, which stays
    v̄       v_bar  (..., d)  what the client is tested with
    α_i     a      (...)  the weight of its own model, in [0, 1]; starts at `alpha`
    η       lr     number

Equations: [apfl-deng alg.1] `mix`, `gradients` (in v), `APFLDeng.step` · [apfl-deng α] `gradients`
(in α).

Decisions
  order. All three gradients are of one batch, at the point before the step, as printed. Other
    implementations take v's gradient after w's step, or store v̄ back into v.
  the factor α. The gradient of f_i(v̄) in v is α∇f_i(v̄). Other implementations omit the factor.
  α_i is adapted in every local step and clipped to [0, 1], as in fedjax 0.0.17; the authors' code does
    so once a round. fl4health 0.4.2 and plato-learn 1.41 take a round's first step alone, and its
    gradient times α² + (1 − α)² plus 0.02 α; PFLlib (d832e76) those at v and at w, not at v̄, plus
    0.02 α. `adaptive_alpha = false` keeps α_i as it is.
  start. v is the first model that a client receives; a client that never took part is tested with w.
  weighting. The paper averages w uniformly. Stragglers are dropped as FedAvg does.

>>> import numpy as np
>>> mix(np.array([1.0, 3.0]), np.array([0.0, 1.0]), np.array(0.5))
array([0.5, 2. ])
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedref.algorithm import Algorithm, ClientResult, Participant, Server
from fedref.models.base import Model
from fedref.models.batch import AllData, Batch
from fedref.models.numerics import Array


def mix(v: Array, w: Array, a: Array) -> Array:
    """v̄ = αv + (1 − α)w: (..., d), a (...) [apfl-deng alg.1]."""
    a = a[..., None]
    return a * v + (1 - a) * w  # [apfl-deng alg.1] v̄ = α_i v + (1 − α_i)w


def gradients(model: Model, v: Array, w: Array, a: Array, D: Batch) -> tuple[Array, Array]:
    """The gradients of f_i(v̄; D) in v, (..., d), and in α, (...) [apfl-deng α] [apfl-deng alg.1]."""
    g = model.grad(mix(v, w, a), D)
    g_a = np.sum((v - w) * g, -1)  # [apfl-deng α]
    return a[..., None] * g, g_a  # [apfl-deng alg.1]


class ClientState(NamedTuple):
    v: Array  # (d,)
    a: Array  # ()


class Local(NamedTuple):
    w: Array
    v: Array
    a: Array


@dataclass(frozen=True)
class APFLDeng(Algorithm[Server, Server, Local, ClientState], stacks=True):
    """SGD on the global model and, in the same step, on the client's own through the mixture."""

    weighting: str = "uniform"
    lr: float = 0.05
    alpha: float = 0.5
    adaptive_alpha: bool = True
    personalised: ClassVar[bool] = True
    bounds: ClassVar = {"alpha": (0.0, 1.0)}

    def start(
        self, model: Model, sent: Server, client_state: ClientState | None, client: Participant
    ) -> Local:
        v, a = client_state or (sent.w, self.alpha)
        return Local(sent.w, v, np.asarray(a, sent.w.dtype))

    def step(self, model: Model, sent: Server, local: Local, *batches: Batch) -> Local:
        w, v, a = local
        (D,) = batches
        g_v, g_a = gradients(model, v, w, a, D)
        if self.adaptive_alpha:
            a = np.clip(a - self.lr * g_a, 0, 1)  # [apfl-deng α]
        w = w - self.lr * model.grad(w, D)  # [apfl-deng alg.1] w_i = w − ηg(w; D)
        return Local(w, v - self.lr * g_v, a)  # [apfl-deng alg.1]

    def finish(
        self,
        model: Model,
        sent: Server,
        local: Local,
        client_state: ClientState | None,
        data: AllData,
    ) -> ClientResult:
        return ClientResult(upload=local.w, client_state=ClientState(local.v, local.a))

    def personalised_params(
        self, model: Model, sent: Server, client_state: ClientState | None, D: Batch | None
    ) -> Array:
        if client_state is None:
            return sent.w
        return mix(client_state.v, sent.w, np.asarray(client_state.a, sent.w.dtype))
