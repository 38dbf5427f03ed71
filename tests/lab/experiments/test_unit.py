"""A run's numbers: that nothing but the experiment decides them, and what the columns hold."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import same
from running import algorithms, contents, document, experiment, main, play, write

import fedref
from fedref.algorithms import ALGORITHMS
from fedref.lab.datasets import split_clients
from fedref.lab.experiments import loading as settings
from fedref.lab.experiments import results
from fedref.lab.experiments import unit as units
from fedref.lab.experiments.run import execute
from fedref.lab.experiments.unit import Record
from fedref.rounds.evaluation import client_mean, evaluate_unseen, sample_mean
from fedref.sampling import stream

pytestmark = pytest.mark.usefixtures("here")


def record(run: results.Run, label: str) -> Record:
    return next(r for u, r in zip(run.units, run.records) if u.label == label)


def test_how_often_is_evaluated_changes_no_training():
    tables = algorithms(
        *ALGORITHMS,
        adaptive={"algorithm": "fedprox", "adaptive_mu": True, "mu": 0.3},
        until={"algorithm": "fedprox", "until_gamma": 0.9},
        flag={"algorithm": "apfl", "z": 1, "delta_mu": 9.0, "delta_sigma": 9.0, "window": 2},
        fedcurv={"lam": 0.001},
    )
    table = document(rounds=7, algorithms=tables, stragglers=0.4)
    runs = {
        every: play({**table, "eval-every": every, "eval-train": train})
        for every, train in ((1, True), (3, True), (100, False))
    }
    for unit, often in zip(runs[1].units, runs[1].records):
        for every in (3, 100):
            seldom = runs[every].records[unit.number]
            assert same(often.state, seldom.state), unit
            assert seldom.rounds == [t for t in range(8) if t % every == 0 or t == 7]
            for one, other in zip(often.rows, seldom.rows):
                assert other.items() <= one.items() or every == 100
                assert {k: v for k, v in other.items() if "loss" not in k}.items() <= one.items()
    assert len({row["mu"] for row in record(runs[1], "adaptive").rows}) > 1  # it does adapt


def test_seeds_and_algorithms_do_not_depend_on_each_other():
    together = play(document(seeds=[3, 5], algorithms=algorithms("fedavg", "apfl")))
    (alone,) = play(document(seeds=[5], algorithms=algorithms("apfl"))).records
    first, other = together.records_of("apfl")
    assert same(other.state, alone.state)
    assert other.rows == alone.rows != first.rows


def test_means_of_clients_dissimilarity_and_variance():
    table = document(rounds=1, dissimilarity=True)
    made = experiment(table)
    setting = settings.load_experiment(made)
    model, federation = setting.model, setting.federation
    w0, n = model.init(stream(0, "init")), federation.train.sizes
    data = [federation.batch(federation.train.rows_of(k)) for k in range(4)]
    p, g = n / n.sum(), np.stack([model.grad(w0, D) for D in data])
    f = p @ g
    found = play(table).records[0]
    row, scores = found.rows[0], found.scores[0]
    assert row["B"] == pytest.approx(np.sqrt(p @ np.sum(g**2, 1) / (f @ f)), rel=1e-12)
    assert row["variance"] == pytest.approx(p @ np.sum((g - f) ** 2, 1), rel=1e-12)
    assert row["B"] > 1
    assert "B" not in play(document(rounds=0)).records[0].rows[0]
    assert scores.train_loss == pytest.approx([model.loss(w0, D) for D in data], rel=1e-12)
    for name in ("accuracy", "test_loss", "train_loss"):
        values, weights = getattr(scores, name), scores.n_train if "tr" in name else scores.n_test
        assert row[name] == pytest.approx(np.average(values, weights=weights))
        assert row[f"{name}_mean"] == pytest.approx(values.mean())


def test_stragglers_and_who_was_dropped_are_counted():
    tables = algorithms("fedavg", fedprox={"measure_gamma": False})
    run = play(document(clients_per_round=4, stragglers=0.5, algorithms=tables))
    for label, dropped in (("fedavg", 2), ("fedprox", 0)):
        found = record(run, label).rows
        assert [row["stragglers"] for row in found] == [0, 2, 4, 6]
        assert [row["dropped"] for row in found] == [dropped * t for t in range(4)]
        assert {row["failed"] for row in found} == {0}
        assert not any("gamma" in row for row in found)
        assert found[1]["bytes_down"] // (650 * 8) == 4
        assert found[1]["bytes_up"] == (4 - dropped) * 650 * 8


def test_rounds_with_new_importance_are_marked():
    still = {"z": 2, "delta_mu": 0.0}  # no mean is below 0: the detector never asks
    rows_ = play(document(rounds=6, algorithms={"apfl": still})).records[0].rows
    assert [row["renewed"] for row in rows_] == [0, 1, 1, 1, 0, 0, 0]
    assert rows_[1].get("penalty") == 0.0
    assert rows_[4]["penalty"] > 0
    eager = {"z": 9, "delta_mu": 99.0, "delta_sigma": 99.0, "window": 1}
    rows_ = play(document(rounds=4, algorithms={"apfl": eager})).records[0].rows
    assert rows_[2]["renewed"] == 1  # after the peak that the first full window is


def test_a_round_in_which_everyone_is_dropped_is_none_of_the_algorithm():
    """Neither t nor the window of losses moves, and no importance is asked for."""
    apfl = {"apfl": {"z": 9, "window": 2, "delta-mu": 9.0, "delta-sigma": 9.0}}
    run = play(document(rounds=4, algorithms=apfl, stragglers=1.0))
    server = run.records[0].state.server
    assert (server.t, server.detector.window) == (0, ())
    assert {row["renewed"] for row in run.records[0].rows} == {0}


def test_divergence_stops_one_algorithm_and_the_others_go_on(here, capsys):
    tables = algorithms(
        "fedavg",
        wild={"algorithm": "fedavg", "lr": 1e200},
        apfl={"lr": 1e160},
        prox={"algorithm": "fedprox", "adaptive_mu": True, "mu": 1e200},
    )
    table = document(model={"name": "mlp", "hidden": [4]}, algorithms=tables, dissimilarity=True)
    path = write(here / "t.toml", table)
    assert main("run", path, "--out", "a", "--quiet") == 3
    told = capsys.readouterr().err.splitlines()
    for line, label in zip(told, ("wild", "apfl", "prox"), strict=True):
        assert line.startswith(f"fedref: {label} (seed 0) diverged: round ")
        assert line.endswith("not finite")
    run = fedref.load_run("a")
    assert [r.status for r in run.records] == ["done", "diverged", "diverged", "diverged"]
    assert len(run.diverged_units) == 3
    assert "| wild (diverged) |" in (here / "a" / "summary.md").read_text()
    for r in run.records[1:]:
        assert len(r.rows) == r.round + 1 < 4
        assert fedref.models.tree.finite(r.state.server)
        assert np.isfinite([v for v in r.rows[-1].values() if v is not None]).all()
    assert same(record(run, "fedavg").state, play(document(model=table["model"])).records[0].state)
    # resuming keeps it so, code and bytes
    before = contents(here / "a")
    assert main("resume", "a", "--quiet") == 3
    assert contents(here / "a") == before


@pytest.mark.parametrize("label", ["fedavg", "per-fedavg", "apfl", "centralised"])
def test_validation_rows_are_tested_as_test_rows_are_and_never_trained_on(label):
    """Exchanged with the test rows, they have their numbers; with other labels, training is the same."""
    table = document(algorithms=algorithms(label), split={**document()["split"], "validation": 0.3})
    made = experiment(table)
    loaded = settings.load_experiment(made)
    whole = loaded.federation
    assert whole.validation.sizes.tolist() == [6, 6, 3, 3]
    assert (whole.train.sizes + whole.validation.sizes).tolist() == [20, 20, 10, 10]
    (unit,) = units.units(made)
    y = whole.source.y.copy()
    y[whole.validation.rows] = 0
    changed = replace(whole, source=replace(whole.source, y=y))
    swapped = replace(whole, test=whole.validation, validation=whole.test)
    runs = [
        [*units.iterate_rounds(unit, loaded._replace(federation=f))][-1]
        for f in (whole, changed, swapped)
    ]
    assert same(runs[0].state, runs[1].state)
    assert same(runs[0].state, runs[2].state)
    for row, other in zip(runs[0].rows, runs[2].rows):
        for end in ("", "_mean"):
            assert row[f"validation_accuracy{end}"] == other[f"accuracy{end}"]
            assert row[f"validation_loss{end}"] == other[f"test_loss{end}"]
    assert runs[1].rows[-1]["validation_loss"] != runs[0].rows[-1]["validation_loss"]


def test_a_split_may_follow_the_seed():
    split = document()["split"]
    follows = play(document(rounds=1, seeds=[3, 4], split={**split, "seed": "run"}))
    for seed, found in zip((3, 4), follows.records):
        alone = play(document(rounds=1, seeds=[seed], split={**split, "seed": seed})).records[0]
        assert found.rows == alone.rows
    one, other = (found.scores[-1].test_loss for found in follows.records)
    assert not np.array_equal(one, other)
    with pytest.raises(fedref.ConfigError, match="no client has enough training rows"):
        play(document(split={**split, "validation": 0.01}))


def test_unseen_and_validation_clients_are_evaluated_alike_and_never_trained():
    split = {"rule": "per-fedavg", "users": 20, "a": 4, "a-test": 2, "seed": 6}
    tables = algorithms("fedmeta-sgd", "fedmeta-maml", "fedavg-meta")
    table = document(split=split, unseen=0.3, rounds=3, clients_per_round=16, algorithms=tables)
    made = experiment(table)
    setting = settings.load_experiment(made)
    whole, tested = setting.unseen
    assert (whole.clients, setting.federation.clients, len(tested)) == (20, 16, 2)
    drawn = split_clients(20, 6)  # for training, for validation, unseen
    np.testing.assert_equal([setting.validation_clients, tested], drawn[1:])
    for rows, k in enumerate(drawn[0]):
        assert np.array_equal(setting.federation.train.rows_of(rows), whole.train.rows_of(k))
    kept_back = np.concatenate([setting.validation_clients, tested])
    assert len(set(kept_back.tolist())) == 4
    trained = set(setting.federation.train.rows) | set(setting.federation.test.rows)
    for k in kept_back:
        assert not trained & (set(whole.train.rows_of(k)) | set(whole.test.rows_of(k)))
    run = execute(made)
    for unit, found in zip(run.units, run.records):
        assert len(found.scores[0].accuracy) == 16
        assert all("unseen_accuracy" in row for row in found.rows)
        groups = {"unseen": tested, "validation_clients": setting.validation_clients}
        for name, clients in groups.items():
            about = unit.algorithm, setting.model, found.state, whole, clients
            scores = evaluate_unseen(*about, support=0.3, seed=0)
            means = [mean(scores.accuracy, scores.n_test) for mean in (sample_mean, client_mean)]
            last = found.rows[-1]
            assert [last[f"{name}_accuracy"], last[f"{name}_accuracy_mean"]] == means
    assert set(run.clients["client"].tolist()) == set(range(16))


@pytest.mark.parametrize("support", [0.0, 0.5])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_clients_with_test_rows_alone_are_tested_in_the_columns_of_unseen_clients(
    support, elsewhere
):
    """elsewhere : all test rows are theirs, so nobody who trains is tested."""
    rng, client = np.random.default_rng(0), np.repeat(np.arange(5), 8)
    test = (client > 2) | ((np.arange(40) % 4 == 0) & (not elsewhere))
    X = rng.normal(size=(40, 2))
    arrays = {"X": X, "y": (X.sum(1) > 0) * 1, "client": client, "test": test}
    how = {"rounds": 2, "clients_per_round": 3, "unseen": support}
    run = fedref.run(algorithm=["fedavg", "per-fedavg"], data=arrays, **how)
    setting = settings.load_experiment(run.experiment)
    alone, tested = setting.unseen
    assert (alone.test.sizes.tolist(), tested.tolist()) == ([8, 8], [0, 1])
    for unit, found in zip(run.units, run.records):
        about = unit.algorithm, setting.model, found.state, alone, tested
        scores = evaluate_unseen(*about, support=support, seed=0)
        assert scores.n_test.tolist() == [4 if support else 8] * 2
        last = found.rows[-1]
        assert last["unseen_accuracy"] == sample_mean(scores.accuracy, scores.n_test)
        assert np.isnan(last["accuracy"]) == elsewhere
        assert not {"validation_clients_accuracy", "unseen_loss"} & {*last}
    assert "| unseen |" in str(run.summary())
    assert run.summary().score.column == "accuracy"


def test_an_unseen_client_s_own_classes_are_numbered_from_0_too():
    client, y = np.repeat(np.arange(3), 6), np.repeat([0, 1, 2], 6) + np.arange(18) % 2 * 5
    arrays = {"X": np.zeros((18, 1)), "y": y, "client": client, "test": np.arange(18) >= 10}
    run = fedref.run(algorithm="fedavg", data=arrays, rounds=1, clients_per_round=2, classes="own")
    loaded = settings.load_experiment(run.experiment)
    alone, _ = loaded.unseen
    assert alone.source.y[alone.test.rows].tolist() == [0, 1] * 3
    assert loaded.model.classes == 2


def test_each_client_s_own_classes_are_numbered_from_0():
    """A k-way head: as few outputs as any client holds classes, and only the labels change."""
    split = {"rule": "shards", "users": 10, "shards": 2}
    table = document(data={"name": "digits"}, split=split, model={"name": "logistic"})
    every = settings.load_experiment(experiment(table))
    own = settings.load_experiment(experiment({**table, "classes": "own"}))
    k = 0
    for i in range(10):
        rows = np.concatenate([own.federation.train.rows_of(i), own.federation.test.rows_of(i)])
        before, after = every.federation.source.y[rows], own.federation.source.y[rows]
        held = sorted(set(before.tolist()))
        assert after.tolist() == [held.index(label) for label in before.tolist()]
        k = max(k, len(held))
    assert (every.model.classes, own.model.classes) == (10, k)
    assert k < 10
    assert same(every.federation.train.rows, own.federation.train.rows)
    assert own.whole.source.y.max() == 9  # split.json says what was split
