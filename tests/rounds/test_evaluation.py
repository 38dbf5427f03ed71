"""Every client's loss and accuracy: on its own test rows, which nothing else ever sees.

Long because each test is short and they share one small federation.
"""

from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from helpers import (
    MODELS,
    SIZES,
    VARIANTS,
    make_algorithm,
    make_federation,
    play,
    same,
    start,
)

from fedref import tree
from fedref.algorithms.fedavg import FedAvg, FedAvgMeta, adapt
from fedref.rounds.evaluation import (
    client_mean,
    evaluate,
    evaluate_unseen,
    sample_mean,
    score,
)
from fedref.sampling import Sampling, adaptation_rows

CONFIG = Sampling(3, epochs=1, batch_size=4)


def relabelled(federation, rows, labels):
    """The federation with other labels in some rows."""
    y = federation.source.y.copy()
    y[rows] = labels
    return replace(federation, source=replace(federation.source, y=tree.freeze(y)))


def run(variant, federated, model, rounds=4):
    """States and scores of every round, as an experiment makes them."""
    algorithm = make_algorithm(variant)
    states, _ = play(algorithm, model, federated, CONFIG, rounds)
    scores = [
        evaluate(algorithm, model, state, federated, CONFIG, round=t, seed=0)
        for t, state in enumerate(states)
    ]
    return states, scores


@pytest.mark.parametrize("variant", VARIANTS)
def test_poisoned_test_rows_change_nothing_but_their_own_scores(variant):
    """Labels and features of all test rows are replaced: training and adaptation do not notice."""
    model = MODELS["logistic"]
    clean = make_federation(model)
    rows = clean.test.rows
    poisoned = relabelled(clean, rows, (clean.source.y[rows] + 1) % 3)
    X = clean.source.X.copy()
    X[rows] *= -50
    poisoned = replace(poisoned, source=replace(poisoned.source, X=tree.freeze(X)))
    states, scores = run(variant, clean, model)
    others, worse = run(variant, poisoned, model)
    assert same(states, others)
    for a, b in zip(scores, worse):
        assert same(a.train_loss, b.train_loss)
        assert not np.array_equal(a.test_loss, b.test_loss)


@pytest.mark.parametrize("variant", VARIANTS)
def test_evaluation_does_not_train(variant):
    """Evaluating twice gives the same numbers, and evaluating at all leaves the state as it was."""
    model = MODELS["mlp"]
    algorithm, federated = make_algorithm(variant), make_federation(model)
    states, _ = play(algorithm, model, federated, CONFIG)
    server = deepcopy(states[-1].server)
    once, twice = (
        evaluate(algorithm, model, states[-1], federated, CONFIG, round=3, seed=0) for _ in range(2)
    )
    assert same(tuple(once), tuple(twice))
    assert same(states[-1].server, server)


@pytest.mark.parametrize("variant", [*VARIANTS, "centralised"])
@pytest.mark.parametrize("test", [(3, 1, 5, 2, 0), (0, 1, 0, 2, 4)], ids=str)
def test_scores_after_training_against_a_loop_over_clients(variant, test):
    """Each client with its own state and its own adaptation batch; some without test rows."""
    model, algorithm = MODELS["logistic"], make_algorithm(variant)
    federated = make_federation(model, test=test)
    states, _ = play(algorithm, model, federated, CONFIG)
    state, role = states[-1], algorithm.adapts_on
    got = evaluate(algorithm, model, state, federated, CONFIG, round=3, seed=0)
    sent, moved = algorithm.download(state.server), 0
    for k, n in enumerate(SIZES):
        D = None
        if role:
            chosen = adaptation_rows(CONFIG, role, n, k, 3, 0)
            D = federated.batch(federated.train.rows_of(k)[chosen])
        w = algorithm.personalised_params(model, sent, state.clients.get(k), D)
        moved += not same(w, next(tree.leaves(sent)))
        loss, _ = score(model, w, federated.batch(federated.train.rows_of(k)))
        np.testing.assert_allclose(got.train_loss[k], loss, rtol=1e-12)
        if test[k]:
            expected = score(model, w, federated.batch(federated.test.rows_of(k)))
            np.testing.assert_allclose((got.test_loss[k], got.accuracy[k]), expected, rtol=1e-12)
        else:
            assert np.isnan([got.test_loss[k], got.accuracy[k]]).all()
    assert got.n_train.tolist() == list(SIZES)
    assert got.n_test.tolist() == list(test)
    assert moved >= (3 if algorithm.personalised else 0)


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_that_the_model_does_not_know_are_refused(label):
    model, clean = MODELS["logistic"], make_federation(MODELS["logistic"])
    state, other = start(FedAvg(), model), relabelled(clean, clean.test.rows[:1], np.array([label]))
    with pytest.raises(ValueError, match=f"labels run from .*{label}"):
        evaluate(FedAvg(), model, state, other, CONFIG, round=0, seed=0)
    with pytest.raises(ValueError, match=f"labels run from .*{label}"):
        score(model, state.server.w, other.batch(other.test.rows))


@pytest.mark.parametrize("variant", ["fedavg", "fedavg-update", "apfl"])
def test_training_rows_are_left_out_where_not_wanted(variant):
    model = MODELS["mlp"]
    algorithm, federated = make_algorithm(variant), make_federation(model)
    state = start(algorithm, model)
    arguments = algorithm, model, state, federated, CONFIG
    got = evaluate(*arguments, round=0, seed=0, train=False)
    expected = evaluate(*arguments, round=0, seed=0)
    assert np.isnan(got.train_loss).all()
    np.testing.assert_array_equal(got.accuracy, expected.accuracy)


@dataclass(frozen=True)
class Records(FedAvgMeta):
    """Notes what it adapts to: a support S."""

    seen: list = field(default_factory=list)

    def __post_init__(self):
        """A list is no option of an algorithm; there is nothing to check."""

    def personalised_params(self, model, sent, client_state, D):
        self.seen.append(D)
        return super().personalised_params(model, sent, client_state, D)


@dataclass(frozen=True)
class RecordsD(Records):
    adapts_on = "D"


@dataclass(frozen=True)
class RecordsNothing(Records):
    adapts_on = None


def rows_of(federated, D):
    """Which rows of the source a batch holds (all rows differ)."""
    same_row = (federated.source.X[:, None, :] == D.X).all(-1)
    assert (same_row.sum(0) == 1).all()
    return same_row.argmax(0)


@pytest.mark.parametrize("cls", [Records, RecordsD])
def test_adaptation_is_on_fresh_training_rows_of_the_client_itself(cls):
    model = MODELS["logistic"]
    federated = make_federation(model)
    algorithm = cls(alpha=0.2, inner_steps=2)
    state = start(algorithm, model)
    config = replace(CONFIG, support=0.5)
    seen = {}
    for t in range(3):
        scores = evaluate(algorithm, model, state, federated, config, round=t, seed=0)
        for k in range(len(SIZES)):
            D = algorithm.seen[t * len(SIZES) + k]
            rows = seen[t, k] = rows_of(federated, D)
            assert set(rows) <= set(federated.train.rows_of(k))
            role = algorithm.adapts_on
            chosen = adaptation_rows(config, role, SIZES[k], k, t, 0)
            np.testing.assert_array_equal(rows, federated.train.rows_of(k)[chosen])
            w = adapt(model, state.server.w, D, alpha=0.2, steps=2)
            loss, accuracy = score(model, w, federated.batch(federated.test.rows_of(k)))
            assert (scores.test_loss[k], scores.accuracy[k]) == (loss, accuracy)
    assert len({tuple(seen[t, 2]) for t in range(3)}) == 3  # fresh: another batch every round
    assert len(seen[0, 1]) == (0 if cls is Records else 1)  # n = 1: nothing to adapt to, or all


def test_weighted_and_plain_means_by_hand():
    values, n = np.array([1.0, 0.5, np.nan, 0.0]), np.array([1, 2, 0, 5])
    assert sample_mean(values, n) == 2 / 8
    assert client_mean(values, n) == 0.5
    nobody = np.zeros(2, int), np.full(2, np.nan)
    assert np.isnan(sample_mean(nobody[1], nobody[0]))
    assert np.isnan(client_mean(nobody[1], nobody[0]))
    broken = np.array([1.0, np.nan])  # a NaN of a client with data is not hidden
    assert np.isnan(sample_mean(broken, np.array([1, 1])))
    assert np.isnan(client_mean(broken, np.array([1, 1])))


# -- unseen clients


UNSEEN = np.array([0, 2, 4])


def test_an_unseen_client_of_an_algorithm_that_does_not_adapt_is_given_no_batch():
    model, algorithm = MODELS["logistic"], RecordsNothing()
    evaluate_unseen(
        algorithm,
        model,
        start(algorithm, model),
        make_federation(model),
        UNSEEN,
        support=0.5,
        seed=0,
    )
    assert algorithm.seen == [None] * len(UNSEEN)


def test_unseen_clients_are_divided_alike_for_every_algorithm_and_round():
    model = MODELS["logistic"]
    federated = make_federation(model)
    recorders = Records(), RecordsD()
    for algorithm in recorders:
        for _ in range(2):
            evaluate_unseen(
                algorithm, model, start(algorithm, model), federated, UNSEEN, support=0.5, seed=0
            )
    first, second = (algorithm.seen for algorithm in recorders)
    assert all(same(tuple(a), tuple(b)) for a, b in zip(first, second, strict=True))
    assert all(same(tuple(a), tuple(b)) for a, b in zip(first[:3], first[3:], strict=True))
    other = Records()
    evaluate_unseen(other, model, start(other, model), federated, UNSEEN, support=0.5, seed=1)
    assert not all(np.array_equal(a.X, b.X) for a, b in zip(first, other.seen))


@pytest.mark.parametrize("variant", VARIANTS)
def test_query_labels_of_unseen_clients_do_not_reach_their_models(variant):
    model = MODELS["logistic"]
    federated = make_federation(model)
    algorithm, recorder = make_algorithm(variant), Records()
    arguments = {"support": 0.5, "seed": 0}
    state = start(algorithm, model)
    evaluate_unseen(recorder, model, start(recorder, model), federated, UNSEEN, **arguments)
    S = np.concatenate([rows_of(federated, D) for D in recorder.seen])
    rows = np.concatenate(
        [np.concatenate([federated.train.rows_of(k), federated.test.rows_of(k)]) for k in UNSEEN]
    )
    Q = np.setdiff1d(rows, S)
    poisoned = relabelled(federated, Q, (federated.source.y[Q] + 1) % 3)
    clean, worse = (
        evaluate_unseen(algorithm, model, state, f, UNSEEN, **arguments)
        for f in (federated, poisoned)
    )
    np.testing.assert_array_equal(clean.train_loss, worse.train_loss)
    assert not np.array_equal(clean.test_loss, worse.test_loss)


def test_an_unseen_client_with_one_row_is_tested_without_adaptation():
    model = replace(MODELS["logistic"], l2=0.0)  # the L2 term's gradient needs no row
    federated = make_federation(model, (4, 1), test=(2, 0))
    algorithm = FedAvgMeta(alpha=0.5)
    state = start(algorithm, model)
    got = evaluate_unseen(algorithm, model, state, federated, np.array([1]), support=0.5, seed=0)
    loss, _ = score(model, state.server.w, federated.batch(federated.train.rows_of(1)))
    assert (got.n_train[0], got.n_test[0]) == (0, 1)
    assert np.isnan(got.train_loss[0])
    np.testing.assert_allclose(got.test_loss[0], loss, rtol=1e-14)
