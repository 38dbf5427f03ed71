"""`fedref reproduce`: the machinery on tiny experiments, and the real ones in their quick form."""

import argparse
import json
import os
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from fedref import ConfigError, DataError, FedrefError, load_run
from fedref import reproduction as reproduce
from fedref.commands import reproduce as reproduce_command
from fedref.datasets import download, sources

TINY = """\
rounds = 2
clients-per-round = 3
steps = 1
batch-size = 5
seeds = [0, 1]
[data]
name = "digits"
[model]
name = "logistic"
[algorithms.fedavg]
lr = 0.1
[algorithms.fedprox]
lr = 0.1
"""
REPORT = """\
TITLE = "Tiny"
DOCUMENT = "Nobody's, §0."
QUICK = {"seeds": [0], "one": {"rounds": 1}}


def report(runs, out, data_dir):
    from fedref.reproduction import Number, number_table, write_numbers

    (out / "one.png").write_bytes(b"")
    lines = [
        Number((stem, label), 100 * run.curve(label)[1][:, -1], 50.0, "so it is")
        for stem, run in runs.items()
        for label in run.experiment.algorithms
    ]
    write_numbers(out / "numbers.csv", ("stem", "method"), lines)
    return "## Part\\n\\n![a picture](one.png)\\n\\n" + number_table(("stem", "method"), lines)


CHECKS = {"one round was run": lambda runs: (runs["one"].experiment.rounds == 1, "measured")}
"""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Neither the user's data nor a download, but for the slow tests on real data."""
    if "real" not in request.fixturenames:
        monkeypatch.delenv("FEDREF_DATA", raising=False)
        monkeypatch.setattr(download, "cache", lambda: tmp_path / "cache")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of reproductions with `tiny`; the OUT to reproduce it to."""
    folder = tmp_path / "reproductions" / "tiny"
    folder.mkdir(parents=True)
    (folder / "one.toml").write_text(TINY)
    (folder / "report.py").write_text(REPORT)
    monkeypatch.setattr(reproduce, "root", lambda: folder.parent)
    return tmp_path / "made" / "results"


def change(name: str, old: str, new: str) -> None:
    """Something in the tiny reproduction's file `name`."""
    path = reproduce.root() / "tiny" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def command(*words: object) -> int:
    """As a user types it."""
    parser = argparse.ArgumentParser("fedref")
    reproduce_command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["reproduce", *map(str, words)])
    return int(args.run(args))


# ---- what there is ------------------------------------------------------------------------------


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--list") == 0
    out = capsys.readouterr().out
    assert "per-fedavg-table" in out
    assert "004-apfl, §4.2.2 and Table 2" in out
    assert len(reproduce.names()) >= 6


@pytest.mark.parametrize("name", reproduce.names())
def test_every_reproduction_can_be_run(name: str, tmp_path: Path) -> None:
    found = reproduce.find(name)
    assert found.said("TITLE", "")
    assert found.said("DOCUMENT", "").startswith("00")
    assert callable(found.said("report", None))
    assert found.owner in reproduce.names()
    for quick in (False, True):
        for job in reproduce.jobs_of(found, tmp_path, quick):
            assert job.rounds > 0
    assert not list(found.folder.glob("__pycache__"))


def test_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'apfl-figure-1'"):
        reproduce.find("apfl-figure1")
    with pytest.raises(ConfigError, match="nothing to reproduce: give a NAME of apfl-figure-1"):
        command()


def test_uses_runs_of_another(tmp_path: Path) -> None:
    one, two = (
        reproduce.jobs_of(reproduce.find(name), tmp_path)
        for name in ("apfl-figure-1", "apfl-figure-2")
    )
    assert {job.directory for job in two} < {job.directory for job in one}  # but for ablations
    assert [job.directory.relative_to(tmp_path).as_posix() for job in two] == [
        "apfl-figure-1/mnist",
        "apfl-figure-1/vehicle",
    ]


def test_seeds_are_for_all_but_the_ablations(tmp_path: Path) -> None:
    jobs = reproduce.jobs_of(reproduce.find("per-fedavg-table"), tmp_path, seeds=5)
    found = {job.file.stem: len(job.experiment.seeds) for job in jobs}
    assert {found[stem] for stem in found if not stem.startswith("ablation-")} == {5}
    assert {found[stem] for stem in found if stem.startswith("ablation-")} == {1}


def test_an_installed_package_brings_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reproduce.root() == reproduce.PACKAGE.parent / "reproduce"
    assert reproduce.default_out() == reproduce.root() / "results"
    (tmp_path / "_reproduce").mkdir()
    monkeypatch.setattr(reproduce, "PACKAGE", tmp_path)
    assert reproduce.root() == tmp_path / "_reproduce"
    assert reproduce.default_out() == Path("reproduce/results")
    assert reproduce.git_commit() == "unknown"


def test_changes_of_experiments_and_reports_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    files = ["fedref/a.py", "reproduce/one/x.toml", "reproduce/one/report.py", "README.md"]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    monkeypatch.setattr(reproduce, "PACKAGE", tmp_path.resolve() / "fedref")
    for name in files:
        (tmp_path / name).write_text("changed")
        assert reproduce.git_commit().endswith(" + changes") == (name != "README.md"), name
        (tmp_path / name).write_text("")
    assert len(reproduce.git_commit()) == 40


# ---- data that is not here ----------------------------------------------------------------------


def test_missing_data_is_one_line_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        command("all", "--quick", "--out", tmp_path / "results")
    line = str(caught.value)
    assert "\n" not in line
    for part in ("mnist: not found", "vehicle.json", "DIR/vehicle", "FEDREF_DATA", "cifar10-gray"):
        assert part in line
    assert line.count("mnist: not found") == 1
    assert not (tmp_path / "runs").exists()


def test_synthetic_needs_no_data(tmp_path: Path) -> None:
    found = [reproduce.find("fedprox-stragglers")]
    assert reproduce.missing_data(found, reproduce.jobs_of(found[0], tmp_path), None) == ""


def test_wrong_data_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such folder"):
        command("apfl-table-1", "--data-dir", tmp_path / "nowhere", "--out", tmp_path / "results")


# ---- run, report, gather ------------------------------------------------------------------------


def test_from_files_to_readme(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("tiny", "--out", tiny) == 0
    assert "tiny/one: finished, " in capsys.readouterr().err
    table = (tiny / "tiny" / "table.md").read_text()
    assert table.startswith("# Tiny\n\nNobody's, §0.\n\n## Part\n")
    header = "| stem | method | document | ours | difference | comment |"
    assert header in table
    assert "| one | digits | 9412306fcce7 | per-fedavg, seed 0 | 0, 1 | " in table
    numbers = (tiny / "tiny" / "numbers.csv").read_text().splitlines()
    assert numbers[0] == "stem,method,document,mean,sd,difference,each seed"
    run = load_run(tiny.parent / "runs" / "tiny" / "one")
    ours = 100 * run.curve("fedavg")[1][:, -1]
    assert f"{ours.mean():.2f} ± {ours.std():.2f}" in table
    readme = (tiny.parent / "README.md").read_text()
    assert readme.startswith(reproduce.MARK)
    assert "\n## Tiny\n" in readme
    assert "\n### Part\n" in readme
    assert "![a picture](<results/tiny/one.png>)" in readme

    # again: nothing is left to run, and the same comes out
    took = (tiny.parent / "runs" / "tiny" / "one" / "runtime.json").read_bytes()
    assert sorted(json.loads(took)) == ["commit", "seconds", "version"]
    assert command("tiny", "--out", tiny) == 0
    assert "tiny/one: finished before, " in capsys.readouterr().err
    assert (tiny / "tiny" / "table.md").read_text() == table
    assert (tiny.parent / "runs" / "tiny" / "one" / "runtime.json").read_bytes() == took

    # the directory is not gone on with as another experiment
    with pytest.raises(ConfigError, match=r"holds another experiment than .*one.toml \(.*seeds"):
        command("tiny", "--out", tiny, "--seeds", 3)


def test_interrupted_and_resumed(tiny: Path) -> None:
    first_unit = threading.Event()
    (job,) = reproduce.jobs_of(reproduce.find("tiny"), tiny.parent / "runs")

    def progress(job: reproduce.Job, done: int) -> None:
        if done == 3:
            first_unit.set()

    def interrupt(*_: object) -> None:
        assert first_unit.wait(60)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduce, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            reproduce.reproduce(["tiny"], tiny, tell=reproduce.Tell(progress))
    assert not (tiny / "tiny").exists()
    before = reproduce.runtime(job.directory)["seconds"]
    assert before > 0
    assert reproduce.command(job, None)[3] == "resume"
    (job.directory / "summary.md").unlink(missing_ok=True)  # it may have been quick enough
    dones: list[int] = []
    reproduce.reproduce(["tiny"], tiny, tell=reproduce.Tell(lambda job, done: dones.append(done)))
    assert dones[0] >= 3
    assert dones[-1] == job.rounds == 12
    assert reproduce.runtime(job.directory)["seconds"] > before
    whole = tiny.parent / "whole" / "results"
    reproduce.reproduce(["tiny"], whole, jobs=1)
    for name in ("metrics.csv", "clients.csv", "summary.md"):
        again = whole.parent / "runs" / "tiny" / "one" / name
        assert (job.directory / name).read_bytes() == again.read_bytes()


def test_quick_checks_decide_the_exit_code(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("tiny", "--quick", "--out", tiny) == 0
    assert "holds: one round was run: measured" in capsys.readouterr().out
    assert (tiny.parent / "runs" / "tiny-quick" / "results" / "table.md").exists()
    assert not tiny.exists()
    assert not (tiny.parent / "README.md").exists()
    change("report.py", '"one": {"rounds": 1}', '"one": {"rounds": 0}')
    assert command("tiny", "--quick", "--out", tiny) == 1  # and it began anew
    assert "FAILS: one round was run" in capsys.readouterr().out


def test_what_the_run_says_is_passed_on(tiny: Path) -> None:
    change("one.toml", "clients-per-round = 3", "clients-per-round = 3000")
    with pytest.raises(FedrefError, match=r"^tiny/one: .*one.toml: clients-per-round is 3000"):
        command("tiny", "--out", tiny)


def test_a_diverged_algorithm_is_a_result(tiny: Path) -> None:
    change("one.toml", "steps = 1", "steps = 2")
    change(
        "one.toml", "[algorithms.fedprox]\nlr = 0.1", "[algorithms.fedprox]\nlr = 1e300\nmu = 1e300"
    )
    assert command("tiny", "--seeds", 1, "--out", tiny) == 0
    assert load_run(tiny.parent / "runs" / "tiny" / "one").diverged


def test_readme_of_somebody_else_is_left_alone(tiny: Path) -> None:
    tiny.parent.mkdir()
    (tiny.parent / "README.md").write_text("# Mine\n")
    with pytest.raises(FedrefError, match="was not made by fedref"):
        command("tiny", "--out", tiny)
    assert (tiny.parent / "README.md").read_text() == "# Mine\n"


@pytest.mark.parametrize("words", [("--jobs", 0), ("--seeds", 0)])
def test_wrong_numbers(words: tuple[object, ...], tiny: Path) -> None:
    with pytest.raises(ConfigError, match="expected at least 1"):
        command("tiny", "--out", tiny, *words)


# ---- the small parts ----------------------------------------------------------------------------


def test_rounds_done() -> None:
    def row(algorithm: str, round: int, status: str = "running", **more: object) -> str:
        return json.dumps(
            {"algorithm": algorithm, "seed": 0, "round": round, "status": status} | more
        )

    lines = [row("a", 0), row("a", 1), row("b", 2, "done"), row("a", 1, "diverged")]
    lines.append(row("a", 0, **{"sweep.mu": 1}))
    assert list(reproduce.rounds_done(lines, rounds=2)) == [1, 2, 5, 6, 7]


def test_quick_settings() -> None:
    quick = {"rounds": 3, "seeds": [0], "one": {"rounds": 5}}
    assert reproduce.quick_settings(quick, "one") == {"rounds": 5, "seeds": [0]}
    assert reproduce.quick_settings(quick, "two") == {"rounds": 3, "seeds": [0]}


def test_text_of_numbers() -> None:
    assert reproduce.spread([1.0, 3.0]) == "2.00 ± 1.00"
    assert reproduce.spread([1.0]) == "1.00"
    assert reproduce.spread([]) == reproduce.spread([np.nan]) == "–"
    assert (reproduce.signed(-1.5), reproduce.signed(2), reproduce.signed(None)) == (
        "−1.50",
        "+2.00",
        "–",
    )
    assert [reproduce.duration(s) for s in (8.24, 183, 3900)] == [
        "8.2 s",
        "3 min 3 s",
        "1 h 05 min",
    ]
    number = reproduce.Number(("x",), [89.0, 91.0], 89.5, "why")
    assert number.difference == 0.5
    table = reproduce.number_table(("what",), [number, number._replace(document=None)])
    assert table.splitlines() == [
        "| what | document | ours | difference | comment |",
        "| --- | --: | --: | --: | --- |",
        "| x | 89.50 | 90.00 ± 1.00 | +0.50 | why |",
        "| x | – | 90.00 ± 1.00 | – | why |",
    ]
    assert reproduce.short("a" * 40 + " + changes, unknown") == "a" * 10 + " + changes, unknown"


def test_runtime_adds_up_and_names_all_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runtime.json").write_text('{"seconds": 100.0, "version": "0", "commit": "a"}')
    monkeypatch.setattr(reproduce, "git_commit", lambda: "b")
    for _ in range(2):
        with reproduce.stopwatch(tmp_path) as tick:
            tick()
    found = reproduce.runtime(tmp_path)
    assert found["seconds"] >= 100
    assert found["commit"] == "a, b"
    (tmp_path / "runtime.json").write_text("{")
    with pytest.raises(DataError, match="is no JSON object"):
        reproduce.runtime(tmp_path)


def test_part_of_a_sweep(tiny: Path) -> None:
    from fedref import run

    table = {
        "data": {"name": "digits"},
        "algorithms": {"fedprox": {"lr": 0.1}},
        "sweep": {"until-gamma": [0.5, 0.9], "mu": [0.0, 1.0]},
        "clients-per-round": 2,
    }
    whole = run(table, rounds=1)
    part = reproduce.at(whole, until_gamma=0.9)
    assert [unit.point for unit in part.units] == [{"mu": 0.0}, {"mu": 1.0}]
    assert part.records == whole.records[2:]
    with pytest.raises(ConfigError, match="nothing at"):
        reproduce.at(whole, mu=7)


# ---- the real ones, in minutes ------------------------------------------------------------------


@pytest.fixture
def real() -> Path:
    """Where MNIST and Vehicle are."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("FEDREF_DATA") or beside)
    for name in ("mnist", "vehicle", "cifar10-gray"):
        if not folder.is_dir() or sources.locate(name, {}, folder) is None:
            pytest.skip(f"needs {name} in FEDREF_DATA or ../shared/data")
    return folder


@pytest.mark.slow
def test_quick_of_all_on_real_data(real: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    assert command("all", "--quick", "--data-dir", real, "--out", out) == 0
    for name in reproduce.names():
        made = tmp_path / "runs" / f"{name}-quick" / "results"
        table = (made / "table.md").read_text()
        assert "nan" not in table.lower().replace("quantity", "")
        for line in table.splitlines():
            if line.startswith("!["):
                assert (made / line.split("](")[1].rstrip(")")).stat().st_size > 5000


def test_a_claim_says_whether_it_holds_and_a_cell_has_every_seed() -> None:
    assert reproduce.claim("A is larger", True, "2 points") == "- Holds: *A is larger*; 2 points."
    assert reproduce.claim("B", False, "0").startswith("- Does not hold: *B*")
    assert reproduce.each_seed(np.array([0.1, 2, 1e-9])) == "0.1 2.0 1e-09"
