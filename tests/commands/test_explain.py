"""`fedref explain`, as a user types it."""

import inspect
import re

import numpy as np
import pytest
from running import main, refused

from fedref.algorithms import ALGORITHMS
from fedref.conformance import vectors
from fedref.conformance.mistakes import PUBLISHED
from fedref.models import MODELS
from fedref.teach import mistakes, pages, source
from fedref.teach.catalogue import EXERCISES


@pytest.mark.parametrize("topic", [*ALGORITHMS, *MODELS])
def test_every_algorithm_and_model_is_explained(topic, capsys):
    assert main("explain", topic) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) > 8


@pytest.mark.parametrize("tag", sorted({equation.tag for equation in source.equations()}))
def test_every_tag_is_explained_with_its_line(tag, capsys):
    assert main("explain", *tag.split()) == 0
    out = capsys.readouterr().out
    for equation in source.equations():
        if equation.tag == tag:
            assert f"[{tag}]" in out
            assert equation.formula in out
            assert re.search(rf"fedref/.*\.py:{equation.line}\b", out)
            assert equation.code.splitlines()[0].strip() in out
    assert "<function" not in out
    assert "noqa" not in out
    assert "0e+00" not in out


INDEX = (source.ROOT / "fedref" / "README.md").read_text("utf-8").split("# Equation index")[1]
PAPER = "(?:per-fedavg|fedmeta|fedmaml|fedprox|fedcurv|apfl)"
NAMES = [
    *re.findall(rf"^\| .*?\[({PAPER} [^\]]+)\]", INDEX.split("\n## ")[0], re.MULTILINE),
    *{case.tag for case in vectors.read()},
    *EXERCISES,
]


@pytest.mark.parametrize("name", sorted(set(NAMES)))
def test_every_name_that_fedref_prints_is_a_topic_in_any_capitals(name):
    page = pages.page_of(f"[{name.upper()}]")
    assert page.functions or page.text


def test_what_a_tag_without_a_line_of_its_own_shows(capsys):
    for topic, words, code in (
        ("Per-FedAvg EQ.3", "with D = D′ = D″", "def meta_gradient("),
        ("Per-FedAvg EQ.3", "NeurIPS 2020.", "D2 = (1, 2) → 1, (-1, 1) → 0, (2, 0) → 1"),
        ("apfl alg.1", "[alg.1] `APFL`", "class APFL("),
        ("curvature", "[HVP]", "def hvp("),
    ):
        assert main("explain", topic) == 0
        out = capsys.readouterr().out
        assert words in out
        assert code in out


def test_a_mistake_is_explained_by_its_name(capsys):
    """The name is the one that `fedref conformance` prints."""
    assert main("explain", "hf: divided by δ") == 0
    out = capsys.readouterr().out
    assert "    - d = " in out
    assert "caught by " in out
    assert len(out.splitlines()) < 12


def test_suggestions_come_last_and_are_few(capsys):
    message = refused(capsys, "explain", "per-fedavg", "eq.33")
    assert message.rstrip().endswith("'per-fedavg eq.3' or 'per-fedavg eq.8' or 'per-fedavg eq.7'?")


@pytest.mark.parametrize("module", source.modules()[1:], ids=lambda m: m.__name__)
def test_a_symbol_has_a_row_of_its_own(module):
    rows = source.symbols(module)
    assert len({row.symbol for row in rows}) == len(rows)
    for row in rows:
        assert "," not in row.symbol.replace("S,j", "")
        assert "," not in row.name
        assert not row.shape.startswith("numbers")


def test_eq_6_with_its_numbers(capsys):
    """Compare u with a calculation by hand, to four decimals."""
    assert main("explain", "per-fedavg eq.6") == 0
    out = capsys.readouterr().out
    sigma = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    X = [np.array(x) for x in ([[1, 2], [-1, 1], [2, 0]], [[0, 1], [1, 1], [-2, 1]])]
    y = [np.array([1, 0, 1]), np.array([1, 1, 0])]
    w = np.array([0.5, -0.25])
    inner = w - 0.5 * X[0].T @ (sigma(X[0] @ w) - y[0]) / 3
    u = X[1].T @ (sigma(X[1] @ inner) - y[1]) / 3
    assert f"u = {pages.format_value(u)}" in out
    assert "the formula of [per-fedavg eq.6] gives what the line gives, to the bit\n" in out
    assert "w = (0.5, -0.25)" in out


def test_a_method_s_example_shows_the_options_of_its_algorithm(capsys):
    """To redo θ − β (g_1 + g_2)/2 by hand one needs β, which is not an argument of `combine`."""
    assert main("explain", "fedmeta", "server") == 0
    out = capsys.readouterr().out
    assert "self = MAML(weighting='uniform', drop=True, alpha=0.1, beta=0.5" in out
    g = np.array([0.75, -0.125])
    assert f"g = {pages.format_value(g)}" in out
    assert f"returned = {pages.format_value(np.array([0.5, -0.25]) - 0.5 * g)}" in out


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_shown_with_its_code_and_proofs(name, capsys):
    assert main("explain", name) == 0
    out = capsys.readouterr().out
    for method, claim in (("grad", "complex step of loss"), ("hvp", "complex step of grad")):
        code = inspect.getsource(getattr(MODELS[name], method)).rstrip()
        assert code in out
        assert f"  proved: {method} = {claim}" in out
    if name == "binary-logistic":
        assert "[gradient]  Aᵀ(σ(z) − y) / n\n" in out


def test_a_proof_of_the_centralised_step_stands_there_alone(capsys):
    assert main("explain", "centralised") == 0
    out = capsys.readouterr().out
    before, step = out.split("\nCentralised.step ")
    claim = "proved: 4 rounds of Centralised(lr=0.3) = the specification"
    assert claim in step
    assert claim not in before


def test_the_list_names_every_topic(capsys):
    assert main("explain", "--list") == 0
    listed = {line.strip() for line in capsys.readouterr().out.splitlines()}
    assert {*ALGORITHMS, *MODELS, "per-fedavg eq.6", "apfl eq.3", "mistakes"} <= listed


def test_published_mistakes_are_shown_with_their_lines_and_what_catches_them(capsys):
    assert main("explain", "mistakes") == 0
    out = capsys.readouterr().out
    for name in PUBLISHED:
        assert f"caught by {mistakes.catch(name)[0]} " in out
    assert "    - return u + alpha * d\n    + return u - alpha * d\n" in out


def test_a_space_after_eq_is_ignored(capsys):
    assert main("explain", "Per-FedAvg", "eq.", "3") == 0
    assert "[per-fedavg eq.3]" in capsys.readouterr().out
