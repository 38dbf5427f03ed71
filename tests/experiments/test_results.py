"""Results as arrays and tables."""

import numpy as np
import pytest
from running import algorithms, document, rows

import fedref
from fedref.experiments import results

pytestmark = pytest.mark.usefixtures("here")


def test_lists_in_a_sweep_are_text_in_the_tables(here):
    sweep = {"model.hidden": [[3], [4, 2]]}
    run = fedref.run(document(model={"name": "mlp"}, sweep=sweep, rounds=1), out="a")
    assert set(run.metrics["sweep.model.hidden"].tolist()) == {"[3]", "[4, 2]"}
    assert len(rows(here / "a" / "metrics.csv", **{"sweep.model.hidden": "[4, 2]"})) == 2


def test_what_does_not_have_the_swept_key_is_run_once_and_not_labelled_with_it(here):
    table = document(algorithms=algorithms("fedavg", "fedprox"), sweep={"mu": [0.0, 1.0]}, rounds=1)
    run = fedref.run(table, out="a")
    assert [(unit.label, unit.point) for unit in run.units] == [
        ("fedavg", {}), ("fedprox", {"mu": 0.0}), ("fedprox", {"mu": 1.0})
    ]  # fmt: skip
    labels = [row[0] for row in results.summary_rows(run)[1:]]
    assert labels == ["fedavg", "fedprox (mu=0.0)", "fedprox (mu=1.0)"]
    assert {row["sweep.mu"] for row in rows(here / "a" / "metrics.csv", algorithm="fedavg")} == {""}


def test_cost_to_a_target_accuracy_is_the_first_row_that_reaches_it():
    run = fedref.run(rounds=6, algorithms=algorithms("fedavg"))
    t, (accuracy,) = run.curve("fedavg")
    (cost,) = run.cost_to("fedavg", float(accuracy[2]))
    first = int(np.argmax(accuracy >= accuracy[2]))
    assert cost is not None
    assert cost.round == t[first]
    rows = run.records[0].rows
    assert cost.bytes == rows[first]["bytes_down"] + rows[first]["bytes_up"]
    assert cost.flops == rows[first]["flops"]
    assert run.cost_to("fedavg", 1.01) == [None]


def test_unseen_clients_have_columns_in_the_table():
    run = fedref.run(rounds=1, unseen=0.2, algorithms=algorithms("fedmeta-maml"))
    header, row = results.summary_rows(run)
    assert header[7:9] == ["unseen", "unseen (clients)"]
    assert row[7] == f"{100 * run.records[0].rows[-1]['unseen_accuracy']:.2f}"


def test_a_table_leaves_columns_out_until_it_fits():
    names = ["algorithm", *results.LESS_NEEDED, "final"]
    rows = [names, ["fedavg", *["90.00 ± 1.00"] * 9, "1.00"]]
    for width in range(20, 200, 7):
        kept, without = results.fitted(rows, width)
        assert {*kept[0], *without} == set(names)
        assert [len(row) for row in kept] == [len(kept[0])] * 2
        widest = max(map(len, results.markdown(kept).splitlines()))
        assert widest <= max(width, 25)
        assert [name for name in results.LESS_NEEDED if name not in kept[0]] == list(
            results.LESS_NEEDED[: len(without)]
        )
    assert results.fitted(rows, 500) == (rows, [])


def test_rounds_that_are_not_the_same_in_all_are_not_counted_for_all():
    run = fedref.run(document(sweep={"rounds": [2, 3]}))
    assert results.heading(run).startswith("Test accuracy in %, over evaluated rounds, not the")
