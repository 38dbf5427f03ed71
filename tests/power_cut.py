"""Disks that a power cut may leave: what a command does to a folder, recorded, and the models of a disk.

As POSIX allows: any change of a name may be missing until its folder is synced, and a rename may leave
both names or neither. Data that were not synced are kept, dropped, cut or zeroed.

Why a model of our own. README promises that a run which was cut off from its power goes on to the same
bytes, and no test can pull a plug: a killed process leaves all that it has written, so a missing sync never
shows. Here every write, rename and sync of a command is recorded, and each disk that could be left after any
of them is made and resumed from. Packages that do this record a block device, as root; this needs a folder.
"""

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Disk = dict[str, bytes | None]  # path → content; None is a folder


# ---- record: in every process of the command -----------------------------------------------------


def install(root: str, log: str) -> None:
    """From now on, append what this process does to the names and data below `root` to `log`."""
    out, blobs = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), Path(log + ".blobs")
    blobs.mkdir(exist_ok=True)

    def note(*event: Any) -> None:
        os.write(out, (json.dumps(event) + "\n").encode())

    def inside(path: Any) -> str | None:
        known = isinstance(path, str | bytes | os.PathLike)
        full = os.path.abspath(os.fsdecode(path)) if known else ""
        return os.path.relpath(full, root) if (full + "/").startswith(root + "/") else None

    def watch(name: str) -> None:
        real = getattr(os, name)

        def call(*args: Any, **how: Any) -> Any:
            paths = [os.readlink(f"/proc/self/fd/{args[0]}")] if name == "fsync" else args[:2]
            names = [found for found in map(inside, paths) if found]
            path = Path(root, *names[:1])
            if names and name in ("fsync", "replace", "rename") and path.is_file():
                key = sha256(data := path.read_bytes()).hexdigest()
                (blobs / key).write_bytes(data)
                note("data", names[0], key)
            result = real(*args, **how)
            if names:
                note(name, *names)
            return result

        setattr(os, name, call)

    def opened(event: str, args: Any) -> None:
        made = event == "open" and isinstance(args[2], int) and args[2] & os.O_CREAT
        if made and (name := inside(args[0])) and not os.path.lexists(args[0]):
            note("create", name)

    def say(text: str) -> None:
        write(text)
        if text.startswith("{"):  # a JSON line about a unit's round
            row = json.loads(text)
            note("said", *(row[key] for key in ("algorithm", "seed", "round", "status")))

    for name in ("fsync", "replace", "rename", "unlink", "remove", "mkdir", "rmdir"):
        watch(name)
    sys.addaudithook(opened)
    write, sys.stdout.write = sys.stdout.write, say  # type: ignore[method-assign]


def record(call: Callable[[], int], root: Path, log: Path) -> list[list[Any]]:
    """Call a function in a fork, in `root`; return what it and its workers did there."""
    (hook := log.with_suffix(".hook")).mkdir()
    (hook / "sitecustomize.py").write_text(
        f"import power_cut; power_cut.install({str(root)!r}, {str(log)!r})\n"
    )
    if (child := os.fork()) == 0:
        code = 99
        try:
            os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (hook, HERE.parent, HERE)))
            os.chdir(root)
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (the process ends)
            install(str(root), str(log))
            code = call()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    return [json.loads(line) for line in log.read_text().splitlines()]


# ---- the disks -----------------------------------------------------------------------------------


def subsets(n: int, rng: random.Random) -> Iterator[list[int]]:
    """Yield subsets of n changes: all of them, or 64; the last has every change."""
    every = range((1 << n) - 1) if n < 7 else (rng.getrandbits(n) for _ in range(64))
    yield from ([i for i in range(n) if bits >> i & 1] for bits in (*every, (1 << n) - 1))


def disks(events: list[list[Any]], before: Disk, blobs: Path) -> Iterator[tuple[int, Disk]]:
    """Yield (events that were done, disk) for a cut after each event; equal disks come again."""
    rng = random.Random(0)
    cache = dict(enumerate(before.values()))  # file → content; live, names: path → file
    live, names, disk = dict(zip(before, cache)), dict(zip(before, cache)), dict(cache)
    pending: list[tuple[str, int | None]] = []
    for done, (kind, name, *rest) in enumerate(events, 1):
        if kind in ("create", "mkdir"):
            live[name] = len(cache) + 1
            cache[live[name]] = disk[live[name]] = None if kind == "mkdir" else b""
            pending.append((name, live[name]))
        elif kind == "data":
            cache[live[name]] = (blobs / rest[0]).read_bytes()
        elif kind in ("unlink", "remove", "rmdir"):
            live.pop(name, None)
            pending.append((name, None))
        elif kind in ("replace", "rename"):
            live[rest[0]] = live.pop(name)
            pending += [(rest[0], live[rest[0]]), (name, None)]
        elif kind == "fsync" and name != "." and cache[live[name]] is not None:
            disk[live[name]] = cache[live[name]]
        elif kind == "fsync":
            names |= {
                path: file for path, file in pending if (os.path.dirname(path) or ".") == name
            }
            pending = [p for p in pending if (os.path.dirname(p[0]) or ".") != name]
        if kind != "said":
            for chosen in subsets(len(pending), rng):
                found = names | dict(pending[i] for i in chosen)
                yield from ((done, image(found, cache, disk, torn)) for torn in (3, 2, 1, 0))


def image(names: dict[str, Any], cache: Any, disk: Any, torn: int) -> Disk:
    """Return the disk with these names, and data that were not synced whole, gone, cut or zeroed."""
    out: Disk = {}
    for name in sorted(name for name, file in names.items() if file is not None):
        parent = os.path.dirname(name)
        if parent and (parent not in out or out[parent] is not None):
            continue  # its folder is gone
        new, old = cache[names[name]], disk[names[name]]
        if new is not None and new != old:
            new = (new, old, new[: len(new) // 2], bytes(len(new)))[torn]
        out[name] = new
    return out
