"""What the papers claim, as rows of data, and the one rule that judges them.

A report has a tuple of `Claim`s and hands it to `judge` with the `Place`s where it has measured: a line
each. `coverage` reads the verdicts off these lines for the table that README.md of the results begins
with: papers.toml beside this file names every table, figure and claim of the papers, with the section
that is about it. So no verdict there can differ from its section.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import DataError
from fedref.models.numerics import Array
from reproduce.measures import QUANTITIES
from reproduce.tables import Values, listed, markdown, spread

#: What differs by no more than this is the same: the last digits of a mean depend on its order.
ROUNDING = 1e-9


class Place(NamedTuple):
    """Where claims are judged: a data set or a setting.

    run : what is measured (a Run, for the shared quantities). methods : what they are called, those
    that are `absent` as well. doubts : why nothing can be judged here; seldom : nor what needs every
    round; {} in them stands for what was measured.
    """

    key: str
    name: str
    run: Any
    methods: Mapping[str, str]
    setting: str = ""  # its name where all places of a key are one line
    absent: Sequence[str] = ()
    doubts: Sequence[str] = ()
    seldom: str = ""
    data: Any = None  # the LoadedExperiment, for quantities that need it


class Claim(NamedTuple):
    """One sentence of a paper. It holds if in every seed the quantity of every method in `of`, less
    that of the best in `to`, is above and below the thresholds.

    quantity : one of the shared ones by its name, or what measures it.
    sign : −1 where less is better: the difference is taken the other way round.
    times : a quotient in place of the difference.
    beside : methods that are not the paper's own: printed, and not judged.
    called : what the only number is called, if not as its method.
    places : the keys of those that it is about (none: all). together : all places of a key are one line.
    each_round : it can be judged only where every round was evaluated.
    needs : methods that the quantity needs besides. show : how its values are written.
    """

    text: str
    quantity: str | Callable[[Place, str], Values]
    of: Sequence[str]
    to: Sequence[str] = ()
    above: float | None = None
    below: float | None = None
    unit: str = "points"
    sign: int = 1
    times: bool = False
    beside: Sequence[str] = ()
    note: str | Callable[[Place], str] = ""
    called: str = ""
    places: Sequence[str] = ()
    together: bool = False
    each_round: bool = False
    needs: Sequence[str] = ()
    digits: int = 2
    show: Callable[[Values, int], str] = spread


def judge(claims: Iterable[Claim], places: Sequence[Place]) -> str:
    """Return a line of Markdown for every claim and place that it is about."""
    lines = []
    for claim in claims:
        about = [place for place in places if not claim.places or place.key in claim.places]
        groups = [[place] for place in about]
        if claim.together:
            keys = dict.fromkeys(place.key for place in about)
            groups = [[place for place in about if place.key == key] for key in keys]
        lines += [judge_at(claim, group) for group in groups]
    return "\n".join(lines)


def judge_at(claim: Claim, group: Sequence[Place]) -> str:
    """Return the line of one claim in one place, or in all that are one line."""
    place = group[0]
    text = f"{claim.text}, {place.name}" if place.name else claim.text
    needed = (*claim.of, *claim.to, *claim.needs)
    if absent := [place.methods[m] for m in place.methods if m in needed and m in place.absent]:
        return not_judged(text, f"not run to the end: {', '.join(absent)}")
    doubts = [place.seldom] if claim.each_round and place.seldom else place.doubts
    if doubts and not any("{}" in doubt for doubt in doubts):
        return not_judged(text, "; ".join(doubts))
    values = {
        at.setting if claim.together else claim.called or at.methods[m]: measure(claim, at, m)
        for m in claim.of
        for at in group
    }
    if doubts:
        known = not any(np.isnan(x).any() for x in values.values())
        measured = f"{listed(values, claim.digits, claim.show)} {claim.unit}"
        why = [doubt.replace("{}", measured) for doubt in doubts if known or "{}" not in doubt]
        return not_judged(text, "; ".join(why))
    beside = {
        at.methods[m] + f", {at.setting}" * claim.together: measure(claim, at, m)
        for m in claim.beside
        if m not in place.absent
        for at in group
    }
    note = claim.note(place) if callable(claim.note) else claim.note
    return verdict_line(claim, text, values, beside, note)


def measure(claim: Claim, place: Place, method: str) -> Array:
    """Return what the thresholds are for, of one method: (seeds,)."""

    def value(m: str) -> Array:
        if isinstance(claim.quantity, str):
            return QUANTITIES[claim.quantity](place.run, m)
        return np.atleast_1d(np.asarray(claim.quantity(place, m), float))

    if not claim.to:
        return claim.sign * value(method)
    other = claim.sign * np.max([claim.sign * value(m) for m in claim.to], 0)
    if not claim.times:
        return claim.sign * (value(method) - other)
    return value(method) / other if claim.sign > 0 else other / value(method)


def verdict_line(
    claim: Claim, text: str, values: Mapping[str, Array], beside: Mapping[str, Array], note: str
) -> str:
    """Return the verdict and the numbers that it is read off. Nothing measured holds nowhere."""
    every = np.concatenate([*values.values(), np.zeros(0)])
    low = -np.inf if claim.above is None else claim.above
    high = np.inf if claim.below is None else claim.below
    holds = bool(every.size and (every > low + ROUNDING).all() and (every < high - ROUNDING).all())
    limits = [("above", claim.above), ("below", claim.below)]
    rule = " and ".join(
        f"{word} {f'{x:g}'.replace('-', '−')}" for word, x in limits if x is not None
    )
    seeds = "one seed:" if values and max(x.size for x in values.values()) == 1 else "every seed"
    words = [f"beside it, {listed(beside, claim.digits, claim.show)}"] if beside else []
    return (
        f"- {'Holds' if holds else 'Does not hold'} ({seeds} {rule}): *{text}*; "
        f"{listed(values, claim.digits, claim.show)} {claim.unit}"
        f"{''.join('; ' + more for more in [*words, note] if more)}."
    )


def not_judged(text: str, why: str) -> str:
    """Return the line of a claim that what was measured cannot decide."""
    return f"- Not judged: *{text}*; {why}."


# ---- what of the papers is reproduced: the table that README.md of the results begins with -------

#: A line of a table.md that judges a claim or says why not: verdict, rule, and the claim's words.
JUDGED = re.compile(
    r"^- (Holds|Does not hold|Not judged)(?: \(([^)]*)\))?: \*(.+?)\*[;:.]", re.MULTILINE
)

KEYS = {"paper", "what", "section", "claim", "shows", "data", "because"}


def items_of(root: Path) -> list[dict[str, Any]]:
    """Return what papers.toml lists; nothing where there is none."""
    path = root / "papers.toml"
    if not path.exists():
        return []
    found: list[dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))["item"]
    for item in found:
        ways = {"because", "claim", "shows"} & item.keys()
        if set(item) - KEYS or not {"paper", "what"} <= set(item) or len(ways) != 1:
            raise DataError(
                f"{path}: {item} is not understood, expected paper, what, and either section with "
                "claim or shows, or because"
            )
    return found


def coverage(root: Path, out: Path) -> str:
    """Return a table of everything in papers.toml, with the verdicts in OUT/SECTION/table.md."""
    rows = [["paper", "table, figure or claim", "section", "verdict"]]
    for item in items_of(root):
        paths = [out / section / "table.md" for section in sections_of(item)]
        texts = [path.read_text("utf-8") for path in paths if path.exists()]
        links = ", ".join(link(text) for text in texts)
        rows.append([item["paper"], item["what"], links or "–", verdict(item, "\n".join(texts))])
    return markdown(rows, left=4) if len(rows) > 1 else ""


def sections_of(item: dict[str, Any]) -> list[str]:
    """Return the sections that are about an item: a claim may be judged in several."""
    found = item.get("section", [])
    return [found] if isinstance(found, str) else list(found)


def verdict(item: dict[str, Any], text: str) -> str:
    """Return in words how often a claim holds, what is shown, or why there is nothing."""
    if "because" in item:
        return f"not here: {item['because']}"
    if not text.strip() or item.get("data", "") not in text:
        return f"not run here: `fedref reproduce {' '.join(sections_of(item))}`"
    if "shows" in item:
        return str(item["shows"])
    found = [line for line in JUDGED.findall(text) if line[2].startswith(item["claim"])]
    judged = [(said == "Holds", rule) for said, rule, _ in found if said != "Not judged"]
    if not judged:
        return "not judged" if found else "not judged in the results at hand"
    held, places = sum(holds for holds, _ in judged), len(judged)
    words = "holds" if held else "does not hold"
    if 0 < held < places:
        words += f" in {held} of {places} places"
    elif places > 1:
        words += f" ({places} places)"
    once = sum(rule.startswith("one seed") for _, rule in judged)
    if once:
        words += "; one seed" if once == places else f"; {once} of them with one seed"
    if len(found) > places:
        words += f"; {len(found) - places} not judged"
    return words


def link(text: str) -> str:
    """Return a link to a section's heading in that README, as GitHub makes its anchors."""
    title = text.partition("\n")[0].removeprefix("# ").strip()
    anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    return f"[{title}](#{anchor})"
