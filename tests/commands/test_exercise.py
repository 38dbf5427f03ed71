"""`fedref exercise`: list, start, check."""

import pytest
from running import main, refused

from fedref.teach import run_solution, template
from fedref.teach.catalogue import EXERCISES

GAP = "return ..."


@pytest.fixture
def started(tmp_path, capsys):
    """The file of the meta-gradient, as it is written."""
    assert main("exercise", "start", "meta-gradient", tmp_path / "new") == 0
    path = tmp_path / "new" / "meta_gradient.py"
    assert capsys.readouterr().out == (
        f"{path}: write what is missing, then `fedref exercise check {path}`\n"
    )
    return path


def check(capsys, path, text, *options):
    """(exit code, what is said) of a file with this text."""
    path.write_text(text, encoding="utf-8")
    code = main("exercise", "check", path, *options)
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "model.hvp(w, u, D2)" not in out + err
    return code, out.splitlines()


def test_a_right_file_passes(started, capsys):
    text = started.read_text("utf-8").replace(GAP, "return u - alpha * model.hvp(w, u, D2)")
    text = text.replace("    u = model", "    print('to standard error')\n    u = model")
    assert check(capsys, started, text) == (
        0, ["meta-gradient: right"],
    )  # fmt: skip


def test_a_wrong_file_is_told_what_kind_of_mistake_it_is(started, capsys):
    text = started.read_text("utf-8").replace(GAP, "return u")
    code, lines = check(capsys, started, text)
    assert code == 1
    assert lines[0] == "meta-gradient: not right: first order only"
    assert lines[2].startswith("  the error is 0.0")


@pytest.fixture
def here(monkeypatch):
    """Solutions run in this process: what a process of its own adds has tests of its own."""
    monkeypatch.setattr(
        run_solution, "run_solution",
        lambda path, text, exercise, seconds: run_solution.answer_all(text, exercise, str(path)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ("return ...", "not finished: line {line} still says ..."),
        ("return nothing", "not right: line {line}: NameError: name 'nothing' is not defined"),
        ("return u +", "line {line}: SyntaxError: invalid syntax"),
        ("raise ValueError('no\\nidea')", "ValueError: no"),
        ("return u[:2]", "what is returned has shape (2,), expected (6,)"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_does_not_run_is_said(started, capsys, instead, said):
    text = started.read_text("utf-8")
    line = text[: text.index(GAP)].count("\n") + 1
    code, lines = check(capsys, started, text.replace(GAP, instead))
    assert code == 1
    assert said.format(line=line) in " ".join(lines)
    assert len(lines) <= 2


def test_an_endless_loop_and_a_death_are_one_line(started, capsys):
    text = started.read_text("utf-8")
    endless = text.replace(GAP, "while True: pass")
    assert check(capsys, started, endless, "--timeout", "1") == (
        1, ["meta-gradient: no answer after 1 s of computing: an endless loop? (--timeout)"],
    )  # fmt: skip
    dead = text.replace(GAP, "import os; os._exit(0)")
    assert check(capsys, started, dead) == (1, ["meta-gradient: it ended the process"])


def test_start_leaves_a_file_that_is_there_alone(started, capsys):
    before = started.read_text("utf-8")
    assert before == template.student_file(EXERCISES["meta-gradient"])
    message = refused(capsys, "exercise", "start", "meta-gradient", started.parent)
    assert f"{started} exists: give another folder, or remove it" in message
    assert started.read_text("utf-8") == before


def test_a_hard_file_has_no_formula(tmp_path, capsys):
    assert main("exercise", "start", "step", tmp_path, "--hard") == 0
    assert "ηg(w" not in (tmp_path / "step.py").read_text("utf-8")


def test_the_list_has_no_solutions_unless_asked_for(capsys):
    assert main("exercise", "list") == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()] == list(EXERCISES)
    assert main("exercise", "list", "--teacher") == 0
    teacher = capsys.readouterr().out
    assert main("exercise", "list", "--solution") == 0
    solved = capsys.readouterr().out
    for exercise in EXERCISES.values():
        line = template.solution(exercise)
        assert line not in out + teacher
        assert f"solution  {line}\n" in solved
        assert f"minutes   {exercise.minutes}\n" in teacher
        assert f"mistakes  {', '.join(exercise.kinds)}\n" in teacher
