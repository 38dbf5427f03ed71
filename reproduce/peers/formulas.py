"""What projects compute instead of a paper's equation: backends, most of them fedref with an edit.

Each function takes what a backend's call takes, and returns what it returns.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from fedref.algorithms import apfl_deng, feddyn
from fedref.conformance import serialise
from fedref.conformance.backends.reference import LOOP
from fedref.conformance.edits import Edit, EditedReference
from fedref.conformance.mistakes import MISTAKES
from fedref.models.batch import Batch

Values = Mapping[str, Any]


def gradient_of(model: Values, data: Values) -> Any:
    """Return g(w, rows): the gradient of the mean loss on these rows, −1 = none."""
    grad = serialise.build_model(model).grad
    return lambda w, rows: grad(w, Batch(data["X"][rows[rows >= 0]], data["y"][rows[rows >= 0]]))


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


def loop(name: str, call: str = "client") -> Any:
    """Return fedref's own call of another algorithm on the same inputs."""
    return lambda _, *more, **inputs: getattr(LOOP, call)(name, *more, **inputs)


class OneFunction:
    """A backend with one function for whatever is called."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __getattr__(self, name: str) -> Any:
        return self.function


def with_mistakes(*names: str) -> EditedReference:
    """Return fedref with known mistakes."""
    return EditedReference(tuple(edit for name in names for edit in MISTAKES[name].edits))


#: APFL that takes w's step twice a batch, and v's gradient after the first of the two.
TWO_STEPS = EditedReference((
    Edit(
        apfl_deng.APFLDeng.step,
        "g_v, g_a = gradients(model, v, w, a, D)",
        "first = self.lr * model.grad(w, D)\ng_v, g_a = gradients(model, v, w - first, a, D)",
    ),
    Edit(apfl_deng.APFLDeng.step, "w = w - self.lr * model.grad(w, D)", "w = w - 2 * first"),
))  # fmt: skip
#: FedDyn whose clients take FedAvg's steps, and whose h takes off θ once, not once a client.
PLAIN_CLIENTS = EditedReference((
    Edit(feddyn.gradient, " - h_k + alpha * (w - w0)", ""),
    Edit(feddyn.FedDyn.combine, "- K * server.w", "- server.w"),
))  # fmt: skip

#: What a difference may equal, by the name that projects.toml and the page give it → a backend.
EQUALS: dict[str, Any] = {
    "FedAvg": OneFunction(partial(fedprox_after, sign=0)),
    "first-order MAML": OneFunction(loop("fedmeta-fomaml", "meta_gradient")),
    "FedProx with +μ instead of −μ, after the step": OneFunction(partial(fedprox_after, sign=-1)),
    "FedProx with the penalty's step after SGD's": OneFunction(partial(fedprox_after, sign=1)),
    "FedProx with the last step's direction for an anchor": OneFunction(fedprox_overwritten),
    "the same without steps on one row": OneFunction(without_rows(lambda count: count == 1)),
    "the same with β = α": OneFunction(same_rates),
    "Adam that starts afresh every round": with_mistakes(
        "the server's Adam starts afresh every round"
    ),
    "θ's first-order gradient in both": with_mistakes(
        "first order: the inner step's graph was cut", "the α-gradient is the θ-gradient"
    ),
    "APFL with v's gradient not multiplied by α": with_mistakes("Deng's APFL without the factor α"),
    "APFL with two steps of w a batch": TWO_STEPS,
    "v trained alone, and mixed after the round": OneFunction(apfl_stored),
    "SCAFFOLD with c_i = 0": with_mistakes("SCAFFOLD's c_i is never kept"),
    "FedDyn without αw in the client's gradient": with_mistakes("FedDyn's αθ is missing"),
    "FedDyn whose clients are FedAvg's, and whose h takes off θ once": PLAIN_CLIENTS,
}
