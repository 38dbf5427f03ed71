"""Twenty mistakes of public implementations, and checks that tell each from the right thing.

A check takes the implementation under test and raises AssertionError if it is wrong. For every
mistake a small wrong variant (a mutant) is written out; the check must accept ours and reject it.
Long because it is one catalogue: each check stands beside the mistakes it is there for.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import EXACT, MODELS, SIZES, make_batch, make_federation, play, same, start

from fedref import tree
from fedref.algorithm import Algorithm, ClientResult, Cohort, weighted_mean
from fedref.algorithms.fedavg import FedAvg, FedAvgUpdate, adapt
from fedref.algorithms.fedcurv import ClientState, CurvServer, FedCurv, Local, penalty
from fedref.algorithms.fedmeta import (
    MAML,
    Adam,
    Learner,
    maml_gradient,
    maml_objective,
    meta_sgd_gradient,
    server_step,
)
from fedref.algorithms.fedprox import FedProx, adapt_mu, objective, prox_gradient
from fedref.algorithms.importance import fisher
from fedref.algorithms.per_fedavg import PerFedAvg, local_step, meta_gradient, meta_gradient_hf
from fedref.checks import complex_step_gradient, relative_error
from fedref.models import LinearSVM
from fedref.models.batch import Batch
from fedref.rounds.evaluation import Scores, evaluate, score
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, adaptation_rows, make_plan, minibatches

MODEL = MODELS["mlp"]
CONFIG = Sampling(len(SIZES), epochs=2, batch_size=4)


def given_data(*sizes: int, seed: int = 0):
    """(w, another point, a batch of each size)."""
    rng = np.random.default_rng(seed)
    w, w0 = rng.normal(size=(2, MODEL.d))
    return w, w0, *(make_batch(MODEL, rng, n) for n in sizes)


def local_batches(plan, federation, role, k):
    """The mini-batches of the k-th client of a plan, without padding."""
    own = federation.train.of(plan.clients[k])
    return [federation.batch(own[r[r >= 0]]) for r in plan.rows[role][k, : plan.steps[k]]]


def one_round(algorithm, config=CONFIG, sizes=SIZES):
    """(w before, w after, plan, federation) of a round."""
    federation = make_federation(MODEL, sizes)
    plan = make_plan(config, federation.train.sizes, 0, 0, algorithm.roles)
    begin = start(algorithm, MODEL)
    after, _ = run_round(algorithm, MODEL, begin, plan, federation)
    return begin, after, plan, federation


# -- 1, 2: FedProx's penalty


def check_prox_gradient(gradient: Callable) -> None:
    """It is the complex step of F + (μ/2)Σ(w − w₀)²."""
    w, w0, D = given_data(5)

    def h(w):
        return MODEL.loss(w, D) + 0.7 / 2 * np.sum((w - w0) ** 2)

    assert relative_error(gradient(MODEL, w, w0, D, mu=0.7), complex_step_gradient(h, w)) <= EXACT


def unsquared_norm(model, w, w0, D, *, mu):
    """∇ (μ/2)‖w − w₀‖: of constant length, however far away w is."""
    return model.grad(w, D) + mu / 2 * (w - w0) / np.sqrt(np.sum((w - w0) ** 2))


def check_prox_objective(h: Callable) -> None:
    """What is logged differentiates to the gradient that is used."""
    w, w0, D = given_data(5)
    exact = complex_step_gradient(lambda w: h(MODEL, w, w0, D, mu=0.7), w)
    assert relative_error(prox_gradient(MODEL, w, w0, D, mu=0.7), exact) <= EXACT


def logs_the_loss_alone(model, w, w0, D, *, mu):
    """The metric leaves out the penalty that the gradient has."""
    return model.loss(w, D)


# -- 3, 4: second order


def check_maml(gradient: Callable) -> None:
    """It is the gradient through the inner step."""
    theta, _, S, Q = given_data(4, 6)
    exact = complex_step_gradient(
        lambda theta: maml_objective(MODEL, theta, S, Q, alpha=0.3), theta
    )
    assert relative_error(gradient(MODEL, theta, S, Q, alpha=0.3), exact) <= EXACT


def cuts_the_graph(model, theta, S, Q, *, alpha):
    """The inner update is a constant to the outer gradient: exactly FOMAML."""
    return model.grad(theta - alpha * model.grad(theta, S), Q)


def check_meta_sgd(gradient: Callable) -> None:
    """Both blocks are gradients of the objective."""
    theta, alpha, S, Q = given_data(4, 6)
    got = gradient(MODEL, theta, 0.1 * alpha, S, Q)
    for i, x in enumerate((theta, 0.1 * alpha)):

        def f(x, i=i):
            at = (x, 0.1 * alpha) if i == 0 else (theta, x)
            return maml_objective(MODEL, at[0], S, Q, alpha=at[1])

        assert relative_error(got[i], complex_step_gradient(f, x)) <= EXACT


def reuses_the_theta_gradient(model, theta, alpha, S, Q):
    """The θ-gradient is handed to α as well."""
    g_theta, _ = meta_sgd_gradient(model, theta, alpha, S, Q)
    return g_theta, g_theta


# -- 5: the server's Adam


def check_adam(server_step: Callable) -> None:
    """Three rounds by Kingma & Ba's algorithm 1, with plain floats."""
    x, adam = np.array([1.0]), Adam(np.zeros(1), np.zeros(1), 0)
    plain, m, v = 1.0, 0.0, 0.0
    for t, g in enumerate((3.0, -1.0, 0.5), 1):
        x, adam = server_step(x, np.array([g]), adam, beta=0.1)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        plain -= 0.1 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)) ** 0.5 + 1e-8)
        np.testing.assert_allclose(x, [plain], rtol=1e-13)


def rebuilds_adam(x, g, adam, *, beta):
    """New moments every round: ±β whatever the gradient, sign descent."""
    zeros = np.zeros_like(x)
    return server_step(x, g, Adam(zeros, zeros, 0), beta=beta)


# -- 6, 7, 8: who counts for how much


def check_meta_weights(cls: type[MAML]) -> None:
    """As printed θ ← θ − (β/m)Σ g_u; by samples if asked."""
    g = np.array([[1.0, 0.0], [3.0, 8.0]])
    cohort = Cohort(np.array([0, 1]), np.array([1, 1]), np.array([10, 30]))
    for weighting, p in (("uniform", [0.5, 0.5]), ("samples", [0.25, 0.75])):
        algorithm = cls(weighting=weighting, beta=2.0)
        server = algorithm.initial(MODEL, np.zeros(2))
        after = algorithm.combine(MODEL, server, Learner(g), cohort)
        np.testing.assert_allclose(after.learner.theta, -2 * (np.array(p) @ g), rtol=1e-14)


@dataclass(frozen=True)
class WeighsByCount(MAML):
    """Support + query counts as weights, where the document has 1/m."""

    def combine(self, model, server, uploads, cohort):
        return replace(MAML(beta=self.beta), weighting="samples").combine(
            model, server, uploads, cohort
        )


@dataclass(frozen=True)
class AddsALossToACount(MAML):
    """Weights n_u + loss_u: two things of different kind."""

    def combine(self, model, server, uploads, cohort):
        p = cohort.n + uploads.theta.sum(-1)
        g = weighted_mean(p / p.sum(), uploads.theta)
        return server._replace(learner=Learner(server.learner.theta - self.beta * g))


def check_sample_weights(cls: type[FedAvg]) -> None:
    """The server's average weighs by n_k."""
    begin, after, plan, federation = one_round(cls(lr=0.2))
    ends = []
    for k in range(len(SIZES)):
        w = begin.server.w
        for D in local_batches(plan, federation, "D", k):
            w = w - 0.2 * MODEL.grad(w, D)
        ends.append(w)
    p = np.array(SIZES) / sum(SIZES)
    assert relative_error(after.server.w, p @ np.array(ends)) <= EXACT


@dataclass(frozen=True)
class WeighsByBatches(FedAvg):
    """len(dataloader) instead of len(dataset)."""

    def combine(self, model, server, uploads, cohort):
        return super().combine(model, server, uploads, cohort._replace(n=-(-cohort.n // 4)))


def check_mu_0_is_fedavg(cls: type[FedProx]) -> None:
    """With all defaults but μ = 0, bit for bit."""
    _, prox, _, _ = one_round(cls(mu=0.0))
    _, avg, _, _ = one_round(FedAvg(lr=FedProx().lr))
    assert same(prox.server.w, avg.server.w)


@dataclass(frozen=True)
class AveragesUniformly(FedProx):
    """FedProx averages uniformly while FedAvg weights by samples."""

    weighting: str = "uniform"


# -- 9, 10: local steps


@dataclass(frozen=True)
class NeverZeroesTheGradient(FedAvg):
    """The gradient of the last step is applied once more (local: w and what has accumulated)."""

    def start(self, model, sent, client_state):
        return sent.w, np.zeros_like(sent.w)

    def step(self, model, sent, local, *batches):
        w, g = local
        g = g + model.grad(w, batches[0])
        return w - self.lr * g, g

    def finish(self, model, sent, local, client_state, data):
        return ClientResult(local[0])


def check_small_clients_move(cls: type[PerFedAvg]) -> None:
    """n = 1, n < B, n = B: the round ends where eq.5 and eq.6 lead."""
    for n in (1, 3, 4):
        algorithm = cls(alpha=0.1, beta=0.2)
        begin, after, plan, federation = one_round(
            algorithm, Sampling(1, steps=1, batch_size=4), (n,)
        )
        batches = [local_batches(plan, federation, role, 0)[0] for role in algorithm.roles]
        w = begin.server.w
        expected = w - 0.2 * meta_gradient(MODEL, w, *batches, alpha=0.1)
        assert relative_error(after.server.w, expected) <= EXACT
        assert not np.array_equal(after.server.w, w)


@dataclass(frozen=True)
class SkipsSmallClients(PerFedAvg):
    """A client without a full batch makes no step, but its vote still counts."""

    def step(self, model, sent, local, *batches):
        full = batches[0].y.shape[-1] >= 4
        return super().step(model, sent, local, *batches) if full else local


def check_every_row_is_used(minibatches: Callable) -> None:
    """An epoch holds every row once, for any n and B."""
    for n in (1, 3, 4, 7):
        config = Sampling(1, epochs=1, batch_size=4)
        rows = minibatches(np.random.default_rng(0), n, config, 1)
        assert sorted(rows[rows >= 0].tolist()) == list(range(n))


def drops_the_last_batch(rng, n, config, amount):
    """drop_last=True: with n < B there is no batch at all."""
    rows = minibatches(rng, n, config, amount)
    return rows[: amount * (n // config.batch_size)]


# -- 11: α and β


def check_alpha_and_beta(cls: type[PerFedAvg]) -> None:
    """α is the inner step and β the outer one."""
    algorithm = cls(alpha=0.4, beta=0.05)
    begin, after, plan, federation = one_round(algorithm, Sampling(1, steps=1, batch_size=4), (9,))
    D, D1, D2 = (local_batches(plan, federation, role, 0)[0] for role in algorithm.roles)
    w = begin.server.w
    u = MODEL.grad(w - 0.4 * MODEL.grad(w, D), D1)
    assert relative_error(after.server.w, w - 0.05 * (u - 0.4 * MODEL.hvp(w, u, D2))) <= EXACT


@dataclass(frozen=True)
class AlphaIsBeta(PerFedAvg):
    """One learning rate serves as both."""

    def gradient(self, model, w, *batches):
        return meta_gradient(model, w, *batches, alpha=self.beta)


def check_beta_0(cls: type[PerFedAvg]) -> None:
    """β = 0 moves nothing: four clients of weight ¼ keep even the bits."""
    begin, after, _, _ = one_round(cls(beta=0.0), replace(CONFIG, clients_per_round=4))
    assert same(after.server.w, begin.server.w)


@dataclass(frozen=True)
class FallsBackToTheLearningRate(PerFedAvg):
    """`beta or lr`: 0 is taken for "not given"."""

    def step(self, model, sent, local, *batches):
        return local_step(local, self.gradient(model, local, *batches), beta=self.beta or 0.05)


# -- 12, 13: evaluation


def check_evaluation(evaluate: Callable) -> None:
    """Every client: from the global model, one step on its own training rows, then its test rows."""
    algorithm, federation = FedAvgUpdate(alpha=0.5), make_federation(MODEL)
    state = start(algorithm, MODEL)
    got = evaluate(algorithm, MODEL, state, federation, CONFIG, round=1, seed=0)
    again = evaluate(algorithm, MODEL, state, federation, CONFIG, round=1, seed=0)
    for k, n in enumerate(SIZES):
        rows = federation.train.of(k)[adaptation_rows(CONFIG, "D", n, k, 1, 0)]
        w = adapt(MODEL, state.server.w, federation.batch(rows), alpha=0.5)
        loss, accuracy = score(MODEL, w, federation.batch(federation.test.of(k)))
        np.testing.assert_allclose(got.test_loss[k], loss, rtol=1e-13)
        assert got.accuracy[k] == accuracy
    assert same(tuple(got), tuple(again))


def adapts_on_test_rows(algorithm, model, state, federation, sampling, **key):
    """The step before the test is made on test rows, labels and all."""
    cheating = replace(federation, train=federation.test)
    return evaluate(algorithm, model, state, cheating, sampling, **key)


def trains_while_it_evaluates(algorithm, model, state, federation, sampling, *, round, seed):
    """The steps are not undone: each client starts from where the last one ended."""
    w, N = state.server.w, federation.clients
    loss, accuracy = np.zeros(N), np.zeros(N)
    for k in range(N):
        rows = federation.train.of(k)
        chosen = rows[adaptation_rows(sampling, "D", len(rows), k, round, seed)]
        w = adapt(model, w, federation.batch(chosen), alpha=algorithm.alpha)
        loss[k], accuracy[k] = score(model, w, federation.batch(federation.test.of(k)))
    return Scores(federation.test.sizes, accuracy, loss, federation.train.sizes, loss)


# -- 14, 15: Fisher and FedCurv


def check_fisher(fisher: Callable) -> None:
    """The mean over samples of squared gradients of each sample alone."""
    w, _, D = given_data(11)
    squares = [
        complex_step_gradient(lambda w, j=j: MODEL.loss(w, Batch(D.X[j : j + 1], D.y[j : j + 1])), w)
        ** 2
        for j in range(11)
    ]  # fmt: skip
    assert relative_error(fisher(MODEL, w, D), np.mean(squares, 0)) <= EXACT


def fisher_of_the_last_batch(model, w, D):
    """The loop overwrites what it should add to."""
    return fisher(model, w, Batch(D.X[8:], D.y[8:]))


def fisher_of_the_mean(model, w, D):
    """(Σ g)² instead of Σ g²."""
    return model.grad(w, D) ** 2


def fisher_of_batches(model, w, D):
    """The mean of squared *batch* gradients: depends on the batch size and on the order."""
    parts = np.array_split(np.arange(len(D.y)), 4)
    return np.mean([model.grad(w, Batch(D.X[p], D.y[p])) ** 2 for p in parts], 0)


def check_own_term(cls: type[FedCurv]) -> None:
    """One local step follows Σ_{j≠s}, for a client in the previous cohort and for one that was not."""
    rng = np.random.default_rng(0)
    I, theta_j = rng.uniform(size=(4, MODEL.d)), rng.normal(size=(4, MODEL.d))
    w, _, D = given_data(5)
    for own_round, others, cohort in ((6, [0, 1], [0, 1, 3]), (2, [0, 1], [0, 1])):
        sent = CurvServer(w, I[cohort].sum(0), (I * theta_j)[cohort].sum(0), t=7)
        client_state = ClientState(I[3], I[3] * theta_j[3], own_round)
        algorithm = cls(lr=0.1, lam=0.5)
        local = algorithm.step(MODEL, sent, algorithm.start(MODEL, sent, client_state), D)

        def f(theta, others=others):
            pairs = [(I[j], theta_j[j]) for j in others]
            return MODEL.loss(theta, D) + penalty(theta, pairs, lam=0.5)

        assert relative_error(local.theta, w - 0.1 * complex_step_gradient(f, w)) <= EXACT


@dataclass(frozen=True)
class AlwaysSubtractsItself(FedCurv):
    """The own term is taken from a sum it is no part of: negative curvature."""

    def start(self, model, sent, client_state):
        return Local(sent.w, client_state.I, client_state.v)


@dataclass(frozen=True)
class NeverSubtractsItself(FedCurv):
    """The other way round: a client is pulled to its own last solution too."""

    def start(self, model, sent, client_state):
        return Local(sent.w, np.zeros_like(sent.w), np.zeros_like(sent.w))


# -- 16, 17: plans


def check_batches_are_independent(make_plan: Callable) -> None:
    """Of 8 rows, two batches of 4 share some as often as chance has it, and are rarely the same."""
    config = Sampling(1, steps=1, batch_size=4)
    drawn = []
    for seed in range(60):
        plan = make_plan(config, np.array([8]), 0, seed, ("D", "D1", "D2"))
        drawn.append([set(plan.rows[role][0, 0].tolist()) for role in ("D", "D1", "D2")])
    for a, b in ((0, 1), (0, 2), (1, 2)):
        shared = np.array([len(one[a] & one[b]) for one in drawn])
        assert abs(shared.mean() - 2) < 0.5  # hypergeometric: mean 2
        assert np.mean(shared == 4) < 0.1  # 1 in 70
        assert np.mean(shared == 0) < 0.1


def one_wrapping_iterator(config, sizes, round, seed, roles):
    """D, D′, D″ are the next three batches of one loader, which starts again when it is empty."""
    epochs = replace(config, steps=None, epochs=1)
    plan = make_plan(epochs, sizes, round, seed, ("D",))
    rows, n = plan.rows["D"], plan.steps[0]
    return plan._replace(rows={role: rows[:, [i % n]] for i, role in enumerate(roles)})


def check_stragglers(make_plan: Callable) -> None:
    """Neither who straggles nor for how long depends on how many rows anyone has."""
    config = Sampling(6, epochs=20, stragglers=0.9)
    sizes = np.array([5, 9, 2, 7, 4, 6])
    one, other = (make_plan(config, n, 3, 0) for n in (sizes, sizes[::-1]))
    assert one.straggler.tolist() == other.straggler.tolist()
    assert one.amount.tolist() == other.amount.tolist()
    assert (one.amount[one.straggler] < 20).any()


def epochs_from_the_client_before(config, sizes, round, seed):
    """The shared generator was moved on by shuffling the client before."""
    plan = make_plan(config, sizes, round, seed)
    before = np.roll(plan.sizes, 1)
    amount = np.where(plan.straggler, 1 + before * 7 % config.epochs, plan.amount)
    return plan._replace(amount=amount)


def check_seed(make_plan: Callable) -> None:
    """Another seed has other cohorts."""
    config, sizes = Sampling(3, epochs=1), np.arange(1, 10)
    one, other = (
        [make_plan(config, sizes, t, s).clients.tolist() for t in range(9)] for s in (0, 1)
    )
    assert one != other


def cohort_from_the_round_alone(config, sizes, round, seed):
    """np.random.seed(round) before the cohort is drawn: --seed never gets there."""
    return make_plan(config, sizes, round, 0)


def check_few_epochs(make_plan: Callable) -> None:
    """E = 1, 2, 3 with stragglers: defined, between 1 and E epochs."""
    for epochs in (1, 2, 3):
        config = Sampling(6, epochs=epochs, stragglers=0.9)
        try:
            plan = make_plan(config, np.arange(1, 7), 0, 0)
        except Exception as error:
            raise AssertionError(f"E = {epochs}: {error}") from error
        assert ((plan.amount >= 1) & (plan.amount <= epochs)).all()


def needs_two_epochs(config, sizes, round, seed):
    """randint(1, E) without E: an empty range at E = 1."""
    plan = make_plan(config, sizes, round, seed)
    less = np.random.default_rng(seed).integers(1, config.epochs, len(plan.clients))
    return plan._replace(amount=np.where(plan.straggler, less, plan.amount))


# -- 18: losses


def check_l2(cls: type[LinearSVM]) -> None:
    """The L2 term is in loss, gradient and HVP, once."""
    rng = np.random.default_rng(0)
    with_l2, without = cls(3, l2=0.3, squared=True), LinearSVM(3, squared=True)
    D, (w, v) = make_batch(without, rng, 6), rng.normal(size=(2, 4))
    assert np.isclose(with_l2.loss(w, D), without.loss(w, D) + 0.15 * w @ w, rtol=1e-13)
    np.testing.assert_allclose(with_l2.grad(w, D), without.grad(w, D) + 0.3 * w, rtol=1e-12)
    np.testing.assert_allclose(with_l2.hvp(w, v, D), without.hvp(w, v, D) + 0.3 * v, rtol=1e-12)


class DeclaresL2(LinearSVM):
    """An option that is read from the command line and then forgotten."""

    def grad(self, w, D):
        return super().grad(w, D) - self.l2 * w


def check_mean_loss(cls: type[LinearSVM]) -> None:
    """Every sample twice: the same loss and gradient."""
    rng = np.random.default_rng(0)
    model = cls(3, squared=True)
    D, w = make_batch(model, rng, 6), rng.normal(size=4)
    twice = Batch(np.concatenate([D.X, D.X]), np.concatenate([D.y, D.y]))
    np.testing.assert_allclose(model.loss(w, twice), model.loss(w, D), rtol=1e-13)
    np.testing.assert_allclose(model.grad(w, twice), model.grad(w, D), rtol=1e-12)


class SumsTheHinge(LinearSVM):
    """A sum here and a mean there: the learning rate then depends on the batch size."""

    def loss(self, w, D):
        return super().loss(w, D) * D.y.shape[-1]

    def grad(self, w, D):
        return super().grad(w, D) * D.y.shape[-1]


# -- 19: Hessian free


def check_hf(hf: Callable) -> None:
    """It comes to the exact gradient as δ², and is close at its default δ."""
    w, _, D, D1, D2 = given_data(5, 6, 7)
    exact = meta_gradient(MODEL, w, D, D1, D2, alpha=0.3)
    assert relative_error(hf(MODEL, w, D, D1, D2, alpha=0.3), exact) < 1e-5
    deltas = np.array([1e-3, 1e-2])
    errors = [
        relative_error(hf(MODEL, w, D, D1, D2, alpha=0.3, delta=delta), exact) for delta in deltas
    ]
    assert 1.9 < np.log10(errors[1] / errors[0]) < 2.1


def flipped_sign(model, w, D, D1, D2, *, alpha, delta=1e-3):
    """u + αd."""
    u = model.grad(w - alpha * model.grad(w, D), D1)
    return 2 * u - meta_gradient_hf(model, w, D, D1, D2, alpha=alpha, delta=delta)


def divided_by_delta(model, w, D, D1, D2, *, alpha, delta=1e-3):
    """A central difference over δ instead of 2δ: twice the curvature."""
    u = model.grad(w - alpha * model.grad(w, D), D1)
    return u - alpha * (model.grad(w + delta * u, D2) - model.grad(w - delta * u, D2)) / delta


def check_hf_in_float32(delta: float) -> None:
    """The Hessian term is right to 1 % in float32."""
    w, _, D, D1, D2 = given_data(5, 6, 7)
    w, D, D1, D2 = (
        x.astype(np.float32) if isinstance(x, np.ndarray) else Batch(x.X.astype(np.float32), x.y)
        for x in (w, D, D1, D2)
    )
    u = MODEL.grad(w - np.float32(0.3) * MODEL.grad(w, D), D1)
    got = (u - meta_gradient_hf(MODEL, w, D, D1, D2, alpha=0.3, delta=delta)) / np.float32(0.3)
    assert got.dtype == np.float32
    assert relative_error(got, MODEL.hvp(w, u, D2)) < 0.01


# -- 20: adaptive μ


def check_adapt_mu(adapt_mu: Callable) -> None:
    """Eleven falls lower μ twice, at the fifth and at the tenth."""
    mu, falls, seen = 1.0, 0, []
    for t in range(11):
        mu, falls = adapt_mu(mu, falls, -t, -t - 1)
        seen.append(mu)
    np.testing.assert_allclose(seen, [1] * 4 + [0.9] * 5 + [0.8] * 2, rtol=1e-14)


def never_resets_the_counter(mu, falls, before, loss):
    """From the fifth fall on, μ falls every round."""
    if loss > before:
        return mu + 0.1, 0
    falls = falls + 1 if loss < before else 0
    return (max(mu - 0.1, 0.0) if falls >= 5 else mu), falls


class Mistake(NamedTuple):
    check: Callable[[Any], None]
    right: Any
    mutant: Any


MISTAKES = {
    "01 unsquared norm": Mistake(check_prox_gradient, prox_gradient, unsquared_norm),
    "02 logged objective": Mistake(check_prox_objective, objective, logs_the_loss_alone),
    "03 MAML that is FOMAML": Mistake(check_maml, maml_gradient, cuts_the_graph),
    "04 alpha gets theta's gradient": Mistake(
        check_meta_sgd, meta_sgd_gradient, reuses_the_theta_gradient
    ),
    "05 Adam rebuilt every round": Mistake(check_adam, server_step, rebuilds_adam),
    "06 weights by support and query": Mistake(check_meta_weights, MAML, WeighsByCount),
    "06 loss added to a count": Mistake(check_meta_weights, MAML, AddsALossToACount),
    "07 weights by batches": Mistake(check_sample_weights, FedAvg, WeighsByBatches),
    "08 FedProx uniform, FedAvg weighted": Mistake(
        check_mu_0_is_fedavg, FedProx, AveragesUniformly
    ),
    "09 gradient never zeroed": Mistake(check_sample_weights, FedAvg, NeverZeroesTheGradient),
    "10 small clients vote unmoved": Mistake(
        check_small_clients_move, PerFedAvg, SkipsSmallClients
    ),
    "10 drop_last": Mistake(check_every_row_is_used, minibatches, drops_the_last_batch),
    "11 alpha is beta": Mistake(check_alpha_and_beta, PerFedAvg, AlphaIsBeta),
    "11 beta 0 replaced": Mistake(check_beta_0, PerFedAvg, FallsBackToTheLearningRate),
    "12 adapts on test rows": Mistake(check_evaluation, evaluate, adapts_on_test_rows),
    "13 evaluation trains": Mistake(check_evaluation, evaluate, trains_while_it_evaluates),
    "14 Fisher of the last batch": Mistake(check_fisher, fisher, fisher_of_the_last_batch),
    "14 Fisher as squared mean": Mistake(check_fisher, fisher, fisher_of_the_mean),
    "14 Fisher of four batches": Mistake(check_fisher, fisher, fisher_of_batches),
    "15 own term always subtracted": Mistake(check_own_term, FedCurv, AlwaysSubtractsItself),
    "15 own term never subtracted": Mistake(check_own_term, FedCurv, NeverSubtractsItself),
    "16 one wrapping iterator": Mistake(
        check_batches_are_independent, make_plan, one_wrapping_iterator
    ),
    "17 epochs depend on a size": Mistake(
        check_stragglers, make_plan, epochs_from_the_client_before
    ),
    "17 seed ignored": Mistake(check_seed, make_plan, cohort_from_the_round_alone),
    "17 crash at E = 1": Mistake(check_few_epochs, make_plan, needs_two_epochs),
    "18 L2 declared, not applied": Mistake(check_l2, LinearSVM, DeclaresL2),
    "18 sum of losses": Mistake(check_mean_loss, LinearSVM, SumsTheHinge),
    "19 HF sign flipped": Mistake(check_hf, meta_gradient_hf, flipped_sign),
    "19 HF divided by delta": Mistake(check_hf, meta_gradient_hf, divided_by_delta),
    "19 HF delta in float32": Mistake(check_hf_in_float32, 1e-2, 1e-6),
    "20 counter not reset": Mistake(check_adapt_mu, adapt_mu, never_resets_the_counter),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_our_check_accepts_the_right_implementation(name):
    MISTAKES[name].check(MISTAKES[name].right)


@pytest.mark.parametrize("name", MISTAKES)
def test_our_check_rejects_the_mutant(name):
    with pytest.raises(AssertionError):
        MISTAKES[name].check(MISTAKES[name].mutant)


def test_all_twenty_mistakes_are_there():
    assert {int(name[:2]) for name in MISTAKES} == set(range(1, 21))


def test_every_mutant_that_is_an_algorithm_runs():
    """A mutant is wrong, not broken: its run ends, and what it learns is finite."""
    mutants = {m.mutant for m in MISTAKES.values() if isinstance(m.mutant, type)}
    mutants = {cls for cls in mutants if issubclass(cls, Algorithm)}
    assert len(mutants) == 10
    federation = make_federation(MODEL)
    for cls in mutants - {AlwaysSubtractsItself}:  # that one needs a client's second round
        states, _ = play(cls(), MODEL, federation, CONFIG, rounds=2)
        assert tree.finite(states[-1].server)
        assert not same(states[-1].server, states[0].server)
