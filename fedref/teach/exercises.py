"""Exercises: a function of the specification in which one expression is missing.

A student's file defines that function. It is tried on the worked example and on cases that Hypothesis
draws: the function is called with what the specification calls it with, and must return the same. An
answer that is wrong is told what it gives on the worked example and what is right there, and, if a known
wrong expression gives the same on all cases, that in words. No verdict says the expression.
"""

import ast
import inspect
import textwrap
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from operator import attrgetter
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

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


@dataclass(frozen=True)
class Exercise:
    """A missing expression. subject : the call and algorithm whose cases reach the function.

    slips : wrong expression → what to say to it. minutes : an estimate, not measured in a class.
    """

    name: str
    function: str
    missing: str
    subject: tuple[str, str]
    trains: str
    before: str = ""
    minutes: int = 10
    slips: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def file(self) -> str:
        return self.name.replace("-", "_") + ".py"

    @property
    def source(self) -> str:
        """The function as the specification has it, from the left margin."""
        return textwrap.dedent(inspect.getsource(attrgetter(self.function)(spec)))

    @property
    def name_of_function(self) -> str:
        """The function's name without its class."""
        return self.function.rpartition(".")[2]


def read(text: str, where: object) -> dict[str, Exercise]:
    """Return the exercises of a TOML file by name. Raises ConfigError."""
    exercises = {}
    for name, table in tomllib.loads(text).items():
        try:
            one = Exercise(name, **{**table, "subject": tuple(table["subject"])})
            if one.source.count(one.missing) != 1:
                said = f"{one.missing!r} stands {one.source.count(one.missing)} times in {one.function}"
                raise ConfigError(f"{where}: {name}: {said}, expected once")
        except (TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"{where}: {name}: {error}") from None
        exercises[name] = one
    return exercises


EXERCISES = read((files("fedref.teach") / "exercises.toml").read_text("utf-8"), "exercises.toml")


def find(name: str, exercises: Mapping[str, Exercise] = EXERCISES) -> Exercise:
    """Return the exercise of that name; ConfigError lists them."""
    if name not in exercises:
        raise ConfigError(unknown("exercise", name, exercises))
    return exercises[name]


# ---- calls: what the specification calls the function with ---------------------------------------


class Call(NamedTuple):
    """Arguments that the specification called the function with, and what came back."""

    bound: inspect.BoundArguments
    result: Any


def record_call(exercise: Exercise, case: Case) -> Call:
    """Return the last call of the function while the specification answers a case."""
    owner, _, name = exercise.function.rpartition(".")
    home, right = getattr(spec, owner, spec), attrgetter(exercise.function)(spec)
    calls: list[inspect.BoundArguments] = []

    def record(*arguments: Any, **options: Any) -> Any:
        kept = {name: keep(x) for name, x in options.items()}
        calls.append(inspect.signature(right).bind(*map(keep, arguments), **kept))
        return right(*calls[-1].args, **calls[-1].kwargs)

    with patch.object(home, name, record), np.errstate(all="ignore"):
        answer(case)
    return Call(calls[-1], run(right, calls[-1]))


def keep(x: Any) -> Any:
    """Return an argument that can be used again: rounds as a list, a training loss that stays."""
    if isinstance(x, Iterator):
        return list(x)
    return (lambda *_: 1.0) if inspect.isfunction(x) and x.__name__ == "<lambda>" else x


def run(function: Callable[..., Any], bound: inspect.BoundArguments) -> Any:
    """Return what a function gives for copies of these arguments; of a generator the last state."""
    given = deepcopy(bound)
    with np.errstate(all="ignore"):
        result = function(*given.args, **given.kwargs)
        return list(result)[-1] if inspect.isgenerator(result) else result


@cache
def calls_of(exercise: Exercise) -> list[Call]:
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
    return [record_call(exercise, case) for case in filter(None, [least, *drawn])]


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
        *(f"    {name} = {show_value(x)}" for name, x in call.bound.arguments.items() if is_shown(x)),
        "  gives", f"    {show_value(call.result)}", "",
        f"Then: fedref exercise check {exercise.file}",
    ]  # fmt: skip
    head = '"""' + "\n".join(lines) + '\n"""\n\nfrom fedref.spec import *\n\n\n'
    return head + text.rstrip() + "\n"


def is_shown(x: Any) -> bool:
    """Return whether a student can read an argument: numbers, batches, and the clients of a round."""
    return not callable(x) or isinstance(x, spec.Batch)


def show_value(x: Any) -> str:
    """Return a value as text: arrays, batches as rows, clients by their steps."""
    if isinstance(x, spec.Batch):
        return "; ".join(f"{show(row)} → {label}" for row, label in zip(x.X, x.y))
    if isinstance(x, spec.Client):
        steps = " | ".join(", ".join(map(show_value, batches)) for batches in x.steps)
        return f"client {x.k}, {len(x.data.y)} rows in all, with steps {steps}"
    if isinstance(x, dict):
        return ", ".join(f"{key}: {show_value(value)}" for key, value in x.items())
    if isinstance(x, list | tuple):
        return f"[{', '.join(map(show_value, x))}]"
    return str(x) if isinstance(x, str | bool | None) else show(x)


def exercise_of(text: str, where: object, exercises: Mapping[str, Exercise]) -> Exercise:
    """Return the exercise that the first line of a file names."""
    first = text.lstrip().removeprefix('"""').partition("\n")[0]
    word, _, rest = first.partition(" ")
    if word != "Exercise" or ":" not in rest:
        wanted = "expected a file that `fedref exercise start` wrote"
        raise ConfigError(f"{where}: begins with no 'Exercise NAME:', {wanted}")
    return find(rest.partition(":")[0], exercises)


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
    got = [outcome(function, call, where) for call in calls_of(exercise)]
    right = [call.result for call in calls_of(exercise)]
    if all(map(agree, got, right)):
        return True, ["right"]
    return False, ["not right", *evidence(exercise, got, right)]


def define(text: str, name: str, scope: dict[str, Any]) -> Callable[..., Any]:
    """Run a text among these names and return the function that it defines."""
    exec(compile(text, scope["__file__"], "exec", dont_inherit=True), scope)
    function: Callable[..., Any] = scope[name]
    return function


def outcome(function: Callable[..., Any], call: Call, where: str) -> Any:
    """Return what a function gives for a call; where it raises, the error as one line."""
    try:
        return run(function, call.bound)
    except (Exception, SystemExit) as error:
        return error_line(error, where)


def error_line(error: BaseException, where: str) -> str:
    """Return an error in one line, with its line in the student's file."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == where]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else 0
    said = (str(error).strip().splitlines() or [""])[0]
    return f"{f'line {line}: ' * bool(line)}{type(error).__name__}: {said}"[:200].rstrip(": ")


def arrays(x: Any) -> list[Any]:
    """Return all arrays and numbers of a result, in order."""
    parts = list(x.values()) if isinstance(x, dict) else x
    nested = isinstance(parts, list | tuple)
    return [a for part in parts for a in arrays(part)] if nested else [np.asarray(x)]


def form(x: Any) -> str:
    """Return what a result is made of, in words."""
    parts = arrays(x)
    if any(part.dtype.kind not in "fcbiu" for part in parts):
        return type(x).__name__
    return f"numbers of shape {', '.join(str(part.shape) for part in parts)}"


def agree(got: Any, right: Any) -> bool:
    """Return whether two results are equal, to rounding; two errors are if they end alike."""
    if isinstance(got, str) or isinstance(right, str):
        return (
            type(got) is type(right)
            and got.partition(": ")[2][-40:] == right.partition(": ")[2][-40:]
        )
    if form(got) != form(right) or not form(got).startswith("numbers"):
        return False
    a, b = (np.concatenate([part.ravel() for part in arrays(x)]) for x in (got, right))
    return bool(np.max(np.abs(a - b), initial=0) <= EXACT * np.max(np.abs(b), initial=0))


def evidence(exercise: Exercise, got: Sequence[Any], right: Sequence[Any]) -> Iterator[str]:
    """Yield what is known of a wrong answer: in words, then its numbers beside the right ones."""
    if words := known_mistake(exercise, got):
        yield words
    which = next(i for i in range(len(got)) if not agree(got[i], right[i]))
    a, b = got[which], right[which]
    if isinstance(a, str):
        yield a
        return
    if form(a) != form(b):
        yield f"yours returns {form(a)}, expected {form(b)}"
    drawn = "it is right, but on a drawn case " if which else ""
    yield f"on the worked example {drawn}yours gives {show_value(a)}, right is {show_value(b)}"


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
        if all(agree(x, outcome(function, call, "")) for x, call in zip(got, calls_of(exercise))):
            return said
    return ""
