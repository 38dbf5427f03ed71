"""Cells: a number for every seed of one quantity, of one method, in one place.

A place is (data, setting). cells.csv holds them all; tables and verdicts are read off it.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.lab.datasets import load, split
from fedref.lab.datasets.describe import statistics
from fedref.lab.experiments import config
from fedref.lab.experiments.loading import Loader, load_experiment
from fedref.lab.experiments.results import Run
from fedref.lab.experiments.unit import Unit
from fedref.models.numerics import Array
from fedref.sampling import cut
from reproduce.quantities import Part, at_best, halves, measure, merge_runs, run_of
from reproduce.runs import Spec
from reproduce.writing import Values, values_of, write_csv

Place = tuple[str, str]
#: So many rows or clients may be chance.
FOUR = 4
HEAD = ("data", "setting", "method", "quantity", "mean", "sd", "seeds", "note")


class Cell(NamedTuple):
    place: Place
    method: str
    quantity: str
    values: Values
    note: str = ""


class Cells:
    """Cells by (place, method, quantity), in the order in which they were measured."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.all = {(c.place, c.method, c.quantity): c for c in cells}
        self.places = list(dict.fromkeys(c.place for c in cells))

    def get(self, place: Place, method: str, quantity: str) -> Values | None:
        cell = self.all.get((place, method, quantity))
        return None if cell is None else cell.values

    def places_at(self, patterns: Sequence[str]) -> list[Place]:
        """Return the places whose name fits one of the patterns (none: all), in their order."""
        return [p for p in self.places if fits(place_name(p), patterns or ["*"])]

    def note(self, place: Place, method: str, quantity: str) -> str:
        cell = self.all.get((place, method, quantity))
        return "" if cell is None else cell.note

    def count(self, place: Place, what: str) -> int:
        """Return what is counted in a place, or else on its data: rows tested, rounds apart ..."""
        on_its_data = (other for other in self.places if other[0] == place[0])
        found = (self.get(at, "", what) for at in (place, *on_its_data))
        return int(next((x.mean for x in found if x is not None), 0))

    def margin(self, place: Place, of: str) -> float:
        """Return what four of the "rows" or "clients" tested are, in points; 0 of anything else."""
        n = self.count(place, f"{of} tested")
        return 100 * FOUR / n if n else 0.0


def place_name(place: Place) -> str:
    return ", ".join(filter(None, place))


def fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


# ---- from runs -----------------------------------------------------------------------------------


def measure_cells(spec: Spec, runs: Mapping[str, Run], data_dir: Path | None) -> Iterator[Cell]:
    """Yield what `cells` ask for: quantities of every method, at every point of these runs."""
    loader = Loader(data_dir)
    for wanted in spec["measure"].get("cells", []):
        for name, merged in merge_runs(runs, wanted).items():
            data = data_of(spec, name)
            points = split_run(merged, wanted)
            for setting, run, chosen in points:
                place, part = (data, setting), Part(run, [one for _, one, _ in points], loader)
                yield from count_tested(place, part, wanted)
                for label in dict.fromkeys(unit.label for unit in run.units):
                    method = spec["methods"][label]
                    yield from measure_method(place, method, part, label, wanted["quantities"])
                    if label in chosen:
                        yield Cell(place, method, "chosen", values_of([]), chosen[label])


def data_of(spec: Spec, run: str) -> str:
    """Return the name of a run's data on the page."""
    return str(next(x for pattern, x in spec["data"].items() if fits(run, [pattern])))


def split_run(run: Run, wanted: Spec) -> list[tuple[str, Run, dict[str, str]]]:
    """Return (setting, its units, label → what was chosen) of every point of a sweep.

    choose : one place, with every method at its best point. first-seed : of the first seed alone.
    """
    e = run.experiment
    words = {key: value for one in e.algorithms.values() for key, value in vars(one).items()}
    words |= {**vars(e), "support": e.unseen}

    def setting(point: Mapping[str, Any]) -> str:
        known = {k.replace("-", "_").replace(".", "_"): v for k, v in point.items()}
        return str(wanted.get("setting", "")).format(**words | known).replace("%", " %")

    if "choose" in wanted:
        best, chosen = at_best(run, wanted["choose"])
        return [(setting({}), best, chosen)]
    seeds = e.seeds[:1] if wanted.get("first-seed") else e.seeds
    places: dict[str, dict[int, Any]] = {}
    for point, _ in config.sweep_points(e):
        place = places.setdefault(setting(point), {})
        for unit, record in zip(run.units, run.records):
            if unit.seed in seeds and all(point[k] == v for k, v in unit.point.items()):
                place[unit.number] = unit, record
    return [(name, run_of(run, [*pairs.values()]), {}) for name, pairs in places.items()]


def measure_method(
    place: Place, method: str, part: Part, label: str, quantities: Sequence[str]
) -> Iterator[Cell]:
    """Yield the cells of one method in one place; NaN, and why, where it diverged with any seed."""
    trials = part.trials(label)
    ended = sorted({x.record.round for x in trials if x.record.status == "diverged"})
    note = f"diverged after round {' and '.join(map(str, ended))}" if ended else ""
    for quantity in quantities:
        values = np.full(len(trials), np.nan) if ended else measure(quantity, trials)
        if values.size:
            yield Cell(place, method, quantity, values_of(values), note)


def count_tested(place: Place, part: Part, wanted: Spec) -> Iterator[Cell]:
    """Yield on how many rows and clients is tested, and how often; and what is counted of the data.

    unseen : on the clients that never trained, on the rows that are left when their support is taken
    away; of several draws of clients, the fewest. choose = "half of the clients": on the other half.
    """
    n = part.run.records[0].scores[-1].n_test
    if wanted.get("choose") == "half of the clients":
        n = n[halves(len(n))[1]]
    if wanted.get("unseen"):
        n = min((rows_left(unit, part.loader) for unit in part.run.units), key=np.sum)
    counts = {"rows tested": n.sum(), "clients tested": (n > 0).sum()}
    counts["rounds apart"] = part.run.experiment.eval_every
    for what in wanted.get("of-data", []):
        loaded = load_experiment(part.run.units[0].experiment, part.loader)
        counts[what] = OF_DATA[what](loaded.federation)
    for what, x in counts.items():
        yield Cell(place, "", what, values_of([x]))


def rows_left(unit: Unit, loader: Loader) -> Array:
    """Return how many rows each of the unseen clients is tested on."""
    unseen = load_experiment(unit.experiment, loader).unseen
    assert unseen is not None
    everyone, tested = unseen
    sizes = (everyone.train.sizes + everyone.test.sizes)[tested]
    return np.array([len(cut(np.arange(n), unit.experiment.unseen)[1]) for n in sizes])


def commonest_label(federation: Any) -> float:
    """Return the accuracy in % of always saying the most frequent label."""
    y = federation.source.y[federation.test.rows]
    return float(100 * np.bincount(y).max() / len(y))


def own_commonest_label(federation: Any) -> float:
    """Return the accuracy in % of each test client's own most frequent training label."""
    y, (_, tested) = federation.source.y, halves(federation.clients)
    labels = {k: np.bincount(y[federation.train.rows_of(k)]).argmax() for k in tested}
    right = [y[federation.test.rows_of(k)] == labels[k] for k in tested]
    return float(100 * np.concatenate(right).mean())


OF_DATA: Mapping[str, Callable[[Any], float]] = {
    "always the most frequent label": commonest_label,
    "always the client's most frequent label": own_commonest_label,
}


def measure_splits(spec: Spec, data_dir: Path | None) -> Iterator[Cell]:
    """Yield what [splits] asks for: who holds how much, and between which values the deviation is."""
    for data, wanted in spec.get("splits", {}).items():
        source = load(wanted["load"], data_dir)
        found = [
            statistics(split(wanted["rule"], source, seed))
            for seed in range(max(wanted["seeds"], wanted.get("draws", 0)))
        ]
        place = data, "the split"
        for what in ("clients", "samples", "mean", "std"):
            values = values_of([float(one[what]) for one in found[: wanted["seeds"]]])
            yield Cell(place, "", what, values)
        if "draws" in wanted:
            spread = [float(one["std"]) for one in found]
            for what, value in (("least std", min(spread)), ("largest std", max(spread))):
                yield Cell(place, "", f"{what} of {wanted['draws']} draws", values_of([value]))


# ---- from cells ----------------------------------------------------------------------------------

OVER_SETTINGS: Mapping[str, Callable[[Array], Array]] = {  # (settings, seeds) → (seeds,)
    "range": lambda x: np.ptp(x, 0),
    "change": lambda x: x[-1] - x[0],
    "mean": lambda x: x.mean(0),
    "deviation": lambda x: x.std(0, ddof=1),
    "largest": lambda x: x.max(0),
}


def derive_cells(spec: Spec, cells: Cells) -> Iterator[Cell]:
    """Yield what becomes of quantities over settings, or less a place's best method: `derived`.

    names : what it is called → how it is made. over : where the name of the varied value begins in a
    setting; what is before it is the place of the new cells, unless `setting` names it.
    """
    yield from measure_distances(spec, cells)
    for wanted in spec["measure"].get("derived", []):
        each: dict[tuple[Place, str], list[Array]] = {}
        for place in cells.places_at(wanted["at"]):
            found = {m: cells.get(place, m, wanted["quantity"]) for m in spec["methods"].values()}
            known = {
                m: x for m, x in found.items() if x and x.has_seeds and np.isfinite(x.each).all()
            }
            before = place[1].partition(wanted.get("over", "\n"))[0]
            for method, x in known.items():
                if "below the best" in wanted["names"].values():
                    best = max(known.values(), key=lambda x: x.mean)
                    yield Cell(place, method, "below the best", values_of(best.each - x.each))
                there = place[0], str(wanted.get("setting", before))
                each.setdefault((there, method), []).append(x.each)
        for (there, method), values in each.items():
            for name, how in wanted["names"].items():
                if how in OVER_SETTINGS:
                    x = values_of(OVER_SETTINGS[how](np.array(values)))
                    yield Cell(there, method, name, x)


def measure_distances(spec: Spec, cells: Cells) -> Iterator[Cell]:
    """Yield how far `quantities` are from the accuracies that the paper prints, on average: `distances`.

    of, settings : of the places "..., OF; SETTING" together.
    """
    wanted = spec["measure"].get("distances", {})
    names = (wanted.get(key, []) for key in ("settings", "quantities", "of"))
    for setting, quantity, of in product(*names):
        off, places = list[float](), cells.places_at([f"*, {of}; {setting}"])
        for place in places:
            printed = spec["paper"][place_name(place).partition(";")[0]]["accuracy"]
            known = ((cells.get(place, m, quantity), x) for m, x in printed.items())
            off += [abs(ours.mean - x) for ours, x in known if ours]
        there = places[0][0], f"all; {setting}, {quantity}"
        yield Cell(there, "", f"distance from the paper, {of}", values_of(np.mean(off)))


# ---- cells.csv -----------------------------------------------------------------------------------


def write_cells(path: Path, cells: Cells) -> None:
    """Write a row for each cell, with a column for each seed; none where seeds were not kept."""
    width = max(len(c.values.each) for c in cells.all.values())
    heads = [*HEAD, *(f"seed #{i + 1}" for i in range(width))]
    rows = (
        [*c.place, c.method, c.quantity, c.values.mean, c.values.sd, c.values.seeds, c.note]
        + [
            v if v == v else "nan" for v in c.values.each.tolist()
        ]  # numbers: a text with - is quoted
        for c in cells.all.values()
    )
    write_csv(path, heads, rows)


def read_cells(path: Path) -> Cells:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)  # a text that looks like a formula has a ' before it
        return Cells([cell_of({k: v.removeprefix("'") for k, v in row.items()}) for row in rows])


def cell_of(row: Mapping[str, str]) -> Cell:
    values = values_of([float(v) for k, v in row.items() if k.startswith("seed #") and v])
    if values.seeds != (seeds := int(row["seeds"])):
        mean, sd = (float(row[k]) if row[k] else np.nan for k in ("mean", "sd"))
        values = Values(values.each, mean, sd, seeds)
    place = row["data"], row["setting"]
    return Cell(place, row["method"], row["quantity"], values, row["note"])
