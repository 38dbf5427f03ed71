"""The first screen: reproduce/README.md, its forest plot and its table of headline claims.

papers/headlines.csv has a row a claim: of which report, what its text begins with, the place and the
method whose number is printed, its text here, and the paper's number, or "a word".
"""

import csv
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style

from fedref.boundary.files import write_atomically
from fedref.boundary.style import COLOURS, STYLE, frame, save, sign
from reproduce.cells import fits, place_name, read_cells
from reproduce.claims import (
    CONTRADICTED,
    HOLDS,
    UNDECIDED,
    VERDICTS,
    Claim,
    Finding,
    Judgement,
    count_verdicts,
    judge_claims,
)  # fmt: skip
from reproduce.pages import fill
from reproduce.runs import PAPERS, Spec, read_spec
from reproduce.writing import markdown, show_values

#: Margins beyond which a dot is drawn at the edge.
CLIP = 8.0
COLOUR = {HOLDS: COLOURS[1], CONTRADICTED: COLOURS[2], UNDECIDED: COLOURS[4]}
GREY = "#909090"
DARK = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "#0d1117"),
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), "#e6edf3"),
    **dict.fromkeys(("xtick.color", "ytick.color"), "#e6edf3"),
    "grid.color": "#30363d",
}


class Headline(NamedTuple):
    """A row of papers/headlines.csv with its judgements in all places."""

    row: Mapping[str, str]
    spec: Spec
    judged: Sequence[Judgement]

    @property
    def claim(self) -> Claim:
        return self.judged[0].claim

    @property
    def findings(self) -> list[Finding]:
        """The numbers of the method that is named, in every place that is judged."""
        judged = [f for one in self.judged if not one.why_not for f in one.decisive]
        return [f for f in judged if self.row["method"] in f.method]

    @property
    def printed(self) -> Finding:
        """The number that is printed in the table."""
        return next(f for f in self.findings if place_name(f.place).startswith(self.row["place"]))


def headline_rows() -> list[dict[str, str]]:
    with (PAPERS / "headlines.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def are_all_in(out: Path) -> bool:
    """Return whether every report with a headline claim has its cells in OUT."""
    return all((out / row["report"] / "cells.csv").exists() for row in headline_rows())


def read_headlines(out: Path) -> list[Headline]:
    """Return the headline claims, each judged on OUT/NAME/cells.csv."""
    found = []
    for name, own in groupby(headline_rows(), key=lambda row: row["report"]):
        spec = read_spec(name)
        judged = judge_claims(spec, read_cells(out / name / "cells.csv"))
        for row in own:
            mine = [one for one in judged if one.claim.what.startswith(row["claim"])]
            found.append(Headline(row, spec, [j for j in mine if j.claim == mine[0].claim]))
    return found


def write_first_screen(out: Path) -> None:
    """Write README.md beside OUT, and OUT/headlines.png, for light and for dark pages."""
    found = read_headlines(out)
    write_atomically(out.parent / "README.md", make_readme(out, found).encode())
    draw_forest(found, out / "headlines.png", {})
    draw_forest(found, out / "headlines-dark.png", DARK)


def make_readme(out: Path, found: Sequence[Headline]) -> str:
    """Return papers/README.md with its table of headline claims, and the counts of all."""
    rows = [["claim", "paper", "ours ±", "verdict"]]
    for title, own in groupby(found, key=lambda one: one.spec["headline"]):
        group = list(own)
        rows.append([f"{title}: [page](results/{group[0].row['report']}/README.md)", "", "", ""])
        rows += [table_row(one) for one in group]
    names = dict.fromkeys(one.row["report"] for one in found)
    every = [
        j for n in names for j in judge_claims(read_spec(n), read_cells(out / n / "cells.csv"))
    ]
    counts = count_verdicts([j for j in every if j.claim.is_judged and not j.claim.apart])
    said = ", ".join(f"{v} {counts[v]}" for v in VERDICTS)
    parts = {"headlines": markdown(rows), "counts": f"{counts.total()} judgements: {said}."}
    return fill((PAPERS / "README.md").read_text("utf-8"), parts)


def table_row(one: Headline) -> list[str]:
    verdicts = count_verdicts(one.judged)
    each = ", ".join(f"{v} in {verdicts[v]}" for v in VERDICTS if verdicts[v])
    words = one.judged[0].words if len(one.judged) == 1 else each
    ours = show_values(one.printed.values, one.claim.digits)
    return [one.row["text"], one.row["paper"], ours, words]


# ---- the picture ---------------------------------------------------------------------------------


def draw_forest(found: Sequence[Headline], path: Path, look: Mapping[str, Any]) -> None:
    """Draw a row for each claim: how many margins each place is beyond the limit; right is as claimed."""
    ink = look.get("text.color", "black")
    titles = dict.fromkeys(one.spec["headline"] for one in found)
    texts, rows = list[tuple[float, str, bool]](), dict[int, float]()
    y = 0.0
    for title in titles:
        texts.append((y, title.partition(" (")[0].strip("*"), True))
        for i, one in enumerate(found):
            if one.spec["headline"] == title:
                y += 1
                rows[i] = y
                texts.append((y, one.row["text"].partition(":")[0].replace("¹", ""), False))
        y += 1.4
    with style.context([*STYLE, dict(look)]):
        handles = [sign(v, **dot(c)) for v, c in COLOUR.items()]
        handles += [
            sign("data or size\nare not the paper's", **dot(GREY)), sign("the paper's number", **diamond(ink))
        ]  # fmt: skip
        figure, (axes,) = frame((1, 1), (9.2, 0.24 * y + 0.6), "", ())
        figure.legend(handles=handles, loc="outside lower center", ncols=5, handlelength=1)
        axes.axvspan(-1, 1, color=GREY, alpha=0.18, linewidth=0)
        axes.axvline(0, color=ink, linewidth=0.8)
        for i, one in enumerate(found):
            for f in one.findings:
                x = margins_beyond(one.claim, f, f.values.mean)
                axes.plot(x, rows[i], **dot(colour_of(one, f)))
            if one.row["number"]:
                x = margins_beyond(one.claim, one.printed, float(one.row["number"]))
                axes.plot(x, rows[i], **diamond(ink))
        axes.set(xlim=(-CLIP - 0.5, CLIP + 0.5), ylim=(y - 1, -0.6))
        axes.set_xlabel("margins beyond the limit (right: as claimed)")
        ticks = np.arange(-CLIP, CLIP + 1, 2)
        axes.set_xticks(ticks, [f"{x:+.0f}".replace("-", "−") if x else "0" for x in ticks])
        axes.set_yticks([at for at, *_ in texts], [text for _, text, _ in texts])
        for label, (_, _, heading) in zip(axes.get_yticklabels(), texts):
            label.set_fontweight("bold" if heading else "normal")
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        save(figure, path)


def margins_beyond(claim: Claim, f: Finding, x: float) -> float:
    """Return how many margins x is inside the nearer limit, no more than CLIP; below 0: outside."""
    return float(np.clip(min(x - claim.above, claim.below - x) / f.margin, -CLIP, CLIP))


def colour_of(one: Headline, f: Finding) -> str:
    """Return the colour of a number's verdict; grey where data or size stand in for the paper's."""
    stands_in = any(fits(place_name(f.place), [p]) for p in one.spec.get("data-notes", {}))
    return GREY if stands_in or one.claim.own_size else COLOUR[f.judge(one.claim)]


def dot(colour: str) -> dict[str, Any]:
    return {"marker": "o", "markersize": 6.5, "linestyle": "none", "color": colour, "alpha": 0.85}


def diamond(ink: str) -> dict[str, Any]:
    look = {"marker": "D", "markersize": 7, "linestyle": "none"}
    return {**look, "color": ink, "markerfacecolor": "none", "zorder": 3, "clip_on": False}
