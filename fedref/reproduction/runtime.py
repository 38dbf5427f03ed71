"""runtime.json {seconds, version, commit}: how long a run has taken so far, and what made it."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fedref
from fedref.boundary.errors import DataError
from fedref.boundary.files import write_whole
from fedref.reproduction.catalogue import PACKAGE

SAVE_EVERY = 10.0  # seconds between two times that a run that is at work is written down


@contextmanager
def stopwatch(directory: Path) -> Iterator[Callable[[], None]]:
    """Adds the time that passes to DIR/runtime.json, now and then and at the end."""
    path, began = directory / "runtime.json", time.monotonic()
    before = runtime(directory)
    commits = [*filter(None, str(before.get("commit", "")).split(", ")), git_commit()]
    commit = ", ".join(dict.fromkeys(commits))
    saved = began

    def write() -> None:
        nonlocal saved
        saved = time.monotonic()
        seconds = float(before.get("seconds", 0)) + saved - began
        found = {"seconds": round(seconds, 3), "version": fedref.__version__, "commit": commit}
        if directory.is_dir():  # `fedref run` makes it once its input is checked
            write_whole(path, (json.dumps(found) + "\n").encode())

    def tick() -> None:
        if time.monotonic() - saved > SAVE_EVERY:
            write()

    try:
        yield tick
    finally:
        write()


def runtime(directory: Path) -> dict[str, Any]:
    """What runtime.json holds; nothing if there is none."""
    path = directory / "runtime.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except (ValueError, TypeError):
        raise DataError(f"{path}: is no JSON object, expected seconds, version, commit") from None


def lasted(directory: Path) -> str:
    seconds = runtime(directory).get("seconds")
    return "runtime not recorded" if seconds is None else duration(float(seconds))


def duration(seconds: float) -> str:
    """1 h 05 min, 12 min 3 s, 8.2 s."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def git_commit() -> str:
    """The commit of the checkout that fedref runs from, "+ changes" if files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(PACKAGE.parent), *words],
            capture_output=True, text=True, check=True, timeout=30,
        ).stdout.strip()  # fmt: skip

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != PACKAGE.parent:
            return "unknown"  # installed somewhere inside another project
        ours = ("fedref", "reproduce/*/*.toml", "reproduce/*/report.py")  # they decide the numbers
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *ours)
        return git("rev-parse", "HEAD") + (" + changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def short(commit: str) -> str:
    return re.sub(r"\b([0-9a-f]{10})[0-9a-f]{30}\b", r"\1", commit)
