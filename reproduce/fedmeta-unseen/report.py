"""FedMeta's experiment: accuracy on clients that never trained, and what it costs to get there."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedref import plots
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from fedref.sampling import cut
from reproduce import measures
from reproduce.claims import Place, claims_of, judge, report_claims
from reproduce.measures import (
    SYMBOLS,
    at_best,
    best_point,
    bytes_sent,
    describe_choice,
    how_often,
    late_changes,
    rename_methods,
    second_half,
    total,
)
from reproduce.tables import Number, markdown, show_number, show_pictures, spread, write_numbers

PARTS = ("20", "50", "90", "own")
THIN = {"sweep.lr": [0.1], "sweep.beta": [0.1], "sweep.alpha": [0.1]}
#: Two values each, far enough apart that the choice of the larger one is sure.
PAIR = {"sweep.lr": [0.001, 0.1], "sweep.beta": [0.0001, 0.1], "sweep.alpha": [0.1]}
FIXED = {"lr": 0.1, "alpha": 0.1, "beta": 0.1}
TINY = {"rounds": 1, "eval-every": 1, "clients-per-round": 2, "split.min-rows": 10}
SHAKESPEARE = {**THIN, **TINY, "data.step": 1000, "model.hidden": [4]}
QUICK = {
    "seeds": [0],
    "rounds": 10,
    "clients-every": 10,
    **{f"{data}-{part}": THIN for data in ("mnist", "femnist") for part in PARTS},
    **{f"femnist-{part}": PAIR for part in ("20", "own")},
    "mnist-rounds": {**FIXED, "rounds": 4},  # a thousand clients to evaluate, every round
    "femnist-rounds": FIXED,
    **{f"shakespeare-{part}": SHAKESPEARE for part in PARTS[:3]},
}

NAMES = {"mnist": "MNIST", "femnist": "FEMNIST's rule, digits", "shakespeare": "Shakespeare"}
METHODS = {
    "fedavg": "FedAvg",
    "fedavg-meta": "FedAvg(Meta)",
    "fedmeta-maml": "FedMeta (MAML)",
    "fedmeta-fomaml": "FedMeta (first order)",
    "fedmeta-sgd": "FedMeta (Meta-SGD)",
    "fedmeta-epochs": "FedMeta (MAML, epochs)",
}
SUPPORT = {"20": "20 %", "50": "50 %", "90": "90 %", "rounds": "20 %", "own": "20 %"}
HEADS = ("data", "support", "method")
#: What the table has of each method, in %: as `measure` returns it.
COLUMNS = ("accuracy", "above FedAvg", "at the start", "mean of clients", "on validation clients")
#: What chooses: the point with the largest final value, mean over seeds.
CHOICE = "validation_accuracy"


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    best = {stem: at_best_points(run) for stem, run in runs.items()}
    stems = [s for s in sorted(best, key=order) if s.rpartition("-")[2] in PARTS[:3]]
    numbers, rows = [], [[*HEADS, *COLUMNS, "chosen"]]
    for stem in stems:
        for m in methods(runs[stem]):
            what, values = (*place_of(stem), METHODS[m]), measure(best[stem], m)
            numbers += [Number((*what, name), x) for name, x in zip(COLUMNS, values)]
            rows.append([*what, *map(spread, values), describe_choice(runs[stem], m, CHOICE)])
    write_numbers(out / "numbers.csv", (*HEADS, "quantity"), numbers)
    often = watched_runs(best)
    tested = rows_of_unseen(runs, stems, data_dir)
    return {
        "grids": grids(runs),
        "accuracies": markdown(rows, left=len(HEADS), last=True),
        "rows": rows_table(tested),
        "grains": "; ".join(f"{NAMES[data_of(s)]}, {how_often([run])}" for s, run in often.items()),
        "costs": costs(often),
        "pictures": show_pictures(draw_pictures(often, out)),
        "heads": heads_table(best),
        "claims": report_claims(
            judge(claims_of("fedmeta-unseen", globals()), places_of(runs, best, tested)), out
        ),
    }


def grids(runs: Mapping[str, Run]) -> str:
    """Return the grid of each data set, in words."""
    swept = {data_of(s): run.experiment.sweep for s, run in runs.items() if run.experiment.sweep}
    return "; ".join(
        f"{NAMES[data]}: "
        + ", ".join(f"{SYMBOLS[k]} of {', '.join(map(str, grid[k]))}" for k in SYMBOLS)
        for data, grid in sorted(swept.items())
    )


def thin(run: Run) -> str:
    """Say that a grid has a single η or β, and how few steps FedMeta's server makes; "" if it has more."""
    sweep = run.experiment.sweep
    one = [SYMBOLS[k] for k in ("lr", "beta") if k in sweep and len(sweep[k]) == 1]
    steps = f"FedMeta's server makes no more than {run.experiment.rounds} steps"
    return f"the grid has one {' and one '.join(one)}, and {steps}" if one else ""


def methods(run: Run) -> list[str]:
    """Return the methods that were run, in the order of the tables."""
    return [m for m in METHODS if m in run.experiment.algorithms]


def data_of(stem: str) -> str:
    return stem.rpartition("-")[0]


def order(stem: str) -> tuple[int, str]:
    """Return the order of the sections: by data set, then by support."""
    return list(NAMES).index(data_of(stem)), stem


# ---- what validation clients choose --------------------------------------------------------------


def at_best_points(run: Run) -> Run:
    """Return the run at each method's best point of the grid, as a run without a sweep."""
    return at_best(run, methods(run), CHOICE)


def unseen_accuracy(run: Run, label: str) -> np.ndarray:
    """Return the accuracy on the unseen clients in %, at every evaluation: (seeds, R)."""
    return 100 * run.curve(label, "unseen_accuracy")[1]


def final(run: Run, label: str) -> np.ndarray:
    return measures.final(run, label, "unseen_accuracy")


def measure(best: Run, label: str) -> list[np.ndarray]:
    """Return the `COLUMNS` of one method on one data set with one share as support."""
    ours = final(best, label)
    above, start = ours - final(best, "fedavg"), unseen_accuracy(best, label)[:, 0]
    others = (measures.final(best, label, name) for name in ("unseen_accuracy_mean", CHOICE))
    return [ours, above, start, *others]


def place_of(stem: str) -> tuple[str, str]:
    """Return the table's cells for data and support."""
    return NAMES[data_of(stem)], SUPPORT[stem.rpartition("-")[2]]


def name_of(stem: str) -> str:
    return f"{', '.join(place_of(stem))} support"


def rows_of_unseen(
    runs: Mapping[str, Run], stems: Sequence[str], data_dir: Path | None
) -> dict[str, tuple[int, int]]:
    """Return how many unseen clients are tested, and on how many rows, the support taken away."""
    found, loader = {}, Loader(data_dir)
    for stem in stems:
        made = runs[stem].experiment
        data = load_experiment(made, loader)
        assert data.unseen is not None
        everyone, tested = data.unseen
        sizes = (everyone.train.sizes + everyone.test.sizes)[tested]
        left = (len(cut(np.arange(n), made.unseen)[1]) for n in sizes)
        found[stem] = len(tested), sum(left)
    return found


def rows_table(tested: Mapping[str, tuple[int, int]]) -> str:
    rows = [["data", "support", "unseen clients", "their test rows", "one row"]]
    for stem, (clients, n) in tested.items():
        rows.append([*place_of(stem), str(clients), str(n), show_number(100 / n)])
    return markdown(rows, left=2)


# ---- what it costs -------------------------------------------------------------------------------


def watched_runs(best: Mapping[str, Run]) -> dict[str, Run]:
    """Return a run for each data set with 20 % support, evaluated while it trains."""
    wanted = [[f"{data}-rounds", f"{data}-20"] for data in NAMES]
    found = [next((stem for stem in stems if stem in best), None) for stems in wanted]
    return {stem: best[stem] for stem in found if stem}


def other_values(stem: str, runs: Mapping[str, Run]) -> list[str]:
    """Say where a run without a grid has other hyperparameters than those chosen."""
    chose, made = runs.get(f"{data_of(stem)}-20"), runs[stem].experiment
    if made.sweep or chose is None:
        return []
    other = [
        f"{METHODS[m]} {SYMBOLS[key]} = {made.algorithms[m].get(key)} in place of {value:g}"
        for m in methods(runs[stem])
        for key, value in best_point(chose, m, CHOICE).items()
        if made.algorithms[m].get(key) != value
    ]
    why = f"{stem} has other hyperparameters than those that validation clients choose"
    return [f"{why}: {', '.join(other)}"] if other else []


def cost(best: Run, label: str, goal: str, *columns: str) -> np.ndarray:
    """Return a total when the final accuracy of `goal` is reached; ∞ if it never is: (seeds,)."""
    found = []
    for record, least in zip(best.records_of(label), final(best, goal)):
        there = (row for row in record.rows if 100 * row.get("unseen_accuracy", -1) >= least)
        row = next(there, None)
        found.append(np.inf if row is None else float(sum(row[c] for c in columns)))
    return np.array(found)


def show_cost(values: np.ndarray, scale: float, digits: int) -> str:
    """Return mean ± deviation of those seeds that came there, and how many did if not all."""
    there = values[np.isfinite(values)]
    some = f" ({len(there)} of {len(values)} seeds)" if len(there) < len(values) else ""
    return spread(there * scale, digits) + some if len(there) else "never gets there"


def costs(often: Mapping[str, Run]) -> str:
    goals = ("fedavg", "fedavg-meta")
    columns = ("MB to {}'s", "10⁹ operations to {}'s")
    named = [c.format(METHODS[goal]) for goal in goals for c in columns]
    rows = [[*HEADS, "final", "second half", *named]]
    for stem, run in often.items():
        for label in methods(run):
            late = second_half(unseen_accuracy(run, label)).mean(1)
            what = [*place_of(stem), METHODS[label], spread(final(run, label)), spread(late)]
            for goal in goals:
                sent = cost(run, label, goal, "bytes_down", "bytes_up")
                work = cost(run, label, goal, "flops")
                what += [show_cost(sent, 1e-6, 2), show_cost(work, 1e-9, 3)]
            rows.append(what)
    return markdown(rows, left=3)


#: The panel beside the one of everything, where FedAvg's start hides how the others differ.
ADAPTED = "those that adapt, second half (%)"


def draw_pictures(often: Mapping[str, Run], out: Path) -> dict[str, str]:
    """Draw accuracy over bytes and operations, of everything and closer: file → what it shows."""
    found = {}
    for stem, run in often.items():
        records = [
            record._replace(rows=[{**row, **closer(run, unit.label, row)} for row in record.rows])
            for unit, record in zip(run.units, run.records)
        ]
        drawn = rename_methods(Run(run.experiment, run.units, records), METHODS)
        for against, what in (("bytes", "data sent"), ("flops", "computation")):
            file, title = f"{data_of(stem)}-20-{against}.png", name_of(stem)
            both = ["unseen_accuracy", ADAPTED]
            plots.curves(drawn, out / file, both, against=against, title=title)
            found[file] = f"{title}: accuracy of unseen clients over {what}"
    return found


def closer(run: Run, label: str, row: Mapping[str, Any]) -> dict[str, float]:
    """Return a further column: the second half, of all methods but FedAvg."""
    late = label != "fedavg" and 2 * row["round"] >= run.experiment.rounds
    return {ADAPTED: 100 * row["unseen_accuracy"]} if late and "unseen_accuracy" in row else {}


# ---- the k-way head ------------------------------------------------------------------------------


def per_round(best: Run, label: str) -> float:
    """Bytes a round, of the first seed."""
    sent, rounds = bytes_sent(best, label), total(best, label, "round")
    return float(sent[0] / max(rounds[0], 1))


def heads_table(best: Mapping[str, Run]) -> str:
    rows = [["data", "method", "n-way", "k-way", "k-way − n-way", "bytes a round, k-way / n-way"]]
    for data in (stem.removesuffix("-own") for stem in best if stem.endswith("-own")):
        every, own = best[f"{data}-20"], best[f"{data}-own"]
        for label in methods(own):
            x, y = final(every, label), final(own, label)
            ratio = per_round(own, label) / per_round(every, label)
            cells = [spread(x), spread(y), spread(y - x), show_number(ratio)]
            rows.append([NAMES[data], METHODS[label], *cells])
    return markdown(rows, left=2)


# ---- claims --------------------------------------------------------------------------------------


def ratio(place: Place, label: str, columns: Sequence[str]) -> np.ndarray:
    """Return FedAvg's cost until its final accuracy, over FedMeta's: (seeds,).

    It is 0 where FedMeta never gets there, and NaN where getting there costs nothing.
    """
    base, own = (cost(place.run, m, "fedavg", *columns) for m in ("fedavg", label))
    return np.divide(base, own, out=np.full(len(own), np.nan), where=own > 0)


#: FedAvg's cost over FedMeta's, of columns of metrics.csv.
fewer_rounds = partial(ratio, columns=["round"])
fewer_bytes = partial(ratio, columns=["bytes_down", "bytes_up"])
fewer_operations = partial(ratio, columns=["flops"])


def final_unseen(place: Place, label: str) -> np.ndarray:
    return final(place.run, label)


def late_change(place: Place, label: str) -> np.ndarray:
    changes = np.abs(late_changes(unseen_accuracy(place.run, label)))
    return changes.mean(1) if changes.shape[1] else np.zeros(len(changes))


def gain_of_k_way(place: Place, label: str) -> np.ndarray:
    return final(place.run, label) - final(place.data, label)


def places_of(
    runs: Mapping[str, Run], best: Mapping[str, Run], tested: Mapping[str, tuple[int, int]]
) -> list[Place]:
    """Return where claims are judged, by what they are about."""
    heads = [stem for stem in best if stem.endswith("-own")]
    stems = {"every support": tested, "evaluated": watched_runs(best), "heads": heads}
    return [
        place_at(stem, runs, best)._replace(
            kinds=[kind], rows=tested.get(stem, tested[f"{data_of(stem)}-20"])[1]
        )
        for kind, own in stems.items()
        for stem in own
    ]


def place_at(stem: str, runs: Mapping[str, Run], best: Mapping[str, Run]) -> Place:
    """Return one data set with one part of the rows as support, and why nothing can be judged there.

    With a k-way head it is the data set, beside the run with an n-way one.
    """
    run, base = best[stem], f"{data_of(stem)}-20"
    doubts = [*other_values(stem, runs), thin(runs.get(base, runs[stem])), started_there(run)]
    name, every = name_of(stem), how_often([run])
    if stem.endswith("-own"):
        doubts, name = [thin(runs[stem])], NAMES[data_of(stem)]
    n = late_changes(unseen_accuracy(run, "fedavg")).shape[1]
    seldom = f"evaluated {every}, with {n} changes between evaluations in the second half"
    return Place(
        stem, name, run, METHODS, absent=[m for m in METHODS if m not in methods(run)],
        doubts=[*filter(None, doubts)], data=best.get(base),
        seldom=seldom if run.experiment.eval_every > 1 or n < 2 else "",
    )  # fmt: skip


def started_there(run: Run) -> str:
    """Say which untrained start is as good as FedAvg's end, in any seed; "" if none is."""
    end = final(run, "fedavg")
    for m in methods(run):
        start = unseen_accuracy(run, m)[:, 0]
        if m.startswith("fedmeta") and (there := start >= end).any():
            return (
                f"{METHODS[m]}'s untrained start, adapted by one step, is at {spread(start)} %, at or above "
                f"FedAvg's end ({spread(end)} %) in {there.sum()} of {len(end)} seeds"
            )
    return ""


def adaptation_helps(runs: Mapping[str, Run]) -> tuple[bool, str]:
    best = at_best_points(runs["mnist-20"])
    gain = float((final(best, "fedmeta-maml") - final(best, "fedavg")).mean())
    return gain > 0, f"{gain:+.2f} points"


CHECKS = {"FedMeta (MAML) is above FedAvg on unseen clients of MNIST": adaptation_helps}
