"""Each wrong line, made in the running code, is the mistake that the conformance suite knows."""

from dataclasses import replace

import numpy as np
import pytest

from fedref.algorithm import Server, State
from fedref.algorithms import fedavg, per_fedavg
from fedref.conformance import suite
from fedref.conformance.backends.reference import LOOP, Reference
from fedref.conformance.mistakes import MISTAKES, AdaptsOnTest, EvaluationTrains, OtherPlan
from fedref.models import Logistic
from fedref.rounds import evaluation
from fedref.rounds.federation import Federation, Part, Source
from fedref.sampling import Sampling, make_plan
from fedref.teach import damage, mistakes, mistakes_page, source

#: Mistakes of the Plan and of the evaluation: golden vectors are handed these, see below.
PLANS = [name for name, known in MISTAKES.items() if type(known.backend) is OtherPlan]
PLANS += ["D, D′ and D″ are the same rows"]
EVALUATED = ["adapted to the test batch", "evaluation trains"]
REST = [n for n in MISTAKES if n not in (*PLANS, *EVALUATED) and mistakes.EDITS[n].instead is None]


def test_there_is_an_edit_and_a_run_for_each():
    assert list(mistakes.EDITS) == list(damage.RUNS) == list(MISTAKES)
    assert len(REST) >= 20


@pytest.mark.parametrize("name", REST)
def test_the_suite_names_the_mistake_that_the_edit_makes(name):
    """In some golden vector it is the only explanation, of all that came out or of what must."""
    cases = mistakes.catching(name)
    with mistakes.made(mistakes.EDITS[name], rows=4):
        replies = [suite.call_safely(LOOP, case) for case in cases]
    found = []
    for case, reply in zip(cases, replies):
        required = {key: x for key, x in reply.outputs.items() if key in case.required}
        found += [suite.grade(reply._replace(outputs=x), case) for x in (reply.outputs, required)]
    assert any(result.mistakes == (name,) for result in found)
    after = [suite.grade(suite.call_safely(LOOP, case), case) for case in cases]
    assert {result.status for result in after} == {suite.PASSED}  # the edit is undone


@pytest.mark.parametrize("name", PLANS)
def test_the_edit_draws_the_plan_of_the_mistake(name):
    hyper = {"B": 4}
    sizes = np.array([3, 9, 4, 6, 13, 22])
    sampling = Sampling(len(sizes), epochs=3, batch_size=4, stragglers=0.7)
    backend, roles = MISTAKES[name].backend, ("D", "D1", "D2")
    right = make_plan(sampling, sizes, 2, 5, roles)
    with mistakes.made(mistakes.EDITS[name], rows=4):
        wrong = make_plan(sampling, sizes, 2, 5, roles)
    expected = backend.plan_of("per-fedavg", hyper, right._asdict())
    assert wrong.steps.tolist() == expected["steps"].tolist()
    moved = wrong.steps.tolist() != right.steps.tolist()
    for role, rows in expected["rows"].items():
        moved |= not np.array_equal(right.rows[role], wrong.rows[role])
        for k, steps in enumerate(expected["steps"]):
            got, want = (x[k, :steps] for x in (wrong.rows[role], rows))
            assert got[got >= 0].tolist() == want[want >= 0].tolist()
    assert moved


def plain(D):
    return {"X": D.X, "y": D.y}


@pytest.fixture
def tested():
    """Three clients with the same training rows, each with test rows of its own."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), rng.integers(0, 2, 20)
    train, test = np.tile(np.arange(8), 3), np.arange(8, 20)
    parts = Part(train, np.array([0, 8, 16, 24])), Part(test, np.array([0, 4, 8, 12]))
    w = rng.normal(size=Logistic(3, 2).d)
    return Federation(Source(X, y), *parts), State(Server(w), {}), w


@pytest.mark.parametrize("name", EVALUATED)
def test_the_edit_evaluates_as_the_mistake_does(name, tested):
    """A client after the other is as a test batch after the other: their training rows are the same."""
    federation, state, w = tested
    model, it = Logistic(3, 2), fedavg.FedAvgUpdate(alpha=0.7)

    def losses():
        return evaluation.evaluate(
            it, model, state, federation, Sampling(2, epochs=1, batch_size=0), round=0, seed=0,
            train=False,
        ).test_loss  # fmt: skip

    right = losses()
    with mistakes.made(mistakes.EDITS[name]):
        wrong = losses()
    kind = {"adapted to the test batch": AdaptsOnTest, "evaluation trains": EvaluationTrains}[name]
    assert type(MISTAKES[name].backend) is kind
    tests = [plain(federation.batch(federation.test.of(k))) for k in range(3)]
    given = {"tests": tests, "D": plain(federation.batch(federation.train.of(0)))}
    description = {"name": "logistic", "features": 3, "classes": 2, "l2": 0.0, "dtype": "float64"}
    call = "fedavg-update", description, {"alpha": 0.7}
    for backend, got in ((Reference(), right), (MISTAKES[name].backend, wrong)):
        backend = replace(backend)
        object.__setattr__(backend, "model_of", lambda _: model)
        expected = backend.evaluate(*call, server={"w": w}, **given)["losses"]
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert not np.allclose(right, wrong)


@pytest.mark.parametrize("name", MISTAKES)
def test_the_lines_are_those_of_the_source(name):
    edit = mistakes.EDITS[name]
    found = mistakes.lines(edit)
    assert found.right
    assert found.wrong
    assert found.right != found.wrong
    file, _, line = found.where.partition(":")
    text = (source.ROOT / file).read_text("utf-8").splitlines()[int(line) - 1 :]
    for shown, stands in zip(found.right, text):
        assert stands.split("# [")[0].split("# noqa")[0].strip() == shown.strip()


def test_a_line_that_has_changed_is_noticed():
    edit = mistakes.Edit(per_fedavg.local_step, "w + beta * meta_gradient", "w")
    with pytest.raises(ValueError, match="local_step holds"):
        mistakes.edited(edit)


def test_a_run_has_the_mistake_and_the_next_one_has_not():
    name = "FedMAML averages"
    pair = damage.series(name)
    assert pair.right[0] == pair.wrong[0]
    assert pair.wrong[-1] > 1.2 * pair.right[-1]
    assert damage.RUNS[name].values(LOOP) == pair.right


def test_the_page_counts_the_runs_that_look_healthy():
    unharmed = mistakes_page.unharmed()
    for name, run in damage.RUNS.items():
        right, wrong = damage.series(name)
        healthy = "loss" in run.y and len(wrong) == len(right) and wrong[-1] <= right[-1]
        assert (name in unharmed) == healthy
    assert 0 < len(unharmed) < len(MISTAKES) / 2
