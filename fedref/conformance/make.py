"""Make the golden vectors: `python -m fedref.conformance.make [DIR]`; the same bytes every time.

Every case is computed in float64 and, through the same code, in longdouble; where a gradient is asked
for, the complex step of its objective is a second witness. With `--peers`, torch and JAX are two
more (they share no code with fedref); without it, what the index says of them stays, as long as the
case has not changed.
"""

import argparse
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedref.algorithms import fedmaml, fedmeta, per_fedavg
from fedref.checks import complex_step_gradient
from fedref.conformance import serialise, suite, vectors
from fedref.conformance.backends import load_backend
from fedref.conformance.backends.reference import LOOP
from fedref.conformance.cases import all_cases, rng_of
from fedref.conformance.mistakes import MISTAKES
from fedref.conformance.vectors import Case
from fedref.models.numerics import Array

#: A backend may sum in another order, a few times over: 32 times what rounding moves the outputs by.
MARGIN = 32
NUDGE = 2.0**-30
#: A mistake counts as caught where it moves an output by more than so many tolerances.
CAUGHT = 100
PEERS = ("torch", "jax")


def compute(case: Case, dtype: Any) -> dict[str, Array]:
    """Return all outputs of fedref, computed in dtype."""
    outputs = suite.call_backend(LOOP, case, case.arguments(dtype))
    return {name: np.asarray(x) for name, x in outputs.items()}


def sort_outputs(case: Case, outputs: dict[str, Array]) -> dict[str, Array]:
    """Return a round's outputs with what was sent before what became of it."""
    if case.call != "round":
        return outputs
    rank = {"p": 1, "uploads": 0, "clients": 2, "server": 3}

    def key(name: str) -> tuple[int, int]:
        t, what, *_ = name.split(".")
        return int(t), rank[what]

    return dict(sorted(outputs.items(), key=lambda item: key(item[0])))


def max_difference(a: dict[str, Array], b: dict[str, Array]) -> float:
    """Return the largest relative difference of two sets of outputs, numbers only."""
    return max(
        (suite.difference(x, b[name]) for name, x in a.items() if x.dtype.kind == "f"), default=0.0
    )


def perturbed(case: Case, rng: np.random.Generator) -> Case:
    """Return the case with every floating-point input moved by a relative 2⁻³⁰."""

    def move(x: Array) -> Array:
        return x * (1 + NUDGE * rng.choice([-1.0, 1.0], x.shape)) if x.dtype.kind == "f" else x

    return case._replace(inputs={name: move(x) for name, x in case.inputs.items()})


def measure_condition(case: Case, exact: dict[str, Array]) -> float:
    """Return by how many units of rounding the outputs move, rounded up to a power of 2.

    The largest of what inputs moved by 2⁻³⁰ do, and of what float64 and float32 themselves lose.
    """
    rng = rng_of(f"condition {case.name}")
    moved = [compute(perturbed(case, rng), np.float64) for _ in range(3)]
    factors = [max_difference(outputs, case.outputs) / NUDGE for outputs in moved]
    for dtype in (np.float64, np.float32):
        factors.append(max_difference(compute(case, dtype), exact) / float(np.finfo(dtype).eps))
    return float(2 ** np.ceil(np.log2(max(1.0, *factors))))


def digits(error: float) -> int:
    """Return the decimal digits of agreement, 16 at most."""
    return 16 if error < 1e-16 else int(np.floor(-np.log10(error)))


def by_complex_step(case: Case) -> dict[str, Array] | None:
    """Return the required gradient as the complex step of its objective, where it has one."""
    given, model, hyper = case.arguments(), serialise.build_model(case.model), case.hyper
    D: dict[str, Any] = {
        name: serialise.build_batch(x)
        for name, x in given.items()
        if isinstance(x, dict) and "X" in x
    }
    if case.call == "grad":
        return {"g": complex_step_gradient(partial(model.loss, D=D["D"]), given["w"])}
    if case.call == "hvp":

        def slope(w: Array) -> Array:
            return (model.grad(w, D["D"]) * given["v"]).sum(-1)

        return {"Hv": complex_step_gradient(slope, given["w"])}
    if case.name == "meta-per-fedavg-one-batch":
        F = partial(per_fedavg.meta_objective, model, D=D["D"], alpha=hyper["alpha"])
        return {"meta_gradient": complex_step_gradient(F, given["w"])}
    steps = hyper.get("inner_steps", 1)
    if case.call != "meta_gradient":
        return None
    if case.algorithm == "fedmaml":
        F = partial(
            fedmaml.meta_objective, model, tr=D["tr"], val=D["val"], alpha=hyper["alpha"],
            steps=steps,
        )  # fmt: skip
        return {"g": complex_step_gradient(F, given["theta"])}
    if case.algorithm in ("fedmeta-maml", "fedmeta-sgd"):
        alpha = given.get("alpha", hyper["alpha"])

        def objective(theta: Array, alpha: Any) -> Array:
            return fedmeta.maml_objective(
                model, theta, D["S"], D["Q"], alpha=alpha, steps=steps
            )  # fmt: skip

        out = {"g_theta": complex_step_gradient(partial(objective, alpha=alpha), given["theta"])}
        if case.algorithm == "fedmeta-sgd":
            out["g_alpha"] = complex_step_gradient(partial(objective, given["theta"]), alpha)
        return out
    return None


def with_tolerance(case: Case) -> Case:
    """Return the case with its outputs, tolerance, witnesses, and what it catches."""
    case = case._replace(outputs=sort_outputs(case, compute(case, np.float64)))
    exact = compute(case, np.longdouble)
    kappa = measure_condition(case, exact)
    tolerance = {
        name: float(f"{MARGIN * kappa * float(np.finfo(name).eps):.2g}") for name in vectors.DTYPES
    }
    agree = {"longdouble": digits(max_difference(case.outputs, exact))}
    stepped = by_complex_step(case)
    if stepped:
        agree["complex step"] = digits(max_difference(stepped, case.outputs))
    case = case._replace(tolerance=tolerance, condition=kappa, digits=agree)
    return case._replace(catches=tuple(name for name in MISTAKES if caught(case, name)))


def caught(case: Case, name: str) -> bool:
    """Return whether a known mistake moves a required output by more than 100 tolerances."""
    reply = suite.call_safely(MISTAKES[name].backend, case)
    if reply is None or reply.outputs is None:
        return False
    wide = case._replace(tolerance={"float64": CAUGHT * case.tolerance["float64"]})
    told = {key: np.asarray(x) for key, x in reply.outputs.items()}
    required = tuple(key for key in case.required if key in told)
    return suite.compare(told, wide._replace(required=required)) is not None


def with_peer_digits(case: Case, name: str) -> Case:
    """Return the case with the digits to which that backend agrees."""
    reply = suite.call_safely(load_backend(name), case)
    if reply is None or reply.outputs is None:
        return case
    told = {k: np.asarray(x) for k, x in reply.outputs.items() if k in case.outputs}
    return case._replace(digits={**case.digits, name: digits(max_difference(told, case.outputs))})


def keep_peer_digits(cases: list[Case], where: Path) -> Iterator[Case]:
    """Yield the cases with what the index already says of torch and JAX, where they are the same."""
    known: dict[str, Any] = {}
    if (where / "index.json").exists():
        index = json.loads((where / "index.json").read_text("utf-8"))
        known = {said["name"]: said for said in index["cases"]}
    for case in cases:
        said = known.get(case.name)
        same = said and said["sha256"] == vectors.entry(case, vectors.content(case))["sha256"]
        agree = {k: n for k, n in said["digits"].items() if k in PEERS} if said and same else {}
        yield case._replace(digits={**case.digits, **agree})


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the golden vectors.")
    parser.add_argument("to", nargs="?", type=Path, default=vectors.folder())
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=[], help="only ask these")
    given = parser.parse_args()
    if given.peers:
        cases = vectors.read(given.to)
        for name in given.peers:
            cases = [with_peer_digits(case, name) for case in cases]
    else:
        cases = list(keep_peer_digits([with_tolerance(case) for case in all_cases()], given.to))
    vectors.write(cases, given.to)
    size = sum(path.stat().st_size for path in given.to.glob("*.*"))
    print(f"{len(cases)} cases, {size / 1e6:.2f} MB, in {given.to}")


if __name__ == "__main__":
    main()
