"""The golden vectors: whole, remade to their digits, readable without fedref, and discriminating."""

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from golden import CASES, GOLDEN

from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import DataError
from fedref.conformance import vectors
from fedref.judge import verdicts
from fedref.judge.compare import compare, difference
from fedref.judge.errata import MISTAKES
from reproduce.vectors import cases, conventions, files, make

FOLDER = vectors.folder()
INDEX = json.loads((FOLDER / "index.json").read_text("utf-8"))
SCHEMA = json.loads((FOLDER / "index.schema.json").read_text("utf-8"))


def test_the_index_has_the_fields_of_its_schema():
    """What is required is there, and nothing that is not described."""
    of_case = SCHEMA["properties"]["cases"]["items"]
    for thing, schema in [(INDEX, SCHEMA), *((case, of_case) for case in INDEX["cases"])]:
        assert {*schema["required"]} <= thing.keys() <= schema["properties"].keys()


def test_files_are_small_and_plain():
    assert sum(path.stat().st_size for path in FOLDER.glob("*.*")) <= 5.5e6
    assert {path.stem for path in FOLDER.glob("*.npz")} == set(GOLDEN)
    for said in INDEX["cases"]:
        with np.load(FOLDER / said["file"], allow_pickle=False) as archive:
            assert {archive[name].dtype.str for name in archive.files} <= {"<f8", "<i8", "|b1"}


def test_a_changed_file_is_refused(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "v")
    path = tmp_path / "v" / "loss-mlp.npz"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match="SHA-256"):
        vectors.read(tmp_path / "v")


def test_every_algorithm_and_family_is_there():
    traced = {(c.algorithm, c.model["family"]) for c in CASES if c.call == "round"}
    tested = {(c.algorithm, c.model["family"]) for c in CASES if c.call == "evaluate"}
    families = {c.model["family"] for c in CASES}
    for algorithm in ALGORITHMS:
        for family in ["mlp"] if algorithm in cases.FURTHER_ALGORITHMS else families:
            assert (algorithm, family) in traced | tested


def test_every_client_meta_and_round_case_has_a_twin_without_l2_before_it():
    names = list(GOLDEN)
    for name, case in GOLDEN.items():
        if case.call in ("client", "meta_gradient", "round") and case.model["l2"]:
            assert GOLDEN[f"{name}-no-l2"].model == case.model | {"l2": 0.0}
            assert names.index(f"{name}-no-l2") < names.index(name)


def row_counts(case):
    """How many rows the batches of a case have, and the data of clients that are read whole."""
    rounds, found = case.call in ("client", "round"), set()
    whole = case.algorithm in READ_WHOLE or not rounds
    for name, x in case.inputs.items():
        if "rows." in name:
            found |= {*(x >= 0).sum(-1).flat}
        elif whole and name.endswith("offsets"):
            found |= {*np.diff(x)}
        elif whole and name.endswith(".y") and case.call != "round":
            found.add(x.shape[-1])
    return found


#: Algorithms that take a gradient over all rows of a client.
READ_WHOLE = ("fedprox", "scaffold", "fedcurv", "apfl")


def test_batches_of_one_model_have_three_sizes_in_all_cases():
    """But for what loaders stumble over and empty supports: a compiled backend compiles each size anew."""
    sizes = {}
    for case in CASES:
        found = row_counts(case) - {0, 1} - ({9} if "loader" in case.name else set())
        sizes.setdefault(str(case.model | {"l2": 0}), set()).update(found)
    allowed = [{4, 8, 12}, {4, 7, 11}, {6}]
    assert all(any(found <= some for some in allowed) for found in sizes.values()), sizes


def test_quick_cases_are_few_and_catch_nearly_all_that_a_function_s_cases_catch():
    quick = [case for case in CASES if case.quick]
    known, caught = (
        {(c.call, name) for c in some for name in c.catches} for some in (CASES, quick)
    )
    assert len(quick) <= 70
    for call in {case.call for case in CASES}:
        most, some = (sum(own == call for own, _ in which) for which in (known, caught))
        assert some >= 0.97 * most, call


def test_all_equations_of_a_case_are_tags():
    assert all(case.tags[0] == case.tag for case in CASES)
    assert "apfl eq.1" in GOLDEN["round-fedprox-mlp"].tags
    assert "Adam m" in GOLDEN["aggregate-adam-fedmeta-maml"].tags
    found = vectors.select(CASES, "Adam m")
    assert "round-adam-fedmeta-sgd" in {case.name for case in found}
    assert [c.name for c in vectors.select(CASES, "client-fedavg")] == ["client-fedavg"]
    assert len(vectors.select(CASES, "client-fedav")) > 1


def test_the_index_says_of_each_mistake_what_it_is():
    assert {row["name"]: row["kind"] for row in INDEX["mistakes"]} == {
        name: row.kind for name, row in MISTAKES.items()
    }
    assert all(row["line"] for row in INDEX["mistakes"])
    assert re.fullmatch("[0-9a-f]{40}", INDEX["commit"])


def tolerance_of_inputs(case):
    """Drawn numbers are remade to the bit, nearly; what earlier rounds computed as these are."""
    if case.call not in ("client", "aggregate"):
        return 1e-15
    stem = case.name.removeprefix(f"{case.call}-").removesuffix("-no-l2")
    if stem.startswith("loader"):
        return GOLDEN["round-loader-fedavg"].tolerance["float64"]
    trace = GOLDEN.get(f"round-{stem}-mlp") or GOLDEN[f"round-{stem}"]
    return trace.tolerance["float64"]


@cache
def situations():
    return {case.name: case for case in cases.all_cases()}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_vectors_are_remade(name):
    """To the recorded digits on any machine. The outputs are made from the inputs in the file: a
    case cut from a trace is else held to its own tolerance for what the rounds before it lose."""
    kept, situation = GOLDEN[name], situations()[name]
    assert (situation.model, situation.hyper, situation.tag) == (kept.model, kept.hyper, kept.tag)
    assert situation.inputs.keys() == kept.inputs.keys()
    for key, x in kept.inputs.items():
        assert difference(situation.inputs[key], x) <= tolerance_of_inputs(kept), key
    outputs = make.compute(kept, np.float64)
    assert outputs.keys() == kept.outputs.keys()
    assert compare(outputs, kept) is None


def test_remaking_gives_the_same_bytes(monkeypatch):
    """On one machine, twice; a case of each call. What it catches follows from its numbers."""
    monkeypatch.setattr(make, "find_catches", lambda case: ())
    assert [*situations()] == [*GOLDEN]
    for one in {case.call: case for case in reversed(situations().values())}.values():
        made = [make.complete(one) for _ in range(2)]
        first, second = (files.index_entry(case, files.case_bytes(case)) for case in made)
        assert first == second


def test_a_case_catches_what_moves_its_outputs(monkeypatch, tmp_path):
    """Of one in four mistakes: each takes some time to compile. What is known is not computed anew."""
    monkeypatch.setattr(make, "KNOWN", tmp_path)
    case, some = GOLDEN["client-fedprox-no-l2"], {*list(MISTAKES)[::4], "μ/2 in the place of μ"}
    monkeypatch.setattr(make.errata, "MISTAKES", {name: MISTAKES[name] for name in some})
    caught = {*make.find_catches(case)}
    assert "μ/2 in the place of μ" in caught
    assert caught == some & {*case.catches} != some
    assert make.find_catches(case._replace(tolerance={"float64": 1e9})) == ()
    monkeypatch.setattr(make, "is_caught", None)
    assert {*make.find_catches(case)} == caught
    with pytest.raises(TypeError):
        make.find_catches(case._replace(hyper=case.hyper | {"mu": 0.1}))


def test_a_convention_is_what_shows_at_kinks():
    for name, case in GOLDEN.items():
        assert case.convention == ("-kink-" in name)
        kinds = {MISTAKES[mistake].kind for mistake in case.catches}
        assert not case.convention or (
            "convention" in kinds and verdicts.convention_remarks(case, {})
        )


def test_witnesses_agree_and_tolerances_are_the_measured_condition():
    for case in CASES:
        assert min(case.digits.values()) >= 14 - np.log10(case.condition), (case.name, case.digits)
        assert ("torch" in case.digits) == ("specification" in case.digits)
        assert case.condition <= 2048
        for name, tolerance in case.tolerance.items():
            units = tolerance / np.finfo(name).eps / case.condition
            assert units == pytest.approx(make.MARGIN, rel=0.05)


NAME = "round-apfl-plateau"


def lines(text):
    """name → (type, shape, values) of what a reader printed."""
    found = {}
    for line in text.splitlines():
        name, kind, shape, values = line.split("\t")
        numbers = [float({"True": 1, "False": 0}.get(x, x)) for x in values.split()]
        found[name] = (kind, tuple(map(int, shape.split("x"))) if shape != "-" else (), numbers)
    return found


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


#: A reader's file → the program that it needs, and how it is started.
READERS = {
    "reader.py": (sys.executable, "{program} -S {source}"),
    "reader.cpp": ("g++", "{program} -std=c++17 -Wall -Werror {source} -o {out}", "{out}"),
    "reader.js": ("node", "{program} {source}"),
}


@pytest.mark.parametrize("file", READERS)
def test_a_reader_without_fedref_reads_every_number(tmp_path, file):
    source, (program, *steps) = FOLDER / "readers" / file, READERS[file]
    if not shutil.which(program):
        pytest.skip(f"needs {program}")
    assert len(source.read_text("utf-8").splitlines()) < 65
    words = {"program": program, "source": source, "out": tmp_path / "reader"}
    *before, command = ([word.format(**words) for word in step.split()] for step in steps)
    for step in before:
        run(*step)
    for wrong in ([], ["absent.npz"], [str(FOLDER / "index.json")]):
        told = subprocess.run(command + wrong, capture_output=True, text=True, timeout=120)
        assert told.returncode == 1
        assert told.stderr.count("\n") == 1
        assert (*wrong, "usage")[0] in told.stderr
    for name in (NAME, "meta-per-fedavg-cnn"):
        path = FOLDER / f"{name}.npz"
        found = lines(run(*command, str(path)))
        with np.load(path) as archive:
            assert set(found) == set(archive.files)
            for key, x in archive.items():
                kind, shape, values = found[key]
                assert (kind, shape) == (x.dtype.str, x.shape)
                np.testing.assert_array_equal(values, x.ravel())


def test_the_maker_writes_what_is_read(tmp_path):
    kept = CASES[:3]
    files.write(kept, tmp_path)
    (tmp_path / "old.npz").touch()
    files.write(kept, tmp_path)
    assert not (tmp_path / "old.npz").exists()
    again = vectors.read(tmp_path)
    assert [case.name for case in again] == [case.name for case in kept]
    for name in (case.name for case in kept):
        assert (tmp_path / f"{name}.npz").read_bytes() == (FOLDER / f"{name}.npz").read_bytes()
    assert Path(tmp_path / "index.json").read_text("utf-8").count("\n") == 7


def test_the_table_of_conventions_is_what_fedref_and_an_installed_torch_do():
    written = conventions.read_table(conventions.PAGE.read_text("utf-8"))
    measured = conventions.measure_all([conventions.in_fedref, conventions.in_torch])
    assert "fedref" in measured
    assert "fedref" in written
    assert {name: written.get(name, column) for name, column in measured.items()} == measured


@pytest.mark.slow
def test_the_script_writes_the_columns_of_libraries_and_keeps_those_of_other_versions(tmp_path):
    """In a process of its own: JAX is set to float64."""
    text = conventions.PAGE.read_text("utf-8")
    written = conventions.read_table(text)
    (tmp_path / "page.md").write_text(text.replace("| fedref |", "| torch 1.0 |"), "utf-8")
    command = [sys.executable, "-m", "reproduce.vectors.conventions", tmp_path / "page.md"]
    subprocess.run(command, check=True)
    again = conventions.read_table((tmp_path / "page.md").read_text("utf-8"))
    assert again["torch 1.0"] == again["fedref"] == written["fedref"]
    assert {name: again[name] for name in written} == written


def test_libraries_that_a_remark_names_have_that_slope():
    """What `verdicts.LIBRARIES` says of functions, in the rows of the table that measure them."""
    table = conventions.read_table(conventions.PAGE.read_text("utf-8"))
    rows = [*conventions.ROWS]
    says = {
        ("clip(x, 0, 1)′(0)", "torch 2.13.0"): "1", ("clip(x, 0, 1)′(0)", "torch 2.14.1"): "0",
        ("hinge′(1), by clip or max", "torch 2.13.0"): "−1", ("ELU″(0)", "JAX 0.12.0.1"): "1",
        ("hinge′(1), by clip or max", "JAX 0.12.0.1"): "−0.5",
        ("max(x, 0)′(0)", "torch 2.14.1"): "0.5", ("max(x, 0)′(0)", "JAX 0.12.0.1"): "0.5",
        ("maximum of an array, a tie: of the first", "torch 2.14.1"): "0.5",
        ("maximum of an array, a tie: of the first", "JAX 0.12.0.1"): "0.5",
    }  # fmt: skip
    assert {key: table[key[1]][rows.index(key[0])] for key in says} == says
