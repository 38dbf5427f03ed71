"""Worked examples: the smallest rounds without a zero that Hypothesis draws, traced through spec.py.

Two clients, one parameter. `worked_example` returns the case and every line of the specification that
ran for it with the values that it set, so that a person can redo it with pen and paper.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cache, partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedref import spec
from fedref.algorithms import ALGORITHMS
from fedref.draws.sources import Trace
from fedref.judge import Case, answer, trace
from fedref.judge.adapter import clients_of
from fedref.models import BinaryLogistic
from fedref.models.numerics import Array
from fedref.sampling import PADDING, Plan

MODEL = BinaryLogistic(1, bias=False)
#: What one has to know of the model to redo an example.
ABOUT_MODEL = (
    f"`{MODEL!r}`: one parameter w, z = wx, and the loss −log σ(z) where y = 1, −log σ(−z) where y = 0. "
    "So ∇f(w; D) is the mean of (σ(z) − y)x over the rows of D, and ∇²f(w; D) that of σ(z)σ(−z)x²."
)
#: Hyperparameters that are drawn; all others have their usual value.
RATES = ("lr", "alpha", "beta", "mu", "lam", "momentum", "server_lr")
#: APFL begins with its decomposition, so that two rounds show all its parts.
FIXED: Mapping[str, Mapping[str, Any]] = {"apfl": {"z": 0, "init": "continuous"}}
#: What these settings mean.
MEANT = {
    "z": "the round from which on clients have parameters of their own",
    "init": "w_k begins so that the composite is w_S, as there is one output unit: `unit` is (0)",
}
#: Algorithm → how many rounds and local steps show all its parts; for all others one of each.
TWO_ROUNDS = "fedcurv", "scaffold", "feddyn", "fedavgm"
LENGTHS = {"fedprox": (1, 2), "apfl": (2, 2), **dict.fromkeys(TWO_ROUNDS, (2, 1))}
DRAWS = 300
#: Numbers of a case, the simplest first.
NUMBERS = (1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 0.25, 1.5)
#: What the server's state is called, besides Adam's moments, which are 0 where Adam is not asked for.
STATES = ("w", "theta", "alpha", "c", "h", "F", "m", "v")


@cache
def worked_example(algorithm: str) -> Case | None:
    """Return the smallest case of an algorithm without a zero, or None where no draw has none.

    Raises ConfigError without Hypothesis.
    """
    from fedref.draws.shrinking import arrays, smallest  # it says so if Hypothesis is missing

    # isort: split
    from hypothesis import strategies as st

    cls = ALGORITHMS[algorithm]
    n = 2 * len(cls().roles) + 1
    rates = [field.name for field in fields(cls) if field.name in RATES]
    rounds, steps = LENGTHS.get(algorithm, (1, 1))
    drawn = st.builds(
        partial(make_rounds, algorithm, rounds=rounds, steps=steps),
        arrays(1, numbers=NUMBERS),
        arrays(n, 1, numbers=NUMBERS),
        arrays(n, numbers=MODEL.labels).map(lambda y: y.astype(int)),
        st.fixed_dictionaries(dict.fromkeys(rates, st.sampled_from((0.5, 0.25, 0.75)))),
    )
    with no_hypothesis_folder():
        case: Case | None = smallest(drawn, has_no_zero, DRAWS)
    return case


@contextmanager
def no_hypothesis_folder() -> Iterator[None]:
    """Let Hypothesis keep what it keeps in a folder of its own: none appears beside a student's files."""
    from hypothesis.configuration import set_hypothesis_home_dir

    with TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)


def make_rounds(
    algorithm: str, w: Array, X: Array, y: Array, rates: Mapping[str, Any],
    *, rounds: int, steps: int, model: Any = MODEL, width: int = 1, spare: int = 0, epochs: int = 1,
    late: bool = False,
) -> Case:  # fmt: skip
    """Return rounds of two clients, whose local steps have the same batches, but if rows are spare.

    The second has one row more, in the batch of the first role, so that clients' weights differ.
    spare : rows of each client in no batch of the first step; each step then begins a row further.
    epochs : over which the steps are spread; late : the second client joins in the second round.
    """
    it = ALGORITHMS[algorithm](**{**rates, **FIXED.get(algorithm, {})})
    n = len(it.roles) * width + spare
    offsets = np.array([0, 2 * n + 1] if it.pooled else [0, n, 2 * n + 1])
    K = len(offsets) - 1
    batches = {role: np.full((K, steps, width + 1), PADDING) for role in it.roles}
    for i, role in enumerate(it.roles):
        begin = i * width + np.arange(steps)[:, None] * bool(spare)
        batches[role][:, :, :width] = (begin + np.arange(width)) % n
    batches[it.roles[0]][-1, :, width] = n
    every, none, sizes = np.full(K, steps), np.zeros(K, bool), np.diff(offsets)
    epoch, once = every // epochs, np.ones(K, int)
    plan = Plan(0, np.arange(K), once, sizes, every, none, every, epoch, batches)
    plans = tuple(plan._replace(round=t) for t in range(rounds))
    if late and K > 1:
        rows = {role: x[:1] for role, x in batches.items()}
        first = Plan._make([0, *(x[:1] for x in plan[1:-1]), rows])
        plans = (first, *plans[1:])
    return Trace(it, model, w, X, y, offsets, plans, (1.0,) * rounds).case()


def has_no_zero(case: Case) -> bool:
    """Return whether both labels occur, the rows differ, and the server's last state has no 0."""
    X, y = case.inputs["data.X"], case.inputs["data.y"]
    if len({*y.tolist()}) < 2 or len({*zip(map(tuple, X.tolist()), y.tolist())}) < len(y):
        return False
    last = str(sum(name.endswith(".round") for name in case.inputs) - 1)
    with np.errstate(all="ignore"):
        states = answer(case)
    return all(np.all(states.get(f"{last}.server.{name}", 1)) for name in STATES)


def first_parameters(case: Case) -> Array:
    return next(x for name, x in case.inputs.items() if name.startswith("state.server."))


def show(value: Any, digits: int = 5) -> str:
    """Return a value as text: numbers with so many digits, batches as rows x → y, clients by their steps."""
    match value:
        case spec.Batch(X, y):
            return ", ".join(f"{show(x)} → {label}" for x, label in zip(X, y))
        case spec.Client(k, data, steps):
            batches = " | ".join("; ".join(map(show, step)) for step in steps)
            return f"client {k}, {len(data.y)} rows in all, with steps {batches}"
        case dict():
            return ", ".join(f"{key}: {show(part, digits)}" for key, part in value.items())
        case tuple() | list():
            return f"[{'; '.join(show(part, digits) for part in value)}]"
        case str() | bool() | None:
            return str(value)
    x = np.asarray(value)
    if x.ndim and x.size > 1:
        return f"({', '.join(show(part, digits) for part in x)})"
    number = x.item() if x.size else ""
    return f"{number:.{digits}g}" if isinstance(number, float) else str(number)


def given_lines(case: Case) -> Iterator[tuple[str, str]]:
    """Yield what the example starts from: (name, value) of parameters, step sizes, clients' rows."""
    parts = case.arguments()
    plan = parts["plans"][0]
    yield "w", show(first_parameters(case))
    yield from ((name, show(case.hyper[name])) for name in RATES if name in case.hyper)
    for name in FIXED.get(case.algorithm, ()):
        yield name, f"{show(case.hyper[name])}: {MEANT[name]}"
    for client in clients_of(plan, parts["data"], drop=False):
        yield f"client {client.k}: rows x → y", show(client.data)
        for t, step in enumerate(client.steps, 1):
            batches = (f"{role}: {show(D)}" for role, D in zip(plan["rows"], step))
            yield f"client {client.k}: step {t}", "; ".join(batches)


#: Lines that only say what a derivative is: the function of the specification → what was asked.
ASKED = {
    "Risk.grad": "… f.grad", "Risk.hvp": "… f.hvp", "gradient": "… gradient, of what is in its brackets"
}  # fmt: skip


def traced_rows(case: Case) -> list[tuple[str, str, str]]:
    """Return (line number, line, values) of every line of the specification that runs for a case."""
    rows = []
    for line in trace(lambda: answer(case), derivatives=True):
        if any(isinstance(x, complex | np.complexfloating) for x in line.values.values()):
            continue  # a complex step
        values = {name: show(x) for name, x in line.values.items()}
        asked = ASKED.get(line.function)
        place = f"at {values.pop('w')}: " if asked and "w" in values else ""
        text = ", ".join(x if name == "return" else f"{name} = {x}" for name, x in values.items())
        rows.append(("" if asked else str(line.number), asked or line.text, place + text))
    following = [*rows[1:], ("", "", "")]  # a line that returns what was asked says it itself
    return [row for row, after in zip(rows, following) if row[0] or row[2] != after[2]]
