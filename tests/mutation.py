"""Mutation testing: every small edit of the mathematics that no test notices.

    python -m tests.mutation --sample 300 --seed 0
    python -m tests.mutation --only fedref/rounds/loop.py --tests tests/proofs/test_proofs.py

prints the share of the edits (mutants) that are killed, and those that survive with file and line.
A mutant changes one place: an operator, a sign, a constant, a comparison, a dropped term or factor,
swapped arguments, a negated condition, a removed statement, a constant returned.

The tests are imported and collected once, and run once to see which lines each of them runs. Then
every mutant gets a fork of that process: its functions get the edited code, and the tests that run
an edited line are run, the nearest and fastest first, until one fails. What runs on import (a
default, a constant, a decorator) is imported and collected anew in the fork.

Edits that change nothing, or nothing but speed, are listed with the reason in equivalent_mutants.txt.
Long because measuring, mutating and running share one session of pytest.
"""

import argparse
import gc
import importlib.abc
import importlib.util
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import numpy  # noqa: F401 (imported before the forks, which import fedref anew)
import pytest
import scipy.stats  # noqa: F401

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from edits import Mutant, mutants_of  # noqa: E402 (found through the path above)

ROOT = Path(__file__).resolve().parents[1]
TARGETS = (
    "models", "algorithms", "algorithm.py", "sampling.py", "rounds/loop.py", "rounds/local_data.py",
    "rounds/stack.py", "rounds/evaluation.py", "rounds/cost.py",
)  # fmt: skip
#: The tests whose subject is the mathematics; of tests/ itself all but those that are not.
TESTS = ("tests", "tests/models", "tests/algorithms", "tests/rounds")
MORE_TESTS = ("proofs/test_proofs.py", "experiments/test_unit.py", "experiments/test_run.py")
NOT = (
    "test_english", "test_equation_index", "test_extend", "test_house", "test_mutation",
    "test_peers", "test_readme", "test_tour",
)  # fmt: skip
NEAR = ("test_algorithm.py", "test_equations.py", "test_proofs.py")
EQUIVALENT = ROOT / "tests/equivalent_mutants.txt"
SURVIVED, KILLED, BROKEN = range(3)


def find_sources(only: Sequence[str] = ()) -> list[Path]:
    """Return the files that are mutated, those of packages' names aside."""
    paths = [ROOT / "fedref" / target for target in TARGETS]
    files = [q for p in paths for q in ([p] if p.is_file() else sorted(p.glob("*.py")))]
    chosen = tuple(only) or ("",)
    return [
        p for p in files
        if p.name != "__init__.py" and str(p.relative_to(ROOT)).startswith(chosen)
    ]  # fmt: skip


def find_tests() -> list[str]:
    """Return the files of the tests, from the project's folder."""
    files = [p for folder in TESTS for p in sorted((ROOT / folder).glob("test_*.py"))]
    names = [str(p.relative_to(ROOT)) for p in files if p.stem not in NOT]
    return names + [f"tests/{name}" for name in MORE_TESTS]


def read_equivalents() -> dict[str, str]:
    """Return mutant → reason. The file: a line `# reason`, then the mutants it holds for, one a
    line, in which … may stand for any text."""
    reason, known = "", {}
    for line in EQUIVALENT.read_text("utf-8").splitlines():
        if line.startswith("#"):
            reason = line.lstrip("# ")
        elif line.strip():
            known[line.strip()] = reason
    return known


def match_equivalents(key: str, known: Iterable[str]) -> set[str]:
    """Return the lines of the list that a mutant is one of."""
    cut = {line: line.split("…") for line in known}
    return {
        line for line, parts in cut.items()
        if line == key or (len(parts) == 2 and key.startswith(parts[0]) and key.endswith(parts[1]))
    }  # fmt: skip


# ---- processes -----------------------------------------------------------------------------------


def fork(work: Callable[[], int]) -> int:
    """Run `work` in a silent child, which ends with what it returns; return the child's id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        nowhere, terminal = os.open(os.devnull, os.O_RDWR), os.dup(2)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        os._exit(work())
    except BaseException:
        traceback.print_exc(file=os.fdopen(terminal, "w"))
        os._exit(BROKEN)


def run_forks(
    jobs: int,
    tasks: Iterable[Callable[[], int]],
    report: Callable[[int, int], None] = lambda i, code: None,
) -> list[int]:
    """Return the exit code of each task; a task that a signal ends is KILLED."""
    running: dict[int, int] = {}
    codes: dict[int, int] = {}

    def wait() -> None:
        child, status = os.wait()
        i, code = running.pop(child), os.waitstatus_to_exitcode(status)
        codes[i] = code if code >= 0 else KILLED
        if codes[i] == BROKEN:
            sys.exit("the tool itself failed, see above")
        report(i, codes[i])

    for i, work in enumerate(tasks):
        if len(running) == jobs:
            wait()
        running[fork(work)] = i
    while running:
        wait()
    return [codes[i] for i in range(len(codes))]


# ---- a session of pytest -------------------------------------------------------------------------


class Session:
    """A session of pytest that collects, and then does `work(items, run)` instead of running all.

    run(items, seconds) runs tests until one fails, each in ten times the computing time it should
    take: a machine may be busy, and a mutant may never end.
    """

    def __init__(self, work: Callable[..., None]) -> None:
        self.work = work

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings  # pytest wants to be the first that imports it

        phases = (Phase.explicit, Phase.generate)  # a failure is enough: nobody reads the example
        parent = settings.get_profile("ci")
        settings.register_profile("mutation", parent, phases=phases, database=None)
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        def run(items: Sequence[Any], seconds: Mapping[str, float]) -> int:
            for item, following in itertools.zip_longest(items, items[1:]):
                limit = 10 * seconds.get(item.nodeid, 60.0) + 5
                signal.setitimer(signal.ITIMER_PROF, limit)
                signal.alarm(int(20 * limit))
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    return KILLED
            return SURVIVED

        if session.testsfailed:
            return False
        self.work(session.items, run)
        return True

    def start(self, files: Iterable[str]) -> int:
        """Collect the tests of these files and do the work."""
        words = ["-q", "-s", "--no-header", "--no-summary", "-p", "no:cacheprovider", *files]
        return int(pytest.main(words, plugins=[self]))


# ---- which lines a test runs ---------------------------------------------------------------------

Lines = dict[str, set[int]]


class Coverage:
    """Which lines run on import, and test → (seconds, lines that it runs)."""

    def __init__(self) -> None:
        os.environ["COVERAGE_CORE"] = "ctrace"
        self.watched = coverage.Coverage(
            data_file=None, include=[str(path) for path in find_sources()]
        )
        self.watched.start()
        self.on_import: Lines = {}
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, Lines] = {}

    def measure(self, items: Sequence[Any], run: Callable[..., int], jobs: int) -> None:
        """Run all tests once, a file in one process."""
        by_file: dict[str, list[Any]] = defaultdict(list)
        for item in items:
            by_file[item.nodeid.partition("::")[0]].append(item)
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / str(i) for i in range(len(by_file))]
            codes = run_forks(
                jobs,
                (
                    lambda f=f, p=p: self.measure_file(f, run, p)
                    for f, p in zip(by_file.values(), paths)
                ),
            )
            for name, path, code in zip(by_file, paths, codes):
                if code != SURVIVED:
                    sys.exit(f"{name}: fails before anything is changed")
                for test, (seconds, lines) in json.loads(path.read_text()).items():
                    self.seconds[test] = seconds
                    self.lines[test] = {file: set(numbers) for file, numbers in lines.items()}
        self.watched.stop()
        self.on_import = self.read_lines()[""]

    def measure_file(self, items: Sequence[Any], run: Callable[..., int], path: Path) -> int:
        """Write test → (seconds, file → lines); in a process of its own."""
        seconds = {}
        for item in items:
            self.watched.switch_context(item.nodeid)
            began = time.process_time()
            if run([item], {}) != SURVIVED:
                return KILLED
            seconds[item.nodeid] = time.process_time() - began
        self.watched.stop()
        lines = self.read_lines()
        found = {
            test: (time, {file: sorted(numbers) for file, numbers in lines[test].items()})
            for test, time in seconds.items()
        }
        path.write_text(json.dumps(found))
        return SURVIVED

    def read_lines(self) -> dict[str, Lines]:
        """Return test → file → lines; what ran on import is a test without a name."""
        lines: dict[str, Lines] = defaultdict(lambda: defaultdict(set))
        data = self.watched.get_data()
        for file in data.measured_files():
            name = str(Path(file).relative_to(ROOT))
            for line, tests in data.contexts_by_lineno(file).items():
                for test in tests:
                    lines[test][name].add(line)
        return lines

    def runs_on_import(self, mutant: Mutant) -> bool:
        """Whether the edited lines run on import, or a default or constant is read without a line."""
        lines = self.on_import.get(mutant.path, set())
        return not mutant.in_function or bool(lines & set(mutant.lines))

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the mutant, nearest and fastest first.

        What runs on import is run by whatever runs a line of the file.
        """
        edited, file = set(mutant.lines), mutant.path
        if self.runs_on_import(mutant):
            hit = [
                t for t, lines in self.lines.items() if file in lines or "test_algorithm.py" in t
            ]
        else:
            hit = [t for t, lines in self.lines.items() if lines.get(file, set()) & edited]
        near = (f"test_{Path(file).stem}.py", *NEAR)
        return sorted(hit, key=lambda t: (not t.partition("::")[0].endswith(near), self.seconds[t]))


# ---- mutants -------------------------------------------------------------------------------------


class Mutated(importlib.abc.MetaPathFinder):
    """Imports one module from a mutant's code."""

    def __init__(self, mutant: Mutant) -> None:
        self.name = mutant.path.removesuffix(".py").replace("/", ".")
        self.mutant = mutant

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        mutant = self.mutant

        class Loader(SourceFileLoader):
            def get_code(self, name: str) -> Any:
                return mutant.compiled()

        file = str(ROOT / mutant.path)
        return importlib.util.spec_from_file_location(name, file, loader=Loader(name, file))


def find_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all that are nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from find_codes(constant)


def replace_code(mutant: Mutant) -> bool:
    """Give the functions of this process the mutant's code; whether all could get it."""
    compiled = mutant.compiled()
    assert compiled is not None
    codes: dict[tuple[str, int], list[CodeType]] = defaultdict(list)
    for code in find_codes(compiled):
        codes[code.co_qualname, code.co_firstlineno].append(code)
    file = str(ROOT / mutant.path)
    for function in [f for f in gc.get_objects() if type(f) is FunctionType]:
        old = function.__code__
        if old.co_filename == file:
            new = codes[old.co_qualname, old.co_firstlineno]
            if len(new) != 1 or new[0].co_freevars != old.co_freevars:
                return False
            function.__code__ = new[0]
    return True


def run_mutant(mutant: Mutant, covered: Coverage, items: Mapping[str, Any], run: Any) -> int:
    """Run the tests of a mutant until one fails; in a process of its own."""
    tests = covered.tests_of(mutant)
    sys.meta_path.insert(0, Mutated(mutant))  # for what imports the module only now
    if not covered.runs_on_import(mutant) and replace_code(mutant):
        return run([items[test] for test in tests], covered.seconds)
    for name in [*sys.modules]:
        file = str(getattr(sys.modules[name], "__file__", None) or "")
        ours = file.startswith(f"{ROOT}/") and not file.startswith(f"{sys.prefix}/")  # .venv is not
        if name != __name__ and name != "edits" and ours:
            del sys.modules[name]
    outcome = [SURVIVED]

    def work(anew: Sequence[Any], run: Callable[..., int]) -> None:
        place = {item.nodeid: item for item in anew}
        outcome[0] = run([place[test] for test in tests if test in place], covered.seconds)

    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    for some in (files[:2], files[2:]):
        code = Session(work).start(some) if some else 0
        if outcome[0] == KILLED or code not in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            return KILLED
    return SURVIVED


def find_survivors(mutants: Sequence[Mutant], tests: Sequence[str], jobs: int) -> list[Mutant]:
    """Return those that nothing kills; each is printed as soon as it is known."""
    alive: list[Mutant] = []

    def report(i: int, code: int) -> None:
        if code == SURVIVED:
            alive.append(mutants[i])
            print(f"survived  {mutants[i]}", flush=True)

    def work(items: Sequence[Any], run: Callable[..., int]) -> None:
        began = time.perf_counter()
        covered.measure(items, run, jobs)
        print(f"{len(items)} tests measured in {time.perf_counter() - began:.0f} s", flush=True)
        places = {item.nodeid: item for item in items}
        run_forks(jobs, (lambda m=m: run_mutant(m, covered, places, run) for m in mutants), report)

    covered = Coverage()
    if code := Session(work).start(tests):
        sys.exit(f"the tests cannot be collected: pytest ends with {code}")
    return alive


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=__doc__.split("\n")[0]
    )
    option = parser.add_argument
    option("--sample", type=int, help="as many mutants, drawn at random (default: all)")
    option("--seed", type=int, default=0, help="which of them")
    option("--only", action="append", default=[], metavar="PATH", help="file or folder")
    option("--grep", default="", help="mutants whose text contains this")
    option("--tests", action="append", metavar="PATH", help="tests that may kill (default: all)")
    option("--jobs", type=int, default=os.cpu_count() or 1)
    option("--fail-under", type=float, default=0.0, help="percent")
    option("--list", action="store_true", help="print the mutants, run nothing")
    args = parser.parse_args()

    known = read_equivalents()
    mutants = [m for path in find_sources(args.only) for m in mutants_of(path, ROOT)]
    mutants = [m for m in mutants if not match_equivalents(m.key, known) and args.grep in m.key]
    random.Random(args.seed).shuffle(mutants)
    changing = (m for m in mutants if m.changes())
    mutants = sorted(itertools.islice(changing, args.sample), key=lambda m: (m.path, m.line))
    if args.list:
        print(*mutants, sep="\n")
        return 0
    began = time.perf_counter()
    alive = find_survivors(mutants, args.tests or find_tests(), args.jobs)
    for path, count in sorted(Counter(m.path for m in alive).items()):
        print(f"{count:4}  {path}")
    killed = len(mutants) - len(alive)
    percent = 100 * killed / max(len(mutants), 1)
    seconds = time.perf_counter() - began
    print(f"{killed} of {len(mutants)} mutants killed, {percent:.2f} %, {seconds:.0f} s")
    return int(percent < args.fail_under)


if __name__ == "__main__":
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # a fork must not find threads
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder  # forks leave their folders behind
        sys.exit(main())
