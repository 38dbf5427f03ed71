"""The papers in JAX: `grad` of the objective, local steps under `jit`, samples under `vmap`.

Importing this module turns on JAX's 64-bit numbers.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedref.conformance.backends.papers import Papers, Values, pieces

jax.config.update("jax_enable_x64", True)


def read_texts(model: Values, E: Any, cells: list[Any], X: Any) -> Any:
    """Return the dense layer's input from texts (B, T): (B, H). Padding changes no state."""
    real = (model["vocabulary"] != X).T[..., None]  # (T, B, 1)
    zero = [jnp.zeros((len(X), len(b) // 4), E.dtype) for b in cells[1::2]]

    def step(states: Any, at: Any) -> Any:
        x, there = at
        after = []
        for (h, c), W, b in zip(states, cells[::2], cells[1::2]):
            i, f, g, o = jnp.split(jnp.hstack([x, h]) @ W + b, 4, 1)
            new = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            x = jnp.where(there, jax.nn.sigmoid(o) * jnp.tanh(new), h)
            after.append((x, jnp.where(there, new, c)))
        return after, x

    states, texts = [(h, h) for h in zero], (E[X.T], real)
    _, h = jax.lax.scan(step, states, texts, unroll=True)  # short texts: sooner compiled
    if model["output"] == "last":
        return h[-1]
    return (h * real).sum(0) / jnp.maximum(real.sum(0), 1)


def elu(z: Any) -> Any:
    """ELU whose second derivative at 0 is 0, as the conventions have it; that of jax.nn.elu is 1."""
    return jnp.where(z >= 0, z, jnp.expm1(jnp.minimum(z, 0)))


ACTIVATIONS = {"elu": elu, "relu": jax.nn.relu, "tanh": jnp.tanh}


def logits(model: Values, w: Any, X: Any) -> Any:
    """Return the logits: (B, C), or (B,) of the linear models with one score."""
    layers = pieces(model, w)
    if model["family"] in ("binary-logistic", "svm"):
        theta, *b = layers
        return (X @ theta)[:, 0] + (b[0] if b else 0)
    phi = ACTIVATIONS[model.get("activation", "relu")]
    if model["family"] == "cnn":
        H, W, *c = model["image"]
        a = X.reshape(-1, H, W, c[0] if c else 1)
        for _ in model["channels"]:
            kernel, b, *layers = layers
            layout = ("NHWC", "HWIO", "NHWC")
            a = phi(
                jax.lax.conv_general_dilated(a, kernel, (1, 1), "VALID", None, None, layout) + b
            )
            n, H, W, C = a.shape
            windows = a[:, : H // 2 * 2, : W // 2 * 2].reshape(n, H // 2, 2, W // 2, 2, C)
            windows = windows.transpose(0, 1, 3, 5, 2, 4).reshape(n, H // 2, W // 2, C, 4)
            if model["pool"] == "max":  # the first of equals: `max` would share the gradient
                first = windows.argmax(-1, keepdims=True)
                a = jnp.take_along_axis(windows, first, -1)[..., 0]
            else:
                a = windows.mean(-1)
        X = a.reshape(len(X), -1)
    elif model["family"] == "lstm":
        E, *cells, W, b = layers
        layers, X = [W, b], read_texts(model, E, cells, X)
    elif model["family"] not in ("logistic", "mlp"):
        raise NotImplementedError(model["family"])
    *hidden, W_last, b_last = layers
    for W, b in zip(hidden[::2], hidden[1::2]):
        X = phi(X @ W + b)
    return X @ W_last + b_last


def sample_losses(model: Values, z: Any, y: Any) -> Any:
    """Return ℓ of every sample: (B,)."""
    if model["family"] == "binary-logistic":
        return jax.nn.softplus(jnp.where(y == 1, -z, z))
    if model["family"] == "svm":
        hinge = jax.nn.relu(1 - y.astype(z.dtype) * z)
        return hinge**2 if model["squared"] else hinge
    return -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1)[:, 0]


class Jax(Papers):
    xp = jnp

    def __init__(self) -> None:
        self.compiled: dict[Any, Any] = {}

    def array(self, x: Any) -> Any:
        return jnp.asarray(x)

    def numpy(self, x: Any) -> Any:
        return np.asarray(x)

    def derivative(self, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return jax.grad(f)

    def map_samples(self, f: Callable[[Any, Any], Any], X: Any, y: Any) -> Any:
        return jax.vmap(f)(X[:, None], y[:, None])

    def logits(self, model: Values, w: Any, X: Any) -> Any:
        return logits(model, w, X)

    def sample_losses(self, model: Values, z: Any, y: Any) -> Any:
        return sample_losses(model, z, y)

    def speed_up(self, key: Any, f: Callable[..., Any]) -> Callable[..., Any]:
        """Compile f once for each key and the shapes that it meets."""
        return self.compiled.setdefault(key, jax.jit(f))


BACKEND = Jax()
