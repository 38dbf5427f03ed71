"""Clients that fail or never answer: who is named, who is left, whose state is whose."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from helpers import MODELS, SIZES, make_federation, same, start

from fedref.algorithms.scaffold import Scaffold
from fedref.lab.experiments.own_code import CarefulClients, ClientError
from fedref.rounds import loop as rounds
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, make_plan

EVERYONE = Sampling(len(SIZES), epochs=2, batch_size=4)


BAD = 2


@dataclass(frozen=True)
class Fails(Scaffold):
    """Divides by zero where a feature is huge: in a step or after the steps."""

    where: str = "finish"

    def step(self, model, sent, local, D):
        if self.where == "step" and D.X.max() > 1e6:
            raise ZeroDivisionError("huge feature")
        return super().step(model, sent, local, D)

    def finish(self, model, sent, local, client_state, data):
        if self.where == "finish" and data().X.max() > 1e6:
            raise ZeroDivisionError("huge feature")
        return super().finish(model, sent, local, client_state, data)


def poisoned(model):
    """A federation in which a client has huge features."""
    federated = make_federation(model)
    X = federated.source.X.copy()
    X[federated.train.rows_of(BAD)] = 1e7
    return replace(federated, source=replace(federated.source, X=X))


@pytest.mark.parametrize("where", ["step", "finish"])
@pytest.mark.parametrize("stack", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_failing_client_is_named_or_dropped(where, stack, threads, monkeypatch):
    monkeypatch.setattr(rounds, "threads_for", lambda step, total: threads)
    said, model = [], MODELS["mlp"]
    federated, algorithm = poisoned(model), Fails(where=where)
    plan = make_plan(EVERYONE, federated.train.sizes, 6, 0)
    plan = plan._replace(counts=np.array([2, 1, 3, 1, 2]))  # who is left is weighed by its own
    begin = start(algorithm, model)
    with pytest.raises(
        ClientError,
        match=r"^client 2 failed in round 7: \S+test_failures.py, line \d+: ZeroDivisionError: huge",
    ):
        run_round(algorithm, model, begin, plan, federated, work=CarefulClients(stack=stack))
    work = CarefulClients("drop", said.append, stack=stack)
    state, log = run_round(algorithm, model, begin, plan, federated, work=work)
    assert said[0].startswith("client 2 failed in round 7: ")
    assert said[0].endswith("ZeroDivisionError: huge feature; it is dropped")
    # a client that never answered is one that was dropped, except for what it was sent
    late = plan._replace(straggler=np.arange(len(SIZES)) == BAD)
    expected, other = run_round(Scaffold(drop=True), model, begin, late, federated)
    assert same(state, expected)
    assert (log.failed, log.dropped, other.failed, other.dropped) == (1, 0, 0, 1)
    assert log.floats_up == other.floats_up == 4 * 2 * model.d
    assert log.floats_down == other.floats_down == 5 * 2 * model.d
