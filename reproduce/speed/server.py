"""One implementation in a process of its own, on one core: `python server.py HOW DTYPE CORE`.

Each line on its input names a workload; the answer is the seconds of one round by the clock, then
those of the first one, with its compilation, then the megabytes that the process took at most. The
parameters go to the file that is named after the workload's name, if any.
"""

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


def peer_of(how: str) -> str:
    """Return the package whose way it is, if there is an in_PACKAGE.py for it; "" for fedref's."""
    package = how.partition("-")[0]
    return package if (HERE / f"in_{package}.py").exists() else ""


@cache
def prepare_once(how: str, dtype: str, name: str) -> tuple[Callable[[], Any], float]:
    """(one round, the seconds of the first)."""
    peer = peer_of(how)
    module = import_module(f"in_{peer}" if peer else "ours")
    play = module.prepare(how, dtype, name)
    return play, time_call(play)[0]


def time_call(play: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = play()
    return time.perf_counter() - began, result


def flatten(how: str, name: str, result: Any) -> np.ndarray:
    """Return the parameters in one vector; a peer has to hold an array for each weight and bias."""
    from workloads import workload

    parts = [np.asarray(x, np.float64) for x in leaves(result)]
    shapes = list(workload(name)[1].shapes)
    if peer_of(how) and [x.shape for x in parts] not in (shapes, 2 * shapes):
        raise ValueError(f"{how} holds {name}'s parameters not as arrays of the shapes {shapes}")
    return np.concatenate([np.zeros(0), *map(np.ravel, parts)])


def leaves(result: Any) -> Iterator[Any]:
    """Yield the arrays in lists and tuples, in order."""
    if isinstance(result, list | tuple):
        for part in result:
            yield from leaves(part)
    elif result is not None:
        yield result


def main(how: str, dtype: str) -> None:
    for line in sys.stdin:
        name, *path = line.split()
        play, first = prepare_once(how, dtype, name)
        seconds, result = time_call(play)
        if path:
            np.save(path[0], flatten(how, name, result))
        unit = 1 << (20 if sys.platform == "darwin" else 10)  # bytes there, KiB elsewhere
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
        print(seconds, first, peak, flush=True)


if __name__ == "__main__":
    how, dtype, core = sys.argv[1:]
    if hasattr(os, "sched_setaffinity"):  # before a library counts the cores
        os.sched_setaffinity(0, {int(core)})
    if not peer_of(how):
        from fedref.experiments.parallel import run_single_threaded

        run_single_threaded(main, how, dtype)
    else:
        main(how, dtype)
