"""`fedref explain`, as a user types it."""

import re

import pytest
from running import main, refused

from fedref.algorithms import ALGORITHMS
from fedref.conformance.errata import MISTAKES
from fedref.lab import commands
from fedref.models import MODELS
from fedref.teach import source, topics
from fedref.teach.exercises import EXERCISES


@pytest.mark.parametrize("topic", [*ALGORITHMS, *MODELS, *EXERCISES, *list(MISTAKES)[:3]])
def test_every_algorithm_model_and_exercise_is_explained(topic, capsys):
    assert main("explain", topic) == 0
    assert len(capsys.readouterr().out) > 100


@pytest.mark.parametrize("tag", topics.topics()["equations"])
def test_every_tag_is_explained_with_its_line(tag, capsys):
    assert main("explain", *tag.split()) == 0
    out = capsys.readouterr().out
    for equation in source.equations():
        if equation.tag == tag:
            assert equation.place in out
            assert equation.text in out


def test_an_algorithm_begins_with_why_then_comes_the_loop(capsys):
    assert main("explain", "per-fedavg") == 0
    out = capsys.readouterr().out
    parts = [
        "One model for all",
        "Fallah",
        "def per_fedavg",
        "chain rule",
        "Worked example",
        "Decisions",
    ]
    places = [out.index(part) for part in parts]
    assert places == sorted(places)


def test_list_has_the_index_of_equations(capsys):
    assert main("explain", "--list") == 0
    out = capsys.readouterr().out
    assert "[per-fedavg eq.6]" in out
    assert "fedref/algorithms/per_fedavg.py:" in out
    for names in topics.topics().values():
        assert all(name in out for name in names)


def test_an_unknown_topic_suggests_another(capsys):
    assert "did you mean 'per-fedavg eq.3'" in refused(capsys, "explain", "per-fedavg", "eq.33")
    assert main("explain", "Per-FedAvg", "eq.", "3") == 0
    assert main("explain", "mistakes") == 0


def test_a_picture(tmp_path, capsys):
    assert main("explain", "per-fedavg", "--picture", tmp_path / "a.svg", "--set", "alpha=0.5") == 0
    assert (tmp_path / "a.svg").exists()
    picture = "explain", "per-fedavg", "--picture", tmp_path / "b.svg", "--set"
    assert "alpha" in refused(capsys, *picture, "alpah=0.5")
    assert "KEY=VALUE" in refused(capsys, *picture, "alpha")
    assert "per-fedavg" in refused(capsys, "explain", "cnn", "--picture", tmp_path / "b.svg")


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
    [("meta-sgd", "FedMeta"), ("maml", "FedMeta"), ("fedmeta", "FedMeta"), ("ewc", "FedCurv"),
     ("hvp", "How derivatives"), ("spec", "The papers"), ("tour", "From a gradient"), ("fedopt", "FedOpt"),
     ("exercises", "Exercises"), ("algorithms", "Algorithms")],
)  # fmt: skip
def test_what_a_student_asks_for_leads_somewhere(name, title, capsys):
    assert main("explain", name) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"# {title}")
    assert name != "meta-sgd" or "fedref exercise start meta-sgd" in text


def test_a_terminal_gets_text_through_its_pager(monkeypatch):
    pages = []
    monkeypatch.setattr("pydoc.pager", pages.append)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for name in ("per-fedavg", "start", "apfl", "mistakes"):
        assert main("explain", name) == 0
    for text in pages:
        assert not re.search(r"```|\]\(|\.html|\.svg\)|^#|^\|", text, re.M)
    assert "        return u - alpha * f.hvp(w, u, D2)" in pages[0]
    assert "Answer: " in pages[0]
    assert "  symbol" in pages[1]
    assert "F * (w_s - w_t) ** 2" in pages[2]


@pytest.mark.parametrize("link", [False, True])
def test_a_site_is_written_over_no_other_page_and_through_no_link(link, tmp_path, capsys):
    page, other = tmp_path / "site" / "index.html", tmp_path / "other.html"
    page.parent.mkdir()
    (page.parent / ".fedref-site").touch()
    (other if link else page).write_text("<title>fedref</title>" if link else "mine")
    if link:
        page.symlink_to(other)
    assert "is no page that fedref wrote" in refused(capsys, "explain", "--html", page.parent)
    assert len(list(page.parent.iterdir())) == 2
