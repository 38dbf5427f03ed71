"""Exercises: a function of the specification in which one expression is missing.

A student's file defines that function. It is tried on the worked example and on cases that Hypothesis
draws: the function is called with what the specification calls it with, and must return the same. An
answer that is wrong is told what it gives on the worked example and what is right there, and, if a known
wrong expression gives the same on all cases, that in words. No verdict says the expression.
"""

import ast
import inspect
import re
import textwrap
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from operator import attrgetter
from typing import Any
from unittest.mock import patch

import numpy as np

import fedref.checks  # noqa: F401 (more rules for dual numbers)
from fedref import spec
from fedref.boundary.errors import ConfigError, unknown
from fedref.conformance.errata import MISTAKES, replace
from fedref.judge import Case, answer
from fedref.models import MLP
from fedref.teach import example
from fedref.teach.example import show

#: What stands for the missing expression.
GAP = "..."
#: Seven parameters of three output units, so that a number in the place of a vector shows, and a unit in
#: the place of a parameter; two rows in every batch, and one in none, so that a batch is not all the data.
MODEL, WIDTH = MLP(2, (1,), 2, "tanh"), 2
#: How many cases are drawn besides the worked example; the largest relative error of a right answer.
DRAWN, EXACT = 12, 1e-9
DIFFERS = "its numbers differ"


@dataclass(frozen=True)
class Exercise:
    """A missing expression. subject : the call and algorithm whose cases reach the function.

    slips : wrong expression → what to say to it. minutes : an estimate, not measured in a class.
    """

    name: str
    function: str
    missing: str
    subject: Sequence[str] = field(hash=False)
    trains: str
    before: str = ""
    minutes: int = 10
    slips: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def file(self) -> str:
        return self.name.replace("-", "_") + ".py"

    @property
    def solution(self) -> Callable[..., Any]:
        """The function as the specification has it."""
        function: Callable[..., Any] = attrgetter(self.function)(spec)
        return function

    @property
    def source(self) -> str:
        return textwrap.dedent(inspect.getsource(self.solution))

    @property
    def name_of_function(self) -> str:
        """The function's name without its class."""
        return self.function.rpartition(".")[2]


def read(text: str, where: object) -> dict[str, Exercise]:
    """Return the exercises of a TOML file by name. Raises ConfigError."""
    exercises = {}
    for name, table in tomllib.loads(text).items():
        try:
            one = Exercise(name, **table)
            times = one.source.count(one.missing)
        except (TypeError, AttributeError) as error:
            raise ConfigError(f"{where}: {name}: {error}") from None
        if times != 1:
            said = f"{one.missing!r} stands {times} times in {one.function}, expected once"
            raise ConfigError(f"{where}: {name}: {said}")
        exercises[name] = one
    return exercises


EXERCISES = read((files("fedref.teach") / "exercises.toml").read_text("utf-8"), "exercises.toml")


def find(name: str, exercises: Mapping[str, Exercise] = EXERCISES) -> Exercise:
    """Return the exercise of that name; ConfigError lists them."""
    if name not in exercises:
        raise ConfigError(unknown("exercise", name, exercises))
    return exercises[name]


# ---- calls: what the specification calls the function with ---------------------------------------


def record_call(exercise: Exercise, case: Case) -> inspect.BoundArguments:
    """Return what the specification last calls the function with while it answers a case."""
    owner, _, name = exercise.function.rpartition(".")
    home, right = getattr(spec, owner, spec), exercise.solution
    calls: list[inspect.BoundArguments] = []

    def record(*arguments: Any, **options: Any) -> Any:
        kept = {name: keep(x) for name, x in options.items()}
        calls.append(inspect.signature(right).bind(*map(keep, arguments), **kept))
        return right(*calls[-1].args, **calls[-1].kwargs)

    with patch.object(home, name, record), np.errstate(all="ignore"):
        answer(case)
    return calls[-1]


def keep(x: Any) -> Any:
    """Return an argument that can be used again: rounds as a list, a training loss that stays."""
    if isinstance(x, Iterator):
        return list(x)
    if isinstance(x, spec.Dual):  # while the specification differentiates
        return x.a
    return (lambda *_: 1.0) if inspect.isfunction(x) and x.__name__ == "<lambda>" else x


def run(function: Callable[..., Any], bound: inspect.BoundArguments) -> Any:
    """Return what a function gives for copies of these arguments; of a generator the last state."""
    given = deepcopy(bound)
    with np.errstate(all="ignore"):
        result = function(*given.args, **given.kwargs)
        return list(result)[-1] if inspect.isgenerator(result) else result


@cache
def calls_of(exercise: Exercise) -> list[inspect.BoundArguments]:
    """Return the calls that an answer is tried on: the worked example first, then drawn cases."""
    drawn: list[Case] = []

    def note(case: Case) -> bool:
        drawn.append(case)
        return False

    find_case = partial(
        example.find_case, exercise.subject[1], model=MODEL, width=WIDTH, spare=1, rounds=2, steps=2
    )
    find_case(note, DRAWN)
    least = find_case(example.has_no_zero, example.DRAWS)
    calls = [record_call(exercise, case) for case in filter(None, [least, *drawn])]
    return [*calls, *(other for call in calls[:3] for other in vary_call(exercise, call))]


def vary_call(exercise: Exercise, call: inspect.BoundArguments) -> Iterator[inspect.BoundArguments]:
    """Yield the call with more steps, and with complex numbers, where the function takes them.

    The judge's rounds have what an algorithm's defaults ask for; an answer may not rest on that.
    """
    given = call.arguments
    if "steps" in given and isinstance(given["steps"], int):
        yield with_arguments(call, steps=given["steps"] + 1)
    floats = {k: x for k, x in given.items() if isinstance(x, np.ndarray) and x.dtype.kind == "f"}
    if floats and all(isinstance(x, np.ndarray) for x in given.values()):
        turned = with_arguments(call, **{k: x + 0.1j for k, x in floats.items()})
        with suppress(Exception):
            run(exercise.solution, turned)
            yield turned


def with_arguments(call: inspect.BoundArguments, **changed: Any) -> inspect.BoundArguments:
    """Return a call with some arguments changed."""
    return call.signature.bind(**{**call.arguments, **changed})


# ---- a student's file ----------------------------------------------------------------------------


def student_file(exercise: Exercise, formula: bool = False) -> str:
    """Return the file that a student starts from. formula : with the docstring and the comments."""
    text = exercise.source.replace(exercise.missing, GAP)
    if not formula:
        tree: Any = ast.parse(text)
        body = tree.body[0].body
        tree.body[0].body = body[ast.get_docstring(tree.body[0]) is not None :]
        text = ast.unparse(tree)
    call = calls_of(exercise)[0]
    lines = [
        f"Exercise {exercise.name}: {exercise.trains}.", "",
        f"One expression of `{exercise.function}` in fedref/spec.py is missing: write it where {GAP} stands.",
        "f(w, D) is the mean loss on the batch D, f.grad(w, D) its gradient, f.hvp(w, v, D) its Hessian",
        "times v; the table at the top of fedref/spec.py has every other name.", "",
        f"Worked example, {MODEL!r}:",
        *(f"    {name} = {show(x)}" for name, x in call.arguments.items() if not callable(x)),
        "  gives", f"    {show(run(exercise.solution, call))}", "",
        f"Then: fedref exercise check {exercise.file}",
    ]  # fmt: skip
    head = '"""' + "\n".join(lines) + '\n"""\n\nfrom fedref.spec import *\n\n\n'
    return head + text.rstrip() + "\n"


def exercise_of(text: str, where: object, exercises: Mapping[str, Exercise]) -> Exercise:
    """Return the exercise that the first line of a file names."""
    if first := re.match(r'\s*"""Exercise (.*?):', text):
        return find(first[1], exercises)
    wanted = "expected a file that `fedref exercise start` wrote"
    raise ConfigError(f"{where}: begins with no 'Exercise NAME:', {wanted}")


# ---- the verdict ---------------------------------------------------------------------------------


def verdict(
    text: str, where: str, exercises: Mapping[str, Exercise] = EXERCISES
) -> tuple[bool, list[str]]:
    """Return whether a file's text is right, and the lines that say so. It runs the file."""
    exercise = exercise_of(text, where, exercises)
    name = exercise.name_of_function
    try:
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value is ...:
                return False, [f"not finished: line {node.lineno} still says {GAP}"]
        if name not in [getattr(node, "name", "") for node in tree.body]:
            return False, [f"{name} is not defined"]  # the specification's own is imported
        function = define(text, name, {"__name__": "exercise", "__file__": where})
    except (Exception, SystemExit) as error:
        return False, [error_line(error, where)]
    right = [run(exercise.solution, call) for call in calls_of(exercise)]
    owner, _, name = exercise.function.rpartition(".")
    with patch.object(getattr(spec, owner, spec), name, refuse_itself):
        got = [outcome(function, call, where) for call in calls_of(exercise)]
    if not any(map(fault, got, right)):
        return True, ["right"]
    return False, ["not right", *evidence(exercise, got, right)]


def refuse_itself(*_: Any, **__: Any) -> Any:
    """Stand in the place of the specification's own function while a student's runs."""
    raise RuntimeError("this calls the specification's own function, which you are writing")


def define(text: str, name: str, scope: dict[str, Any]) -> Callable[..., Any]:
    """Run a text among these names and return the function that it defines."""
    exec(compile(text, scope["__file__"], "exec", dont_inherit=True), scope)
    function: Callable[..., Any] = scope[name]
    return function


def outcome(function: Callable[..., Any], call: inspect.BoundArguments, where: str) -> Any:
    """Return what a function gives for a call; where it raises, the error as one line."""
    try:
        return run(function, call)
    except (Exception, SystemExit) as error:
        return error_line(error, where)


def error_line(error: BaseException, where: str) -> str:
    """Return an error in one line, with its line in the student's file."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == where]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else 0
    said = (str(error).strip().splitlines() or [""])[0]
    return f"{f'line {line}: ' * bool(line)}{type(error).__name__}: {said}"[:200].rstrip(": ")


def leaves(x: Any, name: str = "what is returned") -> dict[str, Any]:
    """Return the arrays and numbers of a result by their places in it."""
    parts = (
        x if isinstance(x, dict) else dict(enumerate(x)) if isinstance(x, list | tuple) else None
    )
    if parts is None:
        return {name: x}
    return {
        k: leaf for i, part in parts.items() for k, leaf in leaves(part, f"{name}[{i!r}]").items()
    }


def like(got: Any, right: Any) -> Any:
    """Return a result with arrays in the place of lists of arrays, where the right one has arrays."""
    if isinstance(right, np.ndarray) and isinstance(got, list | tuple):
        with suppress(ValueError, TypeError):
            return np.asarray(got)
    if isinstance(right, list | tuple) and isinstance(got, list | tuple) and len(got) == len(right):
        return type(right)(map(like, got, right))
    return got


def form(x: Any) -> str:
    return (
        f"numbers of shape {np.shape(x)}" if np.asarray(x).dtype.kind in "biufc" else repr(x)[:60]
    )


def fault(got: Any, right: Any) -> str:
    """Return in words how two results differ, "" if they are equal to rounding."""
    if isinstance(got, str) or isinstance(right, str):  # errors
        alike = (
            type(got) is type(right)
            and got.partition(": ")[2][-40:] == right.partition(": ")[2][-40:]
        )
        return "" if alike else str(got)
    one, other = leaves(like(got, right)), leaves(right)
    if one.keys() != other.keys():
        return f"{len(one)} values are returned, expected {len(other)}"
    for name, want in other.items():
        if form(one[name]) != form(want):
            return f"{name}: {form(one[name])}, expected {form(want)}"
    scale = max(np.max(np.abs(x), initial=0) for x in other.values())
    gap = max(np.max(np.abs(one[name] - x), initial=0) for name, x in other.items())
    return "" if gap <= EXACT * scale else DIFFERS


def evidence(exercise: Exercise, got: Sequence[Any], right: Sequence[Any]) -> Iterator[str]:
    """Yield what is known of a wrong answer: in words, then its numbers beside the right ones."""
    if words := known_mistake(exercise, got):
        yield words
    which, said = next(
        (i, said) for i, pair in enumerate(zip(got, right)) if (said := fault(*pair))
    )
    if said != DIFFERS:
        yield said
    if not isinstance(got[which], str):
        drawn = "it is right, but on a drawn case " if which else ""
        if isinstance(right[which], np.ndarray) and right[which].dtype.kind == "c":
            yield "it is right for real numbers, but loses the derivative: do without .real and abs"
            return
        yours, correct = show(got[which]), show(right[which])
        if yours == correct and isinstance(right[which], np.ndarray):  # behind the digits shown
            yours, correct = (
                np.array2string(np.asarray(x[which]), precision=17) for x in (got, right)
            )
        both = f"yours gives {yours}, right is {correct}"
        yield f"on the worked example {drawn}{both}"


def known_mistake(exercise: Exercise, got: Sequence[Any]) -> str:
    """Return what to say if a known wrong expression or line gives the same on all cases."""
    right, missing = exercise.source, exercise.missing
    known = {right.replace(missing, f"({wrong})"): said for wrong, said in exercise.slips.items()}
    for name, mistake in MISTAKES.items():
        if len(mistake.edits) == 1:
            said = f"this is the known mistake {name!r}"
            known.setdefault(replace(right, mistake.edits[0]), said)
    for text, said in known.items():
        function = define(text, exercise.name_of_function, {**vars(spec), "__file__": "spec"})
        answers = (outcome(function, call, "") for call in calls_of(exercise))
        if not any(map(fault, got, answers)):
            return said
    return ""
