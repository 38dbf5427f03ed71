"""`fedref exercise list | start NAME DIR | hunt [SEED] | check FILE ...`: what a student writes and finds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fedref.boundary.errors import ConfigError, FedrefError
from fedref.boundary.files import as_data_error, read_text
from fedref.boundary.values import POSITIVE, Bounds
from fedref.lab.commands.console import say
from fedref.lab.experiments.run_directory import disk_errors

GROUP = """\
Nine exercises: a function of fedref/spec.py with one expression missing. And a hunt for a planted mistake.

examples
  fedref exercise list                     all exercises, the easiest first
  fedref exercise start meta-gradient .    make meta_gradient.py, in which an expression is missing
  fedref exercise check meta_gradient.py   is it right? If not, what does it give, and what is right?
  fedref exercise check a.py b.py c.py     the files of a class
  fedref exercise hunt 7                   plant a mistake in an algorithm: hunt-7/suspect.py
  fedref exercise check hunt-7/test_suspect.py   is the line found, and by how small a case?
  fedref exercise list --teacher           what each one trains, needs before, and how long it takes

The files are made from fedref/spec.py. `check` never tells the solution. It needs Hypothesis:
pip install "fedref[teach]".
exit code of check: 0 all are right; 1 one is wrong or not finished; 2 wrong input
"""

WANTED = "a file that `fedref exercise start` wrote"
#: A file that waits for something is given up after so many times its seconds of computing.
WAITED = 10


def read_exercises(path: Path | None) -> Mapping[str, Any]:
    """Return fedref's exercises, or those of a TOML file."""
    from fedref.teach import exercises

    if path is None:
        return exercises.EXERCISES
    with as_data_error(path, "a TOML file of exercises"):
        return exercises.read(read_text(path, "TOML"), path)


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


def start(name: str, folder: Path, *, exercises: Path | None = None) -> None:
    """Write the file of an exercise. A file that exists is not replaced.

    name : a name of `fedref exercise list`
    folder : the folder for the file
    exercises : exercises of your own, a TOML file
    """
    from fedref.teach.exercises import find, student_file

    exercise = find(name, read_exercises(exercises))
    path = folder / exercise.file
    write_new({path: student_file(exercise)})
    print(f"{path}: write what is missing, then `fedref exercise check {path}`")


def hunt(seed: Annotated[int, Bounds(0)] = 0, *, out: Path | None = None) -> None:
    """Plant a known mistake in an algorithm of the specification, to be found by a test.

    seed : which mistake
    out : the folder for suspect.py and test_suspect.py (default: hunt-SEED)
    """
    from fedref.teach.hunt import SUSPECT, TEST, hunt_files

    folder = out or Path(f"hunt-{seed}")
    write_new({folder / name: text for name, text in hunt_files(seed).items()})
    suspect, test = folder / SUSPECT, folder / TEST
    print(f"{suspect}: one line is wrong; write a test, then `fedref exercise check {test}`")


def write_new(texts: Mapping[Path, str]) -> None:
    """Write files that do not exist yet. Raises ConfigError if one does, and then writes none."""
    for path in texts:
        with disk_errors(path):
            if path.exists():
                raise ConfigError(f"{path} exists: give another folder, or remove it")
    for path, text in texts.items():
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)


def check(
    *files: Path, timeout: Annotated[float, POSITIVE] = 30.0, exercises: Path | None = None
) -> int:
    """Say of each file whether it is right, and if not what is known of the mistake.

    files : a solution, a hunt's test file, or those of a class
    timeout : seconds of computing that a file may take
    exercises : exercises of your own, a TOML file
    """
    from fedref.boundary.subprocess_runner import SubprocessRunner
    from fedref.teach.hunt import file_verdict

    if not files:
        raise ConfigError(f"nothing to check: give {WANTED}")
    known, code = read_exercises(exercises), 0
    with SubprocessRunner() as runner:
        for path in files:
            try:
                work = read_text(path, WANTED), str(path), known, timeout
                right, lines = runner.call(file_verdict, *work, timeout=WAITED * timeout)
            except FedrefError as error:  # the rest of a class is checked all the same
                say(f"error: {error}")
                code = 2
                continue
            except TimeoutError as error:
                right, lines = False, [f"{error}: does it wait for something? (--timeout)"]
            except ChildProcessError as error:
                right, lines = False, [str(error)]
            print(f"{path}: " + "\n  ".join(lines))
            code = max(code, int(not right))
    return code
