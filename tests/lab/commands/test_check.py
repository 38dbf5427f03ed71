"""`fedref check`: the table, the exit code, --json, --only, --plot."""

import json
import math
import sys

import numpy as np
import pytest
from running import Screen, main

from fedref import proofs, sampling
from fedref.proofs import picture

ROW = proofs.Row("a", "b", math.nan, 1e-12, "FAIL", "why")


def test_the_table_has_the_chosen_rows_in_the_order_of_all(capsys):
    assert main("check", "--only", "apfl eq.3", "--only", "[apfl eq.4]", "fedprox B") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["tag", "compared", "error", "verdict"]
    rows = lines[1:-2]
    assert len(rows) == len(proofs.select(["apfl eq.3", "apfl eq.4", "fedprox B"]))
    at = lines[0].index("verdict")
    assert {line[at:] for line in rows} == {"ok"}  # aligned
    tags = dict.fromkeys(row.partition("]")[0] for row in rows)
    assert [*tags] == ["[fedprox B", "[apfl eq.3", "[apfl eq.4"]
    assert lines[-1].startswith(f"all {len(rows)} hold (")


def test_a_failure_in_the_table_and_in_json(capsys, monkeypatch):
    monkeypatch.setattr(proofs, "run", lambda *a: [ROW._replace(verdict="ok", note=""), ROW])
    assert main("check") == 1
    *_, right, wrong, note, _, end = capsys.readouterr().out.splitlines()
    assert right.split() == ["[a]", "b", "nan", "ok"]
    assert wrong.split() == ["[a]", "b", "nan", "FAIL"]
    assert note == "    why"
    assert end.startswith("1 of 2 failed (")
    assert main("check", "--json") == 1
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert document["ok"] is False
    proof = document["proofs"][1]
    assert (proof["error"], proof["note"]) == (None, "why")


def test_a_bar_on_a_terminal_that_is_not_in_the_output(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    assert main("check", "--json", "--only", "fedprox B", "--seed", "3") == 0
    assert "fedref check" in screen.getvalue()
    document = json.loads(capsys.readouterr().out)
    assert (document["seed"], document["ok"], document["seconds"] > 0) == (3, True, True)


def test_the_picture_says_what_it_should(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(proofs, "run", lambda *a: [])
    path = tmp_path / "steps.png"
    assert main("check", "--json", "--plot", str(path)) == 0
    assert capsys.readouterr().err.strip() == str(path)  # standard output is for JSON
    assert path.stat().st_size > 50_000
    case = proofs.Setting(proofs.MODELS["MLP tanh"], sampling.stream(0, "check picture"))
    case.vs = case.draw_vectors(12)
    errors = picture.derivative_errors(case, np.logspace(-20, 0, 81))
    assert errors["complex"][:41].max() < 1e-14 < errors["central"].min() < errors["forward"].min()
    slopes = {k: r.slope for k, r in picture.taylor_remainders(case, np.ones(1)).items()}
    assert slopes == pytest.approx({"wrong": 1, "gradient": 2, "hvp": 3}, abs=0.05)
