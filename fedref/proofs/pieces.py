"""A model's cost; and its numbers piece by piece, or in float32, equal those at once in float64."""

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from fedref.checks import Report, complex_step_gradient, relative_error
from fedref.judge.adapter import scores
from fedref.models import CNN, LSTM, lstm
from fedref.models.base import Model
from fedref.models.lstm import in_chunks
from fedref.models.numerics import Array
from fedref.proofs.models import MODELS
from fedref.proofs.setting import Setting, equal
from fedref.proofs.table import ONE, equation, proof

ALL = list(MODELS.values())
TEXT = [model for model in ALL if isinstance(model, LSTM)]


def count_multiplications(c: Setting) -> list[int]:
    """Count the specification's multiplications for one sample without padding, layer by layer."""
    views = c.model.unpack(c.w)
    ends = np.cumsum([view.size for view in views])
    tally = [0] * sum(view.ndim > 1 for view in views)

    class CountingArray(np.ndarray[Any, Any]):
        """Parameters that count the multiplications of every matrix product in which they take part."""

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **rest: Any) -> Any:
            X, *W = (np.asarray(x) for x in inputs)
            out = getattr(ufunc, method)(X, *W, **rest)
            if ufunc is np.matmul:
                at = (W[0].ctypes.data - c.w.ctypes.data) // c.w.itemsize
                view = int(np.searchsorted(ends, at, "right"))
                tally[sum(v.ndim > 1 for v in views[:view])] += out.size * X.shape[-1]
            return out

    plain = scores(c.model, lambda z: z, lambda z: z[0])
    plain(c.w.view(CountingArray), 0 * c.draw_batch(1).X)
    return tally


@proof("products", "products, work of every model = those of the specification, counted", ALL)
def products(c: Setting) -> Iterator[Report]:
    counted = count_multiplications(c)
    yield equal(c.model.products, counted, bound=0)
    grad = hvp = 0
    for l, n in enumerate(counted):
        # A gradient: AW, Aᵀδ, and δWᵀ but for the first layer. An HVP: AW, δWᵀ, and two terms of the
        # product rule for each of the three. In the first layer R{A} = 0: AW, AV and AᵀR{δ}.
        grad += n * (3 if l else 2)
        hvp += n * (2 + 6 if l else 3)
    if c.model.inputs == "codes":  # the first step has no predecessor to send δW_hᵀ to
        grad -= sum(4 * H * H for H in c.model.hidden)
        hvp = 3 * grad
    yield equal(c.model.work, [grad, hvp], bound=0)


ANY_SIZE = [*(m for name, m in MODELS.items() if "oblong" not in name), CNN((2, 3), (), 1, 4, 3)]


@proof("blocks", "logits of 130 samples, and of none = the specification", ANY_SIZE)
def blocks(c: Setting) -> Iterator[Report]:
    X = c.draw_batch(130).X
    got = c.model.logits(c.w, X)
    yield equal(got, c.f.scores(c.w, X))
    yield equal(c.model.logits(c.w, X[:0]).shape, (0, *got.shape[1:]), bound=0)


equation("Model", "hvp and sample_losses that an own model inherits = the specification's",
    lambda c: (Model.hvp(c.model, c.w, c.vs[0], c.D1), Model.sample_losses(c.model, c.w, c.D1)),
    lambda c: (c.f.hvp(c.w, c.vs[0], c.real_rows[1]), c.f.loss(c.f.scores(c.w, c.D1.X), c.D1.y)), ONE,
)  # fmt: skip


@proof("parts", "an LSTM in parts, of the batch and of leading axes = all at once", ONE)
def parts(c: Setting) -> Iterator[Report]:
    def products(w: Array, X: Array) -> Array:
        return X @ w[..., None]  # (..., B, 1)

    def gradient(w: Array, X: Array) -> Array:
        return (X * w[..., None, :]).sum(-2)

    for lead_w, lead_X in (((), ()), ((5,), (5,)), ((3, 1), (1, 4)), ((), (4,)), ((3,), ())):
        w, X = c.rng.normal(size=(*lead_w, 2)), c.rng.normal(size=(*lead_X, 7, 2))
        for most in (1, 2, 3, 7, 15, 100):
            yield equal(in_chunks(products, [w], [X], most, add=False), products(w, X))
            yield equal(in_chunks(gradient, [w], [X], most), gradient(w, X))


IN_PARTS = "an LSTM one and two samples at a time = at once; padding = the specification"


@proof("parts", IN_PARTS, TEXT)
def text_in_parts(c: Setting) -> Iterator[Report]:
    m, v, D = c.model, c.vs[0], c.D2._replace(s=np.arange(5.0))
    D.X[1] = m.vocabulary
    for X in (D.X, D.X % m.vocabulary):  # the second without padding
        yield equal(m.logits(c.w, X), c.f.scores(c.w, X))
        at = partial(m.loss, D=D._replace(X=X))
        yield equal(m.grad(c.w, D._replace(X=X)), complex_step_gradient(at, c.w))
    whole = m.logits(c.w, D.X), m.grad(c.w, D), m.hvp(c.w, v, D)
    for rows, kept_at_once in ((1, 1), (2, 2 * lstm.CACHE_BYTES // m.rows)):
        with patch.object(lstm, "CACHE_BYTES", kept_at_once):
            assert m.rows == rows
            for got, at_once in zip((m.logits(c.w, D.X), m.grad(c.w, D), m.hvp(c.w, v, D)), whole):
                yield equal(got, at_once)


@proof("precision", "loss, grad, hvp in float32 = in float64 to 1e-4, and stay float32", ALL)
def model_precision(c: Setting) -> Iterator[Report]:
    X = c.D.X if c.model.inputs == "codes" else c.D.X.astype(np.float32)
    narrow, w32, v32 = c.D._replace(X=X), c.w.astype(np.float32), c.vs[0].astype(np.float32)
    for name, given, exact in (
        ("loss", (w32, narrow), (c.w, c.D)),
        ("grad", (w32, narrow), (c.w, c.D)),
        ("hvp", (w32, v32, narrow), (c.w, c.vs[0], c.D)),
    ):
        f = getattr(c.model, name)
        got, wanted = f(*given), f(*exact)
        yield equal(got.dtype == np.float32 and relative_error(got, wanted) <= 1e-4, True)
