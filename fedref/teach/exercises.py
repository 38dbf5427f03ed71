"""Exercises: a function of the specification in which one expression is missing.

A student's file defines that function. It is tried on a worked example with two parameters and on drawn
cases: the function is called with what the specification calls it with, and must return the same.
"""

import ast
import inspect
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, wraps
from importlib.resources import files
from operator import attrgetter
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from fedref import spec
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, unknown
from fedref.judge import Case, answer
from fedref.models import MLP, BinaryLogistic
from fedref.sampling import stream
from fedref.teach.example import RATES, make_rounds, show
from fedref.teach.source import text_of

#: What stands for the missing expression.
GAP = "..."
#: The worked example's model, and that of every other drawn case: seven parameters of three output units,
#: so that a number in the place of a vector shows, and a unit in the place of a parameter; with an L2 term.
MODELS = BinaryLogistic(2, bias=False), MLP(2, (1,), 2, "tanh", l2=0.25)
#: Rows of a batch; one row of each client is in no batch of a step, so that a batch is not all the data.
WIDTH = 2
#: How many cases are drawn; the first is the worked example.
DRAWN = 8
#: Step sizes that are drawn: a number of steps times one of them is never 1.
STEP_SIZES = (0.3, 0.4, 0.6, 0.7, 0.8)


@dataclass(frozen=True)
class Exercise:
    """A missing expression. algorithm : the one whose rounds reach the function.

    slips : wrong expression → what to say to it; others : other expressions of the function, with theirs.
    Where the function is a loop each is all that a line assigns. seed : which of them is missing.
    terms : what an answer may be a sum of.
    vary : arguments of the function that every third case has; late : those of the cases of four rounds,
    in which a client joins late; signed : an array that has entries of either sign, and beyond 1, in all
    cases but the worked example. shown : settings of the picture. minutes : an estimate.
    """

    name: str
    function: str
    missing: str
    algorithm: str
    trains: str
    before: str = ""
    minutes: int = 10
    slips: Mapping[str, str] = field(default_factory=dict, hash=False)
    terms: Sequence[str] = field(default=(), hash=False)
    vary: Mapping[str, Any] = field(default_factory=dict, hash=False)
    late: Mapping[str, Any] = field(default_factory=dict, hash=False)
    others: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    signed: str = ""
    shown: Mapping[str, Any] = field(default_factory=dict, hash=False)
    seed: int = 0

    def with_seed(self, seed: int) -> "Exercise":
        """Return the exercise with another missing expression and another worked example; 0 is this one."""
        gaps = {self.missing: self.slips, **self.others}
        missing = [*gaps][seed % len(gaps)]
        terms = self.terms if missing == self.missing or not self.is_loop else ()
        slips = gaps.pop(missing)
        one = replace(self, missing=missing, slips=slips, others=gaps, terms=terms, seed=seed)
        # a process that runs students' code does not see it
        vars(one).update(solution=self.solution)
        return one

    @property
    def file(self) -> str:
        return self.name.replace("-", "_") + ".py"

    @cached_property
    def solution(self) -> Callable[..., Any]:
        """The function as the specification has it."""
        function: Callable[..., Any] = attrgetter(self.function)(spec)
        return function

    @cached_property
    def source(self) -> str:
        return textwrap.dedent(inspect.getsource(self.solution))

    @property
    def name_of_function(self) -> str:
        """The function's name without its class."""
        return self.function.rpartition(".")[2]

    @property
    def is_loop(self) -> bool:
        """Whether the expression is computed in rounds; its value is then not what is returned."""
        return inspect.isgeneratorfunction(self.solution)

    def replaced_by(self, function: Callable[..., Any]) -> Any:
        """Return a context in which the specification calls this function in the place of its own."""
        owner, _, name = self.function.rpartition(".")
        return patch.object(getattr(spec, owner, spec), name, function)


def read(text: str, where: object) -> dict[str, Exercise]:
    """Return the exercises of a TOML file by name. Raises ConfigError."""
    exercises = {}
    for name, table in tomllib.loads(text).items():
        try:
            one = exercises[name] = Exercise(name, **table)
            for gap in (one.missing, *one.others):
                if (times := one.source.count(gap)) != 1:
                    what = f"{gap!r} stands {times} times in {one.function}"
                    raise TypeError(f"{what}, expected once")
            if one.algorithm not in ALGORITHMS:
                raise TypeError(unknown("algorithm", one.algorithm, ALGORITHMS))
        except (TypeError, AttributeError) as error:
            raise ConfigError(f"{where}: {name}: {error}") from None
    return exercises


EXERCISES = read((files("fedref.teach") / "exercises.toml").read_text("utf-8"), "exercises.toml")


def find(name: str, exercises: Mapping[str, Exercise] = EXERCISES) -> Exercise:
    """Return the exercise of that name; ConfigError lists them."""
    if name not in exercises:
        raise ConfigError(unknown("exercise", name, exercises))
    return exercises[name]


# ---- calls: what the specification calls the function with ---------------------------------------


def draw_case(algorithm: str, i: int, seed: int = 0, **shape: int) -> Case:
    """Return the i-th case: two rounds of two clients with two or three steps, all numbers drawn.

    Every third has four rounds, the first without the second client, and two epochs.
    shape : other numbers of rounds, steps.
    """
    rng, model = stream(seed, "exercise", i), MODELS[i % 2]
    cls = ALGORITHMS[algorithm]
    n = 2 * (WIDTH * len(cls().roles) + 1) + 1
    names = [x.name for x in fields(cls) if x.name in RATES]
    rates = dict(zip(names, rng.permutation(STEP_SIZES).tolist()))
    w, X = (rng.choice([-1, 1], s) * rng.integers(1, 20, s) / 10 for s in (model.d, (n, 2)))
    y = rng.permutation(np.arange(n) % 2)
    late = i % 3 == 2
    usual = {"rounds": 4 if late else 2, "steps": 4 if late else 2 + i % 4 // 2}
    return make_rounds(
        algorithm, w, X, y, rates, model=model, width=WIDTH, spare=1, epochs=1 + late, late=late,
        **usual | shape,
    )  # fmt: skip


class Call(NamedTuple):
    """A call of a function. arguments : what can be read once alone is a list."""

    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


def note_calls(function: Callable[..., Any], calls: list[Call]) -> Callable[..., Any]:
    """Return the function, whose calls are added to a list."""

    @wraps(function)
    def noted(*arguments: Any, **options: Any) -> Any:
        arguments = tuple(list(x) if isinstance(x, Iterator) else x for x in arguments)
        calls.append(Call(function.__name__, arguments, options))
        return function(*arguments, **options)

    return noted


def record_call(exercise: Exercise, case: Case) -> dict[str, Any]:
    """Return what the specification last calls the function with while it answers a case."""
    calls = list[Call]()
    with exercise.replaced_by(note_calls(exercise.solution, calls)), np.errstate(all="ignore"):
        answer(case)
    _, arguments, options = calls[-1]
    call = inspect.signature(exercise.solution).bind(*arguments, **options)
    call.apply_defaults()
    return {name: reusable(x) for name, x in call.arguments.items()}


def reusable(x: Any) -> Any:
    """Return an argument that can be used again: a training loss that stays, a number without a slope."""
    if isinstance(x, spec.Dual):  # while the specification differentiates
        return x.a
    return (lambda *_: 1.0) if inspect.isfunction(x) and x.__name__ == "<lambda>" else x


def run(function: Callable[..., Any], call: Mapping[str, Any]) -> Any:
    """Return what a function gives for these arguments; of a generator every state, as it is in the end."""
    with np.errstate(all="ignore"):
        result = function(**call)
        return list(result) if inspect.isgenerator(result) else result


@cache
def calls_of(exercise: Exercise) -> list[tuple[dict[str, Any], Any]]:
    """Return the calls that an answer is tried on, the worked example first, with what is right.

    Every third has the arguments of `vary`: the judge's rounds have what an algorithm's defaults ask
    for, and an answer may not rest on that. The last one has complex numbers, where the function takes them.
    """
    seeds = [exercise.seed] + [0] * (DRAWN - 1)
    cases = (draw_case(exercise.algorithm, i, seed) for i, seed in enumerate(seeds))
    calls = [record_call(exercise, case) for case in cases]
    for call in calls[::3]:
        call.update(exercise.vary)
    for call in calls[2::3]:
        call.update(exercise.late)
    for call in calls[1:] if exercise.signed else []:
        x = call[exercise.signed] = call[exercise.signed].copy()
        np.atleast_2d(x)[-1] = np.resize((1.6, -0.7, -1.3, 0.4), x.shape[-1])
    if all(isinstance(x, np.ndarray) for x in calls[0].values()):
        turned = {k: x + 0.1j if x.dtype.kind == "f" else x for k, x in calls[0].items()}
        with suppress(Exception):
            run(exercise.solution, turned)
            calls.append(turned)
    return [(call, run(exercise.solution, call)) for call in calls]


class Moment(NamedTuple):
    """One time that the expression is computed. names : what is in sight; value : what is right.

    Where the expression is no part of a loop, the value is what the function returns.
    """

    call: Mapping[str, Any]
    names: Mapping[str, Any]
    value: Any


@cache
def moments_of(exercise: Exercise) -> list[Moment]:
    """Return the times that the expression is computed, for each call; the worked example first."""
    moments = []
    noted = exercise.source.replace(exercise.missing, f"note(locals(), {exercise.missing})")
    for call, result in calls_of(exercise):
        seen = list[Moment]()

        def note(names: dict[str, Any], value: Any, call: Any = call, seen: Any = seen) -> Any:
            seen.append(Moment(call, dict(names), value))
            return value

        function = define(noted, exercise.name_of_function, {**vars(spec), "note": note})
        run(function, call)
        if not exercise.is_loop:
            seen = [Moment(call, {**seen[-1].names, **call}, result)]
        moments += seen[::-1][:4]  # those of the last steps: no state is what it begins with
    return moments


def define(text: str, name: str, scope: dict[str, Any], where: str = "spec") -> Callable[..., Any]:
    """Run a text among these names and return the function that it defines."""
    exec(compile(text, where, "exec", dont_inherit=True), scope)
    function: Callable[..., Any] = scope[name]
    return function


# ---- a student's file ----------------------------------------------------------------------------


def student_file(exercise: Exercise) -> str:
    """Return the file that a student starts from."""
    moment = moments_of(exercise)[0]  # of the first call
    return text_of("exercise.txt").format(
        name=exercise.name + (f", seed {exercise.seed}" if exercise.seed else ""), trains=exercise.trains,
        function=exercise.function, f="self" if "." in exercise.function else "f", gap=GAP,
        model=MODELS[0], file=exercise.file, value=show(moment.value),
        given="\n".join(f"    {line}" for line in name_lines(exercise, moment)),
        gives="what is missing is" if exercise.is_loop else f"{exercise.name_of_function} returns",
        code=bare_code(exercise.source.replace(exercise.missing, GAP)),
        last=text_of("run_example.txt").format(
            file=exercise.file, function=exercise.name_of_function, name=exercise.name, seed=exercise.seed
        ) if exercise.name in EXERCISES else "",
    )  # fmt: skip


def bare_code(text: str) -> str:
    """Return the code of functions as it is laid out, without docstrings and comments."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            doc: Any = node.body[0]
            lines[doc.lineno - 1 : doc.end_lineno] = [""] * (doc.end_lineno - doc.lineno + 1)
    kept = (re.sub(r"\s*# .*", "", line) for line in lines)
    return re.sub(r":\n\n+ ", ":\n ", "\n".join(kept)).strip()


def name_lines(exercise: Exercise, moment: Moment) -> Iterator[str]:
    """Yield the names in sight that the expression may be made of, each with its value."""
    words = " ".join((exercise.missing, *exercise.terms, *exercise.slips))
    used = dict.fromkeys(re.findall(r"(?<![\w.])[^\W\d]\w*", words))
    for name, x in moment.names.items():
        if name not in used or callable(x) or x is None:
            continue
        if isinstance(x, spec.Client):
            yield f"client.data = {show(x.data)}"
        elif isinstance(x, list) and x and isinstance(x[0], spec.Client):
            yield f"weights(clients) = {show(moment.names['weights'](x))}"
        else:
            yield f"{name} = {show(x)}"


def exercise_of(text: str, where: object, exercises: Mapping[str, Exercise]) -> Exercise:
    """Return the exercise that the first line of a file names, or else the one whose function it defines."""
    last = r'\s*run_example\(\w+, "([\w-]+)", seed=(\d+)\)'
    first = re.match(r'\s*"""Exercise (.*?)(?:, seed (\d+))?:', text) or re.search(last, text)
    if first:
        return find(first[1], exercises).with_seed(int(first[2] or 0))
    defined = re.findall(r"^ *def (\w+)", text, re.MULTILINE)
    answered = [one for one in exercises.values() if one.name_of_function in defined]
    if len(answered) == 1 and not re.match(r'\s*"""The suspect', text):  # of a hunt
        return answered[0]
    wanted = "expected a file that `fedref exercise start` wrote"
    raise ConfigError(f"{where}: begins with no 'Exercise NAME:', {wanted}")
