"""What is typeset of a docstring's prose: formulae, all of them as they stand, and nothing else."""

import re

import pytest

from fedref.teach import inline, source
from fedref.teach.formula import evaluate, mathml, tokens
from fedref.teach.html import prose

TEXTS = [
    text
    for module in source.modules()
    for text in (
        source.section(module, "Objective"),
        source.section(module, "Decisions"),
        *source.citation(module),
        *(row.shape for row in source.symbols(module)),
    )
    if text
]


def formulae(text):
    return [piece for piece, tree in inline.found(text) if tree]


@pytest.mark.parametrize("text", TEXTS)
def test_nothing_of_a_text_is_lost(text):
    assert "".join(piece for piece, _ in inline.found(text)) == text


@pytest.mark.parametrize("text", TEXTS)
def test_every_symbol_of_a_formula_in_prose_is_shown(text):
    for piece, tree in inline.found(text):
        if tree:
            found = [t for kind, t in tokens(piece) if kind == "symbol"]
            wanted = [t for t in found if t[0] != "Σ" and t != "sqrt"]
            shown = inline.typeset(tree)
            assert re.findall('data-symbol="([^"]+)"', shown) == wanted
            assert shown.count("∑") == piece.count("Σ")
            assert shown.count("<msqrt>") == piece.count("sqrt")


def test_every_objective_is_typeset():
    said = {
        module.__name__.rpartition(".")[2]: formulae(source.section(module, "Objective"))
        for module in source.modules()
        if source.section(module, "Objective")
    }
    assert said == {
        "fedavg": ["f(w) = Σ_k p_k f_k(w)", "p_k = n_k/Σn_k", "f_k"],
        "centralised": ["f(w) = Σ_k p_k f_k(w)"],
        "fedprox": [
            "h_k(w; wᵗ) = F_k(w) + (μ/2)‖w − wᵗ‖²", "‖∇h_k(w*; wᵗ)‖ ≤ γ ‖∇h_k(wᵗ; wᵗ)‖",
        ],
        "per_fedavg": [
            "F(w) = (1/n) Σ_i F_i(w)", "F_i(w) = f_i(w − α∇f_i(w))", "f(w) = (1/n) Σ_i f_i(w)",
        ],
        "fedmeta": [
            "min_θ E_u f(θ_u; Q_u)", "θ_u = θ − α∇f(θ; S_u)", "θ", "α",
            "θ_u = θ − α ⊙ ∇f(θ; S_u)", "S_u", "Q_u",
        ],
        "fedmaml": [
            "min_θ Σ_k L_k(θ*_k; D_val)", "θ*_k", "θ", "s ≥ 1", "θ ← θ − α∇L_k(θ; D_tr)",
        ],
        "fedcurv": [
            "f_s(θ) + λ Σ_{j ∈ previous cohort, j ≠ s} (θ − θ̂_j)ᵀ diag(I_j) (θ − θ̂_j)",
        ],
        "apfl": ["w_S", "m_k", "w_k", "L_k(w_S ⊙ m_k + w_k) + (μ/2) Σ_j F_j (w_S,j − wᵗ_S,j)²"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A client with a batch of K rows (E = 1), 2d down.", ["E = 1"]),
        ("up θ̂_s and I_s (2d): both", ["θ̂_s", "I_s"]),
        ("has w_k = (1 − σ(1))w_S: no jump", ["w_k = (1 − σ(1))w_S"]),
        ("+0.1 when it rises; −0.1 when it falls", []),
        ("(..., d) client j's own", []),
        ("weighting_by and own_u", []),
        ("α ≡ β", ["α", "β"]),
        ("D, D′, D″ are drawn", ["D", "D′", "D″"]),
        ("the rounds z−1, z, z+1: on", ["z−1", "z", "z+1"]),
        ("θ′, a start, and β; see B, there", ["θ′", "β"]),
    ],
)
def test_what_is_a_formula_in_prose(text, found):
    assert formulae(text) == found


def test_code_and_emphasis_stay_beside_formulae():
    shown = prose("*full* `w_s` of θ*_k, < 2 & so on")
    assert shown.startswith("<em>full</em> <code>w_s</code> of <span class=tied><math>")
    assert shown.endswith("</math>,</span> &lt; 2 &amp; so on")
    assert "<em>" not in prose("θ*_k and θ*_j")


def test_a_line_may_be_broken_between_terms():
    ((_, tree),) = inline.found("w_S = u + H(w; D)v − α(u + v − w)")
    assert inline.typeset(tree).count("<math>") == 4
    assert mathml(tree).count("<math>") == 1
    ((_, tree),) = inline.found("w = u + αv − β")
    assert inline.typeset(tree).count("<math>") == 1
    assert evaluate(tree, {"u": 1, "α": 2, "v": 3, "β": 4}) == 3
