"""Wrong backends whose mistake is in no line of fedref: other plans, models and starts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedref.conformance.backends.reference import Reference, Values
from fedref.models import base
from fedref.models import numerics as nx
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.loop import run_clients

# ---- other plans -------------------------------------------------------------------------------


@dataclass(frozen=True)
class OtherPlan(Reference):
    """fedref with another Plan. change : (hyper, plan) → the fields that differ."""

    change: Callable[[Values, Values], Values] = lambda hyper, plan: {}

    def plan_of(self, algorithm: str, hyper: Values, plan: Values) -> Values:
        return {**plan, **self.change(hyper, plan)}

    def client(
        self, algorithm: str, model: Values, hyper: Values, server: Values, data: Values,
        rows: Values, client: Values | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        n, steps = len(data["y"]), len(next(iter(rows.values())))
        one: dict[str, Any] = {"rows": {role: x[None] for role, x in rows.items()}}
        one |= {"sizes": np.array([n]), "steps": np.array([steps]), "straggler": np.array([False])}
        one |= {"per_epoch": np.array([-(-n // hyper["B"]) if "D" in rows else 1])}
        other = self.plan_of(algorithm, hyper, one)
        rows = {role: x[0, : int(other["steps"][0])] for role, x in other["rows"].items()}
        return Reference.client(self, algorithm, model, hyper, server, data, rows, client)


def most_steps(plan: Values) -> int:
    """Return the number of lines of steps that the plan has for each client."""
    return int(next(iter(plan["rows"].values())).shape[1])


def take_steps(plan: Values, order: Array) -> dict[str, Array]:
    """Return the plan's rows in another order of steps (K, S)."""
    return {r: np.take_along_axis(x, order[..., None], 1) for r, x in plan["rows"].items()}


def keep_steps(kept: Callable[[Array, int, Array], Array]) -> Any:
    """Return a plan's change: some steps are left out. kept : n (K, 1), B, rows (K, S) → which stay."""

    def of_plan(hyper: Values, plan: Values) -> Values:
        if "D" not in plan["rows"]:  # episodes: not batches of B
            return {}
        count = (plan["rows"]["D"] >= 0).sum(-1)
        real = np.arange(count.shape[1]) < plan["steps"][:, None]
        chosen = real & kept(plan["sizes"][:, None], hyper["B"], count)
        order = np.argsort(~chosen, axis=1, kind="stable")
        return {"steps": chosen.sum(1), "rows": take_steps(plan, order)}

    return of_plan


def use_previous_clients_steps(hyper: Values, plan: Values) -> Values:
    """Turn a straggler's epochs into steps by the size of the client before it."""
    if not plan["straggler"].any():
        return {}
    before = np.roll(plan["per_epoch"], 1)
    steps = np.where(plan["straggler"], plan["amount"] * before, plan["steps"])
    return {"steps": np.minimum(steps, most_steps(plan))}


def use_one_iterator(hyper: Values, plan: Values) -> Values:
    """Use the rows of D for D′ and D″."""
    rows = plan["rows"]
    return {"rows": dict.fromkeys(rows, rows["D"])} if "D1" in rows else {}


@dataclass(frozen=True)
class OneIterator(OtherPlan):
    """fedref with D in the place of D′ and D″, in every call."""

    change: Callable[[Values, Values], Values] = use_one_iterator

    def meta_gradient(self, variant: str, *args: Any, **inputs: Any) -> Any:
        if "D1" in inputs and inputs["D"]["y"].ndim == 1:
            inputs |= {name: inputs["D"] for name in ("D1", "D2") if name in inputs}
        return Reference.meta_gradient(self, variant, *args, **inputs)


def change_rows(change: Callable[[Array, Array], Array]) -> Any:
    """Return a plan's change. change : a role's rows (K, S, W) and n (K, 1, 1) → other rows."""

    def of_plan(hyper: Values, plan: Values) -> Values:
        n = plan["sizes"][:, None, None]
        return {"rows": {role: change(x, n) for role, x in plan["rows"].items()}}

    return of_plan


def repeat_the_first_epoch(hyper: Values, plan: Values) -> Values:
    """Use the first epoch's permutation in every epoch."""
    steps = np.arange(most_steps(plan)) % plan["per_epoch"][:, None]
    return {} if "S" in plan["rows"] else {"rows": take_steps(plan, steps)}


def cycle_all_steps(hyper: Values, plan: Values) -> Values:
    """Let every straggler do as many steps as the plan has, repeating its own batches."""
    if not plan["straggler"].any():
        return {}
    full = np.where(plan["straggler"], most_steps(plan), plan["steps"])
    steps = np.arange(most_steps(plan)) % np.maximum(plan["steps"], 1)[:, None]
    return {"steps": full, "rows": take_steps(plan, steps)}


def take_padded_steps(hyper: Values, plan: Values) -> Values:
    """Take as many steps as the plan has lines, for everybody."""
    return {"steps": np.full_like(plan["steps"], most_steps(plan))}


def take_one_epoch(hyper: Values, plan: Values) -> Values:
    """Stop after the first epoch."""
    return {"steps": np.minimum(plan["steps"], plan["per_epoch"])} if "D" in plan["rows"] else {}


def leave_out_a_step(hyper: Values, plan: Values) -> Values:
    """Leave out everybody's last step."""
    return {"steps": np.maximum(plan["steps"] - 1, 0)}


def reverse_steps(hyper: Values, plan: Values) -> Values:
    """Take everybody's steps in the reverse order."""
    step, taken = np.arange(most_steps(plan)), plan["steps"][:, None]
    return {"rows": take_steps(plan, np.where(step < taken, taken - 1 - step, step))}


def use_whole_data(hyper: Values, plan: Values) -> Values:
    """Take every step on all rows of the client."""
    if "D" not in plan["rows"]:
        return {}
    most = np.arange(int(plan["sizes"].max()))
    row = np.where(most < plan["sizes"][:, None], most, -1)[:, None]
    return {"rows": {role: np.repeat(row, most_steps(plan), 1) for role in plan["rows"]}}


# ---- other models ------------------------------------------------------------------------------


@dataclass(frozen=True)
class OtherModel(Reference):
    """fedref with some of the model's methods replaced. change : model → the methods by name."""

    change: Callable[[Any], dict[str, Any]] = lambda model: {}

    def model_of(self, model: Values) -> Any:
        right = Reference.model_of(self, model)
        return replace_methods(right, self.change(right))


def replace_methods(model: Any, methods: dict[str, Any]) -> Any:
    """Return the model with some of its methods replaced."""
    other: Any = object.__new__(type("Other", (type(model),), methods))
    other.__dict__.update(vars(model))
    return other


def take_softmax_twice(model: Any) -> dict[str, Any]:
    """Return methods of a model whose logits are turned into probabilities, and these once more."""
    if not isinstance(model, base.SoftmaxLogits):
        return {}

    def grad(self: Any, w: Array, D: Batch) -> Array:
        p = nx.softmax(self.logits(w, D.X))
        r = nx.cross_entropy_slope(p, D.y, base.mean_weights(D, p.dtype))
        return self.vjp(w, D.X, p * (r - (p * r).sum(-1, keepdims=True))) + self.l2 * w

    def loss_of(self: Any, z: Array, y: Array) -> Array:
        return nx.cross_entropy(nx.softmax(z), y)

    return {"loss_of": loss_of, "grad": grad, "hvp": base.Model.hvp}


def spare_the_biases(model: Any) -> dict[str, Any]:
    """Return methods whose L2 term leaves out the biases."""
    weight = np.concatenate([np.full(np.prod(s), len(s) > 1) for s in model.shapes])
    return scale_penalty(weight, weight, weight)(model)


def scale_penalty(value: Any, slope: Any, curvature: Any) -> Any:
    """Return a model's change: the L2 term's weights in the value, the gradient and the Hessian."""

    def change(model: Any) -> dict[str, Any]:
        kind, l2 = type(model), model.l2

        def penalty(factor: Any, w: Array) -> Array:
            return (l2 * (factor - 1.0) * w).astype(w.dtype)

        return {
            "loss": lambda self, w, D: kind.loss(self, w, D) + (penalty(value, w) * w / 2).sum(-1),
            "grad": lambda self, w, D: kind.grad(self, w, D) + penalty(slope, w),
            "hvp": lambda self, w, v, D: kind.hvp(self, w, v, D) + penalty(curvature, v),
        }

    return change


def reorder_parameters(part: Callable[[Array, Any, int], Array]) -> Any:
    """Return a model's change: it reads w in another order, for networks of layers.

    part : (the positions in w of the i-th array, the model, i) → the positions to read instead.
    """

    def change(model: Any) -> dict[str, Any]:
        kind, at = type(model), order_of(model, part)
        back = np.argsort(at)
        methods = {
            "logits": lambda self, w, X: kind.logits(self, w[..., at], X),
            "vjp": lambda self, w, X, r: kind.vjp(self, w[..., at], X, r)[..., back],
            "grad": lambda self, w, D: kind.grad(self, w[..., at], D)[..., back],
            "hvp": lambda self, w, v, D: kind.hvp(self, w[..., at], v[..., at], D)[..., back],
        }
        if len(model.shapes) <= 2:  # one layer: its gradient is made of logits and vjp
            return {name: methods[name] for name in ("logits", "vjp")}
        return methods

    return change


def order_of(model: Any, change: Callable[[Array, Any, int], Array]) -> Array:
    """Return the order in which w is read: the positions of each array, reordered by `change`."""
    views = model.unpack(np.arange(model.d))
    return np.concatenate([change(x, model, i).ravel() for i, x in enumerate(views)])


def gates(order: str) -> Any:
    """Return a model's change: the LSTM's gates in this order, e.g. "igfo"."""

    def part(x: Array, model: Any, i: int) -> Array:
        if type(model).__name__ != "LSTM" or i == 0 or i >= len(model.shapes) - 2:
            return x
        cut = np.split(x, 4, -1)
        return np.concatenate([cut[order.index(gate)] for gate in "ifgo"], -1)

    return reorder_parameters(part)


def reorder_arrays(ndim: int, order: Callable[[Array], Array]) -> Any:
    """Return a model's change: it reads its kernels (ndim 4) or dense weights (2) in another order."""
    return reorder_parameters(lambda x, model, i: order(x) if x.ndim == ndim else x)


def flatten_channels_first(x: Array, model: Any, i: int) -> Array:
    """Return the positions of the first dense weight after an image that is flattened (C, h, w)."""
    if type(model).__name__ != "CNN" or i != 2 * len(model.channels):
        return x
    h, w, C = model.grids[-1].after
    return x.reshape(C, h, w, -1).transpose(1, 2, 0, 3)


def reorder_pixels(*axes: int) -> Any:
    """Return a model's change: images are laid out with these axes of (H, W, channels), in order."""

    def change(model: Any) -> dict[str, Any]:
        kind = type(model)
        if kind.__name__ != "CNN":
            return {}
        x = np.arange(np.prod(model.pixels)).reshape([model.pixels[axis] for axis in axes])
        at = x.transpose(np.argsort(axes)).ravel()
        return {"forward": lambda self, w, X: kind.forward(self, w, X[..., at])}

    return change


# ---- other states ------------------------------------------------------------------------------


def run_leaking(change: Callable[[Any, Any, Any], tuple[Any, Any]]) -> Any:
    """Return a round's `work` in which a client's (sent, state) depend on the previous result."""

    def work(it: Any, model: Any, sent: Any, states: Any, data: Any) -> Any:
        results: list[Any] = []
        for k, own in enumerate(states):
            if results:
                sent, own = change(sent, own, results[-1])
            done, counts = run_clients(it, model, sent, [own], data.subset([k]), stack=False)
            results += done
        return results, counts

    return work


def leak_model(sent: Any, own: Any, before: Any) -> tuple[Any, Any]:
    """Start from where the previous client ended."""
    x = before.upload
    return (sent._replace(w=x) if isinstance(x, np.ndarray) else sent), own


def leak_state(sent: Any, own: Any, before: Any) -> tuple[Any, Any]:
    """Give a client the state of the previous client."""
    return sent, before.client_state
