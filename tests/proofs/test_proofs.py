"""Every proof holds, every equation tag has one, and a wrong function is caught."""

import math
import re

import numpy as np
import pytest
from test_equation_index import INDEXED, PACKAGE, PAPERS, TAGS

from fedref import proofs
from fedref.algorithm import Cohort
from fedref.algorithms import (
    apfl,
    fedcurv,
    fedmaml,
    fedmeta,
    fedprox,
    importance,
    per_fedavg,
)
from fedref.boundary.errors import ConfigError
from fedref.checks import Report, check_gradient, check_hvp, stack_equals_loop
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic, cnn
from fedref.models.batch import Batch
from fedref.proofs import oracle


@pytest.mark.parametrize("proof", proofs.PROOFS, ids=lambda p: f"{p.tag}: {p.claim}")
def test_proof(proof):
    row = proof.run(seed=0)
    assert row.verdict == "ok", row
    assert row.error <= row.bound <= 1e-12
    assert not row.note
    if row.order and not proof.exact:
        assert abs(row.slope - row.order) <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_other_seeds(seed):
    assert [row for row in proofs.run(seed=seed) if row.verdict != "ok"] == []


# Tags

PROVED = {proof.tag for proof in proofs.PROOFS}
#: A tag that says which paper, whichever that is: [fedavg eq.1], [apfl §3.3, alg.1 lines 9–16].
ANY_PAPER = re.compile(r"\[([a-z][a-z0-9-]*) ((?:eq\.|alg\.|§)[^\]\n]*)\]")


def test_papers_are_those_of_the_algorithms():
    assert {"per-fedavg", "fedprox", "fedmeta", "fedmaml", "fedcurv", "apfl"} <= set(PAPERS)
    found = {
        paper
        for folder in ("algorithms", "proofs")
        for path in (PACKAGE / folder).glob("*.py")
        for paper, _ in ANY_PAPER.findall(path.read_text("utf-8"))
    }
    assert found - set(PAPERS) == set(), "no file of algorithms/ has that name"


@pytest.mark.parametrize("tag", TAGS)
def test_every_equation_tag_of_algorithms_has_a_proof(tag):
    assert tag in PROVED


@pytest.mark.parametrize("tag", INDEXED)
def test_every_tag_of_the_readme_s_index_has_a_proof(tag):
    assert tag in PROVED


def test_every_proof_of_a_paper_has_its_tag_in_the_files():
    tags = {tag for tag in PROVED if tag.split()[0] in PAPERS}
    assert len(tags) > 20
    assert tags - set(TAGS) == set()


WHATS = ("loss", "grad", "hvp", "stack", "vjp", "labels")


def test_every_model_has_its_six_rows():
    tags = [p.tag for p in proofs.PROOFS]
    models = list(proofs.MODELS.values())
    assert {type(m) for m in models} == {BinaryLogistic, Logistic, LinearSVM, MLP, CNN, LSTM}
    assert {m.activation for m in models if isinstance(m, MLP)} == {"elu", "relu", "tanh"}
    assert {m.pool for m in models if isinstance(m, CNN)} == {"max", "mean"}
    assert {m.squared for m in models if isinstance(m, LinearSVM)} == {True, False}
    for name in proofs.MODELS:
        assert all(f"{name} {what}" in tags for what in WHATS)


# A wrong function is caught. (owner, name, a wrong version made of the right one, tag)


def scaled(by):
    return lambda right: lambda *a, **k: right(*a, **k) * by


def first_order(right):
    return lambda *a, **k: right(*a, **{**k, "second_order": False})


def alpha_gradient_is_theta_gradient(right):
    def wrong(*a, **k):
        g_theta, _ = right(*a, **k)
        return g_theta, g_theta

    return wrong


def without_hessian(right):
    def wrong(model, w, D, D1, D2, *, alpha):
        return per_fedavg.meta_gradient_fo(model, w, D, D1, alpha=alpha)

    return wrong


def flipped_difference(right):
    def wrong(model, w, D, D1, D2, **k):
        u = per_fedavg.meta_gradient_fo(model, w, D, D1, alpha=k["alpha"])
        return 2 * u - right(model, w, D, D1, D2, **k)

    return wrong


def squared_mean(right):
    return lambda model, w, D: model.grad(w, D) ** 2


def last_inner_step_only(right):
    def wrong(model, theta, tr, val, *, alpha, steps):
        theta = fedmaml.adapt(model, theta, tr, alpha=alpha, steps=steps - 1)
        return right(model, theta, tr, val, alpha=alpha, steps=1)

    return wrong


def own_term_kept(right):
    return lambda theta, u, v, own_u, own_v, *, lam: right(theta, u, v, 0.0, 0.0, lam=lam)


def penalty_forgotten(right):
    return lambda *a, **k: right(*a, **{**k, "mu": 0.0})


def counts_as_weights(right):
    return lambda self, weighting: self.counts / self.counts.sum()


def counter_not_reset(right):
    def wrong(mu, falls, before, loss):
        after, now = right(mu, falls, before, loss)
        return after, 4 if falls == 4 and loss < before else now

    return wrong


def peak_never_cleared(right):
    def wrong(self, loss):
        after, renew = right(self, loss)
        return after._replace(peak=after.peak or renew), renew

    return wrong


def last_of_ties(right):
    return lambda self, l, z: None if (first := right(self, l, z[..., ::-1, :])) is None else (
        cnn.windows_first(cnn.windows_last(first)[..., ::-1, :])
    )  # fmt: skip


def height_for_width(right):
    def wrong(a, grid, k):
        (h, w, c) = grid.after
        return right(a, grid._replace(after=(w, h, c)), k)

    return wrong


MUTANTS = [
    (Logistic, "loss", scaled(1 + 1e-9), "Logistic loss"),
    (Logistic, "grad", scaled(1 + 1e-9), "Logistic grad"),
    (BinaryLogistic, "hvp", scaled(1 + 1e-9), "BinaryLogistic hvp"),
    (LinearSVM, "hvp", scaled(0.5), "LinearSVM squared hvp"),
    (MLP, "hvp", scaled(1 + 1e-9), "MLP tanh hvp"),
    (CNN, "grad", scaled(1 + 1e-9), "CNN deep grad"),
    (CNN, "hvp", scaled(0.0), "CNN relu max hvp"),
    (CNN, "argmax_mask", last_of_ties, "CNN ties"),
    (cnn, "windows", height_for_width, "CNN tanh mean grad"),
    (Cohort, "weights", counts_as_weights, "apfl eq.1"),
    (fedprox, "prox_gradient", scaled(1 + 1e-9), "fedprox alg.2"),
    (fedprox, "inexactness", scaled(0.5), "fedprox γ"),
    (fedprox, "adapt_mu", counter_not_reset, "fedprox μ"),
    (per_fedavg, "meta_gradient", without_hessian, "per-fedavg eq.3"),
    (per_fedavg, "meta_gradient", without_hessian, "per-fedavg eq.6"),
    (per_fedavg, "meta_gradient", without_hessian, "per-fedavg alg.1"),
    (per_fedavg, "meta_gradient_hf", flipped_difference, "per-fedavg eq.7"),
    (per_fedavg, "meta_gradient_hf", flipped_difference, "per-fedavg eq.8"),
    (fedmeta, "maml_gradient", first_order, "fedmeta MAML"),
    (fedmeta, "maml_gradient", first_order, "fedmeta server"),
    (fedmeta, "meta_sgd_gradient", alpha_gradient_is_theta_gradient, "fedmeta Meta-SGD"),
    (fedmaml, "meta_gradient", last_inner_step_only, "fedmaml §3.2"),
    (fedcurv, "penalty_gradient", own_term_kept, "fedcurv penalty"),
    (fedcurv, "fisher", squared_mean, "fedcurv penalty"),
    (importance, "fisher", squared_mean, "fedcurv Fisher"),
    (importance, "mas", squared_mean, "apfl eq.5"),
    (apfl, "compose", scaled(1 + 1e-9), "apfl eq.3"),
    (apfl, "penalty_gradient", penalty_forgotten, "apfl eq.6"),
    (apfl, "penalty_gradient", penalty_forgotten, "apfl alg.1"),
    (apfl.PlateauDetector, "push", peak_never_cleared, "apfl alg.1 line 14"),
]


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "tag"),
    MUTANTS,
    ids=[f"{owner.__name__}.{name}: {tag}" for owner, name, _, tag in MUTANTS],
)
def test_a_wrong_function_is_caught(owner, name, wrong, tag, monkeypatch):
    monkeypatch.setattr(owner, name, wrong(getattr(owner, name)))
    assert "FAIL" in [row.verdict for row in proofs.run([tag])]


def test_a_wrong_slope_alone_is_caught(monkeypatch):
    """HF with a δ of its own: right at one δ, but not of second order in it."""
    right = per_fedavg.meta_gradient_hf

    def wrong(*batches, alpha, delta):
        return right(*batches, alpha=alpha, delta=delta if delta == 0.1 else delta**0.5)

    monkeypatch.setattr(per_fedavg, "meta_gradient_hf", wrong)
    row, *_ = proofs.run(["per-fedavg eq.7"])
    assert row.error < 1e-12
    assert row.slope == pytest.approx(1, abs=0.1)
    assert row.verdict == "FAIL"


def test_nan_fails(monkeypatch):
    monkeypatch.setattr(Logistic, "grad", lambda self, w, D: w * math.nan)
    (row,) = proofs.run(["Logistic grad"])[-1:]
    assert row.verdict == "FAIL"


def test_an_exception_fails_and_is_told(monkeypatch):
    monkeypatch.setattr(apfl, "compose", lambda *a: 1 / 0)
    (row,) = proofs.run(["apfl eq.3"])
    assert row.verdict == "FAIL"
    assert math.isnan(row.error)
    assert row.note == "ZeroDivisionError: division by zero"


def test_a_slope_of_inf_passes_only_where_f_is_quadratic(monkeypatch):
    flat = proofs.Proof("flat", "", lambda c: iter([Report(0.0, math.inf, 3)]), proofs.ONE, False)
    assert flat.run(0).verdict == "FAIL"
    assert flat._replace(exact=True).run(0).verdict == "ok"


# Which proofs


def tags_of(rows):
    return {proof.tag for proof in rows}


def test_select():
    assert tags_of(proofs.select([])) == tags_of(proofs.PROOFS)
    assert tags_of(proofs.select(["apfl alg.1"])) == {"apfl alg.1"}  # a whole tag, not its lines
    assert tags_of(proofs.select(["[Per-FedAvg EQ.3]"])) == {"per-fedavg eq.3"}
    assert tags_of(proofs.select(["fedprox"])) == {
        "fedprox alg.2", "fedprox γ", "fedprox B", "fedprox μ"
    }  # fmt: skip
    assert tags_of(proofs.select(["MLP elu grad", "apfl eq.4"])) == {"MLP elu grad", "apfl eq.4"}


@pytest.mark.parametrize(
    ("name", "near"), [("per-fedavg eq.66", "per-fedavg eq.6"), ("fedmeta mml", "fedmeta MAML")]
)
def test_unknown_tag_names_the_nearest(name, near):
    with pytest.raises(ConfigError, match=re.escape(f"did you mean {near!r}?")):
        proofs.select([name])


def test_a_blank_tag_is_not_everything():
    with pytest.raises(ConfigError):
        proofs.select([" "])


def test_a_selection_changes_no_row_and_seeds_do():
    whole = {(row.tag, row.claim): row for row in proofs.run(["fedprox", "apfl eq.4"], seed=3)}
    for row in proofs.run(["fedprox B", "apfl eq.4"], seed=3):
        assert row == whole[row.tag, row.claim]
    assert proofs.run(["fedprox alg.2"], seed=4) != proofs.run(["fedprox alg.2"], seed=3)


def test_the_oracle_sees_kinks():
    model = LinearSVM(1, bias=True)
    D = Batch(np.array([[1.0]]), np.array([1]))
    sides = [oracle.sides(model, np.array([w, 0.0]), D) for w in (0.9, 1.1)]
    assert sides == [[[True]], [[False]]]


# The conveniences of fedref.checks


def f(w):
    return np.sum(w**4)


def grad(w):
    return 4 * w**3


def hvp(w, v):
    return 12 * w**2 * v


W = np.array([0.3, -1.2, 0.7])


def test_check_gradient():
    report = check_gradient(f, grad, W)
    assert report.ok
    assert report.error < 1e-15
    assert report.slope == pytest.approx(2, abs=0.01)
    assert check_gradient(f, grad, W, np.ones(3)).ok
    for wrong in (lambda w: 4.001 * w**3, lambda w: w**3, lambda w: w * np.nan):
        assert check_gradient(f, wrong, W).verdict == "FAIL"
    assert check_gradient(lambda w: w @ W, lambda w: W, W).slope == math.inf


def test_check_hvp():
    assert check_hvp(f, grad, hvp, W).slope == pytest.approx(3, abs=0.01)
    assert check_hvp(f, grad, hvp, W, np.ones(3)).ok
    assert check_hvp(f, grad, lambda w, v: 11 * w**2 * v, W).verdict == "FAIL"


def test_stack_equals_loop():
    x, y = np.random.default_rng(0).normal(size=(2, 5, 3))
    assert stack_equals_loop(lambda x, y: x @ y.T if x.ndim == 1 else (x * y).sum(-1), x, y).ok
    assert stack_equals_loop(lambda p: (p[0] + p[1], p[0]), (x, y)).error == 0
    assert not stack_equals_loop(lambda p: (p[0] + p[1], p[0] - p[0].mean()), (x, y)).ok
    with pytest.raises(ValueError, match="one length K"):
        stack_equals_loop(lambda x, y: x, x, y[:2])
    with pytest.raises(ValueError, match="one length K"):
        stack_equals_loop(np.exp, 1.0)
