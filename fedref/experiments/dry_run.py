"""A dry run: what a run would take, from one round of each algorithm that is really done."""

from typing import NamedTuple

from fedref.experiments import config, names
from fedref.experiments.config import Experiment
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.parallel import calmly
from fedref.experiments.progress import duration
from fedref.experiments.unit import Record, Unit, iterate_rounds, plan_for, trained_by, units


class Estimate(NamedTuple):
    """One unit: what a round of it does and takes, and what all of its rounds would take."""

    unit: Unit
    clients: int  # that train; the cohort of a round is `cohort`
    cohort: int
    steps: int  # of the whole cohort in a round
    megabytes: float  # both ways, all rounds
    training: float  # seconds a round
    evaluation: float  # seconds each
    seconds: float  # all rounds


def estimate_costs(experiment: Experiment, loader: Loader) -> list[Estimate]:
    """One round of every algorithm at every point of the sweep, with the first seed; nothing is
    written. Other seeds take as long."""
    measured: dict[str, Estimate] = {}
    estimates = []
    for unit in units(experiment):
        key = repr((unit.label, unit.point))
        if key not in measured:
            measured[key] = calmly(measure_first_round, experiment, unit, loader)
        estimates.append(measured[key]._replace(unit=unit))
    return estimates


def measure_first_round(experiment: Experiment, unit: Unit, loader: Loader) -> Estimate:
    """Measure the start and the first round of a unit."""
    made = config.at_point(experiment, unit.point)
    loaded = load_experiment(made, loader)
    algorithm = names.make_algorithm(unit.label, made.algorithms[unit.label])
    spent = {"training": [0.0], "evaluation": [0.0]}
    rounds = iterate_rounds(
        loaded, algorithm, unit.seed, spent=lambda what, seconds: spent[what].append(seconds)
    )
    records: list[Record] = [record for record, _ in zip(rounds, range(2 if made.rounds else 1))]
    trained = trained_by(algorithm, loaded.federation, unit.seed)
    plan = plan_for(algorithm, made, trained.train.sizes, 0, unit.seed)
    last = records[-1].rows[-1]
    every = 1 if algorithm.watches_loss else made.eval_every
    evaluations = 1 + made.rounds // every + bool(made.rounds % every)  # start and end included
    training, evaluation = spent["training"][-1], spent["evaluation"][-1]
    return Estimate(
        unit=unit,
        clients=trained.clients,
        cohort=len(plan.clients),
        steps=int(plan.steps.sum()),
        megabytes=(last["bytes_down"] + last["bytes_up"]) * made.rounds / 1e6,
        training=training,
        evaluation=evaluation,
        seconds=made.rounds * training + evaluations * evaluation,
    )


def table_of_estimates(estimates: list[Estimate]) -> list[list[str]]:
    """Return text cells, header first: a line for each algorithm and point, all seeds together."""
    header = ["algorithm", "clients", "steps", "MB", "training", "evaluation", "in all"]
    groups: dict[str, list[Estimate]] = {}
    for one in estimates:
        point = ", ".join(f"{k}={v}" for k, v in one.unit.point.items())
        label = one.unit.label
        groups.setdefault(f"{label} ({point})" if point else label, []).append(one)
    return [
        header,
        *(
            [
                name, f"{same[0].cohort} of {same[0].clients}", str(same[0].steps),
                f"{sum(one.megabytes for one in same):.2f}", duration(same[0].training),
                duration(same[0].evaluation), duration(sum(one.seconds for one in same)),
            ]
            for name, same in groups.items()
        ),
    ]  # fmt: skip
