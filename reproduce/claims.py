"""The claims of a paper, rows of data, and the one rule that judges them: from cells to verdicts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from fedref.boundary.errors import ConfigError
from reproduce.cells import Cells, Place, fits, place_name
from reproduce.runs import Spec, as_list
from reproduce.writing import Values, values_of

#: The t interval of a margin. What differs by no more than ROUNDING is the same: the last digits of a
#: mean depend on their order.
LEVEL, ROUNDING = 0.95, 1e-9
HOLDS, CONTRADICTED, UNDECIDED, NOT_JUDGED = "holds", "contradicted", "undecided", "not judged"
#: Against a size that is ours, where the paper has a word.
SMALLER, LARGER = "smaller than our size", "larger than our size"
#: Quantities that are whole numbers.
WHOLE_NUMBERS = "clients", "samples"
#: Of a group of rows: what they share, as the rule and how it is printed; or each field by itself.
PARTS = ("is", "page")
#: Why a claim whose limits allow no effect, as *within 1 point* does, counts in no total.
NO_EFFECT = "no effect meets it"
VERDICTS = (HOLDS, CONTRADICTED, SMALLER, LARGER, UNDECIDED, NOT_JUDGED)


class Claim(NamedTuple):
    """A row of papers/NAME.toml, in the paper's order.

    what : the claim or number, in the paper's sense. paper : what it prints for it. at : patterns of
    places, as "MNIST, *" (none: all). notes : names of footnotes. apart : why its judgements are not
    counted with the others. And one of:

    because : why it is not here. shows : what there is to see, where nothing is judged.
    quantity : of every method in `of`, less that of the best in `to`, which is above and below limits;
    without limits it is a number, not a claim.

    start : the setting in which the other stands, or "OLD → NEW", what is replaced in its name; of the
    same method if `to` names none. than : its quantity, if it is another. times : a quotient. sign :
    −1 where less is better: the other way round. margin : "rows", "clients" or "seeds" alone; "none" :
    counted, one seed decides. beside : methods that are printed and not judged; also : quantities of
    the first method that are. together : all settings of a data set are one verdict, and must agree, as
    the paper says it of all. unless : pattern → why nothing is judged there. guards : names of
    differences in [guards]; where one is not as it says in the mean, nothing is judged. belongs : the
    report whose paper says it. quick : places where a quick
    run must have its direction.
    """

    what: str
    quantity: str = ""
    of: Sequence[str] = ()
    to: Sequence[str] = ()
    start: str | None = None
    than: str = ""
    above: float = -np.inf
    below: float = np.inf
    at: Sequence[str] = ()
    sign: int = 1
    times: bool = False
    margin: str = "rows"
    beside: Sequence[str] = ()
    also: Sequence[str] = ()
    together: bool = False
    unless: Mapping[str, str] = {}
    guards: Sequence[str] = ()
    paper: str = ""
    apart: str = ""
    notes: Sequence[str] = ()
    because: str = ""
    shows: str = ""
    unit: str = ""
    digits: int = 2
    belongs: str = ""
    quick: Sequence[str] = ()

    @property
    def is_decided(self) -> bool:
        return bool(self.quantity) and (self.above > -np.inf or self.below < np.inf)

    @property
    def allows_no_effect(self) -> bool:
        return self.is_decided and self.above < self.none < self.below

    @property
    def none(self) -> float:
        """What no effect is: of a quotient 1."""
        return 1.0 if self.times else 0.0

    @property
    def own_size(self) -> bool:
        """Whether the size is ours, as the paper has a word alone: its text says so."""
        return "our size" in self.what


class Finding(NamedTuple):
    """The number of one method in one place; least : what four rows or clients are, None: counted.

    pooled : the deviation over seeds, pooled over the claim's places on the same data, and its degrees
    of freedom.
    """

    place: Place
    method: str
    quantity: str
    values: Values
    least: float | None
    digits: int
    judged: bool = True
    pooled: tuple[float, int] = (0.0, 0)

    @property
    def rounding(self) -> float:
        """What rounding may hide where the numbers of the seeds were not kept."""
        return 0.0 if self.values.has_seeds else 0.5 * 10.0**-self.digits

    @property
    def margin(self) -> float:
        """How far beyond the limits the mean must be; NaN of a single seed."""
        return self.margin_at(LEVEL)

    def margin_at(self, level: float) -> float:
        if self.least is None:
            return ROUNDING
        (sd, df), n = self.pooled, self.values.seeds
        if n < 2 or df == 0:
            return np.nan
        error = float(stdtrit(df, (1 + level) / 2) * sd / np.sqrt(n))
        return max(error, self.least, ROUNDING) + self.rounding

    def decide(self, claim: Claim, level: float = LEVEL) -> str:
        """Return the verdict on this number alone. level : that at which it is contradicted."""
        x, margin, wide = self.values.mean, self.margin, self.margin_at(level)
        if np.isnan([x, margin, *self.values.each]).any():
            return UNDECIDED
        if claim.above + margin < x < claim.below - margin:
            return HOLDS
        if claim.above - wide <= x <= claim.below + wide:
            return UNDECIDED
        if not claim.own_size:
            return CONTRADICTED
        if claim.allows_no_effect:
            return LARGER
        against = claim.none - x if claim.above > -np.inf else x - claim.none
        return CONTRADICTED if against > margin else SMALLER


class Decision(NamedTuple):
    """One claim in one place, or in all settings of its data."""

    claim: Claim
    place: str
    findings: Sequence[Finding]
    why_not: str = ""

    @property
    def decisive(self) -> list[Finding]:
        return [f for f in self.findings if f.judged]

    @property
    def each(self) -> Counter[str]:
        """The verdict on every number alone."""
        # of all settings one is enough to contradict: each at a level that is 95 % for all of them
        level = 1 - (1 - LEVEL) / max(len(self.decisive), 1) if self.claim.together else LEVEL
        return Counter(f.decide(self.claim, level) for f in self.decisive)

    @property
    def verdict(self) -> str:
        """Return what most of the numbers say; of all settings: what all say, or one against it."""
        each = self.each
        if self.why_not or not each:
            return NOT_JUDGED
        if self.claim.together:
            order = (CONTRADICTED, SMALLER, LARGER, UNDECIDED, HOLDS)
            return next(v for v in order if each[v])
        verdict, n = each.most_common(1)[0]
        return verdict if 2 * n > each.total() else UNDECIDED

    @property
    def words(self) -> str:
        """Return the verdict, and of how many numbers it is: "holds for 2 of 3"."""
        each, verdict = self.each, self.verdict
        if verdict == NOT_JUDGED or len(each) < 2:
            return verdict
        if each[verdict] and verdict != UNDECIDED:
            return f"{verdict} for {each[verdict]} of {each.total()}"
        others = ", ".join(f"{v} for {each[v]}" for v in VERDICTS if each[v] and v != verdict)
        return f"{verdict} ({others} of {each.total()})"

    @property
    def has_direction(self) -> bool:
        return all(self.claim.above < f.values.mean < self.claim.below for f in self.decisive)


def claims_of(spec: Spec) -> list[Claim]:
    """Return the rows of a report, with [defaults] where one says nothing.

    A group has one row, `what`, or several, `rows`: text → fields, beside those that they share.
    """
    found = []
    for group in spec.get("claims", []):
        shared = {k: v for k, v in group.items() if k not in (*PARTS, "rows")}
        shared |= {k: v for part in PARTS for k, v in group.get(part, {}).items()}
        rows = ({"what": what, **own} for what, own in group.get("rows", {}).items())
        for row in ({**shared, **own} for own in (rows if "rows" in group else [{}])):
            if unknown := {*row} - {*Claim._fields}:
                raise ConfigError(f"claim {row.get('what')!r} has {', '.join(sorted(unknown))}")
            found.append(claim_of(spec.get("defaults", {}) | row if "quantity" in row else row))
    return found


def claim_of(fields: Mapping[str, Any]) -> Claim:
    """Return a row with these fields; a text is a list of one.

    A claim that a method without any effect meets says little where it holds: it stands apart.
    """
    lists = ("of", "to", "at", "beside", "also", "notes", "guards", "quick")
    known: dict[str, Any] = {k: as_list(v) if k in lists else v for k, v in fields.items()}
    claim = Claim(**known)
    return claim._replace(apart=NO_EFFECT) if claim.allows_no_effect and not claim.apart else claim


def decide_claims(spec: Spec, cells: Cells) -> list[Decision]:
    """Return what is measured of every claim and number in every place that it is about."""
    return [
        one
        for claim in claims_of(spec)
        if claim.quantity
        for one in decide_claim(claim, spec, cells)
    ]


def decide_claim(claim: Claim, spec: Spec, cells: Cells) -> Iterator[Decision]:
    """Yield the judgement of one claim in every place where its methods were measured."""
    groups: dict[str, list[Place]] = {}
    for place in cells.places_at(claim.at):
        if any(value(claim, cells, place, m, spec) is not None for m in claim.of):
            groups.setdefault(place[0] if claim.together else place_name(place), []).append(place)
    found = {where: [*find(claim, spec, cells, places)] for where, places in groups.items()}
    every = list(chain(*found.values()))
    for where, places in groups.items():
        pooled = [f._replace(pooled=pool(f, every)) for f in found[where]]
        yield Decision(claim, where, pooled, why_not(claim, spec, cells, places[0]))


def find(claim: Claim, spec: Spec, cells: Cells, places: Sequence[Place]) -> Iterator[Finding]:
    """Yield the numbers of a claim in these places: of its methods, those beside it, and `also`."""
    keys = [(p, m, claim.quantity) for m in (*claim.of, *claim.beside) for p in places]
    keys += [(places[0], claim.of[0], quantity) for quantity in claim.also]
    for place, label, quantity in keys:
        name, judged = name_of(spec, label), label in claim.of and quantity not in claim.also
        of_rule = quantity == claim.quantity
        x = value(claim, cells, place, label, spec) if of_rule else cells.get(place, name, quantity)
        if x is not None:
            least = None if claim.margin == "none" else cells.margin(place, claim.margin)
            digits = 0 if quantity in WHOLE_NUMBERS else claim.digits
            yield Finding(place, name, quantity, x, least, digits, judged)


def pool(one: Finding, every: Sequence[Finding]) -> tuple[float, int]:
    """Return the deviation over seeds of one method, and its degrees of freedom.

    It is pooled over the places of the same data set alone: deviations of several data sets are not
    alike, and a pool of them all is too wide for one and too narrow for another.
    """
    kind = one.method, one.quantity, one.place[0]
    own = [f for f in every if (f.method, f.quantity, f.place[0]) == kind]
    df = np.array([max(f.values.seeds - 1, 0) for f in own])
    sd = np.array([f.values.sd + f.rounding * (f.values.sd > 0) for f in own])
    known = (df > 0) & np.isfinite(sd)
    if not known.any():
        return 0.0, 0
    return float(np.sqrt(np.average(sd[known] ** 2, weights=df[known]))), int(df[known].sum())


def name_of(spec: Spec, label: str) -> str:
    """Return the name of a method on the page."""
    return str(spec["methods"].get(label, label))


def why_not(claim: Claim, spec: Spec, cells: Cells, place: Place) -> str:
    """Return why nothing is judged in a place; "" if it is."""
    why = [text for pattern, text in claim.unless.items() if fits(place_name(place), [pattern])]
    for name in claim.guards:
        guard = claim_of({"what": name, **spec["guards"][name]})
        found = [value(guard, cells, place, method, spec) for method in guard.of]
        why += [name] if any(x is not None and x.mean <= guard.above for x in found) else []
    every = cells.count(place, "rounds apart")
    if claim.quantity.startswith("change") and every > 1:
        why.append(f"evaluated every {every} rounds only")
    return "; ".join(why)


def value(claim: Claim, cells: Cells, place: Place, label: str, spec: Spec) -> Values | None:
    """Return what the limits are for, of one method; None where it was not measured.

    NaN where the terms of a difference are rounded.
    """
    method, *to = (name_of(spec, m) for m in (label, *claim.to))
    there = other_place(place, claim.start)
    if not to and (claim.than or there != place):
        to = [method]
    elif not to and claim.start is not None:
        return None  # it is the place with which others are compared
    if to == [method] and there == place and not claim.than:
        return None  # nothing is compared with itself
    if to and (kept := cells.get(place, difference_name(method, to, claim), claim.quantity)):
        return kept  # where the difference alone was kept
    own = cells.get(place, method, claim.quantity)
    others = [cells.get(there, m, claim.than or claim.quantity) for m in to]
    terms = [x for x in (own, *others) if x is not None]
    if len(terms) <= len(to) or not to:
        return own if not to else None
    n = min(x.seeds for x in terms)  # the same seeds: an ablation may have the first alone
    if not all(x.has_seeds for x in terms):
        return Values(np.zeros(0), np.nan, np.nan, n)  # not to be said of rounded numbers
    mine, *theirs = (claim.sign * x.each[:n] for x in terms)
    best = np.max(theirs, 0)
    if not claim.times:
        return values_of(mine - best)
    over, under = (mine, best) if claim.sign > 0 else (-best, -mine)
    return values_of(np.divide(over, under, out=np.full(n, np.nan), where=under > 0))


def other_place(place: Place, start: str | None) -> Place:
    """Return the place that `start` names, seen from this one."""
    if start is None:
        return place
    old, arrow, new = start.partition(" → ")
    return (place[0], place[1].replace(old, new) if arrow else start)


def difference_name(method: str, to: Sequence[str], claim: Claim) -> str:
    """Return the method's name in a cell that is a difference whose terms were not kept."""
    less = "" if list(to) == [method] else f" − {' or '.join(to)}"
    words = [f"less {claim.start}"] if claim.start is not None else []
    words += [f"less {claim.than}"] if claim.than else []
    words += ["quotient"] if claim.times else []
    return ", ".join([f"{method}{less}", *words])


# ---- all together --------------------------------------------------------------------------------


def count_verdicts(judged: Sequence[Decision]) -> Counter[str]:
    return Counter(one.verdict for one in judged)


def verdict_words(judged: Sequence[Decision], of: str = " ") -> str:
    """Return "holds for 2 of 3" of a single place, "holds 3, undecided 1" of several."""
    counts = count_verdicts(judged)
    if len(judged) == 1:
        return judged[0].words
    return ", ".join(f"{v}{of}{counts[v]}" for v in VERDICTS if counts[v]) or NOT_JUDGED
