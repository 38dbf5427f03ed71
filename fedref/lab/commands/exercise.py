"""Nine exercises: a function of fedref/spec.py with one expression missing. And a hunt for a planted mistake.

examples
  fedref exercise list                     all exercises, the easiest first
  fedref exercise start meta-gradient .    make meta_gradient.py, in which an expression is missing
  fedref exercise start meta-gradient . --seed 1   another expression of it, with other numbers
  fedref exercise check meta_gradient.py   is it right? If not, what does it give, and what is right?
  fedref exercise check meta_gradient.py --picture mine.svg   rounds of two clients with yours
  fedref exercise check a.py b.py c.py     several files, with a table student × exercise
  fedref exercise check class --csv class.csv   a folder with the files of a class, or a folder a student
  fedref exercise hunt 7                   plant a mistake in an algorithm: hunt-7/suspect.py
  fedref exercise hunt 7 --algorithm fedprox --level 2   where, and how hard
  fedref exercise check hunt-7/test_suspect.py   is the line found, and by how small a case?
  fedref exercise list --teacher           what each one trains, needs before, and how long it takes

The files are made from fedref/spec.py. `check` never tells the solution. It needs Hypothesis:
pip install "fedref[teach]".
exit code of check: 0 all are right; 1 one is wrong or not finished; 2 wrong input
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fedref.boundary.errors import ConfigError, FedrefError
from fedref.boundary.files import as_data_error, exists, read_text, write_or_raise
from fedref.boundary.values import POSITIVE, Bounds
from fedref.lab.commands.console import say
from fedref.lab.experiments.results import write_csv

WANTED = "a file that `fedref exercise start` wrote"
#: The first line of a verdict, and those that are good.
VERDICTS, GOOD = ("right", "not right", "found", "not found"), ("right", "found")


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
            for number in range(1 + len(one.others)):
                seed = f"  (--seed {number})" if number else ""
                print(f"  solution  {one.with_seed(number).missing}{seed}")


def start(
    name: str, folder: Path, *, seed: Annotated[int, Bounds(0)] = 0, exercises: Path | None = None
) -> None:
    """Write the file of an exercise. A file that exists is not replaced.

    name : a name of `fedref exercise list`
    folder : the folder for the file
    seed : another number leaves out another expression of the function, with another worked example
    exercises : exercises of your own, a TOML file
    """
    from fedref.teach.exercises import find, student_file

    exercise = find(name, read_exercises(exercises)).with_seed(seed)
    path = folder / exercise.file
    write_new({path: student_file(exercise)})
    print(f"{path}: write what is missing, then `fedref exercise check {path}`")


def hunt(
    seed: Annotated[int, Bounds(0)] = 0,
    *,
    algorithm: str = "",
    level: Annotated[int, Bounds(0, 3)] = 0,
    out: Path | None = None,
) -> None:
    """Plant a known mistake in an algorithm of the specification, to be found by a test.

    seed : which mistake
    algorithm : in which algorithm (default: any)
    level : 1: a round of one step shows it; 2: one of several steps; 3: several rounds, or another function
    out : the folder for suspect.py and test_suspect.py (default: hunt-SEED)
    """
    from fedref.teach.hunt import SUSPECT, TEST, Hunt, hunt_files

    texts = hunt_files(Hunt(seed, algorithm, level))
    folder = out or Path(f"hunt-{seed}")
    write_new({folder / name: text for name, text in texts.items()})
    suspect, test = folder / SUSPECT, folder / TEST
    print(f"{suspect}: one line is wrong; write a test, then `fedref exercise check {test}`")


def write_new(texts: Mapping[Path, str]) -> None:
    """Write files that do not exist yet. Raises ConfigError if one does, and then writes none."""
    for path in texts:
        if exists(path):
            raise ConfigError(f"{path} exists: give another folder, or remove it")
    for path, text in texts.items():
        write_or_raise(path, text.encode())


class Row(NamedTuple):
    """What a file of a class is: whose, which exercise, right or not, and the first words on it."""

    student: str
    exercise: str
    verdict: str
    mistake: str


def check(
    *files: Path,
    csv: Path | None = None,
    picture: Path | None = None,
    timeout: Annotated[float, POSITIVE] = 30.0,
    exercises: Path | None = None,
) -> int:
    """Say of each file whether it is right, and if not what is known of the mistake.

    Each file runs in a process of its own; a student's code may do there what its user may.

    files : a solution, a hunt's test file, or folders with those of a class, which end with a table
    csv : also write the table to this file
    picture : also draw rounds of two clients with this solution, beside the right ones, to an image file
    timeout : seconds of computing that a file may take
    exercises : exercises of your own, a TOML file
    """
    if not files:
        raise ConfigError(f"nothing to check: give {WANTED}")
    known = read_exercises(exercises)
    if picture is not None and (len(files) > 1 or files[0].is_dir()):
        raise ConfigError("--picture draws one solution: give one file")
    rows, code = list[Row](), 0
    for path, student in students_of(files):
        row, lines, status = check_one(path, student, known, timeout)
        if lines:
            print(f"{path}: " + "\n  ".join(lines))
        rows.append(row)
        code = max(code, status)
    if picture is not None and code < 2:
        print(f"  {draw_answer(files[0], picture, known, timeout)}")
    if len(rows) > 1:
        print(class_table(rows))
    if csv is not None:
        written = [dict(zip(Row._fields, row)) for row in rows]
        write_or_raise(csv, partial(write_csv, written, list(Row._fields)))
    return code


def draw_answer(path: Path, picture: Path, known: Mapping[str, Any], timeout: float) -> str:
    """Draw the rounds of a solution beside the right ones, and return what is seen there."""
    from fedref.boundary.style import save
    from fedref.teach import comparison, pictures
    from fedref.teach.exercises import exercise_of
    from fedref.teach.hunt import hunt_of

    text = read_text(path, WANTED)
    if hunt_of(text):
        raise ConfigError(f"{path}: --picture draws the solution of an exercise, not a hunt's test")
    try:
        both = comparison.compare(exercise_of(text, path, known), text, str(path), timeout)
    except (TimeoutError, ChildProcessError) as error:
        both = str(error)
    if isinstance(both, str):
        return f"no picture: {both}"
    save(pictures.draw(comparison.draw, both), picture)
    return f"{both.words()}\n  {picture}"


def students_of(paths: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each file with the student's name: its folder within the class's, else its own name.

    Raises ConfigError if a folder has no file of Python's.
    """
    for path in paths:
        if not path.is_dir():
            yield path, path.stem
            continue
        # Jupyter and macOS add .ipynb_checkpoints/, __MACOSX/, ._name.py
        found = sorted(
            p
            for p in path.rglob("*.py")
            if p.name != "suspect.py"
            and not any(part.startswith((".", "__")) for part in p.relative_to(path).parts)
        )
        if not found:
            raise ConfigError(f"{path}: no .py file in this folder, expected those of a class")
        for one in found:
            folder = one.relative_to(path).parent.as_posix()
            yield one, one.stem if folder == "." else folder


def check_one(
    path: Path, student: str, known: Mapping[str, Any], timeout: float
) -> tuple[Row, list[str], int]:
    """Return the row of a file, the lines on it, and its exit code. What cannot be read is told at once."""
    from fedref.teach.hunt import exercise_name, file_verdict

    name = "–"
    try:
        text = read_text(path, WANTED)
        name = exercise_name(text, path, known)
        right, lines = file_verdict(text, str(path), known, timeout)
    except FedrefError as error:  # the rest of a class is checked all the same
        say(f"error: {error}")
        return Row(student, name, "not read", str(error)), [], 2
    except TimeoutError as error:
        right, lines = False, [f"{error}: does it wait for something? (--timeout)"]
    except ChildProcessError as error:
        right, lines = False, [str(error)]
    verdict, *words = lines if lines[0] in VERDICTS else ["not right", *lines]
    return Row(student, name, verdict, words[0].strip() if words else ""), lines, int(not right)


def class_table(rows: Sequence[Row]) -> str:
    """Return a table student × exercise, and how often each is right and its most frequent mistake."""
    names = list(dict.fromkeys(row.exercise for row in rows))
    attempts = sorted(rows, key=lambda row: row.verdict in GOOD)  # the best of a student's counts
    cells = {(row.student, row.exercise): row.verdict for row in attempts}
    table = [["", *names]]
    for student in dict.fromkeys(row.student for row in rows):
        table.append([student, *(cells.get((student, name), "") for name in names)])
    widths = [max(map(len, column)) for column in zip(*table)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    for name in names:
        own = [row for row in rows if row.exercise == name]
        right = sum(row.verdict in GOOD for row in own)
        mistakes = Counter(row.mistake for row in own if row.verdict not in GOOD and row.mistake)
        line = f"{name}: {right} of {len(own)} right"
        for words, times in mistakes.most_common(1):
            line += f"; most often ({times} ×): {words}"
        lines.append(line)
    return "\n".join(["", *lines])
