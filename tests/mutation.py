"""Mutation testing: every small edit of the mathematics that no test notices.

    python -m tests.mutation --sample 300 --seed 0
    python -m tests.mutation --only fedref/rounds/loop.py --killers check

prints the share of the edits (mutants) that are killed, and those that survive with file and line.
A mutant changes one place: an operator, a sign, a constant, a comparison, a dropped term or factor,
swapped arguments, a negated condition, a removed statement, a constant returned. Only the tests
that run the edited line are run, fastest first, until one fails. `--killers check` asks the proofs
of `fedref check` instead of the tests.

Most edits change what is computed; the others what is refused, an option's default or a model's
start (`edits.is_equation`). Both shares are printed.

A mutant inside a function costs a fork of a process that has everything imported and collected: the
function's code object is replaced. A mutant of what runs on import (a class attribute, a default, a
function that a test module calls) imports everything anew. Which test runs which line is measured
once, and kept in a temporary folder until the file of the test, a helper or fedref changes.

Edits that change nothing, or nothing but speed, are listed with the reason in equivalent_mutants.txt.
"""

import argparse
import gc
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
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from edits import Mutant, mutants_of  # noqa: E402 (found through the path above)
from killers import (  # noqa: E402
    AFRESH,
    KILLED,
    ROOT,
    SURVIVED,
    Coverage,
    Killers,
    in_parallel,
    sources,
    with_killers,
)

EQUIVALENT = ROOT / "tests/equivalent_mutants.txt"


def equivalents() -> dict[str, str]:
    """Mutant → reason. The file: a line `# reason`, then the mutants it holds for, one a line; one
    that ends with `→ *` stands for every edit of that place."""
    reason, found = "", {}
    for line in EQUIVALENT.read_text("utf-8").splitlines():
        if line.startswith("#"):
            reason = line.lstrip("# ")
        elif line.strip():
            found[line.strip()] = reason
    return found


def listed(key: str, known: Iterable[str]) -> set[str]:
    """The lines of the list that a mutant is one of."""
    return {
        line for line in known if line == key or (line[-1] == "*" and key.startswith(line[:-1]))
    }


OUT = os.dup(1)  # the terminal, also in a child that has none


def say(mutant: Mutant, code: int) -> None:
    """A survivor, as soon as it is known."""
    if code == SURVIVED:
        os.write(OUT, f"survived  {mutant}\n".encode())


# -- how a mutant is run


def run_until_one_fails(chosen: Mapping[str, float], items: Killers) -> int:
    """KILLED as soon as one of the chosen fails, or takes ten times the computing time it should (a
    machine may be busy), or hangs."""
    by_name = dict(items)
    for name, seconds in {"collection": 0.0, **chosen}.items():
        if name in by_name:
            signal.setitimer(signal.ITIMER_PROF, 10 * seconds + 10)
            signal.alarm(600)
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


def nested(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """A function and those inside it: a decorator's have been made already, on import."""
    yield old, new
    inner = [[c for c in code.co_consts if isinstance(c, CodeType)] for code in (old, new)]
    if len(inner[0]) == len(inner[1]):
        for pair in zip(*inner):
            yield from nested(*pair)


def replace_code(functions: Mapping[CodeType, list[FunctionType]], mutant: Mutant) -> bool:
    """Put the mutant's code in place of the function's; False if it must be imported anew."""
    pairs = changed(mutant.original(), mutant.compiled())
    if not pairs or any(old not in functions for old, _ in pairs):
        return False
    try:
        for old, new in itertools.chain.from_iterable(itertools.starmap(nested, pairs)):
            for function in functions.get(old, []):
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
    mutants = [m for m in mutants if not listed(m.key, known) and given.grep in m.key]
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
    left, most = (sum(m.equation for m in some) for some in (alive, mutants))
    print(
        f"{most - left} of {most} that change what is computed, {100 - 100 * left / (most or 1):.2f} %"
    )
    return int(percent < given.fail_under)


if __name__ == "__main__":
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # a fork must not find threads
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.chdir(ROOT)
    sys.exit(main())
