"""A round in NumPy as one writes it by hand for one algorithm and one model: what fedref could reach.

Nothing is general, checked or counted; rows, labels, weights and the order of work are prepared before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedref.models.numerics import Array
from reproduce.speed.dense import Dense, dense

Layers = list[Array]  # W₁, b₁, W₂, ...


def prepare(how: str, dtype: str, name: str) -> Callable[[], Any]:
    return {"W1": logistic, "W2": per_fedavg, "W3": meta_sgd, "W5": svm}[name](dense(name, dtype))


# ---- FedAvg of a linear model: rows end in a 1 for the bias; clients with more steps come first ----


def linear(d: Dense) -> tuple[Array, Array, list[tuple[Array, Array]]]:
    """(A (K·N, p + 1), the order of clients, for each step the rows of those at work and η/B for each)."""
    (K, N, p), dtype = d.X.shape, d.X.dtype
    A = np.concatenate([d.X, np.ones((K, N, 1), dtype)], -1).reshape(K * N, p + 1)
    order = np.argsort(-d.steps, kind="stable")
    rows, weights = d.rows["D"], d.weights["D"]
    if weights is None:
        weights = np.full(rows.shape, 1 / rows.shape[-1], dtype)
    index = (rows + N * np.arange(K)[:, None, None])[order].swapaxes(0, 1)
    c = (dtype.type(d.algorithm.lr) * weights)[order].swapaxes(0, 1)
    active = (d.steps[:, None] > np.arange(rows.shape[1])).sum(0)
    return A, order, [(i[:k].copy(), x[:k].copy()) for i, x, k in zip(index, c, active)]


def logistic(d: Dense) -> Callable[[], Layers]:
    A, order, steps = linear(d)
    C = d.w[1].size
    Y = np.eye(C, dtype=A.dtype)[d.y.ravel()]
    start, share = np.concatenate([d.w[0], d.w[1][None]]), d.share[order]

    def play() -> Layers:
        w = np.repeat(start[None], len(order), 0)
        for i, c in steps:
            a, now = A.take(i, 0), w[: len(i)]
            r = softmax(a @ now)
            r -= Y.take(i, 0)
            r *= c[..., None]
            now -= a.mT @ r
        mean = np.tensordot(share, w, 1)
        return [mean[:-1], mean[-1]]

    return play


def svm(d: Dense) -> Callable[[], Layers]:
    A, order, steps = linear(d)
    A *= d.y.reshape(-1, 1)
    start, share = np.concatenate([d.w[0][:, 0], d.w[1]]), d.share[order]
    decay = A.dtype.type(1 - d.algorithm.lr * d.model.l2)

    def play() -> Layers:
        w = np.repeat(start[None], len(order), 0)
        for i, c in steps:
            a, now = A.take(i, 0), w[: len(i)]
            r = c * (np.matvec(a, now) < 1)
            now *= decay
            now += np.vecmat(r, a)
        mean = share @ w
        return [mean[:-1, None], mean[-1:]]

    return play


# ---- meta-learning of a multi-layer perceptron: a list of weights and biases, clients along axis 0 -


def per_fedavg(d: Dense) -> Callable[[], Layers]:
    K, a = np.arange(len(d.X))[:, None], d.algorithm
    Y = np.eye(d.w[-1].size, dtype=d.X.dtype)[d.y]
    order = list(zip(*(d.rows[role].swapaxes(0, 1) for role in ("D", "D1", "D2"))))

    def play() -> Layers:
        w = [np.repeat(x[None], len(K), 0) for x in d.w]
        for step in order:
            D, D1, D2 = ((d.X[K, i], Y[K, i]) for i in step)
            u = grad([x - a.alpha * g for x, g in zip(w, grad(w, *D))], *D1)
            for x, v, h in zip(w, u, hvp(w, u, *D2)):
                h *= a.alpha
                v -= h
                v *= a.beta
                x -= v
        return [np.tensordot(d.share, x, 1) for x in w]

    return play


def meta_sgd(d: Dense) -> Callable[[], Layers]:
    K, a = np.arange(len(d.X))[:, None], d.algorithm
    Y = np.eye(d.w[-1].size, dtype=d.X.dtype)[d.y]
    S, Q = (d.rows[role][:, 0] for role in ("S", "Q"))
    alphas = [np.full_like(x, a.alpha) for x in d.w]

    def play() -> Layers:
        x_S, y_S = d.X[K, S], Y[K, S]
        g = grad(d.w, x_S, y_S)
        q = grad([x - al * g for x, al, g in zip(d.w, alphas, g)], d.X[K, Q], Y[K, Q])
        h = hvp(d.w, [al * v for al, v in zip(alphas, q)], x_S, y_S)
        theta, alpha = [], []
        for x, al, g_l, v, h_l in zip(d.w, alphas, g, q, h):
            g_l *= v
            v -= h_l
            theta.append(x - a.beta * np.tensordot(d.share, v, 1))
            alpha.append(al + a.beta * np.tensordot(d.share, g_l, 1))
        return theta + alpha

    return play


def softmax(z: Array) -> Array:
    z -= z.max(-1, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(-1, keepdims=True)
    return z


def forward(w: Layers, x: Array) -> Layers:
    """[x, a₁, ..., p]."""
    a = [x]
    for l in range(0, len(w), 2):
        z = a[-1] @ w[l]
        z += w[l + 1][..., None, :]
        a.append(np.exp(np.minimum(z, 0)) - 1 + np.maximum(z, 0) if l + 2 < len(w) else softmax(z))
    return a


def grad(w: Layers, x: Array, Y: Array) -> Layers:
    *a, p = forward(w, x)
    g, delta = [], (p - Y) / x.dtype.type(x.shape[-2])
    for l in reversed(range(len(a))):
        g += [delta.sum(-2), a[l].mT @ delta]
        if l:
            delta = delta @ w[2 * l].mT
            delta *= np.minimum(a[l], 0) + 1
    return g[::-1]


def hvp(w: Layers, v: Layers, x: Array, Y: Array) -> Layers:
    """H(w)v by the R-operator."""
    *a, p = forward(w, x)
    n, Rz = x.dtype.type(x.shape[-2]), list[Array]()
    slopes = [np.minimum(a_l, 0) + 1 for a_l in a[1:]]
    for l in range(len(a)):
        Rz.append(a[l] @ v[2 * l])
        Rz[l] += v[2 * l + 1][..., None, :]
        if l:
            Rz[l] += (Rz[l - 1] * slopes[l - 1]) @ w[2 * l]
    delta, Rdelta = (p - Y) / n, p * (Rz[-1] - (p * Rz[-1]).sum(-1, keepdims=True)) / n
    h = list[Array]()
    for l in reversed(range(len(a))):
        h += [Rdelta.sum(-2), a[l].mT @ Rdelta]
        if l:
            s, e = slopes[l - 1], delta @ w[2 * l].mT
            h[-1] += (Rz[l - 1] * s).mT @ delta
            Rdelta = Rdelta @ w[2 * l].mT + delta @ v[2 * l].mT
            Rdelta = Rdelta * s + e * Rz[l - 1] * (s * (a[l] < 0))
            delta = e * s
    return h[::-1]
