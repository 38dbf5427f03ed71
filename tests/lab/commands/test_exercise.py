"""`fedref exercise`: list, start, check."""

import csv
import re

from running import main

from fedref.teach import verdict
from fedref.teach.exercises import EXERCISES

RIGHT = EXERCISES["proximal"].missing


def test_a_class_is_checked_at_once_whatever_a_file_does(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(verdict, "WAITED", 100)  # the machine may be busy
    assert main("exercise", "start", "proximal", tmp_path / "new") == 0
    right = tmp_path / "new" / "proximal.py"
    message = f"{right}: write what is missing, then `fedref exercise check {right}`\n"
    assert capsys.readouterr().out == message
    head, mark, code = right.read_text("utf-8").rpartition('"""\n\nfrom')
    loop = "all(True for _ in iter(int, 1))"
    answers = {"b": "...", "c": loop, "d": "__import__('os')._exit(3)", "e": "mu * (w - w_t).sum()"}
    others = [right.with_name(f"{name}.py") for name in answers]
    for path, answer in zip([*others, right], [*answers.values(), RIGHT]):
        path.write_text(head + mark + code.replace("...", answer), "utf-8")
    begun = right.with_name("f.py")
    begun.write_text("x = 1")
    files = *others, begun, right.with_name("none.py"), right
    assert main("exercise", "check", *files, "--timeout", 2) == 2
    out, err = capsys.readouterr()
    lines = [line for line in out.splitlines() if line.startswith(f"{tmp_path}")]
    said = "not finished: line", "no answer after 2 s of computing", "the process died", "", "right"
    for file, line, words in zip([*others, right], lines, said, strict=True):
        assert line.startswith(f"{file}: {words}")
    assert "yours gives" in out
    assert RIGHT not in out
    assert err.count("fedref: error: ") == err.count("\n") == 2
    assert "begins with no" in err
    assert "none.py" in err
    assert [main("exercise", "check", file) for file in (others[0], right)] == [1, 0]


def test_the_folder_of_a_class_ends_with_a_table_in_which_every_file_has_a_row(tmp_path, capsys):
    main("exercise", "start", "proximal", tmp_path / "class" / "ada")
    right = tmp_path / "class" / "ada" / "proximal.py"
    head, mark, code = right.read_text("utf-8").rpartition('"""\n\nfrom')
    right.write_text(head + mark + code.replace("...", RIGHT), "utf-8")
    for student in ("bob", "=cmd"):
        own = tmp_path / "class" / student / "proximal.py"
        own.parent.mkdir()
        own.write_text(head + mark + code.replace("...", "mu * ((w - w_t) ** 2).sum()"), "utf-8")
    (tmp_path / "class" / "eve.py").write_bytes(b"\xff\xfe")
    for name in (".ipynb_checkpoints/a.py", "__MACOSX/a.py", "._a.py"):  # no work of a student
        (tmp_path / "class" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "class" / name).write_bytes(b"\x00")
    (tmp_path / "class" / "bob" / "proximal (1).py").write_text(right.read_text("utf-8"), "utf-8")
    table = tmp_path / "class.csv"
    capsys.readouterr()
    assert main("exercise", "check", tmp_path / "class", "--csv", table) == 2
    out = capsys.readouterr().out
    assert re.search(r"^ada +right$", out, re.MULTILINE)
    assert re.search(r"^=cmd +not right$", out, re.MULTILINE)
    assert re.search(r"^eve +not read$", out, re.MULTILINE)
    assert re.search(r"^bob +right$", out, re.MULTILINE)  # one of two
    assert "proximal: 2 of 4 right; most often (2 ×): the factor of the square is μ/2" in out
    with table.open(encoding="utf-8", newline="") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    assert {*rows} == {"ada", "bob", "'=cmd", "eve"}
    assert rows["eve"]["verdict"] == "not read"
    assert main("exercise", "check", tmp_path / "class" / "ada", "--csv", table) == 0
    (tmp_path / "empty").mkdir()
    assert main("exercise", "check", tmp_path / "empty") == 2


def test_a_hunt_is_written_and_checked(tmp_path, capsys):
    assert main("exercise", "hunt", 7, "--out", tmp_path) == 0
    test = tmp_path / "test_suspect.py"
    assert main("exercise", "check", test) == 1
    told = capsys.readouterr().out
    assert f"{test}: not found\n  no function test_... fails on the suspect" in told


def test_the_solution_is_for_teachers_who_ask(capsys):
    assert main("exercise", "list") == 0
    assert main("exercise", "list", "--teacher") == 0
    out = capsys.readouterr().out
    assert main("exercise", "list", "--solution") == 0
    solutions = capsys.readouterr().out
    for one in EXERCISES.values():
        assert one.name in out
        assert one.missing not in out
        assert one.missing in solutions


def test_a_picture_is_of_one_solution(tmp_path, capsys):
    main("exercise", "start", "step", tmp_path, "--seed", 1)
    path, picture = tmp_path / "step.py", tmp_path / "step.png"
    path.write_text(path.read_text("utf-8").replace("w = ...", "w = sum(ws) / len(ws)"), "utf-8")
    assert (
        main("exercise", "check", path, "--picture", picture) == 1
    )  # of bowls with four rows each
    assert "yours rests 0.394 from the cross; the right one rests 0.394" in capsys.readouterr().out
    assert picture.stat().st_size > 10_000
    assert main("exercise", "check", path, path, "--picture", picture) == 2
    assert "give one file" in capsys.readouterr().err
