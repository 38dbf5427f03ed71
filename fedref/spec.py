"""The specification: federated learning from five papers, each algorithm as the box of its paper.

Clients hold rows of data that they do not show; a server holds parameters. In each round some clients
take the parameters, compute with their own rows, and send back what they got; the server combines it.
Every algorithm is a generator: it takes the initial parameters and the rounds, and yields its state
after each round. Begin with FedAvg in section 3 and look up what it calls, or read from top to bottom;
it needs NumPy and nothing else. Part two has six more algorithms, part three the losses of six models
and a toy: `python -m fedref.spec`. `fedref check` proves that all else here computes the same to 1e-12.

Part one was written from five texts in Chinese: the article for APFL, an unsigned tutorial for FedMAML,
and for the others a text that retells the paper. A tag in brackets, such as apfl eq.5, is that
equation of that text; the original may number it otherwise. fedref/teach/text/concordance.toml says
where an original has it, as far as that was looked up, and so does `fedref explain "apfl eq.5"`.

    per-fedavg  Fallah, Mokhtari, Ozdaglar 2020    https://arxiv.org/abs/2002.07948
    fedprox     Li, Sahu, Zaheer et al. 2020       https://arxiv.org/abs/1812.06127
    fedmeta     Chen, Luo, Dong, Li, He 2018       https://arxiv.org/abs/1802.07876
    fedmaml     MAML: Finn, Abbeel, Levine 2017    https://arxiv.org/abs/1703.03400
    apfl        Ni, Shen, Zhang 2022               https://doi.org/10.1360/SSI-2021-0152
                not the APFL of Deng et al. 2020. It also states FedAvg (McMahan et al. 2017) and
                FedCurv (Shoham et al. 2019)

Where it leaves the box, and why (more under *Decisions* in fedref/algorithms):

                     the text has               here, and why
    apfl line 20     t − z > 0                  t ≥ z: z is "the round in which it starts" (§4.1.3)
    apfl line 21     M_k = 1                    m = σ(1) = 0.73: eq.3 keeps m in (0, 1) by a sigmoid
    apfl lines 11–12 renews F at once, and      F is renewed in the next round, whose clients send their
                     never resets the flag      importance: this round's did not. Then the flag is reset,
                                                or importance would travel in every round
    apfl §4.1.3      F is renewed in "the two   z − 1, z and z + 1: one before, the start, one after
                     rounds before and after"
    apfl eq.4        no ½                       μ/2, as in eq.6
    apfl line 9      a window of losses         of 5, judged when full: the length is not printed
    fedcurv          two sentences, no formula  the penalty of Shoham et al., and a Fisher by samples
    fedprox alg.2    devices by p_k, Σ w_k/K    K different ones, n_k/Σn_k, as in its §5.1: so μ = 0 is FedAvg
    fedprox alg.2    a γ-inexact minimiser      SGD for some epochs; γ is measured, or ends it early
    fedmeta          "the gradient in θ_u"      in θ, as MAML means; `fomaml` is what is printed
    fedmaml §3.2     a mean θ′ and a step of θ  both are yielded: which is sent next is not said
                     by ∇_θ Σ_k L_k             a sum as printed, so β is per client; through all steps
    per-fedavg eq.2  ∇f_i(x)                    ∇f_i(w): a misprint
    fedopt alg.2     Δ = Σ Δ_k/|S|              n_k/Σn_k, as in the paper's experiments
    apfl-deng alg.1  a given v_i                the server's w when client i first takes part
    feddyn           an exact minimum           gradient steps

    symbol          name              what it is
    w, θ, w_S       w, theta, w_s     the parameters: one flat vector (d,)
    D, D′, D″       D, D1, D2         batches: rows X (B, p) with labels y (B,); S, Q: support and query
    D_k, n_k        client.data       all training rows of client k, and their number
    f(w; D)         f(w, D)           the mean loss on D, a `Risk`; FedProx's F_k(w) is f(w; D_k)
    ∇f(w; D)        f.grad(w, D)      by dual numbers, from the loss alone: nothing is derived by hand
    ∇²f(w; D) v     f.hvp(w, v, D)    by the complex step of that gradient
    η, α, β         eta, alpha, beta  a step size, > 0: η to train, α to adapt, β to train through adaptation
    μ, λ            mu, lam           the weight of a penalty, ≥ 0; APFL's λ: how much of its old F is kept
    t, S_t          rounds, clients   an iterable of rounds; a round is the list of its `Client`s
    N, K            N, K              the number of all clients, and of those in a round
    p_k             weights           the rule for a round's p_k (K,): `sample_weights` or `uniform_weights`
"""

from contextvars import ContextVar
from functools import partial, reduce
from hashlib import sha256
from itertools import pairwise
from math import ceil, floor, nan, prod
from typing import Any, NamedTuple

import numpy as np
from numpy import exp, log, sqrt, tanh
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.linalg import norm

# ---- 1. A function and its derivatives -----------------------------------------------------------


def gradient(f, x, kind=None):
    """Return ∇f(x) for a number f(x), x real or complex: f(x + ε) = f(x) + ∇f(x) ε, where ε² = 0.
    One pass of such dual numbers through f takes all directions at once (section 18).
    x : an array of any shape. kind : the class of dual numbers, with other rules (None: `Dual`)."""
    if way := other_way(x, kind):
        return way(f, x)
    y = f((kind or Dual)(x, np.eye(x.size).reshape(*x.shape, x.size), object()))
    if np.shape(value(y)):
        raise ValueError(f"a gradient is that of a number: f(x) has shape {np.shape(value(y))}")
    return y.b.reshape(x.shape) if isinstance(y, Dual) else np.zeros(x.shape)


class Batch(NamedTuple):
    """Rows of data. X : their features (B, p). y : their labels (B,)."""

    X: Any
    y: Any

    def rows(self, index):
        """Return the batch of some of its rows. index : which, as NumPy takes it."""
        return Batch(self.X[index], self.y[index])


class Risk(NamedTuple):
    """f(w; D): the mean of ℓ(z(w; x), y) over the rows of D (0 if none), + (l2/2)‖w‖²  [apfl eq.2].
    scores : z(w, X), one score or a row of them for each row of X (section 16). loss : ℓ(z, y) of each.
    labels : the label of each score; with a single score, those of z ≤ 0 and of z > 0. l2 : its weight."""

    scores: Any
    loss: Any
    labels: Any
    l2: float = 0.0

    def __call__(self, w, D):
        return self.loss(self.scores(w, D.X), D.y).sum() / max(len(D.y), 1) + self.l2 / 2 * (w @ w)

    def grad(self, w, D):
        return gradient(lambda w: self(w, D), w)

    def hvp(self, w, v, D):
        """A complex step, ∇f(w + ihv) = ∇f(w) + ih ∇²f(w)v + O(h²), in which nothing is subtracted:
        so h can be 1e-200, and the result is exact to rounding."""
        return np.imag(self.grad(w + 1e-200j * v, D)) / 1e-200

    def predict(self, w, X):
        z = self.scores(w, X)
        return np.take(self.labels, z.argmax(-1) if z.ndim > 1 else 1 * (z > 0))


# ---- 2. Who takes part in a round, and with which rows -------------------------------------------


class Client(NamedTuple):
    """One client in one round. k : its number. data : all its training rows. steps_per_epoch : of `steps`.
    steps : the batches of each local step: (D,), (D, D′, D″) or (S, Q). draws : how often it was drawn.
    straggler : whether it is too slow for all its epochs; `steps` are those that it did."""

    k: int
    data: Batch
    steps: list[Any]
    steps_per_epoch: int = 1
    draws: int = 1
    straggler: bool = False

    @property
    def n(self):
        return len(self.data.y)


def stream(seed, purpose, *key):
    """Return a random generator for one purpose, independent of all others; key : (round, client)."""
    digest = sha256(purpose.encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:4]), *key])


def draw_cohort(seed, t, n, K, by_samples=False):
    """Draw who takes part, and how often: K of N, or K times by p_k = n_k/Σn_k [fedprox alg.2]."""
    p = n / n.sum() if by_samples else None
    drawn = stream(seed, "cohort", t).choice(len(n), K, replace=by_samples, p=p)
    return np.unique(drawn, return_counts=True)


def draw_stragglers(seed, t, K, share, E):
    """Draw which of K clients straggle: these do 1 to E epochs (or steps), the others E."""
    rng = stream(seed, "stragglers", t)
    straggles = np.zeros(K, bool)
    straggles[rng.choice(K, floor(share * K + 0.5), replace=False)] = True
    return straggles, np.where(straggles, rng.integers(1, E + 1, K), E)


def draw_batches(rng, n, B, epochs=0, steps=0):
    """Draw the rows of each mini-batch: each epoch is a permutation, cut; each step is B of n rows."""
    orders = rng.permuted(np.tile(np.arange(n), (epochs or steps, 1)), axis=1)
    if steps:  # where n > 64 B, fedref draws these B by `choice`: as likely, and in less memory
        return [order[:B] for order in orders]
    return [order[i : i + B] for order in orders for i in range(0, n, B)]


def split_episode(order, support):
    """Split rows into an episode of meta-learning: a support set, to adapt on, and a query set.
    The query tells how good the adapted model is. Each has at least one row; a single row is the query."""
    first = min(max(round(support * len(order)), 1), len(order) - 1)
    return order[:first], order[first:]


def drop_stragglers(rounds):
    """Drop stragglers, as FedAvg does and FedProx does not, and rounds that are then empty."""
    rest = ([client for client in clients if not client.straggler] for clients in rounds)
    return filter(None, rest)


def sample_weights(clients):
    """p_k = n_k/Σn_k (K,) over the clients that took part [apfl eq.1]."""
    n = np.array([client.draws * client.n for client in clients])
    return n / n.sum()


def uniform_weights(clients):
    """p_k = 1/K [per-fedavg alg.1]; a client that was drawn twice counts twice [fedprox alg.2]."""
    draws = np.array([client.draws for client in clients])
    return draws / draws.sum()


def average(p, xs):
    """Σ_k p_k x_k. p : a weight for each x_k. xs : numbers, or arrays of one shape."""
    return sum(p_k * x for p_k, x in zip(p, xs))


# ---- 3. FedAvg, and what comes from it -----------------------------------------------------------


def fedavg(f, w, rounds, eta, weights=sample_weights):
    """Each client takes steps of SGD from the server's w; the server averages. Yields w.
    The IID baseline [apfl §4.1.1] is the same with one client that holds all rows."""
    for clients in rounds:
        ws = []
        for client in clients:
            w_k = w
            for (D,) in client.steps:
                w_k = w_k - eta * f.grad(w_k, D)  # SGD on [apfl eq.2]
            ws.append(w_k)
        w = average(weights(clients), ws)  # Σ_k p_k w_k  [apfl alg.1 line 8]
        yield w


def adapt(f, w, D, alpha, steps=1):
    """Take gradient steps of size α on one D, as a client also does before it is tested:
    FedAvg with update and Per-FedAvg [per-fedavg §5] on fresh training rows; FedAvg(Meta), MAML,
    Meta-SGD [fedmeta] and FedMAML on a support set. steps : how many, ≥ 1."""
    for _ in range(steps):
        w = w - alpha * f.grad(w, D)
    return w


# ---- 4. FedProx ----------------------------------------------------------------------------------


def prox_gradient(f, w, w_t, D, mu):
    """∇h_k(w; wᵗ) of h_k(w; wᵗ) = f(w; D_k) + (μ/2)‖w − wᵗ‖²  [fedprox alg.2].
    h_k is the loss of client k, and a penalty for leaving the server's wᵗ."""
    return gradient(lambda w: f(w, D) + mu / 2 * ((w - w_t) ** 2).sum(), w)


def fedprox(f, w, rounds, eta, mu, gamma=0.0, train_loss=None, weights=sample_weights):
    """Each client descends h_k from wᵗ; the server averages. Yields w, μ, the clients' γ, penalties.
    As printed: clients drawn by n_k, with `uniform_weights`. With FedAvg's weights μ = 0 is FedAvg.
    gamma : a client stops after the local epoch that made it γ-inexact: ‖∇h_k‖ on all its rows is at
    most γ times what it was at wᵗ. train_loss : w → the loss over all clients; if given, μ adapts."""
    falls = 0
    before = nan  # the first loss is neither above nor below nan
    for clients in rounds:
        w_t = w
        ws, gammas = [], []
        for client in clients:
            w_k = w_t
            start = now = norm(prox_gradient(f, w_t, w_t, client.data, mu))
            for step, (D,) in enumerate(client.steps, 1):
                w_k = w_k - eta * prox_gradient(f, w_k, w_t, D, mu)
                now = norm(prox_gradient(f, w_k, w_t, client.data, mu))
                if step % client.steps_per_epoch == 0 and now <= gamma * start:  # [fedprox γ]
                    break
            ws.append(w_k)
            gammas.append(now / start)
        w = average(weights(clients), ws)
        penalties = [mu / 2 * norm(w_k - w_t) ** 2 for w_k in ws]
        if train_loss:
            loss = train_loss(w)
            mu, falls = adapt_mu(mu, falls, before, loss)
            before = loss
        yield w, mu, gammas, penalties


def adapt_mu(mu, falls, before, loss):
    """μ + 0.1 when the training loss rises, μ − 0.1 when it fell five times running [fedprox μ]."""
    if loss > before:
        return mu + 0.1, 0
    falls = falls + 1 if loss < before else 0
    return (max(mu - 0.1, 0.0), 0) if falls == 5 else (mu, falls)


def dissimilarity(f, w, data):
    """B(w) = sqrt(E_k‖∇f_k‖² / ‖∇f‖²) and E_k‖∇f_k − ∇f‖², with p_k = n_k/n [fedprox B].
    data : the D_k of all clients; f_k(w) = f(w; D_k)."""
    n = np.array([len(D.y) for D in data])
    p = n / n.sum()
    gs = [f.grad(w, D) for D in data]
    g = average(p, gs)  # ∇f
    mean_square, variance = average(p, [np.array([norm(g_k), norm(g_k - g)]) ** 2 for g_k in gs])
    return sqrt(mean_square) / norm(g), variance


# ---- 5. Per-FedAvg: a start from which one gradient step fits each client ------------------------
# It minimises the mean over clients of f(w − α∇f(w)) [per-fedavg eq.2]: the loss after a step. By the
# chain rule, with w′ = w − α∇f(w), whose derivative is ∂w′/∂w = I − α∇²f(w), a symmetric matrix,
#     ∇[f(w′)] = (∂w′/∂w)ᵀ ∇f(w′) = (I − α∇²f(w)) u,  u = ∇f(w′)  [per-fedavg eq.3].
# A batch gives each of these with noise. On one batch the noise of the Hessian and that of u would go
# together, and a product of such estimates is off on average; so D, D′ and D″ are drawn one by one.


def meta_gradient(f, w, D, D1, D2, alpha):
    u = f.grad(w - alpha * f.grad(w, D), D1)  # ∇f(w − α∇f(w; D); D′)
    return u - alpha * f.hvp(w, u, D2)  # [per-fedavg eq.6]; with D = D′ = D″ [per-fedavg eq.3]


def meta_gradient_fo(f, w, D, D1, D2, alpha):
    return f.grad(w - alpha * f.grad(w, D), D1)  # [per-fedavg §3.3] u alone: D″ is not used


def meta_gradient_hf(f, w, D, D1, D2, alpha, delta=1e-3):
    u = f.grad(w - alpha * f.grad(w, D), D1)
    return u - alpha * difference(f, w, u, D2, delta)  # [per-fedavg eq.7]


def difference(f, w, u, D2, delta=1e-3):
    """d ≈ ∇²f(w; D″) u, by a central difference of gradients [per-fedavg eq.8]."""
    return (f.grad(w + delta * u, D2) - f.grad(w - delta * u, D2)) / (2 * delta)


def per_fedavg(f, w, rounds, alpha, beta, estimate=meta_gradient, weights=uniform_weights):
    """[per-fedavg alg.1] Yields w; a client tests `adapt(f, w, D, alpha)`, with a fresh D.
    estimate : of ∇F_i: `meta_gradient`, `meta_gradient_fo` or `meta_gradient_hf`."""
    for clients in rounds:
        ws = []
        for client in clients:
            w_k = w
            for batches in client.steps:  # D, D′, D″
                w_k = w_k - beta * estimate(f, w_k, *batches, alpha)  # [per-fedavg eq.5]
            ws.append(w_k)
        w = average(weights(clients), ws)
        yield w


def meta_gradient_steps(f, w, Ds, D1, D2s, alpha, hvp=Risk.hvp):
    """ν inner steps w_{j+1} = w_j − α∇f(w_j; D_j), then the factors I − α∇²f(w_j; D_j″), last j first.
    Ds = [D_0, ...], D2s = [D_0″, ...]. First order: no D2s; Hessian free: hvp=difference."""
    ws = [w]
    for D in Ds:
        ws.append(ws[-1] - alpha * f.grad(ws[-1], D))
    u = f.grad(ws.pop(), D1)
    for w_j, D2 in zip(ws[::-1], D2s[::-1]):
        u = u - alpha * hvp(f, w_j, u, D2)
    return u


# ---- 6. FedMeta: MAML and Meta-SGD ---------------------------------------------------------------


def maml(f, theta, S, Q, alpha, steps=1):  # ∇_θ f(θ_u; Q), θ_u = θ − α∇f(θ; S)  [fedmeta MAML]
    return gradient(lambda theta: f(adapt(f, theta, S, alpha, steps), Q), theta)


def fomaml(f, theta, S, Q, alpha, steps=1):  # ∇f(θ_u; Q): at θ_u, not through it  [fedmeta MAML]
    return f.grad(adapt(f, theta, S, alpha, steps), Q)


def meta_sgd(f, x, S, Q, steps=1):  # MAML's in both θ and α ∈ ℝᵈ, x = (θ, α)  [fedmeta Meta-SGD]
    return gradient(lambda x: f(adapt(f, x[0], S, x[1], steps), Q), x)


def fedmeta(f, x, rounds, beta, episode_gradient, adam=False, weights=uniform_weights):
    """Yields x, and Adam's m and v. x : what travels: θ (d,), or for Meta-SGD the rows θ and α (2, d).
    episode_gradient : `maml`, `fomaml` or `meta_sgd`, with its settings. adam : whether the server is Adam.
    As printed a client has one episode (S, Q) a round and sends its meta-gradient. With more episodes,
    mini-batches cut in two [apfl §4.1.3], it takes a step of size β after each, and sends the sum."""
    m = v = np.zeros_like(x)
    for t, clients in enumerate(rounds, 1):
        sent = []
        for client in clients:
            x_u = x
            total = np.zeros_like(x)
            for S, Q in client.steps:
                g = episode_gradient(f, x_u, S, Q)
                x_u = x_u - beta * g
                total = total + g
            sent.append(total)
        g = average(weights(clients), sent)
        if adam:  # Kingma and Ba 2015; its moments live as long as the run
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g**2
            g = m / (1 - 0.9**t) / (sqrt(v / (1 - 0.999**t)) + 1e-8)
        x = x - beta * g  # [fedmeta server]
        yield x, m, v


# ---- 7. FedMAML ----------------------------------------------------------------------------------


def fedmaml(f, theta, rounds, alpha, beta, steps=1):
    """Model-agnostic meta-learning (MAML), each client a task: § and letters of an unsigned tutorial.
    Yields the meta-model θ, and the candidate θ′: the mean of the θ*_k. steps : to adapt to θ*_k, ≥ 1."""
    for clients in rounds:
        draws = [client.draws for client in clients]
        gs, stars = [], []
        for client in clients:
            ((tr, val),) = client.steps  # D_tr and D_val
            gs.append(maml(f, theta, tr, val, alpha, steps))  # ∇_θ L_k(θ*_k; D_val)
            stars.append(adapt(f, theta, tr, alpha, steps))  # [fedmaml §4.2]
        theta = theta - beta * average(draws, gs)  # a sum and not a mean  [fedmaml §3.2]
        yield theta, average(uniform_weights(clients), stars)  # [fedmaml §4.3]


# ---- 8. FedCurv ----------------------------------------------------------------------------------


def fisher(f, w, D):
    """The diagonal empirical Fisher: the mean of the samples' squared gradients [fedcurv Fisher]."""
    return np.mean([f.grad(w, D.rows([j])) ** 2 for j in range(len(D.y))], axis=0)


def fedcurv(f, w, rounds, eta, lam, weights=sample_weights):
    """A penalty keeps client s near θ̂_j, where the others ended in the round before.
    Yields w and {s: (I_s, θ̂_s)}; only Σ I and Σ I ⊙ θ̂ travel: the penalty's gradient needs no more."""

    def penalty(others, theta):  # λ Σ_{j≠s} (θ − θ̂_j)ᵀ diag(I_j) (θ − θ̂_j)  [fedcurv penalty]
        return lam * sum((I * (theta - theta_j) ** 2).sum() for I, theta_j in others)

    previous = {}
    for clients in rounds:
        ends = {}
        for client in clients:
            theta = w
            others = [pair for j, pair in previous.items() if j != client.k]
            for (D,) in client.steps:
                theta = theta - eta * (f.grad(theta, D) + gradient(partial(penalty, others), theta))
            ends[client.k] = fisher(f, theta, client.data), theta
        previous = ends
        w = average(weights(clients), [theta for _, theta in ends.values()])
        yield w, ends


# ---- 9. APFL: w = w_S ⊙ m_k + w_k ----------------------------------------------------------------


def unit_of_parameter(shapes):
    """Number each parameter's output unit, through all layers; a bias has the units of its weight."""
    unit = []
    total = 0
    for *inside, out in shapes:
        total += out if inside else 0  # a weight opens a layer
        unit += [total - out + j % out for j in range(prod(inside) * out)]
    return np.array(unit)


def compose(unit, w_s, a, w_k):
    """w_S ⊙ m_k + w_k, where m_k = σ(a) has one value per output unit."""
    return w_s * sigmoid(a)[unit] + w_k  # [apfl eq.3]


def apfl(
    f, w_s, rounds, unit, eta, mu, lam, z, train_loss, delta_mu=1.0, delta_sigma=0.5, window=5,
    importance="gradient-square", continuous=False, weights=sample_weights,
):  # fmt: skip
    """[apfl alg.1] Before round z the clients train w_S alone; then w_S, w_k and the a of m_k = σ(a).
    Yields w_S, F, personal = {k: (a, w_k)}, whether the next round renews F, penalties.
    unit : the output unit of each parameter (d,). z : from 0. train_loss : (w_s, personal) → the loss over
    all clients; F is renewed when it has a plateau after a peak. delta_mu, delta_sigma, window : there the
    last `window` losses have a mean < δ_μ and a deviation < δ_σ. importance : a key of IMPORTANCE.
    continuous : start from w_k = (1 − σ(1)) w_S, so that the composite is w_S; printed is w_k = w_S."""

    def loss(D, w_s, *local):
        return f(compose(unit, w_s, *local) if local else w_s, D)

    def penalty(F, w_t, w_s):  # [apfl eq.4], with the μ/2 of [apfl eq.6]; w_t is the wᵗ_S received
        return mu / 2 * (F * (w_s - w_t) ** 2).sum()

    def objective(F, w_t, D, w_s, *local):  # [apfl eq.6]
        return loss(D, w_s, *local) + penalty(F, w_t, w_s)

    F = 0.0
    personal = {}
    losses = []
    renew = z <= 1
    for t, clients in enumerate(rounds):
        w_t = w_s
        ends, estimates = [], []
        for client in clients:
            if t >= z and client.k not in personal:  # [apfl alg.1 line 21]
                w_k = (1 - sigmoid(1)) * w_t if continuous else w_t
                personal[client.k] = np.ones(unit.max() + 1), w_k
            x = [w_t, *personal.get(client.k, [])]  # [w_S], and from round z on [w_S, a, w_k]
            path = 0.0
            for (D,) in client.steps:
                steps = [-eta * g for g in gradients(partial(objective, F, w_t, D), x)]
                path = path - gradients(partial(loss, D), x)[0] * steps[0]  # only SI asks for it
                x = [x_i + step for x_i, step in zip(x, steps)]
            ends.append(x[0])
            if t >= z:
                personal[client.k] = x[1], x[2]
            if renew:
                change = x[0] - w_t
                estimates.append(IMPORTANCE[importance](f, w_t, client.data, path, change))
        w_s = average(weights(clients), ends)
        penalties = [penalty(F, w_t, end) for end in ends]
        if renew:
            F = lam * F + average(weights(clients), estimates)  # [apfl eq.5]
        losses.append(train_loss(w_s, personal))
        # on a plateau after a peak [apfl §3.3], and in the rounds z − 1, z, z + 1 [apfl §4.1.3]
        renew = completes_plateau(losses, delta_mu, delta_sigma, window) or abs(t + 1 - z) <= 1
        yield w_s, F, dict(personal), renew, penalties


def gradients(f, xs):
    """Return ∇f in each of its arguments, with the others held constant."""
    return [gradient(lambda x: f(*xs[:i], x, *xs[i + 1 :]), xs[i]) for i in range(len(xs))]


def completes_plateau(losses, delta_mu, delta_sigma, window):
    """Return whether the last loss completes a plateau after a peak [apfl alg.1 lines 9–16]."""
    level = 0.0  # the mean and standard deviation of the last plateau, added
    peak = renew = False
    for t in range(window, len(losses) + 1):
        mean, std = np.mean(losses[t - window : t]), np.std(losses[t - window : t])
        renew = peak and mean < delta_mu and std < delta_sigma  # [apfl alg.1 line 10]
        if renew:
            level = mean + std
            peak = False
        elif mean > level:  # [apfl alg.1 line 14]
            peak = True
    return renew


def mas(f, w, D):
    """Memory aware synapses (MAS): the mean over samples of |∂‖z‖²/∂w| (Aljundi et al. 2018)."""
    rows = (D.rows([j]).X for j in range(len(D.y)))
    return np.mean([abs(gradient(lambda w: (f.scores(w, x) ** 2).sum(), w)) for x in rows], axis=0)


#: A client's estimate of F from w = wᵗ_S, all its data D, path = −Σ ∇L ⊙ Δw_S over its steps, and
#: change = the sum of those Δw_S. SI is synaptic intelligence: how far the loss fell on that path.
IMPORTANCE = {
    "gradient-square": lambda f, w, D, path, change: f.grad(w, D) ** 2,  # as [apfl eq.5] prints it
    "fisher": lambda f, w, D, path, change: fisher(f, w, D),  # as [apfl §4.1.3] says
    "mas": lambda f, w, D, path, change: mas(f, w, D),  # named in [apfl §3.3], as SI is
    "si": lambda f, w, D, path, change: np.maximum(path, 0) / (change**2 + 0.1),  # Zenke 2017
}

# ==== Part two: beyond the five papers ============================================================
# ---- 10. SCAFFOLD (Karimireddy et al. 2020) ------------------------------------------------------


def scaffold(f, x, rounds, eta, N, eta_g=1.0, option="II", weights=uniform_weights):
    """[scaffold alg.1] c and c_i correct each client's drift.
    Yields x, c and {i: c_i}; c stays the mean over all N, with c_i = 0 for clients not drawn yet.
    x : the parameters (d,).
    eta_g : η_g > 0, the server's step size.
    option : "II" takes the new c_i from the client's change, "I" from a gradient at x."""
    c = np.zeros_like(x)
    controls = {}
    for clients in rounds:
        dy, dc = [], []
        for client in clients:
            y = x
            c_i = controls.get(client.k, 0 * x)
            for (D,) in client.steps:
                y = y - eta * (f.grad(y, D) - c_i + c)
            mean_step = (x - y) / (len(client.steps) * eta)
            new = f.grad(x, client.data) if option == "I" else c_i - c + mean_step
            dy.append(y - x)
            dc.append(new - c_i)
            controls[client.k] = new
        x = x + eta_g * average(weights(clients), dy)
        c = c + sum(dc) / N  # |S|/N times the mean
        yield x, c, dict(controls)


# ---- 11. apfl-deng: the APFL of Deng, Kamani, Mahdavi 2020 ---------------------------------------


def apfl_deng(f, w, rounds, eta, alpha, adaptive=True, weights=uniform_weights):
    """[apfl-deng alg.1] α mixes a model of the client's own, v, with the shared w: v̄ = αv + (1 − α)w.
    Yields w and personal = {i: (v, α)}; a client tests with v̄.
    alpha : the first α, in [0, 1].
    adaptive : whether each client's α follows its gradient."""
    personal = {}
    for clients in rounds:
        ws = []
        for client in clients:
            w_i = w
            v, a = personal.get(client.k, (w, np.array(alpha)))
            for (D,) in client.steps:  # all gradients are at the point before the step
                g_v, g_a = gradients(lambda v, a: f(a * v + (1 - a) * w_i, D), (v, a))
                w_i = w_i - eta * f.grad(w_i, D)
                v = v - eta * g_v
                a = np.clip(a - eta * g_a, 0, 1) if adaptive else a
            ws.append(w_i)
            personal[client.k] = v, a
        w = average(weights(clients), ws)
        yield w, dict(personal)


# ---- 12. FedDyn (Acar et al. 2021) ---------------------------------------------------------------


def feddyn(f, theta, rounds, eta, alpha, N, weights=uniform_weights):
    """[feddyn alg.1] Yields θ, h and {k: h_k}; h stays the mean of all N clients' h_k.
    alpha : the weight of the penalty, not a step size; the paper's letter."""

    def objective(h_k, theta_t, D, theta):  # [feddyn objective]
        return f(theta, D) - h_k @ theta + alpha / 2 * ((theta - theta_t) ** 2).sum()

    h = np.zeros_like(theta)
    hs = {}
    for clients in rounds:
        theta_t = theta
        ends = []
        for client in clients:
            theta = theta_t
            h_k = hs.get(client.k, 0 * theta_t)
            for (D,) in client.steps:
                theta = theta - eta * gradient(partial(objective, h_k, theta_t, D), theta)
            ends.append(theta)
            hs[client.k] = h_k - alpha * (theta - theta_t)  # ∇L_k(θ) where θ is the minimum
        h = h - alpha / N * sum(end - theta_t for end in ends)
        theta = average(weights(clients), ends) - h / alpha
        yield theta, h, dict(hs)


# ---- 13. FedOpt (Reddi et al. 2021) and FedAvgM (Hsu et al. 2019) --------------------------------

SECOND_MOMENT = {
    "fedadagrad": lambda v, delta, beta2: v + delta**2,
    "fedyogi": lambda v, delta, beta2: v - (1 - beta2) * delta**2 * np.sign(v - delta**2),
    "fedadam": lambda v, delta, beta2: beta2 * v + (1 - beta2) * delta**2,
}


def fedopt(
    f, w, rounds, eta, second_moment, eta_s=0.1, beta1=0.9, beta2=0.99, tau=1e-3, bias_correction=False
):  # fmt: skip
    """[fedopt alg.2] FedAvg's change of w is the server's gradient.
    Yields w, m, v: m and v are the means of Δ and of its square.
    second_moment : the rule for v, a key of SECOND_MOMENT.
    eta_s : η > 0, the server's step size.
    beta1, beta2 : how slowly m and v forget, in [0, 1).
    tau : τ > 0: the larger, the less adaptive the steps.
    bias_correction : as in Kingma and Ba 2015, whose v starts at 0; the paper has none."""
    m = np.zeros_like(w)
    v = np.full_like(w, 0 if bias_correction else tau**2)
    for t, clients in enumerate(rounds, 1):
        delta = next(fedavg(f, w, [clients], eta)) - w
        m = beta1 * m + (1 - beta1) * delta
        v = SECOND_MOMENT[second_moment](v, delta, beta2)
        c1, c2 = (1 - beta1**t, 1 - beta2**t) if bias_correction else (1, 1)
        w = w + eta_s * m / c1 / (sqrt(v / c2) + tau)
        yield w, m, v


def fedavgm(f, w, rounds, eta, momentum=0.9, eta_s=1.0):
    """FedAvg with momentum on the server [fedopt fedavgm]; without, FedOpt's plain SGD. Yields w, v.
    momentum : β, how much of v is kept, in [0, 1).
    eta_s : the server's step size."""
    v = np.zeros_like(w)
    for clients in rounds:
        delta = next(fedavg(f, w, [clients], eta)) - w
        v = momentum * v + delta
        w = w + eta_s * v
        yield w, v


# ---- 14. FedNova (Wang et al. 2020) --------------------------------------------------------------


def fednova(f, w, rounds, eta, weights=sample_weights):
    """[fednova alg.1] Each client's change of w counts per step: d_k is its mean gradient. Yields w."""
    for clients in rounds:
        p = weights(clients)
        taus, d = [], []
        for client in clients:
            tau = len(client.steps)
            w_k = next(fedavg(f, w, [[client]], eta))
            taus.append(tau)
            d.append((w - w_k) / (eta * tau))
        w = w - average(p, taus) * eta * average(p, d)
        yield w


# ---- 15. pFedMe (Dinh et al. 2020) ---------------------------------------------------------------


def moreau_point(f, w, D, lam, alpha, steps):
    """Return θ̃ ≈ argmin_θ f(θ; D) + (λ/2)‖θ − w‖² [pfedme envelope], by gradient steps from w.
    The minimum as a function of w is f's Moreau envelope, a smoothed f; its gradient is λ(w − θ̃)."""
    theta = w
    for _ in range(steps):
        theta = theta - alpha * prox_gradient(f, theta, w, D, lam)
    return theta


def pfedme(f, w, rounds, eta, lam, alpha, steps=5, mixing=1.0, weights=uniform_weights):
    """[pfedme alg.1] Each client descends its Moreau envelope.
    Yields w; a client tests θ̃(w), solved on a fresh D.
    lam : λ > 0, the weight of ‖θ − w‖²/2.
    alpha : the step size of the solver for θ̃.
    steps : how many steps the solver takes, ≥ 1.
    mixing : β of the paper; 1 is the server's plain mean."""
    for clients in rounds:
        ws = []
        for client in clients:
            w_i = w
            for (D,) in client.steps:
                w_i = w_i - eta * lam * (w_i - moreau_point(f, w_i, D, lam, alpha, steps))
            ws.append(w_i)
        w = (1 - mixing) * w + mixing * average(weights(clients), ws)
        yield w


# ==== Part three: models, tests, and a toy ========================================================
# ---- 16. Six models: scores z(w; X) and losses ℓ(z, y), of real or complex w ---------------------


def unpack(w, *shapes):
    """Split w into arrays of these shapes, in their order; the last item is the rest of w."""
    *pieces, rest = np.split(w, np.cumsum([prod(shape) for shape in shapes]))
    return [*(piece.reshape(shape) for piece, shape in zip(pieces, shapes)), rest]


def elu(z):
    return z * (z.real >= 0) + exp(z * (z.real < 0)) - 1


def relu(z):
    return z * (z.real > 0)


def sigmoid(z):
    return 1 / (1 + exp(-z))


def first_max(z):
    """Return the maximum along the first axis. Of equal maxima only the first has a slope."""
    return z[z.real.argmax(0), *np.indices(z.shape[1:])]


def one_score(w, X, bias=True):
    """z = wᵀx + b: binary logistic regression [fedmaml §4.2] and the linear SVM."""
    return X @ w[: X.shape[1]] + (w[-1] if bias else 0)


def linear(w, X, classes):
    """Z = XW + b: multinomial logistic regression."""
    W, b, _ = unpack(w, (X.shape[1], classes), (classes,))
    return X @ W + b


def mlp(w, X, widths, phi=elu):
    """Layers XW + b with φ between them; widths = (features, ..., classes) [per-fedavg §3.2]."""
    for n, m in pairwise(widths):
        W, b, w = unpack(w, (n, m), (m,))
        X = X @ W + b
        X = phi(X) if len(w) else X  # nothing is left of w after the last layer
    return X


def cnn(w, X, image, channels, kernel, hidden, classes, phi=relu, pool=first_max):
    """Convolution without padding, φ, 2×2 pool, a few times; then two dense layers [apfl §4.1.1]."""
    H, W, c = image
    a = X.reshape(len(X), H, W, c)
    for out in channels:
        K, b, w = unpack(w, (kernel, kernel, c, out), (out,))
        H, W, c = (H - kernel + 1) // 2, (W - kernel + 1) // 2, out  # after the pool
        taps = np.ndindex(kernel, kernel)
        a = phi(sum(a[:, i : i + 2 * H, j : j + 2 * W] @ K[i, j] for i, j in taps) + b)
        a = pool(np.stack([a[:, i::2, j::2] for i, j in np.ndindex(2, 2)]))
    return mlp(w, a.reshape(len(X), H * W * c), (H * W * c, hidden, classes), phi)


def lstm(w, X, vocabulary, embedding, hidden, classes, mean=False):
    """Embedding, LSTM layers, a dense layer on the last output or on the mean [fedmeta §experiments].
    X holds codes; the code `vocabulary` is padding: a step that leaves c and h as they are."""
    E, w = unpack(w, (vocabulary, embedding))
    real = (vocabulary > X).T[:, :, None]  # T times (B, 1): this step is no padding
    steps = [E[codes] for codes in np.minimum(X, vocabulary - 1).T]  # T times (B, embedding)
    for n, H in pairwise((embedding, *hidden)):
        W, b, w = unpack(w, (n + H, 4 * H), (4 * H,))
        h = c = np.zeros((len(X), H))
        for t, x in enumerate(steps):
            i, f, g, o = np.split(np.concatenate([x, h], 1) @ W + b, 4, axis=1)
            c_t = sigmoid(f) * c + sigmoid(i) * tanh(g)
            h_t = sigmoid(o) * tanh(c_t)
            c, h = np.where(real[t], c_t, c), np.where(real[t], h_t, h)
            steps[t] = h
    if mean:
        h = sum(h_t * real_t for h_t, real_t in zip(steps, real)) / np.maximum(real.sum(0), 1)
    return linear(w, h, classes)


def cross_entropy(z, y):
    """−log softmax(z)_y."""
    rows = np.arange(len(y))
    z = z - z[rows, z.real.argmax(-1)][:, None]  # now none is above 0: exp does not overflow
    return log(exp(z).sum(-1)) - z[rows, y]


def logistic_loss(z, y):
    """−log σ(z) where y = 1, −log σ(−z) where y = 0."""
    return cross_entropy(np.stack([0 * z, z], -1), y)


def hinge(z, y, power=1):
    """max(0, 1 − yz) or its square, y = ±1; the slope at the kink is 0."""
    return relu(1 - y * z) ** power


# ---- 17. Tests of a model, and a toy federation --------------------------------------------------


def evaluate(f, w, D):
    """Return the mean loss without L2, and the accuracy."""
    return f._replace(l2=0.0)(w, D), np.mean(f.predict(w, D.X) == D.y)


def evaluate_unseen(f, personalise, D, support, seed, k):
    """Test a new client: w = personalise(S) of some rows, on the other rows [fedmeta §experiments]."""
    S, Q = split_episode(stream(seed, "unseen", k).permutation(len(D.y)), support)
    return evaluate(f, personalise(D.rows(S)), D.rows(Q))


N, ROUNDS, B = 8, 6, 4  # clients, rounds, rows of a batch
SEED, SUPPORT = 1, 0.8
ETA, ALPHA, BETA, LAM = 0.3, 0.2, 0.3, 2.0


def make_toy():
    """Return f, and each client's training and test rows; each client has its own linear labelling."""
    rng = np.random.default_rng(0)
    data = []
    for n in rng.integers(20, 38, N):
        X = rng.normal(size=(n, 3))
        data.append(Batch(X, (X @ rng.normal(size=(3, 3))).argmax(-1)))

    f = Risk(lambda w, X: linear(w, X, 3), cross_entropy, range(3))
    return f, [D.rows(slice(8, None)) for D in data], [D.rows(slice(8)) for D in data]


def toy_rounds(train, roles, K=5, epochs=2):
    """Draw the rounds: K clients each, two of five straggle; roles : the batches of a local step."""
    n = np.array([len(D.y) for D in train])
    for t in range(ROUNDS):
        clients = []
        ks, _ = draw_cohort(SEED, t, n, K)
        for k, straggles, E in zip(ks, *draw_stragglers(SEED, t, K, 0.4, epochs)):
            if "S" in roles:
                steps = [split_episode(stream(SEED, "S", t, k).permutation(n[k]), SUPPORT)]
            else:
                steps = zip(*(draw_batches(stream(SEED, role, t, k), n[k], B, E) for role in roles))
            steps = [tuple(train[k].rows(rows) for rows in batches) for batches in steps]
            clients.append(Client(k, train[k], steps, ceil(n[k] / B), straggler=straggles))
        yield clients


def last(states):
    return list(states)[-1]


def run_toy():
    """Run every algorithm: {its name: (test loss, accuracy) after the last round}."""
    f, train, tests = make_toy()
    w = np.zeros(12)
    unit = unit_of_parameter([(3, 3), (3,)])
    n = [len(D.y) for D in train]
    everyone = list(toy_rounds(train, ["D"]))
    D = list(drop_stragglers(everyone))
    DDD = list(drop_stragglers(toy_rounds(train, ["D", "D1", "D2"])))
    SQ = list(drop_stragglers(toy_rounds(train, ["S", "Q"])))
    pool = Batch(*map(np.concatenate, zip(*train))).rows(stream(SEED, "pool").permutation(sum(n)))

    def models(w_s, personal):
        return [compose(unit, w_s, *personal[k]) if k in personal else w_s for k in range(N)]

    def train_loss(w_s, personal):
        return np.average([f(w_k, D) for w_k, D in zip(models(w_s, personal), train)], weights=n)

    keep = partial(adapt, f, alpha=0)
    update = partial(adapt, f, alpha=ALPHA)
    averaged = last(fedavg(f, w, D, ETA))
    theta, alpha = last(fedmeta(f, np.stack([w, 0 * w + ALPHA]), SQ, BETA, meta_sgd))[0]
    w_s, _, personal, *_ = last(apfl(f, w, D, unit, ETA, 1.0, 1.0, 2, train_loss))
    shared, mixed = last(apfl_deng(f, w, D, ETA, ALPHA))
    mixtures = [a * v + (1 - a) * shared for v, a in (mixed.get(k, (shared, 0)) for k in range(N))]
    moreau = last(pfedme(f, w, D, ETA, LAM, ALPHA, mixing=BETA))
    runs = {  # name: (w, or a w for each client; how a client adapts it; the role it adapts on)
        "fedavg": (averaged, keep, "D"),
        "fedavg-update": (averaged, update, "D"),
        "fedavg-meta": (averaged, update, "S"),
        "fedprox": (last(fedprox(f, w, everyone, ETA, mu=1.0))[0], keep, "D"),
        "per-fedavg": (last(per_fedavg(f, w, DDD, ALPHA, BETA)), update, "D"),
        "per-fedavg-fo": (last(per_fedavg(f, w, DDD, ALPHA, BETA, meta_gradient_fo)), update, "D"),
        "per-fedavg-hf": (last(per_fedavg(f, w, DDD, ALPHA, BETA, meta_gradient_hf)), update, "D"),
        "fedmeta-maml": (last(fedmeta(f, w, SQ, BETA, partial(maml, alpha=ALPHA)))[0], update, "S"),
        "fedmeta-fomaml": (last(fedmeta(f, w, SQ, BETA, partial(fomaml, alpha=ALPHA)))[0], update, "S"),
        "fedmeta-sgd": (theta, partial(adapt, f, alpha=alpha), "S"),
        "fedmaml": (last(fedmaml(f, w, SQ, ALPHA, BETA))[0], update, "S"),
        "fedcurv": (last(fedcurv(f, w, D, ETA, lam=1.0))[0], keep, "D"),
        "apfl": (models(w_s, personal), keep, "D"),
        "centralised": (last(fedavg(f, w, toy_rounds([pool], ["D"], 1, 1), ETA)), keep, "D"),
        "scaffold": (last(scaffold(f, w, D, ETA, N))[0], keep, "D"),
        "apfl-deng": (mixtures, keep, "D"),
        "feddyn": (last(feddyn(f, w, D, ETA, ALPHA, N))[0], keep, "D"),
        "fedadagrad": (last(fedopt(f, w, D, ETA, "fedadagrad", beta1=0.0))[0], keep, "D"),
        "fedyogi": (last(fedopt(f, w, D, ETA, "fedyogi"))[0], keep, "D"),
        "fedadam": (last(fedopt(f, w, D, ETA, "fedadam"))[0], keep, "D"),
        "fedavgm": (last(fedavgm(f, w, D, ETA))[0], keep, "D"),
        "fednova": (last(fednova(f, w, everyone, ETA)), keep, "D"),
        "pfedme": (moreau, lambda w, D: moreau_point(f, w, D, LAM, ALPHA, 5), "D"),
    }  # fmt: skip
    table = {}
    for name, (w, personalise, role) in runs.items():
        tested = []
        for k, w_k in enumerate(w if isinstance(w, list) else N * [w]):
            order = stream(SEED, "adapt", ROUNDS, k).permutation(n[k])
            rows = order[:B] if role == "D" else split_episode(order, SUPPORT)[0]
            tested.append(evaluate(f, personalise(w_k, train[k].rows(rows)), tests[k]))
        table[name] = tuple(np.mean(tested, axis=0))  # all clients have as many test rows
    return table


# ---- 18. Dual numbers, with which `gradient` differentiates: a reader may skip them --------------


class Dual(NDArrayOperatorsMixin):
    """a + bε, where ε² = 0, so that f(a + bε) = f(a) + f′(a) b ε, for real and for complex a.
    a : an array of any shape; slope : b, (*a.shape, n), along n directions; None : not to be used.
    seed : the call of `gradient` that chose them. What is not in `rules` raises TypeError."""

    rules: Any  # RULES, below; a subclass may have more
    gradient: Any  # `gradient_of_dual`

    def __init__(self, a, slope, seed):
        self.a, self.slope, self.seed = a, slope, seed

    def like(self, a, slope):
        return type(self)(a, slope, self.seed)

    shape = property(lambda x: np.shape(x.a))
    ndim = property(lambda x: np.ndim(x.a))
    size = property(lambda x: np.size(x.a))
    dtype = property(lambda x: x.a.dtype)
    real = property(lambda x: x.like(x.a.real, None))
    T = property(lambda x: np.transpose(x))

    @property
    def b(self):
        if self.slope is None:
            raise TypeError("the real part of a dual number serves comparisons alone: omit .real")
        return self.slope

    def __len__(self):
        return len(self.a)

    def __iter__(self):
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, i):
        index = i if isinstance(i, tuple) else (i,)
        rest = (slice(None),) * any(one is Ellipsis for one in index)
        return self.like(self.a[i], self.b[(*index, *rest)])

    def __getattr__(self, name):  # z.sum(0) is np.sum(z, 0)
        if name.startswith("_") or getattr(np, name, None) not in self.rules:
            raise AttributeError(self.no_rule(f".{name}"))
        return partial(self.rules[getattr(np, name)], self)

    def refuse(self, *_, **__):
        raise TypeError(
            "a number whose gradient is taken is no float, and no entry of an array: write np.exp for "
            "math.exp, np.stack for np.array and for assignments"
        )

    __array__ = __float__ = __int__ = __complex__ = __bool__ = refuse

    def __array_ufunc__(self, f, method, *xs, **options):
        if "out" in options:
            raise TypeError(
                "in a gradient numbers do not change in place: write z = z + x for z += x"
            )
        if f not in self.rules or method != "__call__" or options:
            name = f.__name__ if method == "__call__" else f"{f.__name__}.{method}"
            raise TypeError(self.no_rule(f"np.{name}"))
        return self.rules[f](*xs)

    def __array_function__(self, f, types, xs, options):
        if f not in self.rules:
            raise TypeError(self.no_rule(f"np.{f.__name__}"))
        return self.rules[f](*xs, **options)

    def no_rule(self, name):
        known = ", ".join(sorted({f.__name__ for f in self.rules}))
        return f"a gradient has no rule for {name}; it has some for {known}"


def value(x):
    return x.a if isinstance(x, Dual) else x


def dual(y, xs, slope):
    """Return y with the slope Σ_j slope(j, x_j) over the dual numbers x_j among xs."""
    js = [j for j, x in enumerate(xs) if isinstance(x, Dual)]
    if len({xs[j].seed for j in js}) > 1:
        raise TypeError(
            "the function of a gradient uses the variable of another gradient around it"
        )
    b = reduce(np.add, [slope(j, xs[j]) for j in js])
    shape = *y.shape, b.shape[-1]
    return xs[js[0]].like(y, b if b.shape == shape else np.broadcast_to(b, shape))


#: What differentiates in the place of dual numbers: fedref/judge/tape.py, in runs, at any x.size.
REVERSE: Any = ContextVar("reverse", default=None)


def other_way(x, kind):
    return x.gradient if isinstance(x, Dual) else None if kind else REVERSE.get()


def gradient_of_dual(f, x):
    """∇f(a + bε) = ∇f(a) + ∇²f(a) b ε: a gradient inside the function of another."""
    if np.iscomplexobj(x.a):
        raise TypeError("a third derivative: the gradient of a gradient takes real numbers alone")
    steps = 1e-200j * np.eye(x.size).reshape(x.size, *x.shape)
    H = [np.imag(gradient(f, x.a + step, type(x))).ravel() / 1e-200 for step in steps]  # its rows
    return x.like(gradient(f, x.a, type(x)), (H @ x.b.reshape(x.size, -1)).reshape(x.b.shape))


def elementwise_rule(f, slopes):
    """Return the rule of y = f(u, ...), whose slope is the sum over u, ... of ∂y/∂u times u's slope."""

    def rule(*xs):
        us = [value(x) for x in xs]
        y = f(*us)
        each = [np.asarray(x)[..., None] for x in (y, *us)]
        return dual(y, xs, lambda j, x: slopes[j](*each) * x.b)

    return rule


def compare(f, *xs):
    return f(*(np.real(value(x)) for x in xs))


def product(u, v):
    a, b = value(u), value(v)
    if np.ndim(b) > 2:
        raise TypeError("a gradient has no rule for @ with more than a matrix on its right")

    def slope(j, x):
        if not j:
            return b.T @ x.b
        return (a @ x.b.reshape(len(x), -1)).reshape(*np.shape(a)[:-1], *x.b.shape[1:])

    return dual(a @ b, (u, v), slope)


def add_up(x, axis=None, keepdims=False):
    axes = tuple(range(x.ndim)) if axis is None else tuple(np.atleast_1d(axis) % x.ndim)
    return x.like(np.sum(x.a, axes, keepdims=keepdims), x.b.sum(axes, keepdims=keepdims))


def reshape(x, *shape):
    a = x.a.reshape(*shape)
    return x.like(a, x.b.reshape(*a.shape, x.b.shape[-1]))


def transpose(x, *axes):
    axes = np.reshape(axes, -1).astype(int) if axes else np.arange(x.ndim)[::-1]
    return x.like(x.a.transpose(*axes), x.b.transpose(*axes, x.ndim))


def split(x, at, axis=0):
    pairs = zip(np.split(x.a, at, axis), np.split(x.b, at, axis % x.ndim))
    return [x.like(a, b) for a, b in pairs]


def join(f, xs, axis=0):
    """Return np.stack or np.concatenate of xs, which may hold arrays too."""
    a = f([value(x) for x in xs], axis)

    def slope(j, x):  # 0 in the place of the others
        bs = [np.zeros((*np.shape(value(other)), x.b.shape[-1])) for other in xs]
        return f([*bs[:j], x.b, *bs[j + 1 :]], axis % a.ndim)

    return dual(a, xs, slope)


#: y = f(u), f(u, v) or f(u, v, w) → ∂y/∂u, ..., entry by entry.
SLOPES: Any = {
    np.negative: [lambda y, u: -1],
    np.exp: [lambda y, u: y],
    np.log: [lambda y, u: 1 / u],
    np.sqrt: [lambda y, u: 0.5 / y],
    np.tanh: [lambda y, u: 1 - y * y],
    np.add: [lambda y, u, v: 1, lambda y, u, v: 1],
    np.subtract: [lambda y, u, v: 1, lambda y, u, v: -1],
    np.multiply: [lambda y, u, v: v, lambda y, u, v: u],
    np.true_divide: [lambda y, u, v: 1 / v, lambda y, u, v: -y / v],
    np.power: [lambda y, u, v: v * u ** (v - (v != 0)), lambda y, u, v: y * log(u)],
    np.where: [Dual.refuse, lambda y, u, v, w: u, lambda y, u, v, w: ~u],
}
RULES: Any = {
    **{f: partial(compare, f) for f in (np.less, np.less_equal, np.greater, np.greater_equal)},
    **{f: elementwise_rule(f, slopes) for f, slopes in SLOPES.items()},
    np.matmul: product, np.sum: add_up, np.reshape: reshape, np.transpose: transpose, np.split: split,
    np.stack: partial(join, np.stack), np.concatenate: partial(join, np.concatenate),
    np.argmax: lambda x, axis=None: x.a.real.argmax(axis), np.ndim: lambda x: x.ndim,
}  # fmt: skip
Dual.rules = RULES
Dual.gradient = staticmethod(gradient_of_dual)


if __name__ == "__main__":
    print("algorithm        test loss   accuracy")
    for name, (loss, accuracy) in run_toy().items():
        print(f"{name:16} {loss:9.6f} {accuracy:10.1%}")
