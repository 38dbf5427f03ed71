"""Scores of every client: no test row reaches a model; no block, thread or other client reaches a score.

That they are the specification's, also of clients that never trained, is proved in fedref/proofs/rounds.py.
"""

from dataclasses import replace

import numpy as np
import pytest
from helpers import MODELS, make_federation, play, same, start
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedref import strategies
from fedref.algorithm import State
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedavg import FedAvg, FedAvgMeta
from fedref.draws.sources import federation_of
from fedref.models import MLP, Logistic
from fedref.rounds import evaluation
from fedref.rounds.evaluation import client_mean, evaluate, evaluate_unseen, sample_mean, score
from fedref.rounds.federation import Part
from fedref.sampling import Sampling

CONFIG = Sampling(3, epochs=1, batch_size=4)
SIZES = (7, 1, 12, 3, 5, 2, 9)


def with_test_rows(federation, change, labels):
    """The federation with other features and labels in its test rows."""
    X, y, rows = federation.source.X.copy(), federation.source.y.copy(), federation.test.rows
    X[rows], y[rows] = change * X[rows], labels(y[rows])
    return replace(federation, source=replace(federation.source, X=X, y=y))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_poisoned_test_rows_change_nothing_but_their_own_scores(name):
    """Labels and features of all test rows are replaced: training and adaptation do not notice."""
    model, algorithm = MODELS["logistic"], ALGORITHMS[name]()
    clean = make_federation(model)
    poisoned = with_test_rows(clean, -50, lambda y: (y + 1) % 3)
    both = clean, poisoned
    (states, _), (others, _) = (play(algorithm, model, it, CONFIG, 4) for it in both)
    assert same(states, others)
    for t, state in enumerate(states):
        given = algorithm, model, state
        own, worse = (evaluate(*given, it, CONFIG, round=t, seed=0) for it in both)
        assert same(own.train_loss, worse.train_loss)
        assert not np.array_equal(own.test_loss, worse.test_loss)


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_that_the_model_does_not_know_are_refused(label):
    model = MODELS["logistic"]
    state, other = start(FedAvg(), model), make_federation(model)
    other = with_test_rows(other, 1, lambda y: np.append(y[1:], label))
    with pytest.raises(ValueError, match=f"labels run from .*{label}"):
        evaluate(FedAvg(), model, state, other, CONFIG, round=0, seed=0)
    with pytest.raises(ValueError, match=f"labels run from .*{label}"):
        score(model, state.server.w, other.batch(other.test.rows))


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


@pytest.mark.parametrize("name", [name for name, one in ALGORITHMS.items() if not one.pooled])
def test_without_support_an_unseen_client_is_tested_on_all_rows_with_what_the_server_sends(name):
    model, algorithm = MODELS["logistic"], ALGORITHMS[name]()
    federated = make_federation(model, (4, 1), test=(2, 0))
    state = start(algorithm, model)
    got = evaluate_unseen(algorithm, model, state, federated, np.arange(2), support=0.0, seed=0)
    w = algorithm.personalised_params(model, algorithm.download(state.server), None, None)
    for k, rows in enumerate((np.r_[federated.train.rows_of(0), federated.test.rows_of(0)],
                              federated.train.rows_of(1))):  # fmt: skip
        want = score(model, w, federated.batch(rows))
        np.testing.assert_allclose((got.test_loss[k], got.accuracy[k]), want, rtol=1e-14)
    assert (got.n_test.tolist(), got.n_train.tolist()) == ([6, 1], [0, 0])


@pytest.mark.parametrize("name", ["fedavg", "fedmeta-maml"])
def test_every_row_of_an_unseen_client_is_adapted_to_or_tested_once_whatever_part_it_is_in(name):
    """Who has validation rows is tested on as many as who has none; the losses are those of all rows."""
    model, algorithm = replace(MODELS["logistic"], l2=0.0), ALGORITHMS[name]()
    plain = make_federation(model, test=(3, 2, 0, 4, 1))
    cut = plain.train.offsets[1:] - plain.train.sizes // 2  # the second half of each client's
    held = np.concatenate([np.arange(a, b) for a, b in zip(cut, plain.train.offsets[1:])])
    validation = Part(plain.train.rows[held], np.append(0, np.cumsum(plain.train.sizes // 2)))
    left = plain.train.sizes - plain.train.sizes // 2
    train = Part(np.delete(plain.train.rows, held), np.append(0, np.cumsum(left)))
    split, who = replace(plain, train=train, validation=validation), np.array([4, 2, 0, 1])
    state = start(algorithm, model)
    for federation in (plain, split):
        federation.check()
        got = evaluate_unseen(algorithm, model, state, federation, who, support=0.5, seed=0)
        assert (got.n_test + got.n_train).tolist() == (plain.train.sizes + plain.test.sizes)[
            who
        ].tolist()
        others = evaluate_unseen(
            algorithm, model, state, federation, who[1:], support=0.5, seed=0
        )  # which row is tested depends on no other client
        assert same(list(others), [x[1:] for x in got])
        if not algorithm.adapts_on:  # one model for all rows: the sums tell which rows they were
            sums = got.n_test * got.test_loss + np.nan_to_num(got.n_train * got.train_loss)
            rows = [np.append(plain.train.rows_of(k), plain.test.rows_of(k)) for k in who]
            each = [len(r) * score(model, state.server.w, plain.batch(r))[0] for r in rows]
            np.testing.assert_allclose(sums, each, rtol=1e-12)


def test_who_does_not_adapt_gets_no_rows_of_an_unseen_client():
    class Looks(FedAvg):
        def personalised_params(self, model, sent, client_state, D):
            assert D is None
            return sent.w

    model, who = MODELS["logistic"], np.array([0])
    federated, algorithm = make_federation(model), Looks()
    evaluate_unseen(algorithm, model, start(algorithm, model), federated, who, support=0.5, seed=0)


# -- blocks, pieces, threads


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "per-fedavg", "fedmeta-sgd", "apfl"])
@settings(max_examples=12, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_scores_depend_on_no_block_piece_or_thread(name, data):
    """The test rows are a client's own but the first: some clients have none."""
    trace = data.draw(strategies.traces(strategies.algorithms(name)))
    *_, state = trace.run()
    rows = np.delete(np.arange(len(trace.y)), trace.offsets[:-1])
    test = Part(rows, trace.offsets - np.arange(len(trace.offsets)))
    whole = federation_of(trace.model, trace.X, trace.y, trace.offsets, 0 * trace.offsets)
    arguments = trace.algorithm, trace.model, state, replace(whole, test=test), CONFIG

    def scores(**how):
        return tuple(evaluate(*arguments, round=2, seed=1, **how))

    expected, found = scores(), []
    with pytest.MonkeyPatch.context() as patch:
        sizes = st.sampled_from([1, 4, 50, 1 << 26])
        block, limit = sorted(data.draw(st.tuples(sizes, sizes)))  # a block is at most a piece
        for it, size in (("BLOCK_BYTES", block), ("LIMIT", limit), ("CHUNK", data.draw(sizes))):
            patch.setattr(evaluation, it, size)
        for threads in (1, 3):
            patch.setattr(evaluation, "evaluation_threads", lambda *_, n=threads: n)
            found.append(scores())
    assert same(*found)
    for got, wanted in zip(found[0], expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)
    *without, train_loss = scores(train=False)
    np.testing.assert_array_equal(without, expected[:4])
    assert np.isnan(train_loss).all()


@pytest.mark.parametrize("most", [1, 3, 8, 13, 20, 10_000])
def test_blocks_hold_every_row_once_and_as_many_as_they_may(most, monkeypatch):
    federated = make_federation(MODELS["mlp"], SIZES)
    part, size = federated.train, evaluation.row_bytes(federated, float)
    monkeypatch.setattr(evaluation, "BLOCK_BYTES", most * size)
    monkeypatch.setattr(evaluation, "CHUNK", most)
    own, rows = np.arange(7) % 3 == 0, part.sizes + federated.test.sizes
    blocks = list(evaluation.blocks(MODELS["mlp"], federated, own, float))
    assert sorted(np.concatenate(blocks)) == [*range(len(SIZES))]
    nobody = federated.subset(np.array([], int))
    assert [*evaluation.blocks(MODELS["mlp"], nobody, own[:0], float)] == []
    for block in blocks:  # all with a model of their own or all without, and of one size
        assert len({(own[k], SIZES[k]) for k in block}) == 1
        assert len(block) == 1 or rows[block].sum() <= most
    pieces = [row for block in evaluation.blocks_of_pieces(part, size) for row in block.tolist()]
    assert sorted(i for piece in pieces for i in piece) == [*range(len(part.rows))]
    assert all(len(piece) <= most and len({*part.owners[piece]}) == 1 for piece in pieces)


@pytest.mark.parametrize("name", ["fedprox", "apfl", "per-fedavg"])
def test_clients_are_not_scored_one_by_one_whoever_wrote_the_model(name):
    class Own(Logistic):
        calls = 0

        def logits(self, w, X):
            Own.calls += 1
            return super().logits(w, X)

    model, algorithm = Own(3, 3), ALGORITHMS[name]()
    federated = make_federation(model, (3,) * 100)
    states, _ = play(algorithm, model, federated, Sampling(50, epochs=1, batch_size=4), 2)
    Own.calls = 0
    evaluate(algorithm, model, states[-1], federated, CONFIG, round=0, seed=0)
    assert Own.calls < 20


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["fedavg", "per-fedavg"])
def test_a_client_s_scores_depend_on_no_other_client(name, dtype):
    """Equal to the bit: a client may be evaluated anywhere, together with any others."""
    model = MLP(17, (13, 11), 5)  # BLAS may compute the last of many rows differently
    sizes, it = np.random.default_rng(0).integers(1, 60, 40), ALGORITHMS[name]()
    federated = make_federation(model, sizes, test=sizes)
    state = State(it.initial(model, start(it, model).server.w.astype(dtype)), {})
    options = {"round": 3, "seed": 1, "dtype": dtype}
    whole = evaluate(it, model, state, federated, CONFIG, **options)
    for clients in (np.array([7]), np.arange(11, 40, 3)):
        some = federated.subset(clients)
        how = evaluation.Evaluation(some, clients, CONFIG, **options)
        alone = evaluation.evaluate_clients(it, model, state.server, {}, how)
        for scores, scores_of_all in zip(alone, whole):
            np.testing.assert_array_equal(scores, scores_of_all[clients])
