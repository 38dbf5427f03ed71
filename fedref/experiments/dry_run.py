"""A dry run: what a run would cost, measured in a few rounds of each algorithm."""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from fedref.experiments import config, names
from fedref.experiments.config import Experiment
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.metrics import bytes_as_text
from fedref.experiments.parallel import run_single_threaded
from fedref.experiments.progress import duration
from fedref.experiments.unit import (
    LOCAL,
    Engine,
    Unit,
    iterate_rounds,
    plan_for,
    training_federation,
    units,
)

#: How many rounds are measured at most (the first is slower than the others), in how many seconds.
ROUNDS, SECONDS = 5, 10.0


class Estimate(NamedTuple):
    """The estimated costs of one algorithm at one point of the sweep."""

    title: str
    clients: int  # who may take part
    cohort: int  # who takes part in the first round
    steps: int  # of the cohort in the first round
    bytes: float  # both ways, in all rounds with all seeds
    training: float  # seconds of a round
    evaluation: float  # seconds of an evaluation
    seconds: float  # of all rounds and evaluations with all seeds


def estimate_costs(experiment: Experiment, loader: Loader) -> list[Estimate]:
    """Estimate the costs from a few rounds of each algorithm and point; write nothing.

    Only the first seed is measured, as others cost as much.
    """
    firsts = {unit.title: unit for unit in reversed(units(experiment))}
    return [
        run_single_threaded(measure_rounds, experiment, unit, loader)
        for unit in sorted(firsts.values())
    ]


def measure_rounds(experiment: Experiment, unit: Unit, loader: Loader) -> Estimate:
    """Run and time the start and the first rounds of a unit."""
    experiment = config.at_point(experiment, unit.point)
    loaded = load_experiment(experiment, loader)
    algorithm = names.make_algorithm(unit.label, experiment.algorithms[unit.label])
    training, evaluation = list[float](), list[float]()
    engine = Engine(time_calls(LOCAL.round, training), time_calls(LOCAL.evaluate, evaluation))
    began = perf_counter()
    for record in iterate_rounds(loaded, algorithm, unit.seed, engine=engine):
        if record.round >= ROUNDS or (record.round and perf_counter() - began > SECONDS):
            break
    trained = training_federation(algorithm, loaded.federation, unit.seed)
    plan = plan_for(algorithm, experiment, trained.train.sizes, 0, unit.seed)
    last = record.rows[-1]
    every = 1 if algorithm.watches_loss else experiment.eval_every
    rounds, seeds = experiment.rounds, len(experiment.seeds)
    evaluations = 1 + -(-rounds // every)  # the start, and the end even if it is not due
    round_seconds = median(training) if training else 0.0
    return Estimate(
        title=unit.title,
        clients=trained.clients,
        cohort=len(plan.clients),
        steps=int(plan.steps.sum()),
        bytes=(last["bytes_down"] + last["bytes_up"]) * seeds * rounds / max(record.round, 1),
        training=round_seconds,
        evaluation=median(evaluation),
        seconds=seeds * (rounds * round_seconds + evaluations * median(evaluation)),
    )


def time_calls(function: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """Wrap a function so that it appends the time of each call to `seconds`."""

    def call(*arguments: Any, **options: Any) -> Any:
        began = perf_counter()
        result = function(*arguments, **options)
        seconds.append(perf_counter() - began)
        return result

    return call


def table_of_estimates(estimates: list[Estimate]) -> list[list[str]]:
    """Return text cells, header first: a line for each algorithm and point, for all its seeds."""
    unit, texts = bytes_as_text([one.bytes for one in estimates])
    header = ["algorithm", "clients", "steps", unit, "training", "evaluation", "in all"]
    return [
        header,
        *(
            [
                one.title, f"{one.cohort} of {one.clients}", str(one.steps), text,
                duration(one.training), duration(one.evaluation), duration(one.seconds),
            ]
            for text, one in zip(texts, estimates)
        ),
    ]  # fmt: skip
