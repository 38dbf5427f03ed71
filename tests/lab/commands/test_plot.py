"""`fedref plot` as it is called."""

import shutil

import pytest

from fedref.lab import commands as cli
from fedref.lab import plots

RUN = (
    "run", "fedavg", "apfl", "--data", "digits", "--split", "per-fedavg", "--set", "split.users=6",
    "--rounds", "2", "--clients-per-round", "2", "--quiet",
)  # fmt: skip


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "first"
    assert cli.main([*RUN, "--out", str(path)]) == 0
    return path


def plot(*arguments) -> int:
    return cli.main(["plot", *map(str, arguments)])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("x.png", []),
        ("x.pdf", ["--metric", "loss,test-loss,bytes", "--title", "Digits"]),
        ("x.svg", ["--kind", "bars", "--metric", "accuracy-mean"]),
        ("x.svg", ["--kind", "clients", "--metric", "loss"]),
    ],
)
def test_pictures(directory, tmp_path, capsys, name, options):
    out = tmp_path / name
    assert plot(directory, *options, "--out", out) == 0
    assert out.stat().st_size > 1000
    assert capsys.readouterr().out == f"{out}\n"


def test_several_runs_are_named_by_their_directories(directory, here, monkeypatch, capsys):
    seen, copy = [], shutil.copytree(directory, here / directory.name)
    monkeypatch.setattr(plots, "curves", lambda table, *_, **__: seen.extend(table["title"]))
    assert plot(directory, copy) == 0
    assert capsys.readouterr().out == f"{directory / 'curves.png'}\n"
    assert {*seen} == {f"{l} ({name})" for l in ("fedavg", "apfl") for name in (directory, copy)}


def test_what_is_missing_is_told(directory, tmp_path, capsys):
    copy = shutil.copytree(directory, tmp_path / "copy")
    next((copy / "checkpoints").glob("*apfl*")).unlink()
    assert plot(copy) == 0
    assert "1 of 2 units have not begun" in capsys.readouterr().err
