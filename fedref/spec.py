"""The papers in one file: five papers on federated learning, each as the box that it prints.

Read it from top to bottom; it needs NumPy and nothing else. First come a gradient, the losses of six
models, and who takes part in a round. Every algorithm is a generator: it takes the initial parameters
and the rounds, and yields what there is after each round. There is no speed here, and no option that
no paper has. `python -m fedref.spec` runs all of them on a toy. (Long because it is five papers.)

It is the specification: `fedref check` proves that everything else in fedref (gradients by hand,
stacked clients, evaluation) computes the same numbers to 1e-12, in rounds in which clients straggle,
are drawn twice, or miss a round. A tag such as [apfl eq.5] is that equation of that paper:

    per-fedavg  Fallah, Mokhtari, Ozdaglar 2020     fedmeta  Chen, Luo, Dong, Li, He 2018
    fedprox     Li, Sahu, Zaheer et al. 2020        fedmaml  MAML over clients, logistic regression
    apfl        Ni, Shen, Zhang 2022, which also states FedAvg (McMahan et al. 2017) and
                FedCurv (Shoham et al. 2019). It is not the APFL of Deng et al. 2020.

Where a paper is silent or contradicts itself, fedref/algorithms says what was decided, and why.

    symbol          name             what it is
    w, θ, w_S       w, theta, w_s    parameters: one flat vector (d,)
    D, D′, D″       D, D1, D2        batches: rows X (B, p) with labels y (B,); S, Q: support and query
    f(w; D)         f(w, D)          the mean loss on D
    ∇f(w; D)        f.grad(w, D)     by the complex step of the loss: nothing is derived by hand
    ∇²f(w; D) v     f.hvp(w, v, D)   by the complex step of a gradient
    η, α, β, μ, λ   eta, alpha, ...  step sizes, and weights of penalties
"""

from functools import partial
from hashlib import sha256
from itertools import pairwise
from math import ceil, floor, nan, prod
from typing import Any, NamedTuple

import numpy as np
from numpy import exp, log, sqrt, tanh
from numpy.linalg import norm
from numpy.random import default_rng

# ---- 1. A function and its derivatives -----------------------------------------------------------


def gradient(f, x):
    """∇f(x) by the complex step, Im f(x + ih e_j) / h, one coordinate after the other. Nothing is
    subtracted, so that h can be 1e-30 and the result is exact to rounding."""
    g = np.zeros(x.shape)
    for j in np.ndindex(x.shape):
        step = np.zeros(x.shape, complex)
        step[j] = 1e-30j
        g[j] = np.imag(f(x + step)) / 1e-30
    return g


class Batch(NamedTuple):
    X: Any
    y: Any

    def rows(self, index):
        return Batch(self.X[index], self.y[index])


class Risk(NamedTuple):
    """f(w; D): the mean of ℓ(z(w; x), y) over the rows of D (0 if there are none), plus (l2/2)‖w‖².

    scores : z(w, X), a row of scores for each row of X. loss : ℓ(z, y) of each row. slope : ∇f(w; D)
    by hand, which takes complex w. labels : those of the scores; of one score, z ≤ 0 and z > 0.
    """

    scores: Any
    loss: Any
    slope: Any
    labels: Any
    l2: float = 0.0

    def __call__(self, w, D):
        return self.loss(self.scores(w, D.X), D.y).sum() / max(len(D.y), 1) + self.l2 / 2 * (w @ w)

    def grad(self, w, D):
        return gradient(lambda w: self(w, D), w)

    def hvp(self, w, v, D):
        return np.imag(self.slope(w + 1e-30j * v, D)) / 1e-30

    def predict(self, w, X):
        z = self.scores(w, X)
        return np.take(self.labels, z.argmax(-1) if z.ndim > 1 else 1 * (z > 0))


# ---- 2. Six models: scores z(w; X) and losses ℓ(z, y), of real or complex w ----------------------


def cut(w, *shapes):
    """Arrays of these shapes, one after the other in w; last, what is left of w."""
    *pieces, rest = np.split(w, np.cumsum([prod(shape) for shape in shapes]))
    return [*(piece.reshape(shape) for piece, shape in zip(pieces, shapes)), rest]


def elu(z):
    return z * (z.real > 0) + exp(z * (z.real <= 0)) - 1


def relu(z):
    return z * (z.real > 0)


def sigmoid(z):
    return 1 / (1 + exp(-z))


def first_max(z):
    """The maximum along the first axis; of equals, the first."""
    return np.take_along_axis(z, z.real.argmax(0)[None], 0)[0]


def one_score(w, X, bias=True):
    """z = wᵀx + b: binary logistic regression [fedmaml §4.2] and the linear SVM."""
    return X @ w[: X.shape[1]] + (w[-1] if bias else 0)


def linear(w, X, classes):
    """Z = XW + b: multinomial logistic regression."""
    W, b, _ = cut(w, (X.shape[1], classes), (classes,))
    return X @ W + b


def mlp(w, X, widths, phi=elu):
    """Layers XW + b with φ between them; widths = (features, ..., classes) [per-fedavg §3.2]."""
    for n, m in pairwise(widths):
        W, b, w = cut(w, (n, m), (m,))
        X = X @ W + b
        X = phi(X) if w.size else X
    return X


def cnn(w, X, image, channels, kernel, hidden, classes, phi=relu, pool=first_max):
    """Convolution without padding, φ, 2×2 pool, a few times; then two dense layers [apfl §4.1.1]."""
    H, W, c = image
    a = X.reshape(len(X), H, W, c)
    for out in channels:
        K, b, w = cut(w, (kernel, kernel, c, out), (out,))
        H, W, c = (H - kernel + 1) // 2, (W - kernel + 1) // 2, out
        taps = np.ndindex(kernel, kernel)
        a = phi(sum(a[:, i : i + 2 * H, j : j + 2 * W] @ K[i, j] for i, j in taps) + b)
        a = pool(np.stack([a[:, i::2, j::2] for i, j in np.ndindex(2, 2)]))
    return mlp(w, a.reshape(len(X), H * W * c), (H * W * c, hidden, classes), phi)


def lstm(w, X, vocabulary, embedding, hidden, classes, mean=False):
    """Embedding, LSTM layers, a dense layer on the last output or on the mean [fedmeta §experiments].
    X holds codes; the code `vocabulary` is padding, a step that is not taken."""
    E, w = cut(w, (vocabulary, embedding))
    taken = (vocabulary > X).T[:, :, None]
    steps = [E[codes] for codes in np.minimum(X, vocabulary - 1).T]  # T times (B, embedding)
    for n, H in pairwise((embedding, *hidden)):
        W, b, w = cut(w, (n + H, 4 * H), (4 * H,))
        h = c = np.zeros((len(X), H))
        for t, x in enumerate(steps):
            i, f, g, o = np.split(np.concatenate([x, h], 1) @ W + b, 4, axis=1)
            c_t = sigmoid(f) * c + sigmoid(i) * tanh(g)
            h_t = sigmoid(o) * tanh(c_t)
            c, h = np.where(taken[t], c_t, c), np.where(taken[t], h_t, h)
            steps[t] = h
    if mean:
        h = sum(h_t * real for h_t, real in zip(steps, taken)) / np.maximum(taken.sum(0), 1)
    return linear(w, h, classes)


def cross_entropy(z, y):
    """−log softmax(z)_y."""
    z = z - z.real.max(-1, keepdims=True)
    return log(exp(z).sum(-1)) - z[np.arange(len(y)), y]


def logistic_loss(z, y):
    """−log σ(z) where y = 1, −log σ(−z) where y = 0."""
    return cross_entropy(np.stack([0 * z, z], -1), y)


def hinge(z, y, power=1):
    """max(0, 1 − yz) or its square, y = ±1; the slope at the kink is 0."""
    return relu(1 - y * z) ** power


# ---- 3. Who takes part in a round, and with which rows -------------------------------------------


class Client(NamedTuple):
    """One client in one round; a round is a list of them."""

    k: int
    data: Batch  # all its training rows
    steps: list[Any]  # the batches of each local step: (D,), (D, D′, D″) or (S, Q)
    epoch: int = 1  # steps in a local epoch
    drawn: int = 1  # how often it was drawn, where clients are drawn with replacement
    straggler: bool = False


def stream(seed, purpose, *key):
    """Random numbers of one purpose, of no influence on others; key : (round, client)."""
    return default_rng([seed, int.from_bytes(sha256(purpose.encode()).digest()[:4]), *key])


def draw_cohort(seed, t, n, K, by_samples=False):
    """Who takes part in round t, and how often: K of N; or K draws with p_k = n_k/Σn [fedprox alg.2]."""
    p = n / n.sum() if by_samples else None
    drawn = stream(seed, "cohort", t).choice(len(n), K, by_samples, p)
    return np.unique(drawn, return_counts=True)


def draw_stragglers(seed, t, K, share, E):
    """Which of K clients straggle, and what each does: E epochs (or steps), a straggler 1 to E."""
    rng, late = stream(seed, "stragglers", t), np.zeros(K, bool)
    late[rng.choice(K, floor(share * K + 0.5), replace=False)] = True
    return late, np.where(late, rng.integers(1, E + 1, K), E)


def draw_batches(rng, n, B, epochs=0, steps=0):
    """Rows of each mini-batch: of epochs, permutations cut into pieces; or of steps, B rows each."""
    orders = rng.permuted(np.tile(np.arange(n), (epochs or steps, 1)), axis=1)
    if steps:  # where n > 64 B, fedref draws these B by `choice`: as likely, and in less memory
        return [order[:B] for order in orders]
    return [order[i : i + B] for order in orders for i in range(0, n, B)]


def cut_episode(order, support):
    """Support and query: all rows, disjoint, and one at least in each where there are two."""
    first = min(max(round(support * len(order)), 1), len(order) - 1)
    return order[:first], order[first:]


def on_time(rounds):
    """The rounds without their stragglers: FedAvg drops them, FedProx does not [fedprox alg.2]."""
    return ([client for client in clients if not client.straggler] for clients in rounds)


def by_samples(clients):
    """p_k = n_k/Σn_k over those that took part [apfl eq.1]."""
    n = np.array([client.drawn * len(client.data.y) for client in clients])
    return n / n.sum()


def uniform(clients):
    """p_k = 1/K [per-fedavg alg.1]; a client that was drawn twice counts twice [fedprox alg.2]."""
    drawn = np.array([client.drawn for client in clients])
    return drawn / drawn.sum()


def average(p, xs):
    """Σ_k p_k x_k."""
    return sum(p_k * x for p_k, x in zip(p, xs))


# ---- 4. FedAvg, and what comes from it -----------------------------------------------------------


def fedavg(f, w, rounds, eta, weights=by_samples):
    """Each client takes steps of SGD from the server's w; the server averages. Yields w.
    The IID baseline [apfl §4.1.1] is the same of one client that holds all rows."""
    for clients in rounds:
        ws = []
        for client in clients:
            w_k = w
            for (D,) in client.steps:
                w_k = w_k - eta * f.grad(w_k, D)  # [apfl eq.2]
            ws.append(w_k)
        w = average(weights(clients), ws)  # [apfl eq.1]
        yield w


def adapt(f, w, D, alpha, steps=1):
    """Gradient steps of size α before a test: of FedAvg with update and Per-FedAvg [per-fedavg §5] on
    fresh training rows; of FedAvg(Meta), MAML, Meta-SGD [fedmeta] and FedMAML on the support set."""
    for _ in range(steps):
        w = w - alpha * f.grad(w, D)
    return w


# ---- 5. FedProx ----------------------------------------------------------------------------------


def fedprox(f, w, rounds, eta, mu, gamma=0.0, train_loss=None, weights=by_samples):
    """Each client descends h_k(w; wᵗ) = F_k(w) + (μ/2)‖w − wᵗ‖²; the server averages.

    gamma : a client stops after the local epoch that made it γ-inexact. train_loss : of w over all
    clients; μ then adapts to it. Yields w, μ, and of each client γ and the penalty.
    """

    def slope(w, D):  # ∇h_k(w; wᵗ)  [fedprox alg.2]
        return gradient(lambda w: f(w, D) + mu / 2 * ((w - w_t) ** 2).sum(), w)

    falls, before = 0, nan
    for clients in rounds:
        w_t, ws, gammas = w, [], []
        for client in clients:
            start, w_k = norm(slope(w_t, client.data)), w_t
            for step, (D,) in enumerate(client.steps, 1):
                w_k = w_k - eta * slope(w_k, D)
                if step % client.epoch == 0 and norm(slope(w_k, client.data)) <= gamma * start:
                    break
            ws.append(w_k)
            gammas.append(norm(slope(w_k, client.data)) / start)  # [fedprox γ]
        w = average(weights(clients), ws)
        penalties = [mu / 2 * norm(w_k - w_t) ** 2 for w_k in ws]
        if train_loss:
            now = train_loss(w)
            mu, falls = adapt_mu(mu, falls, before, now)
            before = now
        yield w, mu, gammas, penalties


def adapt_mu(mu, falls, before, now):
    """μ + 0.1 when the training loss rises, μ − 0.1 when it fell five times running [fedprox μ]."""
    if now > before:
        return mu + 0.1, 0
    falls = falls + 1 if now < before else 0
    return (max(mu - 0.1, 0.0), 0) if falls == 5 else (mu, falls)


def dissimilarity(f, w, clients):
    """B(w) = sqrt(E_k‖∇F_k‖² / ‖∇f‖²) and E_k‖∇F_k − ∇f‖², with p_k = n_k/n [fedprox B]."""
    n = np.array([len(D.y) for D in clients])
    p, gs = n / n.sum(), [f.grad(w, D) for D in clients]
    mean_square, variance = p @ [[norm(g) ** 2, norm(g - average(p, gs)) ** 2] for g in gs]
    return sqrt(mean_square) / norm(average(p, gs)), variance


# ---- 6. Per-FedAvg: F_i(w) = f_i(w − α∇f_i(w)) [per-fedavg eq.2] ---------------------------------


def exact(f, w, D, D1, D2, alpha):
    u = f.grad(w - alpha * f.grad(w, D), D1)  # ∇f(w − α∇f(w; D); D′)
    return u - alpha * f.hvp(w, u, D2)  # [per-fedavg eq.6]; with D = D′ = D″ [per-fedavg eq.3]


def first_order(f, w, D, D1, _, alpha):
    return f.grad(w - alpha * f.grad(w, D), D1)  # [per-fedavg §3.3]


def hessian_free(f, w, D, D1, D2, alpha, delta=1e-3):
    u = f.grad(w - alpha * f.grad(w, D), D1)
    d = (f.grad(w + delta * u, D2) - f.grad(w - delta * u, D2)) / (2 * delta)  # [per-fedavg eq.8]
    return u - alpha * d  # [per-fedavg eq.7]


def per_fedavg(f, w, rounds, alpha, beta, meta_gradient=exact, weights=uniform):
    """[per-fedavg alg.1] Yields w, with which a user tests after one step: `adapt(f, w, D, alpha)`."""
    for users in rounds:
        ws = []
        for user in users:
            w_i = w
            for batches in user.steps:
                w_i = w_i - beta * meta_gradient(f, w_i, *batches, alpha)  # [per-fedavg eq.5]
            ws.append(w_i)
        w = average(weights(users), ws)
        yield w


def several_steps(f, w, Ds, D1, D2s, alpha, hvp=Risk.hvp):
    """ν inner steps, w_{j+1} = w_j − α∇f(w_j; D_j), and the factors I − αH(w_j; D_j″), the last first.
    Without D2s it is first order; with the difference of eq.8 as `hvp`, Hessian free."""
    ws = [w]
    for D in Ds:
        ws.append(ws[-1] - alpha * f.grad(ws[-1], D))
    u = f.grad(ws.pop(), D1)
    for w_j, D2 in zip(ws[::-1], D2s[::-1]):
        u = u - alpha * hvp(f, w_j, u, D2)
    return u


# ---- 7. FedMeta: MAML and Meta-SGD ---------------------------------------------------------------


def inner(f, theta, S, alpha, steps=1):
    """θ_u = θ − α ⊙ ∇f(θ; S), also of complex θ and α: with the gradient by hand."""
    for _ in range(steps):
        theta = theta - alpha * f.slope(theta, S)
    return theta


def maml(f, theta, S, Q, alpha, steps=1):
    return gradient(lambda x: f(inner(f, x, S, alpha, steps), Q), theta)  # [fedmeta MAML]


def fomaml(f, theta, S, Q, alpha, steps=1):
    return f.grad(adapt(f, theta, S, alpha, steps), Q)  # [fedmeta MAML] at θ_u, not through it


def meta_sgd(f, x, S, Q, steps=1):
    return gradient(lambda x: f(inner(f, x[0], S, x[1], steps), Q), x)  # [fedmeta Meta-SGD]


def fedmeta(f, x, rounds, beta, meta_gradient, adam=False, weights=uniform):
    """x is what travels: θ, or for Meta-SGD the rows θ and α. Yields x, and Adam's m and v.

    As printed a client has one episode (S, Q) a round and sends its meta-gradient. If it has more
    [apfl §4.1.3], it takes a step of size β after each, and sends their sum.
    """
    m = v = np.zeros_like(x)
    for t, clients in enumerate(rounds, 1):
        sent = []
        for client in clients:
            x_u, total = x, np.zeros_like(x)
            for S, Q in client.steps:
                g = meta_gradient(f, x_u, S, Q)
                x_u, total = x_u - beta * g, total + g
            sent.append(total)
        g = average(weights(clients), sent)
        if adam:  # Kingma and Ba 2015; its moments live as long as the run
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            g = m / (1 - 0.9**t) / (sqrt(v / (1 - 0.999**t)) + 1e-8)
        x = x - beta * g  # [fedmeta server]
        yield x, m, v


# ---- 8. FedMAML ----------------------------------------------------------------------------------


def fedmaml(f, theta, rounds, alpha, beta, steps=1):
    """Yields the meta-model θ, and the candidate θ′: the mean of the adapted models θ*_k."""
    for clients in rounds:
        sets = [(client.drawn, *client.steps[0]) for client in clients]  # D_tr and D_val of each
        stars = [adapt(f, theta, tr, alpha, steps) for _, tr, _ in sets]  # [fedmaml §4.2]

        def total(x):  # Σ_k L_k(θ*_k; D_val), a sum and not a mean  [fedmaml §3.2]
            return sum(n * f(inner(f, x, tr, alpha, steps), val) for n, tr, val in sets)

        theta = theta - beta * gradient(total, theta)
        yield theta, average(uniform(clients), stars)  # [fedmaml §4.3]


# ---- 9. FedCurv ----------------------------------------------------------------------------------


def fisher(f, w, D):
    """The mean over samples of squared gradients: the diagonal empirical Fisher [fedcurv Fisher]."""
    return np.mean([f.grad(w, D.rows([j])) ** 2 for j in range(len(D.y))], axis=0)


def fedcurv(f, w, rounds, eta, lam, weights=by_samples):
    """Each client is drawn to where the others of the round before ended. Yields w and {s: (I, θ̂)},
    of which only u = Σ I and v = Σ I ⊙ θ̂ travel: the gradient needs no more."""
    last = {}
    for clients in rounds:
        ends = {}
        for client in clients:
            others = [pair for j, pair in last.items() if j != client.k]

            def pull(theta):  # λ Σ_{j≠s} (θ − θ̂_j)ᵀ diag(I_j) (θ − θ̂_j)  [fedcurv penalty]
                return lam * sum((I * (theta - theta_j) ** 2).sum() for I, theta_j in others)

            theta = w
            for (D,) in client.steps:
                theta = theta - eta * (f.grad(theta, D) + gradient(pull, theta))
            ends[client.k] = fisher(f, theta, client.data), theta
        last = ends
        w = average(weights(clients), [theta for _, theta in ends.values()])
        yield w, last


# ---- 10. APFL: w = w_S ⊙ m_k + w_k ---------------------------------------------------------------


def units(shapes):
    """For each parameter its output unit, counted through all layers; a bias has its weight's."""
    found, total = [], 0
    for *inside, out in shapes:
        total += out if inside else 0
        found += [total - out + j % out for j in range(prod(inside) * out)]
    return np.array(found)


def compose(unit, w_s, a, w_k):
    """w_S ⊙ m_k + w_k with m_k = σ(a), one value per output unit [apfl eq.3]."""
    return w_s * sigmoid(a)[unit] + w_k


def apfl(
    f, w_s, rounds, unit, eta, mu, lam, z, train_loss, delta_mu=1.0, delta_sigma=0.5, window=5,
    importance="gradient-square", continuous=False, weights=by_samples,
):  # fmt: skip
    """[apfl alg.1] Before round z the clients train w_S alone; from then on w_S, m_k and w_k.

    train_loss : of w_S and own = {k: (a, w_k)} over all clients; when it has had a peak and then a
    plateau, F is renewed. continuous : start from w_k = (1 − σ(1)) w_S, where the composite is w_S.
    Yields w_S, F, own, whether the next round renews F, and each client's penalty.
    """

    def loss(D, w_s, *own):
        return f(compose(unit, w_s, *own) if own else w_s, D)

    def objective(D, w_s, *own):  # w_t is wᵗ_S, which the server sent  [apfl eq.4], [apfl eq.6]
        return loss(D, w_s, *own) + mu / 2 * (F * (w_s - w_t) ** 2).sum()

    F, own, losses, renew, estimate = 0.0, {}, [], z <= 1, IMPORTANCE[importance]
    for t, clients in enumerate(rounds):
        w_t, ends, importances = w_s, [], []
        for client in clients:
            if t >= z and client.k not in own:  # [apfl alg.1 line 21]
                own[client.k] = np.ones(unit.max() + 1), (1 - sigmoid(1) if continuous else 1) * w_t
            x, path = [w_t, *own.get(client.k, [])], 0.0
            for (D,) in client.steps:
                steps = [-eta * g for g in gradients(partial(objective, D), x)]
                path = path - gradients(partial(loss, D), x)[0] * steps[0]
                x = [x_i + step for x_i, step in zip(x, steps)]
            ends.append(x[0])
            if t >= z:
                own[client.k] = x[1], x[2]
            if renew:
                importances.append(estimate(f, w_t, client.data, path, x[0] - w_t))
        w_s = average(weights(clients), ends)
        penalties = [mu / 2 * (F * (end - w_t) ** 2).sum() for end in ends]
        if renew:
            F = lam * F + average(weights(clients), importances)  # [apfl eq.5]
        losses.append(train_loss(w_s, own))
        # on a plateau after a peak [apfl §3.3], and in the rounds around the start [apfl §4.1.3]
        renew = on_plateau(losses, delta_mu, delta_sigma, window) or abs(t + 1 - z) <= 1
        yield w_s, F, dict(own), renew, penalties


def gradients(f, xs):
    """∇f in each of its arguments."""
    return [gradient(lambda x: f(*xs[:i], x, *xs[i + 1 :]), xs[i]) for i in range(len(xs))]


def on_plateau(losses, delta_mu, delta_sigma, length):
    """Whether the last of these losses completes a plateau after a peak [apfl alg.1 lines 9–16]."""
    mean_old, std_old, peak, renew = 0.0, 0.0, False, False
    for t in range(length, len(losses) + 1):
        mean, std = np.mean(losses[t - length : t]), np.std(losses[t - length : t])
        renew = peak and mean < delta_mu and std < delta_sigma  # [apfl alg.1 line 10]
        if renew:
            mean_old, std_old, peak = mean, std, False
        elif mean > mean_old + std_old:  # [apfl alg.1 line 14]
            peak = True
    return renew


def mas(f, w, D):
    """The mean over samples of |∂‖z‖²/∂w|: memory aware synapses (Aljundi et al. 2018)."""
    rows = (D.rows([j]).X for j in range(len(D.y)))
    return np.mean([abs(gradient(lambda w: (f.scores(w, x) ** 2).sum(), w)) for x in rows], axis=0)


#: I_k of one client: of wᵗ_S, all its data, −Σ ∇L ⊙ Δw_S along its path, and the whole way Δw_S.
IMPORTANCE = {
    "gradient-square": lambda f, w, D, path, way: f.grad(w, D) ** 2,  # as [apfl eq.5] prints it
    "fisher": lambda f, w, D, path, way: fisher(f, w, D),  # as [apfl §4] says
    "mas": lambda f, w, D, path, way: mas(f, w, D),
    "si": lambda f, w, D, path, way: np.maximum(path, 0) / (way**2 + 0.1),  # Zenke et al. 2017
}

# ---- 11. Tests of a model, and a toy federation --------------------------------------------------


def evaluate(f, w, D):
    """The mean loss without L2, and the share of rows that are right."""
    return f._replace(l2=0.0)(w, D), np.mean(f.predict(w, D.X) == D.y)


def evaluate_unseen(f, model, D, support, seed, k):
    """A client that never trained: `model` adapts to some of its rows, the others test it [fedmeta]."""
    S, Q = cut_episode(stream(seed, "unseen", k).permutation(len(D.y)), support)
    return evaluate(f, model(D.rows(S)), D.rows(Q))


N, ROUNDS, B, SUPPORT, SEED, ETA, ALPHA, BETA = 8, 6, 4, 0.8, 1, 0.3, 0.2, 0.3


def toy():
    """f, and each client's training and test rows: three features, three labels, tastes that differ."""
    rng, data = default_rng(0), []
    for n in rng.integers(20, 38, N):
        X, W = rng.normal(size=(n, 3)), rng.normal(size=(3, 3))
        data.append(Batch(X, (X @ W).argmax(-1)))

    def slope(w, D):  # by hand: Xᵀ(softmax(Z) − Y)/n, and the sum of its rows for b
        z = exp(linear(w, D.X, 3))
        r = (z / z.sum(-1, keepdims=True) - (D.y[:, None] == range(3))) / len(D.y)
        return np.concatenate([(D.X.T @ r).ravel(), r.sum(0)])

    f = Risk(lambda w, X: linear(w, X, 3), cross_entropy, slope, range(3))
    return f, [D.rows(slice(8, None)) for D in data], [D.rows(slice(8)) for D in data]


def toy_rounds(train, roles, K=5, epochs=2):
    """K clients a round, two of five stragglers; roles : the batches of a step."""
    n = np.array([len(D.y) for D in train])
    for t in range(ROUNDS):
        clients, (ks, _) = [], draw_cohort(SEED, t, n, K)
        for k, straggles, E in zip(ks, *draw_stragglers(SEED, t, K, 0.4, epochs)):
            drawn = zip(*(draw_batches(stream(SEED, role, t, k), n[k], B, E) for role in roles))
            if "S" in roles:
                drawn = [cut_episode(stream(SEED, "S", t, k).permutation(n[k]), SUPPORT)]
            steps = [tuple(train[k].rows(rows) for rows in batches) for batches in drawn]
            clients.append(Client(k, train[k], steps, ceil(n[k] / B), straggler=straggles))
        yield clients


def run_toy():
    """Run every algorithm: {its name: (test loss, accuracy) after the last round}."""
    f, train, tests = toy()
    w, unit, n = np.zeros(12), units([(3, 3), (3,)]), [len(D.y) for D in train]
    roles = ["D"], ["D", "D1", "D2"], ["S", "Q"]
    D, DDD, SQ = (list(on_time(toy_rounds(train, names))) for names in roles)
    pool = Batch(*(np.concatenate(part) for part in zip(*train)))
    pool = pool.rows(stream(SEED, "pool").permutation(sum(n)))

    def personal(w_s, own):
        return [compose(unit, w_s, *own[k]) if k in own else w_s for k in range(N)]

    def train_loss(w_s, own):
        return average(n, [f(w_k, D_k) for w_k, D_k in zip(personal(w_s, own), train)]) / sum(n)

    def last(states):
        return list(states)[-1]

    averaged = last(fedavg(f, w, D, ETA))
    theta, alpha = last(fedmeta(f, np.stack([w, 0 * w + ALPHA]), SQ, BETA, meta_sgd))[0]
    w_s, _, own, *_ = last(apfl(f, w, D, unit, ETA, 1.0, 1.0, 2, train_loss))
    runs = {  # name: (w, the size of the step that a client takes before it is tested, on what)
        "fedavg": (averaged, 0, "D"),
        "fedavg-update": (averaged, ALPHA, "D"),
        "fedavg-meta": (averaged, ALPHA, "S"),
        "fedprox": (last(fedprox(f, w, toy_rounds(train, ["D"]), ETA, mu=1.0))[0], 0, "D"),
        "per-fedavg": (last(per_fedavg(f, w, DDD, ALPHA, BETA)), ALPHA, "D"),
        "per-fedavg-fo": (last(per_fedavg(f, w, DDD, ALPHA, BETA, first_order)), ALPHA, "D"),
        "per-fedavg-hf": (last(per_fedavg(f, w, DDD, ALPHA, BETA, hessian_free)), ALPHA, "D"),
        "fedmeta-maml": (last(fedmeta(f, w, SQ, BETA, partial(maml, alpha=ALPHA)))[0], ALPHA, "S"),
        "fedmeta-fomaml": (last(fedmeta(f, w, SQ, BETA, partial(fomaml, alpha=ALPHA)))[0], ALPHA, "S"),
        "fedmeta-sgd": (theta, alpha, "S"),
        "fedmaml": (last(fedmaml(f, w, SQ, ALPHA, BETA))[0], ALPHA, "S"),
        "fedcurv": (last(fedcurv(f, w, D, ETA, lam=1.0))[0], 0, "D"),
        "apfl": (personal(w_s, own), 0, "D"),
        "centralised": (last(fedavg(f, w, toy_rounds([pool], ["D"], 1, 1), ETA)), 0, "D"),
    }  # fmt: skip
    table = {}
    for name, (w, alpha, role) in runs.items():
        tested = []
        for k, w_k in enumerate(w if isinstance(w, list) else N * [w]):
            order = stream(SEED, "adapt", ROUNDS, k).permutation(n[k])
            rows = order[:B] if role == "D" else cut_episode(order, SUPPORT)[0]
            tested.append(evaluate(f, adapt(f, w_k, train[k].rows(rows), alpha), tests[k]))
        table[name] = tuple(np.mean(tested, axis=0))  # of each client the same number of test rows
    return table


if __name__ == "__main__":
    print("algorithm        test loss   accuracy")
    for name, (loss, accuracy) in run_toy().items():
        print(f"{name:16} {loss:9.6f} {accuracy:10.1%}")
