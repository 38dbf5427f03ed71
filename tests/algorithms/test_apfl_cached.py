"""APFL whose clients keep F: the same numbers, fewer bytes."""

import numpy as np
from helpers import MODELS, make_federation, play

import fedref
from fedref.algorithms.apfl_cached import APFLCachedImportance, CachingClient, fingerprint
from fedref.sampling import Sampling


def test_clients_keep_no_state_until_F_exists():
    """With a large z and a short loss window F is first renewed before the decomposition starts."""
    algorithm = APFLCachedImportance(lr=0.1, z=8, window=2, delta_mu=9.0, delta_sigma=9.0)
    model, sampling = MODELS["logistic"], Sampling(2, steps=2, batch_size=4)
    states, _ = play(algorithm, model, make_federation(model), sampling, rounds=8)
    first = next(t for t, state in enumerate(states) if np.ndim(state.server.F))
    assert first >= 1
    assert all(
        not state.clients for state in states[: first + 1]
    )  # clients get F from the next round on


def test_fingerprints_tell_F_apart():
    assert fingerprint(0) == 0
    assert fingerprint(np.zeros(3)) != 0
    assert (
        fingerprint(np.ones(3))
        == fingerprint(np.ones(3))
        != fingerprint(np.array([1.0, 1.0, 1.0 + 1e-15]))
    )


def test_a_run_asks_for_it_by_module_and_name_and_can_be_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cached = {"algorithm": "fedref.algorithms.apfl_cached:APFLCachedImportance", "z": 1}
    table = {
        "data": {"name": "digits"}, "split": {"rule": "iid", "users": 6}, "clients-per-round": 2,
        "steps": 1, "rounds": 6, "algorithms": {"apfl": {"z": 1}, "kept": cached},
    }  # fmt: skip
    run = fedref.run(table, out="a")
    ours, kept = run.records
    for one, other in zip(ours.rows, kept.rows):
        assert one["accuracy"] == other["accuracy"]
        assert one["bytes_up"] == other["bytes_up"]
    assert kept.rows[-1]["bytes_down"] < ours.rows[-1]["bytes_down"]
    again = fedref.load_run("a").records[1]
    assert all(isinstance(state, CachingClient) for state in again.state.clients.values())
