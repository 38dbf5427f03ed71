"""Other projects' own functions against fedref in the golden vectors' situations: a table of verdicts."""

import csv
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.files import write_atomically
from fedref.conformance.subprocess_runner import SubprocessRunner
from fedref.conformance.suite import first_line
from reproduce.peers import mistakes, situations
from reproduce.peers.measure import measure_rows
from reproduce.runs import git
from reproduce.writing import markdown, write_csv

HERE = Path(__file__).parent
ROWS, NOTES = HERE / "adapters" / "projects.toml", HERE / "notes.md"
#: Seconds that a project may take. An output equals another if they are this close.
TIMEOUT, CLOSE = 300, 1e-12
HEAD = (
    "project", "run", "verdict", "off by", "from the equal", "named", "version", "date", "licence", "what",
)  # fmt: skip
NOT_RUN, DIED = "not run", "the process died: "
Row = dict[str, str]


def read_projects() -> list[dict[str, Any]]:
    """Return the projects and their rows."""
    projects: list[dict[str, Any]] = tomllib.loads(ROWS.read_text("utf-8"))["project"]
    for project in projects:
        plain = [{"run": run} for run in project.get("passes", ())]
        project["rows"] = plain + project.get("rows", [])
    return projects


def report(out: Path, checkouts: Mapping[str, Path]) -> tuple[dict[str, str], list[Row]]:
    """Write table.csv and notes.md to the folder `out`; return the page's parts, and what was measured.

    checkouts : project → the folder of its code, where pip does not install it.
    """
    projects = read_projects()
    names = [project["name"] for project in projects if "checkout" in project]
    for name in checkouts:
        if name not in names:
            raise ConfigError(unknown("checkout", name, names))
    measured = [row for p in projects for row in measure_project(p, checkouts.get(p["name"]))]
    known = read_table(out / "table.csv")
    known |= {(row["project"], row["run"]): row for row in measured if row["verdict"] != NOT_RUN}
    rows = [known.get((row["project"], row["run"]), row) for row in measured]
    every = [row for project in projects for row in project["rows"]]
    rows = [
        row if row in measured else row | {"named": name_outputs(about, row)}
        for about, row in zip(every, rows)
    ]
    write_csv(out / "table.csv", HEAD, [[row[key] for key in HEAD] for row in rows])
    write_atomically(out / "notes.md", upstream_notes(rows).encode())
    counts = Counter(row["verdict"] for row in rows)
    others = [row for row in rows if row["verdict"] not in ("passed", NOT_RUN)]
    parts = {
        "counts": ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common()),
        "named": f"{sum(bool(row['named']) for row in others)} of {len(others)}",
        "algorithms": markdown(by_algorithm(rows), left=4),
        "table": markdown([list(COLUMNS), *map(cells, rows)], left=len(COLUMNS)),
        "again": "\n".join(commands(project) for project in projects),
    }
    return parts, measured


def find_unexpected(measured: list[Row]) -> list[str]:
    """Return what came out otherwise than projects.toml says."""
    bad = [row for row in measured if row["verdict"] == "differs" or row["what"].startswith(DIED)]
    return [f"{row['project']} {row['run']}: {row['what']}" for row in bad]


def read_table(path: Path) -> dict[tuple[str, str], Row]:
    """Return what was measured before: what cannot be run now keeps it, with its date."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["verdict"] != NOT_RUN]
    return {(row["project"], row["run"]): row for row in rows}


def far(about: Mapping[str, Any], row: Row) -> bool:
    """Return whether a row's outputs are not those of its `equals`."""
    return float(row["from the equal"]) > about.get("close", CLOSE)


def name_outputs(about: Mapping[str, Any], row: Row) -> str:
    """Return what the suite of today names of a row's outputs, which are those of the row's `equals`.

    Outputs that are nothing's are not kept: their names are those of the day on which they were measured.
    """
    if (
        "equals" not in about
        or row["off by"] == "inf"
        or not row["from the equal"]
        or far(about, row)
    ):
        return row["named"]
    case = situations.make_case(row["run"])
    return "; ".join(mistakes.find_names(mistakes.outputs_with(case, *about["equals"]), case))


# ---- measuring ---------------------------------------------------------------------------------


def measure_project(project: dict[str, Any], checkout: Path | None) -> list[Row]:
    """Return a row for each thing that is run of the project."""
    found, where = find_project(project, checkout)
    measured: Any = run_adapter(project, checkout) if found else where
    day = datetime.now(UTC).date().isoformat()
    rows = []
    for i, row in enumerate(project["rows"]):
        one = {"status": NOT_RUN, "why": measured} if isinstance(measured, str) else measured[i]
        verdict, what = compare_row(row, one)
        ran = verdict != NOT_RUN
        numbers = (repr(one[key]) if ran and key in one else "" for key in ("digits", "equals"))
        names, licence = "; ".join(one.get("names", ())), project["licence"]
        about = (where * ran, day * ran, licence, what)
        values = (project["of"], row["run"], verdict, *numbers, names, *about)
        rows.append(dict(zip(HEAD, values)))
    return rows


def find_project(project: dict[str, Any], checkout: Path | None) -> tuple[bool, str]:
    """Return whether it is there, and its version or commit, or why it is not."""
    if "install" in project:
        try:
            return True, version(project["install"].partition("==")[0])
        except PackageNotFoundError:
            return False, "not installed"
    if checkout is None:
        return False, f"needs --checkout {project['name']}=DIR"
    return True, git(checkout, "rev-parse", "--short=10", "HEAD") or "commit unknown"


def run_adapter(project: dict[str, Any], checkout: Path | None) -> Any:
    """Return what is measured of the project in a process of its own, or why nothing is."""
    within = project.get("within", "").split(":")
    folders = [str(Path(checkout.resolve(), part)) for part in within] if checkout else []
    with SubprocessRunner() as runner:
        try:
            return runner.call(
                measure_rows, project["name"], folders, project["rows"], timeout=TIMEOUT
            )
        except TimeoutError:
            return f"took more than {TIMEOUT} s"
        except Exception as error:
            return DIED + first_line(error)


def compare_row(row: dict[str, Any], one: dict[str, Any]) -> tuple[str, str]:
    """Return the verdict on what was measured, and the sentence about it."""
    if one["status"] in (NOT_RUN, "passed"):
        return one["status"], one["why"]
    if "digits" not in one:
        return "differs", one["why"]
    distance = one["equals"] if "equals" in row else one["digits"]
    if "kind" not in row or distance > row.get("close", CLOSE):
        return "differs", "otherwise than was found before: not looked at yet"
    names = " and ".join(f"“{name}”" for name in row.get("equals", ()))
    equals = f"; fedref with {names} gives the same to {one['equals']:.0e}" if names else ""
    effect = f". {row['effect'][0].upper()}{row['effect'][1:]}" if "effect" in row else ""
    return row["kind"], f"`{row['where']}`: {row['says']}{effect}{equals}"


# ---- what is written ---------------------------------------------------------------------------

COLUMNS = (
    "project", "algorithm", "verdict", "off by", "named by the suite", "version or commit", "date", "licence",
    "what differs",
)  # fmt: skip


def cells(row: Row) -> list[str]:
    """Return a row of the page's table."""
    off = f"{float(row['off by']):.0e}" if row["off by"] else "–"
    off = "not a number" if off == "inf" else off
    names = row["named"] or ("–" if row["verdict"] in ("passed", NOT_RUN) else "no")
    return [
        row["project"], row["run"], row["verdict"], off, names, row["version"] or "–", row["date"] or "–",
        row["licence"], row["what"],
    ]  # fmt: skip


def by_algorithm(rows: list[Row]) -> list[list[str]]:
    """Return a table with a row for each algorithm: the projects by the worst verdict on their runs of it."""
    worst = dict[str, dict[str, str]]()
    for verdict in ("passed", "convention", "variant", "wrong"):
        for row in rows:
            algorithm = worst.setdefault(row["run"].partition(", ")[0], {})
            if row["verdict"] == verdict:
                project = row["project"].partition(", ")[0].rpartition("/")[2]
                algorithm[f"{project} {row['version']}"] = verdict
    lines = [["algorithm", "passed", "variant or convention", "wrong"]]
    for name, projects in sorted(worst.items(), key=lambda item: item[0].lower()):
        both = ("passed",), ("convention", "variant"), ("wrong",)
        found = (", ".join(p for p, v in projects.items() if v in some) for some in both)
        lines.append([name, *(text or "–" for text in found)])
    return lines


def commands(project: dict[str, Any]) -> str:
    """Return the two commands that run a project's rows again."""
    name = project["name"]
    if "install" in project:
        torch = "" if name in ("fedjax", "flwr") else "torch==2.13.0 "
        first, more = f"pip install {torch}{project['install']}", ""
    else:
        first, more = f"git -C DIR checkout {project['checkout']}", f" --checkout {name}=DIR"
    needs = f" (needs {project['needs']})" if "needs" in project else ""
    return f"- {project['of']}{needs}: `{first}`, `python -m reproduce.peers{more} --out again`"


def upstream_notes(rows: list[Row]) -> str:
    """Return notes.md with the version, the date and the difference of each row under its heading."""
    seen = {
        f"## {row['project']}: {row['run']}\n\n":
        f"Seen at {row['version']} on {row['date']}, off by {float(row['off by']):.0e}. "
        for row in rows if row["verdict"] == "wrong"
    }  # fmt: skip
    text = NOTES.read_text("utf-8")
    return re.sub(r"^## .*\n\n", lambda m: m[0] + seen.get(m[0], ""), text, flags=re.MULTILINE)
