"""Exercises: a right answer is never rejected, a wrong one never accepted, and the solution never shown."""

import re

import numpy as np
import pytest

from fedref.boundary.errors import ConfigError
from fedref.teach import exercises
from fedref.teach.exercises import EXERCISES

NAME = "answer.py"


def fill(name, expression, formula=False):
    """The file of an exercise with this expression in its gap."""
    head, mark, code = exercises.student_file(EXERCISES[name], formula).rpartition('"""\n\nfrom')
    return head + mark + code.replace("...", expression)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_right_answer_is_right_and_is_not_in_the_file(name):
    one = EXERCISES[name]
    assert exercises.verdict(fill(name, f"1 * ({one.missing})"), NAME) == (True, ["right"])
    for formula in (False, True):
        text = exercises.student_file(one, formula)
        assert one.missing not in text
        assert "(0, 0) →" not in text  # the worked example has no zero


#: Answers whose mistake has no name.
MORE = {
    "proximal": ["mu * norm(w - w_t)", "-mu"],
    "meta-gradient": ["u + alpha * f.hvp(w, u, D2)", "f.grad(w, D)", "alpha", "u.sum()"],
    "curvature": ["v", "self.grad(w, D)", "1j * v", "np.imag(v)"],
    "hessian-free": ["f.grad(u, D2)", "delta * u", "(w + u) / 2"],
    "step": ["w_k", "w_k - eta"],
    "mask": ["2 * (w_s * sigmoid(a)[unit] + w_k)"],
}


@pytest.mark.parametrize("name", EXERCISES)
def test_a_wrong_answer_gets_its_numbers_and_if_it_is_known_its_words(name):
    right, more = EXERCISES[name].missing, dict.fromkeys(MORE.get(name, ()), "")
    for expression, words in (EXERCISES[name].slips | more).items():
        accepted, lines = exercises.verdict(fill(name, expression), NAME)
        said = "\n".join(lines)
        assert not accepted
        assert lines[0] == "not right"
        assert words in lines or not words, (expression, said)
        assert right not in said
        assert ("yours gives" in said and "right is" in said) or "Error" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (exercises.student_file(EXERCISES["proximal"]), "not finished: line"),
        (fill("proximal", "mu / 2 *"), "SyntaxError"),
        (fill("proximal", "nobody"), "NameError: name 'nobody' is not defined"),
        (fill("proximal", "'a'"), "Error"),
        (fill("proximal", "exit()"), "SystemExit"),
        (fill("proximal", "0").replace("def prox_gradient", "def other"), "is not defined"),
    ],
)
def test_what_does_not_run_is_said_in_a_line(text, said):
    right, lines = exercises.verdict(text, NAME)
    assert not right
    assert said in "\n".join(lines)


OWN = """
[server-step]
function = "fedavgm"
missing = "momentum * v + delta"
subject = ["round", "fedavgm"]
trains = "momentum on the server"
[server-step.slips]
"momentum * v" = "the change of this round is missing"
"""


def test_an_exercise_of_one_s_own():
    own = exercises.read(OWN, "mine.toml")
    text = exercises.student_file(own["server-step"])
    assert exercises.verdict(text.replace("v = ...", "v = momentum * v + delta"), NAME, own)[0]
    _, lines = exercises.verdict(text.replace("v = ...", "v = momentum * v"), NAME, own)
    assert lines[1] == "the change of this round is missing"
    for old, new in (("fedavgm", "fedavgn"), ("* v + delta", "* v - delta"), ("trains", "train")):
        with pytest.raises(ConfigError, match=r"mine\.toml: server-step"):
            exercises.read(OWN.replace(old, new, 1), "mine.toml")


def judged(name, text):
    """Return whether an answer in the place of the missing expression is right, and what is said."""
    right, lines = exercises.verdict(fill(name, text), NAME)
    return right, " ".join(lines)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("curvature", "self.hvp(w, v, D)", "the specification's own function"),
        ("meta-sgd", "f(x[0] - x[1] * f.grad(x[0], S), Q)", "on a drawn case"),
        ("mask", "(w_s * sigmoid(a)[unit] + w_k).real", "without .real"),
        ("mask", "w_s * sigmoid(a.real)[unit] + w_k", "without .real"),
    ],
)
def test_what_is_no_answer_is_refused(name, text, words):
    right, said = judged(name, text)
    assert not right
    assert words in said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("proximal", "mu / 2 * norm(w - w_t) ** 2"),
        ("meta-gradient", "[u_i - alpha * h for u_i, h in zip(u, f.hvp(w, u, D2))]"),
        ("curvature", "gradient(lambda w: self.grad(w, D) @ v, w)"),
    ],
)
def test_other_forms_of_an_answer_are_right(name, text):
    assert judged(name, text) == (True, "right")


def test_numbers_that_differ_far_behind_are_shown_with_all_digits():
    _, said = judged(
        "curvature", "(self.grad(w + 1e-6 * v, D) - self.grad(w - 1e-6 * v, D)) / 2e-6"
    )
    yours, right = re.search(r"yours gives (.*), right is (.*)", said, re.S).groups()
    assert yours != right


def test_an_array_for_a_tuple_is_taken():
    assert np.array_equal(exercises.like(([1.0, 2], [3.0, 4]), np.zeros((2, 2))), [[1, 2], [3, 4]])
