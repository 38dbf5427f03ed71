"""Each known mistake is rejected and named; so is any single-term mutation of an equation rejected."""

import ast
import copy
import inspect
import textwrap

import numpy as np
import pytest

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
from fedref.conformance.mistakes import MISTAKES
from fedref.conformance.suite import FAILED, PASSED
from fedref.models import lstm

CASES = vectors.read()
BY_NAME = {case.name: case for case in CASES}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_rejected_and_named(name):
    """In the first case of each call that catches it; somewhere it is the only explanation."""
    catching = {case.call: case for case in reversed(CASES) if name in case.catches}
    results = list(suite.run(MISTAKES[name].backend, catching.values()))
    assert results
    assert all(result.status == FAILED for result in results)
    assert all(name in result.mistakes for result in results)
    every = (case for case in CASES if name in case.catches)
    assert any(r.mistakes == (name,) for r in suite.run(MISTAKES[name].backend, every))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_does_nothing_else(name):
    """It passes where it plays no part."""
    free = [case for case in CASES if name not in case.catches and "-mlp" in case.name]
    offered = [r for r in suite.run(MISTAKES[name].backend, free) if r.status != "not offered"]
    assert offered
    # what moves by less than 100 tolerances is not said to be caught, and may fail unnamed
    wrong = [result for result in offered if result.status == FAILED]
    assert all(result.error < 100 * result.tolerance for result in wrong)


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
    assert found["aggregate-fedavg"] == ("weights count batches",)
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

SWAPS = {"D": "D1", "D1": "D2", "D2": "D", "S": "Q", "Q": "S", "tr": "val", "val": "tr"}
SIGN = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


def variants(node):
    """(what was done, the node instead) for one node of an expression."""
    if isinstance(node, ast.BinOp):
        kind = type(node.op)
        if kind in SIGN:
            other = ast.BinOp(node.left, SIGN[kind](), node.right)
            yield f"{kind.__name__} turned", other
        if kind in (ast.Add, ast.Mult, ast.Sub, ast.Div, ast.Pow):
            yield "right dropped", node.left
        if kind in (ast.Add, ast.Mult):
            yield "left dropped", node.right
        if kind is ast.Sub:
            yield "left dropped", ast.UnaryOp(ast.USub(), node.right)
    elif isinstance(node, ast.AugAssign):
        if type(node.op) in SIGN:
            turned = SIGN[type(node.op)]()
            yield f"{type(node.op).__name__} turned", ast.AugAssign(node.target, turned, node.value)
        yield "dropped", ast.Pass()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign", node.operand
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in SWAPS:
        yield f"{node.id} swapped", ast.Name(SWAPS[node.id], ast.Load())


def expressions(tree):
    """Every (parent, field, index) of the body that holds an expression, or a statement that adds to
    or scales what is there; no annotation, no index."""
    body = ast.Module(tree.body[0].body, [])
    for parent in ast.walk(body):
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "slice"):
                continue
            for i, x in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(x, ast.expr | ast.AugAssign):
                    yield parent, field, i if isinstance(value, list) else None


def mutants(f):
    """(description, code) of every single-term mutation of a function."""
    source = textwrap.dedent(inspect.getsource(f))
    tree = ast.parse(source)
    arguments = {a.arg for a in (*tree.body[0].args.args, *tree.body[0].args.kwonlyargs)}
    names = arguments | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    for at, _ in enumerate(expressions(tree)):
        parent, field, i = list(expressions(tree))[at]
        node = getattr(parent, field) if i is None else getattr(parent, field)[i]
        for k, (what, instead) in enumerate(variants(node)):
            if what.endswith("swapped") and instead.id not in names:
                continue
            changed = copy.deepcopy(tree)
            p, field2, j = list(expressions(changed))[at]
            old = getattr(p, field2) if j is None else getattr(p, field2)[j]
            new = list(variants(old))[k][1]
            if j is None:
                setattr(p, field2, new)
            else:
                getattr(p, field2)[j] = new
            changed.body[0].decorator_list = []
            space = dict(f.__globals__)
            exec(compile(ast.fix_missing_locations(changed), "mutant", "exec"), space)
            yield f"{what}: {ast.unparse(node)}", space[f.__name__].__code__


#: function → what of the cases' names it shows in.
EQUATIONS = {
    per_fedavg.meta_gradient: "per-fedavg",
    per_fedavg.meta_gradient_fo: "per-fedavg-fo",
    per_fedavg.meta_gradient_hf: "per-fedavg-hf",
    per_fedavg.meta_gradient_steps: "per-fedavg-steps",
    per_fedavg.local_step: "per-fedavg",
    per_fedavg.PerFedAvg.personal: "evaluate-per-fedavg",
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
    fedcurv.FedCurv.start: "fedcurv",
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
    lstm.LSTM.unread: "lstm",
    lstm.LSTM.share: "lstm",
    lstm.forward: "lstm",
    lstm.backward: "lstm",
    lstm.R_forward: "lstm",
    lstm.R_backward: "lstm",
    lstm.gate_scales: "lstm",
    base.weighted_sum: "round-fedavg",
    base.Cohort.weights: "round",
}
#: Mutations that change nothing.
SAME = {
    ("dissimilarity", "sign: -1"),  # an axis: the last of two is 1
    ("R_backward", "sign: -1"),  # an axis, likewise
    ("sum_over_units", "left dropped: lead + 1"),  # one client at a time has no leading axes
}


def moved(cases):
    """Whether some case moves by more than 100 of its tolerances."""
    for case in cases:
        reply = suite.call_safely(LOOP, case)
        if reply is None or reply.outputs is None:
            return True
        wide = case._replace(tolerance={"float64": make.CAUGHT * case.tolerance["float64"]})
        if suite.compare({k: np.asarray(x) for k, x in reply.outputs.items()}, wide) is not None:
            return True
    return False


@pytest.mark.parametrize("f", EQUATIONS, ids=lambda f: f.__qualname__)
def test_a_single_term_mutation_moves_a_case(f, monkeypatch):
    cases = [c for c in CASES if EQUATIONS[f] in c.name]
    cases.sort(key=lambda c: (c.call == "round", "mlp" not in c.name))
    assert not moved(cases[:3])
    original, survivors, tried = f.__code__, [], 0
    for what, code in mutants(f):
        tried += 1
        try:
            f.__code__ = code
            if (f.__name__, what) not in SAME and not moved(cases):
                survivors.append(what)
        finally:
            f.__code__ = original
    assert survivors == []
    assert tried or f is fedcurv.FedCurv.start


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


def test_the_right_thing_passes():
    assert {r.status for r in suite.run(LOOP, CASES)} == {PASSED}
