"""What is read off runs, and how numbers are written."""

from dataclasses import replace

import numpy as np
import pytest
from reproducing import small

from fedref import run
from fedref.boundary.errors import ConfigError
from reproduce import jobs, measures, tables
from reproduce.claims import Place


def test_part_of_a_sweep() -> None:
    table = small({"fedprox": {"lr": 0.1}}, sweep={"until-gamma": [0.5, 0.9], "mu": [0.0, 1.0]})
    whole = run(table, rounds=1, epochs=1, steps=None)
    part = measures.at_point(whole, until_gamma=0.9)
    assert [unit.point for unit in part.units] == [{"mu": 0.0}, {"mu": 1.0}]
    assert part.records == whole.records[2:]
    with pytest.raises(ConfigError, match="nothing at"):
        measures.at_point(whole, mu=7)


def test_quantities() -> None:
    table = small({"fedavg": {"lr": 0.1}, "fedcurv": {"lr": 0.1}}, seeds=[0, 1])
    found = run(table, rounds=3)
    records = found.records[1::2]  # fedcurv's, seed by seed
    last = [record.rows[-1] for record in records]
    curves = 100 * np.array([[row["accuracy"] for row in record.rows] for record in records])
    expected = {
        "final": curves[:, -1],
        "average": curves.mean(1),
        "maximum": curves.max(1),
        "change": abs(curves[:, 3] - curves[:, 2]),
        "training loss": [row["train_loss"] for row in last],
        "bytes": [row["bytes_down"] + row["bytes_up"] for row in last],
        "operations": [row["flops"] for row in last],
    }
    assert expected.keys() == measures.QUANTITIES.keys()
    place = Place("", "", found, {})
    for name, values in expected.items():
        assert measures.QUANTITIES[name](place, "fedcurv") == pytest.approx(np.array(values)), name
    assert measures.total(found, "fedavg", "grads").tolist() == [6, 6]


def test_a_choice_at_the_grids_end_is_marked() -> None:
    found = [measures.edge(value, [0.01, 0.1, 1.0]) for value in (0.01, 0.1, 1.0)]
    assert found == [" (edge)", "", " (edge)"]
    assert measures.edge(1.0, [1.0]) == " (only)"


def test_runs_of_one_experiment_are_merged_and_their_rates_chosen() -> None:
    one, two = (
        run(small({label: {}}, sweep=sweep), rounds=1)
        for label, sweep in (
            ("fedavg", {"lr": [0.01, 0.1, 10.0]}),
            ("per-fedavg", {"alpha": [0.1], "beta": [0.1]}),
        )
    )
    both = measures.merge_runs([one, two])
    assert list(both.experiment.algorithms) == ["fedavg", "per-fedavg"]
    assert list(both.experiment.sweep) == ["lr", "alpha", "beta"]
    assert both.records == [*one.records, *two.records]
    for record, accuracy in zip(one.records, (0.1, 0.3, 0.2)):
        record.rows[-1]["accuracy"] = accuracy
    assert measures.describe_choice(both, "fedavg", "accuracy") == "η = 0.1"
    one.records[2].rows[-1]["accuracy"] = 0.4
    assert measures.describe_choice(both, "fedavg", "accuracy") == "η = 10 (edge)"
    assert (
        measures.describe_choice(both, "per-fedavg", "accuracy") == "α = 0.1 (only), β = 0.1 (only)"
    )


def test_how_often_runs_are_evaluated() -> None:
    found = run(small({"fedavg": {"lr": 0.1}}), rounds=1)
    rare = found._replace(experiment=replace(found.experiment, eval_every=5))
    assert measures.how_often([found, found]) == "every round"
    assert measures.how_often([rare, found]) == "every 1 or 5 rounds"
    assert measures.seldom(found) == ""
    assert measures.seldom(rare) == "evaluated every 5 rounds only"


def test_text_of_numbers() -> None:
    assert tables.spread([1.0, 3.0]) == "2.00 ± 1.00"
    assert tables.spread([1.0]) == "1.00"
    assert tables.spread([]) == tables.spread([np.nan]) == "–"
    assert [tables.show_signed(x) for x in (-1.5, 2, None)] == ["−1.50", "+2.00", "–"]
    number = tables.Number(("x",), [89.0, 91.0], 89.5, "why")
    assert number.difference == 0.5
    table = tables.number_table(("what",), [number, number._replace(paper=None)])
    assert table.splitlines() == [
        "| what | paper | ours | difference | comment |",
        "| --- | --: | --: | --: | --- |",
        "| x | 89.50 | 90.00 ± 1.00 | +0.50 | why |",
        "| x | – | 90.00 ± 1.00 | – | why |",
    ]
    bare = tables.number_table(("what",), [tables.Number(("x",), [1.0])])
    assert bare.splitlines() == ["| what | ours |", "| --- | --: |", "| x | 1.00 |"]
    assert jobs.short("a" * 40 + " + changes, unknown") == "a" * 10 + " + changes, unknown"
    assert tables.each_seed(np.array([0.1, 2, 1e-9])) == "0.1 2.0 1e-09"
