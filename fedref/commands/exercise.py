"""`fedref exercise list | start NAME DIR | check FILE`: functions with a missing line to write."""

from pathlib import Path
from typing import Annotated, Any

from fedref.boundary.errors import ConfigError
from fedref.boundary.files import as_data_error, open_regular
from fedref.boundary.values import POSITIVE
from fedref.experiments.run_directory import disk_errors

GROUP = """\
Eight exercises: a function of fedref with one expression missing.

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


def list_exercises(*, teacher: bool = False, solution: bool = False) -> None:
    """List the exercises.

    teacher : also print each one's purpose and its known mistakes
    solution : the same with the missing lines
    """
    from fedref.teach import template
    from fedref.teach.catalogue import EXERCISES

    if teacher or solution:
        print("\n".join(template.teachers_page(solution)))
        return
    width = max(map(len, EXERCISES))
    for name, exercise in EXERCISES.items():
        print(f"{name:<{width}}  {exercise.trains}")


def start(name: str, folder: Path, *, hard: bool = False) -> None:
    """Write the file of an exercise. A file that exists is not replaced.

    name : a name of `fedref exercise list`
    folder : the folder for the file
    hard : without the formula: derive it
    """
    from fedref.teach import template
    from fedref.teach.catalogue import find

    exercise = find(name)
    path = folder / template.file_name(exercise)
    with disk_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(template.student_file(exercise, hard))
        except FileExistsError:
            raise ConfigError(f"{path} exists: give another folder, or remove it") from None
    print(f"{path}: write what is missing, then `fedref exercise check {path}`")


def check(file: Path, *, timeout: Annotated[float, POSITIVE] = 60.0) -> int:
    """Check a solution: say whether it is right, and if not what kind of mistake it is.

    file : your solution
    timeout : seconds that the file may compute
    """
    from fedref.teach import template

    with as_data_error(file, WANTED), open_regular(file, WANTED) as stream:
        text = stream.read().decode("utf-8-sig")
    exercise = template.exercise_of(text, file)
    lines, right = verdict(file, text, exercise, timeout)
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
