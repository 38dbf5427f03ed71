"""Make the golden vectors: `python -m fedref.conformance.make [DIR]`; the same bytes every time.

Every case is computed in float64 and, through the same code, in longdouble. The complex step of the
objective is a second witness of a gradient. With `--peers`, torch and JAX are two more, which share no
code with fedref; without it, the index keeps their digits for cases that have not changed.

README.md gets the protocol of backends from the docstring of `fedref.conformance`.
"""

import argparse
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fedref
from fedref import conformance
from fedref.algorithms import fedmaml, fedmeta, per_fedavg
from fedref.checks import complex_step_gradient
from fedref.conformance import serialise, suite, vectors
from fedref.conformance.backends import load_backend
from fedref.conformance.backends.reference import LOOP
from fedref.conformance.cases import SUBJECTS, all_cases, rng_of
from fedref.conformance.edits import Mistake, Swap
from fedref.conformance.mistakes import MISTAKES
from fedref.conformance.stand_ins import OtherPlan
from fedref.conformance.vectors import Case
from fedref.models.numerics import Array

#: The tolerance is this many times the measured effect of rounding: a backend may sum in other orders.
MARGIN = 32
NUDGE = 2.0**-30
#: A case catches a mistake that moves an output by more than this many tolerances.
CAUGHT = 100
PEERS = ("torch", "jax")


def compute(case: Case, dtype: Any) -> dict[str, Array]:
    """Return all outputs of fedref, computed in dtype."""
    outputs = suite.call_backend(LOOP, case, case.arguments(dtype))
    return {name: np.asarray(x) for name, x in outputs.items()}


def sort_outputs(case: Case, outputs: dict[str, Array]) -> dict[str, Array]:
    """Return a round's outputs with the uploads before the states that follow from them."""
    if case.call != "round":
        return outputs
    rank = {"p": 1, "uploads": 0, "clients": 2, "server": 3}

    def key(name: str) -> tuple[int, int]:
        t, what, *_ = name.split(".")
        return int(t), rank[what]

    return dict(sorted(outputs.items(), key=lambda item: key(item[0])))


def max_difference(a: Mapping[str, Array], b: Mapping[str, Array]) -> float:
    """Return the largest relative difference of two sets of outputs, numbers only."""
    return max(
        (suite.difference(x, b[name]) for name, x in a.items() if x.dtype.kind == "f"), default=0.0
    )


def perturb_inputs(case: Case, rng: np.random.Generator) -> Case:
    """Return the case with every floating-point input moved by a relative 2⁻³⁰."""

    def move(x: Array) -> Array:
        return x * (1 + NUDGE * rng.choice([-1.0, 1.0], x.shape)) if x.dtype.kind == "f" else x

    return case._replace(inputs={name: move(x) for name, x in case.inputs.items()})


def measure_condition(case: Case, exact: dict[str, Array]) -> float:
    """Return by how many units of rounding the outputs move, rounded up to a power of 2.

    It is the largest effect of two: moving the inputs by 2⁻³⁰, and computing in float64 or float32.
    """
    rng = rng_of(f"condition {case.name}")
    moved = [compute(perturb_inputs(case, rng), np.float64) for _ in range(3)]
    factors = [max_difference(outputs, case.outputs) / NUDGE for outputs in moved]
    for dtype in (np.float64, np.float32):
        factors.append(max_difference(compute(case, dtype), exact) / float(np.finfo(dtype).eps))
    return float(2 ** np.ceil(np.log2(max(1.0, *factors))))


def digits(error: float) -> int:
    """Return the decimal digits of agreement, 16 at most."""
    return 16 if error < 1e-16 else int(np.floor(-np.log10(error)))


def complex_step_outputs(case: Case) -> dict[str, Array]:
    """Return the required gradients as complex steps of their objective, where it is written out."""
    given, model, hyper = case.arguments(), serialise.build_model(case.model), case.hyper
    D: dict[str, Any] = {
        name: serialise.build_batch(x)
        for name, x in given.items()
        if isinstance(x, dict) and "X" in x
    }
    theta: Any = given.get("theta")
    alpha: Any = given.get("alpha", hyper.get("alpha"))
    steps = hyper.get("inner_steps", 1)

    def maml(theta: Array, alpha: Any) -> Array:
        return fedmeta.maml_objective(model, theta, D["S"], D["Q"], alpha=alpha, steps=steps)

    def fedmaml_objective(theta: Array) -> Array:
        return fedmaml.meta_objective(model, theta, **D, alpha=alpha, steps=steps)

    def slope(w: Array) -> Array:
        return (model.grad(w, D["D"]) * given["v"]).sum(-1)

    objectives: dict[str, Any] = {}  # output → (its objective, the point)
    if "kink" in case.name:  # no derivative from both sides
        return {}
    if case.call == "grad":
        objectives = {"g": (partial(model.loss, D=D["D"]), given["w"])}
    elif case.call == "hvp":
        objectives = {"Hv": (slope, given["w"])}
    elif case.name == "meta-per-fedavg-one-batch":
        F = partial(per_fedavg.meta_objective, model, D=D["D"], alpha=alpha)
        objectives = {"meta_gradient": (F, given["w"])}
    elif case.call == "meta_gradient" and case.algorithm == "fedmaml":
        objectives = {"g": (fedmaml_objective, theta)}
    elif case.call == "meta_gradient" and case.algorithm in ("fedmeta-maml", "fedmeta-sgd"):
        objectives = {"g_theta": (partial(maml, alpha=alpha), theta)}
        if case.algorithm == "fedmeta-sgd":
            objectives["g_alpha"] = partial(maml, theta), alpha
    return {name: complex_step_gradient(f, at) for name, (f, at) in objectives.items()}


def with_tolerance(case: Case) -> Case:
    """Return the case with its outputs, tolerance, digits, and the mistakes that it catches."""
    case = case._replace(outputs=sort_outputs(case, compute(case, np.float64)))
    exact = compute(case, np.longdouble)
    kappa = measure_condition(case, exact)
    tolerance = {
        name: float(f"{MARGIN * kappa * float(np.finfo(name).eps):.2g}") for name in vectors.DTYPES
    }
    agree = {"longdouble": digits(max_difference(case.outputs, exact))}
    stepped = complex_step_outputs(case)
    if stepped:
        agree["complex step"] = digits(max_difference(stepped, case.outputs))
    case = case._replace(tolerance=tolerance, condition=kappa, digits=agree)
    case = case._replace(tags=find_tags(case, executed_codes(case)))
    return case._replace(catches=find_catches(case))


#: An equation beside a line of code: "# [apfl eq.1] ...".
MARK = re.compile(r"# \[((?:[a-z]+-)*[A-Za-z]+ [^\]]+)\]")
PAPERS = tuple(sorted({tag.split()[0] for tag, _ in SUBJECTS.values()} | {"Adam"}))


def find_tags(case: Case, codes: set[Any]) -> tuple[str, ...]:
    """Return the case's equation, then the equations of all functions that fedref runs for it."""
    marks: set[str] = set()
    for code in codes:
        if "algorithm" in Path(code.co_filename).parts[-2:][0] + Path(code.co_filename).stem:
            marks |= set(MARK.findall("".join(inspect.getsourcelines(code)[0])))
    known = {mark for mark in marks if mark.split()[0] in PAPERS}
    return case.tag, *sorted(known - {case.tag})


def executed_codes(case: Case) -> set[Any]:
    """Return the code of every Python function that fedref runs for a case."""
    codes: set[Any] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        compute(case, np.float64)
    finally:
        sys.setprofile(None)
    return codes


def may_matter(mistake: Mistake, case: Case, codes: set[Any]) -> bool:
    """Return whether a mistake can change a case at all: most cannot, and need not be tried."""
    backend = mistake.backend
    if type(backend) is OtherPlan:
        return case.call in ("client", "round")
    if mistake.stand_in is not None:
        return True
    return any(
        isinstance(edit, Swap) or inspect.unwrap(edit.function).__code__ in codes
        for edit in mistake.edits
    )


def find_catches(case: Case) -> tuple[str, ...]:
    """Return the names of the known mistakes that the case catches."""
    codes = executed_codes(case)
    caught = (name for name in MISTAKES if may_matter(MISTAKES[name], case, codes))
    return tuple(name for name in caught if catches_mistake(case, name))


def catches_mistake(case: Case, name: str) -> bool:
    """Return whether a known mistake moves a required output by more than 100 tolerances."""
    outputs = suite.arrays_of(MISTAKES[name].backend, case)
    required = tuple(key for key in case.required if key in outputs)
    wide = {"float64": CAUGHT * case.tolerance["float64"]}
    return suite.compare(outputs, case._replace(tolerance=wide, required=required)) is not None


def with_peer_digits(case: Case, name: str) -> Case:
    """Return the case with the digits to which that backend agrees."""
    outputs = suite.arrays_of(load_backend(name), case)
    known = {key: x for key, x in outputs.items() if key in case.outputs}
    if not known:
        return case
    return case._replace(digits={**case.digits, name: digits(max_difference(known, case.outputs))})


def keep_peer_digits(cases: list[Case], where: Path) -> Iterator[Case]:
    """Yield the cases with the index's digits of torch and JAX, where the cases are the same."""
    known: dict[str, Any] = {}
    if (where / "index.json").exists():
        index = json.loads((where / "index.json").read_text("utf-8"))
        known = {entry["name"]: entry for entry in index["cases"]}
    for case in cases:
        old = known.get(case.name, {"digits": {}, "sha256": ""})
        same = old["sha256"] == vectors.index_entry(case, vectors.case_bytes(case))["sha256"]
        agree = {k: n for k, n in old["digits"].items() if k in PEERS and same}
        yield case._replace(digits={**case.digits, **agree})


# ---- README.md -----------------------------------------------------------------------------------


def update_readme(text: str) -> str:
    """Return the text of README.md with the protocol of backends between its two comments."""
    protocol = (conformance.__doc__ or "").partition("**A backend**")
    start, end = "<!-- protocol -->\n", "\n<!-- end of protocol -->"
    before, _, rest = text.partition(start)
    part = f"```text\n{''.join(protocol[1:]).strip()}\n```"
    return before + start + part + end + rest.partition(end)[2]


ARCHIVE = f"fedref-vectors-{vectors.VERSION}.zip"


def describe_mistakes() -> list[dict[str, str]]:
    """Return the index's entries for the known mistakes."""
    fields = ("tag", "kind", "line", "effect")
    return [
        {"name": name, **{field: getattr(row, field) for field in fields}}
        for name, row in MISTAKES.items()
    ]


def read_commit(where: Path) -> str:
    """Return the commit that the vectors are made at; outside a checkout, what the index says."""
    found = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"], capture_output=True, text=True
    )  # fmt: skip
    if not found.returncode:
        return found.stdout.strip()
    index = where / "index.json"
    return json.loads(index.read_text("utf-8")).get("commit", "") if index.exists() else ""


def main() -> None:
    """Make the vectors, or measure peers against them."""
    parser = argparse.ArgumentParser(description="Make the golden vectors.")
    parser.add_argument("to", nargs="?", type=Path, default=vectors.folder())
    parser.add_argument(
        "--zip", action="store_true", help=f"only pack the existing vectors into {ARCHIVE}"
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=PEERS,
        default=[],
        help="only measure to how many digits these libraries agree",
    )
    given = parser.parse_args()
    if given.zip:
        licence = Path(fedref.__file__).parents[1] / "LICENSE"
        Path(ARCHIVE).write_bytes(vectors.pack_release(given.to, licence))
        print(ARCHIVE)
        return
    if given.peers:
        cases = vectors.read(given.to)
        for name in given.peers:
            cases = [with_peer_digits(case, name) for case in cases]
    else:
        cases = list(keep_peer_digits([with_tolerance(case) for case in all_cases()], given.to))
    vectors.write(cases, given.to, describe_mistakes(), read_commit(given.to))
    readme = given.to / "README.md"
    if readme.exists():
        readme.write_text(update_readme(readme.read_text("utf-8")), "utf-8")
    size = sum(path.stat().st_size for path in given.to.glob("*.*"))
    print(f"{len(cases)} cases, {size / 1e6:.2f} MB, in {given.to}")


if __name__ == "__main__":
    main()
