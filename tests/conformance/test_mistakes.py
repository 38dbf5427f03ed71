"""Each known mistake is rejected and named; so is any single-term mutation of an equation rejected."""

import ast
import inspect
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from mutation import ROOT, find_codes, mutants_of, read_equivalents

from fedref import algorithm as base
from fedref.algorithms import (
    apfl,
    fedavg,
    fedcurv,
    fedmaml,
    fedmeta,
    fedprox,
    importance,
    per_fedavg,
)
from fedref.conformance import make, serialise, suite, vectors
from fedref.conformance.backends.reference import LOOP
from fedref.conformance.edits import Edit, apply_edits, edit_source
from fedref.conformance.mistakes import MISTAKES, PUBLISHED
from fedref.conformance.stand_ins import OtherPlan
from fedref.conformance.suite import FAILED
from fedref.models import Logistic, lstm
from fedref.rounds import evaluation
from fedref.rounds.federation import Federation, Part, Source
from fedref.sampling import Sampling, make_plan

CASES = vectors.read()
BY_NAME = {case.name: case for case in CASES}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_rejected_and_named(name):
    """Cases that catch it are tried, the cheap ones first, until one names nothing else; of the published
    ones first a case of each call."""
    every = sorted((case for case in CASES if name in case.catches), key=lambda c: len(c.catches))
    first = {case.call: case for case in reversed(every)} if name in PUBLISHED else {}
    for result in suite.run(MISTAKES[name].backend, first.values()):
        assert (result.status, name in result.mistakes) == (FAILED, True)
    for result in suite.run(MISTAKES[name].backend, every):
        assert result.status == FAILED
        assert name in result.mistakes
        if result.mistakes == (name,):
            return
    raise AssertionError(f"{name}: no case tells it from the others")


@pytest.mark.parametrize("name", MISTAKES)
def test_no_mistake_is_called_by_anothers_name(name):
    """Where a case does not catch it, it passes, or is not named: all cases of the MLP for a published
    mistake, three or so for another."""
    free = [c for c in CASES if name not in c.catches]
    free = [c for c in free if "-mlp" in c.name] or free
    some = free if name in PUBLISHED else free[:: max(len(free) // 3, 1)]
    offered = [r for r in suite.run(MISTAKES[name].backend, some) if r.status != "not offered"]
    assert offered
    for result in offered:
        # what moves by less than 100 tolerances is not said to be caught, and may fail unnamed
        if result.status == FAILED:
            assert result.error is not None, result.reason
            assert result.error < 100 * result.tolerance
            assert not result.mistakes


def test_two_mistakes_at_once_are_named():
    pair = "penalty not squared", "the L2 term is not applied"
    wrong = suite.combine_mistakes(*pair)
    (result,) = suite.run(wrong, [BY_NAME["client-fedprox"]])
    assert result.pair
    assert set(result.mistakes) == set(pair)
    assert suite.combine_mistakes("μ/2 in the place of μ", "2μ in the place of μ") is None


def test_an_edit_is_made_and_undone():
    w, g = np.ones(2), np.full(2, 0.5)
    edit = Edit(per_fedavg.local_step, "w - beta * meta_gradient", "w - B * meta_gradient")
    with apply_edits(edit, rows=7):
        assert per_fedavg.local_step(w, g, beta=1.0).tolist() == [-2.5, -2.5]
    assert per_fedavg.local_step(w, g, beta=1.0).tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="local_step holds 'w \\+ beta' 0 times"):
        edit_source(edit._replace(right="w + beta"))


PLANS = [n for n, row in MISTAKES.items() if isinstance(row.stand_in, OtherPlan) and row.edits]


@pytest.mark.parametrize("name", PLANS)
def test_the_backend_is_given_the_plan_that_the_edit_draws(name):
    sizes, roles = np.array([3, 9, 4, 6, 13, 22]), ("D", "D1", "D2")
    sampling = Sampling(len(sizes), epochs=3, batch_size=4, stragglers=0.7)
    right = make_plan(sampling, sizes, 2, 5, roles)
    with apply_edits(*MISTAKES[name].edits):
        wrong = make_plan(sampling, sizes, 2, 5, roles)
    expected = MISTAKES[name].stand_in.plan_of("per-fedavg", {"B": 4}, right._asdict())
    assert wrong.steps.tolist() == expected["steps"].tolist()
    moved = wrong.steps.tolist() != right.steps.tolist()
    for role, rows in expected["rows"].items():
        moved |= not np.array_equal(right.rows[role], wrong.rows[role])
        for k, steps in enumerate(expected["steps"]):
            got, want = (x[k, :steps] for x in (wrong.rows[role], rows))
            assert got[got >= 0].tolist() == want[want >= 0].tolist()
    assert moved


@pytest.mark.parametrize("name", ["adapted to the test batch", "evaluation trains"])
def test_the_backend_evaluates_as_the_edit_does(name):
    """Clients with the same training rows are tested one after the other as its test batches are."""
    rng = np.random.default_rng(0)
    X, y, model = rng.normal(size=(20, 3)), rng.integers(0, 2, 20), Logistic(3, 2)
    train = Part(np.tile(np.arange(8), 3), np.array([0, 8, 16, 24]))
    test = Part(np.arange(8, 20), np.array([0, 4, 8, 12]))
    w = rng.normal(size=model.d)

    def losses():
        return evaluation.evaluate(
            fedavg.FedAvgUpdate(alpha=0.7), model, base.State(base.Server(w), {}),
            Federation(Source(X, y), train, test), Sampling(2, epochs=1, batch_size=0),
            round=0, seed=0, train=False,
        ).test_loss  # fmt: skip

    given = {
        "D": {"X": X[:8], "y": y[:8]},
        "tests": [{"X": X[i : i + 4], "y": y[i : i + 4]} for i in (8, 12, 16)],
    }
    call = ("fedavg-update", serialise.describe_model(model), {"alpha": 0.7})
    right = losses()
    with apply_edits(*MISTAKES[name].edits):
        wrong = losses()
    for backend, got in ((LOOP, right), (MISTAKES[name].backend, wrong)):
        expected = backend.evaluate(*call, server={"w": w}, **given)["losses"]
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert not np.allclose(right, wrong)


class HandWritten:
    """Wrong backends written without fedref's algorithms: only a model's gradient is asked for."""

    @staticmethod
    def gradient(model, w, D):
        return serialise.build_model(model).grad(w, serialise.build_batch(D))

    def meta_gradient(self, variant, model, hyper, theta, S, Q):
        if variant != "fedmeta-maml":
            raise NotImplementedError
        theta_u = theta - hyper["alpha"] * self.gradient(model, theta, S)
        return self.gradient(model, theta_u, Q)

    def aggregate(self, algorithm, model, hyper, server, uploads, n, counts):
        if algorithm != "fedavg":
            raise NotImplementedError
        batches = np.ceil(n / hyper["B"]).astype(uploads["w"].dtype)
        return {"server": {"w": batches @ uploads["w"] / batches.sum()}}

    def client(self, algorithm, model, hyper, server, data, rows, client=None):
        if algorithm != "fedprox":
            raise NotImplementedError
        w = w0 = server["w"]
        for row in rows["D"]:
            D = {name: x[row[row >= 0]] for name, x in data.items()}
            away = w - w0
            pull = hyper["mu"] / 2 * away / (np.linalg.norm(away) or 1)
            w = w - hyper["lr"] * (self.gradient(model, w, D) + pull)
        return {"upload": {"w": w}}


@pytest.mark.parametrize("dtype", vectors.DTYPES)
def test_mistakes_in_code_that_is_not_ours_are_named(dtype):
    found = {r.case: r.mistakes for r in suite.run(HandWritten(), CASES, np.dtype(dtype))}
    cut = "first order: the inner step's graph was cut"
    assert found["meta-fedmeta-maml-mlp"] == (cut,)
    assert found["meta-fedmeta-maml-cnn"] == (cut,)
    assert found["aggregate-loader"] == ("weights count batches",)
    assert found["client-fedprox"] == ("penalty not squared",)


def test_what_is_no_known_mistake_is_not_named():
    class Odd(HandWritten):
        def gradient(self, model, w, D):
            return 1.01 * HandWritten.gradient(model, w, D)

    cases = [case for case in CASES if case.algorithm == "fedmeta-maml"]
    failed = [r for r in suite.run(Odd(), cases) if r.status == FAILED]
    assert failed
    assert not any(result.mistakes for result in failed)


# ---- single-term mutations ---------------------------------------------------------------------


#: Edits that move nothing here: ν is 2, and one client at a time has no leading axes.
SAME = (
    "→ alpha * model.hvp(w_j, u, D2) - u", "→ (1 - x.ndim, list[Array]())", "→ if view.ndim == 1:",
)  # fmt: skip
EQUIVALENT = read_equivalents()


def is_tried(mutant):
    """Whether a term, a factor, a sign or a batch is changed, and that can move a case."""
    node, same = mutant.node, mutant.key.endswith(SAME)
    if isinstance(node, ast.UnaryOp):
        same |= isinstance(node.operand, ast.Constant)  # an axis: −1 is 1 for two
    if isinstance(node, ast.AugAssign):
        same |= isinstance(mutant.new, ast.Assign)  # a sum over blocks, of which there is one
    kinds = ast.BinOp | ast.AugAssign | ast.UnaryOp | ast.Name
    known = any(line.fullmatch(mutant.key) for line in EQUIVALENT)
    return isinstance(node, kinds) and not same and not known


@cache
def mutants_in(file):
    return [mutant for mutant in mutants_of(Path(file), ROOT) if is_tried(mutant)]


def mutants(f):
    """(edit, code) of every function with one term, factor, sign or batch of f changed."""
    for mutant in mutants_in(inspect.getsourcefile(f)):
        _, name, edit = mutant.key.split(" ", 2)
        if name == f"{f.__qualname__}:":
            codes = find_codes(mutant.compiled())
            yield edit, next(code for code in codes if code.co_qualname == f.__qualname__)


#: function → what of the cases' names it shows in.
EQUATIONS = {
    per_fedavg.meta_gradient: "per-fedavg",
    per_fedavg.meta_gradient_fo: "per-fedavg-fo",
    per_fedavg.meta_gradient_hf: "per-fedavg-hf",
    per_fedavg.meta_gradient_steps: "per-fedavg-steps",
    per_fedavg.local_step: "per-fedavg",
    fedmeta.inner_steps: "fedmeta",
    fedmeta.maml_gradient: "fedmeta-maml",
    fedmeta.meta_sgd_gradient: "fedmeta-sgd",
    fedmaml.adapt: "fedmaml",
    fedmaml.meta_gradient: "fedmaml",
    fedmaml.meta_update: "fedmaml",
    fedmaml.candidate: "fedmaml",
    fedavg.local_step: "fedavg",
    fedavg.Centralised.step: "centralised",
    fedprox.objective: "client-fedprox",
    fedprox.prox_gradient: "fedprox",
    fedprox.inexactness: "client-fedprox",
    fedprox.dissimilarity: "dissimilarity",
    fedprox.adapt_mu: "adaptive-mu",
    fedcurv.penalty_gradient: "fedcurv",
    fedcurv.FedCurv.step: "fedcurv",
    fedcurv.FedCurv.finish: "fedcurv",
    fedcurv.FedCurv.combine: "fedcurv",
    apfl.compose: "apfl",
    apfl.gradients: "apfl",
    apfl.penalty_gradient: "apfl",
    apfl.importance_update: "apfl",
    apfl.APFL.start: "apfl",
    apfl.APFL.step: "apfl",
    apfl.APFL.finish: "apfl",
    apfl.APFL.combine: "apfl",
    importance.gradient_square: "apfl",
    importance.fisher: "f",
    importance.mas: "apfl-mas",
    importance.synaptic_intelligence: "apfl-si",
    apfl.sum_over_units: "apfl",
    apfl.PlateauDetector.push: "apfl-plateau",
    fedmeta.server_step: "fedmeta",
    lstm.LSTM.grad: "lstm",
    lstm.LSTM.hvp: "lstm",
    lstm.LSTM.forward: "lstm",
    lstm.LSTM.R_forward: "lstm",
    lstm.LSTM.backward: "lstm",
    lstm.LSTM.R_backward: "lstm",
    lstm.LSTM.read: "lstm",
    lstm.LSTM.transpose_read: "lstm",
    lstm.LSTM.share: "lstm",
    lstm.forward: "lstm",
    lstm.backward: "lstm",
    lstm.R_forward: "lstm",
    lstm.R_backward: "lstm",
    lstm.gate_scales: "lstm",
    base.weighted_sum: "round-fedavg",
    base.Cohort.weights: "round",
}


def moved(cases):
    """Whether some case moves by more than 100 of its tolerances."""
    for case in cases:
        wide = case._replace(tolerance={"float64": make.CAUGHT * case.tolerance["float64"]})
        if suite.compare(suite.arrays_of(LOOP, case), wide) is not None:
            return True
    return False


@pytest.mark.parametrize("f", EQUATIONS, ids=lambda f: f.__qualname__)
def test_a_single_term_mutation_moves_a_case(f, monkeypatch):
    cases = [c for c in CASES if EQUATIONS[f] in c.name]
    cases.sort(key=lambda c: (c.call == "round", "mlp" not in c.name))
    assert not moved(cases[:3])
    survivors, tried = [], 0
    for what, code in mutants(f):
        tried += 1
        with monkeypatch.context() as patch:
            patch.setattr(f, "__code__", code)
            survivors += [] if moved(cases) else [what]
    assert survivors == []
    assert tried


@pytest.mark.parametrize("family", ["logistic", "mlp", "cnn", "lstm-mean"])
def test_a_transposed_layer_moves_a_case(family):
    """Each weight read in the other order."""
    case = BY_NAME[f"grad-{family}"]
    at = 0
    for shape in case.model["shapes"]:
        size = int(np.prod(shape))
        if len(shape) > 1:
            w = case.inputs["w"].copy()
            w[at : at + size] = w[at : at + size].reshape(shape[::-1]).T.ravel()
            g = LOOP.grad(case.model, w, case.arguments()["D"])
            assert suite.difference(g, case.outputs["g"]) > 100 * case.tolerance["float64"]
        at += size
