"""After a power cut: the same bytes, or one line and then the first command again.

What the run has reported as saved is still there.
"""

import json
import os
import random
import shutil
import signal
import sys
from functools import partial
from itertools import count
from pathlib import Path

import federating
import power_cut
import pytest
from matplotlib.figure import Figure
from running import algorithms, document, main, write

from fedref import FedrefError
from fedref.lab import plots
from fedref.lab.commands.run import print_json_line
from fedref.lab.experiments.progress import Progress
from fedref.lab.flower.server import serve

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc"),
    pytest.mark.filterwarnings(
        "ignore:.*fork"
    ),  # threads of others, JAX's too, are not of the child
]
TWO = algorithms("fedavg", "apfl")
#: Scenario → (changes of the experiment, more words, where a run before was cut, as parts of it).
SCENARIOS = {
    "one unit": ({"algorithms": algorithms("apfl")}, [], [0]),
    "several units": ({"seeds": [0, 1], "algorithms": TWO, "rounds": 7}, [], [0]),
    "two workers": ({"seeds": [0, 1, 2]}, ["--workers", 2], [0]),
    "keep-parameters": ({"keep_parameters": 1, "seeds": [0, 1], "rounds": 4}, [], [0]),
    "a resume that is cut itself": (
        {"seeds": [0, 1], "keep_parameters": 2, "rounds": 4}, [], [0.3, 0.5, 0.7],
    ),
    "the Flower server": (None, [], [0, 0.5]),
}  # fmt: skip


def command(*words) -> int:
    """Run or resume in the folder D beside t.toml, and tell every round."""
    return main(*words, "--json", "--checkpoint-every", "0")


def over_flower() -> int:
    """Run over nodes that live on, or go on with it: the server's folder is D.

    What the nodes hold when a round is told is copied.
    """
    made, number = federating.experiment_of(algorithms=TWO, rounds=4), count()

    def tell(unit, record):
        shutil.copytree("../nodes", f"../{next(number)}")
        print_json_line(unit, record)

    progress = Progress(tell)
    try:
        serve(federating.Wires(Path("../nodes"), made), made, Path("D"),
              clients=7, limit=5.0, progress=progress)  # fmt: skip
    except FedrefError as error:
        print(f"fedref: error: {error}")
        return 2
    return 0


def files(folder):
    """All that a run promises: {path: content}, without hidden files, the log and a Flower run's name."""
    return {
        str(p.relative_to(folder)): p.read_bytes()[: 4 if p.suffix == ".png" else None]
        for p in sorted(folder.rglob("*"))
        if p.is_file() and not p.name.startswith(".") and p.suffix not in (".old", ".txt")
        if p.name not in ("federation.json", "curves.png")
    }


def put(folder, disk, root=None, told=0):
    """Make a folder with the files of a disk; beside it, what the nodes of a run held.

    root : where the run was. told : how many rounds it had told; its nodes had worked on the next one, too.
    """
    folder.mkdir(parents=True)
    if root and (root.parent / "nodes").exists():
        held = root.parent / str(told)
        shutil.copytree(held if held.exists() else root.parent / "nodes", folder.parent / "nodes")
    for name, content in disk.items():
        path = folder / name
        path.mkdir() if content is None else path.write_bytes(content)


def in_fork(folder, call):
    """Call a function in a fork of this process; return its exit code and what it wrote."""
    if (child := os.fork()) == 0:
        signal.alarm(600)
        code = 99
        try:
            os.chdir(folder)
            plots.curves = lambda table: Figure()  # drawing takes longest
            Figure.savefig = lambda self, out, **_: out.write(b"\x89PNG")
            sys.stdout = sys.stderr = open("said", "w")  # noqa: SIM115 (the process ends)
            code = call()
            sys.stdout.flush()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, (folder / "said").read_text()


def rounds_told(text):
    """The rounds of each unit in the JSON lines of a command: (algorithm, seed) → rounds."""
    told = {}
    for row in (json.loads(line) for line in text.splitlines() if line.startswith("{")):
        told.setdefault((row["algorithm"], row["seed"]), []).append(row["round"])
    return told


def recorded(folder, call, before, *cut):
    """Record a call on this disk; return its folder, its events, its files, and the folder of the blobs."""
    put(folder / "root", before, *cut)
    events = power_cut.record(call, folder / "root", folder / "log")
    return folder / "root", events, files(folder / "root" / "D"), folder / "log.blobs"


def rounds_of(events):
    return sum(kind == "said" for kind, *_ in events)


def cuts(name, here):
    """Yield (disk before, calls to try, folder, events, files, blobs) of the runs of a scenario."""
    changes, more, stops = SCENARIOS[name]
    calls = [over_flower] * 2
    if changes is not None:
        path = write(here / "t.toml", document(**changes))
        calls = [partial(command, "run", path, "-o", "D"), partial(command, "resume", "D")]
    root, events, expected, blobs = recorded(here / "first", partial(calls[0], *more), {})
    for i, stop in enumerate(stops):
        if stop == 0:
            yield {}, calls, root, events, expected, blobs
        else:
            done = int(stop * len(events))
            *_, (_, disk) = power_cut.disks(events[:done], {}, blobs)
            cut = root, rounds_of(events[:done])
            yield disk, calls, *recorded(here / f"again{i}", calls[1], disk, *cut)


def try_disks(name, here, limit):
    """Go on from up to `limit` distinct disks; return how many there are, how many were tried, faults."""
    distinct, tried, faults = 0, 0, []
    for before, calls, root, events, expected, blobs in cuts(name, here):
        found = {}
        for done, disk in power_cut.disks(events, before, blobs):
            key = (tuple(sorted(disk.items(), key=lambda item: item[0])), done == len(events))
            found.setdefault(key, (done, disk))
        distinct += len(found)
        chosen = list(found.values())
        random.Random(1).shuffle(chosen)
        chosen.sort(key=lambda one: one[0] < len(events))  # those of a finished run first
        last = sum(one[0] == len(events) for one in chosen)
        few = -(-limit // len(SCENARIOS[name][2]))
        for done, disk in chosen[max(0, last - -(-few // 10)) :][:few]:
            where, folder = (
                f"{name}, after {done} of {len(events)} events",
                here / str(tried) / "root",
            )
            put(folder, disk, root, rounds_of(events[:done]))
            found = try_disk(folder, expected, events[:done], done == len(events), calls)
            faults += [f"{where}: {fault}" for fault in found]
            shutil.rmtree(folder.parent)
            tried += 1
    return distinct, tried, faults


def try_disk(folder, expected, events, finished, calls):
    """Go on from a disk, and begin anew if a line says so; yield what is wrong."""
    if finished and files(folder / "D") != expected:
        yield "the command had ended with 0, and a file is missing or old"
    first, again = calls
    code, said = in_fork(folder, again)
    if code == 2:
        if said.count("\n") != 1 or "D" not in said:
            yield said
        code, said = in_fork(folder, first)
    for kind, *event in events:
        if kind == "said" and event[3] == "done":
            rounds = rounds_told(said).get((event[0], event[1]), [])
            if any(t < event[2] for t in rounds):
                yield f"{event[:2]} was told to be done, and is run again"
    if code or files(folder / "D") != expected:
        other = [n for n, data in expected.items() if files(folder / "D").get(n) != data]
        yield f"exit {code}, other {other}: {said[-300:]}"


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("limit", [6, pytest.param(100_000, marks=pytest.mark.slow)])
def test_some_disks_of_each_or_all(name, limit, tmp_path, capfd):
    assert main("run", write(tmp_path / "w.toml", document()), "-q", "-o", tmp_path / "w") == 0
    distinct, tried, faults = try_disks(name, tmp_path, limit)
    assert distinct > 50  # more than a thousand in all
    assert tried >= min(limit, distinct)
    assert faults == []
