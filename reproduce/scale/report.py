"""The cost of a round when clients are many: memory, bytes and seconds."""

import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from fedref import tree
from fedref.algorithm import Cohort, Server, State
from fedref.algorithms.fedavg import FedAvg
from fedref.experiments.results import Run
from fedref.models import LinearSVM
from fedref.models.numerics import Array
from fedref.rounds.evaluation import evaluate
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.loop import run_round
from fedref.sampling import Plan, Sampling, make_plan
from reproduce.tables import markdown, write_csv

#: Of the aggregation: parameters and uploads, and how many are stacked as well. Of a round: clients.
D, UPLOADS, STACKED = 100_000, (10, 100, 1_000, 10_000, 100_000), 1_000
CLIENTS = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
EVALUATED = 100_000
MEASURED = (
    "seconds of a plan", "seconds of a round", "peak megabytes of both", "megabytes of the federation",
    "seconds of an evaluation",
)  # fmt: skip
#: How far a quick run goes.
QUICK = {"most": 1_000}


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    quick = any(part.endswith("-quick") for part in out.parts)

    def up_to(values: tuple[int, ...]) -> list[int]:
        return [v for v in values if not quick or v <= QUICK["most"]]

    sums = [aggregation(K) for K in up_to(UPLOADS)]
    many = [population(N, N <= EVALUATED) for N in up_to(CLIENTS)]
    numbers: list[tuple[str, int, str, float | None]]
    numbers = [("uploads", K, "seconds of the sum", s) for K, s, *_ in sums]
    numbers += [("uploads", K, "peak megabytes", MB) for K, _, MB, _ in sums]
    for N, *found in many:
        numbers += [("clients", N, *pair) for pair in zip(MEASURED, found) if pair[1] is not None]
    write_csv(out / "numbers.csv", ["varied", "value", "measured", "number"], numbers)
    summed = [["uploads", "sent, GB", "seconds", "peak, MB", "a stack, MB", "same bits"]]
    for K, seconds, MB, same in sums:
        sent = K * D * 8
        in_words = (f"{sent / 1e9:.3g}", f"{seconds:.3g}", f"{MB:.3g}", f"{sent / 1e6:,.0f}")
        summed.append([f"{K:,}", *in_words, same])
    of_ten = [
        ["N", "plan, ms", "round, ms", "peak of both, MB", "federation, MB", "evaluation of all, s"]
    ]
    for N, plan, round, MB, held, evaluation in many:
        cells = (f"{x:,.3g}" for x in (1e3 * plan, 1e3 * round, MB, held))
        of_ten.append([f"{N:,}", *cells, "–" if evaluation is None else f"{evaluation:.3g}"])
    return {"sums": markdown(summed), "rounds": markdown(of_ten)}


def median_time(call: Callable[[], object], times: int = 5) -> float:
    """Return the median seconds of a call; the first one is not counted."""
    call()
    found = []
    for _ in range(times):
        began = process_time()
        call()
        found.append(process_time() - began)
    return float(np.median(found))


def peak(call: Callable[[], object]) -> float:
    """Return the megabytes that a call takes at its peak."""
    tracemalloc.start()
    call()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found / 1e6


# ---- aggregation ---------------------------------------------------------------------------------


def aggregation(K: int) -> tuple[int, float, float, str]:
    """(K, seconds, peak MB, whether it is the sum of the stack to the bit)."""
    base = np.random.default_rng(0).normal(size=D + K)

    def read() -> Iterator[Array]:
        return (base[k : k + D] + 1.0 for k in range(K))  # each is made when it arrives

    model, algorithm = LinearSVM(D - 1), FedAvg()
    cohort = Cohort(np.arange(K), np.ones(K, np.int64), 1 + np.arange(K) % 7, K)
    server = Server(np.zeros(D))

    def combine(uploads: Any) -> Array:
        return algorithm.combine(model, server, uploads, cohort).w

    began = process_time()
    w = combine(tree.stream(read, K))
    seconds = process_time() - began
    MB = peak(lambda: combine(tree.stream(read, K)))
    same = "not tried"
    if K <= STACKED:
        same = "yes" if np.array_equal(w, combine(np.stack(list(read())))) else "NO"
    return K, seconds, MB, same


# ---- rounds --------------------------------------------------------------------------------------


def federation(N: int) -> Federation:
    """N clients of 10 rows, from a million on of 1, which share a million rows of 4 features."""
    rows = 10 if N < 1_000_000 else 1
    n = min(N * rows, 1_000_000)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    y = rng.choice([-1, 1], n)
    train = Part(np.arange(N * rows) % n, np.arange(N + 1) * rows)
    test = Part(np.arange(N) % n, np.arange(N + 1))
    return Federation(Source(X, y), train, test)


def population(N: int, evaluated: bool) -> tuple[int, float, float, float, float, float | None]:
    """(N, seconds of a plan, of a round, peak MB of both, MB of the federation, of an evaluation)."""
    made, model, algorithm = federation(N), LinearSVM(4), FedAvg(lr=0.01)
    state = State(algorithm.initial(model, np.zeros(model.d)), {})
    drawn = Sampling(10, epochs=1, batch_size=10)

    def plan() -> Plan:
        return make_plan(drawn, made.train.sizes, 0, 0)

    def play() -> object:
        return run_round(algorithm, model, state, ready, made)

    ready = plan()
    times = median_time(plan), median_time(play)
    MB = peak(lambda: (plan(), play()))
    parts = made.train, made.test
    held = sum(part.rows.nbytes + part.offsets.nbytes for part in parts) + made.source.X.nbytes
    seconds = None
    if evaluated:
        seconds = median_time(
            lambda: evaluate(FedAvg(), model, state, made, drawn, round=0, seed=0), 1
        )
    return N, *times, MB, held / 1e6, seconds
