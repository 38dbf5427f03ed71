"""`fedref explain`, as a user types it."""

import re

import pytest
from running import main

from fedref.judge.errata import MISTAKES
from fedref.lab import commands
from fedref.teach import source, topics

MISTAKE = min(MISTAKES)


@pytest.mark.parametrize("words", ["per-fedavg eq.6", "fedprox alg.2", "Per-FedAvg eq. 3"])
def test_a_tag_is_explained_with_its_lines(words, capsys):
    tag = words.lower().replace(". ", ".")
    assert main("explain", *words.split()) == 0
    out = capsys.readouterr().out
    for equation in (one for one in source.equations() if one.tag == tag):
        assert equation.place in out
        assert equation.text in out


def test_list_has_the_index_of_equations(capsys):
    assert main("explain", "--list") == 0
    out = capsys.readouterr().out
    assert "[per-fedavg eq.6]" in out
    assert "fedref/algorithms/per_fedavg.py:" in out
    for names in topics.topics().values():
        assert all(name in out for name in names)


def test_a_picture(tmp_path, capsys):
    assert main("explain", "per-fedavg", "--picture", tmp_path / "a.svg", "--set", "alpha=0.5") == 0
    assert (tmp_path / "a.svg").exists()


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], "conformance"),
        (["explain"], "per-fedavg eq.6"),
        (["exercise"], "meta-gradient"),
        (["data"], "your own data"),
        (["flower"], "flower write"),
    ],
)
def test_a_bare_command_is_a_menu(words, shown, capsys):
    assert commands.main(words) == 0
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "title"),
    [("meta-sgd", "# FedMeta"), ("ewc", "# FedCurv"), ("hvp", "# How derivatives"),
     ("spec", "# The papers"), ("tour", "# From a gradient"), ("exercises", "# Exercises"),
     ("algorithms", "# Algorithms"), ("fedprox", "# FedProx"), ("mlp", "# MLP"),
     ("proximal", "`fedref exercise start"), (MISTAKE, f"### {MISTAKE}")],
)  # fmt: skip
def test_what_a_student_asks_for_leads_somewhere(name, title, capsys):
    assert main("explain", name) == 0
    text = capsys.readouterr().out
    assert text.startswith(title)
    assert name != "meta-sgd" or "fedref exercise start meta-sgd" in text


def test_a_terminal_gets_text_through_its_pager(monkeypatch):
    pages = []
    monkeypatch.setattr("pydoc.pager", pages.append)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for name in ("per-fedavg", "start"):
        assert main("explain", name) == 0
    for text in pages:
        assert not re.search(r"```|\]\(|\.html|\.svg\)|^#|^\|", text, re.M)
    assert "        return u - alpha * f.hvp(w, u, D2)" in pages[0]
    assert "Answer: " in pages[0]
    assert "  symbol" in pages[1]
