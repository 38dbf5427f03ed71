"""The pages, run as written: every command, every snippet, every link.

Each shell block runs in a folder that holds only the files which the pages define. Quick commands
inside a line of text share one such page_files, in their order on the pages. No process is started for
`fedref`, because it would spend its time on imports: a command line is given to `main`, a snippet to
`exec`. Slow commands, and snippets with all of their rounds, run with -m slow.
"""

import ast
import csv
import itertools
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from pages import PAGES, PROSE, PYTHON, README, SHELL
from running import ROOT, main

from fedref.algorithms import per_fedavg
from fedref.teach import source

#: Commands inside a line of text, once each, in their order.
INLINE = list(dict.fromkeys(" ".join(x.split()) for x in re.findall(r"`(fedref\s[^`]*)`", PROSE)))

#: Lines that install are not run here, to their end: CI installs in steps of its own.
INSTALLS = r"(python3 -m venv|pip install|git clone)\b.*"
#: Commands that take more than a few seconds.
SLOW = {
    "fedref run",
    "fedref run all",
    "fedref check",
    "fedref check --plot proof.png",
    "fedref explain per-fedavg",  # tests/lab/commands/test_explain.py sends it through a pager
    "fedref explain mistakes",  # tests/teach builds this page and the site once
    "fedref conformance fedref",  # tests/conformance has the same cases without the command
    "fedref explain --html site",
}
#: command that is not run → the reason
NOT_RUN = {
    "fedref conformance torch": "tests/conformance/test_peers.py runs it where torch is",
    "fedref exercise check meta_gradient.py": "tests/lab/commands/test_exercise.py solves one, too",
}

#: DIR, NAME, FILE.toml, [ALGORITHM ...]: something to fill in.
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b|\.\.\.")


def commands_to_run(slow):
    wanted = (c for c in INLINE if not PLACEHOLDER.search(c) and c not in NOT_RUN)
    return [c for c in wanted if (c in SLOW) == slow]


def play(text):
    """Run shell lines but those that install: `fedref` in this process, others in bash. Return what
    `fedref` printed."""
    text, printed = re.sub(rf"^{INSTALLS}$", "", text, flags=re.MULTILINE).lstrip(), StringIO()
    for part in re.split(r"^(?=fedref )", text, flags=re.MULTILINE):
        line, _, rest = part.partition("\n") if part.startswith("fedref ") else ("", "", part)
        if line:
            command, _, file = line.partition(" > ")
            output = StringIO()
            with redirect_stdout(output):
                assert main(*shlex.split(command, comments=True)[1:]) == 0, line
            if file:
                Path(file).write_text(output.getvalue(), encoding="utf-8")
            printed.write(output.getvalue())
        if rest.strip():
            subprocess.run(["bash", "-ec", rest], check=True)
    return printed.getvalue()


# ---- commands ------------------------------------------------------------------------------------


def test_commands_inside_lines_run_as_written(page_files):
    assert len(commands_to_run(slow=False)) >= 6
    for command in commands_to_run(slow=False):
        play(command)
    assert (page_files / "my.toml").read_text().startswith('name = "')


@pytest.mark.slow
@pytest.mark.parametrize("command", commands_to_run(slow=True))
def test_slow_commands_inside_lines_run_as_written(page_files, command):
    play(command)
    if command.endswith("site"):
        assert (page_files / "site" / "index.html").exists()


def test_commands_that_cannot_run_as_written_exist(capsys):
    assert set(INLINE) >= SLOW | set(NOT_RUN)
    not_run = [c for c in INLINE if PLACEHOLDER.search(c) or c in NOT_RUN]
    assert len(not_run) > 5
    for command in not_run:
        word = command.split()[1]
        assert main(word, "--help") == 0
        assert f"fedref {word}" in capsys.readouterr().out


@pytest.mark.parametrize("text", [text for text in SHELL[1:] if "END\n" not in text])
def test_shell_blocks_run_as_written(page_files, text):
    play(text)


#: The table of the first run, as it stands in the README.
TABLE = re.search(r"^\| algorithm .*?(?=\n\n)", README, re.DOTALL | re.MULTILINE)[0]


@pytest.mark.slow
def test_the_first_run_prints_the_table_and_draws_the_picture(page_files):
    assert SHELL[0].splitlines()[1:] == ["fedref run"]
    assert TABLE in play(SHELL[0])
    (run,) = (page_files / "runs").glob("*-digits")
    files = {"curves.png", "metrics.csv", "split.json", "config.toml"}
    assert files <= {path.name for path in run.iterdir()}


@pytest.mark.slow
def test_ditto_has_the_accuracies_that_the_readme_states(page_files):
    text = r"it averages ([\d.]+) %, more than any in the table above, and ends at ([\d.]+) %, as `(.*)` does"
    ((average, final, equal),) = re.findall(text, README)
    (command,) = re.findall(r"^    (fedref run ditto:ditto .*)$", README, re.MULTILINE)
    _, ditto, *_ = re.findall(r"^\| \w.*$", play(command), re.MULTILINE)
    _, _, *above = ([cell.strip() for cell in row.split("|")] for row in TABLE.splitlines())
    assert [ditto.split("|")[column].strip() for column in (2, 4)] == [average, final]
    assert all(float(average) > float(row[2]) for row in above)
    assert {row[1]: row[4] for row in above}[equal] == final


# ---- snippets ------------------------------------------------------------------------------------


def with_asserts(text):
    """Turn each comment that is a value into an assertion.

    After an expression it is the expression's value; after an assignment, the shapes of its targets.
    """
    lines = text.splitlines()
    for node in ast.parse(text).body:
        code, _, comment = lines[node.end_lineno - 1].partition("  # ")
        try:
            value = ast.literal_eval(comment)
        except (SyntaxError, ValueError):
            continue
        if isinstance(node, ast.Expr):
            code = f"assert {ast.unparse(node.value)} == {value}"
        elif isinstance(node, ast.Assign):
            code += f"\nassert tuple(map(np.shape, {ast.unparse(node.targets[0])})) == {value}"
        lines[node.end_lineno - 1] = code
    return "\n".join(lines)


#: All but those for a Dask cluster and for torch, which test_dask.py and test_extend.py run.
SNIPPETS = [text for text in PYTHON if "distributed" not in text and "from torch" not in text]


@pytest.mark.parametrize("text", SNIPPETS, ids=range(len(SNIPPETS)))
@pytest.mark.parametrize("rounds", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_snippets_run_as_written(page_files, text, rounds):
    """As written there are 20 rounds, so 21 evaluations; the fast test replaces both numbers."""
    text = text.replace("rounds=20", f"rounds={rounds}").replace("(21,", f"({rounds + 1},")
    text = text.replace(", 21)", f", {rounds + 1})")
    exec(with_asserts(text), {"__name__": "snippet"})


def test_the_property_tests_fail_as_the_readme_says(page_files):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "test_mine.py"]
    env = {**os.environ, "CI": "1"}  # Hypothesis draws the same on every run there
    process = subprocess.run(command, cwd=page_files, env=env, capture_output=True, text=True)
    assert process.returncode == 1
    printed = " ".join(process.stdout.replace("\nE", "").split())
    stated = re.search(r"redo them by hand:\n\n((?:    .*\n)+)", README)
    for part in re.split(r"[…\n]", stated[1]):
        assert " ".join(part.strip(" ,").split()) in printed
    assert "2 failed" in printed


def test_per_fedavg_eq_6_stands_in_its_two_lines():
    table = README.split("| the paper | the code |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (.*?) \| `(.*?)` \|$", table, re.MULTILINE)
    body = source.place_and_code(per_fedavg.meta_gradient)[1].splitlines()[2:]
    assert [line.split("  #")[0].strip() for line in body] == [code for _, code in rows]
    assert Path(per_fedavg.__file__).relative_to(ROOT).as_posix() in README.split("| the paper")[0]


# ---- links ---------------------------------------------------------------------------------------


def anchors(text):
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


def test_the_table_of_speed_is_what_was_measured():
    """Each cell: the peer's shortest time divided by fedref's, on one core unless its column says more."""
    with open(ROOT / "reproduce/results/speed/numbers.csv") as file:
        rows = list(csv.DictReader(file))
    names = {"PyTorch": "torch", "JAX": "jax", "NumPy": "numpy"}
    head = re.search(r"^\| round.*? \| (.* cores) \|$", README, re.MULTILINE)[1].split(" | ")
    columns = [(names[re.match(r"\w+", x)[0]], "2" if "2 cores" in x else "1") for x in head]
    assert {*itertools.product(("torch", "jax"), "12")} <= {*columns}

    def best(workload, dtype, peer, cores):
        of = {"workload": workload, "dtype": dtype, "cores": cores}
        some = [row for row in rows if of.items() <= row.items()]
        return min(
            (float(r["ratio"]) for r in some if r["implementation"].startswith(peer)), default=None
        )

    shown = re.findall(r"^\| (W\d)[:,] (?:.*?; )?(float\d\d) \| (.*) \|$", README, re.MULTILINE)
    assert {(x, y) for x, y, _ in shown} == {(row["workload"], row["dtype"]) for row in rows}
    for workload, dtype, cells in shown:
        ratios = [best(workload, dtype, *column) for column in columns]
        assert cells.split(" | ") == ["–" if x is None else f"{x:.2f}" for x in ratios]
    jax = [best(workload, dtype, "jax", "1") for workload, dtype, _ in shown]
    assert ("JAX is faster than fedref in every round" in README) == all(x < 1 for x in jax)


def test_the_readme_is_read_in_five_minutes():
    assert README.count("\n") <= 260
    assert len(README) <= 14_000
    assert "fedref/spec.py" in "".join(README.splitlines()[:10])


def test_the_map_has_the_lines_of_each_house():
    def lines(pattern):
        return sum(len(path.read_bytes().splitlines()) for path in ROOT.glob(pattern))

    places = "fedref/spec.py", "fedref/**/*.py", "fedref/lab/**/*.py", "tests/**/*.py"
    spec, everything, lab, tests = map(lines, places)
    shown = re.findall(r"^\| `(?:fedref|tests).* \| ([\d ]+) \|$", README, re.MULTILINE)
    measured = [spec, everything - lab - spec, lab, tests]
    for text, counted in zip(shown, measured, strict=True):
        assert abs(int(text.replace(" ", "")) - counted) <= 0.1 * counted, counted


@pytest.mark.parametrize("pages", [".", "fedref/**", "data/**", "reproduce", "reproduce/results/*"])
def test_links_lead_somewhere(pages):
    for page in ROOT.glob(f"{pages}/README.md" if "**" in pages else f"{pages}/*.md"):
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            if not link.startswith("https://"):
                there = page.parent / path if path else page
                assert there.exists(), (page, link)
                assert not anchor or anchor in anchors(there.read_text("utf-8")), (page, link)


def test_files_that_are_named_exist_and_the_layout_names_every_package():
    section = PAGES["fedref/README.md"].split("\n## Layout\n")[1].split("\n## ")[0]
    layout = re.findall(r"(?:^    |`)(fedref\/\S+?)(?:  |`)", section, re.MULTILINE)
    named = re.findall(r"`((?:fedref|data|reproduce|tests)/[\w/.-]+)`", PROSE)
    assert [name for name in (*named, *layout) if not (ROOT / name).exists()] == []
    inside = {path.parent.name for path in (ROOT / "fedref").glob("*/__init__.py")}
    assert inside <= {name.split("/")[1] for name in layout}
