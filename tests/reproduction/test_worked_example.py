"""FedMAML's report: whether adaptation helps is judged by loss."""

import numpy as np

from reproduce import catalogue
from reproduce.claims import judge

MAML = catalogue.find("fedmaml-logistic").module


def line(gain: list[float], loss: list[float]) -> dict[str, np.ndarray]:
    """θ at some steps: what adaptation adds to accuracy and loss, a seed each."""
    accuracy, before = np.array([80.0, 90.0]), 0.5 * np.ones(2)
    return {
        "accuracy": accuracy + gain,
        "accuracy before adaptation": accuracy,
        "loss": before + loss,
        "loss before adaptation": before,
    }


def test_adaptation_is_judged_by_loss() -> None:
    lines = {
        ("vehicle", "theta", s): line([1.0, -1.0], loss)
        for s, loss in ((1, [-0.1, 0.1]), (3, [-0.1, -0.2]))
    }
    lines["vehicle", "fedavg", 0] = line([0.0, 0.0], [0.0, 0.05])
    found = judge(MAML.CLAIMS, MAML.places_of(lines)).splitlines()
    assert found[0].startswith("- Does not hold (every seed below 0): *A few gradient steps fit θ")
    assert (
        "Vehicle, s = 1*; test loss after, less before 0.0000 ± 0.1000 nats; accuracy 0.00"
        in found[0]
    )
    assert found[1].startswith("- Holds (every seed below 0)")
    assert "s = 3*" in found[1]
    assert found[2].startswith("- Does not hold (every seed below 0): *So the adapted θ fits")
    assert "final test loss, less FedAvg's −0.0250 ± 0.0750 nats; accuracy 0.00" in found[2]
