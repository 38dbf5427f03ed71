"""A round in JAX, compiled whole, with a scan over steps.

`jax-vmap` runs all clients at once, `jax-client` one after the other, and with the CNN (whose scan XLA
runs slowly on a CPU) a step after the other.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dense import dense
from jax import lax

from fedref.models import CNN, LinearSVM


def prepare(how: str, dtype: str, cores: int, name: str) -> Callable[[], Any]:
    jax.config.update("jax_enable_x64", dtype == "float64")
    d = dense(name, dtype)
    a, loss = d.algorithm, loss_of(d.model)
    grad = jax.grad(loss)
    X, y, w0, share = map(jnp.asarray, (d.X, d.y, d.w, d.share))
    R = {role: jnp.asarray(rows) for role, rows in d.rows.items()}
    S = {role: jnp.asarray(s) for role, s in d.weights.items()}
    n = jnp.asarray(d.steps)

    def batches(X: Any, y: Any, rows: Any, weights: Any) -> list[Any]:
        return [(X[rows[r]], y[rows[r]], weights[r]) for r in d.rows]

    def move(w: Any, Ds: list[Any]) -> Any:
        if len(Ds) == 1:
            return w - a.lr * grad(w, *Ds[0])
        D, D1, D2 = Ds
        u = grad(w - a.alpha * grad(w, *D), *D1)
        return w - a.beta * (u - a.alpha * jax.jvp(lambda w: grad(w, *D2), (w,), (u,))[1])

    def client(X: Any, y: Any, rows: Any, weights: Any, n: Any, w: Any) -> Any:
        def step(w: Any, at: Any) -> Any:
            t, rows, weights = at
            return jnp.where(t < n, move(w, batches(X, y, rows, weights)), w), None

        length = next(iter(rows.values())).shape[0]
        return lax.scan(step, w, (jnp.arange(length), rows, weights))[0]

    if "S" in d.rows:

        def episode(theta: Any, alpha: Any, D: Any, Q: Any) -> Any:
            return loss(theta - alpha * grad(theta, *D), *Q)

        def run_client(X: Any, y: Any, rows: Any, weights: Any, n: Any, w: Any) -> Any:
            D, Q = ((X[rows[r][0]], y[rows[r][0]], weights[r][0]) for r in ("S", "Q"))
            return jnp.concatenate(jax.grad(episode, (0, 1))(w, jnp.full_like(w, a.alpha), D, Q))
    else:
        run_client = client

    def combine(ends: Any) -> Any:
        mean = share @ ends
        if "S" not in d.rows:
            return mean
        start = jnp.concatenate([w0, jnp.full_like(w0, a.alpha)])
        return start - a.beta * mean

    if how == "jax-vmap":
        whole = jax.jit(
            lambda X, y, w: combine(jax.vmap(run_client, (0, 0, 0, 0, 0, None))(X, y, R, S, n, w))
        )
        return lambda: whole(X, y, w0).block_until_ready()
    K = range(len(d.share))
    parts = [(X[k], y[k], {r: R[r][k] for r in R}, {r: S[r][k] for r in S}, n[k]) for k in K]
    if isinstance(d.model, CNN):
        stepped = jax.jit(lambda X, y, rows, s, w: move(w, batches(X, y, rows, s)))

        def play() -> Any:
            ends = []
            for k, (Xk, yk, rows, s, _) in enumerate(parts):
                w = w0
                for t in range(int(d.steps[k])):
                    w = stepped(Xk, yk, {r: rows[r][t] for r in R}, {r: s[r][t] for r in S}, w)
                ends.append(w)
            return combine(jnp.stack(ends)).block_until_ready()

        return play
    alone = jax.jit(run_client)
    return lambda: combine(jnp.stack([alone(*part, w0) for part in parts])).block_until_ready()


def loss_of(model: Any) -> Callable[..., Any]:
    """f(w, X, y, s) with fedref's layout."""
    shapes = model.shapes

    def unpack(w: Any) -> list[Any]:
        ends = np.cumsum([int(np.prod(s)) for s in shapes])
        return [w[e - int(np.prod(s)) : e].reshape(s) for e, s in zip(ends, shapes)]

    def logits(w: Any, X: Any) -> Any:
        views = unpack(w)
        layers = list(zip(views[::2], views[1::2]))
        if isinstance(model, CNN):
            X = X.reshape(-1, *model.pixels)
            for W, b in layers[:-2]:
                z = lax.conv_general_dilated(
                    X, W, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
                z = lax.reduce_window(z, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
                X = jax.nn.relu(z + b)
            X = X.reshape(X.shape[0], -1)
            (W, b), (V, c) = layers[-2:]
            return jax.nn.relu(X @ W + b) @ V + c
        for W, b in layers[:-1]:
            X = jax.nn.elu(X @ W + b)
        W, b = layers[-1]
        return X @ W + b

    def loss(w: Any, X: Any, y: Any, s: Any) -> Any:
        z = logits(w, X)
        if isinstance(model, LinearSVM):
            each = jnp.maximum(0, 1 - y * z[:, 0])
        else:
            each = -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1)[:, 0]
        return (s * each).sum() / s.sum() + model.l2 / 2 * (w @ w)

    return loss
