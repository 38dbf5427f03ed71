"""Per-FedAvg: exact, first order, Hessian free."""

import numpy as np
import pytest
from helpers import (
    EXACT,
    KINDS,
    MODELS,
    VALUES,
    cases,
    make_algorithm,
    make_batch,
    make_federation,
    play,
    same,
    start,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from fedref import tree
from fedref.algorithm import Server
from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.per_fedavg import (
    PerFedAvg,
    PerFedAvgFO,
    PerFedAvgHF,
    local_step,
    meta_gradient,
    meta_gradient_fo,
    meta_gradient_hf,
    meta_gradient_steps,
    meta_objective,
)
from fedref.checks import complex_step_gradient, complex_step_hvp, relative_error
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, make_plan

VARIANTS = {"per-fedavg": PerFedAvg, "per-fedavg-fo": PerFedAvgFO, "per-fedavg-hf": PerFedAvgHF}
ALPHAS = st.sampled_from([0.0, 0.01, 0.1])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(st.data())
def test_per_fedavg_eq_1_without_an_inner_step_the_objective_is_fedavg_s(kind, data):
    case = data.draw(cases(kind))
    D = case.batch()
    assert same(meta_objective(case.model, case.w, D, alpha=0.0), case.model.loss(case.w, D))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(st.data(), ALPHAS)
def test_per_fedavg_eq_2_is_the_loss_after_one_gradient_step(kind, data, alpha):
    case = data.draw(cases(kind))
    model, w, D = case.model, case.w, case.batch()
    after = w - alpha * complex_step_gradient(lambda w: model.loss(w, D), w)
    assert relative_error(meta_objective(model, w, D, alpha=alpha), model.loss(after, D)) <= EXACT


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12)
@given(st.data(), ALPHAS)
def test_per_fedavg_eq_3_is_the_gradient_of_eq_2(kind, data, alpha):
    case = data.draw(cases(kind))
    model, w, D = case.model, case.w, case.batch()
    exact = complex_step_gradient(lambda w: meta_objective(model, w, D, alpha=alpha), w)
    assert relative_error(meta_gradient(model, w, D, D, D, alpha=alpha), exact) <= EXACT


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(st.data())
def test_per_fedavg_eq_4_a_batch_gradient_is_the_mean_over_its_samples(kind, data):
    case = data.draw(cases(kind, (((), ()),)))
    D = case.batch()
    s = np.ones(len(D.y)) if D.s is None else D.s
    mean = (s / s.sum()) @ case.model.grad(case.w, D.per_sample()._replace(s=None))
    assert relative_error(case.model.grad(case.w, D), mean) <= EXACT


def test_per_fedavg_eq_5_local_step():
    w, g = np.array([1.0, 2.0]), np.array([10.0, -4.0])
    np.testing.assert_array_equal(local_step(w, g, beta=0.5), [-4.0, 4.0])
    np.testing.assert_array_equal(local_step(w, g, beta=0.0), w)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12)
@given(st.data(), ALPHAS)
def test_per_fedavg_eq_6_on_three_different_batches(kind, data, alpha):
    """u by the gradient at the adapted point, H(w; D″)u by complex step through the gradient."""
    case = data.draw(cases(kind))
    model, w = case.model, case.w
    D, D1, D2 = case.batch(), case.batch(), case.batch()
    u = model.grad(w - alpha * model.grad(w, D), D1)
    exact = u - alpha * complex_step_hvp(lambda w: model.grad(w, D2), w, u)
    got = meta_gradient(model, w, D, D1, D2, alpha=alpha)
    assert relative_error(got, exact) <= EXACT

    # with D″ = D it is the gradient of f(w − α∇f(w; D); D′)
    exact = complex_step_gradient(lambda w: model.loss(w - alpha * model.grad(w, D), D1), w)
    assert relative_error(meta_gradient(model, w, D, D1, D, alpha=alpha), exact) <= EXACT


@pytest.mark.parametrize("kind", ["binary-logistic", "logistic", "mlp"])
def test_per_fedavg_eq_7_hf_converges_to_exact_with_slope_2(kind):
    """The error falls as δ² (α fixed); on smooth models, δ from where rounding plays no part."""
    model, rng = MODELS[kind], np.random.default_rng(0)
    w = rng.normal(size=model.d)
    D, D1, D2 = (make_batch(model, rng, 6) for _ in range(3))
    exact = meta_gradient(model, w, D, D1, D2, alpha=0.3)
    deltas = np.logspace(-3, -1.5, 7)
    errors = [
        np.abs(meta_gradient_hf(model, w, D, D1, D2, alpha=0.3, delta=delta) - exact).max()
        for delta in deltas
    ]
    slope = np.polyfit(np.log(deltas), np.log(errors), 1)[0]
    assert slope == pytest.approx(2, abs=0.05)
    assert relative_error(meta_gradient_hf(model, w, D, D1, D2, alpha=0.3), exact) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(st.data())
def test_per_fedavg_eq_8_is_the_central_difference(kind, data):
    """With α = 1, u − HF = d; the difference itself is written out here, with δ and −δ apart."""
    case = data.draw(cases(kind))
    model, w = case.model, case.w
    D, D1, D2 = case.batch(), case.batch(), case.batch()
    u = meta_gradient_fo(model, w, D, D1, alpha=0.2)
    ahead, behind = model.grad(w + 0.01 * u, D2), model.grad(w - 0.01 * u, D2)
    got = meta_gradient_hf(model, w, D, D1, D2, alpha=0.2, delta=0.01)
    np.testing.assert_allclose(got, u - 0.2 * (ahead - behind) / 0.02, rtol=0, atol=1e-12)


def test_hf_is_exact_where_the_gradient_is_linear():
    """Squared hinge away from its kinks: the central difference has no truncation error."""
    model, rng = MODELS["svm"], np.random.default_rng(1)
    w = 0.01 * rng.normal(size=model.d)  # all margins near 1: every sample is active
    D, D1, D2 = (make_batch(model, rng, 6) for _ in range(3))
    exact = meta_gradient(model, w, D, D1, D2, alpha=0.1)
    got = meta_gradient_hf(model, w, D, D1, D2, alpha=0.1, delta=1e-3)
    assert relative_error(got, exact) <= 1e-11


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(st.data())
def test_per_fedavg_3_3_first_order_drops_the_hessian(kind, data):
    """[per-fedavg §3.3]: FO is u of eq.6; it is the gradient of D′ at the adapted point."""
    case = data.draw(cases(kind))
    model, w, D, D1 = case.model, case.w, case.batch(), case.batch()
    after = w - 0.1 * model.grad(w, D)
    exact = complex_step_gradient(lambda w: model.loss(w, D1), after)
    assert relative_error(meta_gradient_fo(model, w, D, D1, alpha=0.1), exact) <= EXACT


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nu", [1, 2, 5])
@settings(max_examples=6)
@given(st.data())
def test_several_inner_steps_chain_the_factors(kind, nu, data):
    """On a batch of its own for each step, against the complex step of the whole chain."""
    case = data.draw(cases(kind))
    model, D1 = case.model, case.batch()
    Ds = [case.batch() for _ in range(nu)]

    def objective(w):
        for D in Ds:
            w = w - 0.2 * model.grad(w, D)
        return model.loss(w, D1)

    got = meta_gradient_steps(model, case.w, Ds, D1, Ds, alpha=0.2)
    assert relative_error(got, complex_step_gradient(objective, case.w)) <= EXACT


def test_one_inner_step_of_the_chain_is_eq_6_to_the_bit():
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    w = rng.normal(size=model.d)
    D, D1, D2 = (make_batch(model, rng, 6) for _ in range(3))
    got = meta_gradient_steps(model, w, [D], D1, [D2], alpha=0.2)
    assert same(got, meta_gradient(model, w, D, D1, D2, alpha=0.2))
    assert same(meta_gradient_steps(model, w, [], D1, [], alpha=0.2), model.grad(w, D1))


@pytest.mark.parametrize("nu", [2, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_several_inner_steps_by_hand(variant, nu):
    """1 + 2ν batches a step (FO: 1 + ν), each used for what its role says."""
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    algorithm, alpha, delta = make_algorithm(variant, inner_steps=nu), VALUES["alpha"], 1e-3
    named = {role: make_batch(model, rng, 5) for role in algorithm.roles}
    w = rng.normal(size=model.d)
    ws = [w]
    for D in ("D", "D of step 2", "D of step 3")[:nu]:
        ws.append(ws[-1] - alpha * model.grad(ws[-1], named.pop(D)))
    u = model.grad(ws.pop(), named.pop("D1"))
    for w_j, role in zip(ws[::-1], ("D2 of step 3", "D2 of step 2", "D2")[-nu:]):
        if variant == "per-fedavg":
            u = u - alpha * model.hvp(w_j, u, named.pop(role))
        elif variant == "per-fedavg-hf":
            ends = [model.grad(w_j + sign * delta * u, named[role]) for sign in (1, -1)]
            u = u - alpha * (ends[0] - ends[1]) / (2 * delta)
            named.pop(role)
    assert not named
    rng = np.random.default_rng(0)
    batches = [make_batch(model, rng, 5) for _ in algorithm.roles]
    assert relative_error(algorithm.gradient(model, w, *batches), u) <= 1e-12


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_inner_step_is_the_default_and_the_paper_s(variant):
    roles = {"per-fedavg-fo": ("D", "D1")}.get(variant, ("D", "D1", "D2"))
    assert VARIANTS[variant]() == VARIANTS[variant](inner_steps=1)
    assert VARIANTS[variant]().roles == roles


# -- rounds


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_alpha_0_is_sgd_on_the_second_batch_to_the_bit(variant, kind):
    model = MODELS[kind]
    federated = make_federation(model)
    config = Sampling(4, epochs=2, batch_size=4)
    algorithm = make_algorithm(variant, alpha=0.0, beta=0.2)
    plan = make_plan(config, federated.train.sizes, 0, 0, algorithm.roles)
    sgd = plan._replace(rows={"D": plan.rows["D1"]})
    begin = start(algorithm, model)
    got, _ = run_round(algorithm, model, begin, plan, federated)
    expected, _ = run_round(FedAvg(weighting="uniform", lr=0.2), model, begin, sgd, federated)
    assert same(got, expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_beta_0_changes_nothing(variant):
    """Four clients with weight ¼ each: even the average is exact."""
    model = MODELS["mlp"]
    algorithm = make_algorithm(variant, beta=0.0)
    states, _ = play(
        algorithm, model, make_federation(model), Sampling(4, epochs=2, batch_size=4), rounds=2
    )
    assert same(states[-1], states[0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_per_fedavg_alg_1_a_round_by_hand(variant):
    """τ steps on three batches each, then the uniform mean over the cohort."""
    model = MODELS["mlp"]
    federated, algorithm = make_federation(model), make_algorithm(variant)
    alpha, beta = algorithm.alpha, algorithm.beta
    assert alpha != beta
    plan = make_plan(
        Sampling(3, steps=2, batch_size=4), federated.train.sizes, 0, 0, ("D", "D1", "D2")
    )
    rows = {role: plan.rows[role] for role in algorithm.roles}
    begin = start(algorithm, model)
    state, _ = run_round(algorithm, model, begin, plan._replace(rows=rows), federated)
    ends = []
    for k, client in enumerate(plan.clients):
        w = begin.server.w
        for t in range(2):
            D, D1, D2 = (
                federated.batch(federated.train.of(client)[r[r >= 0]])
                for r in (plan.rows[role][k, t] for role in ("D", "D1", "D2"))
            )
            u = model.grad(w - alpha * model.grad(w, D), D1)
            curve = {
                "per-fedavg": lambda w=w, u=u, D2=D2: model.hvp(w, u, D2),
                "per-fedavg-fo": lambda: 0.0,
                "per-fedavg-hf": lambda w=w, u=u, D2=D2: (
                    model.grad(w + 1e-3 * u, D2) - model.grad(w - 1e-3 * u, D2)
                ) / 2e-3,
            }[variant]()  # fmt: skip
            w = w - beta * (u - alpha * curve)
        ends.append(w)
    assert relative_error(state.server.w, np.mean(ends, 0)) <= 1e-11


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_client_tests_after_one_step_of_alpha(variant):
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    algorithm = make_algorithm(variant)
    D, w = make_batch(model, rng, 5), tree.freeze(rng.normal(size=model.d))
    got = algorithm.personal(model, Server(w), None, D)
    once = w - algorithm.alpha * model.grad(w, D)
    assert same(got, once)
    twice = make_algorithm(variant, inner_steps=2).personal(model, Server(w), None, D)
    assert same(twice, once - algorithm.alpha * model.grad(once, D))
    assert same(algorithm.personal(model, Server(w), None, None), w)
    assert algorithm.adapts_on == "D"


def test_hf_takes_the_delta_it_is_given():
    """Far from the default, where the third derivative is seen."""
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    w, batches = rng.normal(size=model.d), [make_batch(model, rng, 5) for _ in range(3)]
    algorithm = PerFedAvgHF(alpha=0.3, delta=0.5)
    got = algorithm.gradient(model, w, *batches)
    assert same(got, meta_gradient_hf(model, w, *batches, alpha=0.3, delta=0.5))
    default = meta_gradient_hf(model, w, *batches, alpha=0.3)
    assert same(PerFedAvgHF(alpha=0.3).gradient(model, w, *batches), default)
    assert relative_error(got, default) > 1e-4


def test_the_document_s_weighting_is_uniform():
    assert {cls().weighting for cls in VARIANTS.values()} == {"uniform"}
