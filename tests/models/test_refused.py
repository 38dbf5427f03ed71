"""What a model refuses: points and batches that do not fit. Options: tests/test_schema.py."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import MODELS, make_point

from fedref.boundary.errors import ConfigError
from fedref.models import CNN, LSTM, BinaryLogistic, LinearSVM, Logistic, base, linear_operator
from fedref.models.batch import Batch


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CNN((15, 16)), r"image \(15, 16\) is too small for 2 layers .* 16×16 or more"),
        (lambda: CNN((3, 9), (4,), 3), r"1 layers .* 4×4 or more"),
        (lambda: CNN((32,)), r"image \(32,\): expected \(H, W\) or \(H, W, c\)"),
        (lambda: LSTM(5, 3, 6, hidden=()), r"LSTM hidden is \(\), expected a width for each layer"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def nth(value):
    """The array with this value in place of its third number."""
    return lambda x: np.where(np.arange(len(x)) == 2, value, x)


def last(value):
    """The labels with this one behind them, without the first."""
    return lambda y: np.append(y[1:], value)


KNOWN = r", expected (integers from 0 to|one of \(-1, 1\)) ?\d* \(\w+\)$"
#: What is said of a point or batch → how its w, X, y, s are changed.
WRONG = {
    r"w has shape \(\d+,\), expected \(..., d\) with d = ": {"w": lambda w: w[:-1]},
    r"w has shape \(\), expected": {"w": lambda w: w[0]},
    r"X has shape \(7, \d+\), expected \(..., B, ": {"X": lambda X: X[:, 1:]},
    r"X has shape \(\d+,\)": {"X": lambda X: X[0], "y": lambda y: y[0], "s": lambda s: None},
    r"y has shape \(6,\), expected \(7,\): one label a row": {"y": lambda y: y[:-1]},
    r"y has shape \(7,\), expected \(7, 7\)": {  # would be broadcast over seven clients
        "w": lambda w: np.stack([w] * 7), "X": lambda X: np.stack([X] * 7), "s": lambda s: None},
    r"s has shape \(6,\), expected \(7,\): one weight a row": {"s": lambda s: s[:-1]},
    r"s has the weight -1.0, expected weights ≥ 0": {"s": nth(-1.0)},
    r"s has the weight nan, expected weights ≥ 0": {"s": nth(np.nan)},
    r"not all NumPy arrays": {"y": lambda y: y.tolist()},
    r"labels run from -\d to .* \(\w+\)$": {"y": last(-2)},
    rf"labels run from .* to 3.*{KNOWN}": {"y": last(3)},
    r"labels run from .*, expected .* \(\w+\)$": {"y": last(0.5)},
    r"labels run from nan": {"y": last(np.nan)},
}  # fmt: skip
OF_LSTM = {
    r"X holds float64, expected codes": {"X": lambda X: X * 1.0},
    r"codes run from 4 to 4, expected 0 to 2, or 3 for padding": {"X": lambda X: 0 * X + 4},
    r"codes run from -2 to ": {"X": lambda X: np.where(np.arange(3) == 1, -2, X.astype(int))},
}
OF_SVM = r"labels run from 0 to 1, expected one of \(-1, 1\) \(LinearSVM\)"
ROWS = [
    *((model, *row) for row in WRONG.items() for model in MODELS.values()),
    *((MODELS["lstm"], *row) for row in OF_LSTM.items()),
    (MODELS["svm"], OF_SVM, {"y": lambda y: (y + 1) // 2}),
]


@pytest.mark.parametrize(
    ("model", "message", "change"), ROWS, ids=lambda x: "" if isinstance(x, dict) else str(x)[:40]
)
def test_what_does_not_fit_is_refused(model, message, change):
    w, _, D = make_point(model, weights=True)
    given = {"w": w, **D._asdict()}
    w, *D = (change[name](x) if name in change else x for name, x in given.items())
    for call in (model.loss, model.grad, model.sample_losses, lambda w, D: model.hvp(w, w, D)):
        with pytest.raises(ValueError, match=message):
            call(w, Batch(*D))


def test_a_direction_or_a_point_of_another_length_is_refused():
    for model in MODELS.values():
        w, _, D = make_point(model)
        with pytest.raises(ValueError, match="w has shape"):
            model.hvp(w, np.zeros(model.d + 1), D)
        for unfit in (w[1:], w[0]):
            with pytest.raises(ValueError, match=rf"w has shape .*, expected \(..., {model.d}\)"):
                model.unpack(unfit)
        with pytest.raises(ValueError, match="one Hessian at a time"):
            linear_operator(model, np.stack([w, w]), D)
        if model.inputs == "codes":
            with pytest.raises(ValueError, match="codes run from"):
                model.logits(w, 0 * D.X + 7)


def test_labels_of_any_type_are_taken_if_they_are_known():
    for model, y in (
        (Logistic(3, 2), np.array([], int)), (Logistic(3, 2), np.array([0.0, 1.0])),
        (BinaryLogistic(3), np.array([True, False])),
        (LinearSVM(3), np.array([[-1, 1], [1, 1]], np.int8)),
        (SimpleNamespace(labels=(1, 2, 3)), np.array([1, 2, 3])),
    ):  # fmt: skip
        base.check_labels(model, y)


def test_a_model_without_validation_is_the_same_without_its_checks():
    model = Logistic(2, 3)
    w, fits = np.ones(model.d), Batch(np.eye(2), np.array([0, 2]))
    trusting, unfit = base.without_validation(model), fits._replace(s=np.array([-1.0, 3.0]))
    for name, more in (("grad", (w,)), ("hvp", (w, w))):
        validated, bare = getattr(model, name), getattr(trusting, name)
        assert np.isfinite(bare(*more, unfit)).all()
        np.testing.assert_array_equal(bare(*more, fits), validated(*more, fits))
