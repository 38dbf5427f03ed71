"""The papers in JAX: `grad` of the objective, local steps under `jit`, samples under `vmap`.

Importing this module turns on JAX's 64-bit numbers.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedref.conformance.backends.papers import Papers, Values

jax.config.update("jax_enable_x64", True)


def elu(z: Any) -> Any:
    """ELU whose second derivative at 0 is 0, as the conventions have it; that of jax.nn.elu is 1."""
    return jnp.where(z >= 0, z, jnp.expm1(jnp.minimum(z, 0)))


class Jax(Papers):
    xp = jnp
    activations = {"elu": elu, "relu": jax.nn.relu, "tanh": jnp.tanh}  # noqa: RUF012

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

    def correlate(self, a: Any, kernel: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(a, kernel, (1, 1), "VALID", None, None, layout)

    def pool(self, a: Any, kind: str) -> Any:
        n, H, W, C = a.shape
        windows = a[:, : H // 2 * 2, : W // 2 * 2].reshape(n, H // 2, 2, W // 2, 2, C)
        windows = windows.transpose(0, 1, 3, 5, 2, 4).reshape(n, H // 2, W // 2, C, 4)
        if kind == "mean":
            return windows.mean(-1)
        # the first of equals: `max` would share the gradient
        return jnp.take_along_axis(windows, windows.argmax(-1, keepdims=True), -1)[..., 0]

    def read_texts(self, model: Values, E: Any, cells: list[Any], X: Any) -> Any:
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

    def sample_losses(self, model: Values, z: Any, y: Any) -> Any:
        if model["family"] == "binary-logistic":
            return jax.nn.softplus(jnp.where(y == 1, -z, z))
        if model["family"] == "svm":
            hinge = jax.nn.relu(1 - y.astype(z.dtype) * z)
            return hinge**2 if model["squared"] else hinge
        return -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1)[:, 0]

    def speed_up(self, key: Any, f: Callable[..., Any]) -> Callable[..., Any]:
        """Compile f once for each key and the shapes that it meets."""
        return self.compiled.setdefault(key, jax.jit(f))


BACKEND = Jax()
