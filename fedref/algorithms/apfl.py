"""APFL: adaptive personalised federated learning by parameter decomposition and consolidation.

Ni, Shen, Zhang, *Adaptive personalized federated learning for heterogeneous data: a method based on
parameter decomposition and continual learning*, Sci Sin Inform 52 (2022) 2306–2320; seed document
004-apfl. *Not* the mixture of a local and a global model by Deng, Kamani, Mahdavi (2020) of the
same name.

Objective of client k [apfl eq.6]: min over w_S, m_k, w_k of
    L_k(w_S ⊙ m_k + w_k) + (μ/2) Σ_j F_j (w_S,j − wᵗ_S,j)²,
the mean loss over the clients being [apfl eq.1–2].

    symbol   name       shape
    w_S      w_s        (..., d)  shared; the only one that travels
    m_k      σ(a)       (..., U)  one value in (0, 1) per output unit; `a` is what is stored
    w_k      w_k        (..., d)  the client's own
    wᵗ_S     w_ref      (d,)      w_S as it was sent
    F        F          (d,)      importance of each parameter
    μ, λ, η  mu, lam, lr  numbers: penalty, forgetting, learning rate
    U                   units of all layers together, see `units`

Equations: [apfl eq.3] `compose` · [eq.4] the penalty in `objective` · [eq.5] `importance_update` ·
[eq.6] `objective`, `gradients` · [apfl §3.3] `PlateauDetector` · [alg.1] `APFL`.

Decisions
  start. From round z on (t counted from 0). M_k = 1, W_k = W_S as printed makes the composite jump:
    σ(1)w_S + w_S. `init = "paper"` does so (a = 1); `init = "continuous"` has w_k = (1 − σ(1))w_S: no jump.
  [eq.4] has no ½, [eq.6] has μ/2: ours is eq.6.
  [eq.5] squares each client's *full* local gradient of the loss at the w_S that it received; the
    experiments say "empirical Fisher": `importance = "fisher"`. "si" and "mas" are the drop-ins
    the document names. A gradient is asked for in the round after the flag was raised, and the flag
    is lowered then (alg.1 never lowers it).
  window: its length is not printed; 5 rounds, judged only when full. Global loss = training loss.
  F is renewed unconditionally in the rounds z−1, z, z+1: "the two rounds before and after the start"
    [§4.1.3], three stars in the document's Figure 2.
  bias entries are scaled by their unit's m. A client that was never selected tests with w_S.
  cost. F travels down with w_S while it is not 0: clients are stateless about it, since most take
    part once or twice. The document counts this as nothing.

>>> import numpy as np
>>> from fedref.models import MLP
>>> units(MLP((2, 3, 2))).tolist()      # W₁ (2, 3), b₁ (3,), W₂ (3, 2), b₂ (2,)
[0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 3, 4, 3, 4, 3, 4]
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedref.batch import Batch
from fedref.errors import ConfigError, unknown
from fedref.federation import Algorithm, Cohort, Done, LocalData, weighted_mean, weighted_sum
from fedref.importance import ESTIMATES, synaptic_intelligence
from fedref.models.base import Model
from fedref.numerics import Array, sigmoid


def spread(model: Model, m: Array) -> Array:
    """One value per unit (..., U) → one per parameter (..., d)."""
    x, end = np.empty((*m.shape[:-1], model.d), m.dtype), 0
    for view in model.unpack(x):
        inside = view.ndim - m.ndim  # axes between the leading ones and the units
        out = view.shape[-1]
        end += out if inside else 0  # a weight opens a layer; its bias has the same units
        view[...] = m[..., end - out : end].reshape(*m.shape[:-1], *[1] * inside, out)
    return x


def sum_by_unit(model: Model, x: Array) -> Array:
    """Σ of x (..., d) over the entries of each unit: (..., U). The transpose of `spread`."""
    lead, sums = x.ndim - 1, list[Array]()
    for view in model.unpack(x):
        total = view.sum(tuple(range(lead, view.ndim - 1)))
        if view.ndim == lead + 1:  # a bias
            total = sums.pop() + total
        sums.append(total)
    return np.concatenate(sums, -1)


def units(model: Model) -> Array:
    """For each of the d parameters its output unit, counted through all layers: (d,)."""
    return spread(model, np.arange(len(sum_by_unit(model, np.zeros(model.d)))))


def compose(model: Model, w_s: Array, a: Array, w_k: Array) -> Array:
    """w = w_S ⊙ m_k + w_k with m_k = σ(a), one value per output unit: (..., d)."""
    return w_s * spread(model, sigmoid(a)) + w_k  # [apfl eq.3]


def objective(
    model: Model, w_s: Array, a: Array, w_k: Array, D: Batch, *, F: Array, w_ref: Array, mu: float
) -> Array:
    """L_k(w_S ⊙ σ(a) + w_k; D) + (μ/2) Σ_j F_j (w_S,j − wᵗ_S,j)²: (...)."""
    penalty = np.sum(F * (w_s - w_ref) ** 2, -1)  # [apfl eq.4]
    return model.loss(compose(model, w_s, a, w_k), D) + (mu / 2) * penalty  # [apfl eq.6]


class Gradients(NamedTuple):
    g_s: Array  # (..., d)
    g_a: Array  # (..., U)
    g_k: Array  # (..., d)


def gradients(
    model: Model, w_s: Array, a: Array, w_k: Array, D: Batch, *, F: Array, w_ref: Array, mu: float
) -> Gradients:
    """∇ of [apfl eq.6] in its three blocks, with G = g(w; D) at the composite w."""
    m = sigmoid(a)
    G = model.grad(compose(model, w_s, a, w_k), D)
    return Gradients(
        g_s=G * spread(model, m) + mu * F * (w_s - w_ref),
        g_a=m * (1 - m) * sum_by_unit(model, G * w_s),
        g_k=G,
    )


def importance_update(F_old: Array, importances: Array, p: Array, *, lam: float) -> Array:
    """F ← λF_old + Σ_k p_k I_k; I_k (K, d) is as printed the square of client k's full gradient."""
    return lam * F_old + weighted_sum(p.astype(importances.dtype), importances)  # [apfl eq.5]


class PlateauDetector(NamedTuple):
    """When to renew F [apfl §3.3, alg.1 lines 9–16]: after a peak of the loss, once it is flat.

    >>> detector, renewals = PlateauDetector(delta_mu=1.0, delta_sigma=0.1, length=2), []
    >>> for loss in (3.0, 3.0, 0.5, 0.5, 0.5, 0.5):
    ...     detector, renew = detector.push(loss)
    ...     renewals.append(renew)
    >>> renewals        # the peak is seen at the 2nd loss, the plateau at the 4th
    [False, False, False, True, False, False]
    """

    delta_mu: float = 1.0
    delta_sigma: float = 0.5
    length: int = 5
    window: tuple[float, ...] = ()
    mean_old: float = 0.0
    std_old: float = 0.0
    peak: bool = False

    def push(self, loss: float) -> tuple["PlateauDetector", bool]:
        """The detector after one more loss, and whether F is to be renewed now."""
        window = (*self.window, loss)[-self.length :]
        after = self._replace(window=window)
        if len(window) < self.length:
            return after, False
        mean, std = float(np.mean(window)), float(np.std(window))
        if self.peak and mean < self.delta_mu and std < self.delta_sigma:  # [apfl alg.1 line 10]
            return after._replace(mean_old=mean, std_old=std, peak=False), True
        if mean > self.mean_old + self.std_old:  # [apfl alg.1 line 14]
            after = after._replace(peak=True)
        return after, False


class APFLServer(NamedTuple):
    w: Array  # w_S (d,)
    F: Array  # (d,)
    t: int
    renew: bool  # whether this round's clients send their importance
    detector: PlateauDetector


class Sent(NamedTuple):
    w: Array
    F: Array | None  # None while it is 0
    t: int
    renew: bool


class Own(NamedTuple):
    a: Array  # (U,)
    w_k: Array  # (d,)


class Local(NamedTuple):
    w_s: Array
    own: Own | None  # None before the decomposition starts
    path: Array | None  # (d,) for SI: −Σ g ⊙ Δw along the path


class Upload(NamedTuple):
    w: Array
    importance: Array | None


@dataclass(frozen=True)
class APFL(Algorithm):
    lr: float = 0.05
    mu: float = 1.0
    lam: float = 1.0
    z: int = 2
    init: str = "paper"
    importance: str = "gradient-square"
    delta_mu: float = 1.0
    delta_sigma: float = 0.5
    window: int = 5
    personalised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.init not in ("paper", "continuous"):
            raise ConfigError(unknown("init", self.init, ("paper", "continuous")))
        if self.importance not in (*ESTIMATES, "si"):
            raise ConfigError(unknown("importance", self.importance, (*ESTIMATES, "si")))
        if self.lam > 1 or self.window < 1 or self.z < 0:
            raise ConfigError(
                f"lam is {self.lam} (0 to 1), window {self.window} (≥ 1), z {self.z} (≥ 0)"
            )

    @property
    def watches_loss(self) -> bool:
        return True

    def unconditional(self, t: int) -> bool:
        """Whether F is renewed in round t whatever the loss does [apfl §4.1.3]."""
        return abs(t - self.z) <= 1

    def initial(self, model: Model, w: Array) -> APFLServer:
        detector = PlateauDetector(self.delta_mu, self.delta_sigma, self.window)
        return APFLServer(w, np.zeros_like(w), 0, self.unconditional(0), detector)

    def download(self, server: APFLServer) -> Sent:
        return Sent(server.w, server.F if server.F.any() else None, server.t, server.renew)

    def start(self, model: Model, sent: Sent, mine: Own | None) -> Local:
        own = mine
        if own is None and sent.t >= self.z:  # [apfl alg.1 line 21]
            a = np.ones(len(sum_by_unit(model, sent.w)), sent.w.dtype)
            share = 1.0 if self.init == "paper" else 1 - sigmoid(np.ones(()))
            own = Own(a, sent.w * sent.w.dtype.type(share))
        path = np.zeros_like(sent.w) if self.importance == "si" and sent.renew else None
        return Local(sent.w, own, path)

    def step(self, model: Model, sent: Sent, local: Local, *batches: Batch) -> Local:
        (D,) = batches
        w_s, own, path = local
        F: Any = 0.0 if sent.F is None else sent.F
        if own is None:
            g_s = model.grad(w_s, D) + self.mu * F * (w_s - sent.w)
        else:
            g_s, g_a, g_k = gradients(model, w_s, *own, D, F=F, w_ref=sent.w, mu=self.mu)
            own = Own(own.a - self.lr * g_a, own.w_k - self.lr * g_k)
        if path is not None:  # −g ⊙ Δw of the loss alone
            path = path + (g_s - self.mu * F * (w_s - sent.w)) * self.lr * g_s
        return Local(w_s - self.lr * g_s, own, path)

    def finish(
        self, model: Model, sent: Sent, local: Local, mine: Own | None, data: LocalData
    ) -> Done:
        importance = None
        if sent.renew and local.path is not None:
            importance = synaptic_intelligence(local.path, local.w_s - sent.w)
        elif sent.renew:
            importance = ESTIMATES[self.importance](model, sent.w, data.all(0))
        return Done(Upload(local.w_s, importance), local.own)

    def diagnose(self, model: Model, sent: Sent, local: Local, data: LocalData) -> dict[str, float]:
        F: Any = 0.0 if sent.F is None else sent.F
        return {"penalty": float(self.mu / 2 * np.sum(F * (local.w_s - sent.w) ** 2))}

    def combine(
        self, model: Model, server: APFLServer, uploads: Upload, cohort: Cohort
    ) -> APFLServer:
        p, F = cohort.weights(self.weighting), server.F
        if uploads.importance is not None:
            F = importance_update(F, uploads.importance, p, lam=self.lam)
        w = weighted_mean(p, uploads.w)
        return server._replace(w=w, F=F, t=server.t + 1, renew=self.unconditional(server.t + 1))

    def observe(self, server: APFLServer, loss: float) -> APFLServer:
        detector, renew = server.detector.push(loss)
        return server._replace(detector=detector, renew=server.renew or renew)

    def personal(self, model: Model, sent: Sent, mine: Own | None, D: Batch | None) -> Array:
        return sent.w if mine is None else compose(model, sent.w, *mine)

    def log(self, server: APFLServer) -> dict[str, float]:
        return {"renewed": float(server.renew)}
