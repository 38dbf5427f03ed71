"""`fedref check` fails if any function of any algorithm's class is wrong, and for lines that are."""

import inspect
import textwrap

import numpy as np
import pytest

from fedref import proofs, sampling, tree
from fedref.algorithm import Cohort
from fedref.algorithms import (
    ALGORITHMS,
    apfl,
    fedcurv,
    fedmaml,
    fedmeta,
    fedprox,
    importance,
    per_fedavg,
)
from fedref.models import CNN, MLP, BinaryLogistic, LinearSVM, Logistic, cnn
from fedref.proofs import rounds, whole_rounds


def some_proof_fails(chosen):
    """None is run after the first that fails."""
    return any(proof.run(0).verdict == "FAIL" for proof in chosen)


def fails(chosen):
    """Whether a proof fails: rounds first."""
    return some_proof_fails(sorted(chosen, key=lambda p: "rounds" not in p.claim))


def proofs_of(name):
    """The rows of whole rounds that this algorithm has."""
    rows = (row for row in whole_rounds.TABLE if type(row.algorithm) is ALGORITHMS[name])
    tags = {row.tag for row in rows}
    kind = f"of {ALGORITHMS[name].__name__}("
    return [p for p in proofs.PROOFS if p.tag in tags and kind in p.claim]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_rounds_of_every_algorithm_are_proved_one_by_one_and_stacked(name, monkeypatch):
    ran = set()

    def watched(algorithm, *args, work, **more):
        ran.add((type(algorithm), work.keywords["stack"]))
        return rounds_run(algorithm, *args, work=work, **more)

    rounds_run = rounds.run_round
    monkeypatch.setattr(rounds, "run_round", watched)
    for proof in proofs_of(name):
        assert proof.run(0).verdict == "ok"
    assert {(ALGORITHMS[name], False), (ALGORITHMS[name], True)} <= ran


# One wrong edit of each function of each class


def off(x):
    """Every floating-point number of a tree a hundredth larger."""

    def larger(x):
        return x * 1.01 if np.issubdtype(np.asarray(x).dtype, np.inexact) else x

    return tree.map(larger, x)


def result_off(right):
    return lambda *a: off(right(*a))


def upload_off(right):
    return lambda *a: (result := right(*a))._replace(upload=off(result.upload))


def log_off(right):
    return lambda *a: {name: 1.01 * value + 1 for name, value in right(*a).items()}


def ignored(right):
    return lambda self, server, loss: server


def inverted(right):
    return lambda *a: not right(*a)


WRONG = {
    "initial": result_off, "download": result_off, "start": result_off, "step": result_off,
    "finish": upload_off, "combine": result_off, "personalised_params": result_off,
    "client_metrics": log_off, "server_metrics": log_off, "observe_loss": ignored, "stop": inverted,
}  # fmt: skip
ALWAYS = {"initial", "download", "start", "step", "finish", "combine", "personalised_params"}
#: Where these are proved, if not with the rounds.
ELSEWHERE = {("fedprox", "observe_loss"): "fedprox μ", ("fedprox", "stop"): "fedprox γ"}


def functions_of(cls):
    """What the algorithm writes itself, and what any algorithm must have right."""
    bases = [base for base in cls.__mro__ if base.__module__.startswith("fedref.algorithms.")]
    return sorted(ALWAYS | (WRONG.keys() & {name for base in bases for name in vars(base)}))


@pytest.mark.parametrize(
    ("name", "function"),
    [(name, f) for name, cls in ALGORITHMS.items() for f in functions_of(cls)],
)
def test_a_wrong_function_of_a_class_is_caught(name, function, monkeypatch):
    cls = ALGORITHMS[name]
    monkeypatch.setattr(cls, function, WRONG[function](getattr(cls, function)))
    elsewhere = ELSEWHERE.get((name, function))
    assert fails(proofs.select([elsewhere]) if elsewhere else proofs_of(name))


@pytest.mark.parametrize("name", [n for n, cls in ALGORITHMS.items() if cls.personalised])
def test_an_algorithm_tested_without_adaptation_is_caught(name, monkeypatch):
    monkeypatch.setattr(ALGORITHMS[name], "personalised", False)
    assert fails(proofs_of(name))


# Wrong functions: (where, name, factor of the result, tag)

SCALED = [
    (Logistic, "loss", 1 + 1e-9, "Logistic loss"),
    (Logistic, "grad", 1 + 1e-9, "Logistic grad"),
    (BinaryLogistic, "hvp", 1 + 1e-9, "BinaryLogistic hvp"),
    (LinearSVM, "hvp", 0.5, "LinearSVM squared hvp"),
    (MLP, "hvp", 1 + 1e-9, "MLP tanh hvp"),
    (CNN, "grad", 1 + 1e-9, "CNN deep grad"),
    (CNN, "hvp", 0.0, "CNN relu max hvp"),
    (fedprox, "prox_gradient", 1 + 1e-9, "fedprox alg.2"),
    (fedprox, "inexactness", 0.5, "fedprox γ"),
    (per_fedavg, "meta_gradient", 1 + 1e-9, "per-fedavg eq.3"),
    (per_fedavg, "meta_gradient", 1 + 1e-9, "per-fedavg eq.6"),
    (per_fedavg, "meta_gradient", 1 + 1e-9, "per-fedavg alg.1"),
    (per_fedavg, "meta_gradient_hf", 1 + 1e-9, "per-fedavg eq.8"),
    (per_fedavg, "local_step", 1 + 1e-9, "per-fedavg eq.5"),
    (fedmeta, "maml_gradient", 1 + 1e-9, "fedmeta server"),
    (apfl, "compose", 1 + 1e-9, "apfl eq.3"),
    (apfl, "objective", 1 + 1e-9, "apfl eq.4"),
    (apfl, "penalty_gradient", 0.0, "apfl eq.6"),
    (apfl, "penalty_gradient", 0.0, "apfl alg.1"),
    (apfl, "importance_update", 1 + 1e-9, "apfl eq.5"),
]


@pytest.mark.parametrize(
    ("owner", "name", "factor", "tag"),
    SCALED,
    ids=[f"{owner.__name__}.{name}: {tag}" for owner, name, _, tag in SCALED],
)
def test_a_scaled_function_is_caught(owner, name, factor, tag, monkeypatch):
    right = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *a, **k: right(*a, **k) * factor)
    assert fails(proofs.select([tag]))


# Wrong lines

#: Wrong lines that are no known mistakes, and edits that once went unnoticed: what is wrong → the tag
#: of a proof that fails, the function, the right text and the wrong one.
EDITS = {
    "a loss is added to a count": (
        "fedmeta MAML", fedmeta.MAML.combine, "cohort.weights(self.weighting)",
        "(p := cohort.n + uploads.theta.sum(-1)) / p.sum()",
    ),
    "the Fisher of batches": (
        "fedcurv Fisher", importance.fisher, "return total",
        "parts = [Batch(D.X[i::4], D.y[i::4]) for i in range(4)]\n"
        "return np.mean([model.grad(w, part) ** 2 for part in parts], 0)",
    ),
    "MAS of squares": ("apfl eq.5", importance.mas, "np.abs(", "np.square("),
    "the last of ties": (
        "CNN ties", CNN.argmax_mask, "nx.argmax_mask(windows_first(z))",
        "nx.argmax_mask(windows_first(z)[..., ::-1, :, :])[..., ::-1, :, :]",
    ),
    "height for width": ("CNN tanh mean grad", cnn.windows, "(h, w, _) = grid", "(w, h, _) = grid"),
    "the last inner step alone": (
        "fedmaml §3.2", fedmaml.meta_gradient, "in reversed(path):", "in path[-1:]:",
    ),
    "the peak is never cleared": (
        "apfl alg.1 line 14", apfl.PlateauDetector.push, "std_old=std, peak=False", "std_old=std",
    ),
    "a mean at δ_μ is below it": (
        "apfl alg.1 line 10", apfl.PlateauDetector.push, "mean < self.delta_mu",
        "mean <= self.delta_mu",
    ),
    "a deviation at δ_σ is below it": (
        "apfl alg.1 line 10", apfl.PlateauDetector.push, "std < self.delta_sigma",
        "std <= self.delta_sigma",
    ),
    "a mean at the old one is a peak": (
        "apfl alg.1 line 14", apfl.PlateauDetector.push, "mean > self.mean_old",
        "mean >= self.mean_old",
    ),
    "own term never subtracted": (
        "fedcurv penalty", fedcurv.FedCurv.start, "client_state is not None", "False",
    ),
    "L2 is declared, not applied": (
        "LinearSVM squared grad", LinearSVM.grad, "return g + self.l2 * w if self.l2 else g",
        "return g",
    ),
    "the penalty pushes": ("fedprox alg.2", fedprox.FedProx.step, "mu=sent.mu", "mu=-sent.mu"),
    "the loss is observed inverted": (
        "fedprox μ", fedprox.FedProx.observe_loss, "before, loss)", "-before, -loss)",
    ),
    "clients stop when they must not": ("fedprox γ", fedprox.FedProx.stop, "<=", ">"),
    "the pull is that at the start": (
        "fedcurv penalty", fedcurv.FedCurv.step, "penalty_gradient(theta,",
        "penalty_gradient(sent.w,",
    ),
    "first order uphill": (
        "per-fedavg §3.3", per_fedavg.PerFedAvgFO.gradient, "return meta_gradient_fo",
        "return -meta_gradient_fo",
    ),
    "HF: the inner step goes uphill": (
        "per-fedavg eq.7", per_fedavg.PerFedAvgHF.gradient, "alpha=self.alpha", "alpha=-self.alpha",
    ),
    "HF: δ = 1": (
        "per-fedavg eq.7", per_fedavg.PerFedAvgHF.gradient, "delta=self.delta", "delta=1.0",
    ),
    "Meta-SGD goes uphill": (
        "fedmeta Meta-SGD", fedmeta.MetaSGD.gradient, "*learner, S",
        "learner.theta, -learner.alpha, S",
    ),
    "the support is the query": (
        "fedmeta Meta-SGD", fedmeta.MetaSGD.gradient, "learner, S, Q", "learner, Q, S",
    ),
    "losses are not observed": (
        "apfl alg.1", apfl.APFL.observe_loss, "detector, renew = server",
        "return server\ndetector, renew = server",
    ),
    "the penalty is flipped before the start": (
        "apfl alg.1", apfl.APFL.step, "mu=self.mu)", "mu=self.mu if own else -self.mu)",
    ),
    "uphill at test time": (
        "per-fedavg alg.1", per_fedavg.PerFedAvg.personalised_params, "alpha=self", "alpha=-self",
    ),
    "draws are not counted": (
        "apfl eq.1", Cohort.weights, "self.counts *", "np.ones_like(self.counts) *",
    ),
    "one iterator, that wraps": (
        "plan", sampling.client_batches,
        "minibatches(stream(seed, role, round, client), n, config, amount)",
        'np.roll(minibatches(stream(seed, "D", round, client), n, config, amount), '
        "-roles.index(role), 0)",
    ),
    "stragglers' epochs depend on a client's size": (
        "plan", sampling.make_plan, "np.where(straggler, less, config.amount)",
        "np.where(straggler, 1 + np.roll(n, 1) * 7 % config.amount, config.amount)",
    ),
    "the cohort ignores the seed": (
        "plan", sampling.make_plan, "cohort(config, sizes, round, seed)",
        "cohort(config, sizes, round, 0)",
    ),
    "stragglers do not work for all epochs": (
        "plan", sampling.make_plan, "config.amount + 1", "max(config.amount, 2)",
    ),
}  # fmt: skip


def put_line(monkeypatch, function, right, wrong):
    """Give the function the code that it has with `wrong` in the place of `right`."""
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(right) == 1
    at = text.index(right)
    line = text[text.rindex("\n", 0, at) + 1 : at]
    indent = line[: len(line) - len(line.lstrip())]
    names = dict(function.__globals__)
    text = text.replace(right, wrong.replace("\n", f"\n{indent}"))
    exec(text[text.index("def ") :], names)
    monkeypatch.setattr(function, "__code__", names[function.__name__].__code__)


@pytest.mark.parametrize("name", EDITS)
def test_a_wrong_line_is_caught(name, monkeypatch):
    tag, *edit = EDITS[name]
    put_line(monkeypatch, *edit)
    assert some_proof_fails(proofs.select([tag]))
