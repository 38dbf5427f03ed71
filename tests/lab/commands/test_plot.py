"""`fedref plot` as it is called."""

import shutil
import sys

import pytest
from running import main

from fedref.lab import plots

RUN = (
    "run", "fedavg", "apfl", "--data", "digits", "--split", "per-fedavg", "--set", "split.users=6",
    "--rounds", "2", "--clients-per-round", "2", "--quiet",
)  # fmt: skip


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "first"
    assert main(*RUN, "--out", path) == 0
    return path


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("x.pdf", ["--metric", "loss,test-loss,bytes", "--title", "Digits"]),
        ("x.svg", ["--kind", "bars", "--metric", "accuracy-mean"]),
        ("x.svg", ["--kind", "clients", "--metric", "loss"]),
    ],
)
def test_pictures(directory, tmp_path, capsys, name, options):
    out = tmp_path / name
    assert main("plot", directory, *options, "--out", out) == 0
    assert out.stat().st_size > 1000
    assert capsys.readouterr().out == f"{out}\n"


def test_several_runs_are_named_by_their_directories(directory, here, monkeypatch, capsys):
    seen, copy = [], shutil.copytree(directory, here / directory.name)
    monkeypatch.setattr(plots, "curves", lambda table, *_, **__: seen.extend(table["title"]))
    assert main("plot", directory, copy) == 0
    assert capsys.readouterr().out == f"{directory / 'curves.png'}\n"
    assert {*seen} == {f"{l} ({name})" for l in ("fedavg", "apfl") for name in (directory, copy)}


def test_what_is_missing_is_told(directory, tmp_path, capsys):
    copy = shutil.copytree(directory, tmp_path / "copy")
    next((copy / "checkpoints").glob("*apfl*")).unlink()
    assert main("plot", copy) == 0
    assert "1 of 2 units have not begun" in capsys.readouterr().err


OWN = """
from dataclasses import dataclass
from typing import NamedTuple
from fedref.algorithm import ClientResult
from fedref.algorithms.fedavg import FedAvg
class Own(NamedTuple):
    v: object
@dataclass(frozen=True)
class Mine(FedAvg):
    lam: float = 0.1
    sign: float = -1.0
    bounds = {"sign": (-2, 2)}
    some: tuple[int, ...] = (1, 2)
    none: int | None = None
    def finish(self, model, sent, local, client_state, data):
        return ClientResult(local, Own(local))
"""


def test_a_picture_needs_none_of_the_user_s_code(page_files, monkeypatch, capsys):
    (page_files / "gone_soon.py").write_text(OWN)
    words = ("run", "gone_soon:Mine", "fedavg", "--data", "mine:load", "--model", "mine:Poisson",
             "--set", "split.validation=0.2", "--set", "sweep.lam=[0.1, 1, 2]",
             "--rounds", "2", "-q", "-o", "r")  # fmt: skip
    assert main(*words) == 0
    for module in ("gone_soon", "mine"):
        (page_files / f"{module}.py").unlink()
        monkeypatch.delitem(sys.modules, module)
    for options in ([], ["--against", "lam"], ["--kind", "clients"], ["--best"]):
        capsys.readouterr()
        assert main("plot", "r", *options) == 0
        printed = capsys.readouterr()
        assert "have not begun" not in printed.err  # every unit is found
    assert "r, chosen by validation:\n| algorithm " in printed.out
    assert "| validation (%) |" in printed.out
    assert main("resume", "r") == 2
    assert "gone_soon:Mine: cannot be imported" in capsys.readouterr().err
