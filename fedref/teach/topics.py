"""The topics of `fedref explain`: every equation, algorithm, model, exercise and known mistake."""

import importlib
import re
from collections.abc import Iterable, Iterator

from fedref import proofs
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, unknown
from fedref.conformance.errata import MISTAKES
from fedref.models import MODELS
from fedref.teach import pages, source
from fedref.teach.exercises import EXERCISES
from fedref.teach.pages import join, section

#: Other names that are asked for → what they lead to.
ALIASES = {
    "meta-sgd": "fedmeta-sgd", "maml": "fedmeta-maml", "fomaml": "fedmeta-fomaml", "ewc": "fedcurv",
    "fisher": "fedcurv", "hvp": "proofs", "tour": "index", "papers": "spec", "glossary": "start",
    "symbols": "start",
}  # fmt: skip


def papers() -> dict[str, str]:
    """Return the pages of papers by the names of their files, as algorithms are named."""
    return {name.replace("_", "-"): name for name in map(pages.page_name, source.modules())}


def topics() -> dict[str, list[str]]:
    """Return every name that can be explained, by kind."""
    kinds: dict[str, Iterable[str]] = {
        "pages": ["start", *(x for x in site_pages() if x not in ("start", "index")), "tour"],
        "algorithms": ALGORITHMS, "papers": papers(), "models": MODELS, "exercises": EXERCISES,
        "mistakes": MISTAKES, "equations": source.tag_lines(),
    }  # fmt: skip
    return {kind: list(names) for kind, names in kinds.items()}


def site_pages() -> list[str]:
    """Return the pages about all papers."""
    return [x for x in pages.PAGES if x not in papers().values() and not x.startswith("model-")]


def list_topics() -> Iterator[str]:
    """Yield every topic by kind, and with each equation its lines."""
    width = max(map(len, source.tag_lines())) + 2
    for kind, names in topics().items():
        yield kind
        for name in names:
            tag = kind == "equations"
            yield (
                f"  {f'[{name}]':<{width}}  {'  '.join(pages.places(name))}" if tag else f"  {name}"
            )


def find_topic(name: str) -> str:
    """Return the topic of this name, ignoring case; a ConfigError suggests similar names."""
    known = {topic.casefold(): topic for names in topics().values() for topic in names} | ALIASES
    wanted = " ".join(name.casefold().replace("[", " ").replace("]", " ").split())
    wanted = re.sub(r"\b(eq|alg)\. ", r"\1.", wanted)
    if wanted not in known:
        said = unknown("topic", name.casefold(), known)
        raise ConfigError(f"{said}; `fedref explain --list` lists them all")
    return known[wanted]


def explain(name: str) -> str:
    """Return the text about a topic, in Markdown."""
    topic = find_topic(name)
    if topic in ALGORITHMS:
        return pages.paper_page(importlib.import_module(ALGORITHMS[topic].__module__), topic)
    if topic in source.tag_lines():
        return tag_text(topic)
    page = papers().get(topic, topic)
    if page in pages.PAGES:
        return pages.PAGES[page]()
    kinds = {
        **dict.fromkeys(MISTAKES, pages.mistake_text),
        **dict.fromkeys(EXERCISES, pages.exercise_text),
    }
    return (kinds | dict.fromkeys(MODELS, pages.model_page))[topic](topic)


def for_terminal(text: str) -> str:
    """Return Markdown as text for a terminal: no fences, no links to pages, no pictures, tables aligned."""
    text = re.sub(r"^!\[.*\n+|^```slider[\s\S]*?^```\n+", "", text, flags=re.M)
    text = re.sub(r"^```answer\n([\s\S]*?)^```$", r"Answer: \1", text, flags=re.M)
    text = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text)
    text = re.sub(
        r"^```(?:math|output|diff|python) *(.*)\n([\s\S]*?)^```$", indent_code, text, flags=re.M
    )
    text = re.sub(r"(?:^\|.*\n?)+", align_table, text, flags=re.M)
    text = re.sub(
        r"^#+ (.*)$", lambda x: f"{plain(x[1])}\n{'─' * len(plain(x[1]))}", text, flags=re.M
    )
    return plain(text)


def plain(text: str) -> str:
    """Return text without the marks of Markdown around code and what is bold."""
    text = re.sub(r"(?<!\w)\*\*(\S.*?)\*\*(?!\w)", r"\1", text)
    return re.sub(r"\n{4,}", "\n\n\n", text.replace("`", "").replace(r"\|", "|"))


def indent_code(block: re.Match[str]) -> str:
    place, code = block[1], block[2]
    return f"{place}\n" * bool(place) + re.sub(r"^(?=.)", "    ", code, flags=re.M)


def align_table(block: re.Match[str]) -> str:
    """Return a table with columns as wide as their cells."""
    lines = (plain(line)[2:-2] for line in block[0].splitlines() if not line.startswith("| ---"))
    rows = [re.split(r" \| ", line) for line in lines]
    widths = [max(map(len, column)) for column in zip(*rows)]
    aligned = ("  ".join(cell.ljust(n) for cell, n in zip(row, widths)) for row in rows)
    return "".join(f"  {line.rstrip()}\n" for line in aligned)


def tag_text(tag: str) -> str:
    """Return an equation: the lines that name it, those that compute it by hand, and what is proved."""
    named = (
        f"{source.place(line.module, line.number)} {line.text}" for line in source.tag_lines()[tag]
    )
    by_hand = (e for e in source.equations() if e.tag == tag)
    claims = dict.fromkeys(proof.claim for proof in proofs.PROOFS if proof.tag == tag)
    labels = pages.algorithms_of(pages.paper_of(tag))
    return join(
        f"# [{tag}]",
        section("Where it is named", pages.items(named)),
        section("By hand", *pages.equation_parts(by_hand)),
        section("What `fedref check` proves", pages.items(claims)),
        section("Worked example", pages.example_text(labels[0])) if labels else "",
    )
