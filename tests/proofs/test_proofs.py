"""Every proof holds, every equation tag has one, and errors and NaN make one fail."""

import math
import re
from functools import partial

import pytest
from test_equation_index import PACKAGE, PAPERS, TAGS

from fedref import proofs
from fedref.algorithms import apfl, per_fedavg
from fedref.boundary.errors import ConfigError
from fedref.models import CNN, MLP, MODELS, LinearSVM, Logistic
from fedref.proofs import golden


@pytest.mark.parametrize("proof", proofs.PROOFS, ids=lambda p: f"{p.tag}: {p.claim}")
def test_proof(proof):
    """Of a row's golden cases every second one: slow tests, and `fedref check`, compare all."""
    if getattr(proof.compare, "func", None) is golden.compare_all:
        (cases,) = proof.compare.args
        proof = proof._replace(compare=partial(golden.compare_all, cases[::2]))
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


def test_every_tag_of_the_files_has_a_proof_and_every_proof_its_tag():
    paths = (path for room in ("algorithms", "proofs") for path in (PACKAGE / room).glob("*.py"))
    found = {paper for path in paths for paper, _ in ANY_PAPER.findall(path.read_text("utf-8"))}
    assert found - set(PAPERS) == set(), "no file of algorithms/ has that name"
    assert {*TAGS} - PROVED == set()
    tags = {tag for tag in PROVED if tag.split()[0] in PAPERS}
    assert len(tags) > 20
    assert tags - set(TAGS) == set()


def test_every_model_has_its_rows():
    models = list(proofs.MODELS.values())
    assert {type(m) for m in models} == {*MODELS.values()}
    for field, of in (("activation", MLP), ("pool", CNN), ("squared", LinearSVM)):
        assert len({getattr(m, field) for m in models if isinstance(m, of)}) > 1
    whats = ("loss", "dual", "grad", "hvp", "stack", "vjp", "labels")
    assert {f"{name} {what}" for name in proofs.MODELS for what in whats} <= PROVED


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


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "tag", "note"),
    [(Logistic, "grad", lambda self, w, D: w * math.nan, "Logistic grad", ""),
     (Logistic, "loss", lambda self, w, D: w @ w * math.inf, "Logistic loss", ""),
     (apfl, "compose", lambda *a: 1 / 0, "apfl eq.3", "ZeroDivisionError: division by zero")],
)  # fmt: skip
def test_nan_infinity_and_an_exception_fail(owner, name, wrong, tag, note, monkeypatch):
    monkeypatch.setattr(owner, name, wrong)
    (row,) = proofs.run([tag])[-1:]
    assert (row.verdict, row.note) == ("FAIL", note)
    assert not math.isfinite(row.error)


def test_gamma_of_a_stack_is_compared_where_no_start_is_stationary():
    """There γ is ∞ on both sides, and their difference no number: this seed draws such a start."""
    (proof,) = (p for p in proofs.select(["fedprox γ"]) if "stack" in p.claim)
    assert proof._replace(models=[LinearSVM(2, squared=True)]).run(14).verdict == "ok"


@pytest.mark.parametrize("model", ["Logistic", "MLP tanh"])
def test_a_gradient_right_at_real_w_and_the_hessian_that_fits_it_are_noticed(model, monkeypatch):
    """A complex step through this gradient gives 0: both were certified while it was taken on trust."""
    kind = type(proofs.MODELS[model])
    right = kind.grad
    monkeypatch.setattr(kind, "grad", lambda self, w, D: right(self, w.real, D) + 0j * w)
    monkeypatch.setattr(kind, "hvp", lambda self, w, v, D: self.l2 * v)  # its complex step
    rows = [row for what in ("grad", "hvp") for row in proofs.run([f"{model} {what}"])]
    assert {row.verdict for row in rows} == {"FAIL"}


# Which proofs


@pytest.mark.parametrize(
    ("names", "tags"),
    [([], PROVED), (["apfl alg.1"], {"apfl alg.1"}),  # a whole tag, not its lines
     (["[Per-FedAvg EQ.3]"], {"per-fedavg eq.3"}),
     (["fedprox"], {"fedprox alg.2", "fedprox γ", "fedprox B", "fedprox μ"}),
     (["MLP elu grad", "apfl eq.4"], {"MLP elu grad", "apfl eq.4"})],
)  # fmt: skip
def test_select(names, tags):
    assert {proof.tag for proof in proofs.select(names)} == tags


@pytest.mark.parametrize(
    ("name", "said"),
    [("per-fedavg eq.66", "did you mean 'per-fedavg eq.6' or "),
     ("fedmeta mml", "did you mean 'fedmeta MAML' or "),
     *((far, f"unknown tag of a proof '{far}' (`fedref check` without --only lists all tags)")
       for far in (" ", "foo"))],
)  # fmt: skip
def test_an_unknown_tag_names_the_nearest_and_a_blank_one_is_not_everything(name, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        proofs.select([name])


def test_a_selection_changes_no_row_and_seeds_do():
    whole = {(row.tag, row.claim): row for row in proofs.run(["fedprox B", "apfl eq.4"], seed=3)}
    (row,) = proofs.run(["apfl eq.4"], seed=3)
    assert row == whole[row.tag, row.claim]
    assert proofs.run(["apfl eq.4"], seed=4) != [row]
