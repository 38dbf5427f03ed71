"""FedMeta's report: validation clients choose, what it costs to come as far, and what is judged where."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reproducing import claims_in, judge_lines, small

from fedref import run
from fedref.algorithms.fedavg import FedAvg
from fedref.experiments.config import Experiment, restrict_point
from fedref.experiments.loading import load_experiment
from fedref.experiments.results import Run
from fedref.rounds.evaluation import evaluate_unseen
from reproduce import catalogue
from reproduce.claims import Place

REPORT = catalogue.find("fedmeta-unseen")
UNSEEN = REPORT.module
CLAIMS = claims_in("fedmeta-unseen")
EVERY = [claim for claim in CLAIMS if "heads" not in claim.places]
(ENOUGH,) = (claim for claim in CLAIMS if "heads" in claim.places)
STEM = "mnist-20"
FEDMETA = ("fedmeta-maml", "fedmeta-fomaml", "fedmeta-sgd")
SLOW, FAST = [0.1, 0.2, 0.3, 0.6], [0.1, 0.6, 0.5, 0.5]


@pytest.fixture(scope="module")
def found() -> Run:
    algorithms = {
        "fedavg": {"lr": 0.1},
        "fedavg-meta": {"lr": 0.1},
        **{m: {} for m in FEDMETA},
    }
    sweep = {"alpha": [0.01, 1.0], "beta": [0.1, 0.2]}
    table = small(algorithms, users=20, clients=3, unseen=0.2, sweep=sweep)
    return run({**table, "split": {"rule": "shards", "users": 20, "shards": 2}}, rounds=3)


def with_scores(found: Run, validation: list[float], unseen: list[float]) -> Run:
    """The same, with these final accuracies of FedMeta's points."""
    scores = iter(zip(validation, unseen))
    records = []
    for unit, record in zip(found.units, found.records):
        if unit.label == "fedmeta-maml":
            v, u = next(scores)
            last = {**record.rows[-1], "validation_accuracy": v, "unseen_accuracy": u}
            record = record._replace(rows=[*record.rows[:-1], last])
        records.append(record)
    return Run(found.experiment, found.units, records)


def with_curves(found: Run, *curves: list[float], late: bool = False) -> Run:
    """Tested clients' accuracy round by round: of FedAvg (with Meta 0.1 more) and three FedMeta methods,
    the last one for all that are not given; late: once more, so that the second half is they."""
    fedavg, *fedmeta = [curve * 2 if late else curve for curve in curves]
    fedmeta += fedmeta[-1:] * (3 - len(fedmeta))
    best = UNSEEN.at_best_points(found)
    (record,) = best.records_of("fedmeta-maml")
    unit = next(unit for unit in best.units if unit.label == "fedmeta-maml")
    units, records = [], []
    every = (fedavg, [y + 0.1 for y in fedavg], *fedmeta)
    for label, curve in zip(("fedavg", "fedavg-meta", *FEDMETA), every, strict=True):
        rows = [
            {**record.rows[t % 4], "round": t, "unseen_accuracy": y} for t, y in enumerate(curve)
        ]
        units.append(unit._replace(label=label))
        records.append(record._replace(rows=rows))
    return Run(found.experiment, units, records)


def place_for_all(made: Place) -> Place:
    """Return a place that every claim of the report is about."""
    return made._replace(kinds=["every support", "evaluated", "heads"])


def place(run: Run) -> Place:
    return place_for_all(UNSEEN.place_at(STEM, {STEM: run}, {STEM: run}))._replace(name="here")


def line_of(text: str, here: Place) -> str:
    """Judge the one claim with these words."""
    (claim,) = (claim for claim in EVERY if text in f"{claim.text}, ")
    return judge_lines([claim], [here])


def test_validation_clients_choose_and_test_clients_do_not(found: Run) -> None:
    changed = with_scores(found, [0.1, 0.2, 0.9, 0.3], [0.9, 0.8, 0.1, 0.7])
    point = UNSEEN.best_point(changed, "fedmeta-maml", UNSEEN.CHOICE)
    assert point == {"alpha": 1.0, "beta": 0.1}
    best = UNSEEN.at_best_points(changed)
    assert UNSEEN.final(best, "fedmeta-maml").tolist() == [pytest.approx(10.0)]
    assert [unit.label for unit in best.units] == ["fedavg", "fedavg-meta", *FEDMETA]
    assert all(unit.point == {} for unit in best.units)
    records = [
        record._replace(status="diverged") if unit.point.get("alpha") == 1.0 else record
        for unit, record in zip(changed.units, changed.records)
    ]
    diverged = Run(found.experiment, changed.units, records)
    point = UNSEEN.best_point(diverged, "fedmeta-maml", UNSEEN.CHOICE)
    assert point == {"alpha": 0.01, "beta": 0.2}


def test_cost_is_that_of_the_first_evaluation_that_is_good_enough(found: Run) -> None:
    best = UNSEEN.at_best_points(found)
    (goal,) = UNSEEN.final(best, "fedavg-meta")
    (record,) = best.records_of("fedmeta-maml")
    reached = [row for row in record.rows if 100 * row["unseen_accuracy"] >= goal]
    expected = reached[0]["bytes_down"] + reached[0]["bytes_up"] if reached else np.inf
    cost = UNSEEN.cost(best, "fedmeta-maml", "fedavg-meta", "bytes_down", "bytes_up")
    assert cost.tolist() == [expected]
    (own,) = UNSEEN.cost(best, "fedavg-meta", "fedavg-meta", "flops")
    assert own <= best.records_of("fedavg-meta")[0].rows[-1]["flops"]
    assert UNSEEN.show_cost(np.array([np.inf, 2e6]), 1e-6, 2) == "2.00 (1 of 2 seeds)"
    assert UNSEEN.show_cost(np.array([np.inf]), 1e-6, 2) == "never gets there"


NEVER = [0.1, 0.2, 0.2, 0.5]


@pytest.mark.parametrize(
    ("text", "curves", "late", "said", "parts"),
    [
        (
            "FedMeta converges faster", [SLOW, FAST], False, "Holds (above 1)",
            ["FedMeta (MAML) 3.00, ", "FedMeta (Meta-SGD) 3.00 (FedAvg's rounds over FedMeta's)."],
        ),
        *(
            (words, [SLOW, FAST, FAST, NEVER], False, "Contradicted (above 1)",
             ["FedMeta (Meta-SGD) 0.00 (FedAvg's "])
            for words in ("converges faster", "sends less", "computes less")
        ),
        (
            "FedMeta is at least 3.23",
            [SLOW, [0.1, 0.6, 0.6, 0.64]], False, "Holds (above 3.23)",
            ["*; FedMeta (MAML) 4.00, "],
        ),
        ("FedMeta is at least", [SLOW, [0.1, 0.6, 0.6, 0.63]], False, "Contradicted (", []),
        (
            "at a higher accuracy than FedAvg, ", [SLOW, [0.1, 0.6, 0.6, 0.63]], False,
            "Holds (above 0)", ["FedMeta (MAML) 3.00"],
        ),
        (
            "than FedAvg(Meta),", [SLOW, [0.1, 0.6, 0.6, 0.63]], False,
            "Contradicted", ["*; FedMeta (MAML) −7.00"],
        ),
        (
            "FedMeta converges more stably", [SLOW, FAST], False, "Not judged",
            ["with 1 changes between evaluations in the second half."],
        ),
        (  # FAST changes by 50, 10 and 0 points, SLOW by 10, 10 and 30
            "FedMeta converges more stably", [SLOW, FAST], True, "Contradicted (below 0)",
            ["FedMeta (MAML) 3.33"],
        ),
    ],
)  # fmt: skip
def test_claims(
    text: str, curves: list[list[float]], late: bool, said: str, parts: list[str], found: Run
) -> None:
    line = line_of(text, place(with_curves(found, *curves, late=late)))
    assert line.startswith(f"- {said}")
    assert all(part in line for part in ["FedMeta ", ", here*; ", *parts])


def test_nothing_about_training_is_judged_where_an_untrained_start_is_there(found: Run) -> None:
    run = with_curves(found, SLOW, FAST, [0.6, 0.7, 0.7, 0.8], FAST, late=True)
    lines = judge_lines(EVERY, [place(run)]).splitlines()
    why = (
        "; FedMeta (first order)'s untrained start, adapted by one step, is at 60.00 %, at or above "
        "FedAvg's end (60.00 %) in 1 of 1 seeds"
    )
    assert all(line.startswith("- Not judged: *") and why in line for line in lines)
    assert "(first order) 20.00, FedMeta (Meta-SGD) −10.00 points; " in lines[0]
    fair = with_curves(found, SLOW, FAST, late=True)
    assert "Not judged" not in judge_lines(EVERY, [place(fair)])
    assert UNSEEN.started_there(fair) == ""
    there = with_curves(found, SLOW, FAST, FAST, [0.7] * 4, late=True)  # in one seed of two
    both = Run(run.experiment, [*fair.units, *there.units], [*fair.records, *there.records])
    assert UNSEEN.started_there(both).endswith(
        "FedMeta (Meta-SGD)'s untrained start, adapted by one step, is at 40.00 ± 30.00 %, at or "
        "above FedAvg's end (60.00 ± 0.00 %) in 1 of 2 seeds"
    )


def test_stability_is_judged_at_every_round_only(found: Run) -> None:
    run = with_curves(found, SLOW, FAST, late=True)
    run = run._replace(experiment=replace(run.experiment, eval_every=5))
    line = line_of("FedMeta converges more stably", place(run))
    assert line.startswith("- Not judged: ")
    assert "; evaluated every 5 rounds, " in line


def test_other_hyperparameters_than_those_chosen_are_said_and_judge_nothing(found: Run) -> None:
    swept = with_scores(found, [0.1, 0.2, 0.9, 0.3], [0.5] * 4)  # α = 1, β = 0.1
    points = {m: UNSEEN.best_point(swept, m, UNSEEN.CHOICE) for m in UNSEEN.methods(swept)}

    def at(**other: float) -> tuple[list[str], Place]:
        tables = {m: {**found.experiment.algorithms[m], **point} for m, point in points.items()}
        tables["fedmeta-maml"] |= other
        made = replace(found.experiment, sweep={}, algorithms=tables)
        run, stem = with_curves(found, SLOW, FAST)._replace(experiment=made), "mnist-rounds"
        runs = {STEM: swept, stem: run}
        here = place_for_all(UNSEEN.place_at(stem, runs, {stem: run}))
        return UNSEEN.other_values(stem, runs), here

    why, same = at()
    assert why == []
    assert line_of("at a higher accuracy than FedAvg, ", same).startswith("- Contradicted")
    (why,), other = at(beta=0.2)
    assert why.endswith("clients choose: FedMeta (MAML) β = 0.2 in place of 0.1")
    line = line_of("at a higher accuracy than FedAvg, ", other)
    assert line.startswith("- Not judged: ")
    assert why in line


def made(stem: str, quick: bool = False) -> Experiment:
    settings = catalogue.quick_settings(UNSEEN.QUICK, stem) if quick else {}
    return catalogue.experiment_of(REPORT.folder / f"{stem}.toml", settings)


@pytest.mark.parametrize("data", ["mnist", "femnist"])
def test_every_round_is_evaluated_of_the_same_experiment(data: str) -> None:
    swept, rounds = made(f"{data}-20"), made(f"{data}-rounds")
    assert rounds.eval_every == 1

    def fixed(experiment: Experiment) -> dict[str, dict[str, Any]]:
        tables = experiment.algorithms.items()
        return {m: {k: v for k, v in x.items() if k not in UNSEEN.SYMBOLS} for m, x in tables}

    assert fixed(rounds) == fixed(swept)
    same = {key: getattr(swept, key) for key in ("name", "eval_every", "sweep", "algorithms")}
    assert replace(rounds, **same) == swept
    for m, table in rounds.algorithms.items():
        own = {k: v for k, v in table.items() if k in UNSEEN.SYMBOLS}
        assert own.keys() == restrict_point(swept, m, dict.fromkeys(UNSEEN.SYMBOLS)).keys()
        assert all(value in swept.sweep[key] for key, value in own.items())
    # in a quick run the largest value where there are two: the other one is as good as no training
    sweep, rounds = made(f"{data}-20", quick=True).sweep, made(f"{data}-rounds", quick=True)
    for table in rounds.algorithms.values():
        assert all(table[key] == max(sweep[key]) for key in UNSEEN.SYMBOLS if key in table)


def test_nothing_is_judged_on_a_thin_grid(found: Run) -> None:
    only = replace(found.experiment, sweep={"lr": [1.0], "beta": [1.0], "alpha": [0.1, 1.0]})
    full = replace(found.experiment, sweep={k: [0.1, 1.0] for k in UNSEEN.SYMBOLS})
    curves = with_curves(found, SLOW, FAST, late=True)
    runs = {"shakespeare-20": curves._replace(experiment=only)}
    runs[STEM] = curves._replace(experiment=full)
    runs["shakespeare-rounds"] = curves._replace(experiment=replace(full, sweep={}))
    assert UNSEEN.thin(runs[STEM]) == ""
    for stem in ("shakespeare-20", "shakespeare-rounds"):
        here = place_for_all(UNSEEN.place_at(stem, runs, runs))
        lines = judge_lines(EVERY, [here]).splitlines()
        assert all("- Not judged: " in x and "; the grid has one η and one β, " in x for x in lines)
    gains = ", ".join(f"{UNSEEN.METHODS[m]} −10.00" for m in FEDMETA)
    assert f"*; {gains} points; " in lines[1]
    here = place_for_all(UNSEEN.place_at(STEM, runs, runs))
    assert "Not judged" not in judge_lines(EVERY, [here])


def test_a_k_way_head_may_lose_a_point(found: Run) -> None:
    every = with_curves(found, SLOW, [0.5, 0.5, 0.5, 0.7])
    for end, said, less in ((0.692, "Holds", "−0.80"), (0.688, "Contradicted", "−1.20")):
        own = with_curves(found, [end - 0.1] * 4, [0.3, 0.5, 0.5, end])
        best = {STEM: every, "mnist-own": own}
        here = place_for_all(UNSEEN.place_at("mnist-own", best, best))
        line = judge_lines([ENOUGH], [here])
        assert line.startswith(f"- {said} (above −1): *a k-way classifier is enough (no more ")
        assert f"; FedAvg(Meta) {less}, FedMeta (MAML) " in line


def test_rows_left_to_test_on(found: Run) -> None:
    run = found._replace(experiment=replace(found.experiment, unseen=0.9, name="x"))
    (found_rows,) = UNSEEN.rows_of_unseen({"mnist-90": run}, ["mnist-90"], None).values()
    data = load_experiment(run.experiment)
    scores = evaluate_unseen(
        FedAvg(), data.model, run.records[0].state, *data.unseen, support=0.9, seed=1
    )
    assert found_rows == (len(data.unseen[1]), scores.n_test.sum())


def test_the_second_half_is_drawn_closer_but_for_fedavg(found: Run) -> None:
    row = {"round": 2, "unseen_accuracy": 0.5}
    assert UNSEEN.closer(found, "fedmeta-maml", row) == {UNSEEN.ADAPTED: 50.0}  # of 3 rounds
    for label, other in (("fedavg", row), ("fedmeta-maml", {**row, "round": 1})):
        assert UNSEEN.closer(found, label, other) == {}
    assert UNSEEN.closer(found, "fedmeta-maml", {"round": 2}) == {}
