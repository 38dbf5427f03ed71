"""Make the golden vectors: `python -m reproduce.vectors.make [DIR]`; the same bytes every time.

Every case is computed in float64 and, through the same code, in longdouble; the specification is a second
witness. With `--peers`, torch is a third: its layers and derivatives in the specification; without it, the
index keeps torch's digits for cases that have not changed. Which mistakes a case catches is kept in a folder
(`KNOWN`): a run that was stopped goes on, and only what has changed is computed anew. README.md gets the
protocol of backends from the docstring of `fedref.conformance`, and a list of the outputs that the
specification does not have.
"""

import argparse
import inspect
import json
import re
import subprocess
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from scipy.optimize import LinearConstraint, milp

from fedref import conformance
from fedref.boundary.files import make_folder, write_atomically
from fedref.conformance import suite, vectors
from fedref.conformance.backends import load_backend
from fedref.conformance.backends.reference import LOOP
from fedref.judge import Case, answer, errata
from fedref.judge.case import first_rounds
from fedref.judge.compare import compare, difference
from fedref.judge.lines import CALLS, follow
from fedref.models.numerics import Array
from reproduce.vectors import files
from reproduce.vectors.cases import SUBJECTS, all_cases, source_of

#: The tolerance is this many times the measured effect of rounding: a backend may sum in other orders.
MARGIN = 32
NUDGE = 2.0**-30
#: A case catches a mistake that moves an output by more than this many tolerances.
CAUGHT = 100
PEERS = ("torch",)
#: For each case as it is, with the lines of the specification that it runs: which mistakes it catches.
KNOWN = Path(".cache/vectors")
WITNESSES = ("longdouble", "specification", *PEERS)


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
    """Return the largest relative difference of what two sets of outputs share, numbers only."""
    shared = [name for name in b if name in a and b[name].dtype.kind == "f"]
    return max((difference(a[name], b[name]) for name in shared), default=0.0)


def perturb_inputs(case: Case, rng: np.random.Generator) -> Case:
    """Return the case with every floating-point input moved by a relative 2⁻³⁰.

    FedProx's training losses move together: they are compared, and equal ones stay equal.
    """

    def move(name: str, x: Array) -> Array:
        if x.dtype.kind != "f":
            return x
        signs = rng.choice([-1.0, 1.0], x.shape)
        compared = case.algorithm == "fedprox" and name.endswith(".loss")
        return x * (1 + NUDGE * (1.0 if compared else signs))

    return case._replace(inputs={name: move(name, x) for name, x in case.inputs.items()})


def measure_condition(case: Case, exact: dict[str, Array]) -> float:
    """Return how many units of rounding the outputs move, rounded up to a power of 2.

    It is the largest effect of two: moving the inputs by 2⁻³⁰, and computing in float64 or float32.
    Margins of exactly 1 are not moved: they would leave the kink, which zeros do not.
    """
    rng = source_of(f"condition {case.name}").rng
    times = 0 if case.convention and case.model["family"] == "svm" else 3
    moved = [compute(perturb_inputs(case, rng), np.float64) for _ in range(times)]
    factors = [max_difference(outputs, case.outputs) / NUDGE for outputs in moved]
    for dtype in (np.float64, np.float32):
        factors.append(max_difference(compute(case, dtype), exact) / float(np.finfo(dtype).eps))
    return float(2 ** np.ceil(np.log2(max(1.0, *factors))))


def digits(error: float) -> int:
    """Return the decimal digits of agreement, 16 at most."""
    return 16 if error < 1e-16 else int(np.floor(-np.log10(error)))


def complete(case: Case) -> Case:
    """Return the case with its outputs, tolerance, digits, and the mistakes that it catches."""
    case = case._replace(outputs=sort_outputs(case, compute(case, np.float64)))
    exact = compute(case, np.longdouble)
    kappa = measure_condition(case, exact)
    tolerance = {
        name: float(f"{MARGIN * kappa * float(np.finfo(name).eps):.2g}") for name in vectors.DTYPES
    }
    case = with_digits(case._replace(tolerance=tolerance, condition=kappa), "longdouble", exact)
    case = with_specification(case)
    confirm(case)
    return case._replace(tags=find_tags(case), catches=find_catches(case))


#: The largest relative difference of a number from what the specification answers.
SAME = 1e-12


def confirm(case: Case) -> None:
    """Raise ValueError if the specification does not answer all that is required, or otherwise."""
    outputs = {name: np.asarray(x) for name, x in answer(case).items()}
    for name in case.required:
        if name not in outputs:
            raise ValueError(f"{case.name}: the specification has no {name}")
    error = max_difference(outputs, case.outputs)
    if not error <= SAME:
        raise ValueError(f"{case.name}: {error:.1e} from what the specification answers")


#: An equation beside a line of code: "# [apfl eq.1] ...".
MARK = re.compile(r"# \[((?:[a-z]+-)*[A-Za-z]+ [^\]]+)\]")
PAPERS = {tag.split()[0] for tag, _ in SUBJECTS.values()} | {"Adam"}


def codes_of(work: Callable[[], Any]) -> set[CodeType]:
    """Return the code of every function that runs during `work()`."""
    codes = set[CodeType]()

    def note(frame: FrameType, event: str, _: object) -> None:
        codes.update([frame.f_code] if event == "call" else [])

    follow(work, note, CALLS)
    return codes


def find_tags(case: Case) -> tuple[str, ...]:
    """Return the case's equation, then the equations of all functions that fedref runs for it."""
    marks = set[str]()
    for code in codes_of(lambda: compute(case, np.float64)):
        if "algorithm" in Path(code.co_filename).parts[-2:][0] + Path(code.co_filename).stem:
            marks |= set(MARK.findall(inspect.getsource(code)))
    known = {mark for mark in marks if mark.split()[0] in PAPERS}
    return case.tag, *sorted(known - {case.tag})


def find_catches(case: Case) -> tuple[str, ...]:
    """Return the known mistakes that move an output of the case by more than 100 tolerances."""
    judges = {module.__file__ for module in errata.TEXTS}
    wide = case._replace(tolerance={"float64": CAUGHT * case.tolerance["float64"]}, about="")
    parts = [wide]
    if case.call == "round":  # mostly one is enough
        parts = [first_rounds(wide, 1), wide]
    answer(case)  # what is made once does not run again
    ran = {c for c in codes_of(lambda: answer(case)) if c.co_filename in judges}
    text = "\n".join(sorted(map(inspect.getsource, ran)))
    same = repr((files.index_entry(wide, files.case_bytes(case)), text))
    path = KNOWN / f"{sha256(same.encode()).hexdigest()}.json"
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    edits = {name: text_of_edits(name) for name in errata.MISTAKES if is_in(name, text)}
    for name, words in edits.items():
        if words not in known:
            known[words] = any(is_caught(part, name) for part in parts)
    make_folder(KNOWN)
    write_atomically(path, json.dumps(known).encode())
    return tuple(name for name, words in edits.items() if known[words])


def is_in(name: str, text: str) -> bool:
    """Return whether a mistake changes a line of this text."""
    return any(edit.right.partition("\n")[0] in text for edit in errata.MISTAKES[name].edits)


def text_of_edits(name: str) -> str:
    """Return a mistake's edits, with the functions that its wrong lines call."""
    edits = errata.MISTAKES[name].edits
    words = sorted({*re.findall(r"\w+", " ".join(edit.wrong for edit in edits))})
    called = [vars(module).get(word) for module in errata.TEXTS for word in words]
    return repr((edits, [inspect.getsource(f) for f in called if inspect.isfunction(f)]))


def is_caught(case: Case, name: str) -> bool:
    """Return whether the mistake moves an output that is required. One that raises gives no outputs."""
    outputs = {key: np.asarray(x) for key, x in errata.answer(case, name).items()}
    known = tuple(key for key in case.required if key in outputs)
    return bool(known) and compare(outputs, case._replace(required=known)) is not None


def with_peer_digits(case: Case, name: str) -> Case:
    """Return the case with the digits to which that backend agrees."""
    outputs = suite.call_safely(load_backend(name), case).outputs or {}
    return with_digits(case, name, {key: np.asarray(x) for key, x in outputs.items()})


def with_digits(case: Case, name: str, outputs: Mapping[str, Array]) -> Case:
    """Return the case with the digits to which these outputs agree with its own, if there are any."""
    others = {key: n for key, n in case.digits.items() if key in WITNESSES and key != name}
    if outputs:
        others[name] = digits(max_difference(outputs, case.outputs))
    return case._replace(digits=others)


def with_specification(case: Case) -> Case:
    """Return the case with the digits to which the specification agrees."""
    outputs = {key: np.asarray(x) for key, x in answer(case).items()}
    return with_digits(case, "specification", outputs)


#: The share of the known mistakes of each function that its quick cases catch, and the most cases in all.
QUICK, MOST = 0.97, 70


def compiled(case: Case) -> set[tuple[str, str, int]]:
    """Return what a compiled backend compiles for a case, roughly: a function, a model, a number of rows."""
    what = case.call if case.call in ("loss", "hvp", "meta_gradient") else "grad"
    rows = set[int]()
    for name, x in case.inputs.items():
        if "rows." in name:
            rows |= {int(n) for n in (x >= 0).sum(-1).flat}
        elif name.endswith(".y") and case.call not in ("client", "round"):
            rows.add(x.shape[-1])
    return {(what, str(case.model), n) for n in rows - {0}}


def choose_quick(cases: list[Case]) -> list[Case]:
    """Return the cases with those marked that a quick run has: they catch `QUICK`, by milp.

    Of all such covers the one for which the least is compiled, a model counting as often as it has arrays.
    """
    known = [{(case.call, name) for name in case.catches} for case in cases]
    caught = sorted(set[Any]().union(*known))
    calls, needs = sorted({case.call for case in cases}), list(map(compiled, cases))
    units = sorted(set[Any]().union(*needs))
    arrays = {str(case.model): len(case.model["shapes"]) for case in cases}
    n, m, k = len(cases), len(caught), len(units)
    catches = [[mistake in each for each in known] for mistake in caught]
    of_call = np.array([[call == own for own, _ in caught] for call in calls], float)
    pairs = [(i, units.index(unit)) for i, own in enumerate(needs) for unit in sorted(own)]
    i, j = np.transpose(pairs)
    rows = np.block([  # a mistake has a case, a function has enough, a case what it needs; not too many
        [np.array(catches, float), -np.eye(m), np.zeros((m, k))],
        [np.zeros((len(calls), n)), of_call, np.zeros((len(calls), k))],
        [-np.eye(n)[i], np.zeros((len(pairs), m)), np.eye(k)[j]],
        [-np.ones((1, n)), np.zeros((1, m + k))],
    ])  # fmt: skip
    least = [*np.zeros(m), *np.ceil(QUICK * of_call.sum(1)), *np.zeros(len(pairs)), -MOST]
    cost = [*np.full(n, 0.01), *np.zeros(m), *(arrays[model] for _, model, _ in units)]
    found = milp(cost, constraints=LinearConstraint(rows, least), bounds=(0, 1),
                 integrality=np.arange(n + m + k) < n)  # fmt: skip
    if not found.success:
        raise ValueError(
            f"no {MOST} cases catch {QUICK:.0%} of the known mistakes of each function"
        )
    return [case._replace(quick=bool(x > 0.5)) for case, x in zip(cases, found.x)]


def keep_peer_digits(cases: list[Case], where: Path) -> Iterator[Case]:
    """Yield the cases with the index's digits of torch, where the cases are the same."""
    known: dict[str, Any] = {}
    if (where / "index.json").exists():
        known = {entry["name"]: entry for entry in vectors.read_index(where)["cases"]}
    for case in cases:
        old = known.get(case.name, {"digits": {}, "sha256": ""})
        same = old["sha256"] == files.index_entry(case, files.case_bytes(case))["sha256"]
        agree = {k: n for k, n in old["digits"].items() if k in PEERS and same}
        yield case._replace(digits={**case.digits, **agree})


# ---- README.md -----------------------------------------------------------------------------------


def update_readme(text: str, cases: Iterable[Case]) -> str:
    """Return the text of README.md with what stands between two comments generated anew."""
    protocol = "".join((conformance.__doc__ or "").partition("**A backend**")[1:]).strip()
    for name, new in (("protocol", protocol), ("one text", "\n".join(list_alone(cases)))):
        start, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}```text\n{new}\n```{end}{rest.partition(end)[2]}"
    return text


def list_alone(cases: Iterable[Case]) -> Iterator[str]:
    """Yield, call by call, the outputs that the specification lacks, and the algorithms if it has others."""
    alone, known = dict[tuple[str, str], set[str]](), set[tuple[str, str]]()
    for case in cases:
        given = answer(case)
        for output in case.outputs:
            key = case.call, re.sub(r"^\d+\.", "", output)
            if output in given:
                known.add(key)
            else:
                alone.setdefault(key, set()).add(case.algorithm)
    for call in dict.fromkeys(call for call, _ in alone):
        names = [
            output + f" of {', '.join(sorted(algorithms))}" * ((call, output) in known)
            for (own, output), algorithms in alone.items()
            if own == call
        ]
        yield from textwrap.wrap(
            "; ".join(names), 110, initial_indent=f"{call:15}", subsequent_indent=15 * " "
        )


def describe_mistakes() -> list[dict[str, str]]:
    """Return the index's entries for the known mistakes."""
    mistakes = errata.MISTAKES.values()
    return [{"name": m.name, "tag": m.tag, "kind": m.kind, "line": m.why} for m in mistakes]


def read_commit() -> str:
    """Return the commit that the vectors are made at."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Make the vectors, or measure peers against them."""
    parser = argparse.ArgumentParser(description="Make the golden vectors.")
    option = parser.add_argument
    option("to", nargs="?", type=Path, default=vectors.folder())
    option(
        "--only",
        default="",
        help="make these cases alone, of which this regular expression fits a part of the name",
    )
    option("--peers", nargs="+", choices=PEERS, default=[],
           help="only measure to how many digits these libraries and the specification agree")  # fmt: skip
    given = parser.parse_args()
    if given.peers:
        cases, commit = vectors.read(given.to), vectors.read_index(given.to)["commit"]
        cases = list(map(with_specification, cases))
        for name in given.peers:
            cases = [with_peer_digits(case, name) for case in cases]
    else:
        old = {case.name: case for case in vectors.read(given.to)} if given.only else {}
        situations = list(all_cases())
        new = [case for case in situations if re.search(given.only, case.name)]
        with ProcessPoolExecutor() as pool:
            made = {case.name: case for case in pool.map(complete, new)}
        cases = [
            made.get(case.name) or old[case.name]._replace(part=case.part, required=case.required)
            for case in situations
        ]
        cases = choose_quick(list(keep_peer_digits(cases, given.to)))
        commit = read_commit()
    files.write(cases, given.to, describe_mistakes(), commit)
    readme = given.to / "README.md"
    if readme.exists():
        readme.write_text(update_readme(readme.read_text("utf-8"), cases), "utf-8")
    size = sum(path.stat().st_size for path in given.to.glob("*.*"))
    print(f"{len(cases)} cases, {size / 1e6:.2f} MB, in {given.to}")


if __name__ == "__main__":
    main()
