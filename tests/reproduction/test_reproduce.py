"""`python -m reproduce`: what is run, what is gone on with, what is refused, and what is written."""

import csv
import re
from functools import partial

import pytest
import running

from reproduce import runs
from reproduce.__main__ import main as command
from reproduce.cells import read_cells

main, refused = partial(running.main, command=command), partial(running.refused, command=command)


def edit_tiny(old, new):
    path = runs.PAPERS / "tiny.toml"
    path.write_text(path.read_text().replace(old, new))


def test_it_runs_writes_and_goes_on(tiny, capsys):
    assert main("tiny", "--out", tiny, "--workers", 1) == 0
    page, cells = tiny / "tiny" / "README.md", tiny / "tiny" / "cells.csv"
    found, place = read_cells(cells), ("Digits", "")
    keys = [("FedProx", "accuracy"), ("FedAvg", "accuracy"), ("FedAvg", "before adaptation")]
    ours, base, unadapted = (found.all[place, *key].values for key in keys)
    assert ours.each.tolist() == base.each.tolist() == pytest.approx(unadapted.each)  # μ = 0
    assert found.places == [place, ("Digits", "1 steps"), ("Digits", "2 steps")]
    assert found.count(place, "rows tested") > 100
    text = page.read_text()
    assert "| Digits | 2 steps | FedProx | " in text
    assert f"{base.mean:.2f} ± {base.sd:.2f}" in text
    assert "| one | digits | " in text.partition("What made these numbers")[2]
    every = (tiny / "claims.md").read_text()
    assert "[^small]: Small." in every
    assert "FedProx is above FedAvg[^small][^ten] | – | " in every
    assert "| privacy | – | – | – | not here: nobody knows |" in every
    assert {path.name for path in (tiny / "tiny").glob("*.png")} == {"one.png", "two.png"}

    # the same again runs nothing: the runs' files stay; the page is made anew
    before = {p: p.stat().st_mtime_ns for p in (tiny.parent / "runs").rglob("*.ckpt")}
    page.unlink()
    assert main("tiny", "--out", tiny) == 0
    assert before
    assert before == {p: p.stat().st_mtime_ns for p in (tiny.parent / "runs").rglob("*.ckpt")}
    assert page.read_text() == text

    # another experiment in the same place is refused, in one line
    edit_tiny("lr = 0.1", "lr = 0.3")
    line = refused(capsys, "tiny", "--out", tiny)
    assert "runs/tiny/one already holds a run" in line


def test_quick_runs_begin_anew_and_fail_by_direction(tiny, capsys):
    folder = tiny.parent / "runs" / "tiny-quick"
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("mine")
    words = ["tiny", "--quick", "--out", tiny, "--workers", 1]
    assert "holds files that fedref did not write" in refused(capsys, *words)
    (folder / "thesis.txt").unlink()  # and nothing else is there
    (folder / ".fedref-quick").touch()
    (folder / "old").write_text("of an earlier run")
    assert main(*words) == 1  # no method is above itself
    assert capsys.readouterr().out.startswith("FAILS: FedProx is above FedAvg, Digits: 0.00")
    assert not tiny.exists()
    assert not (folder / "old").exists()
    with (folder / "one" / "metrics.csv").open() as file:
        assert {row["round"] for row in csv.DictReader(file)} == {"0", "1"}
    assert (folder / "results" / "README.md").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [("", "nothing to reproduce"), ("tiny", "vehicle: not found"),
     ("nobody", "no report is called 'nobody', expected one of tiny")],
)  # fmt: skip
def test_what_cannot_be_run_is_one_line(words, message, tiny, monkeypatch, capsys):
    monkeypatch.delenv("FEDREF_DATA", raising=False)
    edit_tiny('data = "digits"', 'data = "vehicle"')
    assert message in refused(capsys, *words.split(), "--out", tiny)
    assert not tiny.parent.exists()


def test_a_run_has_the_values_of_those_that_it_is_from():
    after_r = {"from": "r", "rounds": 7}
    spec = {
        "algorithms": {"a": {"algorithm": "fedavg"}, "b": {"algorithm": "fedprox"}},
        "base": {"rounds": 9, "lr": 1.0, "data": "digits", "algorithms.b.mu": 3.0},
        "sets": {"short": {"rounds": 2, "sweep": {"lr": [1.0, 2.0]}}, "one": {"algorithms": ["b"]}},
        "runs": {"r": {"from": ["short", "one"], "lr": 5.0}, "ablation-s": after_r},
        "quick": {"seeds": [0], "ablation-*": {"sweep.lr": [4.0]}},
    }
    r, s = runs.compose_experiments(spec, seeds=[3, 4]).values()
    assert (r.rounds, r.seeds, r.sweep, [*r.algorithms]) == (2, (3, 4), {"lr": [1.0, 2.0]}, ["b"])
    assert (r.algorithms["b"].lr, r.algorithms["b"].mu) == (5, 3)
    assert (s.rounds, s.seeds, s.sweep) == (7, (0,), {"lr": [1.0, 2.0]})
    quick = runs.compose_experiments(spec, quick=True).values()
    assert [e.sweep["lr"] for e in quick] == [[1.0, 2.0], [4.0]]


@pytest.mark.slow
@pytest.mark.parametrize("name", runs.report_names())
def test_each_report_runs_at_its_smallest(name, real, tmp_path):
    out = tmp_path / "results"
    words = ["--quick", "--data-dir", real, "--workers", 1]  # pytest runs two reports side by side
    assert main(name, *words, "--out", out) == 0
    folder = tmp_path / "runs" / f"{name}-quick" / "results"
    page = (folder / "README.md").read_text()
    assert "{" not in page.replace("{k", "")
    links = re.findall(r"^!\[.*\]\((.*)\)$", page, re.MULTILINE)
    assert {*links} == {path.name for path in folder.glob("*.png")}


def test_an_interrupted_run_is_gone_on_with(tiny):
    directory = tiny.parent / "runs" / "one"
    made = runs.compose_experiments(runs.read_spec("tiny"))["one"]
    whole = runs.complete(made, directory, None, 1)
    took = runs.read_runtime(directory)
    runs.complete(made, directory, None, 1)
    assert runs.read_runtime(directory) == took  # nothing was left
    runtime = directory / "runtime.json"
    runtime.write_text(runtime.read_text().replace("true", "false"))
    next(iter((directory / "checkpoints").glob("*.ckpt"))).unlink()
    assert runs.complete(made, directory, None, 1).records[0].rows == whole.records[0].rows
    now = runs.read_runtime(directory)
    assert now["finished"]
    assert now["seconds"] >= took["seconds"]
