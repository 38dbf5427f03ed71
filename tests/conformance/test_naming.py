"""What is said of wrong numbers: names where they are certain, else a variation, a combination or a place."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from golden import GOLDEN
from helpers import Mistaken

from fedref.conformance import naming, report, suite, variations
from fedref.conformance.inputs import other_inputs
from fedref.judge import errata, evidence, verdicts
from fedref.judge.errata import Edit, Mistake, answer
from fedref.judge.verdicts import FAILED

GRAD = GOLDEN["grad-mlp"]


def cases_of(call, algorithm):
    return [case for case in GOLDEN.values() if (case.call, case.algorithm) == (call, algorithm)]


def named(cases, answers):
    """The verdicts on these outputs, with what is said of them."""
    graded = [
        verdicts.grade(verdicts.Answer(outputs), case) for outputs, case in zip(answers, cases)
    ]
    return found(graded, cases)


def found(graded, cases, dtype="float64"):
    """The verdicts with what is said of them, in this process."""
    graded = list(graded)
    said = naming.find_mistakes(graded, cases, dtype)
    return [r._replace(**dict(zip(naming.FOUND, one))) for r, one in zip(graded, said)]


@pytest.fixture
def no_variation(monkeypatch):
    """None is looked for, which takes longest."""
    monkeypatch.setattr(naming, "find_variation", lambda *_, **__: None)


@pytest.fixture
def no_evidence(monkeypatch):
    """Only names are looked for."""
    monkeypatch.setattr(naming, "EVIDENCE", 0)


# ---- known mistakes

FIRST_ORDER = "first order: the inner step's graph was cut"
MAML = cases_of("meta_gradient", "fedmeta-maml")
SMALL = [
    case for case in GOLDEN.values() if case.model["family"] in ("binary-logistic", "logistic")
]


@pytest.mark.parametrize(
    "name",
    [FIRST_ORDER, "HF: divided by δ", "the inner step climbs", "the α-gradient has the wrong sign",
     "the L2 term counts twice", "softmax is taken twice"],
)  # fmt: skip
@pytest.mark.usefixtures("no_evidence")
def test_a_mistake_is_named_and_nothing_else(name):
    results = suite.run(Mistaken(verdicts.DERIVATIVES, name), SMALL)
    results = found(results, SMALL)
    failed = [result for result in results if result.status == FAILED]
    assert failed
    assert {found for result in failed for found in result.mistakes} == {name}


@pytest.mark.usefixtures("no_evidence")
def test_a_name_fits_every_failing_case_that_it_changes():
    """Not the smallest alone, on which it is tried first."""
    assert len(MAML) > naming.TRIED
    largest = max(MAML, key=lambda case: case.model["d"])
    answers = [
        {n: x * (1 + 0.3 * (c is largest)) for n, x in answer(c, FIRST_ORDER).items()} for c in MAML
    ]
    assert not any(FIRST_ORDER in result.mistakes for result in named(MAML, answers))


@pytest.mark.usefixtures("no_evidence")
def test_a_passing_case_that_the_mistake_would_change_rules_a_name_out():
    name, families = "the Hessian is taken at the adapted point", ("svm", "logistic")
    cases = [c for c in cases_of("meta_gradient", "per-fedavg") if c.model["family"] in families]
    answers = {case.name: answer(case, name) for case in cases}
    assert any(name in r.mistakes for r in named(cases, answers.values()))
    one = "meta-per-fedavg-logistic"
    assert not any(
        r.mistakes for r in named(cases, (answers | {one: GOLDEN[one].outputs}).values())
    )


def test_a_case_at_a_kink_that_passes_refutes_no_name():
    """Another slope passes there, and so does a small mistake."""
    name = "H is applied to the gradient, not to v"
    cases = [GOLDEN[name] for name in ("hvp-kink-svm-unbiased", "hvp-logistic")]
    first, second = named(cases, [answer(case, name) for case in cases])
    assert (first.status, second.mistakes) == ("passed", (name,))
    wide = Mistake("wide", "", "", "", (Edit("relu(1 - y * z)", "relu(3 - y * z)"),))
    cases = [GOLDEN[name] for name in ("grad-kink-hinge", "grad-svm")]
    first, second = named(cases, [answer(case, wide) for case in cases])
    assert first.status == "passed"
    assert second.evidence.startswith("as if in relu z were it + 2")


@pytest.mark.usefixtures("no_evidence")
def test_an_output_that_is_right_refutes_a_mistake_that_moves_it():
    name, right = "the server's Adam starts afresh every round", "1.server.theta"
    case = GOLDEN["round-adam-fedmeta-sgd"]._replace(catches=(name,))
    outputs = answer(case, name)
    (result,) = named([case], [outputs])
    assert result.mistakes == (name,)
    (result,) = named([case], [outputs | {right: case.outputs[right]}])
    assert (result.status, result.mistakes) == (FAILED, ())


@pytest.mark.parametrize(
    ("case", "edit"),
    [("meta-per-fedavg-mlp", ("alpha * f.hvp(w, u, D2)", "f.hvp(w, alpha * u, D2)")),
     ("grad-mlp", ("alpha * f.hvp(w, u, D2)", "0"))],
)  # fmt: skip
@pytest.mark.usefixtures("no_evidence")
def test_a_mistake_that_changes_a_case_by_rounding_or_not_at_all_explains_nothing(
    case, edit, monkeypatch
):
    name = f"planted: {edit[1]}"
    case = GOLDEN[case]._replace(catches=(name,))
    monkeypatch.setitem(errata.MISTAKES, name, Mistake(name, "", "", "", (Edit(*edit),)))
    right = case.outputs
    moved = [np.abs(x - right[n]).max() for n, x in answer(case, name).items()]
    assert max(moved) < 1e-14
    assert max(case.tolerance["float64"], 1e-10) == 1e-10
    (result,) = named([case], [{n: x * (1 + 1e-10) for n, x in right.items()}])
    assert (result.status, result.mistakes) == (FAILED, ())


def test_every_name_that_a_report_prints_is_known():
    """With stragglers these two differ."""
    names = "weights count batches", "weights count steps"
    case = GOLDEN["round-stragglers-fedprox"]._replace(catches=names)
    for name in names:
        said = report.report_text(named([case], [answer(case, name)]), [case])
        assert re.findall(r"^FAILED  (\S+)  \[(.*?)\]", said, re.M) == [(case.name, case.tag)]
        assert re.findall(r"^known mistake \(\d+ ×\): (.*?)\. ", said, re.M) == [name]
        assert f"        it is: {name}\n" in said
    said = report.report_text(list(suite.run(object(), [case])), [case])
    assert said.startswith("not offered: round (1)\n")


def test_where_nothing_more_is_tried_a_name_is_only_likely_or_was_not_looked_for(monkeypatch):
    cases = [c._replace(catches=(FIRST_ORDER,)) for c in MAML if FIRST_ORDER in c.catches]
    answers = [answer(case, FIRST_ORDER) for case in cases]
    monkeypatch.setattr(naming, "LIMIT", 1)
    results = named(cases, answers)
    assert sum(r.mistakes == (FIRST_ORDER,) for r in results) == naming.TRIED < len(cases)
    likely = f"perhaps: {FIRST_ORDER} (as in smaller cases; nothing more was tried)"
    assert {r.evidence for r in results if not r.mistakes} == {likely}
    monkeypatch.setattr(naming, "LIMIT", 0)
    (result,) = named([GRAD], [answer(GRAD, "the L2 term counts twice")])
    assert not result.looked
    assert "no known mistake was looked for (1 ×)" in report.report_text([result], [GRAD])


# ---- evidence


def slow(*row):
    return pytest.param(*row, marks=pytest.mark.slow)


def edited(call, algorithm, right, wrong, family="logistic"):
    """What is said of a backend that is the specification with this edit, where it has no name."""
    cases = [case for case in cases_of(call, algorithm) if case.model["family"] == family]
    planted = Mistake("planted", "", "", "", (Edit(right, wrong),))
    results = named(cases, [answer(case, planted) for case in cases])
    return {r.evidence for r in results if r.status == FAILED and not r.mistakes}


def test_a_variation_is_found_and_only_if_it_fits():
    step = "w_k = w_k - eta * f.grad(w_k, D)"
    (text,) = edited("round", "fedavg", step, step.replace("w_k -", "w -"))
    assert text == f"as if in fedavg w_k were w, in {step}"
    terms = "u - alpha * f.hvp", "tanh(u) - alpha * f.hvp"
    assert edited("meta_gradient", "per-fedavg", *terms) == {""}


LEAKY = "z * (z.real > 0)", "z * (z.real > 0) + 0.1 * z * (z.real <= 0)"


@pytest.mark.parametrize(
    ("call", "subject", "edit", "words"),
    [
        ("grad", "mlp", ("exp(z * (z.real < 0)) - 1", "0.9 * (exp(z * (z.real < 0)) - 1)"), "elu"),
        ("grad", "logistic", ("    z = z - z[rows", "    z = z / 3; z = z - z[rows"),
         "Risk.__call__ w were 1/3 times it"),
        ("aggregate", "fedavg", ("client.n for client", "client.n**0.5 for client"),
         "sample_weights client.n were sqrt(it)"),
        ("aggregate", "pfedme", ("w = (1 - mixing)", "w = (1 - mixing) ** 2"), "pfedme 1 - mixing"),
        slow("grad", "cnn", LEAKY, "relu z * (z.real > 0) were 0.9 times it + 0.1 times z"),
        slow("grad", "cnn", ("return z * (z.real > 0)", "return log(1 + exp(z))"),
         "relu z * (z.real > 0) were softplus(z)"),
        slow("meta_gradient", "fedmeta-sgd", ("w = w - alpha *", "w = w - exp(alpha) *"),
         "adapt alpha were exp(it)"),
        slow("client", "fednova", ("(eta * tau)", "(eta * (tau + 1))"), "fednova tau were it + 1"),
        slow("client", "apfl-deng", ("v = v - eta * g_v", "v = v - eta / 3 * g_v"), "apfl_deng"),
    ],
)  # fmt: skip
def test_a_number_is_solved_for_and_another_function_found_in_halves_too(
    call, subject, edit, words
):
    some = [case for case in GOLDEN.values() if case.call == call]
    some = [case for case in some if subject in (case.algorithm, case.model["family"])]
    some = sorted(some, key=lambda case: case.model["d"])[:8]
    planted = Mistake("planted", "", "", "", (Edit(*edit),))
    results = named(some, [answer(case, planted) for case in some])
    (said,) = {r.evidence for r in results if r.status == FAILED}
    assert said.startswith(f"as if in {words}")


def test_a_wrong_line_that_raises_leaves_a_gap():
    assert np.isnan(variations.excess({}, {"f": 1.0}, GOLDEN["loss-mlp"])).all()


def test_a_combination_of_terms_is_told():
    terms = "u - alpha * f.hvp", "u - 3 * alpha * f.hvp"
    hvp = "alpha * f.hvp(w, u, D2)"
    (text,) = edited("meta_gradient", "per-fedavg", *terms, "mlp")
    assert text == f"yours is u - 3·({hvp}); the coefficient of {hvp} should be -1"


@pytest.mark.usefixtures("no_variation")
def test_a_wrong_model_is_mended_before_its_algorithms():
    cases = GRAD, GOLDEN["round-fedavg-mlp"]
    waves = [
        {n: x + np.sin(np.arange(x.size)).reshape(x.shape) for n, x in c.outputs.items()}
        for c in cases
    ]
    first, second = named(cases, waves)
    assert "begin there" not in first.evidence
    assert second.evidence == "the model itself is wrong (loss, grad or hvp): begin there"


def test_variations_are_many_and_leave_the_specification_as_it_was():
    before = dict(vars(variations.spec))
    seen = variations.observe(GOLDEN["meta-per-fedavg-svm"])
    some = list(variations.variations_of([seen]))
    assert len(some) > 500
    assert any(v.answer(GOLDEN["meta-per-fedavg-svm"]) for v in some[::50])
    assert dict(vars(variations.spec)) == before
    seen = variations.observe(GOLDEN["loss-lstm"])
    lines = [
        v for v in variations.variations_of([seen]) if v.wrong in ("vocabulary - 1", "classes")
    ]
    lines = [str(v) for v in lines if "vocabulary were" in str(v) and "real = " in str(v)]
    assert "vocabulary - 1" in lines[0]  # they may differ by one in every case
    assert "classes" in lines[-1]


#: What is written by hand → an algorithm that runs it.
BY_HAND = {
    "prox_gradient": "fedprox", "maml": "fedmeta-maml", "meta_sgd": "fedmeta-sgd", "fedcurv": "fedcurv",
    "kept_sums": "fedcurv", "apfl": "apfl", "apfl_deng": "apfl-deng", "feddyn": "feddyn", "fedopt": "fedyogi",
    "cross_entropy": "", "WeightedRisk.__call__": "",
}  # fmt: skip


def test_what_is_written_by_hand_is_what_the_specification_computes():
    """Or a change of it would not be the one that is told."""
    changed = set()
    for name, (*_, function) in variations.functions().items():
        if ast.dump(variations.originals()[name].node) != ast.dump(function.node):
            body = function.node, "body", function.node.body
            same = variations.Variation(function, body, function.node, function.node, "")
            cases = [
                c for c in GOLDEN.values() if c.algorithm == BY_HAND[name] and c.model["d"] < 40
            ]
            for case in sorted(cases, key=lambda c: c.call)[:: 1 + len(cases) // 8]:
                made, want = same.answer(case), case.outputs
                assert set(case.required) <= {*made}, (name, case.name)
                assert all(np.allclose(made[n], want[n], 1e-9, 1e-12) for n in {*made} & {*want})
            changed.add(name)
    assert changed == {*BY_HAND}


LAST = int(np.prod(GRAD.model["shapes"][-1]))
LAYERS = len(GRAD.model["shapes"]) // 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: 2 / 3 * x, "2/3 × what is right"),
        (lambda x: x * GRAD.inputs["w"], "w ⊙ what is right"),
        (lambda x: x + 0.5 * GRAD.inputs["w"], "off by 1/2 × w"),
        (
            lambda x: np.append(x[:-LAST], 3 * x[-LAST:]),
            f"wrong only in b{LAYERS} ({LAST},); 3 × what is right",
        ),
        (lambda x: np.append(x[:-1], 7.0), f"wrong only in b{LAYERS}[{LAST - 1}]"),
        (
            lambda x: x + 1e-9 * np.cos(np.arange(x.size)),
            "right to the 7 digits of float32, no more",
        ),
        (lambda x: x * (1 + 2e-8), "right to the 7 digits of float32, no more"),
        (
            lambda x: np.append(x[:-1], x[-1] + 1.5e-8 * np.abs(x).max()),
            f"wrong only in b{LAYERS}[{LAST - 1}]; right to the 7 digits",
        ),
        (lambda x: x + 1e300, ""),
    ],
)
@pytest.mark.usefixtures("no_variation")
def test_what_is_seen_in_one_output(change, words):
    (result,) = named([GRAD], [{"g": change(GRAD.outputs["g"])}])
    assert (result.status, result.mistakes) == (FAILED, ())
    assert result.evidence.startswith(words)
    yours, right = report.begin_with([result], [GRAD]).split(": ")[-1].split(", ")
    assert yours.split()[1] != right.split()[1]


def test_float32_is_named_where_the_numbers_are_its_own():
    (result,) = named([GRAD], [{"g": GRAD.outputs["g"].astype(np.float32).astype(np.float64)}])
    assert result.mistakes == (evidence.SINGLE,)
    assert "7 digits" in report.report_text([result], [GRAD])


@pytest.mark.usefixtures("no_variation")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("grad-logistic", "labels count from the last class"),
        ("grad-lstm", "the gates are read in the order g, o, i, f"),
        ("grad-mlp", "each bias is read before its weight"),
        ("loss-cnn", "all weights s are 1"),
        ("evaluate-fedmeta-sgd-mlp", "D lacks the last row"),
        ("hvp-mlp", "w is in the place of v"),
        ("meta-fedmaml-svm", "alpha is 1"),
        ("aggregate-fedcurv", "n is that of the next client"),
        ("round-fednova-mlp", "weighting is 'uniform'"),
    ],
)
def test_the_answer_for_another_input_is_told(name, words):
    """Where known mistakes of these cases have other numbers."""
    case = GOLDEN[name]._replace(catches=())
    made = dict(other_inputs(case))[words]()
    (result,) = named([case], [{**case.outputs, **made}])
    assert (result.status, result.evidence) == (FAILED, f"it is the right answer where {words}")
    said = report.report_text([result], [case])
    assert "told in words (1 ×)" in said
    assert "no known mistake fits (1" not in said


def test_what_the_cases_do_not_tell_apart_is_said():
    """The server's rate is 1 − β₁ in them; and 1/N times 9/10, or times that rate."""
    case = GOLDEN["aggregate-fedadam"]._replace(catches=())
    made = dict(other_inputs(case))["beta1 is 1 - it"]()
    (result,) = named([case], [{**case.outputs, **made}])
    words = "beta1 is server_lr or beta1 is 1 - it"
    assert result.evidence == f"it is the right answer where {words}"
    case = GOLDEN["aggregate-scaffold"]
    line = "as if in scaffold N were {more} times it"
    some = variations.variations_of([variations.observe(case)])
    (one, *_) = (v for v in some if str(v) == line)
    said = str(one.with_number(1 / 9).with_quantities([case]))
    assert said.endswith("N were 10/9 times it (10/9 is also 1/server_lr in these cases)")


def test_another_argument_is_not_told_where_any_would_do():
    """At −w no row is beyond the squared hinge's margin, nor is one at a point close to that."""
    case = GOLDEN["hvp-svm"]
    made = variations.try_answer(case._replace(inputs={**case.inputs, "w": -case.inputs["w"]}))
    some = variations.variations_of([variations.observe(case)])
    (one,) = (v for v in some if str(v) == "as if in hvp w: Array were -it")
    for other in (one, one.nearby):
        assert naming.is_made(other.answer(case), made, case, "float64")
    tests = [(lambda x, case: naming.is_made(x, made, case, "float64"), case)]
    about = [case], tests, {case.name: made}, [one]
    assert variations.find_variation(*about, naming.Trials(1e9), 0) is None


@pytest.mark.usefixtures("no_variation")
def test_one_ratio_in_all_cases_and_entries_in_another_order_are_told():
    losses = [GOLDEN[name] for name in ("loss-mlp", "loss-cnn", "loss-logistic")]
    results = named(losses, [{"f": 3 * case.outputs["f"]} for case in losses])
    assert {r.evidence for r in results} == {"yours is 3·(what is right)"}
    W, rest = np.split(GRAD.outputs["g"], [12])
    turned = np.append(W.reshape(3, 4)[[1, 2, 0]], rest)
    (result,) = named([GRAD], [{"g": turned}])
    assert result.evidence.endswith(
        "; W1 is right in another order: along axis 0 yours are 1, 2, 0"
    )
    case = GOLDEN["round-fedavg-mlp"]
    (result,) = named([case], [case.outputs | {"1.server.w": case.outputs["0.server.w"]}])
    assert result.evidence == "it is the right 0.server.w"
    said = report.report_text([result], [case])
    assert "no known mistake fits (1 ×): begin with round-fedavg-mlp, the smallest (d = 35)" in said


@pytest.mark.usefixtures("no_variation")
def test_zeros_that_are_right_by_chance_are_no_block():
    g = np.append(np.zeros(GRAD.model["d"] - 1), 1.0)
    (result,) = named([GRAD._replace(outputs={"g": g})], [{"g": 7 * g}])
    assert "only" not in result.evidence


def test_rounds_are_cut_behind_the_wrong_one():
    case = GOLDEN["round-fedavg-binary"]
    short = naming.shorten(case, "0.server.w")
    assert {n.split(".")[1] for n in short.inputs if n.startswith("plans")} == {"0"}
    made = variations.try_answer(short)
    assert naming.holds(made, case, "float64")
    assert "1.server.w" not in made


# ---- what packages compute

#: Mistake of a package, written anew → the known one that explains it, or the two that do so at once.
PACKAGES = {
    "fluke-fl 0.8.1, FedNova": "FedNova's weights do not sum to one",
    "fluke-fl 0.8.1, pFedMe": "pFedMe's anchor is the variable itself, and θ̃ is sent",
    "fluke-fl 0.8.1, FedAvgM": "the first round is lost",
    "fluke-fl 0.8.1, FedAdam":
        "FedOpt's Δ is scaled by the server's rate, too, together with FedOpt's v starts at 0",
    "plato-learn 1.41, SCAFFOLD":
        "SCAFFOLD's correction has the wrong sign, and c_i⁺ is c plus the mean step",
    "plato-learn 1.41, FedDyn": "FedDyn pulls to 2θᵗ, together with FedDyn's server ignores h",
    "openfl 1.9, FedYogi":
        "FedOpt with bias correction and v from 0, together with FedYogi's v decays as FedAdam's",
    "oiafed 0.2.3, FedDyn":
        "FedDyn's clients take FedAvg's steps, together with FedDyn's h sums the models, not their changes",
    "oiafed 0.2.3, FedNova": "FedNova's weights count epochs, and nothing is normalised",
    "oiafed 0.2.3, FedYogi's v alone": "FedYogi's v moves by |Δ² − v|",
    "fl4health 0.4.2, Deng's APFL":
        "Deng's APFL: α's gradient times α² + (1 − α)², plus 0.02 α, once a round",
    "p2pfl 0.4.4, SCAFFOLD": "SCAFFOLD's correction is missing",
}  # fmt: skip
BLOCKS = (Path(__file__).with_name("packages.txt")).read_text("utf-8").split("\n\n")[1:]


QUICK = (
    "fluke-fl 0.8.1, FedNova",
    "fluke-fl 0.8.1, FedAvgM",
    "openfl 1.9, FedYogi",
    "oiafed 0.2.3, FedNova",
)


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(one, id=one.name, marks=[] if one.name in QUICK else pytest.mark.slow)
        for one in map(errata.parse, BLOCKS)
    ],
)
def test_what_a_package_computes_is_named(no_variation, mistake):
    """In the two smallest of an algorithm's golden rounds, of which a package that has no halves answers."""
    algorithm = PACKAGE_OF.get(mistake.tag, mistake.tag.split()[0])
    algorithm = "fedyogi" if "Yogi" in mistake.name else algorithm
    cases = sorted(cases_of("round", algorithm), key=lambda case: case.model["d"])[:2]
    expected = PACKAGES[mistake.name]
    for result in named(cases, [answer(case, mistake) for case in cases]):
        assert result.status == FAILED
        told = " ".join(result.mistakes) or result.evidence
        assert told.removeprefix("two known mistakes at once: ") == expected


PACKAGE_OF = {"fedopt alg.2": "fedadam", "fedopt fedavgm": "fedavgm"}
