"""Wrong backends whose mistake is in no line of fedref: other plans."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedref.conformance.backends.reference import Reference, Values
from fedref.models.numerics import Array

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
