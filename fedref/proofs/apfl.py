"""APFL: decomposition, penalty, importance, and when it is renewed."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithms import apfl, importance, plateau, units
from fedref.batch import Batch
from fedref.checks import Report, check_gradient, complex_step_gradient
from fedref.models.base import Model
from fedref.numerics import Array
from fedref.proofs import oracle
from fedref.proofs.case import Case
from fedref.proofs.compare import equal, loop_sum, one_round, slow_grad, with_block
from fedref.proofs.table import ONE, Compare, proof


def loop_compose(model: Model, w_s: Array, a: Array, w_k: Array) -> Array:
    """w_S ⊙ m_k + w_k, number by number: weight and bias of a layer share its units' m."""
    w, at, first = [], 0, 0
    shapes = [view.shape for view in model.unpack(w_s)]
    for weight, bias in zip(shapes[::2], shapes[1::2]):
        units = bias[0]
        for j in range(math.prod(weight) + units):  # the unit is the last axis: it runs fastest
            m = 1 / (1 + math.exp(-a[first + j % units]))
            w.append(w_s[at] * m + w_k[at])
            at += 1
        first += units
    return np.array(w)


class Parts(NamedTuple):
    """A point of APFL: what `apfl.objective` takes."""

    w_s: Array
    a: Array
    w_k: Array
    more: dict[str, Any]


def apfl_parts(c: Case) -> Parts:
    a = c.rng.normal(size=units.units(c.model).max() + 1)
    more = {"F": c.vector() ** 2, "w_ref": c.vector(), "mu": 0.7}
    return Parts(c.vector(), a, c.vector(), more)


@proof("apfl eq.3", "compose = plain loop over layers and units")
def apfl_eq3(c: Case) -> Iterator[Report]:
    w_s, a, w_k, _ = apfl_parts(c)
    yield equal(apfl.compose(c.model, w_s, a, w_k), loop_compose(c.model, w_s, a, w_k))


@proof("apfl eq.4", "objective − loss = (μ/2) Σ F_j (w_S,j − wᵗ_S,j)² by plain loop")
def apfl_eq4(c: Case) -> Iterator[Report]:
    w_s, a, w_k, more = apfl_parts(c)
    got = apfl.objective(c.model, w_s, a, w_k, c.D, **more)
    terms = (F * (w - ref) ** 2 for F, w, ref in zip(more["F"], w_s, more["w_ref"]))
    penalty = 0.35 * math.fsum(terms)
    yield equal(got - c.model.loss(apfl.compose(c.model, w_s, a, w_k), c.D), penalty)


@proof("apfl eq.5", "λF + Σ p_k(∇L_k)² = plain loop over complex-step gradients")
def apfl_eq5(c: Case) -> Iterator[Report]:
    F, batches, p = c.vector() ** 2, (c.D, c.D1), np.array([0.4, 0.6])
    I = np.stack([importance.gradient_square(c.model, c.w, D) for D in batches])
    slow = [slow_grad(c.model, c.w, D) ** 2 for D in batches]
    yield equal(apfl.importance_update(F, I, p, lam=0.7), loop_sum([0.7, *p], [F, *slow]))


@proof("apfl eq.5", "option MAS = plain loop over |complex step of ‖z‖²|")
def apfl_mas(c: Case) -> Iterator[Report]:
    def one(x: Array) -> Array:
        return np.abs(complex_step_gradient(lambda w: np.sum(c.model.logits(w, x[None]) ** 2), c.w))

    expected = loop_sum(c.s / c.s.sum(), [one(x) for x in c.D.X])
    yield equal(importance.mas(c.model, c.w, c.D), expected)


@proof("apfl eq.5", "option SI: path sums of two steps = plain loops")
def apfl_si(c: Case) -> Iterator[Report]:
    algorithm = apfl.APFL(lr=0.2, z=9, importance="si")
    server = algorithm.initial(c.model, c.w)._replace(t=8, renew=True)
    got, _ = one_round(algorithm, c, [[[c.D1], [c.D2]]], server)
    g1 = slow_grad(c.model, c.w, c.D1)
    g2 = slow_grad(c.model, c.w - 0.2 * g1, c.D2)
    path, moved = 0.2 * (g1**2 + g2**2), -0.2 * (g1 + g2)
    yield equal(got.F, [p / (m * m + 0.1) for p, m in zip(path, moved)])


@proof("apfl eq.6", "objective = oracle loss of the looped composite + penalty")
def apfl_eq6(c: Case) -> Iterator[Report]:
    w_s, a, w_k, more = apfl_parts(c)
    penalty = math.fsum(F * (w - ref) ** 2 for F, w, ref in zip(more["F"], w_s, more["w_ref"]))
    expected = oracle.loss(c.model, loop_compose(c.model, w_s, a, w_k), c.D) + 0.35 * penalty
    yield equal(apfl.objective(c.model, w_s, a, w_k, c.D, **more), expected)


def eq6_of(model: Model, at: Sequence[Any], block: int, D: Batch, more: Any) -> Any:
    """(objective, gradient) of [apfl eq.6] as functions of w_S, a or w_k alone."""

    def objective(x: Array) -> Array:
        w_s, a, w_k = with_block(at, block, x)
        return apfl.objective(model, w_s, a, w_k, D, **more)

    def gradient(x: Array) -> Array:
        w_s, a, w_k = with_block(at, block, x)
        g = apfl.gradients(model, w_s, a, w_k, D)[block]
        return g if block else g + apfl.penalty_gradient(w_s, **more)

    return objective, gradient


def apfl_block(block: int) -> Compare:
    def compare(c: Case) -> Iterator[Report]:
        *at, more = apfl_parts(c)
        vs = c.rng.normal(size=(3, len(at[block])))
        objective, gradient = eq6_of(c.model, at, block, c.D, more)
        yield check_gradient(objective, gradient, at[block], vs)

    return compare


for _i, _of in enumerate(("w_S", "a", "w_k")):
    proof("apfl eq.6", f"gradients: ∂/∂{_of} = complex step of objective")(apfl_block(_i))


@proof("apfl alg.1", "a round of 2 clients = plain loops over complex steps of eq.6")
def apfl_alg1(c: Case) -> Iterator[Report]:
    _, a, w_k, more = apfl_parts(c)
    algorithm = apfl.APFL(lr=0.2, mu=0.7, lam=0.6)
    F, own = more["F"], apfl.Own(a, w_k)
    server = algorithm.initial(c.model, c.w)._replace(F=F, t=5, renew=True)
    clients = [[[c.D1], [c.D2]], [[c.D2], [c.D1]]]

    ends, more = [], {"F": F, "w_ref": c.w, "mu": 0.7}
    for steps in clients:
        at = [c.w, a, w_k]
        for [D] in steps:
            fs = [eq6_of(c.model, at, block, D, more)[0] for block in range(3)]
            at = [x - 0.2 * complex_step_gradient(f, x) for f, x in zip(fs, at)]
        ends.append(at)

    p, squares = (3 / 8, 5 / 8), [slow_grad(c.model, c.w, D) ** 2 for D in (c.D1, c.D2)]
    got, client_states = one_round(algorithm, c, clients, server, [own, own])
    yield equal(got.w, loop_sum(p, [w_s for w_s, _, _ in ends]))
    yield equal(got.F, loop_sum([0.6, *p], [F, *squares]))
    for client_state, (_, a_end, w_k_end) in zip(client_states, ends):
        yield equal(client_state.a, a_end)
        yield equal(client_state.w_k, w_k_end)


@proof("apfl alg.1 line 21", "start: paper = σ(1)w_S + w_S; continuous = w_S")
def apfl_start(c: Case) -> Iterator[Report]:
    sigma = 1 / (1 + math.exp(-1))
    for init, scale in (("paper", sigma + 1), ("continuous", 1.0)):
        algorithm = apfl.APFL(init=init)
        sent = algorithm.download(algorithm.initial(c.model, c.w)._replace(t=2))
        own = algorithm.start(c.model, sent, None).own
        assert own is not None
        yield equal(apfl.compose(c.model, c.w, own.a, own.w_k), scale * c.w)


def plateau_by_loop(
    losses: list[float], length: int, delta_mu: float, delta_sigma: float
) -> list[Any]:
    """[apfl alg.1 lines 9–16] as a plain loop: (renew, peak) after every loss."""
    out, mean_old, std_old, peak = [], 0.0, 0.0, False
    for t in range(1, len(losses) + 1):
        renew = False
        if t >= length:
            window = losses[t - length : t]
            mean = sum(window) / length
            std = math.sqrt(sum((x - mean) ** 2 for x in window) / length)
            renew = peak and mean < delta_mu and std < delta_sigma
            if renew:
                mean_old, std_old, peak = mean, std, False
            elif mean > mean_old + std_old:
                peak = True
        out.append((renew, peak))
    return out


def detector_against_loop(columns: slice) -> Compare:
    def compare(c: Case) -> Iterator[Report]:
        noise = c.rng.normal(size=120)
        wave = 1.5 + np.cos(np.arange(120) / 7)
        losses = (wave + 0.1 * noise).tolist()
        detector, got = plateau.PlateauDetector(0.9, 0.4, 5), []
        for loss in losses:
            detector, renew = detector.push(loss)
            got.append((renew, detector.peak))
        expected = np.array(plateau_by_loop(losses, 5, 0.9, 0.4), float)[:, columns]
        assert 0 < expected.mean() < 1, "the case shows nothing"
        yield equal(np.array(got, float)[:, columns], expected, bound=0)

    return compare


for _tag, _claim, _columns in (
    ("apfl §3.3", "PlateauDetector = plain loop over 120 losses", slice(0, 2)),
    ("apfl alg.1 lines 9–16", "PlateauDetector: renewals and peaks = plain loop", slice(0, 2)),
    ("apfl alg.1 line 10", "PlateauDetector: renewals = plain loop", slice(0, 1)),
    ("apfl alg.1 line 14", "PlateauDetector: peaks = plain loop", slice(1, 2)),
):
    proof(_tag, _claim, ONE)(detector_against_loop(_columns))


@proof("apfl §4.1.3", "F is renewed in the rounds z − 1, z, z + 1 whatever the loss", ONE)
def apfl_unconditional(c: Case) -> Iterator[Report]:
    algorithm = apfl.APFL(z=3)
    server, got = algorithm.initial(c.model, c.w), []
    for _ in range(6):
        got.append(float(server.renew))
        server, _ = one_round(algorithm, c, [[[c.D1]]], server)
    yield equal(got, [0, 0, 1, 1, 1, 0], bound=0)
