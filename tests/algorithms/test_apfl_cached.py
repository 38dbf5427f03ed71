"""APFL whose clients keep F: the same numbers, fewer bytes."""

import numpy as np
import pytest
from helpers import MODELS, make_federation, play, same

import fedref
from fedref.algorithms.apfl import APFL
from fedref.algorithms.apfl_cached import APFLCachedImportance, CachingClient, fingerprint
from fedref.sampling import Sampling, cohort

#: z is late, and the loss window short: F is also renewed before the decomposition starts.
VALUES = {"lr": 0.1, "z": 8, "window": 2, "delta_mu": 9.0, "delta_sigma": 9.0}
SAMPLING = Sampling(2, steps=2, batch_size=4)


@pytest.fixture(scope="module")
def played():
    model = MODELS["logistic"]
    federated = make_federation(model)
    runs = [
        play(cls(**VALUES), model, federated, SAMPLING, rounds=14)
        for cls in (APFL, APFLCachedImportance)
    ]
    return model, federated, *runs


def test_every_number_is_apfl_s(played):
    _, _, (ours, _), (kept, _) = played
    for one, other in zip(ours, kept):
        assert same(one.server, other.server)
        clients = {k: state.own for k, state in other.clients.items() if state.own is not None}
        assert same(dict(one.clients), clients)


def test_f_travels_to_those_that_have_an_older_one(played):
    model, federated, (_, all_logs), (states, logs) = played
    has, spared = {}, 0
    for t, (log, full) in enumerate(zip(logs, all_logs)):
        F = states[t].server.F
        floats = 0
        for k in cohort(SAMPLING, federated.train.sizes, t, 0)[0].tolist():
            new = np.ndim(F) and not (k in has and np.array_equal(has[k], F))
            spared += bool(np.ndim(F)) and not new
            floats += model.d * (2 if new else 1)
            has[k] = F
        assert log.floats_down == floats
        assert full.floats_down == 2 * model.d * (2 if np.ndim(F) else 1)
        assert log.floats_up == full.floats_up
    assert spared >= 2
    assert any(kept.own is None for kept in states[8].clients.values())  # F came before the start


def test_nothing_is_kept_before_there_is_anything(played):
    _, _, _, (states, _) = played
    first = next(t for t, state in enumerate(states) if np.ndim(state.server.F))
    assert first >= 1
    assert all(not state.clients for state in states[: first + 1])  # sent down from then on


def test_marks_tell_f_apart():
    assert fingerprint(0) == 0
    assert fingerprint(np.zeros(3)) != 0
    assert (
        fingerprint(np.ones(3))
        == fingerprint(np.ones(3))
        != fingerprint(np.array([1.0, 1.0, 1.0 + 1e-16 + 1e-15]))
    )


def test_a_run_asks_for_it_by_module_and_name_and_can_be_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = {"algorithm": "fedref.algorithms.apfl_cached:APFLCachedImportance", "z": 1}
    table = {
        "data": {"name": "digits"}, "split": {"rule": "iid", "users": 6}, "clients-per-round": 2,
        "steps": 1, "rounds": 6, "algorithms": {"apfl": {"z": 1}, "kept": name},
    }  # fmt: skip
    run = fedref.run(table, out="a")
    ours, kept = run.records
    for one, other in zip(ours.rows, kept.rows):
        assert one["accuracy"] == other["accuracy"]
        assert one["bytes_up"] == other["bytes_up"]
    assert kept.rows[-1]["bytes_down"] < ours.rows[-1]["bytes_down"]
    again = fedref.load_run("a").records[1]
    assert all(isinstance(state, CachingClient) for state in again.state.clients.values())
