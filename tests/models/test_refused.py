"""What a model refuses: points and batches that do not fit. Options: tests/test_schema.py."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import MODELS, NUMERIC, make_point

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


#: What is said of a point or batch → which models it is said of, and what is changed in (w, X, y, s).
WRONG = {
    r"w has shape \(\d+,\), expected \(..., d\) with d = ": (
        MODELS, lambda w, X, y, s: (w[:-1], X, y, s)),
    r"w has shape \(\), expected": (MODELS, lambda w, X, y, s: (w[0], X, y, s)),
    r"X has shape \(7, \d+\), expected \(..., B, ": (
        MODELS, lambda w, X, y, s: (w, X[:, 1:], y, s)),
    r"X has shape \(\d+,\)": (MODELS, lambda w, X, y, s: (w, X[0], y[0], None)),
    r"y has shape \(6,\), expected \(7,\): one label a row": (
        MODELS, lambda w, X, y, s: (w, X, y[:-1], None)),
    r"y has shape \(7,\), expected \(7, 7\)": (  # would be broadcast over seven clients
        MODELS, lambda w, X, y, s: (np.stack([w] * 7), np.stack([X] * 7), y, None)),
    r"s has shape \(6,\), expected \(7,\): one weight a row": (
        MODELS, lambda w, X, y, s: (w, X, y, s[:-1])),
    r"s has the weight -1.0, expected weights ≥ 0": (
        MODELS, lambda w, X, y, s: (w, X, y, np.where(np.arange(7) == 2, -1.0, s))),
    r"s has the weight nan, expected weights ≥ 0": (
        MODELS, lambda w, X, y, s: (w, X, y, np.where(np.arange(7) == 2, np.nan, s))),
    r"not all NumPy arrays": (MODELS, lambda w, X, y, s: (w, X, y.tolist(), s)),
    r"labels run from -\d to .* \(\w+\)$": (
        MODELS, lambda w, X, y, s: (w, X, np.append(y[1:], -2), s)),
    r"labels run from .* to 3.*, expected (integers from 0 to|one of \(-1, 1\)) ?\d* \(\w+\)$": (
        MODELS, lambda w, X, y, s: (w, X, np.append(y[1:], 3), s)),
    r"labels run from .*, expected .* \(\w+\)$": (
        MODELS, lambda w, X, y, s: (w, X, np.append(y[1:], 0.5), s)),
    r"labels run from nan": (MODELS, lambda w, X, y, s: (w, X, np.append(y[1:], np.nan), s)),
    r"labels run from 0 to 1, expected one of \(-1, 1\) \(LinearSVM\)": (
        ("svm", "hinge"), lambda w, X, y, s: (w, X, (y + 1) // 2, s)),
    r"X holds float64, expected codes": (("lstm",), lambda w, X, y, s: (w, X * 1.0, y, s)),
    r"codes run from 4 to 4, expected 0 to 2, or 3 for padding": (
        ("lstm",), lambda w, X, y, s: (w, 0 * X + 4, y, s)),
    r"codes run from -2 to ": (
        ("lstm",), lambda w, X, y, s: (w, np.where(np.arange(3) == 1, -2, X.astype(int)), y, s)),
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_fit_is_refused(message):
    names, change = WRONG[message]
    for name in names:
        model = {**NUMERIC, **MODELS}[name]
        w, _, D = make_point(model, weights=True)
        w, *D = change(w, *D)
        calls = model.loss, model.grad, model.sample_losses, lambda w, D: model.hvp(w, w, D)  # noqa: B023
        for call in calls:
            with pytest.raises(ValueError, match=message):
                call(w, Batch(*D))


def test_a_direction_or_a_point_of_another_length_is_refused():
    for model in MODELS.values():
        w, _, D = make_point(model)
        with pytest.raises(ValueError, match="w has shape"):
            model.hvp(w, np.zeros(model.d + 1), D)
        with pytest.raises(ValueError, match=rf"expected \(..., {model.d}\)"):
            model.unpack(w[1:])
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
    trusting, unfit = base.without_validation(model), fits._replace(y=np.array([0, 3]))
    for name, more in (("grad", (w,)), ("hvp", (w, w))):
        validated, bare = getattr(model, name), getattr(trusting, name)
        assert np.isfinite(bare(*more, unfit)).all()
        np.testing.assert_array_equal(bare(*more, fits), validated(*more, fits))
