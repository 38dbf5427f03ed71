"""The comparison of personalised methods: who chooses, who is tested, and what is marked."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedref import run
from fedref.algorithms import ALGORITHMS
from fedref.experiments.config import Experiment
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from reproduce import catalogue
from reproduce.measures import at_best
from reproduce.writing import fill

REPORT = catalogue.find("personalised")
PERSONALISED = REPORT.module
CHOICE, RESULT = PERSONALISED.CHOICE, PERSONALISED.RESULT


def experiment(stem: str, **more: object) -> Experiment:
    settings = catalogue.quick_settings(PERSONALISED.QUICK, stem) if more else {}
    return catalogue.experiment_of(REPORT.folder / f"{stem}.toml", settings | more)


@pytest.fixture(scope="module")
def found() -> dict[str, Run]:
    """All methods on the digits: one round, three values of η."""
    tiny = {"rounds": 1, "clients-every": 1, "seeds": [0, 1]}
    lr = {"sweep.lr": [0.01, 0.1, 1.0]}
    rates = {"digits-lr": lr, "digits-lr-alpha": lr, "digits-alpha-beta": {}}
    return {stem: run(experiment(stem, **tiny, **more)) for stem, more in rates.items()}


def with_accuracies(found: Run, label: str, validation: list[float], test: list[float]) -> Run:
    """The same, with these accuracies of the two halves at this method's points, whatever the seed."""
    points = dict(zip((0.01, 0.1, 1.0), zip(validation, test)))
    records = []
    for unit, record in zip(found.units, found.records):
        if unit.label == label:
            last, accuracy = record.scores[-1], record.scores[-1].accuracy.copy()
            for clients, value in zip(PERSONALISED.halves(len(accuracy)), points[unit.point["lr"]]):
                accuracy[clients] = value
            record = record._replace(scores=[last._replace(accuracy=accuracy)])
        records.append(record)
    return found._replace(records=records)


@pytest.mark.parametrize("clients", [20, 30, 31, 1000])
def test_halves_are_drawn_once_and_share_no_client(clients: int) -> None:
    chosen, tested = PERSONALISED.halves(clients)
    assert sorted([*chosen, *tested]) == list(range(clients))
    assert len(chosen) == clients // 2
    assert np.array_equal(chosen, PERSONALISED.halves(clients)[0])
    assert chosen.tolist() != list(range(clients // 2))


def test_differences_within_their_margin_are_marked(found: dict[str, Run], tmp_path: Path) -> None:
    run = with_accuracies(found["digits-lr"], "fedavg", [0.9, 0.1, 0.1], [0.5] * 3)
    run = with_accuracies(run, "scaffold", [0.1, 0.9, 0.1], [0.9] * 3)
    run = with_accuracies(run, "feddyn", [0.1, 0.1, 0.9], [0.51] * 3)
    parts = made({**found, "digits-lr": run}, tmp_path)
    lines = {line.split(" | ")[0]: line for line in parts["tables"].splitlines()}
    assert lines["| SCAFFOLD"].split(" | ")[2:5] == [
        "90.00 ± 0.00",
        "40.00 ± 0.00",
        "(0.00 ± 0.00)",
    ]
    assert lines["| FedDyn"].split(" | ")[2:4] == ["51.00 ± 0.00", "(1.00 ± 0.00)"]
    assert lines["| FedAvg"].endswith("| η = 0.01 (edge) |")
    assert lines["| SCAFFOLD"].endswith("| η = 0.1 |")


def made(found: dict[str, Run], out: Path) -> dict[str, str]:
    parts: dict[str, str] = PERSONALISED.report(found, out, None)
    return parts


def test_report(found: dict[str, Run], tmp_path: Path) -> None:
    parts = made(found, tmp_path)
    text = fill(REPORT, parts)
    assert "nan" not in text
    assert (
        "with 160 test rows; one row is 0.62 points; always saying a client's own most common "
        in text
    )
    run = PERSONALISED.merge_files(found)["digits"]
    federation = load_experiment(run.experiment, Loader(None)).federation
    right = []
    for k in PERSONALISED.halves(20)[1]:
        batches = [
            federation.batch(part.rows_of(k)) for part in (federation.train, federation.test)
        ]
        labels, counts = np.unique(batches[0].y, return_counts=True)
        right += (batches[1].y == labels[counts.argmax()]).tolist()
    assert f"most common label: {100 * np.mean(right):.2f} %." in text
    for name in PERSONALISED.METHODS.values():
        assert f"\n| {name} | " in parts["tables"]
    assert (tmp_path / "accuracy.png").stat().st_size > 5000
    assert (tmp_path / "digits-operations.png").stat().st_size > 5000
    (own, bar) = (run.records_of(m)[0] for m in ("alone", "fedavg"))
    assert own.rows[-1]["grads"] == 2 * bar.rows[-1]["grads"]


def test_those_who_took_part_and_the_others(found: dict[str, Run]) -> None:
    run = PERSONALISED.merge_files(found)["digits"]
    best = at_best(PERSONALISED.score_halves(run), list(PERSONALISED.METHODS), CHOICE)
    records = []
    _, tested = PERSONALISED.halves(20)
    for unit, record in zip(best.units, best.records):
        scores, state = record.scores[-1], record.state
        accuracy = np.full(20, 0.5)
        if unit.label in PERSONALISED.KINDS["its own, kept"]:
            state = state._replace(clients={int(k): None for k in tested[:4]})
            accuracy[tested[:4]] = 0.75
        records.append(record._replace(state=state, scores=[scores._replace(accuracy=accuracy)]))
    table = PERSONALISED.took_part_table({"digits": best._replace(records=records)})
    row = "| digits | own model alone | 40 % | 25.00 ± 0.00 | 0.00 ± 0.00 |"
    assert row in table.splitlines()


@pytest.mark.parametrize("data", list(PERSONALISED.NAMES))
def test_every_method_has_the_same_grid_and_work(data: str) -> None:
    files = [experiment(path.stem) for path in REPORT.files if path.stem.startswith(f"{data}-")]
    algorithms = {m: table for made in files for m, table in made.algorithms.items()}
    assert algorithms.keys() == PERSONALISED.METHODS.keys()
    assert {tuple(values) for made in files for values in made.sweep.values()} == {
        (0.001, 0.01, 0.1, 1.0)
    }
    assert {table["weighting"] for m, table in algorithms.items() if m != "fedmaml"} == {"uniform"}
    same = {"name": "same", "sweep": {}, "algorithms": {}}
    assert all(replace(made, **same) == replace(files[0], **same) for made in files)


def test_no_personalised_method_is_left_out() -> None:
    ours = {label for label, made in ALGORITHMS.items() if made.personalised}
    assert ours <= PERSONALISED.METHODS.keys()
    bars = PERSONALISED.KINDS["the same for all"]
    assert not any(ALGORITHMS[label].personalised for label in bars)


def test_the_check_of_a_quick_run_can_fail(found: dict[str, Run]) -> None:
    (check,) = PERSONALISED.CHECKS.values()
    runs = {stem.replace("digits", "mnist"): run for stem, run in found.items()}
    for accuracies, holds in (([0.0] * 3, True), ([1.0] * 3, False)):
        changed = with_accuracies(runs["mnist-lr"], "fedavg", accuracies, accuracies)
        assert check({**runs, "mnist-lr": changed})[0] == holds
