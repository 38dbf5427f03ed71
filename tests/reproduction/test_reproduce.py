"""`fedref reproduce`: what is run, what is gone on with, what is refused, and what is written."""

import csv
from pathlib import Path

import pytest
from reproducing import TINY, command

from fedref.commands import main
from reproduce import runs
from reproduce.cells import read_cells


def test_it_runs_writes_and_goes_on(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("tiny", "--out", tiny, "--workers", 1) == 0
    page, cells = tiny / "tiny" / "README.md", tiny / "tiny" / "cells.csv"
    found = read_cells(cells)
    place = "Digits", ""
    ours, base = (found.get(place, m, "accuracy") for m in ("FedProx", "FedAvg"))
    assert ours is not None
    assert base is not None
    assert (ours.each == base.each).all()  # μ = 0
    unadapted = found.get(place, "FedAvg", "before adaptation")
    assert unadapted is not None
    assert unadapted.each == pytest.approx(base.each)
    assert found.places == [place, ("Digits", "1 steps"), ("Digits", "2 steps")]
    assert found.count(place, "rows tested") > 100
    text = page.read_text()
    assert "| Digits | 2 steps | FedProx | " in text
    assert f"{base.mean:.2f} ± {base.sd:.2f}" in text
    assert "| one | digits | " in text.partition("What made these numbers")[2]
    every = (tiny / "claims.md").read_text()
    assert "[^small]: Small." in every
    assert "Odd." not in every
    assert "FedProx is above FedAvg[^small][^ten] | – | " in every
    assert "| privacy | – | – | – | not here: nobody knows |" in every
    assert {path.name for path in (tiny / "tiny").glob("*.png")} == {"one.png", "two.png"}

    # the same again runs nothing: the runs' files stay; the page is made anew
    before = {p: p.stat().st_mtime_ns for p in (tiny.parent / "runs").rglob("*.ckpt")}
    page.unlink()
    assert command("tiny", "--out", tiny) == 0
    assert before
    assert before == {p: p.stat().st_mtime_ns for p in (tiny.parent / "runs").rglob("*.ckpt")}
    assert page.read_text() == text

    # another experiment in the same place is refused, in one line
    (runs.PAPERS / "tiny.toml").write_text(TINY.replace("lr = 0.1 }", "lr = 0.3 }"))
    capsys.readouterr()
    assert command("tiny", "--out", tiny) == 2
    assert "runs/tiny/one holds another experiment" in capsys.readouterr().err


def test_an_interrupted_run_is_gone_on_with(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, table = (
        tiny.parent / "runs" / "one",
        runs.compose_experiments(runs.read_spec("tiny"))["one"],
    )
    runs.complete(table, directory, None, 1, main)
    took = runs.read_runtime(directory)
    runtime = directory / "runtime.json"
    runtime.write_text(runtime.read_text().replace("true", "false"))
    (directory / "metrics.csv").unlink()
    runs.complete(table, directory, None, 1, main)
    assert (directory / "metrics.csv").exists()
    assert runs.read_runtime(directory)["finished"]
    assert runs.read_runtime(directory)["seconds"] >= took["seconds"]


def test_quick_runs_begin_anew_and_fail_by_direction(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        command("tiny", "--quick", "--out", tiny, "--workers", 1) == 1
    )  # no method is above itself
    assert capsys.readouterr().out.startswith("FAILS: FedProx is above FedAvg, Digits: 0.00")
    assert not tiny.exists()
    folder = tiny.parent / "runs" / "tiny-quick"
    with (folder / "one" / "metrics.csv").open() as file:
        assert {row["round"] for row in csv.DictReader(file)} == {"0", "1"}
    assert (folder / "results" / "README.md").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to reproduce"),
        (("nobody",), "no report is called 'nobody', expected one of tiny"),
        (("tiny",), "vehicle: not found"),
    ],
)
def test_what_cannot_be_run_is_one_line(
    words: tuple[str, ...],
    message: str,
    tiny: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("FEDREF_DATA", raising=False)
    path = runs.PAPERS / "tiny.toml"
    path.write_text(TINY.replace('data.name = "digits"', 'data.name = "vehicle"'))
    assert command(*words, "--out", tiny) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not tiny.parent.exists()


def test_values_are_set_in_tables_and_by_patterns() -> None:
    table = {
        "algorithms": {"a": {"lr": 1}, "b": {"lr": 1, "mu": 1}, "c": {}},
        "data": {"name": "x"},
    }
    for key, value, where in (
        ("rounds", 3, lambda t: t["rounds"]),
        ("data.step", 2, lambda t: t["data"] == {"name": "x", "step": 2} and 2),
        ("sweep.split.seed", [1], lambda t: t["sweep"]["split.seed"]),
        (
            "algorithms.*.lr",
            5,
            lambda t: [t["algorithms"][m].get("lr") for m in "abc"] == [5, 5, None] and 5,
        ),
        (
            "algorithms.[ac].z",
            7,
            lambda t: [t["algorithms"][m].get("z") for m in "abc"] == [7, None, 7] and 7,
        ),
    ):
        assert where(runs.assign(table, key, value)) == value
    assert table["algorithms"]["a"] == {"lr": 1}


def test_seeds_are_for_all_but_ablations() -> None:
    made = runs.compose_experiments(runs.read_spec("per-fedavg"), seeds=[7])
    assert {run: table["seeds"] for run, table in made.items() if table["seeds"] != [7]} == {
        "ablation-glorot": [0], "ablation-standardised": [0],
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", runs.report_names())
def test_each_report_runs_at_its_smallest(name: str, real: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    assert command(name, "--quick", "--data-dir", real, "--out", out) == 0
    page = (tmp_path / "runs" / f"{name}-quick" / "results" / "README.md").read_text()
    assert "{" not in page.replace("{k", "")
    folder = tmp_path / "runs" / f"{name}-quick" / "results"
    links = {
        line.partition("](")[2].rstrip(")") for line in page.split("\n") if line.startswith("![")
    }
    assert links == {path.name for path in folder.glob("*.png")}
