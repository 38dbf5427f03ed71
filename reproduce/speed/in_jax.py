"""A round in JAX as its users write it: one compiled function, and parameters are a pytree.

A batch is gathered in its step. `jax-vmap` runs all clients at once, `jax-map` one after the other,
`jax-pmap` an equal part of them on each core.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedref.models import CNN, LinearSVM
from reproduce.speed.dense import dense

Tree = Any


def prepare(how: str, dtype: str, name: str) -> Callable[[], Any]:
    jax.config.update("jax_enable_x64", dtype == "float64")
    d = dense(name, dtype)
    a, loss = d.algorithm, loss_of(d.model)
    grad = jax.grad(loss)
    roles, ragged = list(d.rows), bool((d.steps < d.steps.max()).any())
    X, y, share, n = map(jnp.asarray, (d.X, d.y, d.share, d.steps))
    w0 = [jnp.asarray(x) for x in d.w]
    rows = [jnp.asarray(d.rows[role]) for role in roles]
    # (K, S, W) weights that sum to 1, for a role that has a batch with fewer rows than the others
    weights = [None if d.weights[r] is None else jnp.asarray(d.weights[r]) for r in roles]

    def plus(w: Tree, scale: Any, g: Tree) -> Tree:
        return jax.tree.map(lambda w, g: w + scale * g, w, g)

    def gather(X: Any, y: Any, rows: Any, weights: Any, t: Any) -> Any:
        """[(X, y, weights) of step t for each role]; weights may be None."""
        at = partial(lax.dynamic_index_in_dim, index=t, axis=0, keepdims=False)
        batches = zip(*(jax.tree.map(at, x) for x in (rows, weights)))
        return [(X[r], y[r], p) for r, p in batches]

    def move(w: Tree, batches: Any) -> Tree:
        if len(batches) == 1:
            return plus(w, -a.lr, grad(w, *batches[0]))
        D, D1, D2 = batches
        u = grad(plus(w, -a.alpha, grad(w, *D)), *D1)
        hvp = jax.jvp(lambda w: grad(w, *D2), (w,), (u,))[1]
        return plus(w, -a.beta, plus(u, -a.alpha, hvp))

    def scan(w: Tree, *data: Any) -> Tree:
        """Take as many steps as the client with the most; those after its own change nothing."""
        *data, n = data

        def step(w: Tree, t: Any) -> Any:
            new = move(w, gather(*data, t))
            if ragged:
                new = jax.tree.map(lambda new, w: jnp.where(t < n, new, w), new, w)
            return new, None

        return lax.scan(step, w, jnp.arange(rows[0].shape[1]))[0]

    def loop(w: Tree, *data: Any) -> Tree:
        """Take a client's own number of steps."""
        *data, n = data
        return lax.fori_loop(0, n, lambda t, w: move(w, gather(*data, t)), w)

    def episode(w: Tree, *data: Any) -> Tree:
        S, Q = gather(*data[:-1], 0)

        def meta(theta: Tree, alpha: Tree) -> Any:
            g = grad(theta, *S)
            return loss(jax.tree.map(lambda x, a, g: x - a * g, theta, alpha, g), *Q)

        return jax.grad(meta, (0, 1))(w, jax.tree.map(lambda x: jnp.full_like(x, a.alpha), w))

    def finish(w: Tree, mean: Tree) -> Tree:
        if "S" not in roles:
            return mean
        start = w, jax.tree.map(lambda x: jnp.full_like(x, a.alpha), w)
        return plus(start, -a.beta, mean)

    if how == "jax-vmap":
        one = episode if "S" in roles else scan

        def play(w: Tree, *data: Any) -> Tree:
            ends = jax.vmap(partial(one, w))(*data)
            return finish(w, jax.tree.map(lambda x: jnp.tensordot(share, x, 1), ends))

    else:
        one = episode if "S" in roles else loop

        def total(w: Tree, share: Any, *data: Any) -> Tree:
            def add(total: Tree, of: Any) -> Any:
                p, *of = of
                return plus(total, p, one(w, *of)), None

            zero = jax.tree.map(jnp.zeros_like, (w, w) if "S" in roles else w)
            return lax.scan(add, zero, (share, *data))[0]

        def play(w: Tree, *data: Any) -> Tree:
            return finish(w, total(w, share, *data))

    if how == "jax-pmap":
        cores, axes = jax.device_count(), (None, *[0] * 6)
        parts = jax.tree.map(partial(divide, cores), (share, X, y, rows, weights, n))
        parts = jax.pmap(lambda *parts: parts)(*parts)  # lie on their devices from now on
        totals, end = jax.pmap(total, in_axes=axes), jax.jit(finish)
        return lambda: jax.block_until_ready(
            end(w0, jax.tree.map(lambda x: x.sum(0), totals(w0, *parts)))
        )
    whole = jax.jit(play)
    return lambda: jax.block_until_ready(whole(w0, X, y, rows, weights, n))


def divide(cores: int, x: Any) -> Any:
    """(K, ...) → (cores, ⌈K/cores⌉, ...), with zeros for clients that are not there."""
    x = jnp.pad(x, [(0, -len(x) % cores), *[(0, 0)] * (x.ndim - 1)])
    return x.reshape(cores, -1, *x.shape[1:])


def loss_of(model: Any) -> Callable[..., Any]:
    """f(w, X, y, p): w a list of weights and biases; p of the rows, which sum to 1, or None."""

    def scores(w: Tree, X: Any) -> Any:
        layers = list(zip(w[::2], w[1::2]))
        if isinstance(model, CNN):
            X = X.reshape(-1, *model.pixels)
            for W, b in layers[:-2]:
                X = convolve(X, W)
                X = jnp.maximum(X[:, ::2], X[:, 1::2])
                X = jax.nn.relu(jnp.maximum(X[:, :, ::2], X[:, :, 1::2]) + b)
            X = X.reshape(X.shape[0], -1)
            (W, b), (V, c) = layers[-2:]
            return jax.nn.relu(X @ W + b) @ V + c
        for W, b in layers[:-1]:
            X = jax.nn.elu(X @ W + b)
        W, b = layers[-1]
        return X @ W + b

    def loss(w: Tree, X: Any, y: Any, p: Any) -> Any:
        if isinstance(model, LinearSVM):
            theta, b = w
            each = jnp.maximum(0, 1 - y * (X @ theta[:, 0] + b[0]))
        else:
            z = scores(w, X)
            each = -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1)[:, 0]
        mean = each.mean() if p is None else p @ each
        return mean + model.l2 / 2 * sum((x**2).sum() for x in w) if model.l2 else mean

    return loss


def convolve(X: Any, W: Any) -> Any:
    """Return what `lax.conv_general_dilated` does, by a matrix product: on a CPU it is faster so."""
    k, _, c, out = W.shape
    n, h, w, _ = X.shape
    h, w = h - k + 1, w - k + 1
    windows = [X[:, i : i + h, j : j + w] for i in range(k) for j in range(k)]
    A = jnp.concatenate(windows, -1).reshape(-1, k * k * c)
    return (A @ W.reshape(-1, out)).reshape(n, h, w, out)
