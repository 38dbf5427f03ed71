"""FedMeta's experiment: accuracy on clients that never trained, and what it costs to get there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref import plots
from fedref.experiments.results import Run
from fedref.experiments.unit import Record, Unit
from fedref.reproduction import (
    Number,
    claim,
    late_changes,
    markdown,
    not_judged,
    renamed,
    shown,
    signed,
    spread,
    write_numbers,
)

TITLE = "FedMeta: clients that never trained"
PAPER = (
    "FedMeta, Experiments: 80 % of the clients train, 10 % are for validation, 10 % are tested after "
    "they have adapted to a part of their rows. The paper has LEAF's FEMNIST (62 classes, CNN), "
    "Shakespeare (LSTM) and Sent140, and prints in its abstract that FedMeta is 3.23 to 14.84 points "
    "above FedAvg. Neither FEMNIST nor Sent140 can be had here. Ours: power-law MNIST (1000 clients, "
    "logistic regression), FEMNIST's rule on MNIST's ten digits, which stand in for its letters (200 "
    "clients, a hidden layer of 64), and Shakespeare's larger roles (every hundredth window, an LSTM of "
    "64 units in place of two layers of 256, 30 rounds). One seed, and 100 rounds on MNIST, for time."
)
GRID = {"sweep.lr": [0.1], "sweep.beta": [0.1], "sweep.alpha": [0.1]}
SHAKESPEARE = {
    "rounds": 1,
    "eval-every": 1,
    "clients-per-round": 2,
    "data.step": 1000,
    "split.min-rows": 10,
    "model.hidden": [4],
}
QUICK = {
    "seeds": [0],
    "rounds": 10,
    "clients-every": 10,
    **GRID,
    **{f"shakespeare-{support}": SHAKESPEARE for support in (20, 50, 90)},
}

NAMES = {"mnist": "MNIST", "femnist": "FEMNIST's rule, digits", "shakespeare": "Shakespeare"}
METHODS = {
    "fedavg": "FedAvg",
    "fedavg-meta": "FedAvg(Meta)",
    "fedmeta-maml": "FedMeta (MAML)",
    "fedmeta-fomaml": "FedMeta (first order)",
    "fedmeta-sgd": "FedMeta (Meta-SGD)",
    "fedmeta-epochs": "FedMeta (MAML), epochs",
}
FEDMETA = ("fedmeta-maml", "fedmeta-fomaml", "fedmeta-sgd")
SUPPORT = {"20": "20 %", "50": "50 %", "90": "90 %"}
SYMBOLS = {"lr": "η", "alpha": "α", "beta": "β"}
HEADS = ("data", "support", "method")
#: What the table has of each method, in %: `Number.ours` and `Number.more`.
COLUMNS = ("accuracy", "above FedAvg", "at the start", "mean of clients", "on validation clients")
#: Least and largest gain over FedAvg in points [fedmeta §abstract].
GAIN = (3.23, 14.84)


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> str:
    best = {stem: chosen(run) for stem, run in runs.items()}
    stems = [stem for stem in sorted(best, key=place) if not stem.endswith("-own")]
    numbers = [line(stem, best[stem], runs[stem], m) for stem in stems for m in methods(runs[stem])]
    write_numbers(
        out / "numbers.csv",
        (*HEADS, "quantity"),
        [
            Number((*number.what, what), values)
            for number in numbers
            for what, values in zip(COLUMNS, (number.ours, *number.more))
        ],
    )
    pictures = []
    often = [stem for stem in stems if stem.endswith("-20")]  # evaluated often enough
    for stem in often:
        for against, what in (("bytes", "data sent"), ("flops", "computation")):
            file, title = f"{stem}-{against}.png", NAMES[data_of(stem)]
            run = renamed(best[stem], METHODS)
            plots.curves(run, out / file, metric="unseen_accuracy", against=against, title=title)
            pictures.append(
                f"![{title}, 20 % support: accuracy of unseen clients over {what}]({file})"
            )
    return "\n\n".join(
        [
            "Final accuracy in % on the unseen clients, after one step of adaptation on their support "
            "rows (FedAvg: as it is), weighted by samples. The clients that train take the same part of "
            "their rows as support. *At the start* is before any training, after that one step. "
            "Validation clients choose for every method alike what it has of α, of β (FedMeta) and of η "
            "(FedAvg), by the mean over seeds of the final accuracy: "
            f"{grids(runs)}. Test clients choose nothing. *Edge*: at an end of the grid, beyond which "
            f"there may be a better one; *only*: there is no other in it. {thin(runs)}{not_run(runs)}",
            table(numbers),
            "FedMeta makes one episode a round, as its algorithm is printed: one step of the server. FedAvg "
            "makes an epoch of local steps (E = 1, B = 10). *Epochs*, of episodes, is the ablation: as many "
            "local steps as FedAvg.",
            "What it costs to reach the final accuracy of FedAvg, and that of FedAvg(Meta), seed by seed, on "
            "the unseen clients. *0* is the start: one step of adaptation from untrained parameters is "
            "enough. With 20 % support, where every 20th round is evaluated (Shakespeare: every 5th). "
            "Bytes are those that travel, operations those of the gradients and Hessian-vector products "
            "that are computed in training.",
            costs(best, often),
            *pictures,
            "Meta-SGD's α starts at one value for every parameter, as MAML has it, and moves by β g_α a "
            "round. Where it hardly moves, Meta-SGD with MAML's α and β comes out as MAML does, in "
            "places to the last digit shown. The change of its components from the start to the end of "
            "training:",
            alpha_table(best, runs, stems),
            *still(best, often),
            "The k-way head: each client's own classes, counted from 0, in place of the n classes of the "
            "data; 20 % support, chosen and tested as above. A model of fewer outputs travels; what its "
            "outputs mean is another thing for each client, so that only adaptation can tell.",
            heads_table(best),
            claims(best, stems),
        ]
    )


def grids(runs: Mapping[str, Run]) -> str:
    """The grid of each data set."""
    return "; ".join(
        f"{NAMES[data]}: "
        + ", ".join(f"{SYMBOLS[k]} of {', '.join(map(str, grid[k]))}" for k in SYMBOLS)
        for data, grid in sorted(
            {data_of(s): run.experiment.sweep for s, run in runs.items()}.items()
        )
    )


def thin(runs: Mapping[str, Run]) -> str:
    """Where little was tried: grids of one value, beside how many steps FedMeta's server makes."""
    found = {}
    for stem, run in runs.items():
        one = [f"one {SYMBOLS[k]}" for k in SYMBOLS if len(run.experiment.sweep[k]) == 1]
        if one:
            found[data_of(stem)] = (
                f"{NAMES[data_of(stem)]}'s grid has {' and '.join(one)}, and FedMeta's server makes "
                f"no more than {run.experiment.rounds} steps (*epochs*: more): its numbers say little of "
                "what FedMeta can."
            )
    return " ".join(found.values())


def not_run(runs: Mapping[str, Run]) -> str:
    """The data and parts of the rows as support that these results are without."""
    rest = [stem for data in NAMES for part in SUPPORT if (stem := f"{data}-{part}") not in runs]
    named = [described(stem) for stem in rest]
    return f" Not run: {'; '.join(named)}." if named else ""


def methods(run: Run) -> list[str]:
    """Those that were run, in the order of the tables."""
    return [m for m in METHODS if m in run.experiment.algorithms]


def data_of(stem: str) -> str:
    return stem.rpartition("-")[0]


def described(stem: str) -> str:
    """On which data, and with how much of a client's rows as support."""
    return f"{NAMES[data_of(stem)]}, {SUPPORT[stem.rpartition('-')[2]]} support"


def place(stem: str) -> tuple[int, str]:
    """The order of the sections: by data set, then by support."""
    return list(NAMES).index(data_of(stem)), stem


# ---- what validation clients choose --------------------------------------------------------------


def chosen(run: Run) -> Run:
    """The run at each method's best point of the grid, as a run without a sweep."""
    units: list[Unit] = []
    records: list[Record] = []
    for label in methods(run):
        point = best_point(run, label)
        for unit, record in zip(run.units, run.records):
            if unit.label == label and unit.point == point:
                units.append(unit._replace(point={}))
                records.append(record)
    return Run(run.experiment, units, records)


def best_point(run: Run, label: str) -> Mapping[str, Any]:
    """The point of largest final accuracy on the validation clients, mean over seeds."""
    found: dict[str, list[float]] = {}
    points = {}
    for unit, record in zip(run.units, run.records):
        if unit.label == label:
            done = record.status == "done"
            value = record.rows[-1]["validation_accuracy"] if done else -np.inf
            found.setdefault(repr(unit.point), []).append(value)
            points[repr(unit.point)] = unit.point
    return points[max(found, key=lambda key: float(np.mean(found[key])))]


def unseen(run: Run, label: str) -> np.ndarray:
    """Accuracy on the unseen clients in %, at every evaluation: (seeds, R)."""
    return 100 * run.curve(label, "unseen_accuracy")[1]


def final(run: Run, label: str) -> np.ndarray:
    return unseen(run, label)[:, -1]


def line(stem: str, best: Run, run: Run, label: str) -> Number:
    """One method on one data set with one part of the rows as support: its COLUMNS, and its point."""
    point, grid = best_point(run, label), run.experiment.sweep
    chose = ", ".join(f"{SYMBOLS[k]} = {x:g}{edge(x, grid[k])}" for k, x in point.items())
    validated = 100 * best.curve(label, "validation_accuracy")[1][:, -1]
    each = 100 * best.curve(label, "unseen_accuracy_mean")[1][:, -1]
    above = final(best, label) - final(best, "fedavg")
    more = (above, unseen(best, label)[:, 0], each, validated)
    return Number((*place_of(stem), METHODS[label]), final(best, label), None, chose, more)


def edge(value: float, grid: Sequence[float]) -> str:
    """Whether a value is at an end of the grid that it was chosen from."""
    if len(grid) == 1:
        return " (only)"
    return " (edge)" if value in (min(grid), max(grid)) else ""


def place_of(stem: str) -> tuple[str, str]:
    """The table's cells for data and support."""
    return NAMES[data_of(stem)], SUPPORT[stem.rpartition("-")[2]]


def table(numbers: Sequence[Number]) -> str:
    rows = [[*HEADS, *COLUMNS, "chosen"]]
    for number in numbers:
        cells = [spread(values) for values in (number.ours, *number.more)]
        rows.append([*number.what, *cells, number.comment])
    return markdown(rows, left=len(HEADS), last=True)


def alpha_table(best: Mapping[str, Run], runs: Mapping[str, Run], stems: Sequence[str]) -> str:
    """How far Meta-SGD's α went, and what that is worth."""
    heads = ["data", "support", "α at the start", "mean of absolute changes", "largest"]
    rows = [[*heads, "accuracy, less MAML's"]]
    for stem in stems:
        start = best_point(runs[stem], "fedmeta-sgd")["alpha"]
        moved = [alpha_moved(record, start) for record in best[stem].records_of("fedmeta-sgd")]
        gain = final(best[stem], "fedmeta-sgd") - final(best[stem], "fedmeta-maml")
        cells = [f"{start:g}", *(spread(x, 4) for x in zip(*moved)), spread(gain)]
        rows.append([*place_of(stem), *cells])
    return markdown(rows, left=2)


def alpha_moved(record: Record, start: float) -> tuple[float, float]:
    """Mean and largest absolute change of a component of α."""
    change = np.abs(np.asarray(record.state.server.learner.alpha, float) - start)
    return float(change.mean()), float(change.max())


# ---- what it costs -------------------------------------------------------------------------------


def cost(best: Run, label: str, goal: str, *columns: str) -> np.ndarray:
    """A total when the final accuracy of `goal` is reached, a seed each; ∞ if it never is."""
    found = []
    for record, least in zip(best.records_of(label), final(best, goal)):
        there = (row for row in record.rows if 100 * row.get("unseen_accuracy", -1) >= least)
        row = next(there, None)
        found.append(np.inf if row is None else float(sum(row[c] for c in columns)))
    return np.array(found)


def reached(values: np.ndarray, scale: float, digits: int) -> str:
    """Mean ± deviation of those seeds that came there, and how many did if not all."""
    there = values[np.isfinite(values)]
    some = f" ({len(there)} of {len(values)} seeds)" if len(there) < len(values) else ""
    return spread(there * scale, digits) + some if len(there) else "never"


def costs(best: Mapping[str, Run], stems: Sequence[str]) -> str:
    goals = ("fedavg", "fedavg-meta")
    columns = ("MB to {}'s", "10⁹ operations to {}'s")
    rows = [[*HEADS, *(c.format(METHODS[goal]) for goal in goals for c in columns)]]
    for stem in stems:
        for label in methods(best[stem]):
            what = [*place_of(stem), METHODS[label]]
            for goal in goals:
                sent = cost(best[stem], label, goal, "bytes_down", "bytes_up")
                work = cost(best[stem], label, goal, "flops")
                what += [reached(sent, 1e-6, 2), reached(work, 1e-9, 3)]
            rows.append(what)
    return markdown(rows, left=3)


# ---- the k-way head ------------------------------------------------------------------------------


def per_round(best: Run, label: str) -> float:
    """Bytes a round, of the first seed."""
    row = best.records_of(label)[0].rows[-1]
    return (row["bytes_down"] + row["bytes_up"]) / max(row["round"], 1)


def heads_table(best: Mapping[str, Run]) -> str:
    rows = [["data", "method", "n-way", "k-way", "k-way − n-way", "bytes a round, k-way / n-way"]]
    for data in (stem.removesuffix("-own") for stem in best if stem.endswith("-own")):
        every, own = best[f"{data}-20"], best[f"{data}-own"]
        for label in methods(own):
            x, y = final(every, label), final(own, label)
            ratio = per_round(own, label) / per_round(every, label)
            cells = [spread(x), spread(y), spread(y - x), shown(ratio)]
            rows.append([NAMES[data], METHODS[label], *cells])
    return markdown(rows, left=2)


# ---- claims --------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """A cost that FedMeta is to have less of."""

    columns: tuple[str, ...]  # of metrics.csv, which add up to it
    begins: str  # the claim's words
    unit: str
    scale: float  # from what the columns have to FedAvg's cost as printed
    of: str


COSTS = (
    Cost(("round",), "FedMeta converges faster than FedAvg", "times as fast", 1, "rounds"),
    Cost(("bytes_down", "bytes_up"), "FedMeta sends less than FedAvg", "times less", 1e-6, "MB"),
    Cost(("flops",), "FedMeta computes less than FedAvg", "times less", 1e-9, "billion operations"),
)


def claims(best: Mapping[str, Run], stems: Sequence[str]) -> str:
    lines = [
        "What the paper says of it, and what was measured (it holds if it does in every seed):",
        "",
    ]
    often = [stem for stem in stems if stem.endswith("-20")]
    lines += [above_fedavg(best[stem], described(stem)) for stem in stems]
    for stem in stems:
        run, where = best[stem], described(stem)
        gain = {METHODS[m]: final(run, m) - final(run, "fedavg-meta") for m in FEDMETA}
        text = f"FedMeta ends higher than FedAvg(Meta), {where}"
        lines.append(claim(text, gain, above=0))
    lines += [cheaper(best[stem], described(stem), of) for of in COSTS for stem in often]
    lines += [stable(best[stem], described(stem)) for stem in often]
    for data in (stem.removesuffix("-own") for stem in best if stem.endswith("-own")):
        every, own = best[f"{data}-20"], best[f"{data}-own"]
        gain = {METHODS[m]: final(own, m) - final(every, m) for m in ("fedavg-meta", *FEDMETA)}
        text = f"A k-way head is enough (no more than 1 point lower), {NAMES[data]}"
        lines.append(claim(text, gain, above=-1))
    return "\n".join(lines)


def above_fedavg(run: Run, where: str) -> str:
    """The abstract's claim, and how much of the gain is there before any training."""
    gain = {METHODS[m]: final(run, m) - final(run, "fedavg") for m in FEDMETA}
    start = unseen(run, "fedmeta-maml")[:, 0] - final(run, "fedavg")
    adds = gain[METHODS["fedmeta-maml"]] - start
    detail = (
        f"MAML's untrained start, adapted by one step, is {signed(float(start.mean()))} already, and "
        f"training adds {signed(float(adds.mean()))}"
        if start.mean() > 0
        else f"MAML's untrained start, adapted by one step: {signed(float(start.mean()))}"
    )
    text = f"FedMeta is {GAIN[0]} to {GAIN[1]} points above FedAvg, {where}"
    return claim(text, gain, above=GAIN[0], detail=detail)


def begin_there(run: Run) -> dict[str, np.ndarray]:
    """The untrained starts that are as good as FedAvg's final accuracy, in any seed."""
    starts = {METHODS[m]: unseen(run, m)[:, 0] for m in FEDMETA}
    return {name: x for name, x in starts.items() if (x >= final(run, "fedavg")).any()}


def cheaper(run: Run, where: str, of: Cost) -> str:
    """FedAvg's cost until its final accuracy, over FedMeta's: 0 where FedMeta never gets there. Not
    judged where an untrained start is there."""
    text = f"{of.begins}, until FedAvg's final accuracy, {where}"
    if there := begin_there(run):
        found = ", ".join(f"{name} {spread(start)} %" for name, start in there.items())
        return not_judged(
            text,
            "the untrained start, adapted by one step, is at or above FedAvg's final "
            f"{spread(final(run, 'fedavg'))} % already: {found}",
        )
    base = cost(run, "fedavg", "fedavg", *of.columns)
    ratio = {METHODS[m]: base / cost(run, m, "fedavg", *of.columns) for m in FEDMETA}
    detail = f"FedAvg: {spread(base * of.scale)} {of.of}"
    if any((x == 0).any() for x in ratio.values()):
        detail += "; 0: never gets there"
    return claim(text, ratio, above=1, unit=of.unit, detail=detail)


def stable(run: Run, where: str) -> str:
    """Mean |change| of accuracy between evaluations of the second half, less FedAvg's."""
    text = f"FedMeta converges more stably than FedAvg, {where}"
    changes = {m: unrest(run, m) for m in ("fedavg", *FEDMETA)}
    n = changes["fedavg"].shape[1]
    if n < 2:
        return not_judged(text, f"changes between evaluations in the second half: {n}")
    base = changes["fedavg"].mean(1)
    more = {METHODS[m]: changes[m].mean(1) - base for m in FEDMETA}
    detail = (
        f"mean absolute change of accuracy from one evaluation to the next in the second half ({n} "
        f"changes), less FedAvg's {spread(base)}"
    )
    if begin_there(run):
        detail += "; FedMeta's untrained start is at or above FedAvg's end, so that there is little to learn"
    return claim(text, more, below=0, detail=detail)


def still(best: Mapping[str, Run], stems: Sequence[str]) -> list[str]:
    """A sentence on the FedMeta methods that are equally good at every evaluation after the start."""
    found = []
    for stem in stems:
        for m in FEDMETA:
            y = unseen(best[stem], m)[:, 1:]
            if y.shape[1] > 1 and (y == y[:, :1]).all():
                found.append(f"{METHODS[m]} on {described(stem)} ({spread(y[:, 0])} %)")
    return [f"The same accuracy at every evaluation after the start: {', '.join(found)}."] * bool(
        found
    )


def unrest(run: Run, label: str) -> np.ndarray:
    """|Change| of accuracy from one evaluation to the next, second half, in points: (seeds, R)."""
    return np.abs(late_changes(unseen(run, label)))


def adaptation_helps(runs: Mapping[str, Run]) -> tuple[bool, str]:
    best = chosen(runs["mnist-20"])
    gain = float((final(best, "fedmeta-maml") - final(best, "fedavg")).mean())
    return gain > 0, f"{gain:+.2f} points"


CHECKS = {"FedMeta (MAML) is above FedAvg on unseen clients of MNIST": adaptation_helps}
