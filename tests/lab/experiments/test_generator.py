"""Generators as algorithms: one's own and the specification's run as classes do; faults are told."""

import pickle
import re
from functools import partial
from random import SystemRandom, random

import numpy as np
import pytest
from pages import FILES
from running import contents, document, experiment, run_beside, worst_of

import fedref
from fedref import checks, spec
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import FedrefError
from fedref.judge import mistaken
from fedref.lab.experiments.generator import algorithm_of
from fedref.lab.experiments.progress import Progress
from fedref.lab.experiments.run import execute
from fedref.lab.flower.server import check_experiment

# ---- README's --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ditto():
    """README's generator, and the class of fedref/README."""
    scope = {"__name__": "pages"}
    exec(FILES["ditto.py"] + FILES["stacked.py"], scope)
    code = [
        line for line in FILES["ditto.py"].splitlines()[1:] if line.strip() and '"""' not in line
    ]
    assert len(code) <= 14
    return scope["ditto"], scope["Ditto"]


def test_readme_s_generator_is_the_class(ditto):
    generator, cls = ditto
    one, other = run_beside(cls, generator, rounds=8, stragglers=0.4, seeds=[1]).records
    assert worst_of(one, other) < 1e-12
    assert one.state.clients.keys() == other.state.clients.keys()
    for k, v in one.state.clients.items():
        assert checks.relative_error(other.state.clients[k], v) < 1e-12
    assert checks.check_rounds(cls(lr=0.05), generator, draws=20).ok
    costs = [
        [r.rows[-1][k] for k in ("grads", "flops", "bytes_down", "stragglers")]
        for r in (one, other)
    ]
    assert costs[0] == costs[1]


def test_an_expression_in_f_is_differentiated_and_float32_stays(ditto):
    def by_gradient(f, w, rounds, lam=0.1, eta=0.05):
        def step(v, w, D):
            return v - eta * spec.gradient(lambda v: f(v, D) + lam / 2 * ((v - w) ** 2).sum(), v)

        vs = {}
        for clients in rounds:
            ws = []
            for client in clients:
                w_k, v = w, vs.get(client.k, w)
                for (D,) in client.steps:
                    v, w_k = step(v, w, D), w_k - eta * f.grad(w_k, D)
                ws.append(w_k)
                vs[client.k] = v
            w = spec.average(spec.sample_weights(clients), ws)
            yield w, vs

    assert worst_of(*run_beside(ditto[0], by_gradient).records) < 1e-12
    exact, rough = (run_beside(by_gradient, dtype=x).records[0] for x in ("float64", "float32"))
    assert rough.state.server.w.dtype == rough.state.clients[0].dtype == np.float32
    assert checks.relative_error(rough.state.server.w, exact.state.server.w) < 1e-5


def per_fedavg(f, w, rounds, alpha=0.1, beta=0.05):
    yield from spec.per_fedavg(f, w, rounds, alpha, beta)


per_fedavg.roles, per_fedavg.adapt = ("D", "D1", "D2"), spec.adapt


def episodes(f, w, rounds, alpha=0.1, beta=0.05):
    for x, *_ in spec.fedmeta(f, w, rounds, beta, partial(spec.maml, alpha=alpha)):
        yield x


episodes.roles, episodes.adapt = ("S", "Q"), lambda f, w, S, alpha: spec.adapt(f, w, S, alpha)


@pytest.mark.parametrize(
    ("generator", "name"), [(per_fedavg, "per-fedavg"), (episodes, "fedmeta-maml")]
)
def test_attributes_say_batches_and_adaptation(generator, name):
    how = {
        "unseen": 0.5,
        "clients-per-round": 3,
        "split": {"rule": "per-fedavg", "users": 12, "a": 4},
    }
    own, built_in = run_beside(generator, name, beta=0.05, **how, dissimilarity=True).records
    assert worst_of(built_in, own) < 1e-12
    assert {"unseen_accuracy", "validation_clients_accuracy", "B"} <= own.rows[-1].keys()
    lines = [own.rows[-1][k] for k in ("grads", "hvps", "flops")]
    assert lines == [built_in.rows[-1][k] for k in ("grads", "hvps", "flops")]


def test_drop_and_the_training_loss():
    told = []

    def mine(f, w, rounds):
        for clients in rounds:
            assert any(client.straggler for client in clients)
            assert clients[0].n == len(clients[0].data.y)
            assert len(clients[0].steps[:1]) == 1
            w = w - 0.05 * f.grad(w, clients[0].data)
            told.append(f.train_loss(w, dict.fromkeys(range(f.N), w)))
            yield w

    mine.drop = False
    (record,) = run_beside(mine, stragglers=0.7, **{"clients-per-round": 4}).records
    losses = [row["train_loss"] for row in record.rows[1:]]
    assert told[:1] + told[2:] == losses  # the first round is computed twice
    (record,) = run_beside(mine, stragglers=1.0, drop=True).records  # nobody's work arrives
    assert record.rows[-1]["dropped"] == 9


# ---- settings ------------------------------------------------------------------------------------


def settled(
    f, w, rounds, lam=1, name_of="a", flag=True, hidden=(2, 3), none=None, weights=spec.average
):
    for clients in rounds:
        yield w + lam * sum(hidden) * flag * clients[0].n / 1e3


def test_keywords_are_settings_that_are_swept_and_written(here):
    module = settled.__module__
    result = fedref.run(
        document(), algorithm=settled, out="a", **{"sweep.lam": [1, 0.5], "rounds": 1}
    )
    w = [record.state.server.w for record in result.records]
    start = w[0] - 2 * (w[0] - w[1])
    np.testing.assert_allclose(w[0] - start, 5 * (w[0] - start) / 5)
    assert [unit.title for unit in result.units] == ["settled (lam=1)", "settled (lam=0.5)"]
    text = (here / "a" / "config.toml").read_text()
    assert (
        f'algorithm = "{module}:settled"\ndrop = true\nlam = 1\nname-of = "a"\nflag = true\nhidden'
        in text
    )
    assert "weight" not in text
    again = fedref.load_run("a")  # without its code
    assert again.summary()[0]["final"] == result.summary()[0]["final"]
    for key, value, message in (
        ("lam", "much", "lam is 'much', expected a number"),
        ("flag", 3, "flag is 3, expected true or false"),
        ("lamm", 3, "did you mean 'lam'"),
    ):
        with pytest.raises(FedrefError, match=message):
            fedref.run(document(), algorithm=settled, **{key: value})


# ---- a run that is interrupted ---------------------------------------------------------------------


def test_a_run_that_is_resumed_has_the_same_bytes_and_says_how_long_it_took(here):
    work = experiment({**document(rounds=5), "algorithms": {"per": {"algorithm": per_fedavg}}})

    def stop(unit, record):
        if record.round == 3:
            raise KeyboardInterrupt

    whole, part = here / "a", here / "b"
    for place in (whole, part):
        place.mkdir()
        for name in (".fedref-run", "config.toml"):
            (place / name).touch()
    execute(work, whole)
    with pytest.raises(KeyboardInterrupt):
        execute(work, part, every=0, progress=Progress(round=stop))
    said = []
    execute(work, part, progress=Progress(message=said.append))
    assert contents(whole) == contents(part)
    assert said[0].startswith(
        "per (seed 0): a generator is not saved in the middle, so 3 rounds are comp"
    )
    assert re.fullmatch(r"per \(seed 0\): computed 3 rounds again in \d+\.\d s", said[1])


def test_other_numbers_than_before_are_told(here, monkeypatch):
    step = [1.0]

    def mine(f, w, rounds):
        for _ in rounds:
            yield w + step[0]

    work = experiment({**document(rounds=5), "algorithms": {"mine": {"algorithm": mine}}})
    for name in (".fedref-run", "config.toml"):
        (here / name).touch()

    def stop(unit, record):
        if record.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(work, here, every=0, progress=Progress(round=stop))
    step[0] = 2.0
    with pytest.raises(
        FedrefError, match="mine computes other numbers than before: it draws random"
    ):
        execute(work, here)


# ---- faults ----------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)


def made(body, before="", given="", last="yield w"):
    """Return a generator with these lines in its loop over rounds, and before it."""
    lines = [
        f"def mine(f, w, rounds{given}):",
        *before.splitlines(),
        "for t, clients in enumerate(rounds):",
    ]
    text = "\n ".join([*lines, *(f" {line}" for line in [*body.splitlines(), last])])
    scope = {"np": np, "spec": spec, "RNG": RNG, "random": random, "SEEN": [], "__name__": "own"}
    scope["ENTROPY"] = SystemRandom()  # which has no state
    exec(compile(text, "own.py", "exec"), scope)
    return scope["mine"]


def closing_over(rng):
    def mine(f, w, rounds):
        for t, _ in enumerate(rounds):
            w = w + (rng.normal() if t else 1)
            yield w

    mine.__module__, mine.__qualname__ = "own", "mine"
    return mine


READ_ONLY = "It writes into an array that it was given, which others read, too: write w = w - x"
AGAIN = "own:mine computes other numbers when it is called again: it draws random numbers or keeps somethin"
GLOBAL = "own:mine draws from a global random generator, which others change, too: expected one of its own"
AHEAD = "own:mine reads round 2 before it has yielded its state after round 1: they are read once, one by"
FAULTS = {
    "changed in place": (made("w -= f.grad(w, clients[0].data)", "w = w + 0"), READ_ONLY),
    "changed through a view": (made("view += 1", "w = w + 0\nview = w[:]"),
                               "own:mine changes w that it has yielded, in round 2: write w = w - x"),
    "changed model of a client": (
        made("w = w + 1\nviews[t] += 1", "v = [w + 0 for _ in range(4)]\nviews = [x[:] for x in v]",
             last="yield w, dict(enumerate(v))"),
        "changes the model of client 1 that it has yielded, in round 2"),
    "the given w changed": (made("w -= 1"), READ_ONLY),
    "the rows changed": (made("clients[0].data.X[:] = 0"), READ_ONLY),
    "the run's own": (made("pass"), "own:mine yields the w that it was given, after round 1, which is the"),
    "random, outside": (made("w = w + (RNG.normal() if t else 1)"), GLOBAL),
    "random, in a closure": (closing_over(np.random.default_rng(0)), GLOBAL),
    "random, unseeded": (made("w = w + (r.normal() if t else 1)", "r = np.random.default_rng()"), AGAIN),
    "random, NumPy's": (made("w = w + (np.random.rand() if t else 1)"), GLOBAL),
    "random, Python's": (made("w = w + (random() if t else 1)"), GLOBAL),
    "keeps something": (made("SEEN.append(t)", last="yield w + len(SEEN)"), AGAIN),
    "ahead": (made("w = w + 1", "rounds = list(rounds)"), AHEAD),
    "ahead, caught": (made("try: next(rounds)\nexcept ValueError: pass\nw = w + 1"), AHEAD),
    "twice": (made("w = w + 1", "K = sum(map(len, rounds))"), AHEAD),
    "two yields": (made("w = w + 1\nyield w"), "own:mine yields before it has read round 2, expected one"),
    "a yield before": (made("w = w + 1", "yield w + 1"), "own:mine yields before it has read round 1"),
    "early end": (made("w = w + 1\nif t == 1: return"), "own:mine ends after 1 rounds, expected a yield"),
    "another shape": (made("w = w + 1", last="yield w[t:]"),
                      "own:mine yields, after round 2, float64 (649,), expected an array of 650"),
    "a list": (made("pass", last="yield [0.0] * len(w)"), "own:mine yields, after round 1, a list, expected"),
    "nothing": (made("pass", last="yield"), "own:mine yields, after round 1, a NoneType, expected an array"),
    "complex": (made("pass", last="yield w + 1j"), "after round 1, complex128 (650,), expected an array of"),
    "three": (made("pass", last="yield w + 1, {}, 3"), "own:mine yields, after round 1, a tuple, expected"),
    "models in a list": (made("pass", last="yield w + 1, [w]"), "w and a list, expected (w, {k: v_k})"),
    "no client": (made("pass", last="yield w + 1, {4: w}"), "a model of client 4, expected 0 to 3"),
    "a model's shape": (made("pass", last="yield w + 1, {0: w[:2]}"), "for client 0 float64 (2,), expected"),
    "f of another shape": (made("f.grad(w[:4], clients[0].data)"), "f is given a w of shape (4,), expected"),
    "no rule": (made("spec.gradient(lambda w: np.sort(w).sum(), w)"), "a gradient has no rule for np.sort"),
    "raises": (made("1 / 0"), "own:mine: own.py, line 3: ZeroDivisionError: division by zero"),
    "exits": (made("raise SystemExit"), "own:mine: own.py, line 3: SystemExit"),
    "no yield": (made("pass", last="pass"), "own:mine has no yield, expected one a round"),
    "returns": (lambda f, w, rounds: [w], "<lambda> returns [array("),
    "two arguments": (lambda f, w: w, "takes (f, w), expected a function (f, w, rounds, lam=0.1, ...)"),
    "no default": (made("pass", given=", lam"), "own:mine: lam has no default, expected lam=VALUE"),
    "a table": (made("pass", given=", lam={}"), "lam is {}, expected a number, a text or a list"),
    "a method's name": (made("pass", given=", step=1.0"), "a setting cannot be called step, expected"),
    "a run's name": (made("pass", given=", steps=1"), "steps is a setting of the run, too; expected another"),
    "a partial": (partial(made("pass", given=", lam=1.0"), lam=2.0), "algorithm is functools.partial(<func"),
}  # fmt: skip


@pytest.mark.parametrize(("generator", "message"), FAULTS.values(), ids=FAULTS)
def test_faults_are_told_in_one_sentence(generator, message):
    with pytest.raises(FedrefError, match=re.escape(message)) as error:
        run_beside(generator)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("adapt", "message"),
    [
        ("D", "own:mine.adapt takes 'D', expected a function (f, w, D, lam=0.1, ...)"),
        (spec.adapt, "own:mine.adapt takes alpha, expected settings of own:mine alone"),
        (
            lambda f, w, D: w[:4],
            "own:mine.adapt returns float64 (4,), expected an array of 650 real",
        ),
    ],
)
def test_an_adaptation_that_cannot_be_is_told(adapt, message):
    generator = made("w = w + 1")
    generator.adapt = adapt
    with pytest.raises(FedrefError, match=re.escape(message)):
        run_beside(generator)


def test_what_generators_cannot_do_is_told():
    with pytest.raises(
        FedrefError, match="on-failure is drop, and per_fedavg is a generator, which has"
    ):
        run_beside(per_fedavg, **{"on-failure": "drop"})
    over_nodes = experiment({**document(), "algorithms": {"per": {"algorithm": per_fedavg}}})
    with pytest.raises(
        FedrefError, match="per, a generator, takes clients' rows or states, which the"
    ):
        check_experiment(over_nodes)
    assert "MB of per_fedavg are those of w: a generator does not say what it sends" in str(
        run_beside(per_fedavg)
    )


def test_workers_import_it(page_files):
    from ditto import ditto

    one, two = (fedref.run(document(seeds=[0, 1]), algorithm=ditto, workers=n) for n in (1, 2))
    assert [r.rows for r in one.records] == [r.rows for r in two.records]
    assert algorithm_of(ditto)(lam=2.0).__reduce__()[1] == (
        ditto,
        {"drop": True, "lam": 2.0, "eta": 0.05},
    )


# ---- the specification's -----------------------------------------------------------------------------


def compare_with_specification(name, table, **options):
    both = {"class": {"algorithm": name, **options},
            "spec": {"algorithm": f"fedref.spec:{name.replace('-', '_')}", **options}}  # fmt: skip
    built_in, specified = fedref.run({**table, "algorithms": both}).records
    assert worst_of(built_in, specified) < 1e-10


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedprox", {"adaptive-mu": True}),
        ("per-fedavg-hf", {"inner-steps": 2}),
        ("fedmeta-sgd", {"server": "adam"}),
        ("fedmaml", {"evaluate": "theta1"}),
        ("apfl", {"z": 1, "importance": "mas"}),
        ("apfl-deng", {}),
        ("pfedme", {"beta": 0.5}),
    ],
)
def test_the_specification_runs_alike(name, options):
    how = {"stragglers": 0.4, "clients-per-round": 4, "unseen": 0.0}
    compare_with_specification(name, document(**how), **options)


@pytest.mark.slow
def test_all_algorithms_of_the_specification_run_alike_over_ten_rounds_of_the_digits():
    for name in ALGORITHMS:
        compare_with_specification(name, {"rounds": 10, "data": {"name": "digits"}})


def test_the_specification_is_named_by_its_functions_too(here):
    result = fedref.run(document(rounds=0), algorithm=spec.per_fedavg, out="a")
    assert str(fedref.load_run("a", code=False)) == str(result)
    work = [experiment({**document(), "algorithms": {"a": {"algorithm": x}}}) for x in (
        spec.per_fedavg, "fedref.spec:per_fedavg")]  # fmt: skip
    assert work[0] == work[1]
    with pytest.raises(
        FedrefError, match=r"unknown algorithm of fedref.spec 'fedopt': .*fedadagrad"
    ):
        run_beside(spec.fedopt)


# ---- known mistakes ----------------------------------------------------------------------------------

ALPHA_THETA = "FedDyn's αθ is missing"


def without_alpha_theta(f, theta, rounds, *, lr=0.05, alpha=0.1):
    """FedDyn as FL-bench has it."""
    h, hs = np.zeros_like(theta), {}
    for clients in rounds:
        start, ends = theta, []
        for client in clients:
            theta, h_k = start, hs.get(client.k, 0 * start)
            for (D,) in client.steps:
                theta = theta - lr * (f.grad(theta, D) - h_k - alpha * start)
            ends.append(theta)
            hs[client.k] = h_k - alpha * (theta - start)
        h = h - alpha / f.N * sum(end - start for end in ends)
        theta = spec.average(spec.uniform_weights(clients), ends) - h / alpha
        yield theta


def test_a_known_mistake_runs_by_its_name():
    """Written anew it has the same curve; the generator, its name and what a worker gets are one."""
    wrong = mistaken("feddyn", ALPHA_THETA)
    name = f"{wrong.__module__}:{wrong.__name__}"
    ways = {"anew": without_alpha_theta, "generator": wrong, "name": name, "right": "feddyn"}
    table = document(algorithms={key: {"algorithm": x} for key, x in ways.items()})
    anew, generator, named, right = fedref.run(table).records
    assert worst_of(anew, generator) < 1e-10
    assert worst_of(generator, right) > 1e-3
    assert generator.rows == named.rows
    again = pickle.loads(pickle.dumps(experiment(table).algorithms["generator"]))
    assert again == experiment(table).algorithms["name"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("feddyn with FedDyn's αθ is mising", f'of feddyn .* did you mean "{ALPHA_THETA}"'),
        ("feddin with x", "unknown algorithm of fedref.spec 'feddin'"),
        ("fedavg with FedDyn's αθ is missing", "unknown mistake of fedavg"),
        # a run draws no padding
        ("fedavg with padding reads the last row", "unknown mistake of fedavg"),
    ],
)
def test_an_unknown_mistake_of_a_run_is_told(name, said):
    with pytest.raises(FedrefError, match=said):
        run_beside(f"fedref.judge:{name}")


@pytest.mark.parametrize(
    ("algorithm", "mistake", "said"),
    [("feddyn", "FedDyn's αθ is mising", "unknown mistake"), ("feddin", "x", "unknown algorithm")],
)
def test_an_unknown_mistake_has_no_generator(algorithm, mistake, said):
    with pytest.raises(FedrefError, match=said):
        mistaken(algorithm, mistake)
