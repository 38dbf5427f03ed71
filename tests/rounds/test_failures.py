"""Clients that fail or never answer: who is named, who is left, whose state is whose."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from helpers import (
    MODELS,
    SIZES,
    make_federation,
    same,
    start,
)

from fedref import tree
from fedref.algorithms.fedavg import FedAvg
from fedref.lab.experiments.own_code import ClientError, careful_clients
from fedref.rounds import loop as rounds
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, make_plan

EVERYONE = Sampling(len(SIZES), epochs=2, batch_size=4)


BAD = 2


@dataclass(frozen=True)
class Fails(FedAvg):
    """Divides by zero where a feature is huge: in a step or after the steps."""

    where: str = "finish"

    def look(self, D, where):
        if where == self.where and D.X.max() > 1e6:
            raise ZeroDivisionError("huge feature")

    def step(self, model, sent, local, D):
        self.look(D, "step")
        return super().step(model, sent, local, D)

    def finish(self, model, sent, local, client_state, data):
        self.look(data(), "finish")
        return super().finish(model, sent, local, client_state, data)


def poisoned(model, clients=(BAD,)):
    """A federation in which some clients have huge features."""
    federated = make_federation(model)
    X = federated.source.X.copy()
    for k in clients:
        X[federated.train.rows_of(k)] = 1e7
    return replace(federated, source=replace(federated.source, X=tree.freeze(X)))


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
        run_round(algorithm, model, begin, plan, federated, work=careful_clients(stack=stack))
    work = careful_clients("drop", said.append, stack=stack)
    state, log = run_round(algorithm, model, begin, plan, federated, work=work)
    assert said[0].startswith("client 2 failed in round 7: ")
    assert said[0].endswith("ZeroDivisionError: huge feature; it is dropped")
    # a client that never answered is one that was dropped, except for what it was sent
    late = plan._replace(straggler=np.arange(len(SIZES)) == BAD)
    expected, other = run_round(FedAvg(), model, begin, late, federated)
    assert same(state, expected)
    assert (log.failed, log.dropped, other.failed, other.dropped) == (1, 0, 0, 1)
    assert log.floats_up == other.floats_up == 4 * model.d
    assert log.floats_down == other.floats_down == 5 * model.d


@dataclass(frozen=True)
class Remembers(Fails):
    """Keeps the sum of its own features, and how often it was there."""

    def finish(self, model, sent, local, client_state, data):
        result = super().finish(model, sent, local, client_state, data)
        times = client_state[1] + 1 if client_state else 1
        return result._replace(client_state=(float(data().X.sum()), times))


@pytest.mark.parametrize("away", [[0], [1, 3], [4], [0, 1, 2, 3]])
@pytest.mark.parametrize("why", ["straggles", "fails"])
def test_a_client_s_own_state_stays_its_own_whoever_is_missing(away, why):
    model, algorithm = MODELS["logistic"], Remembers()
    federated = make_federation(model) if why == "straggles" else poisoned(model, away)
    plan = make_plan(EVERYONE, federated.train.sizes, 0, 0)
    if why == "straggles":
        plan = plan._replace(straggler=np.isin(plan.clients, away))
    work = careful_clients("drop")
    once, _ = run_round(algorithm, model, start(algorithm, model), plan, federated, work=work)
    twice, _ = run_round(algorithm, model, once, plan, federated, work=work)
    here = [k for k in range(len(SIZES)) if k not in away]
    for times, state in ((1, once), (2, twice)):
        assert sorted(state.clients) == here
        for k in here:
            features = federated.batch(federated.train.rows_of(k)).X
            assert state.clients[k] == (pytest.approx(features.sum(), rel=1e-12), times)
            assert type(next(iter(state.clients))) is int
