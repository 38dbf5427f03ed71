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


def topics() -> dict[str, list[str]]:
    """Return every name that can be explained, by kind."""
    kinds: dict[str, Iterable[str]] = {
        "equations": source.tag_lines(), "algorithms": ALGORITHMS, "models": MODELS,
        "exercises": EXERCISES, "mistakes": ["mistakes", *MISTAKES], "first": ["start"],
    }  # fmt: skip
    return {kind: list(names) for kind, names in kinds.items()}


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
    known = {topic.casefold(): topic for names in topics().values() for topic in names}
    wanted = " ".join(name.casefold().replace("[", " ").replace("]", " ").split())
    wanted = re.sub(r"\b(eq|alg)\. ", r"\1.", wanted)
    if wanted not in known:
        said = unknown("topic", name.casefold(), known)
        raise ConfigError(f"{said}; `fedref explain --list` lists them all")
    return known[wanted]


def explain(name: str) -> str:
    """Return the text about a topic."""
    topic = find_topic(name)
    if topic in ALGORITHMS:
        return pages.paper_page(importlib.import_module(ALGORITHMS[topic].__module__), topic)
    if topic in source.tag_lines():
        return tag_text(topic)
    if topic in ("mistakes", "start"):
        return pages.PAGES[topic]()
    kinds = {
        **dict.fromkeys(MISTAKES, pages.mistake_text),
        **dict.fromkeys(EXERCISES, pages.exercise_text),
    }
    return (kinds | dict.fromkeys(MODELS, pages.model_page))[topic](topic)


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
