"""Costs: multiplications of a model, derivatives of a step, and numbers that travel in a round."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedref import tree
from fedref.algorithm import AnyAlgorithm, State
from fedref.algorithms import (
    apfl,
    apfl_cached,
    apfl_deng,
    fedavg,
    fedcurv,
    feddyn,
    fedmaml,
    fedmeta,
    fednova,
    fedopt,
    fedprox,
    pfedme,
    scaffold,
)  # fmt: skip
from fedref.algorithms import per_fedavg as per
from fedref.checks import Report, relative_error
from fedref.models import CNN, LSTM, lstm
from fedref.models.lstm import in_chunks
from fedref.models.numerics import Array
from fedref.proofs import oracle
from fedref.proofs.case import Case
from fedref.proofs.compare import complex_grad, equal
from fedref.proofs.models import MODELS
from fedref.proofs.rounds import EPOCHS, Paper, TinyWorld, run_rounds
from fedref.proofs.table import ONE, proof
from fedref.rounds.cost import columns
from fedref.rounds.loop import run_clients, run_round

TEXT = [model for model in MODELS.values() if isinstance(model, LSTM)]

# Models


def count_multiplications(c: Case) -> list[int]:
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

    plain = oracle.scores(c.model, lambda z: z, lambda z: z[0])
    plain(c.w.view(CountingArray), 0 * c.draw_features())
    return tally


@proof(
    "products",
    "products, work of every model = those of the specification, counted",
    [*MODELS.values()],
)
def products(c: Case) -> Iterator[Report]:
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


@proof(
    "blocks",
    "logits of 130 samples, and of none = the specification",
    [*(m for n, m in MODELS.items() if "oblong" not in n), CNN((2, 3), (), 1, 4, 3)],
)
def blocks(c: Case) -> Iterator[Report]:
    X = np.concatenate([c.draw_features() for _ in range(130)])
    yield equal(c.model.logits(c.w, X), c.f.scores(c.w, X))
    yield equal(c.model.logits(c.w, X[:0]).shape, (0, *c.model.logits(c.w, X).shape[1:]), bound=0)


@proof("parts", "an LSTM in parts, of the batch and of leading axes = all at once", ONE)
def parts(c: Case) -> Iterator[Report]:
    def scores(w: Array, X: Array) -> Array:
        return X @ w[..., None]  # (..., B, 1)

    def gradient(w: Array, X: Array) -> Array:
        return (X * w[..., None, :]).sum(-2)

    for lead_w, lead_X in (((), ()), ((5,), (5,)), ((3, 1), (1, 4)), ((), (4,)), ((3,), ())):
        w, X = c.rng.normal(size=(*lead_w, 2)), c.rng.normal(size=(*lead_X, 7, 2))
        for most in (1, 2, 3, 7, 15, 100):
            yield equal(in_chunks(scores, [w], [X], most, add=False), scores(w, X))
            yield equal(in_chunks(gradient, [w], [X], most), gradient(w, X))


@proof(
    "parts",
    "an LSTM one and two samples at a time = all at once; padding or none = the specification",
    [*TEXT],
)
def text_in_parts(c: Case) -> Iterator[Report]:
    m, v, D = c.model, c.vs[0], c.D2._replace(s=np.arange(5.0))
    D.X[1] = m.vocabulary
    for X in (D.X, D.X % m.vocabulary):  # the second without padding
        yield equal(m.logits(c.w, X), c.f.scores(c.w, X))
        yield equal(m.grad(c.w, D._replace(X=X)), complex_grad(m, c.w, D._replace(X=X)))
    whole = m.logits(c.w, D.X), m.grad(c.w, D), m.hvp(c.w, v, D)
    from unittest.mock import patch  # takes a while to import, and only this needs it

    for rows, kept_at_once in ((1, 1), (2, 2 * lstm.CACHE_BYTES // m.rows)):
        with patch.object(lstm, "CACHE_BYTES", kept_at_once):
            assert m.rows == rows
            for got, at_once in zip((m.logits(c.w, D.X), m.grad(c.w, D), m.hvp(c.w, v, D)), whole):
                yield equal(got, at_once)


# Rounds


class Bill(NamedTuple):
    """The cost of one client's round, by hand.

    down, up : parameter vectors that travel; scalars : single numbers sent down. grads, hvps : the
    batches of one step on which a gradient, or an HVP, is taken. more : gradients after the steps, on
    "all samples" at once or on "each sample".
    """

    down: int
    up: int
    grads: tuple[str, ...] = ("D",)
    hvps: tuple[str, ...] = ()
    more: str = ""
    scalars: int = 0


BILLS: list[tuple[AnyAlgorithm, Bill]] = [
    (fedavg.FedAvg(), Bill(1, 1)),
    (fedprox.FedProx(), Bill(1, 1, scalars=1)),  # μ
    (per.PerFedAvg(), Bill(1, 1, ("D", "D1"), ("D2",))),
    (per.PerFedAvgFO(), Bill(1, 1, ("D", "D1"))),
    (per.PerFedAvgHF(), Bill(1, 1, ("D", "D1", "D2", "D2"))),
    (fedmeta.MAML(), Bill(1, 1, ("S", "Q"), ("S",))),
    (fedmeta.MAML(episodes="epochs"), Bill(1, 1, ("S of D", "Q of D"), ("S of D",))),
    (fedmeta.FOMAML(), Bill(1, 1, ("S", "Q"))),
    (fedmeta.MetaSGD(), Bill(2, 2, ("S", "Q"), ("S",))),
    (fedmaml.FedMAML(inner_steps=3), Bill(1, 2, ("S", "S", "S", "Q"), ("S", "S", "S"))),
    (fedcurv.FedCurv(), Bill(3, 2, more="each sample")),
    (apfl.APFL(z=9), Bill(1, 1)),
    (apfl.APFL(z=0), Bill(1, 2, more="all samples")),
    (apfl.APFL(z=0, importance="fisher"), Bill(1, 2, more="each sample")),
    (fedavg.Centralised(), Bill(0, 0)),
    (scaffold.Scaffold(), Bill(2, 2)),
    (scaffold.Scaffold(control="gradient"), Bill(2, 2, more="all samples")),
    (apfl_deng.APFLDeng(), Bill(1, 1, ("D", "D"))),
    (feddyn.FedDyn(), Bill(1, 1)),
    (fedopt.FedAdagrad(), Bill(1, 1)),
    (fedopt.FedYogi(), Bill(1, 1)),
    (fedopt.FedAdam(), Bill(1, 1)),
    (fedopt.FedAvgM(), Bill(1, 1)),
    (fednova.FedNova(), Bill(1, 1)),  # and τ_k, a counter: free
    (pfedme.PFedMe(inner_steps=3), Bill(1, 1, ("D", "D", "D"))),
    (fedmaml.FedMAML(evaluate="theta1"), Bill(2, 2, ("S", "Q"), ("S",))),
]  # fmt: skip


def paper_of(algorithm: AnyAlgorithm) -> Paper:
    """Return the algorithm's settings for a `TinyWorld`, without rounds."""
    return Paper(lambda world: iter(()), algorithm.drop, algorithm.roles, None, algorithm.pooled)


@proof("cost", "bytes, derivatives and samples of a round of every algorithm = by hand", ONE)
def costs(c: Case) -> Iterator[Report]:
    for algorithm, bill in BILLS:
        roles = tuple(algorithm.roles)
        world = TinyWorld(c, paper_of(algorithm), EPOCHS, 3)
        [cohort, *_], plan = list(world.rounds()), world.plans[0]
        rows = dict.fromkeys(roles, 0)
        for one in cohort:
            for step in one.steps:
                for role, D in zip(roles, step):
                    rows[role] += len(D.y)
        steps, n = sum(len(one.steps) for one in cohort), sum(len(one.data.y) for one in cohort)
        grads, hvps = len(bill.grads) * steps, len(bill.hvps) * steps
        grad_rows, hvp_rows = (sum(rows[r] for r in which) for which in (bill.grads, bill.hvps))
        if bill.more:
            grads += n if bill.more == "each sample" else len(cohort)
            grad_rows += n
        down = len(plan.clients) * (bill.down * c.model.d + bill.scalars)
        up = len(cohort) * bill.up * c.model.d
        g, h = c.model.work
        flops = 2 * (g * grad_rows + h * hvp_rows)
        late = [int(plan.straggler.sum()), len(plan.clients) - len(cohort), 0]
        for stack in (False, True):
            _, log = run_round(
                algorithm, c.model, State(algorithm.initial(c.model, c.w), {}), plan, world.trained,
                work=partial(run_clients, stack=stack),
            )  # fmt: skip
            yield equal([log.counts.grad_samples, log.counts.hvp_samples], [grad_rows, hvp_rows], 0)
            for dtype, size in ((np.float32, 4), (np.float64, 8)):
                got = [*columns(c.model, log, dtype).values()]
                yield equal(got, [down * size, up * size, grads, hvps, flops, *late], bound=0)


@proof(
    "cost",
    "8 rounds of APFLCachedImportance = APFL to the bit; F goes to clients with an older one",
    ONE,
)
def cached_rounds(c: Case) -> Iterator[Report]:
    """F is renewed before the start too: a window of 2 finds a plateau after three losses."""
    options: dict[str, Any] = {"z": 6, "window": 2, "delta_mu": 9.0, "delta_sigma": 9.0}
    one, other = apfl.APFL(**options), apfl_cached.APFLCachedImportance(**options)
    world = TinyWorld(c, paper_of(one), EPOCHS, 8)
    has, F = dict[int, Any](), 0  # each client's F, and the one that is sent
    runs = run_rounds(world, one), run_rounds(world, other)
    rounds = zip(world.plans, world.rounds(), *runs, strict=True)
    for plan, cohort, (ours, _), (cached, log) in rounds:
        new = sum(not np.array_equal(has.get(k, 0), F) for k in plan.clients.tolist())
        yield equal(log.floats_down, c.model.d * (len(plan.clients) + new), bound=0)
        has |= {client.k: F for client in cohort}
        F = ours.server.F
        personal = {k: kept.own for k, kept in cached.clients.items() if kept.own is not None}
        yield equal(sorted(personal), sorted(ours.clients), bound=0)
        pairs = [(cached.server, ours.server), *((personal[k], ours.clients[k]) for k in personal)]
        for pair in pairs:
            for got, expected in zip(*map(tree.leaves, pair), strict=True):
                yield equal(got, expected, bound=0)


# In float32


def float32_agrees(got: Array, exact: Array) -> Report:
    """Report whether a result is float32, and equal to the exact one to 1e-4."""
    return equal(got.dtype == np.float32 and relative_error(got, exact) <= 1e-4, True)


@proof(
    "precision",
    "two rounds of every algorithm in float32 = in float64 to 1e-4, and stay float32",
    ONE,
)
def precision(c: Case) -> Iterator[Report]:
    for algorithm, _ in BILLS:
        world = TinyWorld(c, paper_of(algorithm), EPOCHS, 3)
        for stack in (False, True):
            narrow, wide = (two_rounds(c, world, algorithm, d, stack) for d in (np.float32, float))
            for x, exact in zip(narrow, wide, strict=True):
                yield float32_agrees(x, exact)


@proof(
    "precision",
    "loss, grad, hvp in float32 = in float64 to 1e-4, and stay float32",
    [*MODELS.values()],
)
def model_precision(c: Case) -> Iterator[Report]:
    m, v = c.model, c.vs[0]
    X = c.D.X if m.inputs == "codes" else c.D.X.astype(np.float32)
    narrow, w32, v32 = c.D._replace(X=X), c.w.astype(np.float32), v.astype(np.float32)
    for got, exact in (
        (m.loss(w32, narrow), m.loss(c.w, c.D)),
        (m.grad(w32, narrow), m.grad(c.w, c.D)),
        (m.hvp(w32, v32, narrow), m.hvp(c.w, v, c.D)),
    ):
        yield float32_agrees(got, exact)


def two_rounds(
    c: Case, world: TinyWorld, algorithm: AnyAlgorithm, dtype: Any, stack: bool
) -> list[Any]:
    """Return all floating-point arrays in the states of server and clients after two rounds."""
    state = State(algorithm.initial(c.model, c.w.astype(dtype)), {})
    for plan in world.plans[:2]:
        state, _ = run_round(
            algorithm, c.model, state, plan, world.trained,
            dtype=dtype, work=partial(run_clients, stack=stack),
        )  # fmt: skip
    return [x for x in tree.leaves(state) if np.ndim(x) and x.dtype.kind == "f"]
