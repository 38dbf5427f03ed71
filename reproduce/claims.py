"""The papers' claims, rows of data in papers.toml, and the one rule that judges them.

A report hands its `claims_of` to `judge` with the `Place`s where it has measured. What comes back are
`Finding`s, one for every number: `report_claims` writes them to claims.csv and returns
the lines for table.md. The verdict is not written down there: table.md and README.md of the results
both read it off claims.csv by `verdict`, so that they cannot differ.
"""

import csv
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import DataError
from fedref.models.numerics import Array
from reproduce.measures import QUANTITIES
from reproduce.tables import Values, each_seed, mean_and_deviation, show_number, write_csv

RULE = """\
**One rule judges all of them.** A claim is about one quantity: the accuracy of the last round where the
paper claims a final result, the average over rounds where it claims convergence or an average, a loss,
bytes, operations; where it says stable, the change from round to round, which is the mean absolute
difference of the accuracy from one evaluation to the next in the second half. *Ours* is that quantity, or
the difference of two methods in it, as mean ± standard deviation over seeds (divided by their number).
Seeds differ in the start, the cohorts and the batches, and rarely in the split (a row says so). It is set
against a limit: 0, or the size that the paper names. Where the paper has a word alone, the size is our
choice, and the row says so. The margin is the larger of two standard errors over seeds (2s/√n with an s that
divides by n − 1: for three seeds √2 times the deviation that is printed) and, for all that is in points of
accuracy, four test rows (for shares of clients, four clients): if k rows change sides and all in one
direction, 2√k of them may be chance, so that fewer than four show nothing. Where rows change in both
directions this is lenient.

- *holds*: beyond the limit by more than the margin, in every seed and for every method of the claim;
- *contradicted*: for one of these methods it is on the other side of the limit, by more than the margin;
- *undecided*: anything else: the seeds disagree, the difference is too small, or there is one seed.

Bytes and operations are counted: they have no margin, and one seed decides. Chance: where there is no
effect at all, three seeds agree in their sign in 1 of 4 cases, and are beyond the margin, on either side,
in 1 of 5 (t with two degrees of freedom). So some of the verdicts with three seeds are luck. Of some results
only two decimals were kept: there the margin is wider by what rounding may hide."""

#: What a line of papers.toml may be, and what else it may have.
KINDS = {"quantity", "numbers", "shows", "because"}
KEYS = {"what", "paper", "section", "among", "notes", "apart"} | KINDS
#: What differs by no more than this is the same: the last digits of a mean depend on their order.
ROUNDING = 1e-9
#: Standard errors over seeds, and test rows or clients, that a difference must exceed.
ERRORS, ROWS = 2, 4


class Place(NamedTuple):
    """Where claims are judged: a data set or a setting.

    run : what is measured (a Run, for the shared quantities). methods : their names, those that are
    `absent` as well. doubts : why nothing can be judged here; seldom : why nothing that needs every
    round can. rows, clients : how many are tested on.
    """

    key: str
    name: str
    run: Any
    methods: Mapping[str, str]
    setting: str = ""  # its name where all places of a key are one line
    kinds: Sequence[str] = ()  # what claims may call it besides its key
    absent: Sequence[str] = ()
    doubts: Sequence[str] = ()
    seldom: str = ""
    data: Any = None  # the LoadedExperiment, for quantities that need it
    rows: int = 0
    clients: int = 0


class Claim(NamedTuple):
    """A line of papers.toml that makes a claim: a difference of two methods is beyond a limit.

    The quantity of every method in `of`, less that of the best in `to`, is above and below the limits.

    quantity : one of the shared ones, or what the report measures it with, (place, method) → (seeds,).
    sign : −1 where less is better: the difference is taken the other way round.
    times : a quotient in place of the difference.
    margin : follows from the seeds alone, or also from the "rows" or "clients" that are tested on;
    "none" : the numbers are exact, and one seed decides.
    beside : methods that are not the paper's own: printed, and not judged.
    note : what the report says besides, place → text. called : the name of the only number, if not its
    method's.
    places : the keys or kinds of those that it is about (none: all). together : all places of a key are
    one line.
    each_round : it can be judged only where every round was evaluated.
    needs : methods that the quantity needs besides.
    doubt : why nothing can be judged in a place, for reasons of this claim alone ("": it can).
    """

    text: str
    quantity: Callable[[Place, str], Values]
    of: Sequence[str]
    to: Sequence[str] = ()
    above: float | None = None
    below: float | None = None
    unit: str = "points"
    sign: int = 1
    times: bool = False
    margin: str = "rows"
    beside: Sequence[str] = ()
    note: Callable[[Place], str] | None = None
    called: str = ""
    places: Sequence[str] = ()
    together: bool = False
    each_round: bool = False
    needs: Sequence[str] = ()
    doubt: Callable[[Place], str] | None = None
    digits: int = 2


class Finding(NamedTuple):
    """One number of a claim in one place: a line of claims.csv."""

    claim: str
    place: str
    use: str  # judged, beside, or doubtful: measured, but nothing can be judged
    name: str
    unit: str
    above: float | None
    below: float | None
    least: float | None  # what four rows or clients are; None if the number is exact
    digits: int
    seeds: int
    mean: float
    sd: float
    each: str  # the value of every seed; "" if they were not kept, and mean and sd are rounded
    note: str

    @property
    def margin(self) -> float:
        """How far beyond the limits the mean must be."""
        if self.least is None:
            return ROUNDING
        rounding = 0.0 if self.each else 0.5 * 10.0**-self.digits
        # s/√n, where s divides by n − 1
        error = (self.sd + rounding) / np.sqrt(max(self.seeds - 1, 1))
        return max(ERRORS * float(np.nan_to_num(error)), self.least, ROUNDING) + rounding

    def judge(self) -> str:
        """Return the verdict on this number alone."""
        if np.isnan(self.mean) or (self.seeds < 2 and self.least is not None):
            return UNDECIDED
        low = -np.inf if self.above is None else self.above
        high = np.inf if self.below is None else self.below
        # Where they were not kept: none of three is further from their mean than two standard errors.
        values = [float(x) for x in self.each.split()] or [self.mean]
        if low + self.margin < self.mean < high - self.margin:
            return HOLDS if all(low < x < high for x in values) else UNDECIDED
        if self.mean < low - self.margin and max(values) < low:
            return CONTRADICTED
        if self.mean > high + self.margin and min(values) > high:
            return CONTRADICTED
        return UNDECIDED

    def __str__(self) -> str:
        if np.isnan(self.mean):
            return f"{self.name} –"
        return f"{self.name} {mean_and_deviation(self.mean, self.sd, self.seeds, self.digits)}"


HOLDS, CONTRADICTED, UNDECIDED, NOT_JUDGED = "holds", "contradicted", "undecided", "not judged"
VERDICTS = (HOLDS, CONTRADICTED, UNDECIDED, NOT_JUDGED)


def verdict(findings: Sequence[Finding]) -> str:
    """Return the verdict on one claim in one place."""
    verdicts = {finding.judge() for finding in findings if finding.use == "judged"}
    if not verdicts:
        return NOT_JUDGED
    return next(v for v in (CONTRADICTED, UNDECIDED, HOLDS) if v in verdicts)


# ---- papers.toml -----------------------------------------------------------------------------------

#: The fields of a claim in papers.toml, where the text is called `what`.
FIELDS = {*Claim._fields} - {"text"}


def read_papers(path: Path) -> dict[str, Any]:
    """Return what papers.toml holds; no paper where there is none."""
    if not path.exists():
        return {"paper": []}
    table = tomllib.loads(path.read_text("utf-8"))
    for row in (row for paper in table["paper"] for row in paper["rows"]):
        names = {*row.get("notes", ())} - {*table.get("notes", ())}
        if {*row} - KEYS - FIELDS or len(KINDS & {*row}) != 1 or names:
            raise DataError(
                f"{path}: {row} is not understood, expected what, one of {', '.join(sorted(KINDS))}, the "
                "fields of a claim, and notes that are in [notes]"
            )
    return table


def sections_of(row: Mapping[str, Any]) -> list[str]:
    """Return the reproductions that a row is about: a claim may be judged in several."""
    found = row.get("section", [])
    return [found] if isinstance(found, str) else list(found)


def claims_of(section: str, report: Mapping[str, Any]) -> list[Claim]:
    """Return the claims that papers.toml has of a reproduction.

    report : names in its report.py, among them those of its quantities and notes.
    """
    rows = [
        row
        for paper in read_papers(Path(__file__).parent / "papers.toml")["paper"]
        for row in paper["rows"]
        if "quantity" in row and section in sections_of(row)
    ]
    claims = []
    for row in rows:
        fields = {key: value for key, value in row.items() if key in FIELDS}
        name = fields["quantity"]
        fields["quantity"] = QUANTITIES[name] if name in QUANTITIES else report[name]
        fields |= {key: report[fields[key]] for key in ("note", "doubt") if key in fields}
        claims.append(Claim(row["what"], **fields))
    return claims


# ---- from runs to findings -----------------------------------------------------------------------


def judge(claims: Iterable[Claim], places: Sequence[Place]) -> list[Finding]:
    """Return what is measured of every claim in every place that it is about."""
    found = []
    for claim in claims:
        about = [
            place
            for place in places
            if not claim.places or {place.key, *place.kinds} & {*claim.places}
        ]
        keys = dict.fromkeys(place.key for place in about) if claim.together else ()
        together = [[place for place in about if place.key == key] for key in keys]
        for group in together or [[place] for place in about]:
            found += measure_claim(claim, group)
    return found


def measure_claim(claim: Claim, group: Sequence[Place]) -> list[Finding]:
    """Return the findings of one claim in one place, or in all that are one line."""
    place = group[0]
    needed = (*claim.of, *claim.to, *claim.needs)
    absent = [place.methods[m] for m in place.methods if m in needed and m in place.absent]
    if absent:
        why = f"not run: {', '.join(absent)}"
        return [describe(claim, place, "doubtful", "", np.zeros(0), why)]
    doubts = [*place.doubts, *([place.seldom] if claim.each_round and place.seldom else [])]
    doubts += filter(None, [claim.doubt(place)] if claim.doubt else [])
    note = "; ".join(doubts) if doubts or not claim.note else claim.note(place)
    found = []
    for use, methods in (("doubtful" if doubts else "judged", claim.of), ("beside", claim.beside)):
        for method in (m for m in methods if m not in place.absent):
            for at in group:
                name = at.methods[method]
                if use != "beside" and claim.called:
                    name = claim.called
                elif claim.together:
                    name = at.setting if use != "beside" else f"{name}, {at.setting}"
                found.append(describe(claim, at, use, name, measure(claim, at, method), note))
    return found


def describe(claim: Claim, place: Place, use: str, name: str, values: Array, note: str) -> Finding:
    """Return one number as a line of claims.csv."""
    units = {"rows": place.rows, "clients": place.clients}.get(claim.margin, 0)
    least = None if claim.margin == "none" else 100 * ROWS / units if units else 0.0
    mean, sd = (float(values.mean()), float(values.std())) if values.size else (np.nan, np.nan)
    return Finding(
        claim.text, place.name, use, name, claim.unit, claim.above, claim.below, least,
        claim.digits, values.size, mean, sd, each_seed(values), note,
    )  # fmt: skip


def judge_difference(values: Values, rows: int) -> str:
    """Return the verdict of the same rule on a difference of accuracies being above 0, in points."""
    claim = Claim("", lambda place, label: values, ("",), above=0.0)
    return describe(
        claim, Place("", "", None, {}, rows=rows), "judged", "", np.asarray(values), ""
    ).judge()


def measure(claim: Claim, place: Place, method: str) -> Array:
    """Return what the limits are for, of one method: (seeds,)."""

    def value(m: str) -> Array:
        return np.atleast_1d(np.asarray(claim.quantity(place, m), float))

    if not claim.to:
        return claim.sign * value(method)
    other = claim.sign * np.max([claim.sign * value(m) for m in claim.to], 0)
    if not claim.times:
        return claim.sign * (value(method) - other)
    return value(method) / other if claim.sign > 0 else other / value(method)


# ---- claims.csv and the lines of table.md --------------------------------------------------------


def report_claims(findings: Sequence[Finding], out: Path) -> str:
    """Write claims.csv to the folder `out`; return the lines of Markdown."""
    write_csv(out / "claims.csv", Finding._fields, findings)
    return claim_lines(findings)


def read_claims(path: Path) -> list[Finding]:
    """Return the findings in a claims.csv; none if there is no such file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [finding_of(row) for row in csv.DictReader(file)]


def finding_of(row: Mapping[str, str]) -> Finding:
    """Return the finding that a line of claims.csv holds."""
    made: dict[str, Any] = dict(row)
    made |= {key: float(row[key]) if row[key] else None for key in ("above", "below", "least")}
    made |= {key: float(row[key]) if row[key] else np.nan for key in ("mean", "sd")}
    return Finding(**made | {key: int(row[key]) for key in ("digits", "seeds")})


def group_by_place(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Return the findings of each claim in each place, in their order."""
    return [list(own) for _, own in groupby(findings, key=lambda f: (f.claim, f.place))]


def claim_lines(findings: Iterable[Finding]) -> str:
    """Return a line of Markdown for every claim and place."""
    return "\n".join(map(claim_line, group_by_place(findings)))


def claim_line(findings: Sequence[Finding]) -> str:
    """Return the verdict on one claim in one place, and the numbers that it is read off."""
    first = findings[0]
    text = f"{first.claim}, {first.place}" if first.place else first.claim
    judged = [f for f in findings if f.use != "beside" and f.name]
    beside = [f for f in findings if f.use == "beside"]
    words = [f"{', '.join(map(str, judged))} {first.unit}"] if judged else []
    words += [f"beside it, {', '.join(map(str, beside))}"] if beside else []
    words += [first.note] if first.note else []
    how = f" ({limits(findings)})" if first.use == "judged" else ""
    return f"- {verdict(findings).capitalize()}{how}: *{text}*; {'; '.join(words)}."


def limits(findings: Sequence[Finding]) -> str:
    """Return the limits of a claim, the seeds, and the largest margin of its numbers."""
    first, judged = findings[0], [f for f in findings if f.use == "judged"]
    pairs = (("above", first.above), ("below", first.below))
    rule = " and ".join(
        f"{word} {f'{x:g}'.replace('-', '−')}" for word, x in pairs if x is not None
    )
    seeds = max(f.seeds for f in judged)
    if first.least is None:
        return f"{rule}; counted"
    if seeds == 1:
        return f"{rule}; one seed"
    margin = show_number(max(f.margin for f in judged), max(first.digits, 2))
    return f"{rule}; {seeds} seeds, margin {margin}"
