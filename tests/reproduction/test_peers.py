"""Other projects: adapters' shape, their rows, and the report's rows from a project made up here."""

import ast
import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from fedref.boundary.errors import ConfigError
from fedref.conformance import errata
from fedref.conformance.suite import Answer, grade
from reproduce import default_out
from reproduce.peers import cases, mistakes
from reproduce.peers import report as peers

FOLDER = default_out().parent / "peers"
ADAPTERS = sorted((FOLDER / "adapters").glob("*.py"))
#: What an adapter would need to fetch or build a project.
FETCHING = {"subprocess", "urllib", "http", "socket", "requests", "pip", "git", "shutil", "tarfile"}
FAKE = """
[[project]]
name = "fake"
of = "nobody/fake"
licence = "MIT"
checkout = "0123456"
passes = ["FedAvg", "FedAvg, a batch of one row", "server's Adam", "MAML"]
[[project.rows]]
run = "FedProx"
kind = "wrong"
equals = ["the penalty's gradient is zero"]
where = "fake.py:1"
says = "there is no penalty"
"""
ADAPTER = """
from fedref.conformance.backends.reference import LOOP

def client(algorithm, model, hyper, server, rows, **inputs):
    if (rows["D"] < 0).any():
        raise ValueError("too long")
    server = {name: 0.0 * x if name == "mu" else x for name, x in server.items()}
    return LOOP.client(algorithm, model, hyper, server=server, rows=rows, **inputs)

def aggregate(algorithm, model, hyper, server, **inputs):
    return {"server": {"theta": server["theta"]}}
"""


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.stem)
def test_adapters_are_short_and_fetch_nothing(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 60
    for node in ast.walk(ast.parse(text)):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.partition(".")[0] for name in names} & FETCHING
        assert not (isinstance(node, ast.Attribute) and node.attr in ("system", "popen", "hub"))


def test_every_row_can_be_measured() -> None:
    projects = peers.read_projects()
    assert {p["name"] for p in projects} == {path.stem for path in ADAPTERS}
    wrong = [
        f"{p['of']}: {row['run']}"
        for p in projects
        for row in p["rows"]
        if row.get("kind") == "wrong"
    ]
    assert re.findall(r"^## (.*)$", peers.NOTES.read_text("utf-8"), re.MULTILINE) == wrong
    for project in projects:
        assert ("install" in project) != ("checkout" in project)
        for row in project["rows"]:
            case = cases.make_case(row["run"])
            assert case.model["l2"] == 0
            assert row.get("kind", "wrong") in ("variant", "convention", "wrong")
            if "equals" in row:  # is something else than the paper's
                wrong = mistakes.outputs_with(case, *row["equals"])
                assert grade(Answer(wrong), case).error > 1e-3
                alone = len(row["equals"]) == 1 and row["equals"][0] in errata.MISTAKES
                if alone and errata.answer(case):
                    assert row["equals"][0] in mistakes.find_names(wrong, case)


def test_rows_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / "fake.py").write_text(ADAPTER)
    (tmp_path / "projects.toml").write_text(FAKE)
    monkeypatch.setattr(peers, "ROWS", tmp_path / "projects.toml")
    monkeypatch.setattr(peers, "NOTES", tmp_path / "notes.md")
    (tmp_path / "notes.md").write_text(
        "# Notes\n\n## nobody/fake: FedProx\n\nAdd it.\n\n## b: c\n\nNo.\n"
    )
    checkouts = {"fake": tmp_path}
    out = tmp_path / "out"
    out.mkdir()
    parts, measured = peers.report(out, checkouts)
    rows = {row["run"]: row for row in measured}
    assert {run: row["verdict"] for run, row in rows.items()} == {
        "FedAvg": "passed", "FedAvg, a batch of one row": "not run", "server's Adam": "differs",
        "MAML": "not run", "FedProx": "wrong",
    }  # fmt: skip
    assert rows["FedAvg, a batch of one row"]["what"] == "raised ValueError: too long (fake.py:6)"
    assert rows["MAML"]["what"] == "the adapter does not offer it"
    assert rows["FedProx"]["what"].startswith(
        "`fake.py:1`: there is no penalty; fedref with “the penalty's gradient is zero” gives the same to "
    )
    assert float(rows["FedProx"]["off by"]) > 1e-3
    assert "| nobody/fake | FedProx | wrong | " in parts["table"]
    again = "`git -C DIR checkout 0123456`, `python -m reproduce.peers --checkout fake=DIR"
    assert again in parts["again"]
    _, _, note, *others = (out / "notes.md").read_text("utf-8").split("\n\n")
    assert re.fullmatch(r"Seen at .+ on [\d-]+, off by \de-0\d\. Add it\.", note)
    assert others == ["## b: c", "No.\n"]
    (other,) = peers.find_unexpected(measured)
    assert other.startswith("nobody/fake server's Adam: ")

    # an adapter that is broken is told from a project that is absent
    (tmp_path / "adapters" / "fake.py").write_text("import json.nothing")
    (tmp_path / "other").mkdir()
    measured = peers.report(tmp_path / "other", checkouts)[1]
    assert {row["what"].partition(":")[0] for row in measured} == {"ModuleNotFoundError"}
    assert peers.find_unexpected(measured) == []
    (tmp_path / "adapters" / "fake.py").write_text("=")
    assert peers.find_unexpected(peers.report(tmp_path / "other", checkouts)[1])

    # without the checkout what was measured stays, and no row is an error
    kept = (out / "table.csv").read_text("utf-8").splitlines()
    assert {row["verdict"] for row in peers.report(out, {})[1]} == {"not run"}
    again = (out / "table.csv").read_text("utf-8").splitlines()
    stays = [old == new for old, new in zip(kept, again, strict=True)]
    assert stays == ["not run" not in line for line in kept]


def test_nothing_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(peers, "version", find_nothing)
    parts, measured = peers.report(tmp_path, {})
    assert {row["verdict"] for row in measured} == {"not run"}
    assert {row["what"].partition(" --")[0] for row in measured} == {"not installed", "needs"}
    assert parts["counts"] == f"{len(measured)} not run"
    assert peers.find_unexpected(measured) == []
    with pytest.raises(ConfigError, match=r"unknown checkout 'plat'.*plato"):
        peers.report(tmp_path, {"plat": tmp_path})
