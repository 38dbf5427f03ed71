"""`fedref check` fails if any function of any algorithm's class is wrong: what it proves is what runs."""

import numpy as np
import pytest

from fedref import proofs, tree
from fedref.algorithm import Cohort
from fedref.algorithms import ALGORITHMS, fedcurv, fedmeta, fedprox, per_fedavg
from fedref.algorithms.apfl import APFL
from fedref.algorithms.fedcurv import FedCurv
from fedref.algorithms.fedmeta import MAML, MetaSGD
from fedref.algorithms.fedprox import FedProx
from fedref.algorithms.per_fedavg import PerFedAvg, PerFedAvgFO, PerFedAvgHF
from fedref.proofs import rounds

#: Algorithm → a tag under which its rounds are proved.
PROVED = {
    "fedavg": "apfl eq.1",
    "fedavg-update": "apfl eq.2",
    "fedavg-meta": "apfl eq.2",
    "fedprox": "fedprox alg.2",
    "per-fedavg": "per-fedavg alg.1",
    "per-fedavg-fo": "per-fedavg §3.3",
    "per-fedavg-hf": "per-fedavg eq.7",
    "fedmeta-maml": "fedmeta server",
    "fedmeta-fomaml": "fedmeta MAML",
    "fedmeta-sgd": "fedmeta Meta-SGD",
    "fedmaml": "fedmaml §3.2",
    "fedcurv": "fedcurv penalty",
    "apfl": "apfl alg.1",
    "centralised": "apfl §4.1.1",
}


def fails(tag):
    """Whether a proof of that tag fails: rounds first, and none after the first that does."""
    chosen = sorted(proofs.select([tag]), key=lambda proof: "rounds" not in proof.claim)
    return any(proof.run(0).verdict == "FAIL" for proof in chosen)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_rounds_of_every_algorithm_are_proved_one_by_one_and_stacked(name, monkeypatch):
    ran = set()

    def watched(algorithm, *args, work, **more):
        ran.add((type(algorithm), work.keywords["stack"]))
        return rounds_run(algorithm, *args, work=work, **more)

    rounds_run = rounds.run_round
    monkeypatch.setattr(rounds, "run_round", watched)
    for proof in proofs.select([PROVED[name]]):
        if "rounds" in proof.claim and "bit for bit" not in proof.claim:
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
    "finish": upload_off, "combine": result_off, "personal": result_off,
    "diagnose": log_off, "log": log_off, "observe": ignored, "stop": inverted,
}  # fmt: skip
ALWAYS = {"initial", "download", "start", "step", "finish", "combine", "personal"}
#: Where these are proved, if not with the rounds.
ELSEWHERE = {("fedprox", "observe"): "fedprox μ", ("fedprox", "stop"): "fedprox γ"}


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
    assert fails(ELSEWHERE.get((name, function), PROVED[name]))


@pytest.mark.parametrize("name", [n for n, cls in ALGORITHMS.items() if cls.personalised])
def test_an_algorithm_tested_without_adaptation_is_caught(name, monkeypatch):
    monkeypatch.setattr(ALGORITHMS[name], "personalised", False)
    assert fails(PROVED[name])


# Edits that once went unnoticed, all at once


def prox_pushes(self, model, sent, local, *batches):
    (D,) = batches
    return local - self.lr * fedprox.prox_gradient(model, local, sent.w, D, mu=-sent.mu)


def observe_inverted(self, server, loss):
    right = RIGHT[FedProx, "observe"]
    return right(self, server, -loss)


def stop_inverted(self, model, sent, local, data):
    return not RIGHT[FedProx, "stop"](self, model, sent, local, data)


def pull_at_sent(self, model, sent, local, *batches):
    (D,) = batches
    pull = fedcurv.penalty_gradient(
        sent.w, sent.u, sent.v, local.own_u, local.own_v, lam=self.lam
    )  # fmt: skip
    return local._replace(theta=local.theta - self.lr * (model.grad(local.theta, D) + pull))


def own_term_always(self, model, sent, client_state):
    if client_state is None:
        return RIGHT[FedCurv, "start"](self, model, sent, None)
    return fedcurv.Local(sent.w, client_state.I, client_state.v)


def fo_negated(self, model, w, *batches):
    return -per_fedavg.meta_gradient_fo(model, w, *batches, alpha=self.alpha)


def hf_uphill(self, model, w, *batches):
    return per_fedavg.meta_gradient_hf(model, w, *batches, alpha=-self.alpha, delta=self.delta)


def hf_delta_one(self, model, w, *batches):
    return per_fedavg.meta_gradient_hf(model, w, *batches, alpha=self.alpha, delta=1.0)


def meta_sgd_uphill(self, model, sent, local, *batches):
    g = fedmeta.meta_sgd_gradient(
        model, local.theta, -local.alpha, *batches, steps=self.inner_steps
    )  # fmt: skip
    return fedmeta.Learner(*g)


def support_for_query(self, model, sent, local, *batches):
    return RIGHT[MetaSGD, "step"](self, model, sent, local, *reversed(batches))


def penalty_flipped_before_the_start(self, model, sent, local, *batches):
    if local.own is None:
        sent = sent._replace(F=-sent.F)
    return RIGHT[APFL, "step"](self, model, sent, local, *batches)


def uphill_at_test_time(self, model, sent, client_state, D):
    return sent.w if D is None else sent.w + self.alpha * model.grad(sent.w, D)


def counts_ignored(self, weighting):
    return RIGHT[Cohort, "weights"](self._replace(counts=np.ones_like(self.counts)), weighting)


EDITS = [
    (FedProx, "step", prox_pushes, "fedprox alg.2"),
    (FedProx, "observe", observe_inverted, "fedprox μ"),
    (FedProx, "stop", stop_inverted, "fedprox γ"),
    (FedCurv, "step", pull_at_sent, "fedcurv penalty"),
    (FedCurv, "start", own_term_always, "fedcurv penalty"),
    (PerFedAvgFO, "gradient", fo_negated, "per-fedavg §3.3"),
    (PerFedAvgHF, "gradient", hf_uphill, "per-fedavg eq.7"),
    (PerFedAvgHF, "gradient", hf_delta_one, "per-fedavg eq.7"),
    (MetaSGD, "step", meta_sgd_uphill, "fedmeta Meta-SGD"),
    (MetaSGD, "step", support_for_query, "fedmeta Meta-SGD"),
    (APFL, "observe", ignored(None), "apfl alg.1 lines 9–16"),
    (APFL, "step", penalty_flipped_before_the_start, "apfl alg.1"),
    (PerFedAvg, "personal", uphill_at_test_time, "per-fedavg alg.1"),
    (Cohort, "weights", counts_ignored, "apfl eq.1"),
]
RIGHT = {(owner, name): getattr(owner, name) for owner, name, _, _ in EDITS}


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "tag"),
    EDITS,
    ids=[f"{owner.__name__}.{name}: {wrong.__name__}" for owner, name, wrong, _ in EDITS],
)
def test_an_edit_that_once_went_unnoticed_is_caught(owner, name, wrong, tag, monkeypatch):
    monkeypatch.setattr(owner, name, wrong)
    assert fails(tag)


def test_adam_that_forgets_is_caught(monkeypatch):
    """Right in the first round, and sign descent from the second on."""
    right = MAML.combine

    def forgets(self, model, server, uploads, cohort):
        fresh = self.initial(model, server.learner.theta).adam
        return right(self, model, server._replace(adam=fresh), uploads, cohort)

    monkeypatch.setattr(MAML, "combine", forgets)
    assert fails("fedmeta server")
