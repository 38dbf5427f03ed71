"""Cases drawn by Hypothesis: small numbers, and of all that fail the smallest, to compute by hand.

The specification answers each. Where a backend answers otherwise, the case counts if its answer is neither
rounding alone nor close to a kink: moved inputs must move it as little, and that measures how much it may
differ.
"""

import io
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from fedref import strategies  # first: it says so if Hypothesis is missing

# isort: split
from hypothesis import reject
from hypothesis import strategies as st

from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedmeta import MetaSGD
from fedref.algorithms.fedprox import FedProx
from fedref.boundary.errors import ConfigError
from fedref.boundary.files import write_or_raise
from fedref.conformance import naming, report, serialise, suite
from fedref.conformance.backends.reference import LOOP
from fedref.judge import Case, answer, make_case, trace
from fedref.judge.answer import INPUTS, try_answer
from fedref.judge.compare import FEW_DIGITS, KINK, difference, is_clear, is_convention, tolerance
from fedref.strategies import Draw, Trace, arrays

#: Function → the algorithms of its cases ("" for a derivative). The others need a run's state.
SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "loss": ("",), "grad": ("",), "hvp": ("",), "dissimilarity": ("",), "meta_gradient": tuple(INPUTS),
    "client": ("fedavg", "fedprox", "per-fedavg", "per-fedavg-fo", "per-fedavg-hf", "pfedme"),
    "round": tuple(n for n in ALGORITHMS if n not in ("fedavg-update", "fedavg-meta", "centralised")),
    "evaluate": ("fedavg", "fedavg-update", "per-fedavg", "fedmeta-maml", "fedmeta-sgd", "fedmaml",
                 "apfl", "apfl-deng", "pfedme"),
}  # fmt: skip
#: Functions take turns: their shares of the draws, and those of rounds, which have the most to show.
SHARES_OF_DRAWS = (0.05, 0.1), (0.15, 0.4), (0.8, 0.5)
EPS = float(np.finfo(float).eps)
#: For how many seconds a failure is made smaller.
SHRINK = 2.0
#: Models of algorithms' cases. Derivatives are drawn of all models: an algorithm asks for nothing else.
MODELS: tuple[str, ...] = "binary-logistic", "logistic", "svm", "mlp"


def algorithms(name: str, call: str) -> Any:
    """Draw an algorithm with the options that the protocol of backends has."""
    fixed: dict[str, Any] = {}
    if name == "fedprox":
        fixed = {"until_gamma": 0.0, **({"adaptive_mu": False} if call == "round" else {})}
    drawn = strategies.algorithms(name, **fixed)
    return drawn.filter(lambda a: getattr(a, "inner_steps", 1) > 0)


def server_of(draw: Draw, algorithm: Any, model: Any) -> dict[str, Any]:
    """Draw the server's state in the middle of a run, by the names of cases; its vectors are any."""
    start = serialise.initial_server(algorithm, model, np.zeros(model.d))
    state = serialise.dump_state(start, np.float64)
    state = {n: draw(arrays(model.d)) if x.shape == (model.d,) else x for n, x in state.items()}
    return state | learned(draw, algorithm, model)


def learned(draw: Draw, algorithm: Any, model: Any) -> dict[str, Any]:
    """Draw what the server has learned or adapted so far: Meta-SGD's α, of which no two entries need be
    equal, and FedProx's μ."""
    if getattr(algorithm, "adaptive_mu", False):
        return {"mu": np.array(draw(st.sampled_from((*strategies.RATES, 0.05))))}
    return {"alpha": draw(arrays(model.d))} if isinstance(algorithm, MetaSGD) else {}


def batch_of(D: Any) -> dict[str, Any]:
    return {name: x for name, x in D._asdict().items() if x is not None}


@st.composite
def cases(draw: Draw, call: str, name: str) -> Case:
    """Draw a case of this function, of this algorithm, without outputs."""
    if call == "round":
        t = draw(traces(name))
        case, own = case_of(t, name), learned(draw, t.algorithm, t.model)
        return case._replace(inputs=case.inputs | {f"state.server.{n}": x for n, x in own.items()})
    model = draw(strategies.models(*(MODELS if name else ())))
    vector, D = arrays(model.d), strategies.batches(model).map(batch_of)
    w, inputs = draw(vector), dict[str, Any]()
    algorithm: Any = draw(algorithms(name.removesuffix("-steps"), call)) if name else None
    if call == "meta_gradient":
        inputs = {x: draw(vector if x in ("w", "theta", "alpha") else D) for x in INPUTS[name]}
        if name.endswith("-steps"):  # a stack of batches
            one, n = strategies.batches(model, most=1), draw(st.integers(2, 3))
            for role in ("D", "D2"):
                X, y, _ = zip(*(draw(one) for _ in range(n)))
                inputs[role] = {"X": np.stack(X), "y": np.stack(y)}
    elif call == "client":
        data = draw(D)
        plan = draw(strategies.plans(algorithm.roles, [len(data["y"])]))
        rows = {role: x[0] for role, x in plan.rows.items()}
        inputs = {"server": server_of(draw, algorithm, model), "data": data, "rows": rows}
    elif call == "evaluate":
        tests = draw(st.lists(D, min_size=1, max_size=2))
        inputs = {"server": server_of(draw, algorithm, model), "tests": tests}
        units = sum(x.shape[-1] for x in model.unpack(w) if x.ndim > 1)
        if name == "apfl":
            inputs["client"] = {"a": draw(arrays(units)), "w_k": draw(vector)}
        elif name == "apfl-deng":
            inputs["client"] = {"v": draw(vector), "a": draw(arrays(1))[0]}
        elif name != "fedavg":
            inputs["D"] = draw(D)
    elif call == "dissimilarity":
        inputs = {"w": w, "clients": dict(enumerate(draw(st.lists(D, min_size=2, max_size=3))))}
    else:
        inputs = {"w": w, "D": batch_of(draw(strategies.batches(model, weights=True)))}
        inputs |= {"v": draw(vector)} if call == "hvp" else {}
    return make_case(call, model, inputs, name, asdict(algorithm) if algorithm else {})


@st.composite
def traces(draw: Draw, name: str) -> Trace:
    """Draw some rounds of an algorithm, on kinks too."""
    kind, families, how = algorithms(name, "round"), MODELS, dict[str, Any]()
    if name == "fedprox" and draw(st.booleans()):  # μ falls when the loss fell five times
        mu = st.sampled_from((0.25, 0.05))
        kind = mu.map(lambda mu: FedProx(lr=0.5, mu=mu, adaptive_mu=True))
        families, how = MODELS[:1], {"clients": 2, "rounds": 8}
    drawn: Trace = draw(strategies.traces(kind, strategies.models(*families), kinks=True, **how))
    return drawn


def case_of(t: Trace, name: str) -> Case:
    """Return the rounds of a trace as a case; one in which nobody takes part tells no loss."""
    told = zip(t.plans, t.losses, t.rounds())
    plans = [p._asdict() | ({"loss": loss} if clients else {}) for p, loss, clients in told]
    server = serialise.initial_server(t.algorithm, t.model, t.w)
    state = {"server": serialise.dump_state(server, np.float64)}
    inputs = {"state": state, "data": {"X": t.X, "y": t.y, "offsets": t.offsets}, "plans": plans}
    return make_case("round", t.model, inputs, name, asdict(t.algorithm))


# ---- a backend's answer --------------------------------------------------------------------------


class Graded(NamedTuple):
    """A drawn case with its answer, and the verdict on a backend's."""

    case: Case
    result: suite.Result


def settle(case: Case) -> Case | None:
    """Return the case with its answer; None where that is rounding alone, or of rows of zeros."""
    outputs = try_answer(case)
    if not outputs or not any(x.any() for n, x in case.inputs.items() if n.endswith("X")):
        return None
    required = tuple(outputs) if case.call != "evaluate" else ("losses",)
    if case.call == "client":
        required = tuple(n for n in outputs if n.startswith(("upload.", "client.")))
    if case.call == "round":
        start = [n.split(".")[2] for n in case.inputs if n.startswith("state.server.")]
        main = serialise.required_state(case.algorithm, start, case.hyper)
        ends = tuple(f".server.{n}" for n in main)
        required = tuple(n for n in outputs if n.endswith(ends))
    floats = [n for n, x in outputs.items() if x.dtype.kind == "f"]
    unclear = {n for n in floats if not is_clear(outputs[n], least=FEW_DIGITS)}
    if unclear & set(required):
        return None
    unclear |= {n for n in floats if n.endswith(".F") and not outputs[n].ndim}  # 0 until renewed
    tag = f"{case.algorithm} {case.call}".strip()
    case = case._replace(name=f"drawn {tag}", tag=tag, required=required, tolerance=tolerance(1.0))
    return case._replace(outputs={n: x for n, x in outputs.items() if n not in unclear})


def lost_digits(case: Case) -> float:
    """Return by how many units of rounding fedref's own outputs differ in longdouble."""
    double, exact = (
        suite.call_safely(LOOP, case, dtype).outputs for dtype in (float, np.longdouble)
    )
    if not (double and exact):
        return 0.0
    floats = [n for n, x in case.outputs.items() if x.dtype.kind == "f"]
    return max(difference(double[n], exact[n]) for n in floats) / EPS


Backend = suite.BackendProcess | suite.InProcess


def judge(backend: Backend, case: Case, dtype: str) -> Graded | None:
    """Return the verdict on a backend's answer to a case, or None if the case does not count.

    The tolerance is measured only where it decides. At a kink a difference is a remark where there is a
    convention, and nothing where there is none.
    """
    settled = settle(case)
    if settled is None:
        return None
    result = backend.grade(settled, dtype)
    if result.status == suite.NOT_OFFERED:
        return None
    if not result.outputs:  # it passes, or its numbers are not what is wrong
        return Graded(settled, result)
    condition = suite.measure(settled)
    if not condition < KINK:
        said = suite.convention_remarks(settled)
        if said and is_convention(result.error, condition):
            passed = suite.Result(settled.name, settled.tag, suite.PASSED, remarks=said)
            return Graded(settled, passed)
        return Graded(settled, result) if said else None
    condition = max(condition, lost_digits(settled))
    settled = settled._replace(tolerance=tolerance(condition))
    answer = suite.Answer(result.outputs, remarks=result.remarks)
    return Graded(settled, suite.grade(answer, settled, dtype)) if condition < KINK else None


def search(
    backend: Backend, draws: int, only: str = "", seed: int = 0, dtype: str = "float64",
    until: float = math.inf, note: Callable[[str, suite.Result], None] = lambda call, result: None,
) -> Iterator[tuple[str, int, Graded | None]]:  # fmt: skip
    """Yield for each function (its name, how many cases counted, the smallest that fails).

    A function's draws are shared out over its algorithms. The search ends at the first failure, and when
    `monotonic()` is `until`. note : is told of each case that counts.
    """
    counted = Counter[str]()
    for turn, shares in enumerate(SHARES_OF_DRAWS):
        for call, names in SUBJECTS.items():

            def fails(case: Case, call: str = call) -> bool:
                if monotonic() > until:
                    raise strategies.TimeIsUp
                graded = judge(backend, case, dtype)
                if graded is None:
                    reject()
                counted[call] += 1
                note(call, graded.result)
                return bool(graded.result.status == suite.FAILED)

            chosen = [name for name in names if only in f"{name} {call}"]
            for name in chosen if backend.offers(call) else ():
                part = share_of(name) if call == "round" else 1 / len(chosen)
                n = math.ceil(shares[call == "round"] * draws * part)
                here, key = seed * len(SHARES_OF_DRAWS) + turn, f"fedref {call} {name}".encode()
                case = strategies.smallest(cases(call, name), fails, n, here, key, SHRINK)
                if case is not None:
                    yield call, counted[call], conclude(judge(backend, case, dtype), case, dtype)
                    return
    for call, count in counted.items():
        yield call, count, None


def share_of(name: str) -> float:
    """Return how much of the draws an algorithm's rounds have: 2 % for each hyperparameter.

    Twice that if clients keep something, which shows only in a client that comes back.
    """
    it = ALGORITHMS[name]()
    return len(fields(it)) / (50 if serialise.template_of(it).client_state is None else 25)


def conclude(graded: Graded | None, case: Case, dtype: str) -> Graded:
    """Return the failure with evidence. A backend may pass the case that it failed."""
    if graded is None or graded.result.status != suite.FAILED:
        settled = settle(case) or case
        said = suite.Result(settled.name, settled.tag, suite.FAILED, reason=suite.TWICE)
        return Graded(settled, said)
    return Graded(graded.case, naming.describe(graded.result, graded.case, dtype))


# ---- by hand -------------------------------------------------------------------------------------

#: Inputs that no one needs to redo a case.
NOT_SHOWN = {"round", "sizes", "delta_mu", "delta_sigma", "length", "mean_old", "std_old", "peak"}


def show(x: Any) -> str:
    """Return a value as a Python literal, six digits a number."""
    if isinstance(x, tuple | list):
        return f"({', '.join(map(show, x))})"
    text = np.array2string(np.asarray(x), precision=6, separator=", ", threshold=10_000)
    return " ".join(text.split())


def by_hand(failure: Graded) -> str:
    """Return a failure as text: inputs, the specification's lines with their values, both answers."""
    case, result = failure
    fields = {k: x for k, x in case.model.items() if k not in ("d", "shapes")}
    lines = [report.failure_text(result), f"  model = {fields}  # d = {case.model['d']}"]
    lines += [f"  hyper = {case.hyper}"] if case.hyper else []
    given = [
        f"  {n} = {show(x)}" for n, x in case.inputs.items() if n.split(".")[-1] not in NOT_SHOWN
    ]
    lines += shorten(given, SHOWN, "inputs")
    computed = []
    for line in trace(lambda: answer(case)):
        values = ", ".join(f"{n} = {show(x)}" for n, x in line.values.items())
        computed.append(f"    {line.number}: {line.text:<60}  {values}"[:400])
    lines += ["  fedref/spec.py computes"] * bool(computed) + shorten(computed, SHOWN, "lines")
    names = list(result.outputs)
    first = names.index(result.output) if result.output in names else 0
    for n in names[max(first - 1, 0) :][:4]:  # from the one before the first that is wrong
        lines.append(f"  {n}: right {show(case.outputs[n])}, yours {show(result.outputs[n])}")
    return "\n".join(lines)


#: How many inputs, and how many lines of the specification, a report shows.
SHOWN = 14


def shorten(lines: list[str], most: int, what: str) -> list[str]:
    """Return the lines, or the first and the last of them where they are too many."""
    if len(lines) <= most:
        return lines
    half = most // 2
    return [
        *lines[:half],
        f"    … {len(lines) - 2 * half} {what} more (--save has all)",
        *lines[-half:],
    ]


MARK = "# written by fedref conformance --save"
TEST = '''{mark}


def test_drawn():
    """{said}"""
    from numpy import array, float64, int64, int32
    from fedref.conformance import backends, report, suite
    from fedref.judge import Case

    case = {case}
    result = suite.grade(suite.call_safely(backends.load_backend({backend!r}), case), case)
    assert result.status == suite.PASSED, report.describe_failure(result)
'''


def save(failure: Graded, backend: str, path: Path) -> None:
    """Write a failure as a vector (PATH with .npz) and as a pytest function (PATH with .py)."""
    case, file = failure.case, io.BytesIO()
    named: Any = {f"in.{n}": x for n, x in case.inputs.items()}
    np.savez(file, **named | {f"out.{n}": x for n, x in case.outputs.items()})
    here = path.with_suffix(".py")
    if here.exists() and not here.read_text("utf-8").startswith(MARK):
        raise ConfigError(
            f"--save {here}: exists, and fedref did not write it; expected another name"
        )
    write_or_raise(path.with_suffix(".npz"), file.getvalue())
    said = report.describe_failure(failure.result)
    text = TEST.format(mark=MARK, said=said, case=repr(case), backend=backend)
    write_or_raise(path.with_suffix(".py"), text.encode())
