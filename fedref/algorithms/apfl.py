"""APFL: adaptive personalised federated learning by parameter decomposition and consolidation.

Ni, Shen, Zhang, *Adaptive personalized federated learning for heterogeneous data: a method based on
parameter decomposition and continual learning*, Sci Sin Inform 52 (2022) 2306–2320, in Chinese,
https://doi.org/10.1360/SSI-2021-0152. *Not* the mixture of a local and a global model of the same
name (Deng, Kamani, Mahdavi 2020).

Objective of client k [apfl eq.6]: min over w_S, m_k, w_k of
    L_k(w_S ⊙ m_k + w_k) + (μ/2) Σ_j F_j (w_S,j − wᵗ_S,j)²;
the loss of all clients is the weighted mean of [apfl eq.1–2].

    symbol   name       shape
    w_S      w_s        (..., d)  shared; travels down and up
    a        a          (..., U)  m_k = σ(a): one value in (0, 1) per output unit
    w_k      w_k        (..., d)  the client's own
    wᵗ_S     w_ref      (d,)      w_S as it was sent
    F        F          (d,)      importance of each parameter
    I_k      importances  (K, d)  the clients' estimates of it
    ∇L       g_s       (d,)      the gradient of L_k in w_S
    μ        mu       number, the penalty
    λ        lam      number, forgetting
    η        lr       number, the learning rate
    t        t        number of the round
    z        z        number of the round in which the decomposition starts
    U                   output units of all layers together, see `expand_units`

Equations: [apfl eq.3] `compose` · [eq.4] the penalty in `objective` · [eq.5] `importance_update` ·
[eq.6] `objective`, `gradients` and `penalty_gradient` · [apfl §3.3] `PlateauDetector` ·
[alg.1] `APFL`.

Decisions
  start. From round z on (t counted from 0): "z, the round in which it starts" [§4.1.3]; alg.1 prints
    t − z > 0, a round later. Starting with M_k = 1, W_k = W_S as printed makes the composite jump to
    σ(1)w_S + w_S. `init = "paper"` does so (a = 1); `init = "continuous"` has w_k = (1 − σ(1))w_S: no jump.
  [eq.4] has no ½, [eq.6] has μ/2: we take eq.6's.
  [eq.5] squares each client's *full* local gradient of the loss at the w_S that it received; the
    experiments say "empirical Fisher": `importance = "fisher"`. "si" and "mas" are the alternatives
    that the paper names. When renewal is decided, the clients of the next round send their
    importance, and only they (alg.1 never resets the flag).
  window. The paper does not print its length: we take 5 rounds, and judge it only when it is full. Its
    losses are the training losses over all clients.
  F is renewed unconditionally in the rounds z−1, z, z+1: "the two rounds before and after the start"
    [§4.1.3]. "The preset first 3 rounds" (§4.2.1) would be t = 0, 1, 2, with z = 2 a round earlier.
  bias entries are scaled by their unit's m. A client that was never selected is tested with w_S.
  a round in which every client was dropped does not count in t, and its loss is not in the window.
  the column `renewed` is 1 in the row of the round before the one whose clients send importance.
  cost. Clients do not keep F: from its first renewal on it travels down with w_S in every round (2d
    down). In rounds that renew it, importance travels up as well (2d up, else d). The paper claims
    hardly any extra cost.

>>> import numpy as np
>>> from fedref.models import BinaryLogistic
>>> model = BinaryLogistic(2)                # one layer of one unit
>>> compose(model, np.array([1.0, 2.0, 4.0]), np.zeros(1), np.ones(3))   # σ(0) = ½
array([1.5, 2. , 3. ])
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedref.algorithm import Algorithm, ClientResult, Cohort, Participant, weighted_mean
from fedref.algorithms.importance import ESTIMATES, synaptic_intelligence
from fedref.models.base import Model
from fedref.models.batch import AllData, Batch
from fedref.models.numerics import Array, sigmoid, weighted_sum


def expand_units(model: Model, m: Array) -> Array:
    """Expand one value per unit (..., U) to one per parameter (..., d).

    A layer's weight (..., out) and its bias (out,) belong to the same `out` units; units are counted
    through all layers in the order of `model.unpack`.
    """
    x, end = np.empty((*m.shape[:-1], model.d), m.dtype), 0
    for view in model.unpack(x):
        inside = view.ndim - m.ndim  # axes between the leading ones and the units
        out = view.shape[-1]
        end += out if inside else 0  # a weight opens a layer; its bias has the same units
        view[...] = m[..., end - out : end].reshape(*m.shape[:-1], *[1] * inside, out)
    return x


def sum_over_units(model: Model, x: Array) -> Array:
    """Σ of x (..., d) over the entries of each unit: (..., U). The transpose of `expand_units`."""
    lead, sums = x.ndim - 1, list[Array]()
    for view in model.unpack(x):
        total = view.sum(tuple(range(lead, view.ndim - 1)))
        if view.ndim == lead + 1:  # a bias
            total = sums.pop() + total
        sums.append(total)
    return np.concatenate(sums, -1)


def compose(model: Model, w_s: Array, a: Array, w_k: Array) -> Array:
    """w = w_S ⊙ m_k + w_k with m_k = σ(a), one value per output unit: (..., d) [apfl eq.3]."""
    return w_s * expand_units(model, sigmoid(a)) + w_k  # [apfl eq.3] w = w_S ⊙ m_k + w_k


def objective(
    model: Model, w_s: Array, a: Array, w_k: Array, D: Batch, *, F: Array, w_ref: Array, mu: float
) -> Array:
    """L_k(w_S ⊙ σ(a) + w_k; D) + (μ/2) Σ_j F_j (w_S,j − wᵗ_S,j)²: (...) [apfl eq.4] [apfl eq.6]."""
    penalty = np.sum(F * (w_s - w_ref) ** 2, -1)  # [apfl eq.4] R(w_S) = Fᵀ(w_S − wᵗ_S)²
    # [apfl eq.6] h = L(w_S ⊙ m_k + w_k; D) + (μ/2) Fᵀ(w_S − wᵗ_S)²
    return model.loss(compose(model, w_s, a, w_k), D) + mu / 2 * penalty


def gradients(
    model: Model, w_s: Array, a: Array, w_k: Array, D: Batch
) -> tuple[Array, Array, Array]:
    """∇ of L_k(w_S ⊙ σ(a) + w_k; D) in w_S (..., d), a (..., U), w_k (..., d); G = g(w; D)."""
    m = sigmoid(a)
    G = model.grad(compose(model, w_s, a, w_k), D)
    return G * expand_units(model, m), m * (1 - m) * sum_over_units(model, G * w_s), G


def penalty_gradient(w_s: Array, *, F: Array, w_ref: Array, mu: float) -> Array:
    """μF ⊙ (w_S − wᵗ_S), which eq.6 adds to the gradient in w_S: (..., d) [apfl eq.6]."""
    return mu * F * (w_s - w_ref)  # [apfl eq.6] (μ/2) ∇R = μF ⊙ (w_S − wᵗ_S)


def importance_update(F_old: Array, importances: Array, p: Array, *, lam: float) -> Array:
    """F ← λF_old + Σ_k p_k I_k. As printed, I_k is client k's full gradient squared [apfl eq.5].

    F_old : the importance so far, (d,).
    """
    return lam * F_old + weighted_sum(p, importances)  # [apfl eq.5] F = λF + Σ_k p_k I_k


class PlateauDetector(NamedTuple):
    """When to consolidate: a peak of the loss, then a plateau [apfl §3.3, alg.1 lines 9–16].

    The window holds the last `length` global losses; until it is full, nothing is decided. A *peak*
    is a window whose mean exceeds mean_old + std_old. After a peak, importance is renewed once
    mean < δ_μ and std < δ_σ, and these become mean_old and std_old.
    delta_mu : δ_μ, the threshold of the loss window's mean, ≥ 0.
    delta_sigma : δ_σ, that of its standard deviation, ≥ 0.
    length : how many losses the window holds, ≥ 1.
    window : the newest losses.
    mean_old : the window's mean when importance was last renewed.
    std_old : its standard deviation then.
    peak : whether a peak has been seen since.

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
        """Return the detector after one more loss, and whether importance is to be renewed now.

        It follows [apfl alg.1 line 10] and [apfl alg.1 line 14].
        loss : the global training loss of a round.
        """
        window = (*self.window, loss)[-self.length :]
        detector = self._replace(window=window)
        if len(window) < self.length:
            return detector, False
        mean, std = float(np.mean(window)), float(np.std(window))
        if self.peak and mean < self.delta_mu and std < self.delta_sigma:  # [apfl alg.1 line 10]
            return detector._replace(mean_old=mean, std_old=std, peak=False), True
        if mean > self.mean_old + self.std_old:  # [apfl alg.1 line 14]
            detector = detector._replace(peak=True)
        return detector, False


class ServerState(NamedTuple):
    """The server's state, which travels without the detector.

    F is the integer 0, which costs no byte, until it is first renewed.
    """

    w: Array  # w_S (d,)
    F: Any  # (d,)
    t: int
    renew: bool  # whether this round's clients send their importance
    detector: Any  # PlateauDetector


class ClientState(NamedTuple):
    a: Array  # (U,)
    w_k: Array  # (d,)


class Local(NamedTuple):
    w_s: Array
    personal: ClientState | None  # None before the decomposition starts
    si_path: Array | None  # (d,) for SI: −Σ g ⊙ Δw along the path


class Upload(NamedTuple):
    w: Array
    importance: Array | None


@dataclass(frozen=True)
class APFL(Algorithm[ServerState, ServerState, Local, ClientState], stacks=True):
    """A shared w_S, held in place by its importance F, and an m_k and a w_k for each client."""

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

    choices: ClassVar = {"init": ("paper", "continuous"), "importance": (*ESTIMATES, "si")}
    bounds: ClassVar = {"lam": (0.0, 1.0), "window": (1, np.inf)}

    @property
    def watches_loss(self) -> bool:
        return True

    def initial(self, model: Model, w: Array) -> ServerState:
        detector = PlateauDetector(self.delta_mu, self.delta_sigma, self.window)
        return ServerState(w, 0, 0, self.z <= 1, detector)

    def download(self, server: ServerState) -> ServerState:
        return server._replace(detector=None)

    def start(
        self, model: Model, sent: ServerState, client_state: ClientState | None, client: Participant
    ) -> Local:
        if client_state is None and sent.t >= self.z:  # [apfl alg.1 line 21] t ≥ z
            a = np.ones_like(sum_over_units(model, sent.w))
            share = 1.0 if self.init == "paper" else 1 - sigmoid(np.ones((), a.dtype))
            client_state = ClientState(a, sent.w * share)
        si_path = np.zeros_like(sent.w) if self.importance == "si" and sent.renew else None
        return Local(sent.w, client_state, si_path)

    def step(self, model: Model, sent: ServerState, local: Local, *batches: Batch) -> Local:
        (D,) = batches
        w_s, personal, si_path = local
        if personal is None:
            g_s = model.grad(w_s, D)
        else:
            g_s, g_a, g_k = gradients(model, w_s, *personal, D)
            personal = ClientState(personal.a - self.lr * g_a, personal.w_k - self.lr * g_k)
        # [apfl eq.6] ∇h = ∇L + μF ⊙ (w_S − wᵗ_S)
        h_s = g_s + penalty_gradient(w_s, F=sent.F, w_ref=sent.w, mu=self.mu)
        if si_path is not None:  # −g ⊙ Δw of the loss alone
            si_path = si_path + g_s * self.lr * h_s
        return Local(w_s - self.lr * h_s, personal, si_path)

    def finish(
        self, model: Model, sent: ServerState, local: Local, client_state: Any, data: AllData
    ) -> ClientResult:
        importance = None
        if local.si_path is not None:
            importance = synaptic_intelligence(local.si_path, local.w_s - sent.w)
        elif sent.renew:
            importance = ESTIMATES[self.importance](model, sent.w, data())
        return ClientResult(Upload(local.w_s, importance), local.personal)

    def client_metrics(
        self, model: Model, sent: ServerState, local: Local, data: AllData
    ) -> dict[str, float]:
        return {"penalty": float(self.mu / 2 * np.sum(sent.F * (local.w_s - sent.w) ** 2))}

    def combine(
        self, model: Model, server: ServerState, uploads: Upload, cohort: Cohort
    ) -> ServerState:
        p, F, t = cohort.weights(self.weighting), server.F, server.t + 1
        if uploads.importance is not None:
            F = importance_update(F, uploads.importance, p, lam=self.lam)
        near_start = abs(t - self.z) <= 1  # [apfl §4.1.3] |t − z| ≤ 1
        return server._replace(w=weighted_mean(p, uploads.w), F=F, t=t, renew=near_start)

    def observe_loss(self, server: ServerState, loss: float) -> ServerState:
        detector, renew = server.detector.push(loss)
        return server._replace(detector=detector, renew=server.renew or renew)

    def personalised_params(
        self, model: Model, sent: ServerState, client_state: ClientState | None, D: Batch | None
    ) -> Array:
        return sent.w if client_state is None else compose(model, sent.w, *client_state)

    def server_metrics(self, server: ServerState) -> dict[str, float]:
        return {"renewed": float(server.renew)}
