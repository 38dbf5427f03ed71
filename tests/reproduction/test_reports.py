"""From files to README: tables, checks, and the files that are written."""

import errno
import json
from pathlib import Path

import pytest
from reproducing import change, command

import reproduce
from fedref import load_run
from fedref.boundary.errors import ConfigError, FedrefError
from fedref.commands import main
from reproduce import catalogue, readme


def test_from_files_to_readme(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("tiny", "--out", tiny) == 0
    assert "fedref: tiny/one: finished, " in capsys.readouterr().err
    table = (tiny / "tiny" / "table.md").read_text()
    assert table.startswith(
        "# Tiny\n\nNobody's, §0.\n\n## Part of 1.0\n\n![a picture](one.png)\n\n| stem"
    )
    header = "| stem | method | paper | ours | difference | comment |"
    assert header in table
    assert "| one | digits | 9412306fcce7 | per-fedavg, seed 0 | 0, 1 | " in table
    numbers = (tiny / "tiny" / "numbers.csv").read_text().splitlines()
    assert numbers[0] == "stem,method,paper,mean,sd,difference,each seed"
    run = load_run(tiny.parent / "runs" / "tiny" / "one")
    ours = 100 * run.curve("fedavg")[1][:, -1]
    assert f"{ours.mean():.2f} ± {ours.std():.2f}" in table
    text = (tiny.parent / "README.md").read_text()
    assert text.startswith(readme.MARK)
    assert "\n- [Tiny](results/tiny/table.md)\n" in text

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


def test_quick_checks_decide_the_exit_code(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("tiny", "--quick", "--out", tiny) == 0
    assert "holds: one round was run: measured" in capsys.readouterr().out
    assert (tiny.parent / "runs" / "tiny-quick" / "results" / "table.md").exists()
    assert not tiny.exists()
    assert not (tiny.parent / "README.md").exists()
    change("report.py", '"one": {"rounds": 1}', '"one": {"rounds": 0}')
    assert command("tiny", "--quick", "--out", tiny) == 1  # and it began anew
    assert "FAILS: one round was run" in capsys.readouterr().out


def test_readme_of_somebody_else_is_left_alone(tiny: Path) -> None:
    tiny.parent.mkdir()
    (tiny.parent / "README.md").write_text("# Mine\n")
    with pytest.raises(FedrefError, match="was not made by fedref"):
        command("tiny", "--out", tiny)
    assert (tiny.parent / "README.md").read_text() == "# Mine\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--jobs", 0), "at least 1"),
        (("--seeds", "0-2"), "expected A:B"),
        (("--seeds", "2:2"), "expected different integers"),
    ],
)
def test_wrong_numbers(words: tuple[object, ...], message: str, tiny: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        command("tiny", "--out", tiny, *words)


def test_old_quick_runs_that_cannot_be_removed_are_not_reported_on(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["reproduce", "tiny", "--quick", "--out", str(tiny)]
    assert main(words) == 0
    capsys.readouterr()

    def read_only(folder: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(errno.EROFS, "Read-only file system", str(folder))

    monkeypatch.setattr(reproduce.shutil, "rmtree", read_only)
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"fedref: error: {tiny.parent / 'runs/tiny-quick/one'}: Read-only file system\n"


@pytest.mark.parametrize("quick", [("--quick",), ()])
def test_where_nothing_can_be_written_it_is_one_line(
    quick: tuple[str, ...], tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.parent.write_text("a file")  # as in a read-only folder: no folder can be made here
    assert main(["reproduce", "tiny", *quick, "--out", str(tiny)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("fedref: error: ")
    assert err.endswith("(Not a directory)\n")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_quick_of_all_on_real_data(real: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    assert command("all", "--quick", "--data-dir", real, "--out", out) == 0
    for name in catalogue.names():
        made = tmp_path / "runs" / f"{name}-quick" / "results"
        table = (made / "table.md").read_text()
        assert "nan" not in table.lower().replace("quantity", "")
        for line in table.splitlines():
            if line.startswith("!["):
                assert (made / line.split("](")[1].rstrip(")")).stat().st_size > 5000
