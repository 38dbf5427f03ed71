"""A round of fedref by its public path."""

from collections.abc import Callable
from typing import Any

import numpy as np
from workloads import workload

from fedref import tree
from fedref.algorithm import State
from fedref.models.numerics import Array
from fedref.rounds.loop import run_round


def prepare(how: str, dtype: str, name: str) -> Callable[[], Any]:
    algorithm, model, federation, plan = workload(name)
    w = model.init(np.random.default_rng(0)).astype(dtype)
    state = State(algorithm.initial(model, w), {})

    def play() -> list[Array]:
        new, _ = run_round(algorithm, model, state, plan, federation, dtype=np.dtype(dtype))
        return list(tree.leaves(new.server))

    return play
