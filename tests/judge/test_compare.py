"""The comparer: how far an answer moves when its inputs do, on either side of where it is asked."""

import numpy as np
import pytest

from fedref.judge.compare import KINK, STEP, measure_condition


@pytest.mark.parametrize(
    ("f", "condition"),
    [
        (lambda w: w, 1),
        (lambda w: w**5, 5),
        (lambda w: w**0.2, 1),  # never below 1
        (lambda w: 1 + (w - 1) * np.where(w > 1, 9, 1), 9),  # the steeper side counts
        (lambda w: 1 + (w - 1) * np.where(w < 1, 9, 1), 9),
        (lambda w: 1.0 + (w > 1 + STEP / 2), KINK),
        (lambda w: 1.0 + (w < 1 - STEP / 2), KINK),
        (lambda w: np.where(w > 1, np.nan, 1.0), KINK),
        (lambda w: np.where(w < 1, np.nan, 1.0), KINK),
        (lambda w: np.ones(1 + int(w[0] > 1)), KINK),  # another shape there
        (lambda w: np.ones(1 + int(w[0] < 1)), KINK),
        (lambda w: None if w[0] > 1 else w, KINK),  # no such output there
        (lambda w: None if w[0] < 1 else w, KINK),
    ],
)
def test_a_condition_is_measured_on_both_sides(f, condition):
    def outputs(inputs):
        y = f(inputs["w"])
        return {} if y is None else {"y": y}

    point = {"w": np.ones(1)}  # one entry, which is moved by STEP up and down
    measured = measure_condition(outputs, point, outputs(point))
    if condition < KINK:
        assert measured == pytest.approx(condition, rel=1e-3)
    else:
        assert not measured < KINK  # it may be NaN
