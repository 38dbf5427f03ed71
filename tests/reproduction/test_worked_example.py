"""FedMAML's report: it is judged by accuracy, and by loss."""

import numpy as np
import pytest
from reproducing import claims_in, judge_lines, small

from fedref import run
from reproduce import catalogue

MAML = catalogue.find("fedmaml-logistic").module
BETTER = "the adapted θ eases heterogeneity: "


def line(gain: list[float], loss: list[float], sent: float) -> dict[str, np.ndarray]:
    """θ at some steps: what adaptation adds to accuracy and loss, a seed each."""
    accuracy, before = np.array([80.0, 90.0]), 0.5 * np.ones(2)
    return {
        "accuracy": accuracy + gain,
        "accuracy before adaptation": accuracy,
        "loss": before + loss,
        "loss before adaptation": before,
        "MB sent": np.array([sent, sent]),
    }


@pytest.fixture(scope="module")
def lines() -> list[str]:
    found = {
        ("vehicle", "theta", s): line(gain, loss, 3.0)
        for s, gain, loss in ((1, [1.0, -1.0], [-0.1, 0.1]), (3, [2.0, 2.0], [-0.1, -0.2]))
    }
    found["vehicle", "fedavg", 0] = line([3.0, 3.0], [0.0, 0.05], 2.0)
    short = run(small({"fedavg": {"lr": 0.1}}), rounds=1)
    return judge_lines(
        claims_in("fedmaml-logistic"), MAML.places_of(found, {"vehicle": short})
    ).splitlines()


@pytest.mark.parametrize(
    ("start", "measured"),
    [
        (
            "- Undecided (above 0; 2 seeds, margin 2.00): *a few gradient steps fit θ to each client's "
            "data: accuracy, Vehicle, s = 1*",
            "test accuracy after, less before 0.00 ± 1.00 points",
        ),
        ("- Holds (above 0; 2 seeds, margin 0.00): *a few gradient steps", "s = 3*; test accuracy"),
        ("- Undecided (below 0; 2 seeds, margin 0.2000): *a few", "before 0.0000 ± 0.1000 nats."),
        (f"- Contradicted (above 0; 2 seeds, margin 0.00): *{BETTER}accuracy above", "s = 3*; final test"),
        (f"- Undecided (below 0; 2 seeds, margin 0.1500): *{BETTER}test loss in nats", "−0.0250 ± 0.0750"),
        ("- Contradicted (below 1; counted): *less communication (", "s = 1*; θ 1.50 times FedAvg"),
    ],
)  # fmt: skip
def test_it_is_judged_by_accuracy_and_by_loss(start: str, measured: str, lines: list[str]) -> None:
    assert any(x.startswith(start) and measured in x for x in lines), lines
    assert sum("less communication" in x for x in lines) == 1  # at the fewest steps
