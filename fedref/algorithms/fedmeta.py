"""FedMeta: clients meta-learn by MAML, first-order MAML (FOMAML) or Meta-SGD.

Chen, Luo, Dong, Li, He, *Federated meta-learning with fast convergence and efficient
communication*, 2018, https://arxiv.org/abs/1802.07876. MAML: Finn, Abbeel, Levine, *Model-agnostic
meta-learning for fast adaptation of deep networks*, ICML 2017, https://arxiv.org/abs/1703.03400.
Meta-SGD: Li, Zhou, Chen, Li, *Meta-SGD: learning to learn quickly for few-shot learning*, 2017,
https://arxiv.org/abs/1707.09835. The steps are those of a text that retells the first.

Objective [fedmeta MAML]: min_θ E_u f(θ_u; Q_u), θ_u = θ − α∇f(θ; S_u); [fedmeta Meta-SGD]: the same
over θ and a vector α, θ_u = θ − α ⊙ ∇f(θ; S_u). S_u (support) and Q_u (query) are disjoint.

    symbol  name         shape
    θ       theta        (..., d)
    α       alpha        number (MAML) or (..., d) (Meta-SGD)
    S       S            Batch, support
    Q       Q            Batch, query: disjoint
    q       q            (..., d)  the gradient on Q, carried back through the inner steps
    θ_j     theta_j      (..., d)  θ after j inner steps
    g_j     g_j          (..., d)  its gradient on S
    g_α     g_alpha      (..., d)  ∂/∂α
    x       learner      Learner: θ, and for Meta-SGD α
    g_u     uploads      what a client sends: ∂f(θ_u; Q)/∂θ, and ∂/∂α
    g       g            Learner, their weighted mean
    m       m            Learner, Adam's first moment
    v       v            Learner, Adam's second moment
    c₁      c1           number, bias correction of the first moment
    c₂      c2           number, bias correction of the second moment
    β       beta         number, the server's step, and with epochs of episodes the client's
    t       t            number of Adam's steps so far

Equations: [fedmeta MAML] `maml_objective`, `maml_gradient`, `MAML`, `FOMAML` · [fedmeta Meta-SGD]
`maml_objective` with a vector α, `meta_sgd_gradient`, `MetaSGD` · [fedmeta server]
`MAML.combine`, with `server_step` ([Adam m], [Adam v], [Adam c₁], [Adam step]).

Decisions
  second order. The paper's client step says "the gradient with respect to θ_u", which taken
    literally is first order; its server step and MAML itself mean the gradient with respect to θ.
    We give both: MAML and FOMAML. Published code often names MAML and computes FOMAML.
  Meta-SGD's α-gradient is −q ⊙ g(θ; S), not the θ-gradient again. There is no softplus on α.
  several steps. Backpropagated through the whole chain: one HVP per step, memory O(steps·d).
  server. θ ← θ − (β/K) Σ_u g_u over the K clients: plain SGD. Adam keeps its moments across rounds
    (with new moments in every round it would be sign descent).
  episodes. Either one a round from all of the client's rows, as printed (`episodes = "one"`), or
    local epochs of episodes (`"epochs"`, as in the comparison of [apfl §4.1.3], E = 5, B = 10). Then
    each mini-batch is split into support and query, each step is θ ← θ − βg, and the client sends
    the sum of its g. The server's SGD step then makes θ the mean of the clients' θ.
  stragglers that are not dropped do part of the epochs, but all of a single episode.
  weights. Uniform, as printed; `weighting = "samples"` weights by n_u, never by numbers of batches.
  an episode is drawn afresh each round from the client's training rows, a share `support` of them
    for S.
    A client with one row has an empty S and its row is the query: only an L2 term, if the model has
    one, then moves θ in the inner steps.

>>> import numpy as np
>>> from fedref import Batch
>>> from fedref.models import Logistic
>>> model, rng = Logistic(3, 2), np.random.default_rng(0)
>>> S, Q = (Batch(rng.normal(size=(4, 3)), rng.integers(0, 2, 4)) for _ in range(2))
>>> theta, ones = rng.normal(size=model.d), np.ones(model.d)
>>> g_theta, g_alpha = meta_sgd_gradient(model, theta, 0.1 * ones, S, Q)
>>> bool(np.all(g_theta == maml_gradient(model, theta, S, Q, alpha=0.1)))
True
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedref.algorithm import Algorithm, ClientResult, Cohort, Participant, weighted_mean
from fedref.models import numerics as nx
from fedref.models import tree
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array


def inner_steps(
    model: Model, theta: Array, S: Batch, *, alpha: Array | float, steps: int
) -> tuple[list[Array], list[Array]]:
    """([θ = θ⁰, θ¹, ..., θ_u], [g(θ⁰; S), ...]) with θʲ⁺¹ = θʲ − α ⊙ g(θʲ; S), each (..., d)."""
    thetas, gs = [theta], list[Array]()
    for _ in range(steps):
        gs.append(model.grad(thetas[-1], S))
        thetas.append(thetas[-1] - alpha * gs[-1])
    return thetas, gs


def maml_objective(
    model: Model, theta: Array, S: Batch, Q: Batch, *, alpha: Array | float, steps: int = 1
) -> Array:
    """f(θ_u; Q) after `steps` inner steps on S; with a vector α it is Meta-SGD's objective."""
    thetas, _ = inner_steps(model, theta, S, alpha=alpha, steps=steps)
    return model.loss(thetas[-1], Q)


def maml_gradient(
    model: Model,
    theta: Array,
    S: Batch,
    Q: Batch,
    *,
    alpha: float,
    steps: int = 1,
    second_order: bool = True,
) -> Array:
    """∇_θ f(θ_u; Q) = Π_j (I − αH(θʲ; S)) g(θ_u; Q); first order: g(θ_u; Q) alone [fedmeta MAML].

    second_order : through the inner steps (true), or at their end (false: FOMAML).
    """
    (*thetas, theta_u), _ = inner_steps(model, theta, S, alpha=alpha, steps=steps)
    q = model.grad(theta_u, Q)
    if second_order:
        for theta_j in reversed(thetas):
            q = q - model.hvp(theta_j, alpha * q, S)  # [fedmeta MAML] q = q − H(θ_j; S)(αq)
    return q


def meta_sgd_gradient(
    model: Model, theta: Array, alpha: Array, S: Batch, Q: Batch, *, steps: int = 1
) -> tuple[Array, Array]:
    """(∂/∂θ, ∂/∂α) of f(θ_u; Q) with θʲ⁺¹ = θʲ − α ⊙ g(θʲ; S) [fedmeta Meta-SGD]."""
    (*thetas, theta_u), gs = inner_steps(model, theta, S, alpha=alpha, steps=steps)
    q = model.grad(theta_u, Q)
    g_alpha = nx.constant(0, q.shape, q.dtype)
    # ∂θ_{j+1}/∂α = −diag(g_j) and ∂θ_{j+1}/∂θ_j = I − diag(α) H. Their transposes multiply q: the
    # transpose of the second is I − H diag(α), so α multiplies first, then H.
    for theta_j, g_j in zip(reversed(thetas), reversed(gs)):
        g_alpha = g_alpha - q * g_j  # [fedmeta Meta-SGD] g_α = g_α − q ⊙ g_j
        q = q - model.hvp(theta_j, alpha * q, S)  # [fedmeta Meta-SGD] q = (I − H(θ_j; S) diag(α)) q
    return q, g_alpha


class Adam(NamedTuple):
    """Kingma and Ba 2015. The moments (trees like the learner) are kept for the whole run."""

    m: Any
    v: Any
    t: int


def adam(x: Any) -> Adam:
    """Return Adam's state before the first step."""
    zeros = tree.map(np.zeros_like, x)
    return Adam(zeros, zeros, 0)


def server_step(learner: Any, g: Any, adam: Adam | None, *, beta: float) -> tuple[Any, Adam | None]:
    """x ← x − βg, or a step of Adam with β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸; x and g are trees.

    Adam is [Adam m] [Adam v] [Adam c₁] [Adam step].
    adam : Adam's state (None: plain SGD).
    """
    if adam is None:
        return tree.map(lambda x, g: x - beta * g, learner, g), None
    t = adam.t + 1
    m = tree.map(lambda m, g: 0.9 * m + 0.1 * g, adam.m, g)  # [Adam m] m = 0.9m + 0.1g
    v = tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, adam.v, g)  # [Adam v] v = 0.999v + 0.001g²
    c1, c2 = 1 - 0.9**t, 1 - 0.999**t  # [Adam c₁] c₁ = 1 − 0.9ᵗ
    # [Adam step] x = x − βm / (c₁(sqrt(v / c₂) + 10⁻⁸))
    learner = tree.map(
        lambda x, m, v: x - beta * (m / c1) / (np.sqrt(v / c2) + 1e-8), learner, m, v
    )
    return learner, Adam(m, v, t)


class Learner(NamedTuple):
    """The server's message to clients; the gradients that they send back have the same structure."""

    theta: Array  # (d,)
    alpha: Any = None  # (d,) for Meta-SGD


#: The client's current learner, and the sum of its meta-gradients, which it sends at the end.
Local = tuple[Learner, Learner]


class MetaServer(NamedTuple):
    learner: Learner
    adam: Adam | None


@dataclass(frozen=True)
class MAML(Algorithm[MetaServer, Learner, Local, None], stacks=True):
    """FedMeta with MAML: a client sends the meta-gradient of an episode."""

    weighting: str = "uniform"
    alpha: float = 0.1
    beta: float = 0.05
    inner_steps: int = 1
    server: str = "sgd"
    episodes: str = "one"
    personalised: ClassVar[bool] = True
    adapts_on: ClassVar[str | None] = "S"
    second_order: ClassVar[bool] = True

    choices: ClassVar = {"server": ("sgd", "adam"), "episodes": ("one", "epochs")}

    @property
    def roles(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("S", "Q") if self.episodes == "one" else ("S of D", "Q of D")

    def learner(self, w: Array) -> Learner:
        return Learner(w)

    def initial(self, model: Model, w: Array) -> MetaServer:
        learner = self.learner(w)
        return MetaServer(learner, adam(learner) if self.server == "adam" else None)

    def download(self, server: MetaServer) -> Learner:
        return server.learner

    def start(self, model: Model, sent: Learner, client_state: None, client: Participant) -> Local:
        return sent, tree.map(lambda x: nx.constant(0, x.shape, x.dtype), sent)

    def step(self, model: Model, sent: Learner, local: Local, *batches: Batch) -> Local:
        g = self.gradient(model, local[0], *batches)
        if self.episodes == "one":  # no step follows
            return local[0], g
        return tree.map(lambda x, g: x - self.beta * g, local[0], g), tree.map(np.add, local[1], g)

    def gradient(self, model: Model, learner: Learner, S: Batch, Q: Batch) -> Learner:
        """Return the meta-gradient of one episode."""
        options: Any = {"steps": self.inner_steps, "second_order": self.second_order}
        return Learner(maml_gradient(model, learner.theta, S, Q, alpha=self.alpha, **options))

    def finish(self, model: Model, sent: Learner, local: Local, *_: Any) -> ClientResult:
        return ClientResult(local[1])

    def combine(
        self, model: Model, server: MetaServer, uploads: Learner, cohort: Cohort
    ) -> MetaServer:
        g = tree.map(partial(weighted_mean, cohort.weights(self.weighting)), uploads)
        # [fedmeta server] x = x − βg
        return MetaServer(*server_step(server.learner, g, server.adam, beta=self.beta))

    def personalised_params(
        self, model: Model, sent: Learner, client_state: None, D: Batch | None
    ) -> Array:
        if D is None:
            return sent.theta
        alpha = self.alpha if sent.alpha is None else sent.alpha
        thetas, _ = inner_steps(model, sent.theta, D, alpha=alpha, steps=self.inner_steps)
        return thetas[-1]


@dataclass(frozen=True)
class FOMAML(MAML, stacks=True):
    """MAML without its second-order term."""

    second_order: ClassVar[bool] = False


@dataclass(frozen=True)
class MetaSGD(MAML, stacks=True):
    """MAML that also learns a step size for every parameter."""

    def learner(self, w: Array) -> Learner:
        return Learner(w, np.full_like(w, self.alpha))

    def gradient(self, model: Model, learner: Learner, S: Batch, Q: Batch) -> Learner:
        return Learner(*meta_sgd_gradient(model, *learner, S, Q, steps=self.inner_steps))
