"""What the formulae of the LSTM mean: one layer, step by step."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedref.models import lstm
from fedref.models import numerics as nx
from fedref.models.base import mean_weights
from fedref.models.batch import Batch
from fedref.models.numerics import Array

#: Symbols and the names that hold them: all steps, all and one before step 0, this step alone.
OF_STEP = {
    "x": "x", "R{x}": "Rx", "s": "s", "R{s}": "Rs", "∂h": "dh", "R{∂h}": "Rdh",
}  # fmt: skip
OF_STATE = {"c": "c", "h": "h", "R{c}": "Rc", "R{h}": "Rh"}
NOW = {
    "a": "a_t", "i": "i", "f": "f", "g": "g", "o": "o", "R{i}": "Ri", "R{f}": "Rf", "R{g}": "Rg",
    "R{o}": "Ro", "∂c": "dc", "R{∂c}": "Rdc", "∂h": "dh_t", "δ": "d_t", "R{δ}": "Rd_t",
    "k": "k", "b": "b", "v_b": "v_b",
}  # fmt: skip
HELD = {**OF_STEP, **OF_STATE, **NOW}


def meaning(values: Mapping[str, Any]) -> dict[str, Any]:
    """The symbols of step t; values: the local variables of a pass through one layer."""
    t = values["t"]
    env: dict[str, Any] = {"tanh": np.tanh}
    env |= {symbol: values.get(name) for symbol, name in NOW.items()}
    for symbol, name in OF_STEP.items():
        if name in values:
            env[symbol] = values[name][t]
            env[f"{symbol}_{{t−1}}"] = values[name][t - 1] if t else None
    for symbol, name in OF_STATE.items():
        if name in values:
            env[symbol], env[f"{symbol}_{{t−1}}"] = values[name][t + 1], values[name][t]
    for name in {"W", "V"} & set(values):
        H = values[name].shape[-1] // 4
        env |= {f"{name}_x": values[name][:-H], f"{name}_h": values[name][-H:]}
    if "V" in values and "Rx" in values:  # R{z}: the formula of its line, for the one below
        env["R{z}"] = (
            env["R{x}"] @ env["W_x"] + env["x"] @ env["V_x"] + env["v_b"]
            + env["R{h}_{t−1}"] @ env["W_h"] + env["h_{t−1}"] @ env["V_h"]
        )  # fmt: skip
    if "b" in values:
        env["z"] = env["x"] @ env["W_x"] + env["h_{t−1}"] @ env["W_h"] + env["b"]
    return env


def arguments(model: lstm.LSTM, D: Batch, w: Array, v: Array) -> dict[str, tuple[Any, ...]]:
    """What each pass through the first layer is called with; the last layer's is the same."""
    trace = model.forward(w, D.X)
    R = model.R_forward(w, v, trace)
    steps, Rsteps = trace.layers[0], R.layers[0]
    (_, W, b, dense, _), (_, V, v_b, V_dense, _) = model.unpack(w), model.unpack(v)
    c = mean_weights(D, w.dtype)
    delta = nx.cross_entropy_slope(trace.z, D.y, c)
    Rdelta = nx.cross_entropy_curvature(trace.z, R.z, c)
    own = model.backward(w, trace, delta)[1][0]
    dh = model.unread(delta @ dense.mT, None)
    Rdh = model.unread(Rdelta @ dense.mT + delta @ V_dense.mT, None)
    return {
        "forward": (steps.x, W, b, None),
        "backward": (steps, W, dh, None),
        "R_forward": (steps, Rsteps.x, W, V, v_b, None),
        "R_backward": (steps, Rsteps, own, W, V, Rdh, None),
    }
