"""FedProx's Synthetic(α, β)."""

import numpy as np
import pytest
from scipy.optimize import linprog

from fedref.lab.datasets import load, split
from fedref.lab.datasets.synthetic import Synthetic, generate, sizes


def test_sizes_are_fifty_and_a_lognormal():
    found = split("natural", load("synthetic(1,1)"))
    assert (found.clients, found.source.X.shape[1]) == (30, 60)
    assert set(found.source.labels) <= set(range(10))
    assert (found.train.sizes + found.test.sizes).min() >= 50
    n = sizes(20_000, np.random.default_rng(0)) - 50
    assert n.min() >= 0
    median_and_one_deviation_up = np.quantile(np.log(n + 0.5), [0.5, 0.8413])
    np.testing.assert_allclose(median_and_one_deviation_up, [4, 6], atol=0.06)


def linearly_separable(X, y):
    """Whether some W, b have (w_y − w_c)ᵀx + b_y − b_c ≥ 1 for every row and other class c."""
    C, p = y.max() + 1, X.shape[1] + 1
    rows, other = np.nonzero(np.arange(C) != y[:, None])
    A = np.zeros((len(rows), C, p))
    A[np.arange(len(rows)), other] += np.column_stack([X, np.ones(len(X))])[rows]
    A[np.arange(len(rows)), y[rows]] -= np.column_stack([X, np.ones(len(X))])[rows]
    A = A.reshape(len(rows), -1)
    return linprog(np.zeros(C * p), A, -np.ones(len(A)), bounds=(None, None)).status == 0


def test_labels_are_the_argmax_of_a_linear_model_of_each_client_or_of_all():
    n = np.full(4, 200)
    X, y, client = generate(Synthetic(0.5, 0.5, users=4, features=3, classes=3, seed=1), n=n)
    for k in range(4):
        assert len(set(y[client == k])) > 1
        assert linearly_separable(X[client == k], y[client == k])
    assert not linearly_separable(X, y)  # but each has its own
    X, y, _ = generate(Synthetic(0, 0, 40, features=3, classes=3), True, np.full(40, 100))
    np.testing.assert_allclose(X.mean(0), 0, atol=0.05)
    assert linearly_separable(X, y)
    assert load("synthetic-iid").sha256 != load("synthetic(0,0)").sha256


@pytest.mark.parametrize("beta", [0.0, 3.0])
def test_inputs_have_the_documented_spread(beta):
    n = np.full(300, 200)
    X, _, _ = generate(Synthetic(1.0, beta, users=300, features=20), n=n)
    rows = X.reshape(300, 200, 20)
    np.testing.assert_allclose(
        rows.var(1).mean(0), np.arange(1, 21) ** -1.2, rtol=0.05
    )  # within a client: diag(j^−1.2)
    v = rows.mean(1)
    np.testing.assert_allclose(v.var(1, ddof=1).mean(), 1, rtol=0.1)  # v_k ~ N(B_k, 1)
    np.testing.assert_allclose(v.mean(1).std(), np.hypot(beta, 20**-0.5), rtol=0.15)  # B_k
