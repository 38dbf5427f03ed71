"""The cost of a round when clients are many: memory, bytes, seconds, and where it breaks first."""

import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from matplotlib.figure import Figure

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
from reproduce.tables import markdown, show_number, write_csv

#: Of the aggregation: parameters and uploads, and how many are stacked as well. Of a round: clients,
#: and what else is varied.
D, UPLOADS, STACKED = 100_000, (10, 100, 1_000, 10_000, 100_000), 1_000
CLIENTS = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
EVALUATED = 100_000
VARIED = {
    "clients that take part": (10, 30, 100, 300, 1_000),
    "rows a client": (100, 300, 1_000, 3_000, 10_000),
    "parameters d": (100, 300, 1_000, 3_000, 10_000),
}
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
    rounds = {
        what: [(v, seconds_of_round(what, v)) for v in up_to(values)]
        for what, values in VARIED.items()
    }
    numbers: list[tuple[str, int, str, float | None]]
    numbers = [("uploads", K, "seconds of the sum", s) for K, s, *_ in sums]
    numbers += [("uploads", K, "peak megabytes", MB) for K, _, MB, _ in sums]
    for N, *found in many:
        numbers += [("clients", N, *pair) for pair in zip(MEASURED, found) if pair[1] is not None]
    numbers += [(what, v, "seconds of a round", s) for what, of in rounds.items() for v, s in of]
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
    rounds["clients that do not take part"] = [(N, round) for N, _, round, *_ in many]
    draw_rounds(rounds, out / "scale.png")
    slopes = (f"{what} {show_number(slope(points))}" for what, points in rounds.items())
    return {
        "sums": markdown(summed),
        "rounds": markdown(of_ten),
        "slopes": "; ".join(slopes),
        "breaks": breaks(sums, many),
    }


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


def federation(N: int, rows: int, p: int) -> Federation:
    """N clients of so many rows of p features, who share a million rows if there are more."""
    n = min(N * rows, 1_000_000)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)).astype(np.float32)
    y = rng.choice([-1, 1], n)
    train = Part(np.arange(N * rows) % n, np.arange(N + 1) * rows)
    test = Part(np.arange(N) % n, np.arange(N + 1))
    return Federation(Source(X, y), train, test)


def prepare_round(
    made: Federation, K: int
) -> tuple[Callable[[], Plan], Callable[[], object], State, Sampling]:
    """(makes the plan, does the round, the state before it, the sampling) with K clients."""
    model, algorithm = LinearSVM(made.source.X.shape[1]), FedAvg(lr=0.01)
    state = State(algorithm.initial(model, np.zeros(model.d)), {})
    drawn = Sampling(K, epochs=1, batch_size=10)

    def plan() -> Plan:
        return make_plan(drawn, made.train.sizes, 0, 0)

    ready = plan()
    return plan, lambda: run_round(algorithm, model, state, ready, made), state, drawn


def population(N: int, evaluated: bool) -> tuple[int, float, float, float, float, float | None]:
    """(N, seconds of a plan, of a round, peak MB of both, MB of the federation, of an evaluation)."""
    made = federation(N, 10 if N < 1_000_000 else 1, 4)
    plan, play, state, drawn = prepare_round(made, 10)
    times = median_time(plan), median_time(play)
    MB = peak(lambda: (plan(), play()))
    parts = made.train, made.test
    held = sum(part.rows.nbytes + part.offsets.nbytes for part in parts) + made.source.X.nbytes
    seconds = None
    if evaluated:
        model = LinearSVM(4)
        seconds = median_time(
            lambda: evaluate(FedAvg(), model, state, made, drawn, round=0, seed=0), 1
        )
    return N, *times, MB, held / 1e6, seconds


def seconds_of_round(what: str, value: int) -> float:
    """Return the seconds of a round in which one quantity of `VARIED` has this value."""
    K, rows, d = ({**dict(zip(VARIED, (10, 100, 100))), what: value}).values()
    return median_time(prepare_round(federation(K, rows, d - 1), K)[1])


def slope(points: Sequence[tuple[int, float]]) -> float:
    """Return the slope of a line through the logarithms of the three largest values."""
    x, y = np.log(np.array(points[-3:], float)).T
    return float(np.polyfit(x, y, 1)[0])


def draw_rounds(rounds: Mapping[str, Sequence[tuple[int, float]]], path: Path) -> None:
    """Draw the seconds of a round against what is varied, both logarithmic."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for (what, points), marker in zip(rounds.items(), "osD^"):
        axes.loglog(*np.array(points).T, marker=marker, label=what)
    axes.set(xlabel="number of clients, rows or parameters", ylabel="seconds of a round")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def breaks(sums: Sequence[Any], many: Sequence[Any]) -> str:
    """Return a table of what grows with the clients: what each costs, times their number."""
    K, seconds, *_ = sums[-1]
    n, evaluation = [(N, s) for N, *_, s in many if s is not None][-1]
    each = {
        f"uploads, d = {D:,} (GB)": D * 8 / 1e9,
        "their sum (s)": seconds / K,
        "evaluation of all, d = 5 (s)": evaluation / n,
        "scores of an evaluated round (MB)": 40 / 1e6,
        "what APFL's clients keep, 2d numbers each (GB)": 2 * D * 8 / 1e9,
    }
    clients = (100_000, 10_000_000)
    rows = [["", *(f"{N:,} clients" for N in clients)]]
    for what, cost in each.items():
        rows.append([what, *(f"{N * cost:,.{0 if N * cost >= 100 else 2}f}" for N in clients)])
    return markdown(rows)
