"""The hunt: a specification with one planted mistake, which a student finds by a test.

`start` writes two files: `suspect.py`, an algorithm of the specification with a known mistake, without its
comments; and `test_suspect.py`, in which the student writes tests that the right algorithm passes and the
suspect does not, and the number of the wrong line. The smaller the case that shows it, the better.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from fedref import spec
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, unknown
from fedref.conformance.subprocess_runner import SubprocessRunner
from fedref.judge.adapter import try_answer
from fedref.judge.errata import MISTAKES, TEXTS, answer, wrong_text
from fedref.sampling import stream
from fedref.teach.example import no_hypothesis_folder, show
from fedref.teach.exercises import Call, Exercise, bare_code, draw_case, exercise_of, note_calls
from fedref.teach.source import algorithms_of, equations_in, page_name, spec_code, text_of
from fedref.teach.verdict import WAITED, OutOfTime, error_line, leaves, run_guarded, verdict

SUSPECT, TEST = "suspect.py", "test_suspect.py"
#: What `suspect.py` begins with, and all of `test_suspect.py`.
HEAD, PAGE = text_of("suspect.txt"), text_of("test_suspect.txt")


@cache
def plantable() -> dict[str, tuple[str, str, str]]:
    """Return {mistake: (its paper, the right code, the wrong code)} of those in an algorithm's lines."""
    codes = {}
    for name, one in MISTAKES.items():
        paper = one.tag.split()[0].replace("-", "_")
        texts = TEXTS[spec], wrong_text(name)
        right, wrong = (bare_code(spec_code(paper, text)) for text in texts)
        if one.kind == "wrong" and len(wrong_lines(right, wrong)) == 1 and "; " not in wrong:
            codes[name] = paper, right, wrong
    return codes


def wrong_lines(right: str, wrong: str) -> list[int]:
    """Return the numbers of the lines of `suspect.py` that are not the right ones."""
    first = HEAD.count("\n") + 1
    lines = enumerate(wrong.splitlines(), first)
    return [n for n, line in lines if line not in right.splitlines()]


class Hunt(NamedTuple):
    """What is asked for. algorithm : one, or the name of a paper, "" for any; level : 1 to 3, 0 for any."""

    seed: int
    algorithm: str = ""
    level: int = 0

    def __str__(self) -> str:
        level = f"level {self.level}" if self.level else ""
        return ", ".join(filter(None, [f"hunt {self.seed}", self.algorithm, level]))


def hunt_of(text: str) -> Hunt | None:
    """Return the hunt that a test file names in its first line, or None."""
    first = re.match(r'\s*"""Hunt (\d+)(?:, (?!level )([\w-]+))?(?:, level (\d))?:', text)
    return Hunt(int(first[1]), first[2] or "", int(first[3] or 0)) if first else None


def choose(hunt: Hunt) -> str:
    """Return the mistake that is planted. Raises ConfigError if there is none."""
    papers = {name: paper for name, (paper, _, _) in plantable().items()}
    wanted = hunt.algorithm.replace("-", "_")
    if hunt.algorithm in ALGORITHMS:
        wanted = page_name(ALGORITHMS[hunt.algorithm])
    if wanted and wanted not in papers.values():
        known = dict.fromkeys(paper.replace("_", "-") for paper in papers.values())
        raise ConfigError(unknown("algorithm with mistakes to plant", hunt.algorithm, known))
    names = [name for name, paper in papers.items() if wanted in ("", paper)]
    for i in stream(hunt.seed, "hunt").permutation(len(names)):
        if hunt.level in (0, level_of(names[i]) if hunt.level else 0):
            return names[i]
    raise ConfigError(f"{hunt}: no mistake of that level; try another level from 1 to 3")


@cache
def level_of(mistake: str) -> int:
    """Return how large a case has to be: 1 for a round of one step, 2 for a round of several, 3 for more.

    Also 3 where no rounds show it, but another function of the paper.
    """
    for level, steps in enumerate((1, 3), 1):
        for algorithm in algorithms_of(plantable()[mistake][0]):
            case = draw_case(algorithm, 0, rounds=1, steps=steps)
            right, wrong = try_answer(case, error=Exception), answer(case, mistake)
            if not all(np.allclose(x, wrong.get(name, np.nan)) for name, x in right.items()):
                return level
    return 3


def hunt_files(hunt: Hunt) -> dict[str, str]:
    """Return the two files of a hunt by their names."""
    paper, _, wrong = plantable()[choose(hunt)]
    functions = function_names(wrong)
    algorithm = ALGORITHMS[algorithms_of(paper)[0]]
    equations = (e for e in equations_in(sys.modules[algorithm.__module__]) if e.formula)
    words = {"hunt": str(hunt), "Hunt": str(hunt).capitalize(), "name": functions[0], "test": TEST}
    words |= {"paper": paper.replace("_", "-"), "functions": ", ".join(functions)}
    roles = ["D"] * len(algorithm().roles)
    words["batches"] = ", ".join(roles if len(roles) > 1 else [*roles, ""]).strip()
    words["equations"] = "\n".join(f"    [{e.tag}] {e.text}" for e in equations)
    return {SUSPECT: HEAD.format(**words) + wrong + "\n", TEST: PAGE.format(**words)}


def function_names(code: str) -> list[str]:
    return re.findall(r"^def (\w+)", code, re.M)


# ---- the verdict ---------------------------------------------------------------------------------


def describe_call(call: Call) -> str:
    """Return how small the case is that a call of the suspect has."""
    given = [x for x in (*call.arguments, *call.options.values()) if not callable(x)]
    arrays = (np.asarray(x) for x in leaves(given).values())
    count = sum(x.size for x in arrays if x.dtype.kind in "fc" or x.ndim)
    return f"the case has {count} numbers: {call.name}({', '.join(map(show, given))})"[:400]


def exercise_name(text: str, where: object, exercises: Mapping[str, Exercise]) -> str:
    """Return "hunt SEED", or the name of the exercise that a file answers. Raises ConfigError."""
    hunted = hunt_of(text)
    return str(hunted) if hunted else exercise_of(text, where, exercises).name


def file_verdict(
    text: str, where: str, exercises: Mapping[str, Exercise], seconds: float = 60.0
) -> tuple[bool, list[str]]:
    """Return the verdict on a file: of an exercise, or whether a hunt's line is found, and by a test."""
    hunted = hunt_of(text)
    if not hunted:
        return verdict(text, where, exercises, seconds)
    codes = plantable()[choose(hunted)][1:]
    with SubprocessRunner(fork=True) as runner:
        said = runner.call(hunt_verdict, text, where, codes, seconds, timeout=WAITED * seconds)
    return (False, [said]) if isinstance(said, str) else said


def hunt_verdict(text: str, where: str, codes: Sequence[str], seconds: float) -> Any:
    """Return whether a hunt's line is found, and by a test; a line where the file itself fails.

    codes : the right one, and the suspect's.
    """
    right, wrong = codes

    def give_verdict() -> tuple[bool, list[str]]:
        if failure := run_tests(text, where, right)[0]:
            text_of_failure = f"the right algorithm does not pass either: {failure}"
            return False, ["not found", text_of_failure]
        failure, line, calls = run_tests(text, where, wrong)
        missed = "no function test_... fails on the suspect (methods are not called)"
        faults = [] if failure else [missed]
        if not line or not isinstance(line, int):
            faults.append(f"LINE is {line!r}: say which line is wrong, by its number")
        elif line not in wrong_lines(right, wrong):
            faults.append(f"line {line} is right")
        found = [] if faults else ["found", *map(describe_call, calls[-1:])]
        return not faults, found or ["not found", *faults]

    return run_guarded(give_verdict, where, seconds)


def run_tests(text: str, where: str, code: str) -> tuple[str, Any, list[Call]]:
    """Run a test file with this code as the module `suspect`.

    Return its first failure, its LINE, and the calls of the suspect that it has made until then.
    """
    from hypothesis import settings

    names, calls = {"__name__": "test", "__file__": where}, list[Call]()
    settings.register_profile("hunt", database=None, deadline=None, derandomize=True)
    settings.load_profile("hunt")
    with (
        no_hypothesis_folder(),
        patch.dict(sys.modules, suspect=make_suspect(code, calls)),
        patch.object(sys, "path", [str(Path(where).parent), *sys.path]),
    ):
        exec(compile(text, where, "exec", dont_inherit=True), names)
        line = names.get("LINE")
        tests = {n: x for n, x in names.items() if n.startswith("test") and callable(x)}
        failures = (failure_of(name, test, where) for name, test in tests.items())
        return next(filter(None, failures), ""), line, calls


def failure_of(name: str, test: Any, where: str) -> str:
    """Return how a test fails, "" if it passes."""
    given = signature(test).parameters.values()
    if needs := ", ".join(x.name for x in given if x.default is x.empty):
        return f"{name} takes {needs}: tests are called without arguments here"
    try:
        test()
    except OutOfTime:
        raise
    except BaseException as error:
        return f"{name}: {error_line(error, where)}"
    return ""


def make_suspect(code: str, calls: list[Call]) -> ModuleType:
    """Return the module of this code. Calls from outside are noted: what it calls itself is not.

    It has all that `suspect.py` has where pytest imports it: also the names of the specification.
    """
    wrong, suspect = ModuleType("suspect"), ModuleType("suspect")
    exec(compile("from fedref.spec import *\n" + code, SUSPECT, "exec"), vars(wrong))
    noted = {name: note_calls(getattr(wrong, name), calls) for name in function_names(code)}
    vars(suspect).update(vars(wrong) | noted)
    return suspect
