"""What is drawn with NumPy's random numbers holds fedref to its specification, without Hypothesis."""

import numpy as np
import pytest

from fedref import checks
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedavg import FedAvg
from fedref.conformance import suite
from fedref.conformance.backends.reference import LOOP, STACK
from fedref.draws import sources
from fedref.draws.sources import NumPySource
from fedref.judge import verdicts
from fedref.models.batch import Batch
from fedref.sampling import stream
from fedref.strategies import Problem

DRAWS, FEWER = range(10), range(6)


def draw_trace(name, seed, **options):
    source = NumPySource(stream(seed, f"drawn {name}"))
    size = {key: options.pop(key) for key in ("clients", "rounds") if key in options}
    algorithm = sources.draw_algorithm(source, name, **options)
    return sources.draw_trace(source, algorithm, sources.draw_model(source), **size)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_rounds_are_the_specification_s(name):
    """One by one, stacked and on threads, to the bit; and no order or padding matters."""
    counted = 0
    for trace in (draw_trace(name, seed) for seed in FEWER):
        for backend in (LOOP, STACK):
            graded = suite.grade_drawn(suite.InProcess(backend), trace.case(), "float64")
            assert graded is None or graded.result.status == verdicts.PASSED, graded
            counted += graded is not None
        assert [part for part, r in checks.check_invariance(trace).items() if not r.ok] == []
    assert counted > 2  # the specification has FedOpt's servers with weights n_k alone


@pytest.mark.parametrize("call", sources.SUBJECTS)
def test_all_that_is_drawn_for_backends_is_answered(call):
    for name in sources.SUBJECTS[call]:
        source, statuses = NumPySource(stream(0, f"drawn {call} {name}")), []
        for _ in FEWER:
            graded = suite.grade_drawn(
                suite.InProcess(LOOP), sources.draw_case(source, call, name), "float64"
            )
            statuses += [graded.result.status] if graded else []
        assert set(statuses) == {verdicts.PASSED}


@pytest.mark.parametrize("family", sources.FAMILIES)
def test_a_model_has_the_properties_of_one(family):
    for seed in DRAWS:
        source = NumPySource(stream(seed, f"drawn {family}"))
        model, D = (m := sources.draw_model(source, family)), sources.draw_some(source, m)
        D |= sources.draw_weights(source, len(D["y"]))
        w, v = sources.draw_start(source, model), sources.draw_start(source, model)
        reports = checks.check_model(Problem(model, w, v, Batch(**D)))
        assert {name: report for name, report in reports.items() if not report.ok} == {}


#: An algorithm whose limit is FedAvg, with the hyperparameters of the limit, beside the same lr.
LIMITS = {
    "fedprox": {"mu": 0.0, "adaptive_mu": False, "until_gamma": 0.0},
    "fedcurv": {"lam": 0.0},
    "apfl": {"mu": 0.0, "lam": 0.0, "z": 99, "importance": "fisher"},
    "fedavg-update": {}, "fedavg-meta": {}, "apfl-deng": {}, "centralised": {},
    "pfedme": {"lam": 0.0, "lr": 0.0},
    "scaffold": {"server_lr": 1.0, "clients": 1, "rounds": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_fedavg(name):
    for seed in DRAWS:
        trace = draw_trace(name, seed, **LIMITS[name])
        it = trace.algorithm
        fedavg = FedAvg(weighting=it.weighting, drop=it.drop, lr=it.lr)
        assert checks.check_limit(it, fedavg, trace).ok


def test_per_fedavg_with_alpha_0_is_fedavg_on_the_second_batch():
    for seed in DRAWS:
        trace = draw_trace("per-fedavg", seed, alpha=0.0, inner_steps=1)
        a = trace.algorithm
        plans = [p._replace(rows=p.rows | {"D": p.rows["D1"]}) for p in trace.plans]
        fedavg = FedAvg(weighting=a.weighting, drop=a.drop, lr=a.beta)
        assert checks.check_limit(a, fedavg, trace._replace(plans=tuple(plans))).ok


def test_every_event_of_a_round_is_drawn():
    traces = [draw_trace("fedmeta-maml", seed, episodes="one") for seed in range(60)]
    plans = [p for t in traces for p in t.plans]
    assert any(set(t.plans[0].clients) - set(p.clients) for t in traces for p in t.plans)
    assert any((p.counts > 1).any() for p in plans)
    assert any(p.straggler.any() and not p.straggler.all() for p in plans)
    assert any(p.straggler.all() for p in plans)
    assert any((p.rows["S"] < 0).all(-1).any() for p in plans)  # an empty support
    assert {len(t.plans) for t in traces} == {1, 2, 3}
    assert {len(t.offsets) - 1 for t in traces} == {1, 2, 3}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_hyperparameters_reach_every_choice(name):
    """None is out of its bounds, or the algorithm would be refused."""
    source = NumPySource(np.random.default_rng(0))
    drawn = [sources.draw_algorithm(source, name) for _ in range(60)]
    for field, words in (ALGORITHMS[name].choices | {"drop": (True, False)}).items():
        assert {getattr(it, field) for it in drawn} == set(words)
