"""FedMeta's experiment: accuracy on clients that never trained, and what it costs to get there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedref import plots
from fedref.experiments.results import Run
from fedref.experiments.unit import Record, Unit
from fedref.reproduction import (
    Number,
    claim,
    markdown,
    number_table,
    renamed,
    shown,
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
QUICK = {
    "seeds": [0],
    "rounds": 10,
    "clients-every": 10,
    **GRID,
    "shakespeare-20": {
        "rounds": 1,
        "eval-every": 1,
        "clients-per-round": 2,
        "data.step": 1000,
        "split.min-rows": 10,
        "model.hidden": [4],
    },
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
#: Least and largest gain over FedAvg in points [fedmeta §abstract].
GAIN = (3.23, 14.84)


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> str:
    best = {stem: chosen(run) for stem, run in runs.items()}
    stems = [stem for stem in sorted(best, key=place) if not stem.endswith("-own")]
    numbers = [line(stem, best[stem], runs[stem], m) for stem in stems for m in methods(runs[stem])]
    heads = ("data", "support", "method")
    write_numbers(
        out / "numbers.csv",
        (*heads, "quantity"),
        [
            number._replace(what=(*number.what, what), ours=values)
            for number in numbers
            for what, values in (("accuracy", number.ours), ("above FedAvg", number.more[0]))
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
            "their rows as support. Validation clients choose for every method alike what it has of "
            "α, of β (FedMeta) and of η (FedAvg), by the mean over seeds of the final accuracy: "
            f"{grids(runs)}. Test clients choose nothing.{not_run(runs)}",
            number_table(heads, numbers, more=("above FedAvg",)),
            "FedMeta makes one episode a round, as its algorithm is printed: one step of the server. FedAvg "
            "makes an epoch of local steps (E = 1, B = 10). *Epochs*, of episodes, is the ablation: as many "
            "local steps as FedAvg.",
            "What it costs to reach the final accuracy of FedAvg, and that of FedAvg(Meta), seed by seed, on "
            "the unseen clients. *0* is the start: one step of adaptation from untrained parameters is "
            "enough. With 20 % support, where every 20th round is evaluated (Shakespeare: every 10th). "
            "Bytes are those that travel, operations those of the gradients and Hessian-vector products "
            "that are computed in training.",
            costs(best, often),
            *pictures,
            "The k-way head: each client's own classes, counted from 0, in place of the n classes of the "
            "data; 20 % support, chosen and tested as above. A model of fewer outputs travels; what its "
            "outputs mean is another thing for each client, so that only adaptation can tell.",
            heads_table(best),
            claims(best, stems),
        ]
    )


def grids(runs: Mapping[str, Run]) -> str:
    """The grid of each data set."""
    found = {data_of(stem): run.experiment.sweep for stem, run in runs.items()}
    symbols = {"lr": "η", "beta": "β", "alpha": "α"}
    return "; ".join(
        f"{NAMES[data]}: "
        + ", ".join(f"{symbols[k]} of {', '.join(map(str, grid[k]))}" for k in symbols)
        for data, grid in sorted(found.items())
    )


def not_run(runs: Mapping[str, Run]) -> str:
    """The experiments that these results are without."""
    rest = sorted({file.stem for file in Path(__file__).parent.glob("*.toml")} - set(runs))
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
    """One method on one data set with one part of the rows as support."""
    symbols = {"lr": "η", "alpha": "α", "beta": "β"}
    point = ", ".join(
        f"{symbols[key]} = {value:g}" for key, value in best_point(run, label).items()
    )
    validated = 100 * best.curve(label, "validation_accuracy")[1][:, -1]
    each = 100 * best.curve(label, "unseen_accuracy_mean")[1][:, -1]
    comment = (
        f"{point} (validation {spread(validated)}); at the start {spread(unseen(best, label)[:, 0])}; "
        f"mean of clients {spread(each)}"
    )
    above = final(best, label) - final(best, "fedavg")
    what = (NAMES[data_of(stem)], SUPPORT[stem.rpartition("-")[2]], METHODS[label])
    return Number(what, final(best, label), None, comment, (above,))


# ---- what it costs -------------------------------------------------------------------------------


def cost(best: Run, label: str, goal: str, *columns: str) -> np.ndarray:
    """A total when the final accuracy of `goal` is reached, a seed each; ∞ if it never is."""
    found = []
    for record, least in zip(best.records_of(label), final(best, goal)):
        there = (row for row in record.rows if 100 * row.get("unseen_accuracy", -1) >= least)
        row = next(there, None)
        found.append(np.inf if row is None else float(sum(row[c] for c in columns)))
    return np.array(found)


def until_fedavg(best: Run, label: str) -> np.ndarray:
    """Bytes until FedAvg's final accuracy, or all that were sent where it is never reached."""
    sent = cost(best, label, "fedavg", "bytes_down", "bytes_up")
    rows = [record.rows[-1] for record in best.records_of(label)]
    return np.minimum(sent, [float(row["bytes_down"] + row["bytes_up"]) for row in rows])


def reached(values: np.ndarray, scale: float, digits: int) -> str:
    """Mean ± deviation of those seeds that came there, and how many did if not all."""
    there = values[np.isfinite(values)]
    some = f" ({len(there)} of {len(values)} seeds)" if len(there) < len(values) else ""
    return spread(there * scale, digits) + some if len(there) else "never"


def costs(best: Mapping[str, Run], stems: Sequence[str]) -> str:
    goals = ("fedavg", "fedavg-meta")
    columns = ("MB to {}'s", "10⁹ operations to {}'s")
    head = ["data", "support", "method"]
    rows = [[*head, *(c.format(METHODS[goal]) for goal in goals for c in columns)]]
    for stem in stems:
        for label in methods(best[stem]):
            what = [NAMES[data_of(stem)], SUPPORT[stem.rpartition("-")[2]], METHODS[label]]
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


def claims(best: Mapping[str, Run], stems: Sequence[str]) -> str:
    lines = [
        "What the paper says of it, and what was measured (it holds if it does in every seed):",
        "",
    ]
    for stem in stems:
        run, where = best[stem], described(stem)
        gain = {METHODS[m]: final(run, m) - final(run, "fedavg") for m in FEDMETA}
        text = f"FedMeta is {GAIN[0]} to {GAIN[1]} points above FedAvg, {where}"
        start = float(unseen(run, "fedmeta-maml")[:, 0].mean() - final(run, "fedavg").mean())
        detail = f"untrained parameters and one step of adaptation (MAML's α): {start:+.2f}"
        lines.append(claim(text, gain, above=GAIN[0], detail=detail.replace("-", "−")))
    for stem in stems:
        run, where = best[stem], described(stem)
        gain = {METHODS[m]: final(run, m) - final(run, "fedavg-meta") for m in FEDMETA}
        text = f"FedMeta ends higher than FedAvg(Meta), {where}"
        lines.append(claim(text, gain, above=0))
    for stem in (s for s in stems if s.endswith("-20")):
        run, where = best[stem], described(stem)
        base = until_fedavg(run, "fedavg")
        saved = {METHODS[m]: (base - until_fedavg(run, m)) / 1e6 for m in FEDMETA}
        text = f"FedMeta sends less than FedAvg does until FedAvg's final accuracy, {where}"
        detail = "what never gets there counts with all that it sent"
        lines.append(claim(text, saved, above=0, unit="MB fewer", detail=detail))
    for data in (stem.removesuffix("-own") for stem in best if stem.endswith("-own")):
        every, own = best[f"{data}-20"], best[f"{data}-own"]
        gain = {METHODS[m]: final(own, m) - final(every, m) for m in ("fedavg-meta", *FEDMETA)}
        text = f"A k-way head is enough (no more than 1 point lower), {NAMES[data]}"
        lines.append(claim(text, gain, above=-1))
    return "\n".join(lines)


def adaptation_helps(runs: Mapping[str, Run]) -> tuple[bool, str]:
    best = chosen(runs["mnist-20"])
    gain = float((final(best, "fedmeta-maml") - final(best, "fedavg")).mean())
    return gain > 0, f"{gain:+.2f} points"


CHECKS = {"FedMeta (MAML) is above FedAvg on unseen clients of MNIST": adaptation_helps}
