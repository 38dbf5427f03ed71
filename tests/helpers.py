"""Small models, batches and federations that the tests are run on."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedref import Batch
from fedref.algorithm import State
from fedref.conformance.backends.reference import LOOP
from fedref.draws.sources import federation_of
from fedref.judge import errata, make_case
from fedref.judge.case import build_model
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic, tree
from fedref.rounds.federation import Federation, Part
from fedref.rounds.loop import run_clients, run_round
from fedref.sampling import Sampling, make_plan, stream

MODELS = {
    "binary-logistic": BinaryLogistic(3),
    "logistic": Logistic(3, 3, l2=0.1),
    "svm": LinearSVM(3, l2=0.1, squared=True),
    "mlp": MLP(3, (4,), 3),
    "cnn": CNN(image=(5, 5), channels=(2,), kernel=2, hidden=3, classes=2),
    "lstm": LSTM(vocabulary=3, classes=2, length=3, embedding=2, hidden=(2,), l2=0.1),
}


def make_batch(model, rng, n: int, lead=(), weights: bool = False) -> Batch:
    """Make n random samples (for each of the leading axes), read-only; some weights are 0.

    Features are about ½ in size: where a softmax is saturated, a gradient of 1e-100 has no digits.
    """
    shape = *lead, n, model.features
    if model.inputs == "codes":  # with padding among them
        X = rng.integers(0, model.vocabulary + 1, shape, np.uint8)
    else:
        X = 0.5 * rng.normal(size=shape)
    y = rng.choice(model.labels, (*lead, n))
    s = None
    if weights:
        s = rng.uniform(0.2, 2.0, (*lead, n)) * (rng.uniform(size=(*lead, n)) < 0.7)
        s[..., 0] = 1.0
    return tree.freeze(Batch(X, y, s))


#: Small models of numbers: those above, and another activation, pooling or hinge.
NUMERIC = {name: model for name, model in MODELS.items() if model.inputs == "numbers"} | {
    "hinge": LinearSVM(3, l2=0.1),
    "mlp relu": MLP(3, (4,), 3, "relu", l2=0.1),
    "mlp tanh": MLP(3, (4, 2), 3, "tanh", l2=0.1),
    "cnn mean": CNN((7, 6, 2), (2,), 2, 4, 3, "tanh", "mean", l2=0.1),
}
every_model = pytest.mark.parametrize("model", NUMERIC.values(), ids=NUMERIC)


def make_point(model, n: int = 7, w_lead=(), X_lead=(), weights: bool = False, seed: int = 0):
    """Return random w, v (*w_lead, d) and a batch (*X_lead, n), with scores of at most 3.

    At p = 1 − 1e-4, p − 1 keeps 12 digits, in the complex step as in ours.
    """
    rng = np.random.default_rng(seed)
    w, v = rng.standard_normal((2, *w_lead, model.d))
    D = make_batch(model, rng, n, X_lead, weights)
    return w * min(1, 3 / np.abs(model.logits(w, D.X)).max()), v, Batch(*map(np.copy, D[:2]), D.s)


def worst_error(got, expected) -> float:
    """Return the largest error over the last axis, relative to its largest entry; the worst row's."""
    assert got.shape == expected.shape
    scale = np.abs(expected).max(-1)
    return (np.abs(got - expected).max(-1) / np.where(scale > 0, scale, 1)).max()


SIZES = (7, 1, 12, 3, 5)


def make_federation(model, sizes=SIZES, test=3) -> Federation:
    """Make clients with `sizes` training rows and `test` test rows, anywhere in the source; read-only."""
    rng, tests = np.random.default_rng(0), np.broadcast_to(test, len(sizes))
    D, rows = (
        f(sum(sizes) + sum(tests)) for f in (partial(make_batch, model, rng), rng.permutation)
    )
    ends = (np.cumsum([0, *n]) for n in (sizes, tests))
    whole = federation_of(model, D.X, D.y, *ends)
    train, held_out = (Part(rows[part.rows], part.offsets) for part in (whole.train, whole.test))
    return replace(whole, train=train, test=held_out)


def start(algorithm, model) -> State:
    """Return the state before round 0, with a random w that is not 0 for any model."""
    rng = stream(0, "init")
    w = model.init(rng) + 0.3 * rng.normal(size=model.d)
    return State(tree.freeze(algorithm.initial(model, tree.freeze(w))), {})


def play(algorithm, model, federation, config: Sampling, rounds: int = 3, work=run_clients):
    """Run rounds 0, 1, ... on read-only values; return (states, logs)."""
    states, logs = [start(algorithm, model)], []
    for t in range(rounds):
        plan = make_plan(config, federation.train.sizes, t, 0, algorithm.roles)
        state, log = run_round(algorithm, model, states[-1], plan, federation, work=work)
        if algorithm.watches_loss:
            state = state._replace(
                server=algorithm.observe_loss(state.server, (3.0, 2.0, 2.5)[t % 3])
            )
        tree.freeze((state.server, *state.clients.values()))
        states.append(state)
        logs.append(log)
    return states, logs


def same(a, b) -> bool:
    """Whether two trees are equal to the bit, types and shapes included."""
    if isinstance(a, tuple | list) or isinstance(b, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


class Changed:
    """A backend: fedref with a call's outputs changed, (outputs, inputs) → outputs."""

    def __init__(self, call, change):
        self.call, self.change = call, change

    def __getattr__(self, name):
        if name != self.__dict__["call"]:
            raise AttributeError(name)
        right = getattr(LOOP, name)
        return lambda *args, **inputs: self.change(right(*args, **inputs), inputs)


class Mistaken:
    """A backend: the specification with known mistakes, of these calls."""

    def __init__(self, calls, *names):
        self.calls, self.names = calls, names

    def __getattr__(self, call):
        def answer(*about, **inputs):
            algorithm, model, hyper = about if len(about) == 3 else ("", *about, {})
            case = make_case(call, build_model(model), inputs, algorithm, hyper)
            return errata.answer(case, *self.names)

        if call not in self.__dict__["calls"]:
            raise AttributeError(call)
        return answer
