"""How long a round takes beside PyTorch and JAX: one core and two, one plan and one start for all."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.style import context

from fedref.boundary.errors import FedrefError
from fedref.experiments.results import Run
from fedref.models.numerics import Array
from fedref.plots.style import COLOURS, MARKERS, STYLE, frame, save
from reproduce.speed.workloads import NAMES
from reproduce.tables import markdown, write_csv

HERE = Path(__file__).parent
PEERS = {"torch": ("torch-eager", "torch-vmap"), "jax": ("jax-vmap", "jax-client")}
TURNS, QUICK_TURNS = 15, 2
#: Where float32 rounds differently in each, results may differ by more than in float64.
AGREE = {"float64": 1e-9, "float32": 1e-2}
SETTINGS = {1: "One core", 2: "Two cores"}


class Server:
    """An implementation in its process."""

    def __init__(self, how: str, dtype: str, cores: int, stack: ExitStack) -> None:
        names = "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"
        threads = dict.fromkeys(names, str(cores))
        several = str(cores > 1).lower()
        threads["XLA_FLAGS"] = (
            f"--xla_cpu_multi_thread_eigen={several} intra_op_parallelism_threads={cores}"
        )
        self.how = how
        self.process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, HERE / "server.py", how, dtype, str(cores)],
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


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    turns = QUICK_TURNS if any(part.endswith("-quick") for part in out.parts) else TURNS
    installed = [how for package, hows in PEERS.items() if find_spec(package) for how in hows]
    numbers: list[list[Any]] = []
    for cores, dtype in product(SETTINGS, AGREE):
        with ExitStack() as stack, TemporaryDirectory() as folder:
            ours = ("fedref", "floor") if cores == 1 else ("fedref",)
            servers = [Server(how, dtype, cores, stack) for how in (*ours, *installed)]
            for name in NAMES:
                agree(servers, name, dtype, Path(folder))
                answers = take_turns(servers, name, turns)
                numbers += rows(servers, name, dtype, cores, answers)
                print(f"{name}, {dtype}, {SETTINGS[cores]}: measured", file=sys.stderr)
    write_csv(out / "numbers.csv", HEAD, numbers)
    return {"measured": write_up(numbers, NAMES, turns, out)}


def write_up(
    numbers: Sequence[Sequence[Any]], names: Mapping[str, str], turns: int, out: Path
) -> str:
    """Return the tables and the picture of what was measured: rows as in `HEAD`."""
    picture(numbers, out / "speed.png")
    found = {row[3] for row in numbers}
    lacking = [package for package, hows in PEERS.items() if not found & set(hows)]
    parts = ["\n".join(f"- {name}: {what}." for name, what in names.items())]
    for cores, setting in SETTINGS.items():
        of = [row for row in numbers if row[2] == cores]
        parts.append(
            f"{setting}, time divided by fedref's, median (and quartiles) of {turns} turns:\n\n{table(of)}"
        )
    parts += [
        "`floor`: the round's matrix products alone.",
        "First round with its compilation, and the process's peak memory so far, earlier workloads "
        f"included (one core, float32):\n\n{start_and_memory(numbers)}",
        "![Time of a round divided by fedref's](speed.png)",
    ]
    if lacking:
        parts.append(f"Not installed, and so not here: {', '.join(lacking)}; `fedref[peers]`.")
    return "\n\n".join(parts)


HEAD = [
    "workload", "dtype", "cores", "implementation", "milliseconds", "ratio", "ratio, lower quartile",
    "ratio, upper quartile", "first round (s)", "peak memory (MB)",
]  # fmt: skip


def agree(servers: list[Server], name: str, dtype: str, folder: Path) -> None:
    """Refuse to time what does not compute the same."""
    results = {}
    for server in servers:
        path = folder / f"{name}-{server.how}.npy"
        server.ask(name, path)
        results[server.how] = np.load(path, allow_pickle=True)
    expected = results.pop("fedref")
    results.pop("floor", None)
    for how, found in results.items():
        error = float(np.abs(found - expected).max() / np.abs(expected).max())
        if not error <= AGREE[dtype]:
            raise FedrefError(f"{name} ({dtype}): {how} differs from fedref by {error:.1e}")


def take_turns(servers: list[Server], name: str, turns: int) -> Array:
    """Return the answers of every server in every turn: (turns, servers, 3)."""
    answers = np.zeros((turns, len(servers), 3))
    for turn in range(turns):
        for i in range(len(servers)):
            at = (turn + i) % len(servers)
            answers[turn, at] = servers[at].ask(name)
    return answers


def rows(
    servers: list[Server], name: str, dtype: str, cores: int, answers: Array
) -> list[list[Any]]:
    seconds = answers[..., 0]
    ratios = seconds / seconds[:, :1]
    return [
        [
            name, dtype, cores, server.how, round(1e3 * float(np.median(seconds[:, i])), 2),
            *(round(float(q), 3) for q in np.quantile(ratios[:, i], [0.5, 0.25, 0.75])),
            round(float(answers[-1, i, 1]), 3), round(float(answers[-1, i, 2])),
        ]
        for i, server in enumerate(servers)
    ]  # fmt: skip


def table(numbers: Sequence[Sequence[Any]]) -> str:
    """Return a table of the time of each divided by fedref's: median, and quartiles."""
    names = list(dict.fromkeys(row[3] for row in numbers))[1:]
    lines = [["", "dtype", "fedref (ms)", *names]]
    for name, dtype in dict.fromkeys((row[0], row[1]) for row in numbers):
        found = {row[3]: row for row in numbers if [*row[:2]] == [name, dtype]}
        ratios = [f"{r[5]:.2f} ({r[6]:.2f}–{r[7]:.2f})" for r in (found[how] for how in names)]
        lines.append([name, dtype, f"{found['fedref'][4]:.1f}", *ratios])
    return markdown(lines)


def start_and_memory(numbers: Sequence[Sequence[Any]]) -> str:
    """Return a table of the first round's seconds with compilation, and the most megabytes so far."""
    some = [row for row in numbers if row[1:3] == ["float32", 1] and row[3] != "floor"]
    names = list(dict.fromkeys(row[3] for row in some))
    lines = [["", *names]]
    for name in dict.fromkeys(row[0] for row in some):
        found = {row[3]: row for row in some if row[0] == name}
        lines.append([name, *(f"{found[how][8]:.2f} s, {found[how][9]:.0f} MB" for how in names)])
    return markdown(lines)


def picture(numbers: Sequence[Sequence[Any]], path: Path) -> None:
    """Draw a panel for each number type and number of cores: a sign a peer, fedref at 1."""
    workloads = list(dict.fromkeys(row[0] for row in numbers))
    hows = [how for how in dict.fromkeys(row[3] for row in numbers) if how != "fedref"]
    looks: dict[str, dict[str, Any]] = {
        how: {"marker": m, "color": c} for how, m, c in zip(hows, MARKERS, COLOURS[1:])
    }
    with context(STYLE):
        handles = [
            Line2D([], [], linestyle="none", label=how, **look) for how, look in looks.items()
        ]
        figure, panels = frame((2, 2), (4, 2.4), "", handles, share=True)
        for axes, (cores, dtype) in zip(panels, product(SETTINGS, AGREE)):
            for how, look in looks.items():
                of = [row for row in numbers if [*row[1:4]] == [dtype, cores, how]]
                y = [workloads.index(row[0]) for row in of]
                axes.plot([row[5] for row in of], y, linestyle="none", **look)
            axes.axvline(1, color="black", linewidth=1)
            axes.set(xscale="log", title=f"{SETTINGS[cores]}, {dtype}")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_yticks(range(len(workloads)), workloads)
        panels[0].invert_yaxis()
        for axes in panels[2:]:
            axes.set_xlabel("time of a round, fedref = 1")
        save(figure, path)
