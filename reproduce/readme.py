"""README.md beside the results: a table for each paper.

It is made of papers.toml, and of the claims.csv and numbers.csv in the results.
"""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedref.boundary.errors import DataError, FedrefError
from fedref.boundary.files import write_atomically
from reproduce import catalogue
from reproduce.claims import (
    HOLDS,
    NOT_JUDGED,
    RULE,
    VERDICTS,
    Finding,
    group_by_place,
    read_claims,
    read_papers,
    sections_of,
    verdict,
)
from reproduce.tables import markdown, mean_and_deviation

MARK = "<!-- Made by `fedref reproduce`: whatever is changed by hand here is lost. -->"

INTRODUCTION = """\
# The papers' experiments, and what fedref measures

A line for every number and figure of the five papers, and for every claim that we found in them, beside
what `fedref reproduce NAME` measures with the experiment files in `NAME/` (`fedref reproduce --list`);
what is not measured says why. The link in the last column leads to all numbers and pictures, to how
they were measured, and to the data, seeds, runtime and commit behind them.

*The paper* is the text that fedref was written from: for APFL the article itself; for
FedMAML an article that names no paper and breaks off in §4.3; for the others a Chinese text that retells or
repeats a paper. So the table of Per-FedAvg is of a repetition, not Fallah et al.'s, and
what such a text does not say is not called the paper's. Accuracies are test accuracies weighted by samples.
Per-FedAvg, FedMeta, FedAvg(Meta) and FedMAML's θ are tested *after* their step or steps on the client's data,
FedAvg and FedProx without any, and APFL with the client's own part. An average is over all evaluated rounds,
the start included. Differences are taken seed by seed."""

COUNTED = """\
There are {all} judgements of what the papers claim, one for each claim in each place, which is a data set
or a setting: {each}.
Places share runs, and one sentence is judged in up to nine of them; what holds: {holds}.
Apart from these {apart} are not counted, and their rows say why: {why}."""

ORIGINS = """\
## Where the hyperparameters are from

Not all of them are the papers'. Where the text says nothing, its source or a usual value stands in, and
two things are fitted or chosen: the width of CIFAR-10's split, and FedMeta's rates, on validation clients."""

MORE = """\
## Beside the papers

{links}"""

HEADS = ("claim or number", "paper", "ours ±", "seeds, places", "verdict")
#: So many values of a row are listed; of more, the smallest and the largest.
LISTED = 5


def check_readme(path: Path) -> None:
    """Refuse to overwrite somebody's own README."""
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(MARK):
        raise FedrefError(
            f"{path} was not made by fedref, and the results are gathered there: give --out "
            "FOLDER/results with a FOLDER of its own"
        )


def write_readme(out: Path, readme: Path) -> None:
    """Write what the results in the folder `out` amount to."""
    write_atomically(readme, make_readme(catalogue.root(), out).encode())


def make_readme(root: Path, out: Path) -> str:
    """Return the README: the rule, a table for each paper, where the hyperparameters are from, notes."""
    table = read_papers(root / "papers.toml")
    used: dict[str, None] = {}
    papers = [paper_section(paper, table.get("notes", {}), out, used) for paper in table["paper"]]
    notes = [f"[^{name}]: {table['notes'][name]['text']}" for name in used]
    origins = [["experiment", "from the text", "from elsewhere", "ours"]]
    origins += [list(origin.values()) for origin in table.get("origin", ())]
    about = {
        section for paper in table["paper"] for row in paper["rows"] for section in sections_of(row)
    }
    others = sorted(path for path in out.glob("*/table.md") if path.parent.name not in about)
    links = [f"- [{title_of(path)}]({out.name}/{path.parent.name}/table.md)" for path in others]
    findings = [f for path in sorted(out.glob("*/claims.csv")) for f in read_claims(path)]
    counted = count_judgements(table["paper"], group_by_place(findings))
    parts = [MARK, INTRODUCTION, *([RULE, counted] if findings else []), *papers]
    parts += [ORIGINS, markdown(origins, left=4)] if len(origins) > 1 else []
    parts += [MORE.format(links="\n".join(links))] if links else []
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])]) + "\n"


def count_judgements(
    papers: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[Finding]]
) -> str:
    """Return how often each verdict was given, apart from rows that are not counted."""
    rows = {row["what"]: (paper["name"], row) for paper in papers for row in paper["rows"]}
    counts, holds, apart = Counter[str](), Counter[str](), Counter[str]()
    for group in groups:
        name, row = rows.get(group[0].claim, ("no paper", {}))
        if "apart" in row:
            apart[row["apart"]] += 1
        else:
            counts[verdict(group)] += 1
            holds[name] += verdict(group) == HOLDS
    by_paper, why = (
        ", ".join(f"{name} {number}" for name, number in c.items() if number)
        for c in (holds, apart)
    )
    return COUNTED.format(
        all=counts.total(), each=count_verdicts(counts), holds=by_paper or "none",
        apart=apart.total(), why=why or "none",
    )  # fmt: skip


def title_of(path: Path) -> str:
    return path.read_text("utf-8").partition("\n")[0].removeprefix("# ").strip()


def paper_section(
    paper: Mapping[str, Any], notes: Mapping[str, Any], out: Path, used: dict[str, None]
) -> str:
    """Return a paper's table and picture; its footnotes are added to `used`."""
    lines = [list(HEADS)]
    for row in paper["rows"]:
        cells, places = cells_of(row, out)
        names = [*row.get("notes", ())]
        names += [n for n, note in notes.items() if touches(note.get("places", ()), places)]
        used |= dict.fromkeys(names)
        lines.append([row["what"] + "".join(f"[^{name}]" for name in names), *cells])
    parts = [f"## {paper['title']}", markdown(lines, left=len(HEADS))]
    if (out / paper.get("picture", "")).is_file():
        parts.append(f"![{paper['caption']}]({out.name}/{paper['picture']})")
    return "\n\n".join(parts)


def touches(data: Sequence[str], places: Sequence[str]) -> bool:
    """Whether one of the places is on one of these data sets."""
    return any(place.startswith(name) for name in data for place in places)


def cells_of(row: Mapping[str, Any], out: Path) -> tuple[list[str], list[str]]:
    """Return the cells of a row from *paper* on, and the places that its numbers are of."""
    paper = row.get("paper", "–")
    if "because" in row:
        return [paper, "–", "–", f"not here: {row['because']}"], []
    sections = [section for section in sections_of(row) if (out / section / "table.md").exists()]
    if not sections:
        return [
            paper,
            "–",
            "–",
            f"not run here: `fedref reproduce {' '.join(sections_of(row))}`",
        ], []

    def link(text: str) -> str:
        rest = (f", [and]({out.name}/{section}/table.md)" for section in sections[1:])
        return f"[{text}]({out.name}/{sections[0]}/table.md)" + "".join(rest)

    if "numbers" in row:
        cells, places = number_cells(row, out / sections[0] / "numbers.csv")
        return [*cells, link("numbers")], places
    if "shows" in row:
        return [paper, row["shows"], "–", link("shown")], []
    found = [f for section in sections for f in read_claims(out / section / "claims.csv")]
    groups = [group for group in group_by_place(found) if group[0].claim == row["what"]]
    counts = Counter(verdict(group) for group in groups)
    said = count_verdicts(counts) if len(groups) > 1 else next(iter(counts), NOT_JUDGED)
    said = link(said) + (f"; not counted: {row['apart']}" if "apart" in row else "")
    return [paper, ours(groups), seeds_of(groups), said], [g[0].place for g in groups]


def count_verdicts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {counts[name]}" for name in VERDICTS if counts[name])


def ours(groups: Sequence[Sequence[Finding]]) -> str:
    """Return what was measured: each value, or the smallest and the largest of many."""
    each = [[f for f in group if f.use != "beside" and f.name] for group in groups]
    values = [finding for group in each for finding in group]
    if len(values) > LISTED:
        judged = [f for f in values if f.use == "judged"] or values
        ends = [select(judged, key=lambda f: f.mean) for select in (min, max)]
        where = ", where it is judged" if len(judged) < len(values) else ""
        return " to ".join(str(f).removeprefix(f.name).strip() for f in ends) + where
    found = [
        ", ".join(str(f).removeprefix("" if len(group) > 1 else f.name).strip() for f in group)
        for group in each
    ]
    shorter = [re.sub(r",? (digits|grey)$|'s rule, digits", "", g[0].place) for g in groups]
    named = [
        f"{place} {text}" if len(groups) > 1 else text
        for place, text in zip(shorter, found)
        if text
    ]
    return "; ".join(named) or "–"


def seeds_of(groups: Sequence[Sequence[Finding]]) -> str:
    """Return how many seeds there are, and in how many places."""
    seeds = sorted({f.seeds for group in groups for f in group if f.seeds}, reverse=True)
    return in_words(seeds, len(groups))


def in_words(seeds: Sequence[int], places: int) -> str:
    """Return 3 or 1 seeds, 4 places."""
    text = f"{' or '.join(map(str, seeds)) or 'no'} {'seed' if [*seeds] == [1] else 'seeds'}"
    return f"{text}, {places} places" if places != 1 else text


def number_cells(row: Mapping[str, Any], path: Path) -> tuple[list[str], list[str]]:
    """Return the paper's numbers, ours, and seeds and places, of the lines of numbers.csv that are meant."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    ((column, values),) = row.get("among", {"": [""]}).items()
    paper, means, seeds = [], [], 0
    for value in values:
        wanted = row["numbers"] | ({column: value} if column else {})
        line = next((x for x in lines if all(x[k] == v for k, v in wanted.items())), None)
        if line is None:
            raise DataError(f"{path}: has no line with {wanted}, which papers.toml asks for")
        each = [float(x) for x in line["each seed"].split()]
        seeds = max(seeds, len(each))
        digits = 0 if value in ("clients", "samples") else 2
        means.append(mean_and_deviation(float(line["mean"]), float(line["sd"]), len(each), digits))
        if printed := line.get("paper"):
            paper.append(f"{float(printed):g}" if float(printed) < 1e4 else printed)
    place = str(row["numbers"].get("data", ""))
    told = row.get("paper", ", ".join(paper) or "–")
    return [told, ", ".join(means), in_words([seeds], 1)], [place]
