"""The topics of `fedref explain`: every equation, algorithm, model, exercise and known mistake."""

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from textwrap import indent

from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, unknown
from fedref.judge.errata import MISTAKES
from fedref.models import MODELS
from fedref.teach import pages, reference, source
from fedref.teach.exercises import EXERCISES
from fedref.teach.pages import PAGES
from fedref.teach.source import page_name

#: Other names that are asked for → what they lead to.
ALIASES = {
    "meta-sgd": "fedmeta-sgd", "maml": "fedmeta-maml", "fomaml": "fedmeta-fomaml", "ewc": "fedcurv",
    "fisher": "fedcurv", "hvp": "proofs", "papers": "spec", "glossary": "start",
    "symbols": "start",
}  # fmt: skip


@cache
def topics() -> dict[str, dict[str, Callable[[], str]]]:
    """Return what can be explained: kind → name → what gives its text. A name's first kind counts."""
    modules = {page_name(module): module for module in source.modules()}
    return {
        "pages": {{"index": "start"}.get(name, name): PAGES[name] for name in pages.LINKS},
        "algorithms": {
            name: partial(pages.paper_page, modules[page_name(cls)], name)
            for name, cls in ALGORITHMS.items()
        },
        "papers": {name.replace("_", "-"): PAGES[name] for name in modules},
        "models": {name: PAGES[f"model-{name}"] for name in MODELS},
        "exercises": {name: partial(pages.exercise_text, name) for name in EXERCISES},
        "mistakes": {name: partial(pages.mistake_text, name) for name in MISTAKES},
        "names": {name: partial(reference.entry, name) for name in reference.public()},
        "equations": {tag: partial(pages.tag_text, tag) for tag in source.tag_lines()},
    }


def list_topics() -> Iterator[str]:
    """Yield every topic by kind, and with each equation its lines."""
    width = max(map(len, source.tag_lines())) + 2
    for kind, names in topics().items():
        yield kind
        for name in names:
            lines = pages.places(name) if kind == "equations" else None
            yield f"  {name}" if lines is None else f"  {f'[{name}]':<{width}}  {'  '.join(lines)}"


def explain(name: str) -> str:
    """Return the text about a topic, in Markdown. Case is ignored; a ConfigError suggests similar names."""
    known = {x.casefold(): page for of in reversed(topics().values()) for x, page in of.items()}
    wanted = " ".join(name.casefold().replace("[", " ").replace("]", " ").split())
    wanted = re.sub(r"\b(eq|alg)\. ", r"\1.", wanted)
    wanted = ALIASES.get(wanted, wanted)
    full = [x for x in reference.public() if x.casefold().endswith(f".{wanted}")]
    full = [x for x in full if x == f"fedref.{wanted}"] or full
    full = [x for x in full if x.endswith(f".{name}")] or full  # here Plan is not plan
    if wanted in known or len(full) == 1:  # check_gradient is enough
        return known[wanted]() if wanted in known else reference.entry(full[0])
    error = f"{name} is the end of several names, expected one of {', '.join(full)}"
    error = error if full else unknown("topic", name.casefold(), [*known, *ALIASES])
    raise ConfigError(f"{error} (`fedref explain --list` lists them all)")


def for_terminal(text: str) -> str:
    """Return Markdown as text for a terminal: no fences, no links to pages, no pictures, tables aligned."""
    text = re.sub(r"^!\[.*\n+|^```slider[\s\S]*?^```\n+", "", text, flags=re.M)
    text = re.sub(r"^```answer\n([\s\S]*?)^```$", r"Answer: \1", text, flags=re.M)
    text = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text)
    fence = r"^```(?:math|output|diff|python) *(.*\n)([\s\S]*?)^```$"
    text = re.sub(fence, lambda x: x[1].lstrip() + indent(x[2], "    "), text, flags=re.M)
    text = re.sub(r"(?:^\|.*\n?)+", align_table, text, flags=re.M)
    text = re.sub(r"^#+ .*$", underline, text, flags=re.M)
    return plain(text)


def underline(heading: re.Match[str]) -> str:
    words = plain(heading[0].lstrip("# "))
    return f"{words}\n{'─' * len(words)}"


def plain(text: str) -> str:
    """Return text without the marks of Markdown around code and what is bold."""
    text = re.sub(r"(?<!\w)\*\*(\S.*?)\*\*(?!\w)", r"\1", text)
    return re.sub(r"\n{4,}", "\n\n\n", text.replace("`", "").replace(r"\|", "|"))


def align_table(block: re.Match[str]) -> str:
    """Return a table with columns as wide as their cells."""
    lines = (plain(line)[2:-2] for line in block[0].splitlines() if not line.startswith("| ---"))
    rows = [re.split(r" \| ", line) for line in lines]
    widths = [max(map(len, column)) for column in zip(*rows)]
    aligned = ("  ".join(cell.ljust(n) for cell, n in zip(row, widths)) for row in rows)
    return "".join(f"  {line.rstrip()}\n" for line in aligned)
