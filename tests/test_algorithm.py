"""Weights, the server's average, and options that are refused."""

from dataclasses import asdict, dataclass, fields

import numpy as np
import pytest
from federating import experiment_of, far, near, same_parameters
from helpers import MODELS

from fedref import ConfigError
from fedref.algorithm import (
    Algorithm,
    ClientResult,
    Cohort,
    Server,
    weighted_mean,
    weighted_sum,
)
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedavg import FedAvg


def test_weighted_sum_adds_in_client_order():
    """In float32, (10⁸ + 1) − 10⁸ is 0 from the left and 1 from the right."""
    w = np.array([[1e8], [1.0], [-1e8]], np.float32)
    assert weighted_sum(np.ones(3, np.float32), w) == 0
    assert weighted_mean(np.array([0.25, 0.75]), np.array([[4.0], [8.0]])) == 7.0


def test_cohort_weights():
    cohort = Cohort(np.array([0, 3, 4]), np.array([1, 2, 1]), np.array([10, 5, 20]), 6)
    np.testing.assert_array_equal(cohort.weights("samples"), [0.25, 0.25, 0.5])
    np.testing.assert_array_equal(cohort.weights("uniform"), [0.25, 0.5, 0.25])
    with pytest.raises(ConfigError, match="did you mean 'samples'"):
        cohort.weights("sample")


@dataclass(frozen=True)
class CountsClients(FedAvg):
    """Keeps N where w would be."""

    def combine(self, model, server, uploads, cohort):
        return Server(np.full_like(server.w, cohort.N))


def test_a_server_knows_how_many_clients_there_are_here_and_over_a_network(tmp_path):
    named = {"algorithm": f"{__name__}:CountsClients"}
    experiment = experiment_of(rounds=1, algorithms={"counts": named})
    run = near(tmp_path, experiment)
    assert set(run.records[0].state.server.w) == {7}
    assert same_parameters(run, far(tmp_path, experiment)[0])


AVERAGE = {"weighting": "samples", "drop": True}
UNIFORM = {"weighting": "uniform", "drop": True}
META = {**UNIFORM, "alpha": 0.1, "beta": 0.05, "inner_steps": 1}
PER_FEDAVG = {**UNIFORM, "alpha": 0.1, "beta": 0.05, "inner_steps": 1}
FEDOPT = {**AVERAGE, "lr": 0.05, "server_lr": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}
#: A change of one of these changes what a run without options does.
DEFAULTS = {
    "fedavg": {**AVERAGE, "lr": 0.05},
    "fedavg-update": {**AVERAGE, "lr": 0.05, "alpha": 0.1, "inner_steps": 1},
    "fedavg-meta": {**AVERAGE, "lr": 0.05, "alpha": 0.1, "inner_steps": 1},
    "fedprox": {
        "weighting": "samples", "drop": False, "lr": 0.05, "mu": 1.0, "adaptive_mu": False,
        "until_gamma": 0.0, "measure_gamma": True,
    },
    "per-fedavg": PER_FEDAVG,
    "per-fedavg-fo": PER_FEDAVG,
    "per-fedavg-hf": {**PER_FEDAVG, "delta": 1e-3},
    "fedmeta-maml": {**META, "server": "sgd", "episodes": "one"},
    "fedmeta-fomaml": {**META, "server": "sgd", "episodes": "one"},
    "fedmeta-sgd": {**META, "server": "sgd", "episodes": "one"},
    "fedmaml": {**META, "weighting": "samples", "evaluate": "theta"},
    "fedcurv": {**AVERAGE, "lr": 0.05, "lam": 1.0},
    "apfl": {
        **AVERAGE, "lr": 0.05, "mu": 1.0, "lam": 1.0, "z": 2, "init": "paper",
        "importance": "gradient-square", "delta_mu": 1.0, "delta_sigma": 0.5, "window": 5,
    },
    "centralised": {**AVERAGE, "lr": 0.05},
    "scaffold": {**UNIFORM, "lr": 0.05, "server_lr": 1.0, "control": "difference"},
    "apfl-deng": {**UNIFORM, "lr": 0.05, "alpha": 0.5, "adaptive_alpha": True},
    "feddyn": {**UNIFORM, "lr": 0.05, "alpha": 0.1},
    "fedadagrad": {**FEDOPT, "beta1": 0.0},
    "fedyogi": FEDOPT,
    "fedadam": FEDOPT,
    "fedavgm": {**AVERAGE, "lr": 0.05, "momentum": 0.9},
    "fednova": {**AVERAGE, "drop": False, "lr": 0.05},
    "pfedme": {**UNIFORM, "lr": 0.05, "lam": 15.0, "alpha": 0.05, "inner_steps": 5, "beta": 1.0},
}  # fmt: skip
#: One step's batches where they are not D alone.
ROLES = {
    "per-fedavg": ("D", "D1", "D2"),
    "per-fedavg-fo": ("D", "D1"),
    "per-fedavg-hf": ("D", "D1", "D2"),
    **dict.fromkeys(("fedmeta-maml", "fedmeta-fomaml", "fedmeta-sgd", "fedmaml"), ("S", "Q")),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_defaults_and_roles(name):
    algorithm = ALGORITHMS[name]()
    assert asdict(algorithm) == DEFAULTS[name]
    assert [type(v) for v in asdict(algorithm).values()] == [
        type(v) for v in DEFAULTS[name].values()
    ]
    assert algorithm.roles == ROLES.get(name, ("D",))
    assert algorithm.pooled == (name == "centralised")
    assert algorithm.watches_loss == (name == "apfl")
    assert not algorithm.stops_early


@pytest.mark.parametrize(
    ("name", "option", "good", "bad"),
    [
        ("apfl", "lam", (0.0, 1.0), (-1e-9, 1.0 + 1e-9)),
        ("apfl", "window", (1,), (0,)),
        ("apfl", "z", (0,), (-1,)),
        ("per-fedavg-hf", "delta", (1e-12, 1.0), (0.9e-12, 1.01)),
        ("fedmaml", "inner_steps", (1,), (0,)),
        ("per-fedavg", "inner_steps", (1,), (0,)),
        ("fedmeta-maml", "inner_steps", (0,), (-1,)),
        ("apfl-deng", "alpha", (0.0, 1.0), (-1e-9, 1.0 + 1e-9)),
        ("fedadam", "beta1", (0.0, 1.0), (-1e-9, 1.0 + 1e-9)),
        ("fedyogi", "beta2", (0.0, 1.0), (-1e-9, 1.0 + 1e-9)),
        ("fedavgm", "momentum", (0.0, 1.0), (-1e-9, 1.0 + 1e-9)),
        ("pfedme", "inner_steps", (1,), (0,)),
        ("fedavg", "lr", (0.0, 1e300), (-1e-300, float("inf"), float("nan"))),
    ],
)
def test_the_ends_of_a_range_belong_to_it(name, option, good, bad):
    for value in good:
        assert getattr(ALGORITHMS[name](**{option: value}), option) == value
    for value in bad:
        with pytest.raises(ConfigError, match=f"^{option.replace('_', '-')} is "):
            ALGORITHMS[name](**{option: value})


#: Every option that takes words, and its words.
WORDS = {
    "weighting": ("samples", "uniform"),
    "server": ("sgd", "adam"),
    "episodes": ("one", "epochs"),
    "evaluate": ("theta", "theta1"),
    "init": ("paper", "continuous"),
    "importance": ("gradient-square", "fisher", "mas", "si"),
    "control": ("difference", "gradient"),
}


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, f.name) for name in ALGORITHMS for f in fields(ALGORITHMS[name])
     if isinstance(f.default, str)],
)  # fmt: skip
def test_the_words_that_an_option_takes(name, option):
    words = WORDS[option]
    for word in words:
        assert getattr(ALGORITHMS[name](**{option: word}), option) == word
    message = f"unknown {option} 'xyz': known are {', '.join(sorted(words))}"
    with pytest.raises(ConfigError, match=message):
        ALGORITHMS[name](**{option: "xyz"})


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("apfl", "lam", 2.0, "lam is 2.0, expected a finite number, at least 0 and at most 1"),
        ("fedmaml", "inner_steps", 0, "inner-steps is 0, expected a whole number, at least 1"),
        # what the equations divide by
        ("feddyn", "alpha", 0, "alpha is 0, expected a finite number, above 0"),
        ("fednova", "lr", 0.0, "lr is 0.0, expected a finite number, above 0"),
        ("scaffold", "lr", 0.0, "lr is 0.0, expected a finite number, above 0"),
        *(
            (name, "tau", 0.0, "tau is 0.0, expected a finite number, above 0")
            for name in ("fedadagrad", "fedyogi", "fedadam")
        ),
    ],
)
def test_a_range_is_said_in_words(name, option, value, message):
    with pytest.raises(ConfigError) as error:
        ALGORITHMS[name](**{option: value})
    assert str(error.value) == message


def test_the_defaults_of_an_algorithm_are_fedavg_s():
    model, w = MODELS["svm"], np.arange(4.0)
    plain = Algorithm()
    server = plain.initial(model, w)
    assert (server, plain.download(server)) == (Server(w), server)
    assert plain.start(model, server, None) is w
    assert plain.personalised_params(model, server, None, None) is w
    assert plain.stop(model, server, w, None) is False
    assert plain.finish(model, server, w, None, None) == ClientResult(w, None, {})
    assert (plain.client_metrics(model, server, w, None), plain.server_metrics(server)) == ({}, {})
    assert plain.observe_loss(server, 1.0) is server
    with pytest.raises(NotImplementedError):
        plain.step(model, server, w)


def test_what_is_not_said_is_as_in_fedavg():
    said = (Algorithm.roles, Algorithm.personalised, Algorithm.adapts_on, Algorithm.pooled)
    assert said == (("D",), False, None, False)
