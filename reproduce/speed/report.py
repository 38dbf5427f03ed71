"""How long a round takes beside PyTorch and JAX, on one core: one plan and one start for all."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.style import context
from threadpoolctl import threadpool_info

from fedref.boundary.errors import FedrefError
from fedref.models.numerics import Array
from fedref.plots.style import COLOURS, MARKERS, STYLE, frame, save
from reproduce.speed.workloads import NAMES
from reproduce.tables import markdown, write_csv

HERE = Path(__file__).parent
PEERS = {"torch": ("torch-eager", "torch-vmap", "torch-compile"), "jax": ("jax-vmap", "jax-map")}
OURS = ("fedref", "floor", "no-derivatives")
TURNS, QUICK_TURNS = 11, 2
#: A peer's ways that take so many times as long as its fastest one, in the first turns, take no more.
HOPELESS, TRIALS = 3, 3
#: Where float32 rounds differently in each, results may differ by more than in float64.
AGREE = {"float32": 1e-2, "float64": 1e-9}


class Server:
    """An implementation in its process, with one thread on one core."""

    def __init__(self, how: str, dtype: str, stack: ExitStack) -> None:
        names = "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"
        threads = dict.fromkeys((*names, "TORCHINDUCTOR_COMPILE_THREADS"), "1")
        threads["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        self.how = how
        self.process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, HERE / "server.py", how, dtype, str(core)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        )  # fmt: skip

    def ask(self, *words: object) -> list[float]:
        """[seconds of a round, seconds of the first, megabytes]."""
        to, answers = pipe(self.process.stdin), pipe(self.process.stdout)
        print(*words, file=to, flush=True)
        answer = answers.readline()
        if not answer:
            raise FedrefError(f"{self.how} ended at {words[0]}: its message is above")
        return [float(x) for x in answer.split()]


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def report(out: Path, quick: bool) -> dict[str, str]:
    turns = QUICK_TURNS if quick else TURNS
    installed = [how for package, hows in PEERS.items() if find_spec(package) for how in hows]
    if "torch-compile" in installed and (quick or not shutil.which("c++")):
        installed.remove("torch-compile")
    numbers: list[list[Any]] = []
    for dtype in AGREE:
        with ExitStack() as stack, TemporaryDirectory() as folder:
            servers = [Server(how, dtype, stack) for how in (*OURS, *installed)]
            for name in NAMES:
                agree(servers, name, dtype, Path(folder))
                numbers += rows(servers, name, dtype, take_turns(servers, name, turns))
                print(f"{name}, {dtype}: measured", file=sys.stderr)
    write_csv(out / "numbers.csv", HEAD, numbers)
    return {"measured": write_up(numbers, turns, out), "machine": describe_machine()}


def describe_machine() -> str:
    """Return the processor, and what NumPy, its BLAS and the peers made of it."""
    try:
        processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        processor = None
    name = processor[1] if processor else platform.processor()
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]
    simd = extensions.get("found") or extensions["baseline"]
    blas = {info["architecture"] for info in threadpool_info() if "architecture" in info}
    names = "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"
    forced = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    kernels = f"OpenBLAS for {', '.join(blas)} ({', '.join(forced) or 'chosen by itself'})"
    packages = ", ".join(f"{p} {version(p)}" for p in ("numpy", *PEERS) if find_spec(p))
    return f"{name}; instruction sets up to {simd[-1]}, {kernels}; {packages}"


def write_up(numbers: Sequence[Sequence[Any]], turns: int, out: Path) -> str:
    """Return the tables and the picture of what was measured: rows as in `HEAD`."""
    picture(numbers, out / "speed.png")
    found = {row[2] for row in numbers}
    lacking = [package for package, hows in PEERS.items() if not found & set(hows)]
    parts = [
        "\n".join(f"- {name}: {what}." for name, what in NAMES.items()),
        f"Time divided by fedref's, median (and quartiles) of {turns} turns; `floor` is the round's "
        "matrix products alone, `no-derivatives` the round with gradients that cost nothing: gathering "
        f"rows, updates, the loop:\n\n{table(numbers)}",
        "First round with its compilation, and the process's peak memory so far, earlier workloads "
        f"included (float32):\n\n{start_and_memory(numbers)}",
        "![Time of a round divided by fedref's](speed.png)",
    ]
    if lacking:
        parts.append(f"Not installed, and so not here: {', '.join(lacking)}; `fedref[peers]`.")
    return "\n\n".join(parts)


HEAD = [
    "workload", "dtype", "implementation", "milliseconds", "ratio", "ratio, lower quartile",
    "ratio, upper quartile", "first round (s)", "peak memory (MB)",
]  # fmt: skip


def agree(servers: list[Server], name: str, dtype: str, folder: Path) -> None:
    """Refuse to time what does not compute the same."""
    results = {}
    for server in servers:
        path = folder / f"{name}-{server.how}.npy"
        server.ask(name, path)
        results[server.how] = np.load(path)
    expected = results.pop("fedref")
    for how in OURS[1:]:
        results.pop(how, None)
    for how, found in results.items():
        error = float(np.abs(found - expected).max() / np.abs(expected).max())
        if not error <= AGREE[dtype]:
            raise FedrefError(f"{name} ({dtype}): {how} differs from fedref by {error:.1e}")


def take_turns(servers: list[Server], name: str, turns: int) -> Array:
    """Return the answers of every server in every turn, (turns, servers, 3); NaN where it took none.

    What is hopeless after some turns takes no more.
    """
    package = [server.how.split("-")[0] for server in servers]
    answers = np.full((turns, len(servers), 3), np.nan)
    some = list(range(len(servers)))
    for turn in range(turns):
        if turn == TRIALS:
            least = answers[:TRIALS, :, 0].min(0)
            best = {p: min(x for x, q in zip(least, package) if q == p) for p in package}
            some = [i for i, p in enumerate(package) if least[i] <= HOPELESS * best[p]]
        for i in some[turn % len(some) :] + some[: turn % len(some)]:
            answers[turn, i] = servers[i].ask(name)
    return answers


def rows(servers: list[Server], name: str, dtype: str, answers: Array) -> list[list[Any]]:
    seconds = answers[..., 0]
    ratios = seconds / seconds[:, :1]
    return [
        [
            name, dtype, server.how, round(1e3 * float(np.nanmedian(seconds[:, i])), 2),
            *(round(float(q), 3) for q in np.nanquantile(ratios[:, i], [0.5, 0.25, 0.75])),
            round(float(np.nanmax(answers[:, i, 1])), 3), round(float(np.nanmax(answers[:, i, 2]))),
        ]
        for i, server in enumerate(servers)
    ]  # fmt: skip


def by_workload(numbers: Sequence[Sequence[Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """(workload, dtype) → implementation → its row."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in numbers:
        found.setdefault((row[0], row[1]), {})[row[2]] = row
    return found


def table(numbers: Sequence[Sequence[Any]]) -> str:
    """Return a table of fedref's time, and that of each divided by it: median, and quartiles."""
    names = list(dict.fromkeys(row[2] for row in numbers))[1:]
    lines = [["", "dtype", "fedref (ms)", *names]]
    for (name, dtype), found in by_workload(numbers).items():
        ratios = [f"{r[4]:.2f} ({r[5]:.2f}–{r[6]:.2f})" for r in (found[how] for how in names)]
        lines.append([name, dtype, f"{found['fedref'][3]:.1f}", *ratios])
    return markdown(lines)


def start_and_memory(numbers: Sequence[Sequence[Any]]) -> str:
    """Return a table of the first round's seconds with compilation, and the most megabytes so far."""
    names = [how for how in dict.fromkeys(row[2] for row in numbers) if how not in OURS[1:]]
    lines = [["", *names]]
    for (name, dtype), found in by_workload(numbers).items():
        if dtype == "float32":
            cells = (f"{found[how][7]:.2f} s, {found[how][8]:.0f} MB" for how in names)
            lines.append([name, *cells])
    return markdown(lines)


def picture(numbers: Sequence[Sequence[Any]], path: Path) -> None:
    """Draw a panel for each number type: a sign a peer, fedref at 1."""
    workloads = list(dict.fromkeys(row[0] for row in numbers))
    apart = ("fedref", "no-derivatives")
    hows = [how for how in dict.fromkeys(row[2] for row in numbers) if how not in apart]
    assert len(hows) <= len(MARKERS)
    looks: dict[str, dict[str, Any]] = {
        how: {"marker": m, "color": c} for how, m, c in zip(hows, MARKERS, COLOURS[1:])
    }
    with context(STYLE):
        handles = [
            Line2D([], [], linestyle="none", label=how, **look) for how, look in looks.items()
        ]
        figure, panels = frame((1, 2), (4, 2.6), "", handles, share=True)
        for axes, dtype in zip(panels, AGREE):
            for how, look in looks.items():
                of = [row for row in numbers if [*row[1:3]] == [dtype, how]]
                y = [workloads.index(row[0]) for row in of]
                axes.plot([row[4] for row in of], y, linestyle="none", **look)
            axes.axvline(1, color="black", linewidth=1)
            axes.set(xscale="log", title=dtype, xlabel="time of a round, fedref = 1")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_yticks(range(len(workloads)), workloads)
        panels[0].invert_yaxis()
        save(figure, path)
