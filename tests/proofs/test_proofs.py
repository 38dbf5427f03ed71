"""Every proof holds, every equation tag has one, and errors and NaN make one fail."""

import math
import re

import pytest
from test_equation_index import PACKAGE, PAPERS, TAGS

from fedref import proofs
from fedref.algorithms import apfl, per_fedavg
from fedref.boundary.errors import ConfigError
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic


@pytest.mark.parametrize("proof", proofs.PROOFS, ids=lambda p: f"{p.tag}: {p.claim}")
def test_proof(proof):
    row = proof.run(seed=0)
    assert row.verdict == "ok", row
    assert row.error <= row.bound <= 1e-12
    assert not row.note


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


def test_every_tag_of_the_files_has_a_proof_and_every_proof_its_tag():
    assert {*TAGS} - PROVED == set()
    tags = {tag for tag in PROVED if tag.split()[0] in PAPERS}
    assert len(tags) > 20
    assert tags - set(TAGS) == set()


WHATS = ("loss", "dual", "grad", "hvp", "stack", "vjp", "labels")


def test_every_model_has_its_rows():
    tags = [p.tag for p in proofs.PROOFS]
    models = list(proofs.MODELS.values())
    assert {type(m) for m in models} == {BinaryLogistic, Logistic, LinearSVM, MLP, CNN, LSTM}
    assert {m.activation for m in models if isinstance(m, MLP)} == {"elu", "relu", "tanh"}
    assert {m.pool for m in models if isinstance(m, CNN)} == {"max", "mean"}
    assert {m.squared for m in models if isinstance(m, LinearSVM)} == {True, False}
    for name in proofs.MODELS:
        assert all(f"{name} {what}" in tags for what in WHATS)


# Verdicts


def test_an_order_that_is_wrong_alone_is_caught(monkeypatch):
    """HF that is right at 0.1 and the default, but not of second order in δ."""
    right = per_fedavg.meta_gradient_hf

    def wrong(*batches, alpha, delta=None):
        if delta is None:
            return right(*batches, alpha=alpha)
        return right(*batches, alpha=alpha, delta=delta if delta == 0.1 else delta**0.5)

    monkeypatch.setattr(per_fedavg, "meta_gradient_hf", wrong)
    (row,) = (row for row in proofs.run(["per-fedavg eq.7"]) if "δ²" in row.claim)
    assert row.verdict == "FAIL"
    assert "of the error" in row.note


def test_nan_fails(monkeypatch):
    monkeypatch.setattr(Logistic, "grad", lambda self, w, D: w * math.nan)
    (row,) = proofs.run(["Logistic grad"])[-1:]
    assert row.verdict == "FAIL"


def test_an_exception_fails_and_is_noted(monkeypatch):
    monkeypatch.setattr(apfl, "compose", lambda *a: 1 / 0)
    (row,) = proofs.run(["apfl eq.3"])
    assert row.verdict == "FAIL"
    assert math.isnan(row.error)
    assert row.note == "ZeroDivisionError: division by zero"


# The two edits that were certified when the gradient by hand was taken on trust


def real_slope(right):
    """A gradient that is right at real w alone: a complex step through it gives 0."""
    return lambda self, w, D: right(self, w.real, D) + 0j * w


@pytest.mark.parametrize("model", ["Logistic", "MLP tanh"])
def test_a_gradient_right_at_real_w_and_the_hessian_that_fits_it_are_noticed(model, monkeypatch):
    kind = type(proofs.MODELS[model])
    monkeypatch.setattr(kind, "grad", real_slope(kind.grad))
    monkeypatch.setattr(kind, "hvp", lambda self, w, v, D: self.l2 * v)  # its complex step
    for what in ("grad", "hvp"):
        (row,) = proofs.run([f"{model} {what}"])
        assert row.verdict == "FAIL", what


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
    whole = {(row.tag, row.claim): row for row in proofs.run(["fedprox B", "apfl eq.4"], seed=3)}
    (row,) = proofs.run(["apfl eq.4"], seed=3)
    assert row == whole[row.tag, row.claim]
    assert proofs.run(["apfl eq.4"], seed=4) != [row]
