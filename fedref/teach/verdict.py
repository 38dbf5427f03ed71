"""The verdict on a student's file: right, or what is known of its mistake. It never shows the solution.

We evaluate the student's expression at every point where the specification evaluates its own, with the same
names in sight. A difference is shown in words (a known mistake, a wrong form, the sign or factor of a term)
and in numbers.
"""

import ast
import linecache
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from copy import deepcopy
from functools import cache, partial
from io import StringIO
from itertools import takewhile
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from fedref import spec
from fedref.checks import DualNumber
from fedref.conformance.subprocess_runner import SubprocessRunner
from fedref.judge.errata import MISTAKES, wrong_text
from fedref.judge.terms import RIGHT, combine, sum_text
from fedref.teach import exercises
from fedref.teach.example import show
from fedref.teach.exercises import EXERCISES, GAP, Exercise, Moment, calls_of, moments_of, run

#: The largest relative error of a right answer, and of one that is told to be nearly right.
EXACT, ROUGH = 1e-11, 1e-4
DIFFERS = "its numbers differ"
IN_PLACE = (
    "which is still used: `a -= b` and `a[:] = b` change an array, `a = a - b` makes a new one"
)
RANDOM = (
    "the same call gives other numbers a second time: nothing here is random, or kept between calls"
)
#: The loops around the gap are written anew, or with other names: no value is to be found.
ANEW = "anew"
ELSEWHERE = "what was left out is right, another line is not"
IN_LIST = "the numbers are right, but in a list: what follows needs an array, np.array([...])"
NONE = "a function without `return` gives None, and so does `print`"
#: A file that waits for something is given up after so many times its seconds of computing.
WAITED = 10
#: How many moments with more than three numbers a sum of terms is tried on.
LOOKED_AT = 8


class OutOfTime(BaseException):
    """A student's code has used up its time on the processor; no `except Exception` stops it."""


@contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """Raise OutOfTime after so many seconds on the processor, however busy the machine is.

    Windows has no such clock: there only the time limit of `fedref exercise check` on the whole ends it.
    """

    def stop(*_: object) -> None:
        raise OutOfTime(f"no answer after {seconds:g} s of computing: an endless loop? (--timeout)")

    if not hasattr(signal, "SIGVTALRM"):
        yield
        return
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def run_guarded(work: Callable[[], Any], where: str, seconds: float) -> Any:
    """Return `work()`, which runs a student's code and nothing else: whatever that raises is a line."""
    try:
        shown = redirect_stdout(StringIO()), redirect_stderr(StringIO())
        with processor_time(seconds), NO_FORK, shown[0], shown[1]:
            return work()
    except OutOfTime as error:
        return Raised(error)
    except BaseException as error:  # a student's code may raise KeyboardInterrupt or SystemExit
        return error_line(error, where)


def refuse_fork() -> int:
    raise RuntimeError("a second process would go on when this one has ended: do without os.fork")


NO_FORK = patch.object(os, "fork", refuse_fork, create=True)


def verdict(
    text: str, where: str, known: Mapping[str, Exercise] = EXERCISES, seconds: float = 60.0
) -> tuple[bool, list[str]]:
    """Return whether a file's text is right, and the lines that say so.

    A process of its own runs the file, and answers with numbers; what is right is known here, where no
    student's code runs. Raises TimeoutError if it waits for something, ChildProcessError if it dies.
    """
    exercise = exercises.exercise_of(text, where, known)
    right = [result for _, result in calls_of(exercise)]
    moments_of(exercise)  # before the process is made, which then has them
    file = StudentFile(exercise, text, where, seconds)
    with SubprocessRunner(fork=True) as runner:
        whole = file.run(runner, results_of)
        if isinstance(whole, str):
            return False, [whole]
        faults = list(filter(None, map(fault, whole, right)))
        if not faults:
            return True, ["right"]
        written = file.run(runner, parts_of)
    if isinstance(written, str):
        return False, ["not right", *(x for x in (written, faults[0]) if x != DIFFERS)]
    line, values = written
    return False, ["not right", *evidence(exercise, line, values, whole)]


class StudentFile(NamedTuple):
    """A file with an answer to an exercise. seconds : of computing that it may take."""

    exercise: Exercise
    text: str
    where: str
    seconds: float

    def run(self, runner: SubprocessRunner, work: Callable[["Answer"], Any]) -> Any:
        """Return work(its answer), or one line, by a process of its own; errors as of `verdict`."""
        return runner.call(run_file, self, work, timeout=WAITED * self.seconds)


def run_file(file: StudentFile, work: Callable[["Answer"], Any]) -> Any:
    """Return work(the answer of a file), or a line. The specification's own function is out of reach."""

    def read_and_work() -> Any:
        answer = read_answer(file.exercise, file.text, file.where)
        return answer if isinstance(answer, Raised) else work(answer)

    others = [x for x in sys.modules if x.startswith("fedref.") and x != "fedref.spec"]
    with (
        file.exercise.replaced_by(refuse_itself),
        patch.object(spec, "gradient", writable_gradient),
        patch.object(sys, "path", [*sys.path, str(Path(file.where).parent)]),
        patch.dict(sys.modules, dict.fromkeys(others)),  # which cannot be imported then
    ):
        result = run_guarded(read_and_work, file.where, file.seconds)
        loaded = dict(sys.modules)
    for name, module in loaded.items():  # some, like torch, cannot be imported twice
        sys.modules.setdefault(name, module)
    return result


def results_of(answer: "Answer") -> list[Any]:
    """Return what a student's function gives for each call."""
    calls = (call for call, _ in calls_of(answer.exercise))
    return [plain(value_of(answer, call, partial(run, answer.function))) for call in calls]


def parts_of(answer: "Answer") -> Any:
    """Return the line of an answer and what it has at each moment, or one line on it."""
    if answer.exercise.is_loop and (words := leaves_early(answer.part) or misplaced(answer)):
        return (answer.line, []) if words == ANEW else Raised(words)
    moments = moments_of(answer.exercise)
    *values, again = (plain(value_at(answer, moment)) for moment in (*moments, moments[0]))
    return (answer.line, values) if repr(again) == repr(values[0]) else Raised(RANDOM)


class Thing(str):
    """How something that is no number was shown."""

    def __repr__(self) -> str:
        return str(self)


def plain(x: Any) -> Any:
    """Return arrays, numbers and what holds them as such; of anything else how it is shown."""
    if isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "biufc":
        return np.array(x) if isinstance(x, np.ndarray) else x.dtype.type(x)
    if x is None or type(x) in (bool, int, float, complex, Raised):
        return x
    if isinstance(x, dict):
        return {plain(k): plain(y) for k, y in x.items()}
    if isinstance(x, list | tuple):
        return [plain(y) for y in x] if isinstance(x, list) else tuple(map(plain, x))
    return Thing(shorten(re.sub(" at 0x[0-9a-f]+", "", repr(x)), 60, placeholder=" …"))


def refuse_itself(*_: Any, **__: Any) -> Any:
    """Stand in the place of the specification's own function while a student's runs."""
    raise RuntimeError("this calls the specification's own function, which you are writing")


def writable_gradient(
    f: Callable[..., Any], x: Any, kind: Any = None, gradient: Any = spec.gradient
) -> Any:
    """Return ∇f(x) as an array of its own: a student may change it in place, and use NumPy's functions."""
    g = gradient(f, x, kind or DualNumber)
    return np.array(g) if isinstance(g, np.ndarray) else g


def run_example(function: Callable[..., Any], name: str, seed: int = 0) -> None:
    """Print what a student's function gives on the worked example, beside what is right.

    `python FILE` does it, in the student's own process: an error is Python's own, with its lines.
    """
    exercise, file = EXERCISES[name].with_seed(seed), sys._getframe(1)
    if next(gaps(ast.parse("".join(linecache.getlines(file.f_code.co_filename)))), 0):
        print(f"not finished: {GAP} still stands in {exercise.name_of_function}")
        return
    call, right = calls_of(exercise)[0]
    names = {"gradient": writable_gradient} if "gradient" in file.f_globals else {}
    with patch.object(spec, "gradient", writable_gradient), patch.dict(file.f_globals, names):
        yours = plain(run(function, deepcopy(dict(call))))
    in_rounds = exercise.is_loop and isinstance(yours, list) and yours
    t = differing_round(yours, right) if in_rounds else 0
    both = show_both(*(x[t] if in_rounds else x for x in (yours, right)))
    text, gives = fault(yours, right), f"yields in round {t + 1}" if in_rounds else "gives"
    form_of_it = f": {text}" if text not in ("", DIFFERS) else ""
    print(f"on the worked example yours {gives} {both[0]}{form_of_it}")
    words = f"right is {both[1]}" if text else "which is right"
    print(f"{words}; `fedref exercise check` tries it on other cases, too")


def gaps(node: ast.AST) -> Iterator[int]:
    """Yield the lines in which `...` is all of an expression; in [..., j] and `def f(): ...` it is none."""
    for x in ast.iter_child_nodes(node):
        if isinstance(x, ast.Constant) and x.value is ...:
            yield from [] if isinstance(node, ast.Expr | ast.Subscript) else [x.lineno]
        elif not isinstance(node, ast.Subscript) or x is not node.slice:
            yield from gaps(x)


# ---- what a student wrote ------------------------------------------------------------------------


class Raised(str):
    """What a student's code raised, as one line: no text that it returned."""


#: An exercise → {its function with a known mistake: what to say to it}.
Known = Callable[[Exercise], Mapping[str, str]]


class Answer(NamedTuple):
    """part : the statements in the place of the one with the gap; line : theirs, in the file."""

    exercise: Exercise
    function: Callable[..., Any]
    part: list[ast.stmt]
    line: int
    where: str


def read_answer(exercise: Exercise, text: str, where: str) -> Answer | Raised:
    """Run a file and return its answer, or what is missing in it."""
    tree, name = ast.parse(text), exercise.name_of_function
    for line in gaps(tree):
        return Raised(f"not finished: line {line} still says {GAP}")
    names = {"__name__": "exercise", "__file__": where, name: refuse_itself}
    function = exercises.define(text, name, names, where)
    if function is refuse_itself:  # or the specification's own is imported
        return Raised(f"{name} is not defined, or an import replaces it")
    bound = [
        x
        for x in tree.body
        if name in (getattr(x, "name", ""), *map(ast.unparse, getattr(x, "targets", ())))
    ]
    part = differing_part(template_of(exercise), statements(bound[-1])) if bound else []
    line = [*bound, *part][-1].lineno if bound else 1
    return Answer(exercise, function, part, line, where)


@cache
def template_of(exercise: Exercise) -> list[ast.stmt]:
    """Return the statements of the function, with the gap."""
    return statements(ast.parse(exercise.source.replace(exercise.missing, GAP)).body[0])


def statements(function: Any) -> list[ast.stmt]:
    """Return the statements of a function by their lines, those inside of others, too; no docstring."""
    inside = [x for x in ast.walk(function) if isinstance(x, ast.stmt) and x is not function]
    texts = [x for x in inside if isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant)]
    return sorted((x for x in inside if x not in texts), key=lambda x: x.lineno)


def count_equal(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest beginning that two sequences share."""
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(one, other))])


def differing_part(right: Sequence[ast.stmt], written: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements from the first to the last one that differs."""
    one, other = ([ast.unparse(x).partition("\n")[0] for x in xs] for xs in (right, written))
    first = count_equal(one, other)
    last = count_equal(one[first:][::-1], other[first:][::-1])
    part = written[first : len(written) - last]
    nested = {id(y) for x in part for y in ast.walk(x) if y is not x}
    return [x for x in part if id(x) not in nested]


#: Statement → what ends with it.
ENDS = {ast.Return: "all rounds", ast.Break: "the loop", ast.Continue: "this turn of the loop"}


def leaves_early(part: Sequence[ast.stmt]) -> str:
    """Return a sentence if one of the statements leaves the loop or function around it, else ""."""
    for node in part:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        if ended := ENDS.get(type(node)):
            ends = f"line {node.lineno}: `{type(node).__name__.lower()}` ends {ended}"
            return f"{ends}: every step of every client counts"
        inside = [x for x in ast.iter_child_nodes(node) if isinstance(x, ast.stmt)]
        if isinstance(node, ast.For | ast.While):  # its own loop may be left
            inside = [x for y in inside for x in ast.walk(y) if isinstance(x, ast.Return)]
        if words := leaves_early(inside):
            return words
    return ""


@cache
def target_of(exercise: Exercise) -> str:
    """Return the name to which the line with the gap assigns."""
    template: list[Any] = template_of(exercise)
    return next(ast.unparse(x.targets[0]) for x in template[::-1] if GAP in ast.unparse(x))


def misplaced(answer: Answer) -> str:
    """Return "" if a student's statements stand for the line with the gap, else a sentence, or ANEW."""
    loops = [ast.dump(x.iter) for x in template_of(answer.exercise) if isinstance(x, ast.For)]
    nodes = [x for statement in answer.part for x in ast.walk(statement)]
    if any(
        isinstance(x, ast.Yield) or (isinstance(x, ast.For) and ast.dump(x.iter) in loops)
        for x in nodes
    ):
        return ANEW
    target, code = target_of(answer.exercise), getattr(answer.function, "__code__", None)
    stored = (ast.unparse(x) for x in nodes if isinstance(getattr(x, "ctx", None), ast.Store))
    if target in (text.partition("[")[0] for text in stored):
        return ""
    used = code and target in (*code.co_names, *code.co_varnames, *code.co_cellvars)
    return f"line {answer.line}: nothing is assigned to {target}" if used else ANEW


def value_at(answer: Answer, moment: Moment) -> Any:
    """Return what a student's statements give there; where they raise, the error as one line."""
    if not answer.exercise.is_loop:
        return value_of(answer, moment.call, partial(run, answer.function))
    target = target_of(answer.exercise)
    code = compile(ast.Module(answer.part, []), answer.where, "exec")

    def run_part(names: dict[str, Any]) -> Any:
        names = {**answer.function.__globals__, **names}
        exec(code, names)
        return names.get(target)

    return value_of(answer, moment.names, run_part)


def value_of(
    answer: Answer, names: Mapping[str, Any], work: Callable[[dict[str, Any]], Any]
) -> Any:
    """Return work(copies of these names); what it raises, or has changed in place, as one line."""
    given = {name: deepcopy(x) for name, x in names.items()}
    try:
        with np.errstate(all="ignore"):
            result = work(dict(given))
    except (Exception, SystemExit) as error:
        return error_line(error, answer.where, answer.line)
    for name, x in names.items():
        pairs = zip(leaves(given[name]).values(), leaves(x).values())
        if any(isinstance(y, np.ndarray) and not np.array_equal(y, z) for y, z in pairs):
            return Raised(f"line {answer.line}: this changes {name} itself, {IN_PLACE}")
    return result


def error_line(error: BaseException, where: str, line: int = 0) -> Raised:
    """Return an error in one line, with its line in the student's file."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == where and frame.lineno]
    line = error.lineno or 0 if isinstance(error, SyntaxError) else lines[-1] if lines else line
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    first = (message.strip().splitlines() or [""])[0]
    if "bitwise_xor" in first:
        first = "`^` is no power in Python: write `**`"
    if isinstance(error, ImportError) and str(error.name).startswith("fedref"):
        first = f"an answer is written with the names of fedref.spec, not of {error.name}"
    text = f"{f'line {line}: ' if line else ''}{type(error).__name__}: {first}"
    text += f" ({NONE})" if "NoneType" in first else ""
    return Raised(shorten(text, 240, placeholder=" …").rstrip(": "))


# ---- how two results differ ----------------------------------------------------------------------


def leaves(x: Any, name: str = "what is returned") -> dict[str, Any]:
    """Return the arrays and numbers of a result by their places in it."""
    if not isinstance(x, dict | list | tuple):
        return {name: x}
    parts = x.items() if isinstance(x, dict) else enumerate(x)
    return {k: y for i, part in parts for k, y in leaves(part, f"{name}[{i!r}]").items()}


def like(got: Any, right: Any) -> Any:
    """Return a result with arrays in the place of lists of arrays, where the right one has arrays."""
    if isinstance(right, np.ndarray) and isinstance(got, list | tuple):
        with suppress(ValueError, TypeError):
            return np.asarray(got)
    if isinstance(right, list | tuple) and isinstance(got, list | tuple) and len(got) == len(right):
        return [like(*pair) for pair in zip(got, right)]
    return got


def form(x: Any) -> str:
    if np.asarray(x).dtype.kind not in "biufc":
        return repr(x)[:60]
    return f"numbers of shape {np.shape(x)}" if np.shape(x) else "one number"


def fault(got: Any, right: Any) -> str:
    """Return in words how two results differ, "" if they are equal to rounding."""
    if isinstance(got, Raised):
        return got
    if isinstance(right, np.ndarray) and isinstance(got, list | tuple):
        numbers = like(got, right)
        # a pair of arrays is one
        of_numbers = not all(isinstance(x, np.ndarray) and x.ndim for x in got)
        if of_numbers and isinstance(numbers, np.ndarray) and not fault(numbers, right):
            return IN_LIST
    if isinstance(right, list) and len(right) != (n := len(got) if isinstance(got, list) else 0):
        return f"the number of its yields is {n}, expected {len(right)}: one a round"
    one, other = leaves(like(got, right)), leaves(right)
    if one.keys() != other.keys():
        parts = got if isinstance(got, list) else [got]
        have = "a dictionary" if any(isinstance(x, dict) for x in parts) else f"{len(one)} values"
        want = form(right) if len(other) == 1 else f"{len(other)} values"
        return f"{have}, expected {want}"
    for name, want in other.items():
        if form(one[name]) != form(want):
            return f"{form(one[name])}, expected {form(want)}"
    scale = np.max([np.max(np.abs(x), initial=0) for x in other.values()])  # NaN is the largest
    gap = np.max([np.max(np.abs(one[name] - x), initial=0) for name, x in other.items()])
    return "" if gap <= EXACT * scale else DIFFERS


def equal(got: Any, other: Any) -> bool:
    """Return whether two answers give the same, be it the same error."""
    if isinstance(got, Raised) and isinstance(other, Raised):
        return got.partition(": ")[2][-40:] == other.partition(": ")[2][-40:]
    return not fault(got, other)


# ---- what is known of a wrong answer -------------------------------------------------------------


def evidence(exercise: Exercise, line: int, values: list[Any], whole: list[Any]) -> Iterator[str]:
    """Yield what is known of a wrong answer: in words, then its numbers beside the right ones.

    values : what it has at each moment, if it can be found; whole : its results.
    """
    moments = moments_of(exercise)
    tried = ((value, x, fault(value, x.value)) for value, x in zip(values, moments))
    value, moment, text = next((one for one in tried if one[2]), (None, None, ""))
    if moment is None:
        yield from evidence_of_results(exercise, values, whole)
        return
    if isinstance(moment.value, np.ndarray) and moment.value.dtype.kind == "c":
        yield "it is right for real numbers, but loses the derivative: do without .real, abs and the like"
        return
    words = "" if IN_PLACE in text else known_mistake(exercise, values)
    if not words and text == DIFFERS:
        with suppress(Exception):  # what looks for words may fail: that is no fault of the answer
            words = terms_that_differ(exercise, values)
    if words:
        yield words
    if isinstance(value, Raised) or text == IN_LIST:
        yield text
        return
    if text != DIFFERS:
        yield f"line {line} gives {text}{f' ({NONE})' if value is None else ''}"
    if value is None:
        return
    both = like(value, moment.value), moment.value
    if np.ndim(moment.value) == 2 and not fault(np.transpose(both[0]), moment.value):
        yield "the numbers are right, with rows and columns exchanged"
    yours, right = show_both(*both)
    if moment.call is moments[0].call:
        yield f"on the worked example yours gives {yours}, right is {right}"
        return
    yield "it is right on the worked example, but not where"
    yield from (f"  {line}" for line in exercises.name_lines(exercise, moment))
    yield f"there yours gives {yours}, right is {right}"


def differing_round(yours: Sequence[Any], right: Sequence[Any]) -> int:
    """Return the last of the rounds of both whose results differ, or the last if none does."""
    pairs = [*zip(yours, right)]
    return max((t for t, pair in enumerate(pairs) if fault(*pair)), default=len(pairs) - 1)


def show_both(yours: Any, right: Any) -> list[str]:
    """Return two values as texts, with as many digits as it takes to see that they differ."""
    texts = [[show(x, digits) for x in (yours, right)] for digits in (5, 7, 9, 11, 13, 17)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[0])


def evidence_of_results(exercise: Exercise, values: list[Any], whole: list[Any]) -> Iterator[str]:
    """Yield what is known where the expression is right, or is not to be found: of whole results."""
    known = known_mistake(exercise, whole, known_lines if values else known_functions)
    if any(isinstance(value, list) for value in values):
        yield IN_LIST
    elif known or values:
        yield known or ELSEWHERE
    pairs = [(got, right) for got, (_, right) in zip(whole, calls_of(exercise))]
    i, text = next((i, text) for i, pair in enumerate(pairs) if (text := fault(*pair)))
    yours, right = pairs[i]
    if text == DIFFERS:
        case = "a drawn case" if i else "the worked example"
        t = differing_round(yours, right)
        yours_then, right_then = show_both(yours[t], right[t])
        text = f"in round {t + 1} of {case} yours yields {yours_then}, right is {right_then}"
    yield text


def known_mistake(exercise: Exercise, given: Sequence[Any], known: Known | None = None) -> str:
    """Return what to say if a known mistake gives the same everywhere, "" for none.

    given : what an answer has at each moment, or its results, if the mistakes are those of `known`.
    """
    for words, value in known_values(exercise, known):
        # an edited line may raise anything
        with suppress(Exception), patch.object(spec, "gradient", writable_gradient):
            if all(equal(x, value(i)) for i, x in enumerate(given)):
                return words
    return ""


@cache
def known_values(exercise: Exercise, known: Known | None) -> list[tuple[str, Callable[[int], Any]]]:
    """Return for each known mistake what to say to it, and what it gives: most differ at the first moment."""

    def value(text: str, i: int) -> Any:
        wrong: Any = answer(text)
        if known:
            return plain(run(wrong.function, deepcopy(calls_of(exercise)[i][0])))
        return plain(value_at(wrong, moments_of(exercise)[i]))

    answer = cache(lambda text: read_answer(exercise, f"from fedref.spec import *\n{text}", ""))
    texts = (known or known_answers)(exercise)
    return [(words, cache(partial(value, text))) for text, words in texts.items()]


def known_functions(exercise: Exercise) -> dict[str, str]:
    """Return {the function with a known mistake in any line: what to say to it}."""
    return known_lines(exercise) | known_answers(exercise)


def known_lines(exercise: Exercise) -> dict[str, str]:
    """Return {the function with a known mistake in another line: what to say to it}."""
    say = f"{ELSEWHERE}: "
    others = ((gap, *slip) for gap, slips in exercise.others.items() for slip in slips.items())
    return {exercise.source.replace(gap, f"({x})"): say + words for gap, x, words in others}


def known_answers(exercise: Exercise) -> dict[str, str]:
    """Return {the function with a known mistake: what to say to it}, the shortest text first."""
    source, sheet = exercise.source, dict[str, str]()
    for mistake in MISTAKES.values() if "." not in exercise.function else ():
        text = wrong_text(mistake.name)
        start = text.index(f"\ndef {exercise.function}(")
        wrong = text[start : text.index("\n\n\n", start + 1)].strip() + "\n"
        if wrong != source:
            sheet.setdefault(wrong, f"this is the known mistake {mistake.name!r}: {mistake.why}")
    gaps = {exercise.missing: exercise.slips, **({} if exercise.is_loop else exercise.others)}
    known = {source.replace(gap, f"({x})"): to for gap, xs in gaps.items() for x, to in xs.items()}
    return known | {text: sheet[text] for text in sorted(sheet, key=len)}


# ---- signs and factors ---------------------------------------------------------------------------


def terms_that_differ(exercise: Exercise, values: Sequence[Any]) -> str:
    """Return which sign or factor is wrong, where an answer is a sum of the exercise's terms."""
    situations = []
    for moment, value in zip(moments_of(exercise), values):
        with np.errstate(all="ignore"):
            terms = {t: eval(t, {**vars(spec), **moment.names}) for t in exercise.terms}
        vectors = [moment.value, like(value, moment.value), *terms.values()]
        alike = len({*map(shape_of, vectors)}) == 1 and all(map(np.any, terms.values()))
        if np.size(moment.value) > 3 and alike:
            situations.append((*vectors[:2], terms, numbers_in(moment)))
    if len(situations) < 2 or not all(map(np.isrealobj, situations[0][:2])):
        return ""
    right, yours, *both = zip(*situations[:LOOKED_AT])
    terms, numbers = ({key: [d[key] for d in dicts] for key in dicts[0]} for dicts in both)
    if not any(map(fault, yours, right)):
        return ""  # they differ elsewhere
    if all(np.abs(x - y).max() <= ROUGH * np.abs(y).max() for x, y in zip(yours, right)):
        return "it is right to some digits only: an approximation, or a constant that is not exact"
    if whole := combine(yours, right, {}, numbers):
        c = whole.terms[RIGHT]
        return "all of it has the wrong sign" if c == "-1" else f"this is {c} times what is right"
    sums = [combine(xs, [*np.zeros_like(right)], terms, numbers) for xs in (yours, right)]
    ordered = [{t: x.terms[t] for t in terms if t in x.terms} if x else {} for x in sums]
    if all(ordered):
        return describe_sum(*ordered)
    beside = combine(yours, right, terms, numbers)
    return f"yours is {sum_text(beside.terms)}" if beside else ""


def shape_of(x: Any) -> tuple[int, ...] | None:
    """Return the shape of an array or number; None of anything else, and where a number is not finite."""
    known = isinstance(x, np.ndarray | np.generic | int | float | complex)
    return np.shape(x) if known and np.all(np.isfinite(x)) else None


def numbers_in(moment: Moment) -> dict[str, float]:
    """Return the numbers in sight, also 1 minus them, and divided by the rows of each batch."""
    numbers = {name: x for name, x in moment.names.items() if isinstance(x, float) and x}
    batches = {name: x for name, x in moment.names.items() if isinstance(x, spec.Batch)}
    less = {f"(1 - {name})": 1 - x for name, x in numbers.items()}
    each = {f"{k}/len({b}.y)": x / len(D.y) for k, x in numbers.items() for b, D in batches.items()}
    return numbers | less | each


def describe_sum(yours: Mapping[str, str], right: Mapping[str, str]) -> str:
    """Return what differs between two sums {term: coefficient}; a term that is missing is not named.

    >>> describe_sum({"u": "1", "Hu": "alpha"}, {"u": "1", "Hu": "-alpha"})
    'yours is u + alpha·Hu: the sign of Hu is wrong'
    """
    faults = []
    for term, c in yours.items():
        if term not in right:
            faults.append(f"{term} does not belong there")
        elif right[term].removeprefix("-") != c.removeprefix("-"):
            faults.append(f"the factor of {term} should be {right[term]}")
        elif right[term] != c:
            faults.append(f"the sign of {term} is wrong")
    faults += ["a term is missing"] if {*right} - {*yours} else []
    return f"yours is {sum_text(yours)}" + (f": {', '.join(faults)}" if faults else "")
