"""Equations that fedref has no algorithm for, and what projects compute instead of a paper's.

Each function takes what a backend's call takes, and returns what it returns.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from fedref.conformance import serialise
from fedref.conformance.backends.reference import LOOP
from fedref.models.batch import Batch

Values = Mapping[str, Any]


def gradient_of(model: Values, data: Values) -> Any:
    """Return g(w, rows): the gradient of the mean loss on these rows, −1 = none."""
    grad = serialise.build_model(model).grad
    return lambda w, rows: grad(w, Batch(data["X"][rows[rows >= 0]], data["y"][rows[rows >= 0]]))


def client_data(data: Values, k: int) -> dict[str, Any]:
    """Return the rows of client k."""
    own = slice(*data["offsets"][k : k + 2])
    return {"X": data["X"][own], "y": data["y"][own]}


# ---- the papers' -------------------------------------------------------------------------------


def apfl(
    _: str, model: Values, hyper: Values, *, server: Values, data: Values, rows: Values,
    client: Values, twice: bool = False, moved: bool = False, factor: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Return a client's round of APFL (Deng et al., algorithm 1); α moves if hyper says `adaptive`.

    moved : v's gradient is taken at the mix with the w after its step; twice : w then makes the
    same step again; factor : v's gradient, of f(αv + (1 − α)w), has its factor α.
    """
    g, lr, w, v, a = gradient_of(model, data), hyper["lr"], server["w"], client["v"], client["a"]
    for D in rows["D"]:
        step = lr * g(w, D)
        start = w - step if moved else w
        at_mix = g(a * v + (1 - a) * start, D)
        slope = (v - start) @ at_mix
        w, v = w - (1 + twice) * step, v - lr * (a if factor else 1) * at_mix
        if hyper["adaptive"]:
            a = np.clip(a - lr * slope, 0, 1)
    return {"upload": {"w": w}, "client": {"v": v, "a": np.asarray(a)}}


def scaffold(
    _: str, model: Values, hyper: Values, state: Values, data: Values, plan: Values,
    kept: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Return a round of SCAFFOLD (Karimireddy et al., algorithm 1, option II); kept : the c_i."""
    x, lr = state["server"]["w"], hyper["lr"]
    c = state.get("c", np.zeros_like(x))
    mine = state.get("c_i", np.zeros((2, x.size))) if kept else np.zeros((2, x.size))
    y, after = [], []
    for k in range(2):
        g, w = gradient_of(model, client_data(data, k)), x
        for D in plan["rows"]["D"][k]:
            w = w - lr * (g(w, D) - mine[k] + c)
        y.append(w)
        after.append(mine[k] - c + (x - w) / (len(plan["rows"]["D"][k]) * lr))
    c = c + np.mean(after - mine, 0)
    return {"server": {"w": np.mean(y, 0)}, "c": c, "c_i": np.array(after)}


def feddyn(
    _: str, model: Values, hyper: Values, state: Values, data: Values, plan: Values,
    pull: float = 1, dual: float = 1, drift: float = 1,
) -> dict[str, Any]:  # fmt: skip
    """Return a round of FedDyn (Acar et al., algorithm 1), its minimisation by SGD.

    pull, dual : times αw − αθ, −∇L_k; drift : times the θ of its m clients that h takes off.
    """
    x, lr, a = state["server"]["w"], hyper["lr"], hyper["alpha"]
    h, dL = state.get("h", np.zeros_like(x)), state.get("dL", np.zeros((2, x.size)))
    found = []
    for k in range(2):
        g, w = gradient_of(model, client_data(data, k)), x
        for D in plan["rows"]["D"][k]:
            w = w - lr * (g(w, D) - dual * dL[k] + a * (pull * w - min(1, dual + pull) * x))
        found.append(w)
    h = h - a / 2 * (np.sum(found, 0) - drift * 2 * x)
    return {
        "server": {"w": np.mean(found, 0) - h / a},
        "h": h,
        "dL": dL - a * (np.array(found) - x),
    }


# ---- what projects compute ---------------------------------------------------------------------


def fedprox_after(
    _: str, model: Values, hyper: Values, *, server: Values, data: Values, rows: Values, sign: int,
) -> dict[str, Any]:  # fmt: skip
    """Return FedProx's client whose penalty moves w by itself, after each step of SGD."""
    g, lr, w = gradient_of(model, data), hyper["lr"], server["w"]
    for D in rows["D"]:
        w = w - lr * g(w, D)
        w = w - sign * lr * hyper["mu"] * (w - server["w"])
    return {"upload": {"w": w}}


def fedprox_overwritten(
    _: str, model: Values, hyper: Values, *, server: Values, data: Values, rows: Values
) -> dict[str, Any]:
    """Return FedProx's client whose anchor is replaced by each step's direction."""
    g, lr, w, anchor = gradient_of(model, data), hyper["lr"], server["w"], server["w"]
    for D in rows["D"]:
        anchor = hyper["mu"] * (w - anchor) + g(w, D)
        w = w - lr * anchor
    return {"upload": {"w": w}}


def apfl_stored(
    _: str, model: Values, hyper: Values, *, server: Values, data: Values, rows: Values,
    client: Values,
) -> dict[str, Any]:  # fmt: skip
    """Return a client that trains v by itself, moves α, and stores the mix as v after the round."""
    g, lr, w, v, a = gradient_of(model, data), hyper["lr"], server["w"], client["v"], client["a"]
    for D in rows["D"]:
        g_w, g_v = g(w, D), g(v, D)
        w, v = w - lr * g_w, v - lr * g_v
        slope = (v - w) @ (a * g_v + (1 - a) * g_w) + 0.02 * a
        a = np.clip(a - lr * slope, 0, 1)
    return {"upload": {"w": w}, "client": {"v": a * v + (1 - a) * w, "a": np.asarray(a)}}


def without_rows(fewer: Any) -> Any:
    """Return a client that leaves out the steps for whose numbers of rows `fewer` is true."""

    def client(name: str, model: Values, hyper: Values, *, rows: Values, **more: Any) -> Any:
        kept = {role: r[~fewer((r >= 0).sum(1))] for role, r in rows.items()}
        return LOOP.client(name, model, hyper, rows=kept, **more)

    return client


def same_rates(name: str, model: Values, hyper: Values, **inputs: Any) -> Any:
    """Return a client with one rate for both steps."""
    return LOOP.client(name, model, {**hyper, "beta": hyper["alpha"]}, **inputs)


def fresh_adam(name: str, model: Values, hyper: Values, server: Values, **inputs: Any) -> Any:
    """Return the server's step by an Adam without moments."""
    fresh = {key: np.zeros_like(x) for key, x in server.items() if key != "theta"}
    return LOOP.aggregate(name, model, hyper, server={**server, **fresh}, **inputs)


def first_order_sgd(_: str, model: Values, hyper: Values, **inputs: Any) -> dict[str, Any]:
    """Return first-order Meta-SGD's gradient of θ for both, θ and α."""
    g, lr = gradient_of(model, inputs["S"]), inputs["alpha"]
    theta = inputs["theta"] - lr * g(inputs["theta"], np.arange(len(inputs["S"]["y"])))
    q = gradient_of(model, inputs["Q"])(theta, np.arange(len(inputs["Q"]["y"])))
    return {"g_theta": q, "g_alpha": q}


def loop(name: str, call: str = "client") -> Any:
    """Return fedref's own call of another algorithm on the same inputs."""
    return lambda _, *more, **inputs: getattr(LOOP, call)(name, *more, **inputs)


#: What a difference may equal, by the name that projects.toml and the page give it.
EQUALS: dict[str, Any] = {
    "FedAvg": partial(fedprox_after, sign=0),
    "first-order MAML": loop("fedmeta-fomaml", "meta_gradient"),
    "FedProx with +μ instead of −μ, after the step": partial(fedprox_after, sign=-1),
    "FedProx with the penalty's step after SGD's": partial(fedprox_after, sign=1),
    "FedProx with the last step's direction for an anchor": fedprox_overwritten,
    "the same without steps on one row": without_rows(lambda count: count == 1),
    "the same with β = α": same_rates,
    "Adam that starts afresh every round": fresh_adam,
    "θ's first-order gradient in both": first_order_sgd,
    "APFL with v's gradient not multiplied by α": partial(apfl, factor=False),
    "APFL with two steps of w a batch": partial(apfl, twice=True, moved=True),
    "v trained alone, and mixed after the round": apfl_stored,
    "SCAFFOLD with c_i = 0": partial(scaffold, kept=False),
    "FedDyn without αw in the client's gradient": partial(feddyn, pull=0),
    "FedDyn whose clients are FedAvg's, and whose h takes off θ once": partial(
        feddyn, pull=0, dual=0, drift=0.5
    ),
}
PAPERS = {"apfl-deng": apfl, "scaffold": scaffold, "feddyn": feddyn}
