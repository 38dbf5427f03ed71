"""Mutation testing: every small edit of the mathematics that no test notices.

    python -m tests.mutation --sample 300 --seed 0
    python -m tests.mutation --only "loop.py run_round" --tests tests/proofs/test_proofs.py

prints the share of the edits (mutants) that are killed, and those that survive with file and line. A
mutant changes one place in a function. The tests are collected once, and run once to see which lines
each of them runs. Then every mutant gets a fork of that process: its functions get the edited code, and
the tests that run an edited line are run, the narrowest first, until one fails.

Edits that change nothing, or nothing but speed, are listed with the reason in equivalent_mutants.txt.

Why a tool of our own. A reference is worth what its tests would notice: a line of an algorithm that could
be wrong with every test green is a line that nobody has checked, and coverage says nothing of that. The
score is the one measure of the tests that cannot be met by adding tests which assert little, and it is what
makes cutting tests safe: a test may go if no mutant survives that it killed.

The packages that do this (mutmut, cosmic-ray) write each mutant to a file and start pytest anew: with the
imports of NumPy, SciPy and Hypothesis, and the collection of some thousand tests, that is ten seconds a
mutant, and a day for all. Here a mutant is a fork of a process that has collected the tests already, and it
runs only the tests that reach the edited line, the narrowest first: most die within a tenth of a second.

What it changes: operators, comparisons, constants, arguments' order, keywords, branches and statements, and
the names that are confused most easily here, D1 and D2, support and query, training and validation. What it
leaves alone: messages, documentation, types, what runs on import.

How to read a survivor. Either the edit changes nothing that anybody could observe (list it, with the
reason), or a test is missing: write it, and see it kill the mutant with --only. A survivor is never a reason
to loosen anything. The sample of `.ci/run` has a fixed seed, so that two scores can be compared.
"""

import argparse
import ast
import gc
import itertools
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
TARGETS = (
    "models", "algorithms", "algorithm.py", "sampling.py", "rounds/loop.py", "rounds/local_data.py",
    "rounds/stack.py", "rounds/evaluation.py", "rounds/cost.py", "spec.py",
)  # fmt: skip
#: The tests whose subject is the mathematics.
TESTS = (
    "test_algorithm.py", "test_checks.py", "test_sampling.py", "test_schema.py", "test_spec.py",
    "test_strategies.py", "test_extend.py::test_every_algorithm_has_a_loss_of_real_targets",
    "draws/test_sources.py", "conformance/test_suite.py::test_fedref_passes_itself", "models", "rounds",
    "proofs/test_proofs.py", "lab/experiments/test_unit.py", "lab/experiments/test_run.py",
)  # fmt: skip
EQUIVALENT = ROOT / "tests/equivalent_mutants.txt"
PYTEST = (
    "-q", "-s", "--no-header", "--no-summary", "-p", "no:cacheprovider",
    "--hypothesis-profile", "mutation", "--ignore-glob", "*/test_peers.py",
)  # fmt: skip
#: Seconds of computing that a test may take, and by the clock: a mutant may never end.
SECONDS, CLOCK = 60, 900
SURVIVED, BROKEN, KILLED = range(3)  # an exception of the tool itself ends a process with 1


def find_sources() -> list[Path]:
    """Return the files that are mutated."""
    paths = [ROOT / "fedref" / target for target in TARGETS]
    return [q for p in paths for q in ([p] if p.is_file() else sorted(p.glob("[!_]*.py")))]


def read_equivalents() -> dict[re.Pattern[str], str]:
    """Return mutants → reason. The file: a line `# reason`, then the mutants it holds for, one a
    line, in which … may stand for any text."""
    reason, known = "", {}
    for line in filter(None, map(str.strip, EQUIVALENT.read_text("utf-8").splitlines())):
        if line.startswith("#"):
            reason = line.lstrip("# ")
        else:
            known[re.compile(re.escape(line).replace("…", ".*"))] = reason
    return known


# ---- edits ---------------------------------------------------------------------------------------

#: An operator → the operators that may stand in its place.
SWAPS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,),
    ast.Pow: (ast.Mult,), ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.Mult,), ast.MatMult: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,), ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
ORDERED = (ast.Sub, ast.Div, ast.Pow, ast.FloorDiv, ast.Mod, ast.MatMult)
PAIRS = [
    ("minimum", "maximum"), ("min", "max"), ("any", "all"), ("zeros", "ones"), ("sum", "mean"),
    ("zeros_like", "ones_like"), ("argmin", "argmax"), ("D1", "D2"), ("S", "Q"), ("tr", "val"),
]  # fmt: skip
RENAMES = {**dict(PAIRS), **{b: a for a, b in PAIRS}}
#: Functions that do not ask which of two arguments comes first.
SYMMETRIC = ("min", "max", "minimum", "maximum", "result_type", "broadcast_shapes")
FUNCTIONS = (ast.FunctionDef, ast.Lambda)
#: How much of the code around an edit names it.
SHORTEST = 24


class Mutant(NamedTuple):
    """One edit of one file: `key` names it, whatever line it is in.

    lines : where the edited node is. It stands in the tree as `parent.field`, or `parent.field[i]`.
    """

    path: str
    key: str
    lines: range
    tree: ast.Module
    original: CodeType
    parent: Any
    field: str
    i: int | None
    node: ast.AST
    new: ast.AST

    def __str__(self) -> str:
        return f"{self.path}:{self.lines[0]}  {self.key.split(' ', 1)[1]}"

    def put(self, node: ast.AST) -> None:
        if self.i is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.i] = node

    def compiled(self) -> CodeType | None:
        """The edited file; None if it is no Python, or the code is what it was."""
        self.put(self.new)
        try:
            code = compile(ast.fix_missing_locations(self.tree), self.path, "exec")
        except (SyntaxError, ValueError, TypeError):
            return None
        finally:
            self.put(self.node)
        return None if code == self.original else code


def replaced(items: list[Any], i: int, *new: Any) -> list[Any]:
    return [*items[:i], *new, *items[i + 1 :]]


def remade(node: Any, **fields: Any) -> Any:
    """The same node with some fields replaced; children are shared."""
    return type(node)(**{**{name: getattr(node, name, None) for name in node._fields}, **fields})


def of_expression(node: ast.expr) -> Iterator[ast.expr]:
    """What may stand in place of an expression."""
    if isinstance(node, ast.BinOp | ast.BoolOp):
        yield from (remade(node, op=other()) for other in SWAPS.get(type(node.op), ()))
    match node:
        case ast.BinOp(left, op, right):
            yield from (left, right)
            if isinstance(op, ORDERED):
                yield remade(node, left=right, right=left)
        case ast.UnaryOp(_, operand):
            yield operand
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() as value):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Constant(float() as value):
            yield from (ast.Constant(value + 1), ast.Constant(value / 2 if value else -1.0))
        case ast.Constant(str() as value):
            yield ast.Constant(value + "?")
        case ast.Name(str() as name, ast.Load()) if name in RENAMES:
            yield ast.Name(RENAMES[name], ast.Load())
        case ast.Attribute(_, str() as name) if name in RENAMES:
            yield remade(node, attr=RENAMES[name])
        case ast.Compare(_, ops):
            for i, op in enumerate(ops):
                for other in SWAPS[type(op)]:
                    yield remade(node, ops=replaced(ops, i, other()))
        case ast.BoolOp(_, values):
            for i in range(len(values)):
                rest = replaced(values, i)
                yield rest[0] if len(rest) == 1 else remade(node, values=rest)
        case ast.IfExp(test, body, orelse):
            yield from (remade(node, test=ast.UnaryOp(ast.Not(), test)), body, orelse)
        case ast.Call(function, args, keywords):
            called = getattr(function, "attr", getattr(function, "id", ""))
            for i in range(0 if called in SYMMETRIC else len(args) - 1):
                if not any(isinstance(arg, ast.Starred) for arg in args[i : i + 2]):
                    yield remade(node, args=[*args[:i], args[i + 1], args[i], *args[i + 2 :]])
            for i, keyword in enumerate(keywords):
                if keyword.arg:
                    yield remade(node, keywords=replaced(keywords, i))


def of_statement(node: ast.stmt, nested: bool) -> Iterator[ast.stmt]:
    """What may stand in place of a statement. nested : whether a result may be left out."""
    match node:
        case ast.If(test) | ast.While(test):
            if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
                yield remade(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.AugAssign(target, op, value):
            yield from (remade(node, op=other()) for other in SWAPS[type(op)])
            yield from (ast.Assign([target], value), ast.Pass())
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Assign([ast.Name(name)], value):
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value)):
                yield ast.Pass()
        case ast.Return(ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield ast.Return(ast.Constant(None))
            if nested:
                yield ast.Pass()
        case ast.Raise() | ast.Continue() | ast.Break() | ast.Delete() | ast.Expr(ast.Call()):
            yield ast.Pass()


def left_alone(parent: ast.AST, field: str, node: ast.AST) -> bool:
    """Documentation, messages, what runs on import, and what is there for the type checker."""
    on_import = isinstance(parent, FUNCTIONS) and field != "body"
    documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ignored = isinstance(node, ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom)
    message = isinstance(parent, ast.Raise)
    return on_import or documents or ignored or message or field == "annotation"


def chains_of(parent: Any, around: list[Any]) -> Iterator[tuple[str, int | None, list[Any]]]:
    """Yield every node below `parent` as (field, index, the nodes that hold it and itself)."""
    for field, value in ast.iter_fields(parent):
        for i, node in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(node, ast.AST) and not left_alone(parent, field, node):
                yield field, i if isinstance(value, list) else None, [*around, node]
                yield from chains_of(node, [*around, node])


def text_of(node: ast.AST) -> str:
    return ast.unparse(node).split("\n")[0]


def naming_node(chain: list[Any]) -> Any:
    """The last node, or the smallest around it whose code is long enough to name an edit."""
    nodes = [n for n in reversed(chain) if isinstance(n, ast.expr | ast.stmt)]
    inside = list(itertools.takewhile(lambda n: not isinstance(n, FUNCTIONS), nodes))
    named = (n for n in inside if isinstance(n, ast.stmt) or len(text_of(n)) >= SHORTEST)
    return next(named, inside[-1])


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """Every mutant of the functions of a file, in the order of its lines."""
    tree, file = ast.parse(path.read_text("utf-8")), str(path.relative_to(root))
    original, mutants = compile(tree, file, "exec"), list[Mutant]()
    seen: Counter[str] = Counter()
    for field, i, chain in chains_of(tree, [tree]):
        *around, parent, node = chain
        if not any(isinstance(outer, FUNCTIONS) for outer in (*around, parent)):
            continue
        edits: Iterator[Any] = iter(())
        if isinstance(node, ast.expr):
            edits = of_expression(node)
        elif isinstance(node, ast.stmt):
            edits = of_statement(node, not isinstance(parent, FUNCTIONS))
        scopes = [n for n in chain[:-1] if isinstance(n, (*FUNCTIONS, ast.ClassDef))]
        names = ".".join(getattr(scope, "name", "lambda") for scope in scopes)
        head = node.test if isinstance(node, ast.If | ast.While) else node
        for new in list(edits):
            ast.copy_location(new, new if hasattr(new, "lineno") else node)
            lines = range(head.lineno, (head.end_lineno or head.lineno) + 1)
            mutant = Mutant(file, "", lines, tree, original, parent, field, i, node, new)
            named = naming_node(chain)
            before = text_of(named)
            mutant.put(new)
            after = text_of(new if named is node else named)
            mutant.put(node)
            if after == before:  # two arguments that are the same
                continue
            key = f"{file} {names}: {before} → {after}"
            seen[key] += 1
            mutants.append(mutant._replace(key=key + f" #{seen[key]}" * (seen[key] > 1)))
    return mutants


# ---- processes -----------------------------------------------------------------------------------


def run_silently(work: Callable[[], int]) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, sys.stdin.fileno())
    os.dup2(nowhere, sys.stdout.fileno())
    os._exit(work())


def run_forks(jobs: int, tasks: Iterable[Callable[[], int]]) -> Iterator[tuple[int, int]]:
    """Yield (number, exit code) of each task as it ends; one that a signal ends is KILLED."""
    context = multiprocessing.get_context("fork")
    running: dict[Any, Any] = {}
    for i, work in itertools.chain(enumerate(tasks), [(-1, None)]):
        while running and (work is None or len(running) == jobs):
            for ended in wait(running):
                number, child = running.pop(ended)
                child.join()
                if child.exitcode == BROKEN:
                    sys.exit("the tool itself failed, see above")
                yield number, child.exitcode if child.exitcode >= 0 else KILLED
        if work:
            child = context.Process(target=run_silently, args=(work,))
            child.start()
            running[child.sentinel] = i, child


# ---- tests ---------------------------------------------------------------------------------------


def run_tests(items: Sequence[Any]) -> int:
    """Run tests of a session until one fails, each with a limit of time."""
    for item, following in itertools.zip_longest(items, items[1:]):
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(CLOCK)
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except KeyboardInterrupt:  # the alarm of a test that a mutant keeps waiting
            return KILLED
        if item.session.testsfailed:
            return KILLED
    return SURVIVED


def measure_lines(watched: coverage.Coverage, items: Sequence[Any], jobs: int) -> Any:
    """Run all tests once, a file in one process; return file → line → the tests that run it.

    A test that fails before anything is changed, as one with a limit of time may do under measurement,
    is left out: it would kill every mutant.
    """
    files = [list(own) for _, own in itertools.groupby(items, lambda item: item.path)]
    total = coverage.CoverageData(no_disk=True)

    def measure(own: Sequence[Any], path: Path) -> int:
        failed = []
        for item in own:
            watched.switch_context(item.nodeid)
            if run_tests([item]) != SURVIVED:
                failed.append(item.nodeid)
                item.session.testsfailed = 0
        watched.stop()
        path.write_bytes(watched.get_data().dumps())
        path.with_suffix(".failed").write_text("\n".join(failed))
        return SURVIVED

    with tempfile.TemporaryDirectory() as folder:
        paths, left_out = [Path(folder) / str(i) for i in range(len(files))], set[str]()
        tasks = (lambda own=own, path=path: measure(own, path) for own, path in zip(files, paths))
        for i, code in run_forks(jobs, tasks):
            if code != SURVIVED:
                sys.exit(f"{files[i][0].path}: ends before anything is changed")
            part = coverage.CoverageData(no_disk=True)
            part.loads(paths[i].read_bytes())
            total.update(part)
            left_out |= {*paths[i].with_suffix(".failed").read_text().splitlines()}
    watched.stop()
    for test in sorted(left_out):
        print(f"left out: {test} fails before any edit", flush=True)
    lines = {file: total.contexts_by_lineno(file) for file in total.measured_files()}
    return {
        str(Path(file).relative_to(ROOT)): {n: {*tests} - left_out for n, tests in own.items()}
        for file, own in lines.items()
    }


def find_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all that are nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from find_codes(constant)


def replace_code(mutant: Mutant) -> None:
    """Give the functions of this process the mutant's code."""
    compiled, file = mutant.compiled(), str(ROOT / mutant.path)
    assert compiled is not None
    before, after = codes_by_line(mutant.original), codes_by_line(compiled)
    for function in [f for f in gc.get_objects() if type(f) is FunctionType]:
        old = function.__code__
        if old.co_filename == file:
            key = old.co_qualname, old.co_firstlineno
            at = [list(code.co_positions()) for code in before[key]].index([*old.co_positions()])
            function.__code__ = after[key][at if len(after[key]) == len(before[key]) else -1]


def codes_by_line(code: CodeType) -> dict[tuple[str, int], list[CodeType]]:
    """Return all code objects by name and line; several lambdas may stand in one line."""
    found: dict[tuple[str, int], list[CodeType]] = {}
    for each in find_codes(code):
        found.setdefault((each.co_qualname, each.co_firstlineno), []).append(each)
    return found


def run_mutant(mutant: Mutant, lines: Mapping[int, set[str]], items: Mapping[str, Any]) -> int:
    """Run the tests of a mutant until one fails, the narrowest first; in its own process."""
    hit = {test for line in mutant.lines for test in lines.get(line, ()) if test in items}
    reach = Counter(test for tests in lines.values() for test in tests)
    try:
        replace_code(mutant)
    except ValueError:  # without super(), a function has no cell for its class
        return KILLED
    return run_tests([items[test] for test in sorted(hit, key=lambda test: (reach[test], test))])


def find_survivors(mutants: Sequence[Mutant], tests: Sequence[str], jobs: int) -> list[Mutant]:
    """Return those that nothing kills; each is printed as soon as it is known."""
    alive: list[Mutant] = []

    class Session:
        """A plugin of pytest that runs the mutants instead of all collected tests."""

        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            began, items = time.perf_counter(), session.items
            lines = measure_lines(watched, items, jobs)
            print(f"{len(items)} tests measured in {time.perf_counter() - began:.0f} s", flush=True)
            places = {item.nodeid: item for item in items}
            tasks = (lambda m=m: run_mutant(m, lines.get(m.path, {}), places) for m in mutants)
            for i, code in run_forks(jobs, tasks):
                if code == SURVIVED:
                    alive.append(mutants[i])
                    print(f"survived  {mutants[i]}", flush=True)
            return True

    os.environ["COVERAGE_CORE"] = "ctrace"
    watched = coverage.Coverage(data_file=None, include=[str(path) for path in find_sources()])
    watched.start()
    if code := pytest.main([*PYTEST, *tests], plugins=[Session()]):
        sys.exit(f"the tests cannot be collected: pytest ends with {code}")
    return alive


def main() -> None:
    """Print the survivors and the score."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    option = parser.add_argument
    option("--sample", type=int, help="as many mutants, drawn at random (default: all)")
    option("--seed", type=int, default=0, help="which of them")
    option("--only", default="", metavar="TEXT", help="mutants with this in their file or code")
    option("--tests", action="append", metavar="PATH", help="tests that may kill (default: all)")
    option("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()

    known = read_equivalents()
    mutants = [m for path in find_sources() for m in mutants_of(path, ROOT) if args.only in m.key]
    mutants = [m for m in mutants if not any(line.fullmatch(m.key) for line in known)]
    # each has a place of its own: a change of the code moves no other mutant into the sample or out of it
    mutants.sort(key=lambda m: random.Random(f"{args.seed} {m.key}").random())
    changing = (m for m in mutants if m.compiled())
    mutants = sorted(itertools.islice(changing, args.sample), key=str)
    began = time.perf_counter()
    alive = find_survivors(mutants, args.tests or [f"tests/{name}" for name in TESTS], args.jobs)
    killed, seconds = len(mutants) - len(alive), time.perf_counter() - began
    percent = 100 * killed / max(len(mutants), 1)
    print(f"{killed} of {len(mutants)} mutants killed, {percent:.2f} %, {seconds:.0f} s")


if __name__ == "__main__":
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # a fork must not find threads
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder  # forks leave their folders behind
        main()
