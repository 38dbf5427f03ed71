"""The LSTM: padding, parts, start, and what it refuses."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import EXACT, make_batch, same

from fedref import checks, tree
from fedref.models import LSTM, lstm
from fedref.models.batch import Batch

SHAPES = {
    "one layer": LSTM(5, 3, 6, 2, (4,)),
    "two layers": LSTM(5, 3, 6, 2, (3, 5), l2=0.1),
    "mean": LSTM(5, 3, 6, 2, (4,), "mean", l2=0.1),
    "two layers, mean": LSTM(4, 2, 3, 1, (2, 1), "mean"),
    "one step": LSTM(3, 2, 1, 2, (2,)),
}
every_shape = pytest.mark.parametrize("model", SHAPES.values(), ids=SHAPES)


def point(model, seed=0, n=5, weights=True):
    rng = np.random.default_rng(seed)
    w, v = rng.normal(size=(2, model.d))
    return tree.freeze(w), tree.freeze(v), make_batch(model, rng, n, weights=weights)


# ---- padding --------------------------------------------------------------------------------------


@every_shape
def test_a_padded_text_is_the_short_text_wherever_it_is_padded(model):
    w, v, D = point(model, weights=False)
    T, padding = model.length, model.vocabulary
    long = replace(model, length=T + 3)
    for places in ([0, 1, 2], [T, T + 1, T + 2], [0, 1, T + 2]):
        X = np.full((len(D.y), T + 3), padding, np.uint8)
        X[:, [t for t in range(T + 3) if t not in places]] = D.X
        P = Batch(X, D.y)
        np.testing.assert_allclose(long.logits(w, X), model.logits(w, D.X), rtol=1e-13, atol=1e-15)
        assert checks.relative_error(long.grad(w, P), model.grad(w, D)) <= EXACT
        assert checks.relative_error(long.hvp(w, v, P), model.hvp(w, v, D)) <= EXACT


@every_shape
def test_a_row_of_padding_alone_reads_nothing(model):
    w, v, _ = point(model)
    X = np.full((2, model.length), model.vocabulary, np.uint8)
    D = Batch(X, np.array([0, 1]))
    *_, b = model.unpack(w)
    np.testing.assert_array_equal(model.logits(w, X), np.stack([b, b]))
    *inside, _ = model.unpack(model.grad(w, D) - model.l2 * w)
    assert all(np.abs(view).max() <= 1e-15 for view in inside)
    assert np.isfinite(model.hvp(w, v, D)).all()


# ---- parts and leading axes -------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 4, 8, 1000])
@pytest.mark.parametrize("leads", [((3,), (3,)), ((), (3,)), ((3,), ()), ((2, 1), (3,))])
def test_leading_axes_are_the_loop_to_the_bit_in_parts_too(monkeypatch, rows, leads):
    """Also as if memory allowed so many rows at once."""
    monkeypatch.setattr(LSTM, "rows", property(lambda self: rows))
    model = SHAPES["two layers"]
    rng = np.random.default_rng(4)
    w, v = rng.normal(size=(2, *leads[0], model.d))
    D = make_batch(model, rng, 4, leads[1], weights=True)
    lead = np.broadcast_shapes(*leads)
    r = rng.normal(size=(*lead, 4, model.classes))
    ws, vs = (np.broadcast_to(x, (*lead, model.d)) for x in (w, v))
    Ds = Batch(*(np.broadcast_to(x, (*lead, *x.shape[len(leads[1]) :])) for x in D))

    def compute(w, v, D, r):
        results = model.loss(w, D), model.grad(w, D), model.hvp(w, v, D), model.logits(w, D.X)
        return [np.asarray(x) for x in (*results, model.vjp(w, D.X, r))]

    got = compute(w, v, D, r)
    for i in np.ndindex(lead):
        alone = compute(ws[i].copy(), vs[i].copy(), Batch(*(x[i].copy() for x in Ds)), r[i])
        assert all(same(np.asarray(x[i]), one) for x, one in zip(got, alone))


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
    model = SHAPES["one layer"]
    w, _, D = point(model)
    assert same(model.grad(w, D._replace(X=D.X.astype(dtype))), model.grad(w, D))


# ---- start and layout -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("fan-in", (1, 1 / math.sqrt(40), 1 / math.sqrt(32))),
        ("glorot", (math.sqrt(6 / 9), math.sqrt(6 / 72), math.sqrt(6 / 42))),
    ],
)
def test_start_by_its_bounds_and_the_forget_gate_at_1(name, bounds):
    model = LSTM(50, 10, 4, 8, (32,), initialisation=name)
    E, W, b, D, _ = model.unpack(model.init(np.random.default_rng(0)))
    for weight, bound in zip((E, W, D), bounds):
        assert 0.95 * bound < np.abs(weight).max() <= bound
    assert (b[32:64] == 1).all()
    assert (np.abs(np.delete(b, np.arange(32, 64))) <= bounds[1] * (name == "fan-in")).all()


def test_he_start_by_its_variance():
    model = LSTM(500, 10, 4, 8, (64,), initialisation="he")
    E, W, _, _, _ = model.unpack(model.init(np.random.default_rng(0)))
    assert E.std() == pytest.approx(math.sqrt(2), rel=0.05)
    assert W.std() == pytest.approx(math.sqrt(2 / 72), rel=0.05)
