"""One implementation in a process of its own: `python server.py HOW DTYPE CORES`.

Each line on its input names a workload; the answer is the seconds of one round (of the CPU where
there is one thread, else of a clock), then those of the first one, with its compilation, then the
megabytes that the process took at most. The parameters go to the file that is named after the
workload's name, if any.
"""

import resource
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))


@cache
def prepare_once(how: str, dtype: str, cores: int, name: str) -> tuple[Callable[[], Any], float]:
    """(one round, the seconds of the first)."""
    module = import_module("ours" if how in ("fedref", "floor") else f"in_{how.split('-')[0]}")
    play = module.prepare(how, dtype, cores, name)
    return play, time_call(play, cores)[0]


def time_call(play: Callable[[], Any], cores: int) -> tuple[float, Any]:
    clock = time.process_time if cores == 1 else time.perf_counter
    began = clock()
    result = play()
    return clock() - began, result


def main(how: str, dtype: str, cores: int) -> None:
    for line in sys.stdin:
        name, *path = line.split()
        play, first = prepare_once(how, dtype, cores, name)
        seconds, result = time_call(play, cores)
        if path:
            np.save(path[0], np.zeros(0) if result is None else np.asarray(result, np.float64))
        unit = 1 << (20 if sys.platform == "darwin" else 10)  # bytes there, KiB elsewhere
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
        print(seconds, first, peak, flush=True)


if __name__ == "__main__":
    if sys.argv[1] in ("fedref", "floor"):
        from fedref.experiments.parallel import run_single_threaded

        run_single_threaded(main, *sys.argv[1:3], int(sys.argv[3]))
    else:
        main(*sys.argv[1:3], int(sys.argv[3]))
