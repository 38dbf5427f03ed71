"""The LSTM's memory, its codes and its start; its values: `fedref check`, its parts: test_properties.py."""

import math

import numpy as np
import pytest
from helpers import make_batch, same

from fedref.models import LSTM, lstm


def test_what_is_kept_is_bounded():
    """`rows` samples keep at most CACHE_BYTES: counted in a real trace."""
    model = LSTM(81, 80, 80, hidden=(32, 16))
    D = make_batch(model, np.random.default_rng(0), 3)
    w = model.init(np.random.default_rng(0))
    trace = model.forward(w, D.X)
    _, adjoints = model.backward(w, trace, np.ones((3, 80)))
    arrays = {id(x): x for part in (*trace.layers, *adjoints) for x in part}
    bases = {id(x if x.base is None else x.base): x for x in arrays.values()}
    kept = sum((x if x.base is None else x.base).nbytes for x in bases.values()) / 3
    assert 0.9 <= kept * model.rows / lstm.CACHE_BYTES <= 1.1
    assert LSTM(10**4, 2, 10**4, hidden=(10**4,)).rows == 1


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_codes_are_codes_in_any_whole_type(dtype):
    model, rng = LSTM(5, 3, 6, 2, (4,)), np.random.default_rng(0)
    w, D = rng.normal(size=model.d), make_batch(model, rng, 5, weights=True)
    assert same(model.grad(w, D._replace(X=D.X.astype(dtype))), model.grad(w, D))


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("fan-in", (1, 1 / math.sqrt(40), 1 / math.sqrt(32))),
        ("glorot", (math.sqrt(6 / 9), math.sqrt(6 / 72), math.sqrt(6 / 42))),
        ("he", (math.sqrt(2), math.sqrt(2 / 40), math.sqrt(2 / 32))),
    ],
)
def test_start_by_its_bounds_or_deviations_and_the_forget_gate_at_1(name, bounds):
    model = LSTM(50, 10, 4, 8, (32,), initialisation=name)
    E, W, b, D, _ = model.unpack(model.init(np.random.default_rng(0)))
    for weight, bound in zip((E, W, D), bounds):
        size = weight.std() if name == "he" else np.abs(weight).max()
        assert size == pytest.approx(bound, rel=0.08)
        assert name == "he" or size <= bound
    assert (b[32:64] == 1).all()
    assert (np.abs(np.delete(b, np.arange(32, 64))) <= bounds[1] * (name == "fan-in")).all()
