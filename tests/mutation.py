"""Mutation testing: every small edit of the mathematics that no test notices.

    python -m tests.mutation --sample 300 --seed 0
    python -m tests.mutation --only fedref/rounds.py --killers check

prints the share of the edits (mutants) that are killed, and those that survive with file and line.
A mutant changes one place: an operator, a sign, a constant, a comparison, a dropped term or factor,
swapped arguments, a negated condition, a removed statement, a constant returned. Only the tests
that run the edited line are run, fastest first, until one fails. `--killers check` asks the proofs
of `fedref check` instead of the tests.

A mutant inside a function costs a fork of a process that has everything imported and collected: the
function's code object is replaced. A mutant of what runs on import (a class attribute, a default, a
function that a test module calls) imports everything anew. Which test runs which line is measured
once, and kept in a temporary folder until the file of the test, a helper or fedref changes.

Edits that change nothing, or nothing but speed, are listed with the reason in equivalent_mutants.txt.
"""

import argparse
import gc
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from mutants import Mutant, mutants_of  # noqa: E402 (found through the path above)

TARGETS = (
    "models", "algorithms", "numerics.py", "rounds.py", "sampling.py", "evaluation.py",
    "algorithm.py", "cost.py",
)  # fmt: skip
#: The tests whose subject is the mathematics; those of the proofs are `--killers check`.
TESTS = (
    *sorted(f"tests/{p.name}" for p in (ROOT / "tests").glob("test_*.py")
            if p.stem not in ("test_house", "test_equation_index", "test_mutation")),
    "tests/models", "tests/algorithms", "tests/experiments",
)  # fmt: skip
EQUIVALENT = ROOT / "tests/equivalent_mutants.txt"
CACHE = Path(tempfile.gettempdir()) / "fedref-mutation"
SURVIVED, KILLED, AFRESH = 0, 1, 3  # exit codes of a mutant's process

#: Something that can kill: its name, and a call that says whether it passes.
Killers = list[tuple[str, Callable[[], bool]]]


def sources(only: Sequence[str] = ()) -> list[Path]:
    """The files that are mutated, those of packages' names aside."""
    found: list[Path] = []
    for target in TARGETS:
        path = ROOT / "fedref" / target
        found += [path] if path.is_file() else sorted(path.glob("*.py"))
    found = [path for path in found if path.name != "__init__.py"]
    return [
        p for p in found if not only or any(str(p.relative_to(ROOT)).startswith(o) for o in only)
    ]


def equivalents() -> dict[str, str]:
    """Mutant → reason. The file: a line `# reason`, then the mutants it holds for, one a line."""
    reason, found = "", {}
    for line in EQUIVALENT.read_text("utf-8").splitlines():
        if line.startswith("#"):
            reason = line.lstrip("# ")
        elif line.strip():
            found[line.strip()] = reason
    return found


# -- what kills: tests or proofs, in a process of its own


class Plugin:
    """pytest collects; `work` gets the tests, each as something to call."""

    def __init__(self, work: Callable[[Killers], None]) -> None:
        self.work, self.failed = work, False

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)  # a failure is enough: nobody reads the example
        settings.register_profile(
            "mutation", settings.get_profile("ci"), phases=phases, database=None
        )
        settings.load_profile("mutation")

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed |= report.failed

    def pytest_runtestloop(self, session: Any) -> bool:
        def passes(item: Any) -> bool:
            self.failed = False
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            return not self.failed

        if session.testsfailed:  # a file that cannot be imported
            self.work([("collection", lambda: False)])
        else:
            self.work([(item.nodeid, lambda item=item: passes(item)) for item in session.items])
        return True


def with_killers(killers: str, files: Iterable[str], work: Callable[[Killers], None]) -> None:
    """Call `work` with the tests of these files, or with the proofs."""
    if killers == "check":
        from fedref.proofs import PROOFS

        work([
            (f"{p.tag} {p.claim}", lambda p=p: p.run(0).verdict == "ok") for p in PROOFS
        ])  # fmt: skip
    else:
        import pytest

        # mapped over the session's tests, not over the modules': `importlib` mode knows no package
        pytest.main(["-p", "no:cacheprovider", *files], plugins=[Plugin(work)])


def quietly(work: Callable[[], int]) -> int:
    """Fork: the child runs `work` and ends with what it returns as its exit code. Returns its id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        os._exit(work())
    except BaseException:
        if os.environ.get("MUTATION_LOG"):
            with open(os.environ["MUTATION_LOG"], "a") as log:
                traceback.print_exc(file=log)
        os._exit(KILLED)


def in_parallel(
    jobs: int,
    tasks: Iterable[tuple[Any, Callable[[], int]]],
    ended: Callable[[Any, int], None] = lambda key, code: None,
) -> dict[Any, int]:
    """The exit code of each task by its key, at most `jobs` at a time; a signal ends as KILLED."""
    running: dict[int, Any] = {}
    codes: dict[Any, int] = {}

    def wait() -> None:
        child, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        key = running.pop(child)
        codes[key] = code if code >= 0 else KILLED
        ended(key, codes[key])

    for key, work in tasks:
        if len(running) == jobs:
            wait()
        running[quietly(work)] = key
    while running:
        wait()
    return codes


OUT = os.dup(1)  # the terminal, also in a child that has none


def say(mutant: Mutant, code: int) -> None:
    """A survivor, as soon as it is known."""
    if code == SURVIVED:
        os.write(OUT, f"survived  {mutant}\n".encode())


# -- which test runs which line


class Trace:
    """Records the lines of functions of some files that run: file → lines."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.files = {str(path): str(path.relative_to(ROOT)) for path in paths}
        self.seen: set[tuple[CodeType, int]] = set()

    def __call__(self, frame: Any, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code.co_filename in self.files and code.co_flags & CO_OPTIMIZED:
            return self.line
        return None

    def line(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "line":
            self.seen.add((frame.f_code, frame.f_lineno))
        return self.line

    def take(self) -> dict[str, list[int]]:
        """What ran since it was last asked."""
        lines: dict[str, set[int]] = defaultdict(set)
        for code, line in self.seen:
            lines[self.files[code.co_filename]].add(line)
        self.seen.clear()
        return {file: sorted(found) for file, found in lines.items()}


def test_files() -> list[str]:
    """The files of `TESTS`, from the project's folder."""
    found = [ROOT / name for name in TESTS]
    files = [q for p in found for q in ([p] if p.is_file() else sorted(p.glob("test_*.py")))]
    return [str(path.relative_to(ROOT)) for path in files]


def keys(killers: str) -> dict[str, Path]:
    """Test file → where its lines are kept: the name changes with the file, helpers and fedref."""
    shared = [p for p in sorted((ROOT / "tests").rglob("*.py")) if not p.name.startswith("test_")]
    shared = [p for p in shared if p.name not in ("mutation.py", "mutants.py")]
    common = hashlib.sha256(sys.version.encode())
    for path in [*sorted((ROOT / "fedref").rglob("*.py")), *(shared if killers == "tests" else [])]:
        common.update(path.read_bytes())
    files = ["check"] if killers == "check" else test_files()
    digests = {}
    for name in files:
        own = common.copy()
        own.update(name.encode() + (b"" if name == "check" else (ROOT / name).read_bytes()))
        digests[name] = CACHE / f"{own.hexdigest()[:24]}.json"
    return digests


class Coverage:
    """name of a killer → (seconds, file → lines); lines that run on import; file of a killer."""

    def __init__(self, killers: str) -> None:
        where = keys(killers)
        missing = [name for name, path in where.items() if not path.exists()]
        if missing:
            self.measure(killers, missing, where)
        self.by: dict[str, tuple[float, dict[str, set[int]]]] = {}
        self.on_import: dict[str, set[int]] = defaultdict(set)
        self.file_of: dict[str, str] = {}
        for name, path in where.items():
            kept = json.loads(path.read_text())
            for file, lines in kept["import"].items():
                self.on_import[file] |= set(lines)
            for killer, (seconds, files) in kept["by"].items():
                self.by[killer] = seconds, {file: set(lines) for file, lines in files.items()}
                self.file_of[killer] = name

    @staticmethod
    def measure(killers: str, missing: list[str], where: Mapping[str, Path]) -> None:
        print(f"measuring which lines {len(missing)} files run ...", flush=True)
        CACHE.mkdir(exist_ok=True)

        def work() -> int:
            trace = Trace(sources())
            threading.settrace(trace)
            sys.settrace(trace)

            def run(items: Killers) -> None:
                on_import = trace.take()
                kept: dict[str, dict] = {name: {"import": on_import, "by": {}} for name in missing}
                for name, passes in items:
                    began = time.perf_counter()
                    if not passes():
                        os._exit(KILLED)
                    file = name.split("::")[0] if killers == "tests" else "check"
                    kept[file]["by"][name] = (time.perf_counter() - began, trace.take())
                for file, what in kept.items():
                    where[file].write_text(json.dumps(what))
                os._exit(SURVIVED)

            with_killers(killers, missing, run)
            return KILLED

        if in_parallel(1, [("", work)])[""] != SURVIVED:
            sys.exit("the tests do not pass before anything is changed")

    def of(self, mutant: Mutant) -> tuple[list[str], bool]:
        """(what runs the mutant, fastest first; whether it must be imported anew)."""
        lines = set(mutant.lines)
        hit = [
            name for name, (_, files) in self.by.items() if files.get(mutant.path, set()) & lines
        ]
        afresh = not mutant.in_function or bool(self.on_import[mutant.path] & lines)
        if afresh:
            hit = [name for name, (_, files) in self.by.items() if mutant.path in files]
        stem = Path(mutant.path).stem
        return sorted(hit, key=lambda n: (f"test_{stem}.py" not in n, self.by[n][0])), afresh


# -- how a mutant is run


def run_until_one_fails(chosen: Mapping[str, float], items: Killers) -> int:
    """KILLED as soon as one of the chosen fails or takes ten times as long as it should."""
    by_name = dict(items)
    for name, seconds in {"collection": 0.0, **chosen}.items():
        if name in by_name:
            signal.alarm(int(10 * seconds) + 10)
            if not by_name[name]():
                return KILLED
    return SURVIVED


def changed(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """The outermost functions that differ, old and new; None if what runs on import differs."""
    if old.co_flags & CO_OPTIMIZED:
        return [(old, new)] if old != new else []

    def parts(code: CodeType) -> tuple[list[CodeType], list[Any]]:
        inner = [c for c in code.co_consts if isinstance(c, CodeType)]
        return inner, [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]

    (olds, constants), (news, others) = parts(old), parts(new)
    same = (old.co_code, old.co_names, constants) == (new.co_code, new.co_names, others)
    if not same or len(olds) != len(news):
        return None
    found: list[tuple[CodeType, CodeType]] = []
    for pair in zip(olds, news):
        inner = changed(*pair)
        if inner is None:
            return None
        found += inner
    return found


def replace_code(functions: Mapping[CodeType, list[FunctionType]], mutant: Mutant) -> bool:
    """Put the mutant's code in place of the function's; False if it must be imported anew."""
    pairs = changed(mutant.original(), mutant.compiled())
    if not pairs or any(old not in functions for old, _ in pairs):
        return False
    try:
        for old, new in pairs:
            for function in functions[old]:
                function.__code__ = new
    except ValueError:  # other free variables
        return False
    return True


def run_in_place(
    killers: str, jobs: int, mutants: Mapping[int, Mutant], coverage: Coverage
) -> dict[int, int]:
    """Exit codes of mutants that are run in forks of one process with everything collected."""
    files = sorted({coverage.file_of[n] for m in mutants.values() for n in coverage.of(m)[0]})
    handle, kept = tempfile.mkstemp()
    os.close(handle)

    def work() -> int:
        def run(items: Killers) -> None:
            functions: dict[CodeType, list[FunctionType]] = defaultdict(list)
            for function in gc.get_objects():
                if isinstance(function, FunctionType):
                    functions[function.__code__].append(function)

            def one(mutant: Mutant) -> int:
                if not replace_code(functions, mutant):
                    return AFRESH
                names = coverage.of(mutant)[0]
                return run_until_one_fails({n: coverage.by[n][0] for n in names}, items)

            tasks = ((i, lambda m=m: one(m)) for i, m in mutants.items())
            codes = in_parallel(jobs, tasks, lambda i, code: say(mutants[i], code))
            Path(kept).write_text(json.dumps(codes))
            os._exit(SURVIVED)

        with_killers(killers, files, run)
        return KILLED

    try:
        if files and in_parallel(1, [("", work)])[""] != SURVIVED:
            sys.exit("the process that runs the mutants ended early")
        found = json.loads(Path(kept).read_text() or "{}")
    finally:
        os.unlink(kept)
    return {int(i): code for i, code in found.items()}


class Mutated(importlib.abc.MetaPathFinder):
    """Imports one module from a mutant's code."""

    def __init__(self, mutant: Mutant) -> None:
        self.name = mutant.path.removesuffix(".py").replace("/", ".")
        self.mutant = mutant

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        mutant = self.mutant

        class Loader(importlib.machinery.SourceFileLoader):
            def get_code(self, name: str) -> CodeType:
                return mutant.compiled()

        file = str(ROOT / mutant.path)
        return importlib.util.spec_from_file_location(name, file, loader=Loader(name, file))


def run_afresh(
    killers: str, jobs: int, mutants: Mapping[int, Mutant], coverage: Coverage
) -> dict[int, int]:
    """Exit codes of mutants for which everything is imported anew: first the nearest test files."""

    def one(mutant: Mutant, near: bool) -> int:
        names = coverage.of(mutant)[0]
        files = list(dict.fromkeys(coverage.file_of[name] for name in names))
        files = files[:2] if near else files[2:]
        chosen = {n: coverage.by[n][0] for n in names if coverage.file_of[n] in files}
        if not chosen:
            return SURVIVED
        sys.meta_path.insert(0, Mutated(mutant))
        with_killers(killers, files, lambda items: os._exit(run_until_one_fails(chosen, items)))
        return KILLED

    codes: dict[int, int] = {}
    for near in (True, False):
        left = {i: m for i, m in mutants.items() if codes.get(i, SURVIVED) == SURVIVED}
        tasks = ((i, lambda m=m, near=near: one(m, near)) for i, m in left.items())
        codes |= in_parallel(jobs, tasks, lambda i, code, n=near: n or say(mutants[i], code))
    return codes


def survivors(killers: str, mutants: Sequence[Mutant], jobs: int = 1) -> list[Mutant]:
    """Those that nothing kills; each is printed as soon as it is known."""
    coverage = Coverage(killers)
    for module in ("numpy", "scipy.special", "scipy.stats", "pytest", "matplotlib"):
        importlib.import_module(module)  # before the forks: none of them imports fedref
    codes: dict[int, int] = {}
    place, afresh = {}, {}
    for i, mutant in enumerate(mutants):
        names, anew = coverage.of(mutant)
        if not names:  # nothing runs it
            codes[i] = SURVIVED
            say(mutant, SURVIVED)
        else:
            (afresh if anew else place)[i] = mutant
    codes |= run_in_place(killers, jobs, place, coverage)
    afresh |= {i: place[i] for i in place if codes[i] == AFRESH}
    codes |= run_afresh(killers, jobs, afresh, coverage)
    return [m for i, m in enumerate(mutants) if codes[i] == SURVIVED]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--sample", type=int, help="as many mutants, drawn at random (default: all)"
    )
    parser.add_argument("--seed", type=int, default=0, help="which of them")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATH", help="file or folder"
    )
    parser.add_argument("--grep", default="", help="mutants whose text contains this")
    parser.add_argument("--killers", choices=("tests", "check"), default="tests")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--fail-under", type=float, default=0.0, help="percent")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    given = parser.parse_args()

    known = equivalents()
    mutants = [m for path in sources(given.only) for m in mutants_of(path, ROOT)]
    mutants = [m for m in mutants if m.key not in known and given.grep in m.key]
    random.Random(given.seed).shuffle(mutants)
    changing = (m for m in mutants if m.changes())
    mutants = sorted(itertools.islice(changing, given.sample), key=lambda m: (m.path, m.line))
    if given.list:
        print(*mutants, sep="\n")
        return 0
    began = time.perf_counter()
    alive = survivors(given.killers, mutants, given.jobs)
    for path, count in sorted(Counter(m.path for m in alive).items()):
        print(f"{count:4}  {path}")
    killed = len(mutants) - len(alive)
    percent = 100 * killed / max(len(mutants), 1)
    print(
        f"{killed} of {len(mutants)} mutants killed by the {given.killers}, {percent:.2f} %, "
        f"{time.perf_counter() - began:.0f} s"
    )
    return int(percent < given.fail_under)


if __name__ == "__main__":
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # a fork must not find threads
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.chdir(ROOT)
    sys.exit(main())
