"""The specification: what it prints is what `fedref run` computes, and what it may not depend on."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fedref import run, spec
from fedref.algorithm import State
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedavg import FedAvgMeta
from fedref.draws.sources import federation_of
from fedref.models import Logistic
from fedref.rounds.evaluation import evaluate_unseen

PATH = Path(spec.__file__)
run_toy = cache(spec.run_toy)
#: What `spec.run_toy` states, as fields of the algorithms.
FIELDS = {"lr": spec.ETA, "alpha": spec.ALPHA, "beta": spec.BETA}
MORE = {"pfedme": {"lam": spec.LAM}}


def toy():
    """The toy as a Federation: all training rows, then all test rows."""
    _, train, tests = spec.make_toy()
    X, y = (np.concatenate([D[i] for D in (*train, *tests)]) for i in (0, 1))
    ends = [np.cumsum([0, *(len(D.y) for D in some)]) for some in (train, tests)]
    return federation_of(Logistic(3, 3), X, y, *ends)


@pytest.mark.slow
def test_its_table_is_what_fedref_run_computes():
    assert run_toy().keys() == ALGORITHMS.keys()
    algorithms = {
        name: {key: x for key, x in FIELDS.items() if hasattr(cls(), key)} | MORE.get(name, {})
        for name, cls in ALGORITHMS.items()
    }
    result = run(
        {"algorithms": algorithms}, data=toy(), model="logistic", rounds=spec.ROUNDS,
        clients_per_round=5, epochs=2, batch_size=spec.B, stragglers=0.4, support=spec.SUPPORT,
        seeds=[spec.SEED],
    )  # fmt: skip
    for name, printed in run_toy().items():
        ends = [result.curve(name, column)[1][0, -1] for column in ("test_loss", "accuracy")]
        assert ends == pytest.approx(printed, rel=1e-12), name


def test_a_new_client_is_tested_as_in_a_run():
    f, *parts = spec.make_toy()
    it, model, w = FedAvgMeta(alpha=0.5), Logistic(3, 3), np.linspace(-1, 1, 12)
    state, how = State(it.initial(model, w), {}), {"support": 0.5, "seed": 3}
    got = evaluate_unseen(it, model, state, toy(), np.arange(2), **how)
    for k, halves in zip(range(2), zip(*parts)):
        D = spec.Batch(*map(np.concatenate, zip(*halves)))
        loss, accuracy = spec.evaluate_unseen(f, lambda S: spec.adapt(f, w, S, 0.5), D, k=k, **how)
        assert got.test_loss[k] == pytest.approx(loss, rel=1e-12)
        assert got.accuracy[k] == accuracy


@pytest.mark.slow
def test_the_command_prints_it():
    done = subprocess.run(
        [sys.executable, "-m", "fedref.spec"], capture_output=True, text=True, check=True
    )
    _, *lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*run_toy()]
    for line, (loss, accuracy) in zip(lines, run_toy().values()):
        assert line.split()[1:] == [f"{loss:.6f}", f"{accuracy:.1%}"]
    assert not done.stderr


def test_it_needs_numpy_and_the_standard_library_alone_and_is_read_in_a_sitting():
    """The papers come first and are short; six more algorithms, and then the models, follow them."""
    text = PATH.read_text("utf-8")
    imported = set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE))
    assert imported - sys.stdlib_module_names == {"numpy"}
    assert len(text.partition("# ==== Part two")[0].splitlines()) <= 530
    assert len(text.partition('if __name__ == "__main__"')[0].splitlines()) <= 1110


def test_a_gradient_is_the_slope_of_its_function_row_by_row_too():
    x = np.array([[0.3, -1.2], [0.7, 2.0]])
    slope = spec.gradient(lambda x: sum((row**3).sum() for row in x), x)
    np.testing.assert_allclose(slope, 3 * x**2, rtol=1e-15)


def test_large_scores_do_not_overflow_and_of_equal_maxima_the_first_has_the_slope():
    z, y = np.array([800.0, -800.0]), np.array([0, 1])
    np.testing.assert_array_equal(spec.logistic_loss(z, y), [800, 800])
    assert spec.cross_entropy(np.array([[900.0, 0.0]]), np.array([1])) == 900
    assert spec.elu(np.array([800.0]))[0] == 800
    slopes = spec.gradient(lambda z: spec.first_max(z.reshape(4, 1)).sum(), np.zeros(4))
    np.testing.assert_array_equal(slopes, [1, 0, 0, 0])


def test_dual_numbers_name_the_operations_that_they_know():
    """fedref.checks, where it is imported, adds rules."""
    known = r"no rule for np\.sinh; it has some for (\w+, )*add, (\w+, )*argmax, (\w+, )*where$"
    with pytest.raises(TypeError, match=known):
        spec.gradient(np.sinh, np.array([1.0]))
