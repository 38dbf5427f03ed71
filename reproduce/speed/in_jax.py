"""A round in JAX as its users write it: parameters are a pytree, the rows of all steps are gathered
before a `lax.scan` over them. `jax-vmap`: all clients at once; `jax-scan`: one after the other;
`jax-step`: a compiled step in a loop of Python's (XLA runs a CNN's scan slowly on a CPU)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from dense import dense
from jax import lax

from fedref.models import CNN, LinearSVM

Tree = Any


def prepare(how: str, dtype: str, cores: int, name: str) -> Callable[[], Any]:
    jax.config.update("jax_enable_x64", dtype == "float64")
    d = dense(name, dtype)
    a, loss = d.algorithm, loss_of(d.model)
    grad = jax.grad(loss)
    roles, ragged = list(d.rows), bool((d.steps < d.steps.max()).any())
    X, y, share = map(jnp.asarray, (d.X, d.y, d.share))
    w0 = [jnp.asarray(x) for x in d.w]
    rows = [jnp.asarray(d.rows[r]) for r in roles]
    # (K, S, W) weights that sum to 1, for a role that has a batch with fewer rows than the others
    weights = [None if d.weights[r] is None else jnp.asarray(d.weights[r]) for r in roles]

    def plus(w: Tree, scale: Any, g: Tree) -> Tree:
        return jax.tree.map(lambda w, g: w + scale * g, w, g)

    def move(w: Tree, batches: Any) -> Tree:
        if len(batches) == 1:
            return plus(w, -a.lr, grad(w, *batches[0]))
        D, D1, D2 = batches
        u = grad(plus(w, -a.alpha, grad(w, *D)), *D1)
        hvp = jax.jvp(lambda w: grad(w, *D2), (w,), (u,))[1]
        return plus(w, -a.beta, plus(u, -a.alpha, hvp))

    def gather(X: Any, y: Any, rows: Any, weights: Any) -> Any:
        return [(X[r], y[r], p) for r, p in zip(rows, weights)]

    def client(w: Tree, X: Any, y: Any, rows: Any, weights: Any, n: Any) -> Tree:
        def step(w: Tree, at: Any) -> Any:
            t, batches = at
            new = move(w, batches)
            if ragged:
                new = jax.tree.map(lambda new, w: jnp.where(t < n, new, w), new, w)
            return new, None

        steps = jnp.arange(rows[0].shape[0])
        return lax.scan(step, w, (steps, gather(X, y, rows, weights)))[0]

    def episode(w: Tree, X: Any, y: Any, rows: Any, weights: Any, n: Any) -> Tree:
        def meta(theta: Tree, alpha: Tree) -> Any:
            (S, Q), g = batches, grad(theta, *batches[0])
            return loss(jax.tree.map(lambda x, a, g: x - a * g, theta, alpha, g), *Q)

        batches = [(X[r[0]], y[r[0]], None if p is None else p[0]) for r, p in zip(rows, weights)]
        return jax.grad(meta, (0, 1))(w, jax.tree.map(lambda x: jnp.full_like(x, a.alpha), w))

    one = episode if "S" in roles else client

    def combine(w: Tree, ends: Tree) -> Tree:
        mean = jax.tree.map(lambda x: jnp.tensordot(share, x, 1), ends)
        if "S" not in roles:
            return mean
        start = w, jax.tree.map(lambda x: jnp.full_like(x, a.alpha), w)
        return plus(start, -a.beta, mean)

    if how == "jax-vmap":

        @jax.jit
        def whole(w: Tree, X: Any, y: Any, rows: Any, weights: Any, n: Any) -> Tree:
            return combine(w, jax.vmap(partial(one, w))(X, y, rows, weights, n))

        given = X, y, rows, weights, jnp.asarray(d.steps)
        return lambda: jax.block_until_ready(whole(w0, *given))

    finish = jax.jit(lambda w, ends: combine(w, jax.tree.map(lambda *x: jnp.stack(x), *ends)))
    K, alone, ragged = range(len(share)), jax.jit(one), False  # each client has its own steps
    parts = [
        (X[k], y[k], [r[k, :n] for r in rows], [None if p is None else p[k, :n] for p in weights], n)
        for k, n in zip(K, d.steps.tolist())
    ]  # fmt: skip
    if how == "jax-scan":
        return lambda: jax.block_until_ready(finish(w0, [alone(w0, *part) for part in parts]))
    stepped = jax.jit(lambda w, X, y, rows, p: move(w, gather(X, y, rows, p)))
    steps = [
        [([r[t] for r in rows], [None if x is None else x[t] for x in p]) for t in range(n)]
        for _, _, rows, p, n in parts
    ]

    def play() -> Any:
        ends = []
        for (X, y, *_), of in zip(parts, steps):
            w = w0
            for rows, p in of:
                w = stepped(w, X, y, rows, p)
            ends.append(w)
        return jax.block_until_ready(finish(w0, ends))

    return play


def loss_of(model: Any) -> Callable[..., Any]:
    """f(w, X, y, p): w a list of weights and biases; p of the rows, which sum to 1, or None."""

    def scores(w: Tree, X: Any) -> Any:
        layers = list(zip(w[::2], w[1::2]))
        if isinstance(model, CNN):
            X = X.reshape(-1, *model.pixels)
            for W, b in layers[:-2]:
                X = lax.conv_general_dilated(
                    X, W, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
                n, h, w_, c = X.shape
                X = jax.nn.relu(X.reshape(n, h // 2, 2, w_ // 2, 2, c).max((2, 4)) + b)
            X = X.reshape(X.shape[0], -1)
            (W, b), (V, c) = layers[-2:]
            return jax.nn.relu(X @ W + b) @ V + c
        for W, b in layers[:-1]:
            X = jax.nn.elu(X @ W + b)
        W, b = layers[-1]
        return X @ W + b

    def loss(w: Tree, X: Any, y: Any, p: Any) -> Any:
        z = scores(w, X)
        if isinstance(model, LinearSVM):
            each = jnp.maximum(0, 1 - y * z[:, 0])
        else:
            each = -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1)[:, 0]
        mean = each.mean() if p is None else p @ each
        return mean + model.l2 / 2 * sum((x**2).sum() for x in w) if model.l2 else mean

    return loss
