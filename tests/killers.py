"""What can kill a mutant: the tests, or the proofs of `fedref check`; and which runs which line."""

import hashlib
import json
import os
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType
from typing import Any

from edits import Mutant

ROOT = Path(__file__).resolve().parents[1]

TARGETS = (
    "models", "algorithms", "algorithm.py", "sampling.py",
    "rounds/loop.py", "rounds/evaluation.py", "rounds/cost.py",
)  # fmt: skip
#: The tests whose subject is the mathematics; those of the proofs are `--killers check`.
TESTS = (
    *sorted(f"tests/{p.name}" for p in (ROOT / "tests").glob("test_*.py")
            if p.stem not in ("test_house", "test_equation_index", "test_mutation", "test_extend")),
    "tests/models", "tests/algorithms", "tests/rounds", "tests/experiments/test_unit.py",
    "tests/experiments/test_runs.py",
)  # fmt: skip
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
    shared = [p for p in shared if p.name not in ("mutation.py", "edits.py", "killers.py")]
    common = hashlib.sha256(sys.version.encode())
    code = sorted((ROOT / "fedref").rglob("*.py"))
    if killers == "tests":  # none of which looks at the proofs
        code = [p for p in code if "proofs" not in p.parts] + shared
    for path in code:
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
        failed = CACHE / "failed"
        failed.write_text("a test's file")

        def work() -> int:
            trace = Trace(sources())
            threading.settrace(trace)
            sys.settrace(trace)

            def run(items: Killers) -> None:
                on_import = trace.take()
                kept: dict[str, dict] = {name: {"import": on_import, "by": {}} for name in missing}
                for name, passes in items:
                    began = time.process_time()
                    if not passes():
                        failed.write_text(name)
                        os._exit(KILLED)
                    file = name.split("::")[0] if killers == "tests" else "check"
                    kept[file]["by"][name] = (time.process_time() - began, trace.take())
                for file, what in kept.items():
                    where[file].write_text(json.dumps(what))
                os._exit(SURVIVED)

            with_killers(killers, missing, run)
            return KILLED

        if in_parallel(1, [("", work)])[""] != SURVIVED:
            sys.exit(f"{failed.read_text()} does not pass before anything is changed")

    def of(self, mutant: Mutant) -> tuple[list[str], bool]:
        """(what runs the mutant, fastest first; whether it must be imported anew)."""
        lines = set(mutant.lines)
        hit = [
            name for name, (_, files) in self.by.items() if files.get(mutant.path, set()) & lines
        ]
        afresh = not mutant.in_function or bool(self.on_import[mutant.path] & lines)
        if afresh:
            hit = [  # a default is read without running a line of its file
                name
                for name, (_, files) in self.by.items()
                if mutant.path in files or "test_algorithm.py" in name
            ]
        near = ("test_algorithm.py", f"test_{Path(mutant.path).stem}.py")

        def order(name: str) -> float:
            """Seconds; a test of the file itself may take ten times as long as another."""
            return self.by[name][0] / (10 if any(file in name for file in near) else 1)

        return sorted(hit, key=order), afresh
