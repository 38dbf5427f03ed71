"""All personalised methods on the same clients and batches, with rates that validation clients choose."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedref import plots
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from fedref.models.numerics import Array
from fedref.rounds.evaluation import client_mean, sample_mean
from fedref.sampling import stream
from reproduce.claims import UNDECIDED, judge_difference
from reproduce.measures import at_best, describe_choice, final, merge_runs, rename_methods, total
from reproduce.pictures import draw_dots
from reproduce.tables import Number, markdown, show_pictures, spread, write_numbers

NAMES = {"digits": "digits", "synthetic": "Synthetic(1, 1)", "mnist": "MNIST, power law"}
QUICK: dict[str, Any] = {
    f"{data}-{rates}": {f"sweep.{rate}": [0.1] for rate in rates.split("-")}
    for data in NAMES
    for rates in ("lr", "lr-alpha", "alpha-beta")  # the files' names say what is swept
} | {"seeds": [0], "rounds": 2, "eval-every": 2, "clients-every": 2}

#: How a client comes by its model → the methods that do it so.
KINDS = {
    "the same for all": {"fedavg": "FedAvg", "scaffold": "SCAFFOLD", "feddyn": "FedDyn"},
    "one step from FedAvg's": {
        "fedavg-update": "FedAvg with update",
        "fedavg-meta": "FedAvg(Meta)",
    },
    "one step from a meta-learned start": {
        "per-fedavg": "Per-FedAvg, exact",
        "per-fedavg-fo": "Per-FedAvg, first order",
        "per-fedavg-hf": "Per-FedAvg, Hessian free",
        "fedmeta-maml": "FedMeta (MAML)",
        "fedmeta-fomaml": "FedMeta (first order)",
        "fedmeta-sgd": "FedMeta (Meta-SGD)",
        "fedmeta-epochs": "FedMeta (MAML, epochs)",
        "fedmaml": "FedMAML",
    },
    "solved for, near the server's": {"pfedme": "pFedMe"},
    "its own, kept": {
        "apfl": "APFL (Ni et al.)",
        "apfl-deng": "APFL (Deng et al.)",
        "alone": "own model alone",
    },
}
METHODS = {label: name for methods in KINDS.values() for label, name in methods.items()}
KIND_OF = {label: kind for kind, methods in KINDS.items() for label in methods}
#: One of each kind, for the picture over operations.
DRAWN = ("fedavg", "fedavg-update", "per-fedavg", "fedmeta-maml", "apfl-deng", "pfedme")
#: What chooses, and what is reported: columns that `score_halves` adds.
CHOICE, RESULT = "validation_accuracy", "test_clients_accuracy"
#: Digits after the point of what a training costs, mean over seeds.
COSTS = {"MB": 1, "gradients": 0, "HVPs": 0, "10⁹ operations": 2}
#: Differences, in parentheses where they are within their margin.
COMPARED = ("above FedAvg", "below the best")


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    whole = {data: score_halves(run) for data, run in merge_files(runs).items()}
    best = {data: at_best(run, list(METHODS), CHOICE) for data, run in whole.items()}
    found = {data: {m: measure(run, m) for m in METHODS} for data, run in best.items()}
    numbers = [
        Number((NAMES[data], METHODS[m], quantity), values)
        for data, methods in found.items()
        for m, quantities in methods.items()
        for quantity, values in quantities.items()
    ]
    write_numbers(out / "numbers.csv", ("data", "method", "quantity"), numbers)
    dots = {
        NAMES[data]: {METHODS[m]: (KIND_OF[m], final(run, m, RESULT)) for m in METHODS}
        for data, run in best.items()
    }
    draw_dots(out / "accuracy.png", dots, "accuracy in %", METHODS["fedavg"])
    return {
        "tables": "\n\n".join(
            table_of(d, best[d], whole[d], found[d], commonest_label(best[d], data_dir))
            for d in best
        ),
        "took_part": took_part_table(best),
        "operations": draw_operations(best, out),
    }


def merge_files(runs: Mapping[str, Run]) -> dict[str, Run]:
    """Return one run for each data set: its three files differ in methods and sweeps alone."""
    files = {data: [run for s, run in runs.items() if s.startswith(f"{data}-")] for data in NAMES}
    return {data: merge_runs(own) for data, own in files.items() if own}


# ---- who chooses and who is tested ---------------------------------------------------------------


def halves(clients: int) -> tuple[Array, Array]:
    """Return (validation clients, test clients): drawn once, the same for every method and seed."""
    order = stream(0, "validation clients").permutation(clients)
    return np.sort(order[: clients // 2]), np.sort(order[clients // 2 :])


def score_halves(run: Run) -> Run:
    """Return the run with the last accuracies of either half of the clients in its last rows."""
    records = []
    for record in run.records:
        accuracy, n, row = record.scores[-1].accuracy, record.scores[-1].n_test, {}
        for name, half in zip((CHOICE, RESULT), halves(len(n))):
            row[name] = sample_mean(accuracy[half], n[half])
            row[f"{name}_mean"] = client_mean(accuracy[half], n[half])
        records.append(record._replace(rows=[*record.rows[:-1], record.rows[-1] | row]))
    return run._replace(records=records)


def commonest_label(run: Run, data_dir: Path | None) -> float:
    """Return the accuracy in % of each test client's own most common training label."""
    made = load_experiment(run.experiment, Loader(data_dir)).federation
    y, (_, tested) = made.source.y, halves(made.clients)
    labels = {k: np.bincount(y[made.train.rows_of(k)]).argmax() for k in tested}
    return 100 * float(
        np.mean(np.concatenate([y[made.test.rows_of(k)] == labels[k] for k in tested]))
    )


# ---- the table -----------------------------------------------------------------------------------


def measure(best: Run, label: str) -> dict[str, Array]:
    """Return what the table has of one method at the rates chosen for it: quantity → (seeds,)."""
    ours = final(best, label, RESULT)
    top = max((final(best, m, RESULT) for m in METHODS), key=lambda values: float(values.mean()))
    return {
        "test clients": ours,
        "above FedAvg": ours - final(best, "fedavg", RESULT),
        "below the best": top - ours,
        "mean of test clients": final(best, label, f"{RESULT}_mean"),
        "validation clients": final(best, label, CHOICE),
        "all, at the start": 100 * best.curve(label)[1][:, 0],
        "all, gained in training": 100 * np.diff(best.curve(label)[1][:, [0, -1]])[:, 0],
        "MB": total(best, label, "bytes_down", "bytes_up") / 1e6,
        "gradients": total(best, label, "grads"),
        "HVPs": total(best, label, "hvps"),
        "10⁹ operations": total(best, label, "flops") / 1e9,
    }


def table_of(
    data: str, best: Run, whole: Run, found: Mapping[str, Mapping[str, Array]], commonest: float
) -> str:
    """Return who is tested on how many rows, and the table of one data set."""
    n = best.records[0].scores[-1].n_test
    chosen, tested = halves(len(n))
    tests = int(n[tested].sum())
    rows = [["method", "a client's model", *found["fedavg"], "chosen"]]
    for m, quantities in found.items():
        cells = []
        for name, values in quantities.items():
            text = spread(values) if name not in COSTS else f"{values.mean():,.{COSTS[name]}f}"
            within = name in COMPARED and judge_difference(values, tests) == UNDECIDED
            cells.append(f"({text})" if within else text)
        rows.append([METHODS[m], KIND_OF[m], *cells, describe_choice(whole, m, CHOICE)])
    who = f"{len(chosen)} validation and {len(tested)} test clients, these with {tests:,} test rows"
    head = f"**{NAMES[data]}**: {who}; one row is {100 / tests:.2f} points; "
    head += f"always saying a client's own most common label: {commonest:.2f} %."
    return f"{head}\n\n{markdown(rows, left=2, last=True)}"


def took_part_table(best: Mapping[str, Run]) -> str:
    """Return what an own model that is kept is worth to the test clients that have one, and to others."""
    rows = [["data", "method", "test clients that took part", "they, above FedAvg", "the others"]]
    for data, run in best.items():
        n = run.records[0].scores[-1].n_test
        _, tested = halves(len(n))
        for label in KINDS["its own, kept"]:
            found = []
            for own, bar in zip(run.records_of(label), run.records_of("fedavg")):
                gain = 100 * (own.scores[-1].accuracy - bar.scores[-1].accuracy)
                there = np.isin(np.arange(len(n)), [*own.state.clients])
                parts = tested[there[tested]], tested[~there[tested]]
                found.append(
                    [100 * there[tested].mean(), *(sample_mean(gain[k], n[k]) for k in parts)]
                )
            share, *gains = np.transpose(found)
            cells = [f"{share.mean():.0f} %", *(spread(gain) for gain in gains)]
            rows.append([NAMES[data], METHODS[label], *cells])
    return markdown(rows, left=2)


# ---- pictures ------------------------------------------------------------------------------------


def draw_operations(best: Mapping[str, Run], out: Path) -> str:
    """Draw the accuracy of all clients over the operations of training, without its start."""
    shown = {}
    for data, run in best.items():
        drawn = rename_methods(run, {m: METHODS[m] for m in DRAWN})
        drawn = drawn._replace(records=[r._replace(rows=r.rows[1:]) for r in drawn.records])
        file = f"{data}-operations.png"
        plots.curves(drawn, out / file, "accuracy", against="flops", title=NAMES[data])
        shown[file] = f"{NAMES[data]}: accuracy of all clients over operations"
    return show_pictures(shown)


def adaptation_helps(runs: Mapping[str, Run]) -> tuple[bool, str]:
    run = score_halves(merge_files(runs)["mnist"])
    best = at_best(run, ["fedavg", "fedavg-meta"], CHOICE)
    gain = float((final(best, "fedavg-meta", RESULT) - final(best, "fedavg", RESULT)).mean())
    return gain > 0, f"{gain:+.2f} points"


CHECKS = {"a step of adaptation lifts FedAvg on MNIST's test clients": adaptation_helps}
