"""The pages, run as written: every command, every snippet, every link.

A shell block runs in an empty folder with the pages' own files; commands inside a line run in one
folder, in the order in which they stand. `fedref` is the tree that is tested: a command line is given
to `main`, a snippet to `exec`, as a process each would spend its time on imports. What takes long is
run by -m slow, snippets with all of their rounds.
"""

import ast
import csv
import os
import re
import shlex
import subprocess
import sys
import tokenize
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from running import ROOT, main

from fedref.algorithms import per_fedavg
from fedref.commands import parse
from fedref.teach import source

README = (ROOT / "README.md").read_text("utf-8")
#: page → its text; what runs is looked for in all of them.
PAGES = {
    name: (ROOT / name).read_text("utf-8")
    for name in ("README.md", "fedref/README.md", "data/README.md")
}
ALL = "\n".join(PAGES.values())

#: (language, text) of every fenced block.
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", ALL, re.DOTALL | re.MULTILINE)
SHELL = [text for language, text in BLOCKS if language == "sh"]
PYTHON = [text for language, text in BLOCKS if language == "python"]
#: Files that snippets begin with the name of.
FILES = {text.split()[1]: text for text in PYTHON if re.match(r"# \w+\.py\n", text)}
PROSE = re.sub(r"^```.*?^```$", "", ALL, flags=re.DOTALL | re.MULTILINE)
#: Commands inside a line, once each, in their order.
INLINE = list(dict.fromkeys(" ".join(x.split()) for x in re.findall(r"`(fedref\s[^`]*)`", PROSE)))

#: Installing is what CI's own script does with these lines; what follows on the line is not run here.
INSTALLS = r"(python3 -m venv|pip install|git clone)\b.*"
#: Longer than some seconds.
SLOW = {
    "fedref run",
    "fedref run all",
    "fedref check",
    "fedref check --plot proof.png",
    "fedref explain --html site",  # tests/teach builds the same site once
    "fedref run fedavg fedmeta-maml fedmeta-sgd --data shakespeare --rounds 3",
}
#: Said of a command as such, or not run for a reason.
NOT_RUN = {
    "fedref conformance": "the command's name; it wants a module",
    "fedref resume": "the command's name; it wants a folder",
    "fedref conformance torch": "tests/conformance/test_peers.py runs it where torch is",
}
#: Where the exit code is not 0, as written: the exercise is not solved yet.
EXIT = {"fedref exercise check meta_gradient.py": 1}

#: DIR, NAME, FILE.toml, [ALGORITHM ...]: something to fill in.
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b|\.\.\.")


def to_run(slow: bool) -> list[str]:
    return [
        c for c in INLINE if not PLACEHOLDER.search(c) and c not in NOT_RUN and (c in SLOW) == slow
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder with the pages' own files."""
    assert set(FILES) == {"ditto.py", "mine.py"}
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    yield tmp_path
    sys.modules.pop("mine", None)


def play(text: str, expected: int = 0) -> str:
    """Run shell lines: those of `fedref` in this process, the others in bash. Return the output."""
    printed = StringIO()
    for part in re.split(r"^(?=fedref )", text, flags=re.MULTILINE):
        line, _, rest = part.partition("\n") if part.startswith("fedref ") else ("", "", part)
        if line:
            command, _, file = line.partition(" > ")
            said = StringIO()
            with redirect_stdout(said):
                assert main(*shlex.split(command, comments=True)[1:]) == expected, line
            if file:
                Path(file).write_text(said.getvalue(), encoding="utf-8")
            printed.write(said.getvalue())
        if rest.strip():
            subprocess.run(["bash", "-ec", rest], check=True)
    return printed.getvalue()


# ---- commands ------------------------------------------------------------------------------------


def test_a_file_has_one_content_on_all_pages():
    heads = re.findall(r"^(?:# |cat > )(\w+\.py)\b", ALL, re.MULTILINE)
    assert sorted(heads) == sorted({*FILES, "my_backend.py"})


def test_commands_inside_lines_run_as_written(folder):
    assert len(to_run(slow=False)) >= 6
    for command in to_run(slow=False):
        play(command, EXIT.get(command, 0))
    assert (folder / "my.toml").read_text().startswith('name = "')


@pytest.mark.slow
@pytest.mark.parametrize("command", to_run(slow=True))
def test_slow_commands_inside_lines_run_as_written(folder, command):
    if "--data" in command and "FEDREF_DATA" not in os.environ:
        pytest.skip("needs FEDREF_DATA")
    play(command)
    if command.endswith("site"):
        assert (folder / "site" / "index.html").exists()


def test_lists_of_commands_hold_no_other():
    assert set(INLINE) >= SLOW | set(NOT_RUN) | set(EXIT)


def test_commands_with_something_to_fill_in_are_commands(capsys):
    named = [c for c in INLINE if PLACEHOLDER.search(c) or c in NOT_RUN]
    assert len(named) > 5
    for command in named:
        word = command.split()[1]
        with pytest.raises(SystemExit) as stopped:
            parse([word, "--help"])
        assert stopped.value.code == 0
        assert f"fedref {word}" in capsys.readouterr().out


def installed(text: str) -> str:
    """A shell block without what installs."""
    return re.sub(rf"^{INSTALLS}$", "", text, flags=re.MULTILINE).strip()


def test_the_first_block_is_two_commands():
    assert SHELL[0].splitlines()[1:] == ["fedref run"]
    assert installed(SHELL[0]) == "fedref run"


@pytest.mark.parametrize("text", [text for text in SHELL[1:] if "END\n" not in text])
def test_shell_blocks_run_as_written(folder, text):
    play(installed(text))


def test_blocks_with_files_inside_run_where_their_packages_are():
    """tests/conformance/test_peers.py runs the one that there is."""
    (text,) = (text for text in SHELL if "END\n" in text)
    assert "fedref conformance my_backend" in text


@pytest.mark.slow
def test_the_first_run_prints_the_table_and_draws_the_picture(folder):
    printed = play(installed(SHELL[0]))
    table = re.search(r"^\| algorithm .*?\n\n", README, re.DOTALL | re.MULTILINE)
    assert table is not None
    assert table[0].strip() in printed
    (made,) = (folder / "runs").iterdir()
    assert made.name.endswith("-digits")
    assert {"curves.png", "metrics.csv", "split.json", "config.toml"} <= {
        p.name for p in made.iterdir()
    }


@pytest.mark.slow
def test_ditto_averages_and_ends_as_it_is_said(folder):
    said = r"it averages ([\d.]+) %, more than any in the table above, and ends at ([\d.]+) %, as `(.*)` does"
    ((average, final, equal),) = re.findall(said, README)
    (command,) = re.findall(r"^    (fedref run ditto:Ditto .*)$", README, re.MULTILINE)
    _, ditto, *_ = re.findall(r"^\| \w.*$", play(command), re.MULTILINE)
    assert [ditto.split("|")[column].strip() for column in (2, 4)] == [average, final]
    above = re.search(r"^\| algorithm .*?\n\n", README, re.DOTALL | re.MULTILINE)
    assert above is not None
    rows = {row.split("|")[1].strip(): row.split("|") for row in above[0].strip().splitlines()[2:]}
    assert all(float(average) > float(row[2]) for row in rows.values())
    assert rows[equal][4].strip() == final


# ---- snippets ------------------------------------------------------------------------------------


def with_asserts(text: str) -> str:
    """A snippet in which each comment that is a value is asserted: of an expression, or as shapes."""
    comments = {
        token.start[0]: token.string[1:].strip()
        for token in tokenize.generate_tokens(StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
    lines = text.splitlines()
    for node in ast.parse(text).body:
        try:
            value = ast.literal_eval(comments.get(node.end_lineno, ""))
        except (SyntaxError, ValueError):
            continue
        code = lines[node.end_lineno - 1]
        if isinstance(node, ast.Expr):
            code = f"assert {ast.unparse(node.value)} == {value}"
        elif isinstance(node, ast.Assign):
            code += f"\nassert tuple(map(np.shape, {ast.unparse(node.targets[0])})) == {value}"
        lines[node.end_lineno - 1] = code
    return "\n".join(lines)


def test_values_in_comments_are_asserted():
    text = "import numpy as np\na, b = np.zeros(2), 1  # (2,), ()\na.shape  # (2,)\nb  # one\n"
    assert with_asserts(text).count("assert") == 2
    exec(with_asserts(text), {})
    for wrong in (
        text.replace("# (2,), ()", "# (3,), ()"),
        text.replace("  # (2,)\n", "  # (3,)\n"),
    ):
        with pytest.raises(AssertionError):
            exec(with_asserts(wrong), {})
    assert sum(with_asserts(text).count("assert ") for text in PYTHON) >= 4


@pytest.mark.parametrize("text", PYTHON, ids=range(len(PYTHON)))
@pytest.mark.parametrize("rounds", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_snippets_run_as_written(folder, text, rounds):
    """With 20 rounds, as written, there are 21 evaluations."""
    text = text.replace("rounds=20", f"rounds={rounds}").replace("(21,", f"({rounds + 1},")
    text = text.replace(", 21)", f", {rounds + 1})")
    exec(with_asserts(text), {"__name__": "snippet"})


def test_the_derivative_s_numbers_are_as_said():
    (text,) = (text for text in PYTHON if "taylor_slope(" in text)
    *_, error, slope = text.splitlines()
    assert error.endswith("# about 1e-16")
    assert slope.endswith("# 2: the gradient is right; 1: wrong")
    text = text.replace("\nrelative_error(", "\nerror = relative_error(")
    text = text.replace("\ntaylor_slope(", "\nslope = taylor_slope(")
    text += "\nassert 0 <= error < 1e-15, error\nassert abs(slope - 2) < 0.05, slope"
    exec(text, {})


def test_per_fedavg_eq_6_stands_in_its_two_lines():
    table = README.split("| the paper | the code |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (.*?) \| `(.*?)` \|$", table, re.MULTILINE)
    body = source.place_and_code(per_fedavg.meta_gradient)[1].splitlines()[2:]
    assert [line.split("  #")[0].strip() for line in body] == [code for _, code in rows]
    assert Path(per_fedavg.__file__).relative_to(ROOT).as_posix() in README.split("| the paper")[0]


# ---- links ---------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """The names that headings get as links."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


def test_the_table_of_speed_is_what_was_measured():
    with open(ROOT / "reproduce/results/speed/numbers.csv") as file:
        found = list(csv.DictReader(file))

    def best(workload: str, peer: str) -> str:
        """The time of the peer's fastest way, float32 / float64."""
        ratios = [
            min(
                float(row["ratio"])
                for row in found
                if (row["workload"], row["dtype"]) == (workload, dtype)
                and row["implementation"].startswith(peer)
            )
            for dtype in ("float32", "float64")
        ]
        return " / ".join(f"{ratio:.2f}" for ratio in ratios)

    shown = re.findall(r"^\| (W\d): .*? \| (.*?) \| (.*?) \| (.*?) \|$", README, re.MULTILINE)
    peers = ("torch-eager", "torch", "jax")
    assert shown == [
        (name, *(best(name, peer) for peer in peers)) for name in ("W1", "W2", "W3", "W4", "W5")
    ]
    fastest = [float(ratio) for *_, cell in shown for ratio in cell.split(" / ")]
    assert ("JAX is faster than fedref in every round" in README) == (max(fastest) < 1)


def test_the_readme_is_read_in_five_minutes():
    assert README.count("\n") <= 260
    assert len(README) <= 14_000
    assert "fedref/spec.py" in "".join(README.splitlines()[:10])


def test_links_lead_somewhere():
    for page, text in PAGES.items():
        for link in re.findall(r"\]\(([^)]+)\)", text):
            if not link.startswith("https://"):
                path, _, anchor = link.partition("#")
                target = (ROOT / page).parent / path if path else ROOT / page
                assert target.exists(), link
                assert not anchor or anchor in anchors(target.read_text("utf-8")), link


def test_files_that_are_named_exist():
    named = re.findall(r"`((?:fedref|data|reproduce|tests)/[\w/.-]+)`", PROSE)
    assert len(named) >= 4
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_layout_names_what_is_there():
    section = PAGES["fedref/README.md"].split("\n## Layout\n")[1].split("\n## ")[0]
    named = re.findall(r"^    (\S+)  ", section, re.MULTILINE)
    assert [name for name in named if not (ROOT / name).exists()] == []
    inside = {p.name for p in (ROOT / "fedref").iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert inside <= {name.split("/")[1] for name in named}
