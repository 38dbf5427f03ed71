"""Known mistakes: the specification with a wrong line (`errata.txt`), and what it then answers."""

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache, reduce
from importlib import import_module
from importlib.resources import files
from itertools import count
from types import ModuleType
from typing import Any, NamedTuple

from fedref.boundary.errors import ConfigError, unknown
from fedref.judge.case import Case
from fedref.models.numerics import Array

HEAD = re.compile(r"(?P<name>.+?) \[(?P<tag>.+?)\](?: \((?P<kind>variant|convention)\))?")


class ErratumError(ValueError):
    """errata.txt is not in its form, or the right text of an edit does not stand where it says."""


class Edit(NamedTuple):
    """The right text, which stands `times` times in one of the two files, and the wrong text."""

    right: str
    wrong: str
    times: int = 1


class Mistake(NamedTuple):
    """kind : wrong, a variant (another paper or library has it so) or a convention; why : what is right."""

    name: str
    tag: str
    kind: str
    why: str
    edits: tuple[Edit, ...]


def read() -> dict[str, Mistake]:
    """Return the mistakes of errata.txt, by name."""
    _, *blocks = (files("fedref.judge") / "errata.txt").read_text("utf-8").split("\n\n")
    mistakes = list(map(parse, blocks))
    by_name = {mistake.name: mistake for mistake in mistakes}
    if len(by_name) < len(mistakes):
        raise ErratumError("errata.txt: two mistakes have one name")
    return by_name


def parse(block: str) -> Mistake:
    """Return the mistake that a block of errata.txt states."""
    head, why, *lines = block.strip().split("\n")
    match = HEAD.fullmatch(head)
    edits = re.findall(r"((?:^-.*\n?)+)((?:^\+.*\n?)+)", "\n".join(lines), re.MULTILINE)
    if match is None or not edits or {line[:1] for line in lines} != {"-", "+"}:
        raise ErratumError(f"errata.txt: expected a name, [its tag], why, and edits: {head!r}")
    times = (int(re.findall(r"-(\d*)", right)[0] or 1) for right, _ in edits)
    both = [Edit(read_side(right), read_side(wrong), n) for (right, wrong), n in zip(edits, times)]
    return Mistake(match["name"], match["tag"], match["kind"] or "wrong", why.strip(), tuple(both))


def read_side(lines: str) -> str:
    """Return the text of lines that begin with - or +, from its own left margin."""
    return textwrap.dedent(
        re.sub(r"^[-+]\d*", lambda sign: " " * len(sign[0]), lines, flags=re.M)
    ).strip()


def replace(text: str, edit: Edit) -> str:
    """Return a file's text with the edit, at whatever depth its lines are indented."""
    for depth in range(0, 24, 4):
        right, wrong = (textwrap.indent(side, depth * " ").strip() for side in edit[:2])
        if text.count(right) == edit.times:
            return text.replace(right, wrong)
    return text


MISTAKES = read()
adapter: Any = import_module("fedref.judge.adapter")
spec: Any = adapter.spec
NUMBERS = count(1)  # of the modules that are made here
#: What mistakes are put into: the specification, and the adapter that passes it its arguments.
TEXTS = {spec: inspect.getsource(spec), adapter: inspect.getsource(adapter)}


def wrong_text(mistake: str) -> str:
    """Return the specification's text with a mistake in it; edits of the adapter change nothing here."""
    return reduce(replace, MISTAKES[mistake].edits, TEXTS[spec])


@cache
def judge_with(*names: str | Mistake) -> Callable[[Case], dict[str, Any]]:
    """Return the judge's `answer` with these mistakes, by name or as they are; they must fit."""
    answer: Callable[[Case], dict[str, Any]] = build_judge(*names).answer
    return answer


def build_judge(*names: str | Mistake) -> Any:
    """Return the adapter as a module of its own, which calls a specification of its own."""
    texts = dict(TEXTS)
    for name in names:
        for edit in (MISTAKES[name] if isinstance(name, str) else name).edits:
            edited = {module: replace(text, edit) for module, text in texts.items()}
            if sum(edited[module] != text for module, text in texts.items()) != 1:
                raise ErratumError(f"{name}: expected {edit.times} × {edit.right!r} in one file")
            texts = edited
    edited_spec: Any = run(texts[spec], "spec")
    edited_spec.REVERSE = spec.REVERSE  # a run differentiates by tapes
    text = texts[adapter].replace("from fedref import spec\n", "")
    return run(text, "answer", spec=edited_spec)


def mistaken(algorithm: str, name: str) -> Callable[..., Iterator[Any]]:
    """Return the specification's generator of an algorithm with a known mistake, for a run.

    >>> wrong = mistaken("feddyn", "FedDyn's αθ is missing")  # fedref.run(["feddyn", wrong])
    >>> f"{wrong.__module__}:{wrong.__name__}"  # its name, which a command takes
    "fedref.judge:feddyn with FedDyn's αθ is missing"

    It is generator(f, w, rounds, h), with h of `adapter.settings`. Raises ConfigError for unknown names.
    """
    if algorithm not in adapter.RUNS:
        raise ConfigError(unknown("algorithm of fedref.spec", algorithm, adapter.RUNS))
    if name not in MISTAKES:
        raise ConfigError(unknown("mistake", name, MISTAKES))
    generator: Callable[..., Iterator[Any]] = build_judge(name).RUNS[algorithm][1]
    generator.__module__, generator.__name__ = "fedref.judge", f"{algorithm} with {name}"
    generator.__qualname__ = generator.__name__
    return generator


def run(text: str, name: str, **names: Any) -> ModuleType:
    """Return a module of this text, which has `names` already. torch.compile looks it up by its name."""
    module = ModuleType(f"{__name__}.{name}_{next(NUMBERS)}")
    vars(module).update(names, SOURCE=text)
    sys.modules[module.__name__] = module
    for part in text.split("\n\n\n"):
        exec(compile_once(part, f"<{name} of {__name__}>"), vars(module))
    return module


@cache
def compile_once(text: str, file: str) -> Any:
    """Return compiled text; a mistake leaves most functions of the two files as they are."""
    return compile(text, file, "exec")


def answer_of_pair(case: Case, names: tuple[str, ...]) -> dict[str, Array]:
    """Return what mistakes together answer, once; {} too where the edit of one removes another's place."""
    before = next(NUMBERS)
    try:
        return adapter.try_answer(case, build_judge(*names).answer, Exception)
    except ErratumError:
        return {}
    finally:
        for number in range(before, next(NUMBERS)):  # nobody asks for them again
            for kind in ("spec", "answer"):
                sys.modules.pop(f"{__name__}.{kind}_{number}", None)


def answer(case: Case, *names: str | Mistake) -> dict[str, Array]:
    """Return what the specification with these mistakes answers.

    {} where it has no such part, and where a wrong line raises: it may do anything.
    """
    return adapter.try_answer(case, judge_with(*names), Exception if names else NotImplementedError)
