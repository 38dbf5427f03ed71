"""Exercises: a right answer is never rejected, a wrong one never accepted, and the solution never shown."""

import json
import re
import runpy
import tomllib
from pathlib import Path

import numpy as np
import pytest

from fedref.boundary.errors import ConfigError
from fedref.teach import exercises, verdict
from fedref.teach.exercises import EXERCISES

NAME = "answer.py"
CLASS = json.loads(Path(__file__).with_name("class.json").read_text("utf-8"))
ANSWERS = tomllib.loads(Path(__file__).with_name("answers.toml").read_text("utf-8"))


def fill(name, text):
    """The file of an exercise with this expression in its gap, or after ! in the place of its line."""
    head, mark, code = exercises.student_file(EXERCISES[name]).rpartition('"""\n\nfrom')
    code = (
        re.sub(r"\S.*\.\.\..*", lambda _: text[1:], code)
        if text[0] == "!"
        else code.replace("...", text)
    )
    return head + mark + code


def judged(name, text, seconds=10.0):
    return verdict.verdict(fill(name, text), NAME, seconds=seconds)


@pytest.mark.parametrize("name", EXERCISES)
def test_right_answers_are_right_in_any_form_and_not_in_the_file(name):
    one = EXERCISES[name]
    assert one.missing not in exercises.student_file(one)
    for text in (one.missing, f"1 * ({one.missing})", *ANSWERS[name]["right"]):
        assert judged(name, text) == (True, ["right"]), text


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", EXERCISES)
def test_wrong_answers_are_told_in_words_in_numbers_and_where(name, every):
    one, wrong = EXERCISES[name], ANSWERS[name]["wrong"]
    for text, words in [*(one.slips | wrong).items()][::every]:
        accepted, lines = judged(name, text, 0.5 if "while" in text else 10.0)
        said = "\n".join(lines)
        assert not accepted, text
        assert words in said, (text, said)
        assert not any(one.missing in line for line in lines if line[:8] != "yours is"), text
        assert ("yours gives" in said and "right is" in said) or words, text
        code = fill(name, text).splitlines()
        for number in re.findall(r"line (\d+)", said):  # of what the student wrote
            assert {*re.findall(r"\w+", code[int(number) - 1])} & {*re.findall(r"\w+", text)}, said


@pytest.mark.parametrize(
    ("name", "seed"),
    [(n, s) for n, one in EXERCISES.items() for s in range(1, 1 + len(one.others))],
)
def test_a_seed_leaves_out_another_expression_and_has_another_example(name, seed):
    one = EXERCISES[name].with_seed(seed)
    text = exercises.student_file(one)
    assert one.missing not in text
    assert one.missing != EXERCISES[name].missing
    files = text, exercises.student_file(EXERCISES[name])
    examples = [re.findall(r"^    (?:w|x|w_s) = .*", file, re.M) for file in files]
    assert examples[0] != examples[1]
    head, mark, code = text.rpartition('"""\n\nfrom')

    def judge(answer, head=head):
        return verdict.verdict(head + mark + code.replace("...", answer, 1), NAME, seconds=10.0)

    assert judge(one.missing) == judge(one.missing, '"""Mine') == (True, ["right"])
    headers = [head, '"""Mine'] * len(one.slips)  # the last line has the name and the seed, too
    for (wrong, words), header in [*zip(one.slips.items(), headers)][::5]:
        accepted, lines = judge(wrong, header)
        assert not accepted
        assert words in "\n".join(lines), (wrong, lines)
    assert exercises.student_file(EXERCISES[name].with_seed(1 + len(one.others))) != text


@pytest.mark.parametrize(
    ("answer", "said"),
    [("mu / 2 * np.dot(w - w_t, np.inner(np.eye(2), w - w_t)) + 0 * abs(np.einsum('i->', w))", "is right;"),
     ("mu * ((w - w_t) ** 2).sum()", "right is (0.0311"), ("...", "not finished"),
     ("!return {1: w}", ": a dictionary, expected numbers of shape (2,)"),
     ("!return w\n\n\nprox_gradient = partial(prox_gradient)", "right is (0.0311")],
)  # fmt: skip
def test_a_file_runs_by_itself_on_its_worked_example(answer, said, tmp_path, capsys):
    path = tmp_path / "proximal.py"
    path.write_text(fill("proximal", answer), "utf-8")
    runpy.run_path(str(path), run_name="__main__")
    assert said in capsys.readouterr().out


def written(case):
    """The file of a case: an expression, statements in its place, a helper before, or the whole function."""
    name, text = case["exercise"].replace("_", "-"), case["text"]
    before, text = text if case["mode"] == "pre" else ("", text)
    head, mark, code = exercises.student_file(EXERCISES[name]).rpartition('"""\n\nfrom')
    lines = code.split("\n")
    at = next(i for i, line in enumerate(lines) if "..." in line)
    indent = re.match(r"\s*", lines[at])[0]
    if case["mode"] == "func":
        lines[next(i for i in range(at, -1, -1) if lines[i].startswith("def ")) :] = [text]
    elif case["mode"] == "expr":
        lines[at] = lines[at].replace("...", text)
    else:
        lines[at] = "\n".join(indent + line for line in text.split("\n"))
    first = next(
        i for i, line in enumerate(lines) if line.startswith(("def ", "class ")) or "def " in line
    )
    return head + mark + "\n".join([*lines[:first], before, *lines[first:]])


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_a_class(every):
    """None of these wrong answers is accepted or told our own error; no right form is refused."""
    for case in CLASS["right"][::every]:
        assert verdict.verdict(written(case), NAME, seconds=10.0) == (True, ["right"]), case
    numbers = 0
    for case in CLASS["wrong"][::every]:
        accepted, lines = verdict.verdict(written(case), NAME, seconds=1.0)
        said = "\n".join(lines)
        assert not accepted, case
        for ours in (
            "inhomogeneous",
            "array to stack",
            "outside loop",
            "outside function",
            "Traceback",
        ):
            assert ours not in said, (case, said)
        numbers += [*lines[1:], ""][0].startswith(("on the worked", "it is right on"))
    assert numbers <= 0.15 * len(CLASS["wrong"][::every])  # the others are told in words


def test_a_file_cannot_change_the_verdict_on_another():
    """What is right is known, and compared, where no student's code runs."""
    right, wrong = fill("curvature", EXERCISES["curvature"].missing), fill("curvature", "v")
    for evil in (
        "import fedref.spec; fedref.spec.Risk.hvp = lambda *_: 0\n",
        "import numpy; numpy.max = lambda *_, **__: 0; numpy.array_equal = lambda *_: True\n",
        "import gc\nfor x in gc.get_objects():\n    if getattr(x, '__name__', '') == 'fault':\n"
        "        x.__code__ = (lambda *_: '').__code__\n",
    ):
        assert not verdict.verdict(wrong + evil, NAME)[0]
    assert verdict.verdict(right, NAME) == (True, ["right"])
    assert not verdict.verdict(wrong, NAME)[0]


def test_what_is_asked_for_is_not_called_elsewhere():
    call = "__import__('fedref.algorithms.per_fedavg', fromlist=['x']).meta_gradient"
    _, lines = judged("meta-gradient", f"{call}(f, w, D, D1, D2, alpha=alpha)")
    assert "an answer is written with the names of fedref.spec" in "\n".join(lines)


def test_an_edited_header_is_no_reason_to_refuse():
    for name, one in EXERCISES.items():
        text = fill(name, one.missing).replace(f'"""Exercise {name}', '"""My homework', 1)
        assert verdict.verdict(text, NAME) == (True, ["right"])


STEP = EXERCISES["step"].missing


@pytest.mark.parametrize(
    ("write", "said"),
    [(lambda: fill("proximal", "..."), "not finished: line"),
     (lambda: fill("proximal", "0").replace("def prox_gradient", "def other"), "is not defined"),
     (lambda: fill("step", "0") + "\nwhile True:\n    try: pass\n    except Exception: pass\n", "endless"),
     (lambda: fill("mask", "w_s *"), "SyntaxError: invalid syntax"),
     (lambda: fill("mask", "w_s * __import__('scipy.special').special.expit(a)[unit] + w_k"), "and the like"),
     (lambda: fill("mask", "{'w': w_s}"), "gives a dictionary, expected numbers"),
     (lambda: fill("mask", "type('T', (), {})()"), "gives <exercise.T object>, expected"),
     (lambda: fill("step", "!w_new = w_k - eta * f.grad(w_k, D)"), "nothing is assigned to w_k"),
     (lambda: fill("step", "w_k + eta * f.grad(w_k, D)").replace("w_k", "phi").replace("(D,)", "(B,)")
      .replace(", D)", ", B)").replace("ws", "ends"), "the step climbs"),
     (lambda: fill("step", STEP).replace("    yield", "yield"), "another line is not"),
     (lambda: fill("step", STEP).replace("    for clients", "    kept = w.copy()\n    for clients")
      .replace("yield w\n", "kept[:] = w; yield kept\n"), "in round 1 of the worked example yours"),
     (lambda: fill("step", STEP).replace("yield w\n", "yield {1: w}\n"), "a dictionary, exp"),
     (lambda: fill("control", "c_i - c + mean_step; c = new"), "another line is not"),
     (lambda: fill("importance", "lam * F + average(weights(clients), estimates) * (t > 0)"), "(0, 0)")],
)  # fmt: skip
def test_what_does_not_run_or_stands_elsewhere_is_said_first(write, said, capfd):
    text = write() + "\nprint(1, file=__import__('sys').stderr)\n"
    right, lines = verdict.verdict(text, NAME, seconds=0.5)
    assert not right
    assert said in lines[len(lines) > 1]
    assert "<unknown>" not in lines[0]
    assert not capfd.readouterr().err


@pytest.mark.parametrize(
    ("yours", "right", "said"),
    [
        ({"u": "1", "Hu": "-alpha"}, {"u": "1", "Hu": "-alpha"}, ""),
        ({"u": "1", "Hu": "alpha"}, {"u": "1", "Hu": "-alpha"}, "the sign of Hu is wrong"),
        ({"u": "-1"}, {"u": "1"}, "the sign of u is wrong"),
        ({"u": "1", "Hu": "-2·alpha"}, {"u": "1", "Hu": "-alpha"}, "the factor of Hu should be -alpha"),
        ({"u": "1", "Hu": "-1"}, {"u": "1", "Hu": "-alpha"}, "the factor of Hu should be -alpha"),
        ({"u": "2"}, {"u": "1"}, "the factor of u should be 1"),
        ({"Hu": "2·alpha"}, {"Hu": "-alpha"}, "the factor of Hu should be -alpha"),  # and the sign
        ({"u": "1", "w": "l2"}, {"u": "1"}, "w does not belong there"),
        ({"u": "1"}, {"u": "1", "Hu": "-alpha"}, "a term is missing"),
        ({"u": "-1", "w": "l2"}, {"u": "1", "Hu": "-alpha"},
         "the sign of u is wrong, w does not belong there, a term is missing"),
    ],
)  # fmt: skip
def test_what_differs_between_two_sums_is_a_sign_a_factor_or_a_term(yours, right, said):
    start, mark, faults = verdict.describe_sum(yours, right).partition(": ")
    assert start.startswith("yours is ")
    assert (faults, bool(mark)) == (said, bool(said))


OWN = """
[server-step]
function = "fedavgm"
missing = "momentum * v + delta"
algorithm = "fedavgm"
trains = "momentum on the server"
[server-step.slips]
"momentum * v" = "the change of this round is missing"
"""


def test_an_exercise_of_one_s_own():
    own = exercises.read(OWN, "mine.toml")
    text = exercises.student_file(own["server-step"])
    assert verdict.verdict(text.replace("v = ...", "v = momentum * v + delta"), NAME, own)[0]
    _, lines = verdict.verdict(text.replace("v = ...", "v = momentum * v"), NAME, own)
    assert lines[1] == "the change of this round is missing"
    changes = ("fedavgm", "fedavgn"), ("* v + delta", "* v - delta"), ("trains", "train")
    for old, new in (*changes, ('algorithm = "fedavgm', 'algorithm = "fedavgn')):
        with pytest.raises(ConfigError, match=r"mine\.toml: server-step"):
            exercises.read(OWN.replace(old, new, 1), "mine.toml")


@pytest.mark.parametrize("name", EXERCISES)
def test_examples_have_two_parameters_and_no_constant_that_hides_a_mistake(name):
    moment = exercises.moments_of(EXERCISES[name])[0]
    assert np.shape(moment.value)[-1] == 2
    assert np.all(moment.value)
    for moment in exercises.moments_of(EXERCISES[name]):
        for rate in ("eta", "alpha", "mu", "lam"):
            steps = len(moment.names["client"].steps) if "client" in moment.names else 1
            assert np.all(steps * np.asarray(moment.names.get(rate, 0)) != 1)


def test_a_drawn_case_that_refutes_is_shown_whole_and_digits_until_they_differ():
    _, lines = judged("mask", "w_s * sigmoid(a[0]) + w_k")
    said = "\n".join(lines)
    assert "right on the worked example, but not where" in said
    assert all(f"  {name} = (" in said for name in ("unit", "w_s", "a", "w_k"))
    for text in ("w_s * sigmoid(a)[unit] + w_k + 1e-9", "w_s * sigmoid(a)[unit] + w_k * 1.001"):
        _, lines = judged("mask", text)
        yours, right = re.search(r"yours gives (.*), right is (.*)", lines[-1]).groups()
        assert yours != right
