"""The known mistakes for the pages and the terminal: the lines that differ, and what catches them."""

import importlib
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from fedref.conformance import suite, vectors
from fedref.conformance.edits import edit_source, read_source
from fedref.conformance.mistakes import MISTAKES, Mistake
from fedref.teach.source import place


class Lines(NamedTuple):
    """right, wrong : the statements that differ; where : file and line of the right ones."""

    right: list[str]
    wrong: list[str]
    where: str


def lines(name: str) -> Lines:
    """The lines that differ, both from the left margin."""
    edit = MISTAKES[name].edits[0]
    right, wrong = read_source(edit.function).splitlines(), edit_source(edit).splitlines()
    _, first = inspect.getsourcelines(inspect.unwrap(edit.function))
    start = 0
    while right[start] == wrong[start]:
        start += 1
    end = 0
    while end < min(len(right), len(wrong)) - start and right[-1 - end] == wrong[-1 - end]:
        end += 1
    if start + end == len(right):  # lines were put in: show before what
        end -= 1
    right, wrong = (text[start : len(text) - end] for text in (right, wrong))
    bare = [re.sub(r"\s*# (\[|noqa).*", "", line) for line in (*right, *wrong)]
    both = textwrap.dedent("\n".join(bare)).splitlines()
    module = importlib.import_module(edit.function.__module__)
    return Lines(both[: len(right)], both[len(right) :], place(module, first + start))


# ---- what catches it ---------------------------------------------------------------------------------


class Catch(NamedTuple):
    """A golden vector that fails, and what the suite says of it."""

    case: str
    tag: str
    said: str


@cache
def cases() -> tuple[vectors.Case, ...]:
    return tuple(vectors.read())


def catching(name: str) -> list[vectors.Case]:
    """The golden vectors that a mistake moves by more than 100 of their tolerances."""
    return [case for case in cases() if name in case.catches]


def caught(name: str) -> Catch:
    """The first vector in which this mistake, and no other, explains what came out; one of the paper
    whose file has the line, where there is one."""
    from fedref.conformance.report import describe_failure

    backend = MISTAKES[name].backend
    paper = MISTAKES[name].edits[0].function.__module__.rpartition(".")[2].replace("_", "-")
    for case in sorted(catching(name), key=lambda case: case.tag.split()[0] != paper):
        (result,) = suite.run(backend, [case])
        if result.mistakes == (name,):
            return Catch(case.name, case.tag, describe_failure(result))
    raise ValueError(f"no golden vector tells {name!r} from the others")


def numbered() -> list[tuple[str, Mistake]]:
    """All of them, in the order of the list; those without a number last."""
    return sorted(MISTAKES.items(), key=lambda item: item[1].number or len(MISTAKES))


def signs() -> dict[str, str]:
    """Name → what it is called on the page: 1, 9a, 9b, +."""
    share = Counter(mistake.number for _, mistake in numbered())
    seen: Counter[int] = Counter()
    out = {}
    for name, mistake in numbered():
        letter = chr(ord("a") + seen[mistake.number]) if share[mistake.number] > 1 else ""
        seen[mistake.number] += 1
        out[name] = f"{mistake.number}{letter}" if mistake.number else "+"
    return out


def sentence(text: str) -> str:
    """With a capital letter, but for a symbol, and a full stop."""
    first = text.split()[0]
    word = first == "a" or (len(first) > 1 and first.isalpha())
    return f"{text[0].upper() if word else text[0]}{text[1:]}."


def caught_by(name: str) -> str:
    """Which golden vector tells it, as text."""
    first, others = caught(name), len(catching(name)) - 1
    more = f"; and by {others} more vector{'s' * (others > 1)}" if others else ""
    return f"{first.case} [{first.tag}]: {first.said}{more}"


def mistakes_text() -> Iterator[str]:
    """Yield the lines of all of them for the terminal, without the runs."""
    yield from ("Twenty mistakes", "===============", "")
    yield "- the wrong line, + the right one, and the golden vector that tells it"
    for name in signs():
        yield ""
        yield from mistake_text(name)


def mistake_text(name: str) -> Iterator[str]:
    """Yield the lines of one of them."""
    sign, differing = signs()[name], lines(name)
    yield f"{sign}. {name}" if sign != "+" else name
    said = f"{MISTAKES[name].line}."
    yield from textwrap.wrap(said, 96, initial_indent="  ", subsequent_indent="  ")
    yield f"  {differing.where}"
    yield from (f"    - {line}" for line in differing.wrong)
    yield from (f"    + {line}" for line in differing.right)
    yield f"  caught by {caught_by(name)}"
