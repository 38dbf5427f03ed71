"""Cases drawn by Hypothesis: small numbers, and of all that fail the smallest, to compute by hand.

The specification answers each. A case counts if its answer is neither rounding alone nor close to a kink:
moved inputs must move it as little, and that measures how much it may differ.
"""

import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from fedref import strategies
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedprox import FedProx
from fedref.boundary.files import write_or_raise
from fedref.conformance import errata, serialise, suite
from fedref.judge import Case, answer, pose, trace
from fedref.judge.answer import VARIANTS
from fedref.strategies import Draw, Trace, arrays, is_clear

#: Variant of the meta-gradient → the names of its inputs.
INPUTS = {name: [*signature(f).parameters][2:] for name, f in VARIANTS.items()}
#: Function → the algorithms of its cases ("" for a derivative). The others need a run's state.
SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "loss": ("",), "grad": ("",), "hvp": ("",), "dissimilarity": ("",), "meta_gradient": tuple(INPUTS),
    "client": ("fedavg", "fedprox", "per-fedavg", "per-fedavg-fo", "per-fedavg-hf", "pfedme"),
    "round": tuple(n for n in ALGORITHMS if n not in ("fedavg-update", "fedavg-meta", "centralised")),
    "evaluate": ("fedavg", "fedavg-update", "per-fedavg", "fedmeta-maml", "fedmeta-sgd", "fedmaml",
                 "apfl", "apfl-deng", "pfedme"),
}  # fmt: skip
#: The outputs that every backend has.
STATE = {"w", "theta", "theta1", "alpha", "mu", "c", "h", "m", "v"}


def server_of(algorithm: Any, model: Any, w: Any) -> dict[str, Any]:
    """Return the server's state before round 0, by the names of cases."""
    return serialise.dump_state(serialise.initial_server(algorithm, model, w), np.float64)


def batch_of(D: Any) -> dict[str, Any]:
    return {name: x for name, x in D._asdict().items() if x is not None}


def algorithms(name: str, call: str) -> Any:
    """Draw an algorithm with the options that the protocol of backends has."""
    fixed: dict[str, Any] = {"until_gamma": 0.0} if name == "fedprox" else {}
    if name.startswith("per-fedavg") and call in ("round", "client"):
        fixed["inner_steps"] = 1
    drawn = strategies.algorithms(name, **fixed)
    return drawn.filter(lambda a: getattr(a, "inner_steps", 1) > 0)


@st.composite
def cases(draw: Draw, call: str, name: str) -> Case:
    """Draw a case of this function, of this algorithm, without outputs."""
    if call == "round":
        kind, how = algorithms(name, call), dict[str, Any]()
        if name == "fedprox" and draw(st.booleans()):  # μ falls when the loss fell five times
            mu = st.sampled_from((0.25, 0.05))
            kind = mu.map(lambda mu: FedProx(lr=0.5, mu=mu, adaptive_mu=True))
            how = {"clients": 1, "rounds": 8}
        return rounds(draw(strategies.traces(kind, **how)), name)
    model = draw(strategies.models())
    vector, D = arrays(model.d), strategies.batches(model).map(batch_of)
    w, inputs = draw(vector), dict[str, Any]()
    algorithm: Any = draw(algorithms(name, call)) if name in ALGORITHMS else None
    hyper = {} if algorithm is None else asdict(algorithm)
    if call == "meta_gradient":
        inputs = {x: draw(vector if x in ("w", "theta", "alpha") else D) for x in INPUTS[name]}
        if name == "per-fedavg-steps":
            hyper, n = asdict(draw(algorithms("per-fedavg", call))), draw(st.integers(2, 3))
            inputs |= {role: stack([draw(D) for _ in range(n)]) for role in ("D", "D2")}
    elif call in ("client", "evaluate"):
        inputs = {"server": server_of(algorithm, model, w)}
    if call == "client":
        data = draw(D)
        plan = draw(strategies.plans(algorithm.roles, [len(data["y"])]))
        inputs |= {"data": data, "rows": {role: x[0] for role, x in plan.rows.items()}}
    elif call == "evaluate":
        inputs["tests"] = draw(st.lists(D, min_size=1, max_size=2))
        units = sum(x.shape[-1] for x in model.unpack(w) if x.ndim > 1)
        if name == "apfl":
            inputs["client"] = {"a": draw(arrays(units)), "w_k": draw(vector)}
        elif name == "apfl-deng":
            inputs["client"] = {"v": draw(vector), "a": draw(arrays(1))[0]}
        elif name != "fedavg":
            inputs["D"] = draw(D)
    elif call == "dissimilarity":
        inputs = {"w": w, "clients": dict(enumerate(draw(st.lists(D, min_size=2, max_size=3))))}
    elif call != "meta_gradient":
        inputs = {"w": w, "D": batch_of(draw(strategies.batches(model, weights=True)))}
        inputs |= {"v": draw(vector)} if call == "hvp" else {}
    return pose(call, model, inputs, name, hyper)


def stack(parts: list[Any]) -> dict[str, Any]:
    """Return batches of one row each, stacked."""
    return {name: np.stack([D[name][:1] for D in parts]) for name in ("X", "y")}


def rounds(t: Trace, name: str) -> Case:
    """Return the rounds of a trace as a case; one in which nobody takes part tells no loss."""
    told = zip(t.plans, t.losses, t.rounds())
    plans = [p._asdict() | ({"loss": loss} if clients else {}) for p, loss, clients in told]
    state = {"server": server_of(t.algorithm, t.model, t.w)}
    data = {"X": t.X, "y": t.y, "offsets": t.offsets}
    inputs = {"state": state, "data": data, "plans": plans}
    return pose("round", t.model, inputs, name, asdict(t.algorithm))


def settle(case: Case) -> Case | None:
    """Return the case with the specification's answer, or None where that is no fair question."""
    fixed = "loss", ".s"  # a weight of 0 is no number to move
    move = {n: x + 1e-9 * np.cos(np.arange(x.size)).reshape(x.shape)
            for n, x in case.inputs.items() if x.dtype.kind == "f" and not n.endswith(fixed)}  # fmt: skip
    with np.errstate(all="ignore"):
        try:
            outputs, near = (
                {name: np.asarray(x) for name, x in answer(one).items()}
                for one in (case, case._replace(inputs=case.inputs | move))
            )
        except NotImplementedError:
            return None
    if case.call == "round":
        kept = [n for n in outputs if ".clients." in n]
        required = [n for n in outputs if ".server." in n and n.split(".")[-1] in STATE] + kept
        outputs = {n: outputs[n] for n in required}
    elif case.call == "evaluate":
        outputs = {"losses": outputs["losses"]}
    floats = [n for n, x in outputs.items() if x.dtype.kind == "f"]
    if not all(is_clear(outputs[n], least=1e-3) for n in floats):
        return None
    condition = max((suite.difference(near[n], outputs[n]) / 1e-9 for n in floats), default=1.0)
    if not condition < 1e4:
        return None
    units = 1e4 * max(condition, 1.0)
    tolerance = {name: units * float(np.finfo(name).eps) for name in ("float64", "float32")}
    tag = f"{case.algorithm} {case.call}".strip()
    return case._replace(
        name=f"drawn {tag}", tag=tag, outputs=outputs, required=tuple(outputs), tolerance=tolerance
    )


class Failure(NamedTuple):
    """The smallest case that fails, what was returned, and what is wrong with that."""

    case: Case
    outputs: Mapping[str, Any]
    said: str
    names: tuple[str, ...] = ()


def judge(backend: Any, case: Case, dtype: str) -> Failure | bool | None:
    """Return what is wrong with the backend's answer; False if the case does not count."""
    settled = settle(case)
    if settled is None:
        return False
    got = suite.call_safely(backend, settled, dtype)
    if not got.offered:
        return False
    if got.outputs is None:
        return Failure(settled, {}, got.error)
    wrong = suite.compare(got.outputs, settled, dtype)
    if wrong is None:
        return None
    off = f"off by {wrong.error:.2g}" if wrong.error is not None else ""
    return Failure(settled, got.outputs, f"{wrong.output} {wrong.reason or off}")


def search(
    backend: Any, draws: int, only: str = "", seed: int = 0, dtype: str = "float64"
) -> Iterator[tuple[str, int, Failure | None]]:
    """Yield for each function (its name, how many cases counted, the smallest that fails).

    The draws of a function are shared out over its algorithms. They go through all functions in three
    passes, of 5 %, 15 % and all of them: most mistakes show early. The search ends at the first failure.
    """
    for share in (0.05, 0.15, 1.0):
        for call, names in SUBJECTS.items():
            chosen = [name for name in names if only in f"{name} {call}"]
            counted = 0
            for name in chosen if callable(getattr(backend, call, None)) else ():
                each = math.ceil(share * draws / len(chosen))
                case, n = smallest(backend, call, name, each, seed, dtype)
                counted += n
                if case is not None:
                    found = judge(backend, case, dtype)
                    assert isinstance(found, Failure)
                    yield call, counted, found._replace(names=name_mistake(found))
                    return
            if counted and share == 1:
                yield call, counted, None


def smallest(
    backend: Any, call: str, name: str, draws: int, seed: int, dtype: str
) -> tuple[Case | None, int]:
    """Return the smallest case of a function and an algorithm that fails, and how many counted."""
    counted = 0

    def fails(case: Case) -> bool:
        nonlocal counted
        found = judge(backend, case, dtype)
        assume(found is not False)
        counted += 1
        return found is not None

    key = f"fedref {call} {name}".encode()
    return strategies.smallest(cases(call, name), fails, draws, seed, key), counted


def name_mistake(failure: Failure) -> tuple[str, ...]:
    """Return the known mistakes that answer as the backend did, at most three."""
    case, fits = failure.case, list[str]()
    for name in errata.MISTAKES:
        try:
            made = errata.answer(case, name)
        except Exception:  # a wrong line may do anything
            continue
        pairs = [(failure.outputs.get(n), made.get(n)) for n in case.required]
        if any(a is None or b is None or np.shape(a) != np.shape(b) for a, b in pairs):
            continue
        if all(suite.difference(np.asarray(a), np.asarray(b)) < 1e-8 for a, b in pairs):
            fits.append(name)
    return tuple(fits[:3])


# ---- by hand -------------------------------------------------------------------------------------

#: Inputs that no one needs to redo a case.
DULL = {
    "round",
    "amount",
    "sizes",
    "delta_mu",
    "delta_sigma",
    "length",
    "mean_old",
    "std_old",
    "peak",
}


def show(x: Any) -> str:
    """Return a value as a Python literal, six digits a number."""
    if isinstance(x, tuple | list):
        return f"({', '.join(map(show, x))})"
    text = np.array2string(np.asarray(x), precision=6, separator=", ", threshold=10_000)
    return " ".join(text.split())


def by_hand(failure: Failure) -> str:
    """Return a failure as text: inputs, the specification's lines with their values, both answers."""
    case = failure.case
    fields = {k: x for k, x in case.model.items() if k not in ("d", "shapes")}
    lines = [f"FAILED  {case.name}  {failure.said}", f"  model = {fields}  # d = {case.model['d']}"]
    lines += [f"  it is: {', or: '.join(failure.names)}"] if failure.names else []
    lines += [f"  hyper = {case.hyper}"] if case.hyper else []
    lines += [f"  {n} = {show(x)}" for n, x in case.inputs.items() if n.split(".")[-1] not in DULL]
    ran = trace(lambda: answer(case))
    if ran:
        lines.append("  fedref/spec.py computes")
    for line in ran:
        values = ", ".join(f"{n} = {show(x)}" for n, x in line.values.items())
        lines.append(f"    {line.number}: {line.text:<60}  {values}")
    for n in case.required:
        lines.append(f"  {n}: right {show(case.outputs[n])}, yours {show(failure.outputs.get(n))}")
    return "\n".join(lines)


TEST = '''
def test_drawn():
    """{said}"""
    from numpy import array, float64, int64, int32
    from fedref.conformance.backends import load_backend
    from fedref.conformance.suite import call_safely
    from fedref.judge import Case

    case = {case}
    got = call_safely(load_backend({backend!r}), case)
    assert not got.error, got.error
    for name in case.required:
        gap = abs(got.outputs[name] - case.outputs[name]).max()
        assert gap <= case.tolerance["float64"] * max(abs(case.outputs[name]).max(), 1e-3), name
'''


def save(failure: Failure, backend: str, path: Path) -> None:
    """Write a failure as a vector (PATH with .npz) and as a pytest function (PATH with .py)."""
    case, file = failure.case, io.BytesIO()
    arrays = {f"in.{n}": x for n, x in case.inputs.items()}
    named: Any = arrays | {f"out.{n}": x for n, x in case.outputs.items()}
    np.savez(file, **named)
    write_or_raise(path.with_suffix(".npz"), file.getvalue())
    text = TEST.format(said=failure.said, case=repr(case), backend=backend)
    write_or_raise(path.with_suffix(".py"), text.encode())
