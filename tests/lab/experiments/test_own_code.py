"""An algorithm or a model of somebody's own is never silently wrong: the right numbers, or one clear line."""

import types
from dataclasses import dataclass

import numpy as np
import pytest
from running import contents

import fedref
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedavg import FedAvg
from fedref.algorithms.fedprox import FedProx
from fedref.boundary.errors import FedrefError
from fedref.lab.experiments import own_code
from fedref.lab.experiments.progress import Progress
from fedref.models import MLP, BinaryLogistic

X = np.random.default_rng(0).normal(size=(60, 4))
Y, CLIENT = (X.sum(1) > 0).astype(int), np.repeat(["a", "b", "c"], 20)
HOW = {"rounds": 3, "clients_per_round": 3, "lr": 0.5, "batch_size": 5}


def run(algorithm, **more):
    """Return w after the last round, and all that was said."""
    said = []
    done = fedref.run(algorithm=algorithm, data=(X, Y, CLIENT), model=BinaryLogistic, **HOW, **more,
                      progress=Progress(message=said.append))  # fmt: skip
    return done.records[0].state.server.w, said


def algorithm(step, **functions):
    """Return a class of FedAvg with another step, as a frozen dataclass of this module."""
    kind = type("Own", (FedAvg,), {"step": step, "__module__": __name__, **functions})
    return dataclass(frozen=True)(kind)


def clip_by_the_norm_of_all(it, model, sent, local, D):
    g = model.grad(local, D)
    norm = np.linalg.norm(g)
    return local - it.lr * (g * 0.1 / norm if norm > 0.1 else g)


def clip_by_its_own_norm(it, model, sent, local, D):
    g = model.grad(local, D)
    norm = np.linalg.norm(g, axis=-1, keepdims=True)
    return local - it.lr * g * np.minimum(1, 0.1 / norm)


def mean_over_clients(it, model, sent, local, D):
    g = model.grad(local, D)
    return local - it.lr * (g - 0.5 * g.mean(0))


@pytest.mark.parametrize("step", [clip_by_the_norm_of_all, mean_over_clients])
def test_what_mixes_clients_is_run_one_by_one_and_said(step):
    def alone(it, model, sent, local, D):
        assert local.ndim == 1
        return step(it, model, sent, local, D)

    w, said = run(algorithm(step))
    expected, _ = run(algorithm(alone))
    np.testing.assert_array_equal(w, expected)
    (line,) = said
    assert line.startswith(f"{__name__}:Own: several clients at once give other numbers than one")
    assert " and " in line


def test_right_code_is_stacked_and_nothing_is_said():
    w, said = run(algorithm(clip_by_its_own_norm))
    np.testing.assert_allclose(w, run(algorithm(clip_by_the_norm_of_all))[0], rtol=1e-12)
    assert said == []
    assert run(FedAvg)[1] == []


def test_a_class_without_a_line_of_its_own_is_the_algorithm_that_it_is_derived_from():
    about, said = {"__module__": __name__}, []
    own = {n: dataclass(frozen=True)(type("Own", (cls,), about)) for n, cls in ALGORITHMS.items()}
    how = HOW | {"data": (X, Y, CLIENT), "progress": Progress(message=said.append)}
    one, other = (fedref.run(algorithm=of, **how).records for of in (own, dict(ALGORITHMS)))
    assert [mine.rows for mine in one] == [right.rows for right in other]
    assert not [line for line in said if "Own" in line]


COUNT = [0]


def count_steps(it, model, sent, local, D):
    COUNT[0] += 1
    return local - it.lr / COUNT[0] * model.grad(local, D)


RNG = np.random.default_rng(0)


def draw(it, model, sent, local, D):
    return local - it.lr * (model.grad(local, D) + RNG.normal(size=local.shape))


def keep_on_self(it, model, sent, local, D):
    it.__dict__["n"] = it.__dict__.get("n", 0) + 1
    return local - it.lr / it.n * model.grad(local, D)


@pytest.mark.parametrize("step", [count_steps, draw, keep_on_self])
def test_what_gives_other_numbers_when_it_is_run_again_is_said(step):
    _, said = run(algorithm(step))
    assert [line for line in said if "when it is run again" in line] == said
    assert len(said) == 1


def write_into_local(it, model, sent, local, D):
    local -= it.lr * model.grad(local, D)
    return local


def write_into_the_batch(it, model, sent, local, D):
    D.X[...] = 0
    return local


def write_into_the_server(it, model, server, uploads, cohort):
    server.w[...] = uploads.mean(0)
    return server


@pytest.mark.parametrize(
    "own",
    [algorithm(write_into_local), algorithm(write_into_the_batch),
     algorithm(FedAvg.step, combine=write_into_the_server)],
)  # fmt: skip
def test_what_it_is_given_is_read_only_and_the_line_is_named(own):
    with pytest.raises(FedrefError, match=r"test_own_code\.py, line \d+: .*read-only.* w = w - x"):
        run(own)


CACHE: dict = {}


def cache_on_id(it, model, sent, local, D):
    return local - it.lr * CACHE.setdefault(id(sent.w), model.grad(local, D))


def leave(*_):
    raise SystemExit


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda it, model, sent, local, D: None, "a NoneType, has nothing as w"),
        (lambda it, model, sent, local, D: local + 1j, "complex128"),
        (lambda it, model, sent, local, D: local.mean(-1), r"float64 \(\) as w, expected"),
        (leave, r"test_own_code\.py, line \d+: SystemExit"),
        (cache_on_id, "expected real numbers"),
    ],
)
def test_a_step_that_returns_anything_else_is_an_error(step, words):
    with pytest.raises(FedrefError, match=words):
        run(algorithm(step))


def test_a_number_of_the_server_that_becomes_an_array_is_an_error():
    def combine(it, *given):
        return FedProx.combine(it, *given)._replace(mu=np.ones(2))

    own = dataclass(frozen=True)(
        type("Own", (FedProx,), {"combine": combine, "__module__": __name__})
    )
    with pytest.raises(FedrefError, match=r"float64 \(2,\) as mu, expected real numbers \(\)"):
        run(own(mu=0.5))


def test_a_model_whose_losses_of_samples_mix_is_an_error():
    @dataclass(frozen=True)
    class Mixed(BinaryLogistic):
        def sample_losses(self, w, D):
            losses = super().sample_losses(w, D)
            return losses + losses.sum(-1, keepdims=True)

    with pytest.raises(FedrefError, match="the loss of training row 0 among several is"):
        fedref.run(algorithm="fedavg", data=(X, Y, CLIENT), model=Mixed, **HOW)


@dataclass(frozen=True)
class Late(FedAvg):
    """Mixes clients from the second round on."""

    def step(self, model, sent, local, D):
        g = model.grad(local, D)
        return local - self.lr * (g.mean(0) if local.ndim > 1 and sent.w.any() else g)


def load():
    return X, Y, CLIENT


def test_what_the_first_round_decides_holds_when_the_run_is_resumed(here):
    """Nothing says that clients are mixed later, and a resumed run does the same."""
    how = {**HOW, "algorithm": Late, "data": load, "model": BinaryLogistic}
    fedref.run(**how, out="whole")

    def stop(unit, record):
        if record.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedref.run(**how, out="parts", progress=Progress(round=stop))
    fedref.run(**how, out="parts")
    assert contents(here / "whole") == contents(here / "parts")


@pytest.mark.parametrize("base", [FedAvg, MLP])
def test_a_class_says_itself_that_it_works_for_several_clients(base):
    """Whatever its module is called, and whatever it derives from."""
    derived = type("Derived", (base,), {"__module__": "fedref.algorithms.mine"})
    stacked = types.new_class("Stacked", (base,), {"stacks": True})
    given = (3, (2,), 4) if base is MLP else ()
    assert [own_code.is_own(cls(*given)) for cls in (base, derived, stacked)] == [
        False,
        True,
        False,
    ]
