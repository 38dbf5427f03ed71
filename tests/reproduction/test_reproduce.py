"""`fedref reproduce`: what is run, what is gone on with, what is refused, and what is written."""

import csv
import re
from pathlib import Path

import pytest

from fedref.commands import main
from reproduce import runs
from reproduce.cells import read_cells


def command(*words: object) -> int:
    """Run `fedref reproduce` as a user types it."""
    return main(["reproduce", *map(str, words)])


def edit_tiny(old: str, new: str) -> None:
    path = runs.PAPERS / "tiny.toml"
    path.write_text(path.read_text().replace(old, new))


def test_it_runs_writes_and_goes_on(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("tiny", "--out", tiny, "--workers", 1) == 0
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
    edit_tiny("lr = 0.1 }", "lr = 0.3 }")
    capsys.readouterr()
    assert command("tiny", "--out", tiny) == 2
    assert "runs/tiny/one holds another experiment" in capsys.readouterr().err


def test_an_interrupted_run_is_gone_on_with(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tiny.parent / "runs" / "one"
    table = runs.compose_experiments(runs.read_spec("tiny"))["one"]
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
    code = command("tiny", "--quick", "--out", tiny, "--workers", 1)
    assert code == 1  # no method is above itself
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
    edit_tiny('data.name = "digits"', 'data.name = "vehicle"')
    assert command(*words, "--out", tiny) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not tiny.parent.exists()


def test_values_are_set_in_tables_and_by_patterns() -> None:
    own = {"a": {"lr": 1}, "b": {"lr": 1, "mu": 1}, "c": {}}
    table = {"algorithms": own, "data": {"name": "x"}}
    assert runs.assign(table, "rounds", 3)["rounds"] == 3
    assert runs.assign(table, "data.step", 2)["data"] == {"name": "x", "step": 2}
    assert runs.assign(table, "sweep.split.seed", [1])["sweep"] == {"split.seed": [1]}
    for key, value, expected in (("*.lr", 5, [5, 5, None]), ("[ac].z", 7, [7, None, 7])):
        found = runs.assign(table, f"algorithms.{key}", value)["algorithms"]
        assert [found[m].get(key[-2:].strip(".")) for m in "abc"] == expected
    assert own["a"] == {"lr": 1}


def test_seeds_are_for_all_but_ablations() -> None:
    made = runs.compose_experiments(runs.read_spec("per-fedavg"), seeds=[7])
    kept = {run for run, table in made.items() if table["seeds"] == [0]}
    assert kept == {"ablation-glorot", "ablation-standardised"}


@pytest.mark.slow
@pytest.mark.parametrize("name", runs.report_names())
def test_each_report_runs_at_its_smallest(name: str, real: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    assert command(name, "--quick", "--data-dir", real, "--out", out) == 0
    folder = tmp_path / "runs" / f"{name}-quick" / "results"
    page = (folder / "README.md").read_text()
    assert "{" not in page.replace("{k", "")
    links = re.findall(r"^!\[.*\]\((.*)\)$", page, re.MULTILINE)
    assert {*links} == {path.name for path in folder.glob("*.png")}
