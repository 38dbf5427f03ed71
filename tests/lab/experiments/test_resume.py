"""A drawn experiment that is stopped in the middle, even twice, ends with the bytes of a whole one."""

import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import contents, document

import fedref
from fedref import strategies
from fedref.algorithms import ALGORITHMS
from fedref.lab.experiments import checkpoint
from fedref.lab.experiments.progress import Progress


@st.composite
def experiments(draw):
    """A table of one or two algorithms with their options, and how rounds, tests and files are made."""
    names = draw(st.lists(st.sampled_from([*ALGORITHMS]), min_size=1, max_size=2, unique=True))
    tables = {name: draw(strategies.hyperparameters(ALGORITHMS[name])) for name in names}
    for name, table in tables.items():
        for key in ALGORITHMS[name].unused:
            table.pop(key, None)
    return document(
        algorithms=tables,
        seeds=draw(st.sampled_from([[0], [3, 1]])),
        stragglers=draw(st.sampled_from([0.0, 0.5])),
        rounds=draw(st.integers(1, 4)),
        eval_every=draw(st.integers(1, 3)),
        dtype=draw(st.sampled_from(["float64", "float32"])),
        keep_parameters=draw(st.integers(1, 3)),
    )


def stop_after(rounds):
    """Return a Progress that interrupts the run, as Ctrl-C does, once so many rounds are done."""
    left = iter(range(rounds))

    def done(unit, record):
        if next(left, None) is None:
            raise KeyboardInterrupt

    return Progress(round=done)


@settings(max_examples=15)
@given(experiments(), st.lists(st.integers(0, 12), max_size=2))
def test_resumed_runs_leave_the_bytes_of_a_whole_one(table, stops):
    with tempfile.TemporaryDirectory() as folder:
        whole, parts = Path(folder) / "whole", Path(folder) / "parts"
        fedref.run(table, out=whole)
        for rounds in stops:
            with suppress(KeyboardInterrupt):
                fedref.run(table, out=parts, progress=stop_after(rounds))
        fedref.run(table, out=parts)
        assert contents(parts) == contents(whole)


@pytest.mark.parametrize("stops", [(), (1, 1, 1)])
def test_what_a_dropped_straggler_computed_is_in_no_checkpoint(stops, tmp_path):
    """SCAFFOLD's c is the mean of the c_i that clients keep, wherever a run is stopped and goes on."""
    table = document(algorithms={"scaffold": {}}, stragglers=0.5, rounds=4)
    for progress in (*map(stop_after, stops), Progress()):
        with suppress(KeyboardInterrupt):
            fedref.run(table, out=tmp_path / "run", progress=progress)
        (path,) = (tmp_path / "run").rglob("*.ckpt")
        record = checkpoint.loads(path.read_bytes())
        c, kept = record.state.server.c, record.state.clients
        np.testing.assert_allclose(c, sum(x.c_i for x in kept.values()) / 4, rtol=1e-12, atol=1e-15)
        assert sum(row["dropped"] for row in record.rows) > 0
