"""What APFL's Figure 1 reports beside accuracies: bytes, and which claims hold."""

from pathlib import Path

import numpy as np
import pytest
from reproducing import small

from fedref import run
from fedref.experiments.results import Run
from reproduce import catalogue
from reproduce.measures import bytes_sent
from reproduce.writing import fill

FIGURE_1 = catalogue.find("apfl-figure-1").module


def times_fedavg(found: Run, label: str) -> np.ndarray:
    return bytes_sent(found, label) / bytes_sent(found, "fedavg")


def test_bytes_of_importance_that_is_sent_always_and_only_when_renewed() -> None:
    """Everybody takes part, F is new after rounds 2, 3 and 4 of 6: d down and up, and F beside it."""
    algorithms = {"fedavg": {"lr": 0.1}, "apfl-paper": {"algorithm": "apfl", "z": 2}}
    found = run(small(algorithms, clients=4, seeds=[0, 1]), rounds=6)
    assert [row["renewed"] for row in found.records[1].rows] == [0, 1, 1, 1, 0, 0, 0]
    always = times_fedavg(found, "apfl-paper")
    kept = FIGURE_1.if_kept(found, "apfl-paper")
    assert always == pytest.approx(np.full(2, (6 + 4 + 6 + 3) / 12))
    assert kept == pytest.approx(np.full(2, (6 + 3 + 6 + 3) / 12))


def test_bytes_if_kept_are_those_of_clients_that_keep_it() -> None:
    """The report's replay against the algorithm that does so, two of six clients a round."""
    kept = {"algorithm": "fedref.algorithms.apfl_cached:APFLCachedImportance", "z": 2}
    algorithms = {
        "fedavg": {"lr": 0.1},
        "apfl-paper": {"algorithm": "apfl", "z": 2},
        "kept": kept,
    }
    found = run(small(algorithms, users=6, seeds=[0, 1]), rounds=12)
    replayed = FIGURE_1.if_kept(found, "apfl-paper")
    assert times_fedavg(found, "kept") == pytest.approx(replayed)
    assert (replayed < times_fedavg(found, "apfl-paper")).all()


def test_what_has_not_ended_is_named_and_judges_no_claim(tmp_path: Path) -> None:
    """FedMeta is under way and FedProx was not begun: nothing is said of them, but that."""
    cifar10 = catalogue.find("apfl-cifar10")
    algorithms = {
        "fedavg": {"lr": 0.1},
        "apfl-paper": {"algorithm": "apfl", "z": 2},
        "centralised": {"lr": 0.1},
        "fedmeta-maml": {},
    }
    found = run(small(algorithms), rounds=4)
    records = [*found.records[:3], found.records[3]._replace(status="running")]
    parts = cifar10.module.report({"cifar10": found._replace(records=records)}, tmp_path, None)
    text = fill(cifar10, parts)
    without = (
        "FedProx, FedCurv, FedMeta (MAML), FedMeta, one episode a round, APFL, continuous init"
    )
    assert f"Not run to the end: {without}." in text
    lines = {line.split("*")[1]: line for line in text.splitlines() if line.startswith("- ")}
    assert {place.rpartition(", CIFAR-10, grey")[2] for place in lines} == {""}
    judged = {place.split(", ")[0] for place, line in lines.items() if "(one seed" in line}
    assert judged == {
        "APFL comes far above IID training in one place",
        "APFL needs hardly any extra communication",
        "Most clients are more accurate with APFL than with FedAvg",
        "More clients gain accuracy by APFL than lose it",
        "Most clients have a lower test loss with APFL than with FedAvg",
        "APFL is more accurate on test data at the end than FedAvg",
        "APFL's shared parameters alone are better than FedAvg's model",
        "APFL renews the importance once",
        "APFL lowers the training loss further than FedAvg",
        "APFL reaches FedAvg's final training loss in fewer rounds",
        "APFL converges more smoothly than FedAvg",
    }
    others = [line for place, line in lines.items() if place.split(", ")[0] not in judged]
    assert len(others) == 11
    assert all(
        line.startswith("- Not judged: ") and "not run to the end: " in line for line in others
    )
    rows = {line.split(" | ")[1] for line in text.splitlines() if line.startswith("| CIFAR-10")}
    assert rows == {"FedAvg", "APFL, literal init", "IID, centralised"}


def test_figure_3_on_cifar_is_judged_for_each_number_of_epochs_that_was_run(tmp_path: Path) -> None:
    report = catalogue.find("apfl-cifar10").module
    algorithms = {
        "fedavg": {"lr": 0.1},
        "fedprox": {"lr": 0.1},
        "apfl-paper": {"algorithm": "apfl", "z": 2},
    }
    five, one = (run(small(algorithms, steps=None, epochs=E), rounds=3) for E in (5, 1))
    text = "\n".join(report.epochs({"cifar10": five, "cifar10-1": one}, tmp_path).values())
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| E = ")]
    assert [row[0] for row in rows] == ["| E = 1"] * 3 + ["| E = 5"] * 3
    shown = [float(row[2].rstrip(" |")) for row in rows]
    averages = [100 * found.curve(m)[1].mean() for found in (one, five) for m in algorithms]
    assert shown == pytest.approx(averages, abs=0.005)
    for E, found in zip(("E = 1", "E = 5"), (averages[:3], averages[3:])):
        verdict = next(line for line in text.splitlines() if f"highest accuracy at {E}," in line)
        assert verdict.startswith("- Holds") == (found[2] > max(found[:2]))
        assert f"{found[2] - max(found[:2]):.2f}".replace("-", "−") in verdict
