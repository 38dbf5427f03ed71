"""What there is to reproduce, its jobs, and data that are missing."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from reproducing import command

from fedref.boundary.errors import ConfigError, DataError
from reproduce import catalogue, jobs


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--list") == 0
    out = capsys.readouterr().out
    assert "per-fedavg-table" in out
    assert "APFL, §4.2.2 and Table 2" in out
    assert len(catalogue.names()) >= 6


@pytest.mark.parametrize("name", catalogue.names())
def test_every_reproduction_can_be_run(name: str, tmp_path: Path) -> None:
    found = catalogue.find(name)
    assert found.text.startswith(f"# {found.title}\n\n{found.paper}\n\n")
    assert found.paper.startswith(
        ("APFL, ", "FedMAML, ", "FedMeta, ", "FedProx, ", "Per-FedAvg, ", "No paper: ")
    )
    assert callable(found.get("report", None))
    assert found.owner in catalogue.names()
    for quick in (False, True):
        for job in catalogue.jobs_of(found, tmp_path, quick):
            assert job.experiment.rounds > 0
    assert not list(found.folder.glob("__pycache__"))


def test_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'apfl-figure-1'"):
        catalogue.find("apfl-figure1")
    with pytest.raises(
        ConfigError, match="nothing to reproduce: give a NAME of apfl-ablations, apfl-cifar10"
    ):
        command()


def test_uses_runs_of_another(tmp_path: Path) -> None:
    one, two = (
        catalogue.jobs_of(catalogue.find(name), tmp_path)
        for name in ("apfl-ablations", "apfl-figure-2")
    )
    assert {job.directory for job in two} < {job.directory for job in one}  # and what they change
    assert [job.directory.relative_to(tmp_path).as_posix() for job in two] == [
        "apfl-figure-1/femnist",
        "apfl-figure-1/mnist",
        "apfl-figure-1/vehicle",
    ]


def test_seeds_are_for_all_but_the_ablations(tmp_path: Path) -> None:
    jobs = catalogue.jobs_of(catalogue.find("per-fedavg-table"), tmp_path, seeds=[3, 5])
    found = {job.file.stem: job.experiment.seeds for job in jobs}
    assert {found[stem] for stem in found if not stem.startswith("ablation-")} == {(3, 5)}
    assert {found[stem] for stem in found if stem.startswith("ablation-")} == {(0,)}


def test_an_installed_package_brings_its_own(tiny: Path, tmp_path: Path) -> None:
    """As a wheel lays it out: fedref/_reproduce, nothing beside it; and its processes find it."""
    site, ignored = tmp_path / "site", shutil.ignore_patterns("__pycache__", "results", "runs")
    shutil.copytree(catalogue.PACKAGE, site / "fedref", ignore=ignored)
    shutil.copytree(Path(jobs.__file__).parent, site / "fedref" / "_reproduce", ignore=ignored)
    shutil.copytree(catalogue.root() / "tiny", site / "fedref" / "_reproduce" / "tiny")
    (site / "fedref" / "_data").symlink_to(catalogue.PACKAGE.parent / "data")
    libraries = sysconfig.get_path("purelib")  # with -S, without the .pth of an editable install
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-m", "fedref", "reproduce", "tiny", "--quick"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), libraries])},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "holds: one round was run: measured" in done.stdout
    table = (tmp_path / "reproduce/runs/tiny-quick/results/table.md").read_text()
    assert table.endswith(" | 0.1.0 | unknown |\n")


def test_a_checkout_has_it_beside_the_package() -> None:
    assert catalogue.root() == catalogue.PACKAGE.parent / "reproduce"
    assert catalogue.default_out() == catalogue.root() / "results"


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
    found = [catalogue.find("fedprox-stragglers")]
    assert catalogue.missing_data(found, catalogue.jobs_of(found[0], tmp_path), None) == ""


def test_wrong_data_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such folder"):
        command("apfl-table-1", "--data-dir", tmp_path / "nowhere", "--out", tmp_path / "results")


def test_quick_settings() -> None:
    quick = {"rounds": 3, "seeds": [0], "one": {"rounds": 5}}
    assert catalogue.quick_settings(quick, "one") == {"rounds": 5, "seeds": [0]}
    assert catalogue.quick_settings(quick, "two") == {"rounds": 3, "seeds": [0]}
