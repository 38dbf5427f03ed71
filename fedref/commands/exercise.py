"""`fedref exercise list | start NAME DIR | check FILE`: functions with a missing line to write."""

import argparse
from pathlib import Path
from typing import Any

from fedref.boundary.errors import ConfigError
from fedref.boundary.files import as_data_error, open_regular
from fedref.boundary.values import Bounds
from fedref.commands.options import Command, Option
from fedref.experiments.run_directory import disk_errors

EPILOG = """\
examples
  fedref exercise list                     all exercises, the easiest first
  fedref exercise start meta-gradient .    make meta_gradient.py, in which an expression is missing
  fedref exercise start backward . --hard  the same without the formula
  fedref exercise check meta_gradient.py   is it right? If not, what kind of mistake is it?
  fedref exercise list --teacher           what each one trains, and which mistakes `check` knows

The files are made from fedref's own source. `check` never tells the solution.
exit code of check: 0 it is right; 1 it is wrong or not finished; 2 wrong input
"""

WANTED = "a file that `fedref exercise start` wrote"


def list_exercises(args: argparse.Namespace) -> int:
    """Print the exercises, for students or for teachers."""
    from fedref.teach import template
    from fedref.teach.catalogue import EXERCISES

    if args.teacher or args.solution:
        print("\n".join(template.teachers_page(args.solution)))
        return 0
    width = max(map(len, EXERCISES))
    for name, exercise in EXERCISES.items():
        print(f"{name:<{width}}  {exercise.trains}")
    return 0


def start(args: argparse.Namespace) -> int:
    """Write the student's file; refuse to replace one that exists."""
    from fedref.teach import template
    from fedref.teach.catalogue import find

    exercise = find(args.name)
    path = args.folder / template.file_name(exercise)
    with disk_errors(path):
        args.folder.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(template.student_file(exercise, args.hard))
        except FileExistsError:
            raise ConfigError(f"{path} exists: give another folder, or remove it") from None
    print(f"{path}: write what is missing, then `fedref exercise check {path}`")
    return 0


def check(args: argparse.Namespace) -> int:
    """Say whether a file is right, and if not what kind of mistake it is."""
    from fedref.teach import template

    with as_data_error(args.file, WANTED), open_regular(args.file, WANTED) as file:
        text = file.read().decode("utf-8-sig")
    exercise = template.exercise_of(text, args.file)
    lines, right = verdict(args.file, text, exercise, args.timeout)
    print("\n".join([f"{exercise.name}: {lines[0]}", *(f"  {line}" for line in lines[1:])]))
    return 0 if right else 1


def verdict(path: Path, text: str, exercise: Any, timeout: float) -> tuple[list[str], bool]:
    """Return the lines of the verdict on a file, and whether it is right."""
    from fedref.teach import template
    from fedref.teach.classify_mistake import classify_mistake
    from fedref.teach.run_solution import PROBES, run_solution

    try:
        gap = template.find_gap(text)
    except SyntaxError as error:
        return [f"line {error.lineno}: {type(error).__name__}: {error.msg}"], False
    if gap:
        return [f"not finished: line {gap} still says {template.GAP}"], False
    answers = run_solution(path, text, exercise, timeout)
    if isinstance(answers, str):
        return [answers], False
    judged = classify_mistake(exercise, answers)
    if judged.right:
        return ["right"], True
    said = list(judged.evidence)
    fails = not judged.kinds and isinstance(answers[PROBES[0]], str)
    # if the line does not run, its error stands in the place of a kind of mistake
    kinds = " and ".join(judged.kinds) or (
        said.pop(0) if fails else "of no kind that is known here"
    )
    return [f"not right: {kinds}", *said], False


LIST = Command(
    list_exercises,
    "List the exercises.",
    (
        Option("--teacher", "also print each one's purpose and its known mistakes"),
        Option("--solution", "the same with the missing lines"),
    ),
)
START = Command(
    start,
    "Write the file of an exercise.",
    (
        Option("name NAME", "a name of `fedref exercise list`"),
        Option("folder DIR", "the folder for the file", Path),
        Option("--hard", "without the formula: derive it"),
    ),
)
CHECK = Command(
    check,
    "Check a solution.",
    (
        Option("file FILE", "your solution", Path),
        Option(
            "--timeout S", "seconds that the file may compute", float, 60.0, Bounds(0, open="both")
        ),
    ),
)
COMMAND = Command(
    None,
    "Eight exercises: a function of fedref with one expression missing.",
    commands={"list": LIST, "start": START, "check": CHECK},
    epilog=EPILOG,
)
