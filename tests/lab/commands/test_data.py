"""`fedref data ...`, as a user types it."""

import re
from dataclasses import fields

import numpy as np
from dataset_files import alone, leaf_object, put_json  # noqa: F401 (a fixture)
from matplotlib.image import imsave
from running import main, refused

from fedref.lab import commands
from fedref.lab.datasets import SOURCES, from_manifest, load, manifest_of, split


def test_list_names_every_data_set(capsys):
    assert main("data", "list") == 0
    out = capsys.readouterr().out
    for name in SOURCES:
        assert name in out
    assert "`fedref data prepare mnist` downloads it" in out
    assert "digits.npz" in out


def test_show_prints_table_1_and_writes_nothing_but_a_picture_that_is_asked_for(here, capsys):
    words = "digits --split shards --set split.users=20 --out digits.png"
    main("data", "show", *words.split())
    lines = {line.split()[0]: line.split()[-1] for line in capsys.readouterr().out.splitlines()}
    assert (lines["clients"], lines["samples"], lines["mean"]) == ("20", "1,797", "89.8")
    put_json(here, leaf_object())
    lines = [f"{i % 3},{i},{i % 2}\n" for i in range(9)]
    (here / "a.csv").write_text("".join(["subject,x,y\n", *lines]))
    for name, words in (
        ("digits", "split by per-fedavg"),  # what is usual for these data
        ("data.json", "split by natural"),
        ("a.csv", "--set data.client=COLUMN, and --split iid"),  # the moment to look at it
    ):
        main("data", "show", name)
        assert words in capsys.readouterr().out
    assert {path.name for path in here.iterdir()} == {"a.csv", "data.json", "digits.png"}


def test_split_and_show(tmp_path, capsys):
    path = tmp_path / "m.json"
    path.write_text("of another split")
    words = ("--data", "digits", "--seed", 7, "--set", "split.users=8", "--set", "split.alpha=3e-1")
    main("data", "split", "dirichlet", *words, "--out", path, "--overwrite")
    expected = split("dirichlet", load("digits"), 7, users=8, alpha=0.3)
    assert manifest_of(from_manifest(path)) == manifest_of(expected)
    main("data", "show", path, "--out", tmp_path / "m.png")
    assert "alpha=0.3 min_rows=2 scaling=unit, seed 7" in capsys.readouterr().out


def test_prepare_checks_the_content(capsys, monkeypatch):
    main("data", "prepare", "digits")
    assert f"sha256 {SOURCES['digits'].sha256} (as published)" in capsys.readouterr().out
    monkeypatch.setitem(SOURCES, "digits", SOURCES["digits"]._replace(sha256="0"))
    line = refused(capsys, "data", "prepare", "digits")
    assert re.search("expected 0 .*give the path", line)


def test_rules_are_listed(capsys):
    from fedref.lab.datasets import RULES

    main("data", "rules")
    out = capsys.readouterr().out
    for name, rule in RULES.items():
        assert f"{name:<18}{rule.help}" in out
        assert all(f"{f.name} = " in out for f in fields(rule))
    assert len({rule.help for rule in RULES.values()}) == len(RULES)  # each says its own


def test_other_formats_are_refused_and_the_help_has_the_lines_that_convert_them(here, capsys):
    (here / "a.parquet").write_bytes(b"PAR1")
    for label, shade in (("cat", 0.0), ("dog", 1.0)):
        (here / "images" / label).mkdir(parents=True)
        imsave(here / "images" / label / "1.png", np.full((4, 5, 3), shade))
    for name in ("a.parquet", "images"):
        assert "`fedref data --help` says how" in refused(capsys, "data", "show", name)
    assert commands.main(["data", "--help"]) == 0
    *_, parquet, images = re.split(r"^  (?:Parquet|images) ", capsys.readouterr().out, flags=re.M)
    assert "pd.read_parquet(" in parquet
    exec(re.sub("^ +", "", images, flags=re.M), {})
    source = load(here / "data.npz")
    assert (source.image, source.label_names) == ((4, 5, 4), ("cat", "dog"))
