"""The specification answers the golden cases, which other code made; and what ran can be read."""

import inspect
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from golden import GOLDEN

from fedref import spec
from fedref.algorithm import Cohort
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedopt import FedOptServer
from fedref.judge import answer, make_case, trace
from fedref.judge.compare import compare, difference
from fedref.models import BinaryLogistic, Logistic


@pytest.mark.slow
def test_the_specification_answers_the_golden_cases():
    """`fedref check` has them with their numbers moved: tests/proofs, which is quicker."""
    for case in GOLDEN.values():
        assert compare(answer(case), case) is None, case.name


def test_without_any_weight_the_l2_term_is_left():
    model, w, v = Logistic(2, 3, l2=0.5), np.linspace(-1, 1, 9), np.linspace(1, 2, 9)
    D = {"X": np.ones((3, 2)), "y": np.array([0, 2, 1]), "s": np.zeros(3)}
    for call, given, right in (
        ("loss", {}, 0.25 * w @ w),
        ("grad", {}, 0.5 * w),
        ("hvp", {"v": v}, 0.5 * v),
    ):
        (left,) = answer(make_case(call, model, {"w": w, **given, "D": D})).values()
        np.testing.assert_allclose(left, right, atol=1e-15)


def test_what_the_specification_does_not_have_is_not_answered():
    whole = GOLDEN["round-fedadam-mlp"]
    hyper = whole.hyper | {"weighting": "uniform"}
    with pytest.raises(NotImplementedError):
        answer(whole._replace(hyper=hyper))


#: What the training loss moves, which is known after the server's half.
WATCHED = {
    f"server.{name}"
    for name in ("mu", "falls", "loss", "renew", "window", "mean_old", "std_old", "peak")
}


@pytest.mark.parametrize("name", [name for name, case in GOLDEN.items() if case.part])
def test_a_half_is_its_part_of_its_round_and_the_specification_answers_it(name):
    """The round in the index has the same numbers; the weights are those of the uploads."""
    case = GOLDEN[name]
    whole, t, *client = case.part
    found = GOLDEN[whole].outputs
    mine = {
        n.replace("client.", f"clients.{client[0]}.") if client else n: x
        for n, x in case.outputs.items()
    }
    if case.call == "client":
        at = np.flatnonzero(GOLDEN[whole].inputs[f"plans.{t}.clients"] == client[0])[0]
        late = GOLDEN[whole].inputs[f"plans.{t}.straggler"] & GOLDEN[whole].hyper["drop"]
        at -= late[:at].sum()
    for key, x in mine.items():
        if key.startswith("upload."):
            want = found[f"{t}.uploads.{key.removeprefix('upload.')}"][at]
        elif f"{t}.{key}" in found and key not in WATCHED:
            want = found[f"{t}.{key}"]
        else:
            continue
        assert difference(np.asarray(x), want) <= 1e-12, key
    if case.call == "aggregate":
        uploads = {len(x) for n, x in case.inputs.items() if n.startswith("uploads.")}
        sizes = {len(case.inputs["n"]), len(case.inputs["counts"])}
        assert uploads == sizes
        if "p" in case.outputs:
            assert {len(case.outputs["p"])} == uploads
            assert case.outputs["p"].sum() == pytest.approx(1, abs=1e-15)
    outputs = answer(case)
    assert {*case.required} <= outputs.keys()
    assert all(
        difference(np.asarray(outputs[n]), x) <= 1e-12
        for n, x in case.outputs.items()
        if n in outputs
    )


def test_each_half_but_the_twins_names_its_round():
    for name, case in GOLDEN.items():
        assert bool(case.part) == (
            case.call in ("client", "aggregate") and not name.endswith("-no-l2")
        )


def test_the_lines_that_ran_are_shown_with_their_values():
    D = {"X": np.ones((1, 1)), "y": np.array([1])}
    inputs = {"w": np.zeros(1), "D": D, "D1": D, "D2": D}
    hyper = {"alpha": 0.5, "beta": 1.0}
    case = make_case("meta_gradient", BinaryLogistic(1, bias=False), inputs, "per-fedavg", hyper)
    lines = trace(lambda: answer(case))
    assert [line.function for line in lines] == ["meta_gradient"] * 2
    assert lines[0].text == "u = f.grad(w - alpha * f.grad(w, D), D1)"
    assert lines[1].comment.startswith("[per-fedavg eq.6]")
    source = inspect.getsource(spec).splitlines()
    assert all(line.text in source[line.number - 1] for line in lines)
    u = -1 / (1 + np.exp(0.25))  # the gradient at 0 is −1/2, so the adapted w is 1/4
    np.testing.assert_allclose(lines[0].values["u"], [u])
    np.testing.assert_allclose(lines[1].values["return"], [u - 0.5 * 0.25 * u])  # H = 1/4


def test_a_round_is_traced_step_by_step():
    case = GOLDEN["round-fedprox-binary"]
    lines = trace(lambda: answer(case))
    steps = [line for line in lines if line.text.startswith("w_k = w_k - eta * prox_gradient")]
    plan = case.arguments()["plans"][0]
    assert len(steps) == plan["steps"].sum()
    (end,) = [line.values["return"] for line in lines if line.text.startswith("yield")]
    np.testing.assert_array_equal(end[0], answer(case)["0.server.w"])


#: Algorithm → function → the required outputs that are a state: who never updates it fails.
STATES = {
    "scaffold": {"client": ["client.c_i"], "aggregate": ["server.c"], "round": ["server.c"]},
    "feddyn": {"client": ["client.h_k"], "aggregate": ["server.h"], "round": ["server.h"]},
    "apfl": {"client": ["client.a", "client.w_k"]},
    "apfl-deng": {"client": ["client.v", "client.a"], "round": ["v", "a"]},
    "fedavgm": {"aggregate": ["server.v"], "round": ["server.v"]},
    **{
        name: {call: ["server.m", "server.v"] for call in ("aggregate", "round")}
        for name in ("fedadagrad", "fedyogi", "fedadam")
    },
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_is_never_updated_fails(name):
    for call, states in STATES[name].items():
        own = [c for c in GOLDEN.values() if (c.algorithm, c.call) == (name, call)]
        for state in states:
            assert any(moves(case, state) for case in own), (call, state)


def moves(case, state):
    """Whether a required state leaves what it was before by more than 100 tolerances."""
    before = next((x for n, x in case.inputs.items() if n.endswith(state)), None)
    ends = [n for n in case.required if n.split(".")[-1] == state.split(".")[-1]]
    if case.algorithm == "apfl-deng" and case.call == "round":  # a client that takes part twice
        mine = [n for n in ends if n.split(".")[2] == ends[0].split(".")[2]]
        return any(
            difference(case.outputs[a], case.outputs[b]) > 100 * case.tolerance["float64"]
            for a, b in pairwise(mine)
        )
    far = 100 * case.tolerance["float64"]
    return before is not None and any(difference(before, case.outputs[n]) > far for n in ends)


@pytest.mark.parametrize("name", ["fedadam", "fedyogi"])
def test_the_servers_half_corrects_the_bias_of_the_round_that_it_is_in(name):
    case, t = GOLDEN[f"aggregate-{name}"], 2
    hyper = case.hyper | {"bias_correction": True}
    inputs = case.inputs | {"server.t": np.array(t)}
    after = answer(case._replace(hyper=hyper, inputs=inputs))
    it = ALGORITHMS[name](**{f.name: hyper[f.name] for f in fields(ALGORITHMS[name])})
    cohort = Cohort(np.arange(len(inputs["n"])), inputs["counts"], inputs["n"], len(inputs["n"]))
    server = FedOptServer(*(inputs[f"server.{x}"] for x in "wmv"), t)
    right = it.combine(None, server, inputs["uploads.w"], cohort)
    for x in "wmv":
        np.testing.assert_allclose(after[f"server.{x}"], getattr(right, x), rtol=1e-12)
    assert after["server.t"] == right.t == t + 1
    m, v = right.m / (1 - it.beta1**3), right.v / (1 - it.beta2**3)  # Kingma and Ba
    step = it.server_lr * m / (np.sqrt(v) + it.tau)
    np.testing.assert_allclose(right.w - server.w, step, rtol=1e-10)


def test_the_servers_momentum_forgets_in_each_function_of_fedadagrad():
    for call in ("round", "client", "aggregate"):
        own = [c for c in GOLDEN.values() if (c.algorithm, c.call) == ("fedadagrad", call)]
        assert any(case.hyper["beta1"] > 0 for case in own), call
