"""What a run would take, from one round of each algorithm that is really done and measured."""

from typing import NamedTuple

from fedref.experiments import config, names
from fedref.experiments.experiment import Experiment
from fedref.experiments.progress import duration, evaluations
from fedref.experiments.setting import Loader, setting
from fedref.experiments.unit import Record, Unit, plan_for, rounds, trained_by, units
from fedref.experiments.workers import calmly


class Rehearsed(NamedTuple):
    """One unit: what a round of it does and takes, and what all of its rounds would take."""

    unit: Unit
    clients: int  # that train; the cohort of a round is `cohort`
    cohort: int
    steps: int  # of the whole cohort in a round
    megabytes: float  # both ways, all rounds
    training: float  # seconds a round
    evaluation: float  # seconds each
    seconds: float  # all rounds


def rehearse(experiment: Experiment, loader: Loader) -> list[Rehearsed]:
    """One round of every algorithm at every point of the sweep, with the first seed; nothing is
    written. Other seeds take as long."""
    measured: dict[str, Rehearsed] = {}
    found = []
    for unit in units(experiment):
        key = repr((unit.label, unit.point))
        if key not in measured:
            measured[key] = calmly(first_round, experiment, unit, loader)
        found.append(measured[key]._replace(unit=unit))
    return found


def first_round(experiment: Experiment, unit: Unit, loader: Loader) -> Rehearsed:
    """Measure the start and the first round of a unit."""
    made = config.at_point(experiment, unit.point)
    there = setting(made, loader=loader)
    algorithm = names.make_algorithm(unit.label, made.algorithms[unit.label])
    spent = {"training": [0.0], "evaluation": [0.0]}
    steps = rounds(
        there, algorithm, unit.seed, spent=lambda what, seconds: spent[what].append(seconds)
    )
    records: list[Record] = [record for record, _ in zip(steps, range(2 if made.rounds else 1))]
    trained = trained_by(algorithm, there.federation, unit.seed)
    plan = plan_for(algorithm, made, trained.train.sizes, 0, unit.seed)
    last = records[-1].rows[-1]
    times = evaluations(made.rounds, 1 if algorithm.watches_loss else made.eval_every)
    training, evaluation = spent["training"][-1], spent["evaluation"][-1]
    return Rehearsed(
        unit=unit,
        clients=trained.clients,
        cohort=len(plan.clients),
        steps=int(plan.steps.sum()),
        megabytes=(last["bytes_down"] + last["bytes_up"]) * made.rounds / 1e6,
        training=training,
        evaluation=evaluation,
        seconds=made.rounds * training + times * evaluation,
    )


def table(rehearsed: list[Rehearsed]) -> list[list[str]]:
    """As text cells, header first: a line for each algorithm and point, all seeds together."""
    header = ["algorithm", "clients", "steps", "MB", "training", "evaluation", "in all"]
    groups: dict[str, list[Rehearsed]] = {}
    for one in rehearsed:
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
