"""One implementation's rounds, in a process of its own: on one core, or on all of them."""

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from fedref.lab.experiments.parallel import run_single_threaded
from fedref.models.numerics import Array
from reproduce.speed.workloads import workload

#: package → implementations with it.
PEERS = {
    "numpy": ("numpy-by-hand",),
    "torch": ("torch-eager", "torch-compile"),
    "jax": ("jax-vmap", "jax-map", "jax-pmap"),
}


class Answer(NamedTuple):
    """Seconds of a round, of the first one with its compilation, and the process's peak memory."""

    seconds: float
    first: float
    megabytes: float


def start(cores: list[int]) -> None:
    """Keep this process to some cores, before a library counts them."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


@cache
def prepare(how: str, dtype: str, name: str) -> tuple[Callable[[], Any], float]:
    """(one round, the seconds of the first)."""
    package = how.partition("-")[0]
    module = import_module(f"reproduce.speed.{f'in_{package}' if package in PEERS else 'ours'}")
    play = module.prepare(how, dtype, name)
    return play, time_call(play)[0]


def time_call(play: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = play()
    return time.perf_counter() - began, result


def answer(how: str, dtype: str, name: str) -> Answer:
    play, first = run_single_threaded(prepare, how, dtype, name)
    seconds, _ = run_single_threaded(time_call, play)
    unit = 1 << (20 if sys.platform == "darwin" else 10)  # bytes there, KiB elsewhere
    return Answer(seconds, first, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


def parameters(how: str, dtype: str, name: str) -> Array:
    """Return the result in one vector; a peer has to hold an array for each weight and bias."""
    result = run_single_threaded(run_single_threaded(prepare, how, dtype, name)[0])
    return flatten(how, name, result)


def flatten(how: str, name: str, result: Any) -> Array:
    parts = [np.asarray(x, np.float64) for x in leaves(result)]
    shapes = list(workload(name)[1].shapes)
    if how.partition("-")[0] in PEERS and [x.shape for x in parts] not in (shapes, 2 * shapes):
        raise ValueError(f"{how} holds {name}'s parameters not as arrays of the shapes {shapes}")
    return np.concatenate([np.zeros(0), *map(np.ravel, parts)])


def leaves(result: Any) -> Iterator[Any]:
    """Yield the arrays in lists and tuples, in order."""
    if isinstance(result, list | tuple):
        for part in result:
            yield from leaves(part)
    elif result is not None:
        yield result
