"""How long a round takes beside PyTorch and JAX, on one core and on all: one plan and one start."""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.style import context

from fedref.boundary.errors import FedrefError
from fedref.boundary.style import COLOURS, MARKERS, STYLE, frame, save
from fedref.models.numerics import Array
from reproduce.runs import describe_machine
from reproduce.speed.server import PEERS, Answer, answer, parameters, start
from reproduce.speed.workloads import NAMES
from reproduce.writing import markdown, write_csv

HERE = Path(__file__).parent
OURS = ("fedref", "floor", "no-derivatives")
#: A CNN by hand would be fedref's once more.
NOT_WRITTEN = {("numpy-by-hand", "W4")}
REPETITIONS, QUICK_REPETITIONS = 11, 2
#: Where float32 rounds differently in each, results may differ by more than in float64.
AGREE = {"float32": 1e-2, "float64": 1e-9}


class Row(NamedTuple):
    """The times of an implementation's turns; a ratio is to fedref's time in the same turn."""

    cores: int
    workload: str
    dtype: str
    implementation: str
    milliseconds: float
    ratio: float
    lower_quartile: float
    upper_quartile: float
    first_round_s: float
    peak_memory_MB: float


def report(out: Path, quick: bool, earlier: Path | None = None) -> dict[str, str]:
    turns = QUICK_REPETITIONS if quick else REPETITIONS
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    rows: list[Row] = []
    for used in [[cores[-1]]] + [cores] * (len(cores) > 1):
        os.environ.update(limits(len(used)))
        for dtype in AGREE:
            with ExitStack() as stack:
                servers = {how: server(used, stack) for how in implementations(len(used), quick)}
                if earlier:
                    servers["earlier"] = server(used, stack, earlier)
                for name in NAMES:
                    those = {
                        how: it for how, it in servers.items() if (how, name) not in NOT_WRITTEN
                    }
                    agree(those, name, dtype)
                    rows += rows_of(len(used), name, dtype, take_turns(those, name, dtype, turns))
                    print(f"{name}, {dtype}, cores: {len(used)}: measured", file=sys.stderr)
    write_csv(out / "numbers.csv", Row._fields, rows)
    return {"measured": write_up(rows, turns, out), "machine": describe_machine(("torch", "jax"))}


def implementations(cores: int, quick: bool) -> list[str]:
    """Return those to time: the floors on one core only, JAX's clients on devices on several."""
    left_out = {"jax-pmap"} if cores == 1 else {*OURS[1:], *PEERS["numpy"]}
    if quick or not shutil.which("c++"):
        left_out.add("torch-compile")
    peers = [how for package, hows in PEERS.items() if find_spec(package) for how in hows]
    return [how for how in (*OURS, *peers) if how not in left_out]


def limits(cores: int) -> dict[str, str]:
    """Return the environment variables that limit the threads and devices of a new process's libraries."""
    names = "OMP_NUM_THREADS", "MKL_NUM_THREADS"
    eigen = "" if cores > 1 else "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    devices = f"--xla_force_host_platform_device_count={cores}"
    threads = {"OPENBLAS_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return threads | dict.fromkeys(names, str(cores)) | {"XLA_FLAGS": f"{devices} {eigen}"}


def server(cores: list[int], stack: ExitStack, checkout: Path | None = None) -> ProcessPoolExecutor:
    """Return a process that answers, with the fedref of this checkout or, if None is given, with ours."""
    pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=start, initargs=(cores,))
    stack.enter_context(pool)
    if checkout:
        sys.path.insert(0, str(checkout.resolve()))
        pool.submit(int).result()  # starts the process, which takes over the path
        del sys.path[0]
    return pool


def agree(servers: dict[str, Any], name: str, dtype: str) -> None:
    """Refuse to time what does not compute the same."""
    expected = servers["fedref"].submit(parameters, "fedref", dtype, name).result()
    for how in [how for how in servers if how not in OURS]:
        found = servers[how].submit(parameters, how, dtype, name).result()
        error = float(np.abs(found - expected).max() / np.abs(expected).max())
        if not error <= AGREE[dtype]:
            raise FedrefError(f"{name} ({dtype}): {how} differs from fedref by {error:.1e}")


def take_turns(servers: dict[str, Any], name: str, dtype: str, turns: int) -> dict[str, Array]:
    """Return the answers of every server in every turn: implementation → (turns, 3)."""
    hows, answers = list(servers), {how: np.empty((turns, len(Answer._fields))) for how in servers}
    for turn in range(turns):
        for how in hows[turn % len(hows) :] + hows[: turn % len(hows)]:
            answers[how][turn] = servers[how].submit(answer, how, dtype, name).result()
    return answers


def rows_of(cores: int, name: str, dtype: str, answers: dict[str, Array]) -> list[Row]:
    rows = []
    for how, (seconds, first, megabytes) in ((how, a.T) for how, a in answers.items()):
        ratios = np.quantile(seconds / answers["fedref"][:, 0], [0.5, 0.25, 0.75]).round(3)
        milliseconds = round(1e3 * float(np.median(seconds)), 2)
        middle, lower, upper = ratios.tolist()
        once, peak = round(float(first.max()), 3), round(float(megabytes.max()))
        rows.append(Row(cores, name, dtype, how, milliseconds, middle, lower, upper, once, peak))
    return rows


# ---- the page ------------------------------------------------------------------------------------


def write_up(rows: Sequence[Row], turns: int, out: Path) -> str:
    """Return the tables and the picture of what was measured."""
    picture([row for row in rows if row.cores == 1], out / "speed.png")
    lacking = [p for p in PEERS if not any(row.implementation.startswith(p) for row in rows)]
    parts = ["\n".join(f"- {name}: {what}." for name, what in NAMES.items())]
    for cores in dict.fromkeys(row.cores for row in rows):
        on = "On one core" if cores == 1 else f"On {cores} cores"
        parts += [f"{on}:", table(row for row in rows if row.cores == cores)]
    parts.insert(
        1,
        f"Time divided by fedref's, median (and quartiles) of {turns} turns; `floor` is the round's "
        "matrix products alone, `no-derivatives` the round with gradients that cost nothing: gathering "
        "rows, updates, the loop; `numpy-by-hand` is NumPy for this one round, with all prepared that is "
        "the same in every round; `earlier`, if there, is another version of fedref. numbers.csv has the "
        "first rounds with their compilation, and memory.",
    )
    parts.append("![Time of a round divided by fedref's, on one core](speed.png)")
    if lacking:
        parts.append(f"Not installed, and so not here: {', '.join(lacking)}; `fedref[peers]`.")
    return "\n\n".join(parts)


def table(rows: Iterable[Row]) -> str:
    """Return a table of fedref's time, and that of each divided by it: median, and quartiles."""
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        line = lines.setdefault((row.workload, row.dtype), {})
        ratio = f"{row.ratio:.2f} ({row.lower_quartile:.2f}–{row.upper_quartile:.2f})"
        line[row.implementation] = (
            f"{row.milliseconds:.1f}" if row.implementation == OURS[0] else ratio
        )
    hows = list(next(iter(lines.values())))
    cells = ([*key, *(line.get(how, "–") for how in hows)] for key, line in lines.items())
    return markdown([["", "dtype", "fedref (ms)", *hows[1:]], *cells])


def picture(rows: Sequence[Row], path: Path) -> None:
    """Draw a panel for each number type: a sign a peer, fedref at 1."""
    workloads = list(dict.fromkeys(row.workload for row in rows))
    hows = dict.fromkeys(row.implementation for row in rows)
    shown = [how for how in hows if how not in ("fedref", "no-derivatives")]
    looks: dict[str, dict[str, Any]] = {
        how: {"marker": m, "color": c, "linestyle": "none"}
        for how, m, c in zip(shown, MARKERS, COLOURS[1:])
    }
    with context(STYLE):
        handles = [Line2D([], [], label=how, **look) for how, look in looks.items()]
        figure, panels = frame((1, 2), (4, 2.6), "", handles, share=True)
        for axes, dtype in zip(panels, AGREE):
            for how, look in looks.items():
                of = [row for row in rows if (row.dtype, row.implementation) == (dtype, how)]
                y = [workloads.index(row.workload) for row in of]
                axes.plot([row.ratio for row in of], y, **look)
            axes.axvline(1, color="black", linewidth=1)
            axes.set(xscale="log", title=dtype, xlabel="time of a round, fedref = 1")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_yticks(range(len(workloads)), workloads)
        panels[0].invert_yaxis()
        save(figure, path)
