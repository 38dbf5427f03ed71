"""`fedref data ...`, as a user types it."""

from dataclasses import fields

import pytest
from dataset_files import alone, leaf_object, put_json  # noqa: F401 (a fixture)

from fedref import FedrefError
from fedref.lab import commands
from fedref.lab.commands import COMMANDS, parse
from fedref.lab.datasets import SOURCES, from_manifest, load, manifest_of, split

BELOW = [name.partition(" ")[2] for name in COMMANDS if name.startswith("data ")]


def fedref(*words: object) -> int:
    return parse(["data", *map(str, words)])() or 0


def help_of(*words: str) -> None:
    with pytest.raises(SystemExit) as caught:
        fedref(*words, "--help")
    assert caught.value.code == 0


def test_list_names_every_data_set(capsys):
    assert fedref("list") == 0
    out = capsys.readouterr().out
    for name in SOURCES:
        assert name in out
    assert "`fedref data prepare mnist` downloads it" in out
    assert "digits.npz" in out


def test_show_prints_table_1_and_draws(tmp_path, capsys):
    picture = tmp_path / "digits.png"
    fedref("show", "digits", "--split", "shards", "--set", "split.users=20", "--out", picture)
    lines = {line.split()[0]: line.split()[-1] for line in capsys.readouterr().out.splitlines()}
    assert (lines["clients"], lines["samples"], lines["mean"]) == ("20", "1,797", "89.8")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_show_uses_the_data_sets_own_split_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fedref("show", "digits")
    assert "split by per-fedavg" in capsys.readouterr().out
    fedref("show", put_json(tmp_path, leaf_object()))
    out = capsys.readouterr().out
    assert "split by natural" in out
    assert "picture" not in out
    assert [path.name for path in tmp_path.iterdir()] == ["data.json"]


def test_show_refuses_what_run_refuses(tmp_path, capsys):
    table = tmp_path / "a.csv"
    table.write_text("subject,x,y\n" + "".join(f"{i % 3},{i},{1 + i % 2}\n" for i in range(12)))
    message = (
        r"a.csv has no natural clients: expected a column .* called client.*data.client=COLUMN"
    )
    with pytest.raises(FedrefError, match=message):
        parse(["run", "fedavg", "--data", str(table)])()
    fedref("show", table)  # the moment to look at it
    out = capsys.readouterr().out
    assert "a.csv: 12 rows of 2 features (float64), labels 1 to 2" in out
    assert "--set data.client=COLUMN, and --split iid" in out
    fedref("show", table, "--split", "iid", "--set", "split.users=3")
    out = capsys.readouterr().out
    assert "labels run from 1 to 2, a model's classes from 0 to 2; no row has label 0" in out


def test_show_and_split_divide_as_run_does(tmp_path, capsys):
    table, path = tmp_path / "a.csv", tmp_path / "m.json"
    table.write_text("x,outcome,shop\n" + "".join(f"{i},{i % 2},{i % 3}\n" for i in range(30)))
    words = ("--set", "data.label=outcome", "--set", "data.client=shop")
    fedref("show", table, *words)
    assert "3" in capsys.readouterr().out.splitlines()[1]  # clients
    fedref(
        "split", "dirichlet", "--data", table, *words, "--set", "split.min-rows=3", "--out", path
    )
    source = load(table, label="outcome", client="shop")
    assert manifest_of(from_manifest(path)) == manifest_of(split("dirichlet", source, min_rows=3))
    for rule, clients in (("dirichlet", 20), ("per-fedavg", 20)):  # as `fedref run` divides digits
        capsys.readouterr()
        fedref("show", "digits", "--split", rule)
        assert f"users={clients}" in capsys.readouterr().out


def test_split_and_show(tmp_path, capsys):
    path = tmp_path / "m.json"
    words = ("--data", "digits", "--seed", 7, "--set", "split.users=8", "--set", "split.alpha=3e-1")
    fedref("split", "dirichlet", *words, "--out", path)
    expected = split("dirichlet", load("digits"), 7, users=8, alpha=0.3)
    assert manifest_of(from_manifest(path)) == manifest_of(expected)
    fedref("show", path, "--out", tmp_path / "m.png")
    assert "alpha=0.3 min_rows=2 scaling=unit, seed 7" in capsys.readouterr().out
    path.write_text(path.read_text().replace('"seed": 7', '"seed": 1'))
    with pytest.raises(FedrefError, match="it has been changed"):
        fedref("show", path)


def test_split_replaces_no_file_unless_told_to(tmp_path, capsys):
    path = tmp_path / "m.json"
    path.write_text("mine")
    words = ("split", "iid", "--data", "digits", "--set", "split.users=4e0", "--out", path)
    with pytest.raises(FedrefError, match=r"m\.json: exists already; .* or --overwrite"):
        fedref(*words)
    assert path.read_text() == "mine"
    fedref(*words, "--overwrite")
    assert from_manifest(path).clients == 4


def test_prepare_checks_the_content(capsys, monkeypatch):
    fedref("prepare", "digits")
    assert f"sha256 {SOURCES['digits'].sha256} (as published)" in capsys.readouterr().out
    monkeypatch.setitem(SOURCES, "digits", SOURCES["digits"]._replace(sha256="0"))
    with pytest.raises(FedrefError, match=r"expected 0 .*give the path"):
        fedref("prepare", "digits")


def test_rules_are_listed(capsys):
    from fedref.lab.datasets import RULES

    fedref("rules")
    out = capsys.readouterr().out
    for name, rule in RULES.items():
        assert f"{name:<18}{rule.help}" in out
        assert all(f"{f.name} = " in out for f in fields(rule))
    assert len({rule.help for rule in RULES.values()}) == len(RULES)  # each says its own


def test_other_formats_are_refused_with_the_lines_that_make_arrays(tmp_path, capsys):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "cat" / "1.png").write_bytes(b"")
    for name, call in (("a.parquet", "pd.read_parquet("), ("images", "Image.open(f)")):
        assert commands.main(["data", "show", str(tmp_path / name)]) == 2
        first, *lines = capsys.readouterr().err.rstrip().splitlines()
        assert first.endswith("as these lines make:")
        assert len(lines) == 4
        assert all(line.startswith("    ") for line in lines)
        assert call in "".join(lines)


@pytest.mark.parametrize(
    ("cell", "hint"),
    [("", "fill the cell, or leave out"), ("nan", "fill"), ("ward", "data.client='b'")],
)
def test_a_cell_without_a_number_gets_the_hint_that_fits(tmp_path, cell, hint):
    table = tmp_path / "a.csv"
    table.write_text(f"a,b,y\n1,{cell},0\n2,3,1\n")
    with pytest.raises(FedrefError) as error:
        parse(["data", "show", str(table)])()
    assert hint in str(error.value)
    assert ("data.client" in str(error.value)) == (cell == "ward")
