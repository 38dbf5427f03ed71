"""What a run says when the clients of a round fail together though not alone."""

from running import document, play

from fedref.experiments.progress import Progress
from fedref.rounds import loop as rounds


def test_a_stack_that_fails_is_reported_by_the_run(monkeypatch):
    """The clients are done again one by one, to the same numbers, and not in silence."""
    expected = play(document(rounds=2))

    def broken(*arguments):
        raise ZeroDivisionError("in the stack only")

    monkeypatch.setattr(rounds, "run_stacked", broken)
    told = []
    got = play(document(rounds=2), progress=Progress(message=told.append))
    assert got.records[0].rows == expected.records[0].rows
    assert len(told) == 2
    assert told[0].startswith("round 1: ZeroDivisionError: in the stack only; the 3 clients ")
