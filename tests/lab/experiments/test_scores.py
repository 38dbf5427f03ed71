"""The file of a unit's scores: it grows, what does not count is overwritten, and memory does not grow."""

import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from running import contents, document, npz

import fedref
from fedref import DataError
from fedref.lab.experiments.progress import Progress
from fedref.lab.experiments.scores import EMPTY, ScoreFile, Stored
from fedref.rounds.evaluation import Scores

pytestmark = pytest.mark.usefixtures("here")


def draw_scores(seed, n=3):
    rng = np.random.default_rng(seed)
    return Scores(
        rng.integers(0, 9, n), *rng.normal(size=(2, n)), rng.integers(1, 9, n), np.full(n, np.nan)
    )


def equal(one, other):
    return all(
        np.array_equal(a, b, equal_nan=True) and a.dtype == b.dtype for a, b in zip(one, other)
    )


def test_scores_are_read_as_they_were_written(here):
    files = [ScoreFile(here / "a.scores")]
    for i in range(4):
        files.append(files[-1].add(draw_scores(i)))
    assert [len(file) for file in files] == [0, 1, 2, 3, 4]
    assert all(equal(x, draw_scores(i)) for i, x in enumerate(files[4].check()))
    assert equal(files[4][-1], draw_scores(3))
    assert [equal(x, draw_scores(i)) for x, i in zip(files[4][1:3], (1, 2))] == [True, True]
    with pytest.raises(IndexError):
        files[2][2]
    assert files[2].check().stored == Stored(
        3, 2, files[2].stored.digest
    )  # an earlier one still counts
    again = files[2].add(draw_scores(7))  # and going on from it overwrites what was behind
    assert again.path.stat().st_size == 3 * 3 * 40
    assert equal(again.check()[2], draw_scores(7))
    assert ScoreFile(here / "none").check().stored == EMPTY


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.unlink(), r"a\.scores: cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "ends before evaluation 2 of 2"),
        (lambda path: path.write_bytes(b"\1" + path.read_bytes()[1:]), r"a\.scores: is damaged"),
    ],
)  # fmt: skip
def test_a_harmed_file_is_refused(here, harm, message):
    file = ScoreFile(here / "a.scores").add(draw_scores(1)).add(draw_scores(2))
    harm(file.path)
    with pytest.raises(DataError, match=message):
        file.check()


@pytest.mark.parametrize("harm", ["a tail", "a bit"])
def test_a_run_goes_on_over_what_a_killed_process_left(here, harm):
    """A tail is overwritten; a unit with a flipped bit says so and starts anew. Both end with equal bytes."""

    def stop(unit, record):
        if record.round == 2:
            raise KeyboardInterrupt

    said = []
    fedref.run(document(rounds=4), out="whole")
    with suppress(KeyboardInterrupt):
        fedref.run(document(rounds=4), out="parts", progress=Progress(round=stop))
    (path,) = here.glob("parts/checkpoints/*.scores")
    content = path.read_bytes()
    path.write_bytes(content + b"cut off" if harm == "a tail" else b"\1" + content[1:])
    run = fedref.run(document(rounds=4), out="parts", progress=Progress(message=said.append))
    assert contents(here / "parts") == contents(here / "whole")
    assert [s for s in said if "starts anew" in s] == [s for s in said if "is damaged" in s]
    assert any("starts anew" in s for s in said) == (harm == "a bit")
    assert len(run.records[0].scores) == 5


def test_memory_does_not_grow_with_evaluations(here):
    """Thirty evaluations of 600 clients are 0.7 MB of scores, and 18 000 rows of clients.csv."""
    n = 600
    X = np.random.default_rng(0).normal(size=(2 * n, 2))
    npz(here / "many.npz", X=X, y=(X[:, 0] > 0).astype(int), client=np.repeat(np.arange(n), 2))
    table = document(data={"name": str(here / "many.npz")}, split={"rule": "natural"})

    def peak(rounds):
        tracemalloc.start()
        fedref.run(table, out=f"of{rounds}", rounds=rounds, clients_per_round=1)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(1)  # what is imported and cached
    assert peak(30) < peak(2) + 200_000
