"""`fedref exercise list | start NAME DIR | check FILE ...`: functions with a missing line to write."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fedref.boundary.errors import ConfigError
from fedref.boundary.files import as_data_error, open_regular
from fedref.boundary.values import POSITIVE
from fedref.lab.experiments.run_directory import disk_errors

GROUP = """\
Nine exercises: a function of fedref/spec.py with one expression missing.

examples
  fedref exercise list                     all exercises, the easiest first
  fedref exercise start meta-gradient .    make meta_gradient.py, in which an expression is missing
  fedref exercise start proximal . --formula   the same with the formula beside it
  fedref exercise check meta_gradient.py   is it right? If not, what does it give, and what is right?
  fedref exercise check a.py b.py c.py     the files of a class
  fedref exercise list --teacher           what each one trains, needs before, and how long it takes

The files are made from fedref/spec.py. `check` never tells the solution. It draws cases with Hypothesis:
pip install "fedref[teach]".
exit code of check: 0 all are right; 1 one is wrong or not finished; 2 wrong input
"""

WANTED = "a file that `fedref exercise start` wrote"


def read_exercises(path: Path | None) -> Mapping[str, Any]:
    """Return fedref's exercises, or those of a TOML file."""
    from fedref.teach import exercises

    if path is None:
        return exercises.EXERCISES
    with as_data_error(path, "a TOML file of exercises"), open_regular(path, "TOML") as file:
        return exercises.read(file.read().decode("utf-8-sig"), path)


def list_exercises(
    *, teacher: bool = False, solution: bool = False, exercises: Path | None = None
) -> None:
    """List the exercises.

    teacher : also print what each one needs before, and how long it takes
    solution : the same with the missing lines
    exercises : exercises of your own, a TOML file
    """
    for one in read_exercises(exercises).values():
        print(f"{one.name:<15}{one.trains}")
        if teacher or solution:
            print(f"  before    {one.before}")
            print(f"  minutes   {one.minutes}")
            print(f"  from      {one.function}")
        if solution:
            print(f"  solution  {one.missing}")


def start(name: str, folder: Path, *, formula: bool = False, exercises: Path | None = None) -> None:
    """Write the file of an exercise, without the formula. A file that exists is not replaced.

    name : a name of `fedref exercise list`
    folder : the folder for the file
    formula : with the formula: what is missing is then to be transcribed
    exercises : exercises of your own, a TOML file
    """
    from fedref.teach.exercises import find, student_file

    exercise = find(name, read_exercises(exercises))
    path, text = folder / exercise.file, student_file(exercise, formula)
    with disk_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise ConfigError(f"{path} exists: give another folder, or remove it") from None
    print(f"{path}: write what is missing, then `fedref exercise check {path}`")


def check(
    *files: Path, timeout: Annotated[float, POSITIVE] = 60.0, exercises: Path | None = None
) -> int:
    """Say of each file whether it is right, and if not what is known of the mistake.

    files : a solution, or those of a class
    timeout : seconds that a file may take
    exercises : exercises of your own, a TOML file
    """
    from fedref.boundary.subprocess_runner import SubprocessRunner
    from fedref.teach.exercises import verdict

    if not files:
        raise ConfigError("nothing to check: give a file that `fedref exercise start` wrote")
    known, all_right = read_exercises(exercises), True
    with SubprocessRunner() as runner:
        for path in files:
            with as_data_error(path, WANTED), open_regular(path, WANTED) as file:
                text = file.read().decode("utf-8-sig")
            try:
                right, lines = runner.call(verdict, text, str(path), known, timeout=timeout)
            except TimeoutError as error:
                right, lines = False, [f"{error}: an endless loop? (--timeout)"]
            except ChildProcessError as error:
                right, lines = False, [str(error)]
            print("\n".join([f"{path}: {lines[0]}", *(f"  {line}" for line in lines[1:])]))
            all_right &= right
    return 0 if all_right else 1
