"""Other projects: adapters' shape, their rows, and the report's rows from a project made up here."""

import re

import pytest

from fedref.boundary.errors import ConfigError
from fedref.judge import errata
from reproduce import RESULTS
from reproduce.peers import mistakes, situations
from reproduce.peers import scoreboard as peers
from reproduce.peers.measure import largest_difference

FOLDER = RESULTS.parent / "peers"
ADAPTERS = sorted((FOLDER / "adapters").glob("*.py"))
#: What an adapter would need to fetch or build a project.
FETCHING = "subprocess|urllib|http|socket|requests|pip|git|shutil|tarfile"
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

[[project]]
name = "gone"
of = "nobody/gone"
licence = "MIT"
install = "nobody-installs-this==1"
passes = ["MAML"]
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
def test_adapters_are_short_and_fetch_nothing(path):
    text = path.read_text("utf-8")
    assert text.count("\n") <= 60
    fetches = rf"^\s*(import|from) ({FETCHING})\b|\.(system|popen|hub)\b"
    assert not re.search(fetches, text, re.MULTILINE)


def test_every_row_can_be_measured():
    projects = peers.read_projects()
    assert {p["name"] for p in projects} == {path.stem for path in ADAPTERS}
    rows = [(f"{p['of']}: {row['run']}", row) for p in projects for row in p["rows"]]
    wrong = [name for name, row in rows if row.get("kind") == "wrong"]
    notes = re.findall(r"^## (.*)$", peers.NOTES.read_text("utf-8"), re.MULTILINE)
    assert notes == [name for name in wrong if name in notes]
    assert all("effect" in row for name, row in rows if name in wrong)
    assert all(("install" in project) != ("checkout" in project) for project in projects)
    for _, row in rows:
        case, equals = situations.make_case(row["run"]), row.get("equals")
        assert case.model["l2"] == 0
        assert row.get("kind", "wrong") in ("variant", "convention", "wrong")
        if equals:  # is something else than the paper's
            outputs = mistakes.outputs_with(case, *equals)
            # v from 0 and not from τ² moves FedAdagrad's rounds by 8e-4, all else by more than 1e-3
            assert not largest_difference(outputs, case.outputs) <= 5e-4  # or it is not a number
            if equals[0] in errata.MISTAKES and len(equals) == 1 and errata.answer(case):
                assert mistakes.find_names(outputs, case._replace(catches=equals)) == (*equals,)


#: The page's rows, with what projects.toml says of each.
TABLE = peers.read_table(RESULTS / "peers" / "table.csv")
ABOUT = {(p["of"], row["run"]): row for p in peers.read_projects() for row in p["rows"]}


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=() if "FedDyn" in key[1] else pytest.mark.slow) for key in TABLE],
    ids=": ".join,
)  # fmt: skip
def test_the_column_of_names_is_what_the_suite_says_of_the_rows_outputs(key):
    row, about = TABLE[key], ABOUT[key]
    assert row["named"] == peers.name_outputs(about, row)
    assert not row["named"] or row["verdict"] != "passed"


def test_how_many_rows_are_named_is_counted():
    rows = [row for row in TABLE.values() if row["verdict"] not in ("passed", peers.NOT_RUN)]
    named = sum(bool(row["named"]) for row in rows)
    page = (RESULTS / "peers" / "table.md").read_text("utf-8")
    assert re.findall(r"(\d+) of (\d+)", page) == [(str(named), str(len(rows)))]


@pytest.mark.usefixtures("forks")
def test_rows_of_a_project(tmp_path, monkeypatch):
    adapter, out, other = (tmp_path / name for name in ("adapters/fake.py", "out", "other"))
    for folder in (adapter.parent, out, other):
        folder.mkdir()
    adapter.write_text(ADAPTER)
    (tmp_path / "projects.toml").write_text(FAKE)
    written = "# N\n\n## nobody/fake: FedProx\n\nAdd it.\n\n## b: c\n\nNo.\n"
    (tmp_path / "notes.md").write_text(written)
    monkeypatch.setattr(peers, "ROWS", tmp_path / "projects.toml")
    monkeypatch.setattr(peers, "NOTES", tmp_path / "notes.md")
    checkouts = {"fake": tmp_path}
    parts, measured = peers.report(out, checkouts)
    *here, gone = measured
    rows = {row["run"]: row for row in here}
    assert {run: row["verdict"] for run, row in rows.items()} == {
        "FedAvg": "passed", "FedAvg, a batch of one row": "not run", "server's Adam": "differs",
        "MAML": "not run", "FedProx": "wrong",
    }  # fmt: skip
    assert rows["FedAvg, a batch of one row"]["what"] == "raised ValueError: too long (fake.py:6)"
    assert rows["MAML"]["what"] == "the adapter does not offer it"
    assert gone["what"] == "not installed"
    equal = "fedref with “the penalty's gradient is zero” gives the same to "
    assert rows["FedProx"]["what"].startswith(f"`fake.py:1`: there is no penalty; {equal}")
    assert float(rows["FedProx"]["off by"]) > 1e-3
    assert "| nobody/fake | FedProx | wrong | " in parts["table"]
    assert re.search(r"^\| FedProx +\| – +\| – +\| fake [^|]+ \|$", parts["algorithms"], re.M)
    assert re.search(r"^\| FedAvg +\| fake [^|]+ \| – +\| – +\|$", parts["algorithms"], re.M)
    again = "`git -C DIR checkout 0123456`, `python -m reproduce.peers --checkout fake=DIR"
    assert again in parts["again"]
    _, _, note, *others = (out / "notes.md").read_text("utf-8").split("\n\n")
    assert re.fullmatch(r"Seen at .+ on [\d-]+, off by \de-0\d\. Add it\.", note)
    assert others == ["## b: c", "No.\n"]
    (unexpected,) = peers.find_unexpected(measured)
    assert unexpected.startswith("nobody/fake server's Adam: ")

    # an adapter that is broken is told from a project that is absent
    adapter.write_text("=")
    broken = peers.report(other, checkouts)[1][:-1]
    assert {row["what"].partition(":")[0] for row in broken} == {"the process died"}
    assert peers.find_unexpected(broken)

    # without the checkout what was measured stays, and no row is an error
    kept = (out / "table.csv").read_text("utf-8").splitlines()
    left = peers.report(out, {})[1]
    assert {row["what"].partition(" --")[0] for row in left} == {"not installed", "needs"}
    assert peers.find_unexpected(left) == []
    now = (out / "table.csv").read_text("utf-8").splitlines()
    stays = [old == new for old, new in zip(kept, now, strict=True)]
    assert stays == ["not run" not in line or "gone" in line for line in kept]
    with pytest.raises(ConfigError, match=r"unknown checkout 'fak'.*fake"):
        peers.report(out, {"fak": tmp_path})
