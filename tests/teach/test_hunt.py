"""The hunt: each planted mistake can be found, and only by a test that the right algorithm passes."""

import itertools
from functools import cache

import pytest

from fedref import spec
from fedref.boundary.errors import ConfigError
from fedref.teach import exercises, hunt

SIGN = "the penalty's sign is turned"
TEST = """
LINE = {line}

from hypothesis import given, strategies as st

@given(st.floats(0.1, 9), st.floats(-9, 9))
def test_the_penalty_draws_to_the_server(mu, w):
    f = Risk(lambda w, X: X @ w, logistic_loss, np.array([0, 1]))
    D = Batch(np.array([[1.0]]), np.array([1]))
    w, w_t = np.array([w]), np.array([0.0])
    pull = prox_gradient(f, w, w_t, D, mu) - f.grad(w, D)
    assert np.allclose(pull, {pull})
"""


@cache
def files():
    """The two files of a hunt for that mistake."""
    return hunt.hunt_files(
        next(hunt.Hunt(n) for n in itertools.count() if hunt.choose(hunt.Hunt(n)) == SIGN)
    )


def judged(line, pull="mu * w"):
    _, page = files().values()
    text = page.partition("#: The number")[0] + TEST.format(line=line, pull=pull)
    return hunt.file_verdict(text, "test_suspect.py", exercises.EXERCISES)


def wrong_line():
    suspect = files()["suspect.py"].splitlines()
    return 1 + next(i for i, line in enumerate(suspect) if "f(w, D) - mu / 2" in line)


def test_a_planted_line_is_found_by_a_test_and_its_smallest_case_is_counted():
    found, lines = judged(wrong_line())
    assert found, lines
    assert "the case has" in lines[1]
    assert int(lines[1].split()[3]) <= 7


def test_the_case_that_is_counted_is_what_the_test_calls_not_what_that_calls():
    calls = []
    _, _, wrong = hunt.plantable()[SIGN]
    suspect = hunt.make_suspect(wrong, calls)
    case = exercises.draw_case("fedprox", 0)
    call = exercises.record_call(exercises.EXERCISES["proximal"], case)
    rounds = [[spec.Client(0, call["D"], [(call["D"],)])]]
    list(suspect.fedprox(call["f"], call["w"], rounds, 0.1, 1.0))
    assert [call.name for call in calls] == ["fedprox"]


@pytest.mark.parametrize(
    ("line", "pull", "said"),
    [(None, "mu * w", "LINE is None: say which"), (1, "mu * w", "line 1 is right"),
     ("'5'", "mu * w", "LINE is '5': say which"),
     (5, "pull", "no function test_... fails"), (5, "-mu * w", "the right algorithm does not pass")],
)  # fmt: skip
def test_what_is_not_found(line, pull, said):
    found, lines = judged(line, pull)
    assert not found
    assert said in "\n".join(lines)


def test_an_algorithm_and_a_level_are_chosen():
    for level in (1, 2):
        asked = hunt.Hunt(7, "per-fedavg-hf" if level == 1 else "fedmeta", level)
        name = hunt.choose(asked)
        assert hunt.plantable()[name][0] == ("per_fedavg" if level == 1 else "fedmeta")
        assert hunt.level_of(name) == level
        page = hunt.hunt_files(asked)[hunt.TEST]
        assert hunt.hunt_of(page) == asked
        _, right, _ = hunt.plantable()[name]
        loop = {line.strip() for line in right.splitlines() if "grad" in line}
        assert not any(line in page for line in loop)  # the formulae alone
    with pytest.raises(ConfigError, match="unknown algorithm"):
        hunt.choose(hunt.Hunt(7, "nope"))
    with pytest.raises(ConfigError, match="no mistake of that level"):
        hunt.choose(hunt.Hunt(7, "fedmaml", 9))


def test_the_module_of_a_suspect_is_what_pytest_imports():
    suspect = hunt.make_suspect(hunt.plantable()[SIGN][2], [])
    assert suspect.Batch is spec.Batch
    assert suspect.fedprox.__name__ == "fedprox"
    text = '"""Hunt 7: x"""\nLINE = 1\ndef test(n): pass'
    assert "test takes n" in str(hunt.file_verdict(text, "t.py", {}))


def test_a_hunt_s_files():
    suspect, test = files().values()
    assert "#" not in suspect
    found, lines = hunt.file_verdict(test, "test_suspect.py", {})
    assert (found, lines[0]) == (False, "not found")
    assert not hunt.file_verdict('"""Hunt 3: x"""\nwhile True: pass', "t.py", {}, 0.3)[0]
    with pytest.raises(ConfigError, match="begins with no 'Exercise NAME:'"):
        hunt.file_verdict(suspect, "t.py", exercises.EXERCISES)
