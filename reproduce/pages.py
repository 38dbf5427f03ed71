"""The pages of results: papers/NAME.md with its tables and claims, a page of all claims, the first screen.

A page is a function of cells.csv, of runs.csv (which data, seeds and commits made it) and of the
report's two files. papers/headlines.csv has a row for each claim of the first screen: of which report,
what its text begins with, the place and the method whose number is printed, its text there, and the
paper's number, or "a word".
"""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError
from reproduce import claims
from reproduce.cells import Cells, Place, fits, place_name, read_cells
from reproduce.claims import UNDECIDED, VERDICTS, Claim, Decision, Finding, decide_claims, name_of
from reproduce.runs import PAPERS, Spec, read_spec, report_names
from reproduce.writing import Values, markdown, show_number, show_values

#: So many values of a claim are listed, else the least and the largest.
LISTED = 5
PROVENANCE = (
    "run", "data", "SHA-256", "split", "seeds", "runtime", "fedref", "commit", "date", "machine"
)  # fmt: skip
DATA = PAPERS.parents[1] / "data" / "README.md"
HOW_TO_CITE = (
    "To cite: fedref with the version and commit of the row ([CITATION.cff](../../../CITATION.cff)), "
    "and the papers that `fedref cite` prints for its algorithms."
)


def make_page(name: str, spec: Spec, out: Path) -> str:
    """Return papers/NAME.md with {table NAME} and {claims} filled in, and what made the numbers."""
    cells = read_cells(out / "cells.csv")
    parts = {
        f"table {key}": make_table(spec, cells, t) for key, t in spec.get("tables", {}).items()
    }
    parts["claims"] = claims_table(decide_claims(spec, cells))
    text = fill((PAPERS / f"{name}.md").read_text("utf-8"), parts)
    with (out / "runs.csv").open(encoding="utf-8", newline="") as file:
        made = list(csv.DictReader(file))
    heads = [head for head in PROVENANCE if head != "machine"]
    table = markdown([heads, *([row[head] for head in heads] for row in made)], left=4)
    said = "\n".join(f"- {line}" for line in (machines(made), licences(made), HOW_TO_CITE))
    return f"{text.rstrip()}\n\n## What made these numbers\n\n{table}\n\n{said}\n"


def machines(made: Sequence[Mapping[str, str]]) -> str:
    """Return the processors and versions of NumPy and BLAS of all runs, as far as they were kept."""
    counts = Counter(row["machine"] for row in made)
    lacking = counts.pop("", 0)
    words = [f"{machine} ({n} runs)" for machine, n in counts.items()]
    words += [f"not kept of {lacking} of {len(made)} runs"] if lacking else []
    return f"Processor, NumPy and its BLAS: {'; '.join(words)}. The date is that of the commit."


def licences(made: Sequence[Mapping[str, str]]) -> str:
    """Return the licence of each data set, as data/README.md has it."""
    known = dict[str, str]()
    for section in DATA.read_text("utf-8").split("\n## "):
        if found := re.search(r"^- licence: (.*)", section, re.MULTILINE):
            known |= dict.fromkeys(section.partition("\n")[0].split(", "), found[1])
    names = dict.fromkeys(row["data"].partition("(")[0] for row in made)
    said = "; ".join(f"{name}: {known[name]}" for name in names)
    return f"Licences of the data ([data/README.md](../../../data/README.md)): {said}."


def fill(text: str, parts: Mapping[str, str]) -> str:
    """Return a text with the parts that its {names}, each a line of its own, stand for."""
    return re.sub(r"^\{([^}\n]+)\}$", lambda m: parts[m[1]], text, flags=re.MULTILINE)


def fill_verdicts(text: str, judged: Mapping[str, Sequence[Decision]]) -> str:
    """Return a text with the verdicts that {NAME: how a claim of that report begins} stand for."""

    def words_of(match: re.Match[str]) -> str:
        own = [one for one in judged[match[1]] if one.claim.what.startswith(match[2])]
        if len({one.claim.what for one in own}) != 1:
            raise ConfigError(f"{match[0]} is no single claim")
        return claims.verdict_words(own, " in ")

    return re.sub(r"\{([\w-]+): ([^}]+)\}", words_of, text)


# ---- tables --------------------------------------------------------------------------------------


def make_table(spec: Spec, cells: Cells, wanted: Spec) -> str:
    """Return a table: a row for every place and method, a column for every quantity.

    at : the places. columns : name → digits, or a difference as claims have it, with `digits`, `in`
    (its setting), `signed`, `mean` (without sd) or `within` (in parentheses where it is within its
    margin). paper : false without the paper's numbers. methods : those that it has; "" : what is counted
    of places and data. rows : differences in place of methods.
    """
    columns = {
        q: how if isinstance(how, dict) else {"digits": how} for q, how in wanted["columns"].items()
    }
    printed = {q for numbers in spec.get("paper", {}).values() for q in numbers}
    printed = printed if wanted.get("paper", True) else set()
    heads = (["paper", q, "difference"] if q in printed else [q] for q in columns)
    rows = [["data", "setting", "method", *chain(*heads), "chosen", "comment"]]
    at = wanted.get("at", [])
    methods = dict.fromkeys(name_of(spec, m) for m in wanted.get("methods", spec["methods"]))
    lines = [(place, {"of": m}) for place in cells.places_at(at) for m in methods]
    if "rows" in wanted:
        lines = [(p, line) for line in wanted["rows"] for p in cells.places_at(line.get("at", at))]
    for place, line in lines:
        method = name_of(spec, line["of"])
        fields = {q: {"quantity": q, **line, **how} for q, how in columns.items()}
        values = {q: column_value(spec, cells, place, own) for q, own in fields.items()}
        if not any(values.values()):
            continue
        texts = list[str]()
        for q, how in columns.items():
            x, digits, sign = values[q], how.get("digits", 2), "+" * how.get("signed", False)
            mean = x and how.get("mean")
            text = show_number(x.mean, digits, sign) if x and mean else show_values(x, digits)
            if x and how.get("within"):
                same_data = [p for p in cells.places_at(at) if p[0] == place[0]]
                others = [column_value(spec, cells, p, fields[q]) for p in same_data]
                text = f"({text})" if is_within(x, others, cells.margin(place, "rows")) else text
            paper = paper_number(spec, place, method, q) if x else None  # of nobody else
            off = x.mean - paper if x and paper is not None else None
            three = [show_number(paper, digits), text, show_number(off, digits, "+")]
            texts += three if q in printed else [text]
        notes = [cells.note(place, method, q) for q in ("chosen", *columns)]
        comments = "; ".join(filter(None, dict.fromkeys(notes[1:])))
        rows.append([*place, row_name(spec, line), *texts, notes[0], comments])
    return tidy(rows)


def tidy(rows: Sequence[Sequence[str]]) -> str:
    """Return a table without columns in which nothing stands."""
    if len(rows) == 1:
        return "Not run."
    kept = [column for column in zip(*rows) if {*column[1:]} - {"", "–"}]
    left = sum(column[0] in ("data", "setting", "method") for column in kept)
    return markdown(list(zip(*kept)), left)


def row_name(spec: Spec, line: Spec) -> str:
    names = " − ".join(name_of(spec, line[key]) for key in ("of", "to") if key in line)
    return f"{names}, less {line['start']}" if "start" in line else names


def paper_number(spec: Spec, place: Place, method: str, quantity: str) -> float | None:
    """Return the paper's number, if it prints one: [paper] has place → quantity → number."""
    number = spec.get("paper", {}).get(place_name(place), {}).get(quantity)
    number = number.get(method) if isinstance(number, dict) else number
    return None if number is None else float(number)


def column_value(spec: Spec, cells: Cells, place: Place, fields: Spec) -> Values | None:
    """Return what stands in one column of a row: a cell, or a difference of cells."""
    known = {k: v for k, v in fields.items() if k in Claim._fields and k not in ("at", "digits")}
    there = place[0], fields.get("in", place[1])
    return claims.value(claims.claim_of({"what": "", **known}), cells, there, fields["of"], spec)


def is_within(x: Values, others: Sequence[Values | None], least: float) -> bool:
    """Return whether a difference is within its margin, or so for all that is known."""
    one, *every = (Finding(("", ""), "", "", v, least, 2) for v in (x, *others) if v)
    claim = claims.claim_of({"what": "", "above": 0.0})
    return one._replace(pooled=claims.pool(one, every)).decide(claim) == UNDECIDED


# ---- claims on a report's page -------------------------------------------------------------------


def claims_table(judged: Sequence[Decision]) -> str:
    """Return a row for every claim and place: what was measured, the limits, the verdict."""
    rows = [["claim", "place", "ours ±", "limit; margin", "verdict"]]
    for claim, group in groupby((j for j in judged if j.claim.is_decided), key=lambda j: j.claim):
        what = claim.what
        for one in group:
            why = f": {one.why_not}" if one.why_not else ""
            rows.append([what, one.place, show_findings(one), limits(one), one.words + why])
            what = "〃"
    return markdown(rows, left=5)


def show_findings(one: Decision) -> str:
    """Return the numbers of one claim in one place: judged, and beside it the others."""
    text = ", ".join(words(one, f) for f in one.decisive)
    text += f" {one.claim.unit}" if one.claim.unit else ""
    beside = ", ".join(words(one, f) for f in one.findings if not f.judged)
    return f"{text}; beside it {beside}" if beside else text


def words(one: Decision, f: Finding) -> str:
    """Return a number, after what it is of where the claim has several."""
    label = f.method if len(one.claim.of) > 1 or not f.judged else ""
    label = f.quantity if f.quantity in one.claim.also else label
    where = f.place[1] if one.claim.together else ""
    return " ".join(filter(None, [label, where, show_values(f.values, f.digits)]))


def limits(one: Decision) -> str:
    """Return the limits of a claim, and the margin of each of its numbers."""
    pairs = (("above", one.claim.above), ("below", one.claim.below))
    texts = (f"{word} {x:g}".replace("-", "−") for word, x in pairs if abs(x) < np.inf)
    text = " and ".join(texts)
    if not one.decisive:
        return text
    if one.decisive[0].least is None:
        return f"{text}; counted"
    if max(f.values.seeds for f in one.decisive) == 1:
        return f"{text}; one seed"
    margins = [show_number(f.margin, max(one.claim.digits, 2)) for f in one.decisive]
    return f"{text}; {', '.join(margins if len({*margins}) > 1 else margins[:1])}"


# ---- the page of all claims ----------------------------------------------------------------------


def make_claims(out: Path) -> str:
    """Return papers/claims.md with {NAME}, the table of a report, and {counts} filled in."""
    rows: dict[str, list[list[str]]] = {name: [] for name in report_names()}
    titles, judged = {}, []
    for name in report_names():
        spec, path = read_spec(name), out / name / "cells.csv"
        own = decide_claims(spec, read_cells(path)) if path.exists() else []
        titles[name] = spec["title"]
        for claim in claims.claims_of(spec):
            home, mine = claim.belongs or name, [one for one in own if one.claim == claim]
            judged += [(home, one) for one in mine if claim.is_decided]
            cells = cells_of(spec, claim, mine, f"({name}/README.md)", path.exists())
            rows[home].append([claim.what + footnotes(spec, claim, mine), *cells])
    heads = ["claim or number", "paper", "ours ±", "seeds, places", "verdict"]
    parts = {name: markdown([heads, *own], left=5) for name, own in rows.items()}
    parts["counts"] = counts([(titles[home], one) for home, one in judged])
    return fill((PAPERS / "claims.md").read_text("utf-8"), parts)


def footnotes(spec: Spec, claim: Claim, judged: Sequence[Decision]) -> str:
    """Return the marks of a row's notes, and of those on its data."""
    places = [place_name(f.place) for one in judged for f in one.findings]
    data = spec.get("data-notes", {}).items()
    on_data = [note for pattern, note in data if any(fits(place, [pattern]) for place in places)]
    return "".join(f"[^{name}]" for name in dict.fromkeys([*claim.notes, *on_data]))


def cells_of(
    spec: Spec, claim: Claim, own: Sequence[Decision], page: str, there: bool
) -> list[str]:
    """Return the cells of a row from *paper* on."""
    paper, found = claim.paper, [f for one in own for f in one.findings]
    if claim.because or not there:
        why = f"not here: {claim.because}" if claim.because else "not run here"
        return [paper or "–", "–", "–", why]
    if claim.shows:
        return [paper or "–", claim.shows, "–", f"[shown]{page}"]
    if not claim.is_decided:
        known = (paper_number(spec, f.place, f.method, f.quantity) for f in found)
        numbers = ", ".join(f"{x:.10g}" for x in known if x is not None)
        texts = ", ".join(show_values(f.values, f.digits) for f in found)
        return [paper or numbers or "–", texts, seeds_of(found), f"[number]{page}"]
    apart = f"; not counted: {claim.apart}" if claim.apart else ""
    seeds = f"{seeds_of(found)}, {len(own)} places" if len(own) != 1 else seeds_of(found)
    return [paper or "–", ours(own), seeds, f"[{claims.verdict_words(own)}]{page}{apart}"]


def ours(judged: Sequence[Decision]) -> str:
    """Return what was measured: each value, or the smallest and the largest of many."""
    values = [f for one in judged for f in one.decisive]
    if len(values) > LISTED:
        meant = [f for one in judged if not one.why_not for f in one.decisive] or values
        ends = [select(meant, key=lambda f: f.values.mean) for select in (min, max)]
        where = ", where it is judged" if len(meant) < len(values) else ""
        return " to ".join(show_values(f.values, f.digits) for f in ends) + where
    texts = []
    for one in judged:
        shorter = re.sub(r",? (digits|grey)$|'s rule, digits", "", one.place)
        own = ", ".join(words(one, f) for f in one.decisive)
        texts.append(f"{shorter} {own}" if len(judged) > 1 else own)
    return "; ".join(texts) or "–"


def seeds_of(found: Sequence[Finding]) -> str:
    """Return how many seeds there are."""
    seeds = sorted({f.values.seeds for f in found}, reverse=True)
    return f"{' or '.join(map(str, seeds)) or 'no'} {'seed' if seeds == [1] else 'seeds'}"


def counts(found: Sequence[tuple[str, Decision]]) -> str:
    """Return how many judgements there are, how they come out, and what is not counted."""
    counted = [(paper, one) for paper, one in found if not one.claim.apart]
    holds = Counter(paper for paper, one in counted if one.verdict == claims.HOLDS)
    apart = Counter(one.claim.apart for _, one in found if one.claim.apart)
    by_paper, why = (", ".join(f"{k} {n}" for k, n in c.items()) or "none" for c in (holds, apart))
    return (
        f"There are {len(counted)} judgements of what the papers claim, one for each claim in each "
        f"place, which is a data set\nor a setting: {all_verdicts([one for _, one in counted])}.\n"
        f"Places share runs, and one sentence is judged in up to nine of them; what holds: {by_paper}."
        f"\nApart from these {apart.total()} are not counted, and their rows say why: {why}."
    )


def all_verdicts(judged: Sequence[Decision]) -> str:
    """Return how often each verdict is there: "holds 88, contradicted 16 ..."."""
    each = claims.count_verdicts(judged)
    return ", ".join(f"{v} {each[v]}" for v in VERDICTS)


# ---- the first screen ----------------------------------------------------------------------------


class Headline(NamedTuple):
    """A row of papers/headlines.csv with its judgements in all places."""

    row: Mapping[str, str]
    spec: Spec
    judged: Sequence[Decision]

    @property
    def claim(self) -> Claim:
        return self.judged[0].claim

    @property
    def findings(self) -> list[Finding]:
        """The numbers of every method that is judged, in every place that is."""
        return [f for one in self.judged if not one.why_not for f in one.decisive]

    @property
    def printed(self) -> Finding:
        """The number that is printed in the table: of the method and the place that the row names."""
        place, method = self.row["place"], self.row["method"]
        own = (f for f in self.findings if method in f.method)
        return next(f for f in own if place_name(f.place).startswith(place))

    @property
    def table_row(self) -> list[str]:
        ours = show_values(self.printed.values, self.claim.digits)
        verdict = claims.verdict_words(self.judged, " in ")
        return [self.row["text"], self.row["paper"], ours, verdict]


def headline_rows() -> list[dict[str, str]]:
    with (PAPERS / "headlines.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_headlines(out: Path) -> tuple[list[Headline], dict[str, list[Decision]]]:
    """Return the headline claims, judged on OUT/NAME/cells.csv, and all judgements of each report."""
    found, every = list[Headline](), dict[str, list[Decision]]()
    for name, own in groupby(headline_rows(), key=lambda row: row["report"]):
        spec = read_spec(name)
        judged = decide_claims(spec, read_cells(out / name / "cells.csv"))
        for row in own:
            mine = [one for one in judged if one.claim.what.startswith(row["claim"])]
            found.append(Headline(row, spec, [j for j in mine if j.claim == mine[0].claim]))
        every[name] = judged
    return found, every


def make_readme(found: Sequence[Headline], every: Mapping[str, Sequence[Decision]]) -> str:
    """Return papers/README.md with its table of headline claims, its verdicts, and the counts of all."""
    rows = [["claim", "paper", "ours ±", "verdict"]]
    for title, own in groupby(found, key=lambda one: one.spec["headline"]):
        group = list(own)
        rows.append([f"{title}: [page](results/{group[0].row['report']}/README.md)", "", "", ""])
        rows += [one.table_row for one in group]
    judged = chain.from_iterable(every.values())
    counted = [j for j in judged if j.claim.is_decided and not j.claim.apart]
    said = f"{len(counted)} judgements: {all_verdicts(counted)}."
    parts = {"headlines": markdown(rows), "counts": said}
    return fill_verdicts(fill((PAPERS / "README.md").read_text("utf-8"), parts), every)
