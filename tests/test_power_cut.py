"""After a power cut: the same bytes, or one line and then the first command again; nothing told is lost."""

import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path

import power_cut
import pytest
from matplotlib.figure import Figure
from running import algorithms, document, main, write

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
ALWAYS = ["-q", "--checkpoint-every", "0"]
#: Scenario → (changes of the experiment, more words, whether a run was stopped before).
SCENARIOS = {
    "one unit": ({"algorithms": algorithms("apfl")}, [], False),
    "several units": ({"seeds": [0, 1], "algorithms": algorithms("fedavg", "apfl")}, [], False),
    "two workers": ({"seeds": [0, 1, 2]}, ["--workers", 2], False),
    "keep-parameters": ({"keep_parameters": 1, "seeds": [0, 1]}, [], False),
    "a resume that is cut itself": ({"seeds": [0, 1], "keep_parameters": 2}, [], True),
}


def files(folder):
    """All that a run promises: {path: content}, without hidden files, the log and the last copy."""
    return {
        str(p.relative_to(folder)): p.read_bytes()[: 4 if p.suffix == ".png" else None]
        for p in sorted(folder.rglob("*"))
        if p.is_file() and not p.name.startswith(".") and p.suffix not in (".old", ".txt")
    }


def put(folder, disk):
    for name, content in disk.items():
        path = folder / name
        path.mkdir() if content is None else path.write_bytes(content)


def in_fork(folder, *words):
    """Run the command in a fork of this process; return its exit code and what it wrote."""
    if (child := os.fork()) == 0:
        signal.alarm(60)
        code = 99
        try:
            os.chdir(folder)
            Figure.savefig = lambda self, out, **_: out.write(b"\x89PNG")  # drawing takes longest
            sys.stdout = sys.stderr = open("said", "w")  # noqa: SIM115 (the process ends)
            code = main(*words)
            sys.stdout.flush()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, (folder / "said").read_text()


def rounds_told(text):
    """The rounds of each unit in the JSON lines of a command: (algorithm, seed) → rounds."""
    told = {}
    for line in text.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            told.setdefault((row["algorithm"], row["seed"]), []).append(
                (row["round"], row["status"])
            )
    return told


def recorded(name, here):
    """Record a scenario: its events, the disk before it, the words that begin it, and its files."""
    changes, more, stopped = SCENARIOS[name]
    path = write(here / "t.toml", document(**changes))
    root, before = here / "root", {}
    words = ["run", str(path), "-o", "D", "--json", "--checkpoint-every", "0"]
    first = [*words]
    root.mkdir()
    if stopped:  # the disk in the middle of a run
        events, _, _, _ = recorded_run(here / "begun", words)
        half = len(events) // 2
        disks = power_cut.disks(events[:half], {}, here / "begun" / "log.blobs")
        *_, before = (disk for done, model, disk in disks if done == half and model == "J")
        words = ["resume", "D", *words[4:]]
    return *recorded_run(here / "run", [*words, *map(str, more)], before), first


def recorded_run(folder, words, before=None):
    """Run the command on this disk; return its events, the disk before, its files, the blobs' folder."""
    (root := folder / "root").mkdir(parents=True)
    put(root, before or {})
    code = f"import os, sys; os.chdir({str(root)!r})\nfrom fedref.commands import main\n"
    code += f"if __name__ == '__main__': sys.exit(main({words!r}))"
    script = folder / "main.py"  # workers that are spawned import the main file
    script.write_text(code)
    events = power_cut.record(script, root, folder / "log")
    return events, before or {}, files(root / "D"), folder / "log.blobs"


def try_disks(name, here, limit):
    """Resume from up to `limit` distinct disks; return how many there were, and the faults."""
    events, before, expected, blobs, first = recorded(name, here)
    found = {}
    for done, model, disk in power_cut.disks(events, before, blobs):
        finished = done == len(events)
        key = (tuple(sorted(disk.items(), key=lambda item: item[0])), finished)
        found.setdefault(key, (done, model, disk))
    chosen = list(found.values())
    random.Random(1).shuffle(chosen)
    last = [one for one in chosen if one[0] == len(events)]
    rest = [one for one in chosen if one[0] < len(events)]
    chosen, faults = [*last[: max(limit // 10, limit - len(rest))], *rest][:limit], []
    for i, (done, model, disk) in enumerate(chosen):
        folder = here / f"{i}"
        folder.mkdir()
        put(folder, disk)
        where = f"{name}, {model}, after {done} of {len(events)} events"
        if done == len(events) and files(folder / "D") != expected:
            faults.append(f"{where}: the command had ended with 0, and a file is missing or old")
        code, said = in_fork(folder, "resume", "D", "--json", "--checkpoint-every", "0")
        told = [
            ((event[1], event[2]), event[3])
            for event in events[:done]
            if event[0] == "said" and event[4] == "done"
        ]
        if code == 2:
            if said.count("\n") != 1 or "D" not in said:
                faults.append(f"{where}: {said}")
            code, said = in_fork(folder, *first)
        for unit, round in told:
            if any(t < round for t, _ in rounds_told(said).get(unit, [])):
                faults.append(f"{where}: {unit} was told to be done, and is run again")
        if code or files(folder / "D") != expected:
            other = [n for n, data in expected.items() if files(folder / "D").get(n) != data]
            faults.append(f"{where}: exit {code}, other {other}: {said[-300:]}")
        shutil.rmtree(folder)
    return len(found), len(chosen), faults


@pytest.mark.parametrize("name", SCENARIOS)
def test_twenty_disks_of_each(name, tmp_path, capfd):
    assert main("run", write(tmp_path / "w.toml", document()), "-q", "-o", tmp_path / "w") == 0
    _, tried, faults = try_disks(name, tmp_path, 20)
    assert (tried, faults) == (20, [])


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_all_disks(name, tmp_path, capfd):
    distinct, tried, faults = try_disks(name, tmp_path, 100_000)
    assert (tried, faults) == (distinct, [])
    assert tried >= 100
