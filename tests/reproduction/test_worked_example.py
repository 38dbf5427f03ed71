"""FedMAML's report: whether adaptation helps is judged by accuracy, or by loss where that is still."""

import numpy as np

from fedref.reproduction import catalogue

MAML = catalogue.find("fedmaml-logistic").module


def line(s: int, gain: list[float], loss: list[float]) -> "MAML.Line":  # type: ignore[name-defined]
    """θ at s steps: what adaptation adds to accuracy and loss, a seed each."""
    none = np.zeros(2)
    before = np.array([80.0, 90.0])
    return MAML.Line(
        ("Data", "θ", str(s)),
        before + gain,
        none,
        before,
        0.5 + np.array(loss),
        none + 0.5,
        none,
        none,
    )


def test_every_s_is_judged_in_its_own_place() -> None:
    found = MAML.fits([line(1, [1.0, -1.0], [-0.1, -0.1]), line(3, [1.0, 2.0], [0.1, 0.1])])
    assert found[0].startswith("- Does not hold (every seed above 0): *A few gradient steps fit θ")
    assert "Data, s = 1*; accuracy after, less before 0.00 ± 1.00 points" in found[0]
    assert found[1].startswith("- Holds (every seed above 0)")
    assert "s = 3*" in found[1]


def test_loss_judges_where_no_accuracy_moves() -> None:
    found = MAML.fits([line(1, [0.0, 0.0], [-0.1, 0.1]), line(3, [0.0, 0.0], [-0.1, -0.2])])
    assert found[0].startswith("- Does not hold (every seed below 0)")
    assert found[1].startswith("- Holds (every seed below 0)")
    assert all("judged by loss: accuracy is the same before and after" in each for each in found)
