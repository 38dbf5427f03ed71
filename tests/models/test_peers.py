"""Models of the papers' sizes in torch, by autodiff: the specification's dual numbers reach small ones only.

Skipped where torch is not installed: pip install 'fedref[peers]'. Small models: tests/conformance.
"""

import warnings

import numpy as np
import pytest

from fedref import checks
from fedref.judge import make_case
from fedref.models import CNN, LSTM, MLP, Logistic
from fedref.models.batch import Batch

TOLERANCE = 1e-10


@pytest.mark.parametrize("model", [Logistic(784, 10), MLP(784), CNN(), LSTM(81, 80, 80)], ids=str)
@pytest.mark.filterwarnings("ignore")
def test_a_model_is_torch_s(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, not ours
        pytest.importorskip("torch", reason="an independent opinion: pip install 'fedref[peers]'")
    from fedref.conformance.backends.torch import BACKEND as backend

    rng = np.random.default_rng(0)
    w, v = rng.uniform(-1, 1, (2, model.d)) / 30
    X = rng.standard_normal((2, model.features))
    if model.inputs == "codes":
        X = rng.integers(0, model.vocabulary, X.shape)
    D = Batch(X, rng.choice(model.labels, 2), rng.uniform(0.5, 2, 2))
    for call, output, got, more in (
        ("loss", "f", model.loss(w, D), {}),
        ("grad", "g", model.grad(w, D), {}),
        ("hvp", "Hv", model.hvp(w, v, D), {"v": v}),
    ):
        expected = backend.answer_case(make_case(call, model, {"w": w, "D": D._asdict(), **more}))
        assert checks.relative_error(got, expected[output]) <= TOLERANCE
