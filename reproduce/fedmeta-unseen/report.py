"""FedMeta's experiment: accuracy on clients that never trained, and what it costs to get there."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref import plots
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from fedref.experiments.unit import Record
from fedref.reproduction import (
    Number,
    at_best,
    best_point,
    claim,
    how_often,
    late_changes,
    listed,
    markdown,
    not_judged,
    renamed,
    second_half,
    shown,
    signed,
    spread,
    totals,
    write_numbers,
)
from fedref.sampling import cut

TITLE = "FedMeta: clients that never trained"
PAPER = (
    "FedMeta, Experiments: 80 % of the clients train, 10 % are for validation, 10 % are tested after "
    "they have adapted to a part of their rows. The paper has LEAF's FEMNIST (62 classes, CNN), "
    "Shakespeare (LSTM) and Sent140, and prints in its abstract that FedMeta is 3.23 to 14.84 points "
    "above FedAvg. Neither FEMNIST nor Sent140 can be had here. Ours: power-law MNIST (1000 clients, "
    "logistic regression), FEMNIST's rule on MNIST's ten digits, which stand in for its letters (200 "
    "clients, a hidden layer of 64), and Shakespeare's larger roles (every hundredth window, an LSTM of "
    "64 units in place of two layers of 256). For want of time, 100 rounds and three seeds; Shakespeare "
    "has 30 rounds and one seed."
)
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
FEDMETA = ("fedmeta-maml", "fedmeta-fomaml", "fedmeta-sgd")
ABLATION = "fedmeta-epochs"
#: The methods whose k-way head is held to their n-way one: those that adapt.
COMPARED = ("fedavg-meta", *FEDMETA)
SUPPORT = {"20": "20 %", "50": "50 %", "90": "90 %", "rounds": "20 %"}
SYMBOLS = {"lr": "η", "alpha": "α", "beta": "β"}
HEADS = ("data", "support", "method")
#: What the table has of each method, in %: `Number.ours` and `Number.more`.
COLUMNS = ("accuracy", "above FedAvg", "at the start", "mean of clients", "on validation clients")
#: What chooses: the point with the largest final value, mean over seeds.
CHOICE = "validation_accuracy"
#: Least and largest gain over FedAvg in points [fedmeta §abstract].
GAIN = (3.23, 14.84)
#: What a k-way head may lose and still be enough, in points.
LOSS = 1


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> str:
    best = {stem: chosen(run) for stem, run in runs.items()}
    stems = [s for s in sorted(best, key=place) if s.rpartition("-")[2] in PARTS[:3]]
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
    often = watched(best)
    grains = "; ".join(f"{NAMES[data_of(stem)]}, {how_often([run])}" for stem, run in often.items())
    return "\n\n".join(
        [
            "Final accuracy in % on the unseen clients, after one step of adaptation on their support "
            "rows (FedAvg: as it is), weighted by samples. The clients that train take the same part of "
            "their rows as support. *At the start* is before any training: the untrained parameters, "
            "after that one step (FedAvg takes none). Of each method's own α, β (FedMeta) and η "
            "(FedAvg), validation clients choose those with the largest final accuracy, mean over "
            f"seeds, from these grids: {grids(runs)}. Test clients choose nothing. *Edge*: at an end of "
            "the grid, beyond which there may be a better one; *only*: there is no other in it. "
            f"{said_of_thin(runs)}",
            table(numbers),
            "What the accuracies rest on: the rows that are left to test on when the support is taken "
            "from the rows of these clients, in every seed. *One row* is what one of the unseen clients' "
            "rows is worth in points.",
            rows_table(runs, stems, data_dir),
            "FedMeta makes one episode a round, as its algorithm is printed: one step of the server. FedAvg "
            "makes an epoch of local steps (E = 1, B = 10). *Epochs*, of episodes, is the ablation: as many "
            "local steps as FedAvg.",
            "What it costs to reach the final accuracy of FedAvg, and that of FedAvg(Meta), seed by seed, on "
            "the unseen clients. *0* is the start: one step of adaptation from untrained parameters is "
            f"enough. 20 % support, and the hyperparameters chosen above; evaluated: {grains}. Bytes are "
            "those that travel, operations those of the gradients and Hessian-vector products that are "
            "computed in training. The final accuracy is that of one round; *second half* is the mean "
            "over the evaluations of the second half of the rounds.",
            *(f"{why}." for stem in often for why in other_values(stem, runs)),
            costs(often),
            *pictures(often, out),
            "Meta-SGD's α starts at one value for every parameter, as MAML has it, and moves by β g_α a "
            "round. Where it hardly moves, Meta-SGD with MAML's α and β comes out as MAML does, in "
            "places to the last digit shown (what each has is in the first table). The change of its "
            "components from the start to the end of training:",
            alpha_table(best, runs, stems),
            "The k-way head: each client's own classes, counted from 0, in place of the n classes of the "
            "data; 20 % support, chosen and tested as above. A model of fewer outputs travels; what its "
            "outputs mean is another thing for each client, so that only adaptation can tell.",
            heads_table(best),
            claims(runs, best, stems),
        ]
    )


def grids(runs: Mapping[str, Run]) -> str:
    """The grid of each data set."""
    swept = {data_of(s): run.experiment.sweep for s, run in runs.items() if run.experiment.sweep}
    return "; ".join(
        f"{NAMES[data]}: "
        + ", ".join(f"{SYMBOLS[k]} of {', '.join(map(str, grid[k]))}" for k in SYMBOLS)
        for data, grid in sorted(swept.items())
    )


def thin(run: Run) -> str:
    """Where little was tried: a grid of one η or β, beside how many steps FedMeta's server makes."""
    sweep = run.experiment.sweep
    one = [SYMBOLS[k] for k in ("lr", "beta") if k in sweep and len(sweep[k]) == 1]
    steps = f"FedMeta's server makes no more than {run.experiment.rounds} steps"
    return f"the grid has one {' and one '.join(one)}, and {steps}" if one else ""


def said_of_thin(runs: Mapping[str, Run]) -> str:
    found = {NAMES[data_of(stem)]: why for stem, run in runs.items() if (why := thin(run))}
    more = "its numbers say little of what FedMeta can do, and no claim is judged by them"
    return " ".join(f"{name}: {why} (*epochs*: more); {more}." for name, why in found.items())


def methods(run: Run) -> list[str]:
    """Those that were run, in the order of the tables."""
    return [m for m in METHODS if m in run.experiment.algorithms]


def data_of(stem: str) -> str:
    return stem.rpartition("-")[0]


def described(stem: str) -> str:
    """On which data, and with how much of a client's rows as support."""
    return f"{', '.join(place_of(stem))} support"


def place(stem: str) -> tuple[int, str]:
    """The order of the sections: by data set, then by support."""
    return list(NAMES).index(data_of(stem)), stem


# ---- what validation clients choose --------------------------------------------------------------


def chosen(run: Run) -> Run:
    """The run at each method's best point of the grid, as a run without a sweep."""
    return at_best(run, methods(run), CHOICE)


def unseen(run: Run, label: str) -> np.ndarray:
    """Accuracy on the unseen clients in %, at every evaluation: (seeds, R)."""
    return 100 * run.curve(label, "unseen_accuracy")[1]


def final(run: Run, label: str) -> np.ndarray:
    return unseen(run, label)[:, -1]


def line(stem: str, best: Run, run: Run, label: str) -> Number:
    """One method on one data set with one part of the rows as support: its COLUMNS, and its point."""
    point, grid = best_point(run, label, CHOICE), run.experiment.sweep
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


def rows_table(runs: Mapping[str, Run], stems: Sequence[str], data_dir: Path | None) -> str:
    """How many clients and rows are tested on."""
    heads = ["unseen clients", "their test rows", "one row", "validation clients", "theirs"]
    rows = [["data", "support", *heads]]
    loader = Loader(data_dir)
    for stem in stems:
        data = load_experiment(runs[stem].experiment, loader)
        assert data.unseen is not None
        everyone, tested = data.unseen
        sizes = everyone.train.sizes + everyone.test.sizes
        left = np.array([len(cut(np.arange(n), runs[stem].experiment.unseen)[1]) for n in sizes])
        n, others = left[tested].sum(), left[data.validation].sum()
        cells = [str(len(tested)), str(n), shown(100 / n), str(len(data.validation)), str(others)]
        rows.append([*place_of(stem), *cells])
    return markdown(rows, left=2)


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
        start = best_point(runs[stem], "fedmeta-sgd", CHOICE)["alpha"]
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


def watched(best: Mapping[str, Run]) -> dict[str, Run]:
    """The runs of 20 % support that are evaluated while they train: one for each data set."""
    wanted = [[f"{data}-rounds", f"{data}-20"] for data in NAMES]
    found = [next((stem for stem in stems if stem in best), None) for stems in wanted]
    return {stem: best[stem] for stem in found if stem}


def other_values(stem: str, runs: Mapping[str, Run]) -> list[str]:
    """A line that says where a run without a grid has other hyperparameters than those chosen."""
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
    return spread(there * scale, digits) + some if len(there) else "never gets there"


def costs(often: Mapping[str, Run]) -> str:
    goals = ("fedavg", "fedavg-meta")
    columns = ("MB to {}'s", "10⁹ operations to {}'s")
    named = [c.format(METHODS[goal]) for goal in goals for c in columns]
    rows = [[*HEADS, "final", "second half", *named]]
    for stem, run in often.items():
        for label in methods(run):
            late = second_half(unseen(run, label)).mean(1)
            what = [*place_of(stem), METHODS[label], spread(final(run, label)), spread(late)]
            for goal in goals:
                sent = cost(run, label, goal, "bytes_down", "bytes_up")
                work = cost(run, label, goal, "flops")
                what += [reached(sent, 1e-6, 2), reached(work, 1e-9, 3)]
            rows.append(what)
    return markdown(rows, left=3)


#: The panel beside the one of everything, where FedAvg's start hides how the others differ.
ADAPTED = "those that adapt, second half (%)"


def pictures(often: Mapping[str, Run], out: Path) -> list[str]:
    """Accuracy over bytes and operations, of everything and closer."""
    found = []
    for stem, run in often.items():
        records = [
            record._replace(rows=[{**row, **closer(run, unit.label, row)} for row in record.rows])
            for unit, record in zip(run.units, run.records)
        ]
        drawn = renamed(Run(run.experiment, run.units, records), METHODS)
        for against, what in (("bytes", "data sent"), ("flops", "computation")):
            file, title = f"{data_of(stem)}-20-{against}.png", described(stem)
            both = ["unseen_accuracy", ADAPTED]
            plots.curves(drawn, out / file, both, against=against, title=title)
            found.append(f"![{title}: accuracy of unseen clients over {what}]({file})")
    return found


def closer(run: Run, label: str, row: Mapping[str, Any]) -> dict[str, float]:
    """A further column: the second half, of all methods but FedAvg."""
    late = label != "fedavg" and 2 * row["round"] >= run.experiment.rounds
    return {ADAPTED: 100 * row["unseen_accuracy"]} if late and "unseen_accuracy" in row else {}


# ---- the k-way head ------------------------------------------------------------------------------


def per_round(best: Run, label: str) -> float:
    """Bytes a round, of the first seed."""
    sent, rounds = totals(best, label, "bytes_down", "bytes_up"), totals(best, label, "round")
    return float(sent[0] / max(rounds[0], 1))


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
    what: str
    scale: float  # from what the columns have to FedAvg's cost as printed
    unit: str


COSTS = (
    Cost(("round",), "FedMeta converges faster than FedAvg", "rounds", 1, "rounds"),
    Cost(("bytes_down", "bytes_up"), "FedMeta sends less than FedAvg", "bytes", 1e-6, "MB"),
    Cost(("flops",), "FedMeta computes less than FedAvg", "operations", 1e-9, "billion operations"),
)


class Place(NamedTuple):
    """Where claims are judged: described, the chosen runs, and why nothing there can decide them."""

    where: str
    run: Run
    doubts: Sequence[str]


def place_at(stem: str, runs: Mapping[str, Run], best: Mapping[str, Run]) -> Place:
    """One data set with one part of the rows as support."""
    chose = runs.get(f"{data_of(stem)}-20", runs[stem])
    doubts = [*other_values(stem, runs), thin(chose), started_there(best[stem])]
    return Place(described(stem), best[stem], [*filter(None, doubts)])


def started_there(run: Run) -> str:
    """An untrained start that is as good as FedAvg's final accuracy, in any seed; "" if none is."""
    end = final(run, "fedavg")
    for m in methods(run):
        start = unseen(run, m)[:, 0]
        if m.startswith("fedmeta") and (there := start >= end).any():
            return (
                f"{METHODS[m]}'s untrained start, adapted by one step, is at {spread(start)} %, at or above "
                f"FedAvg's end ({spread(end)} %) in {there.sum()} of {len(end)} seeds"
            )
    return ""


def verdict(
    text: str,
    here: Place,
    value: Callable[[str], np.ndarray],
    *,
    labels: Sequence[str] = FEDMETA,
    unit: str = "points",
    **rest: Any,
) -> str:
    """A claim of all `labels`, with the ablation beside it; where there are doubts, only measured."""
    values = {METHODS[m]: value(m) for m in labels}
    text = f"{text}, {here.where}"
    if here.doubts:
        known = not any(np.isnan(x).any() for x in values.values())
        found = f"measured: {listed(values, show=rest.get('show', spread))} {unit}"
        return not_judged(text, "; ".join([*here.doubts, *[found] * known]))
    beside = {METHODS[m]: value(m) for m in methods(here.run) if m == ABLATION}
    return claim(text, values, unit=unit, beside=beside, **rest)


def claims(runs: Mapping[str, Run], best: Mapping[str, Run], stems: Sequence[str]) -> str:
    often = [place_at(stem, runs, best) for stem in watched(best)]
    places = [place_at(stem, runs, best) for stem in stems]
    owns = [data_of(stem) for stem in best if stem.endswith("-own")]
    moved = [final(best[f"{data}-20"], m).std() for data in owns for m in COMPARED]
    lines = [
        "What the paper says of it, and what was measured (it holds if it does in every seed). Where an "
        "untrained start, adapted by one step, is at or above FedAvg's final accuracy in any seed, no "
        "claim about training is judged; nor where the grid has a single η or β. The thresholds: "
        f"{GAIN[0]} points is the paper's own least gain. Of *higher*, *faster*, *less* and *more "
        "stable* it names no size, so that any difference will do, in the same direction in every seed. "
        f"Of *enough* neither: a k-way head may lose {LOSS} point, which is to be held against "
        f"{shown(max(moved, default=None))}, the largest standard deviation over seeds of these n-way "
        "accuracies.",
        "",
        *(above_fedavg(here) for here in places),
        *(higher(here, goal) for goal in ("fedavg", "fedavg-meta") for here in places),
        *(cheaper(here, of) for of in COSTS for here in often),
        *(stable(here) for here in often),
        *(enough(runs[f"{data}-own"], best, data) for data in owns),
    ]
    return "\n".join(lines)


def above_fedavg(here: Place) -> str:
    """The abstract's least gain. Its largest is of one data set, and not judged."""
    text = f"FedMeta is at least {GAIN[0]} points above FedAvg (the paper: {GAIN[0]} to {GAIN[1]})"
    base = final(here.run, "fedavg")
    start = float((unseen(here.run, "fedmeta-maml")[:, 0] - base).mean())
    detail = f"MAML's untrained start, adapted by one step: {signed(start)}"
    return verdict(text, here, lambda m: final(here.run, m) - base, above=GAIN[0], detail=detail)


def higher(here: Place, goal: str) -> str:
    text = f"FedMeta ends higher than {METHODS[goal]}"
    return verdict(text, here, lambda m: final(here.run, m) - final(here.run, goal), above=0)


def cheaper(here: Place, of: Cost) -> str:
    """FedAvg's cost until its final accuracy, over FedMeta's: 0 where FedMeta never gets there."""
    base = cost(here.run, "fedavg", "fedavg", *of.columns)

    def ratio(m: str) -> np.ndarray:
        own = cost(here.run, m, "fedavg", *of.columns)
        return np.divide(base, own, out=np.full(len(own), np.nan), where=own > 0)

    return verdict(
        f"{of.begins}, until FedAvg's final accuracy",
        here,
        ratio,
        above=1,
        unit=f"(FedAvg's {of.what} over FedMeta's)",
        show=lambda x, digits=2: reached(np.where(np.asarray(x) > 0, x, np.inf), 1, digits),
        detail=f"FedAvg: {spread(base * of.scale)} {of.unit}, evaluated {how_often([here.run])}",
    )


def stable(here: Place) -> str:
    """Mean |change| of accuracy from round to round in the second half, less FedAvg's."""
    run, text = here.run, "FedMeta converges more stably than FedAvg"
    n = unrest(run, "fedavg").shape[1]
    if run.experiment.eval_every > 1 or n < 2:
        why = (
            f"evaluated {how_often([run])}, with {n} changes between evaluations in the second half"
        )
        return not_judged(f"{text}, {here.where}", why)
    base = unrest(run, "fedavg").mean(1)
    detail = (
        f"mean absolute change of accuracy from round to round in the second half ({n} changes), less "
        f"FedAvg's {spread(base)}"
    )
    return verdict(text, here, lambda m: unrest(run, m).mean(1) - base, below=0, detail=detail)


def enough(swept: Run, best: Mapping[str, Run], data: str) -> str:
    """Held to the same methods with an n-way head, and so judged whatever FedAvg does."""
    every, own = best[f"{data}-20"], best[f"{data}-own"]
    start = spread(unseen(own, "fedmeta-maml")[:, 0])
    return verdict(
        f"A k-way head is enough (no more than {LOSS} point lower)",
        Place(NAMES[data], own, [*filter(None, [thin(swept)])]),
        lambda m: final(own, m) - final(every, m),
        labels=COMPARED,
        above=-LOSS,
        detail=f"MAML's untrained start with a k-way head, adapted by one step: {start} %",
    )


def unrest(run: Run, label: str) -> np.ndarray:
    """|Change| of accuracy from one evaluation to the next, second half, in points: (seeds, R)."""
    return np.abs(late_changes(unseen(run, label)))


def adaptation_helps(runs: Mapping[str, Run]) -> tuple[bool, str]:
    best = chosen(runs["mnist-20"])
    gain = float((final(best, "fedmeta-maml") - final(best, "fedavg")).mean())
    return gain > 0, f"{gain:+.2f} points"


CHECKS = {"FedMeta (MAML) is above FedAvg on unseen clients of MNIST": adaptation_helps}
