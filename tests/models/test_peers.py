"""The same losses in torch, at the sizes of the papers too: value, gradient, HVP by autodiff.

Skipped where it is not installed: pip install 'fedref[peers]'.
"""

import warnings

import numpy as np
import pytest

from fedref import checks
from fedref.judge import make_case
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.models.batch import Batch

TOLERANCE = 1e-10

MODELS = {
    "binary": BinaryLogistic(11, l2=0.1),
    "binary, no bias": BinaryLogistic(11, bias=False),
    "logistic": Logistic(11, 5, l2=0.1),
    "hinge": LinearSVM(11, l2=0.1),
    "squared hinge": LinearSVM(11, l2=0.1, squared=True),
    "mlp elu": MLP(11, (8, 7), 5, l2=0.1),
    "mlp relu": MLP(11, (8, 7), 5, "relu"),
    "mlp tanh": MLP(11, (8, 7), 5, "tanh"),
    "cnn": CNN((16, 17, 3), (4, 5), 5, 8, 5, l2=0.1),
    "cnn elu": CNN((13, 12), (4, 5), 3, 8, 5, "elu"),
    "cnn tanh mean": CNN((13, 12, 2), (4, 5), 3, 8, 5, "tanh", "mean"),
    "cnn of the seed": CNN(),
    "lstm": LSTM(11, 5, 9, 3, (8,), l2=0.1),
    "lstm of two layers": LSTM(11, 5, 9, 3, (8, 7)),
    "lstm mean": LSTM(11, 5, 9, 3, (8,), "mean"),
    "lstm of the paper": LSTM(81, 80, 80),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_a_model_is_torch_s(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, not ours
        pytest.importorskip("torch", reason="an independent opinion: pip install 'fedref[peers]'")
    from fedref.conformance.backends.torch import BACKEND as backend

    model, rng = MODELS[name], np.random.default_rng(0)
    B = 2 if model.d > 1e5 else 7
    w, v = rng.uniform(-1, 1, (2, model.d)) / (30 if model.d > 1e5 else 1)
    s = rng.uniform(0.5, 2, B)
    X = rng.standard_normal((B, model.features))
    if model.inputs == "codes":
        X = rng.integers(0, model.vocabulary, (B, model.length))
    D = Batch(X, rng.choice(model.labels, B), s)
    given = {"w": w, "D": D._asdict()}
    value = backend.answer_case(make_case("loss", model, given))["f"]
    assert abs(model.loss(w, D) - value) <= TOLERANCE * abs(value)
    grad = backend.answer_case(make_case("grad", model, given))["g"]
    assert checks.relative_error(model.grad(w, D), grad) <= TOLERANCE
    hvp = backend.answer_case(make_case("hvp", model, given | {"v": v}))["Hv"]
    assert checks.relative_error(model.hvp(w, v, D), hvp) <= TOLERANCE
