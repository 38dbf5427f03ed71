"""Mutation testing: every small edit of the mathematics that no test notices.

    python -m tests.mutation --sample 300 --seed 0
    python -m tests.mutation --only fedref/rounds/loop.py --killers check

prints the share of the edits (mutants) that are killed, and those that survive with file and line.
A mutant changes one place: an operator, a sign, a constant, a comparison, a dropped term or factor,
swapped arguments, a negated condition, a removed statement, a constant returned. Only the tests
that run the edited line are run, fastest first, until one fails. `--killers check` asks the proofs
of `fedref check` instead of the tests.

Most edits change what is computed; the others what is refused, an option's default or a model's
start (`edits.is_equation`). Both shares are printed. Which test runs which line is measured once (with
`coverage`), and kept in a temporary folder until the file of the test, a helper or fedref changes.

Edits that change nothing, or nothing but speed, are listed with the reason in equivalent_mutants.txt.
"""

import argparse
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
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import coverage
import pytest

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from edits import Mutant, mutants_of  # noqa: E402 (found through the path above)

ROOT = Path(__file__).resolve().parents[1]
TARGETS = (
    "models", "algorithms", "algorithm.py", "sampling.py", "rounds/loop.py", "rounds/local_data.py",
    "rounds/stack.py", "rounds/evaluation.py", "rounds/cost.py",
)  # fmt: skip
#: The tests whose subject is the mathematics.
NOT = ("test_house", "test_equation_index", "test_mutation", "test_extend")
FOLDERS = ("tests/models", "tests/algorithms", "tests/rounds")
FILES = ("proofs/test_proofs.py", "experiments/test_unit.py", "experiments/test_run.py")
EQUIVALENT = ROOT / "tests/equivalent_mutants.txt"
CACHE = Path(tempfile.gettempdir()) / "fedref-mutation"
SURVIVED, KILLED = 0, 1
OUT = os.dup(1)  # the terminal, also in a child that has none


def sources(only: Sequence[str] = ()) -> list[Path]:
    """Return the files that are mutated, those of packages' names aside."""
    paths = [ROOT / "fedref" / target for target in TARGETS]
    files = [q for p in paths for q in ([p] if p.is_file() else sorted(p.glob("*.py")))]
    chosen = tuple(only) or ("",)
    return [
        p for p in files
        if p.name != "__init__.py" and str(p.relative_to(ROOT)).startswith(chosen)
    ]  # fmt: skip


def test_files(killers: str) -> list[str]:
    """Return the files of the tests, from the project's folder."""
    if killers == "check":
        return ["check"]
    folders = [ROOT / folder for folder in ("tests", *FOLDERS)]
    files = [p for folder in folders for p in sorted(folder.glob("test_*.py")) if p.stem not in NOT]
    return [str(p.relative_to(ROOT)) for p in files] + [f"tests/{name}" for name in FILES]


def equivalents() -> dict[str, str]:
    """Mutant → reason. The file: a line `# reason`, then the mutants it holds for, one a line; one
    that ends with `→ *` stands for every edit of that place."""
    reason, known = "", {}
    for line in EQUIVALENT.read_text("utf-8").splitlines():
        if line.startswith("#"):
            reason = line.lstrip("# ")
        elif line.strip():
            known[line.strip()] = reason
    return known


def listed(key: str, known: Iterable[str]) -> set[str]:
    """Return the lines of the list that a mutant is one of."""
    return {
        line for line in known if line == key or (line[-1] == "*" and key.startswith(line[:-1]))
    }


# ---- processes ------------------------------------------------------------------------------------


def fork(work: Callable[[], int]) -> int:
    """Run `work` in a silent child, which ends with what it returns. Returns the child's id."""
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
    """Return the exit code of each task by its key; a signal ends a task as KILLED."""
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
        running[fork(work)] = key
    while running:
        wait()
    return codes


# ---- killers: tests of pytest, or proofs -------------------------------------------------------------


class Plugin:
    """pytest runs some tests, fastest first, in ten times the computing time that they should take.

    seconds : name → seconds (None: all tests). around : what is called before and after each.
    """

    def __init__(
        self, seconds: Mapping[str, float] | None, around: Callable[[str], None] = lambda name: None
    ) -> None:
        self.seconds, self.around = seconds, around

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings  # pytest wants to be the first that imports it

        phases = (Phase.explicit, Phase.generate)  # a failure is enough: nobody reads the example
        settings.register_profile(
            "mutation", settings.get_profile("ci"), phases=phases, database=None
        )
        settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.seconds is not None:
            items[:] = [item for item in items if item.nodeid in self.seconds]
            items.sort(key=lambda item: self.seconds[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        self.around(item.nodeid)
        limit_time((self.seconds or {}).get(item.nodeid, 600.0))
        result = yield
        self.around("")
        return result


def limit_time(seconds: float) -> None:
    """End this process after ten times as long (a machine may be busy), or when it hangs."""
    signal.setitimer(signal.ITIMER_PROF, 10 * seconds + 10)
    signal.alarm(600)


def run_killers(
    files: Sequence[str],
    seconds: Mapping[str, float] | None = None,
    around: Callable[[str], None] = lambda name: None,
) -> int:
    """Run the tests of these files, or the proofs, until one fails."""
    if files != ["check"]:
        words = ["-x", "-p", "no:cacheprovider", *files]
        code = pytest.main(words, plugins=[Plugin(seconds, around)])
        return (
            SURVIVED if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else KILLED
        )
    from fedref.proofs import PROOFS

    proofs = {f"{proof.tag} {proof.claim}": proof for proof in PROOFS}
    for name in sorted(seconds or proofs, key=(seconds or dict.fromkeys(proofs, 0.0)).__getitem__):
        around(name)
        limit_time((seconds or {}).get(name, 60.0))
        if proofs[name].run(0).verdict != "ok":
            return KILLED
    return SURVIVED


class Coverage:
    """killer → (seconds, file → lines); lines that run on import; file of a killer."""

    def __init__(self, killers: str, jobs: int) -> None:
        where = cache_files(killers)
        missing = [name for name, path in where.items() if not path.exists()]
        if missing:
            print(f"measuring which lines {len(missing)} files run ...", flush=True)
            CACHE.mkdir(exist_ok=True)
            tasks = ((name, lambda name=name: measure(name, where[name])) for name in missing)
            failed = [name for name, code in in_parallel(jobs, tasks).items() if code]
            if failed:
                sys.exit(f"{', '.join(failed)}: fails before anything is changed")
        self.by: dict[str, tuple[float, dict[str, set[int]]]] = {}
        self.on_import: dict[str, set[int]] = defaultdict(set)
        self.file_of: dict[str, str] = {}
        for name, path in where.items():
            for killer, (seconds, files) in json.loads(path.read_text()).items():
                lines = {file: set(numbers) for file, numbers in files.items()}
                if killer:
                    self.by[killer], self.file_of[killer] = (seconds, lines), name
                else:
                    for file, numbers in lines.items():
                        self.on_import[file] |= numbers

    def of(self, mutant: Mutant) -> dict[str, float]:
        """Return what runs the mutant, and in how many seconds.

        What runs on import is run by whatever runs a line of the file; a default is read without.
        """
        lines = set(mutant.lines)
        if mutant.in_function and not self.on_import[mutant.path] & lines:
            hit = [n for n, (_, files) in self.by.items() if files.get(mutant.path, set()) & lines]
        else:
            hit = [
                name for name, (_, files) in self.by.items()
                if mutant.path in files or "test_algorithm.py" in name
            ]  # fmt: skip
        return {name: self.by[name][0] for name in hit}


def cache_files(killers: str) -> dict[str, Path]:
    """Test file → where its lines are kept: the name changes with the file, helpers and fedref."""
    tests = (p for p in (ROOT / "tests").rglob("*.py") if not p.name.startswith("test_"))
    shared = [*(ROOT / "fedref").rglob("*.py"), *(p for p in tests if p.name != "edits.py")]
    common = hashlib.sha256(sys.version.encode())
    for path in sorted(shared):
        common.update(path.read_bytes())
    digests = {}
    for name in test_files(killers):
        own = common.copy()
        own.update(name.encode() + (b"" if name == "check" else (ROOT / name).read_bytes()))
        digests[name] = CACHE / f"{own.hexdigest()[:24]}.json"
    return digests


def measure(name: str, path: Path) -> int:
    """Write which lines each test of a file runs: killer → (seconds, file → lines), "" on import."""
    os.environ["COVERAGE_CORE"] = "ctrace"
    watched = coverage.Coverage(data_file=None, include=[str(p) for p in sources()])
    seconds: dict[str, float] = {"": 0.0}
    running = ""

    def around(killer: str) -> None:
        nonlocal running
        now = time.process_time()
        seconds[running] = now - seconds[running]
        running = killer
        seconds[killer] = now
        watched.switch_context(killer)

    watched.start()
    code = run_killers([name], around=around)
    around("")
    watched.stop()
    lines: dict[str, dict[str, list[int]]] = {killer: {} for killer in seconds}
    data = watched.get_data()
    for file in data.measured_files():
        for line, killers in data.contexts_by_lineno(file).items():
            for killer in killers:
                lines[killer].setdefault(str(Path(file).relative_to(ROOT)), []).append(line)
    if code == SURVIVED:
        path.write_text(json.dumps({k: (seconds[k], files) for k, files in lines.items()}))
    return code


# ---- mutants -----------------------------------------------------------------------------------------


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
            def get_code(self, name: str) -> Any:
                return mutant.compiled()

        file = str(ROOT / mutant.path)
        return importlib.util.spec_from_file_location(name, file, loader=Loader(name, file))


def run_mutant(mutant: Mutant, covered: Coverage) -> int:
    """Import everything anew from the edited file, and run what runs it: first the nearest files."""
    seconds = covered.of(mutant)
    near = (f"test_{Path(mutant.path).stem}.py", "test_algorithm.py", "test_equations.py", "check")
    fastest = sorted(seconds, key=seconds.__getitem__)
    files = sorted(
        dict.fromkeys(covered.file_of[name] for name in fastest),
        key=lambda file: not file.endswith(near),
    )
    sys.meta_path.insert(0, Mutated(mutant))
    parts = [part for part in (files[:2], files[2:]) if part]
    return max((run_killers(part, seconds) for part in parts), default=SURVIVED)


def survivors(killers: str, mutants: Sequence[Mutant], jobs: int = 1) -> list[Mutant]:
    """Return those that nothing kills; each is printed as soon as it is known."""
    covered = Coverage(killers, jobs)
    for module in ("numpy", "scipy.special", "scipy.stats", "matplotlib"):
        importlib.import_module(module)  # before the forks: none of them imports fedref

    def say(i: int, code: int) -> None:
        if code == SURVIVED:
            os.write(OUT, f"survived  {mutants[i]}\n".encode())

    tasks = ((i, lambda m=m: run_mutant(m, covered)) for i, m in enumerate(mutants))
    codes = in_parallel(jobs, tasks, say)
    return [m for i, m in enumerate(mutants) if codes[i] == SURVIVED]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=__doc__.split("\n")[0]
    )
    option = parser.add_argument
    option("--sample", type=int, help="as many mutants, drawn at random (default: all)")
    option("--seed", type=int, default=0, help="which of them")
    option("--only", action="append", default=[], metavar="PATH", help="file or folder")
    option("--grep", default="", help="mutants whose text contains this")
    option("--killers", choices=("tests", "check"), default="tests")
    option("--jobs", type=int, default=os.cpu_count() or 1)
    option("--fail-under", type=float, default=0.0, help="percent")
    option("--list", action="store_true", help="print the mutants, run nothing")
    args = parser.parse_args()

    known = equivalents()
    mutants = [m for path in sources(args.only) for m in mutants_of(path, ROOT)]
    mutants = [m for m in mutants if not listed(m.key, known) and args.grep in m.key]
    random.Random(args.seed).shuffle(mutants)
    changing = (m for m in mutants if m.changes())
    mutants = sorted(itertools.islice(changing, args.sample), key=lambda m: (m.path, m.line))
    if args.list:
        print(*mutants, sep="\n")
        return 0
    began = time.perf_counter()
    alive = survivors(args.killers, mutants, args.jobs)
    for path, count in sorted(Counter(m.path for m in alive).items()):
        print(f"{count:4}  {path}")
    killed = len(mutants) - len(alive)
    percent = 100 * killed / max(len(mutants), 1)
    print(
        f"{killed} of {len(mutants)} mutants killed by the {args.killers}, {percent:.2f} %, "
        f"{time.perf_counter() - began:.0f} s"
    )
    left, most = (sum(m.equation for m in some) for some in (alive, mutants))
    print(
        f"{most - left} of {most} that change what is computed, {100 - 100 * left / (most or 1):.2f} %"
    )
    return int(percent < args.fail_under)


if __name__ == "__main__":
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # a fork must not find threads
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.chdir(ROOT)
    sys.exit(main())
