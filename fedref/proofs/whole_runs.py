"""Runs: rounds compute, keep, log and score what the specification does; float32 stays float32.

The specification takes only the Plan from fedref, which is data (who takes part, with which rows), and
the training loss that an algorithm watches, which is compared as well.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from functools import partial
from inspect import Parameter, signature
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from fedref import spec
from fedref.algorithm import AnyAlgorithm, State
from fedref.algorithms import ALGORITHMS, per_fedavg
from fedref.checks import Report
from fedref.draws import serialise
from fedref.judge import answer, make_case
from fedref.judge.adapter import personal
from fedref.judge.case import nest
from fedref.models import MLP, tree
from fedref.models.numerics import Array
from fedref.proofs.golden import CASES
from fedref.proofs.setting import Setting, equal
from fedref.proofs.table import proof
from fedref.rounds import evaluation
from fedref.rounds.evaluation import evaluate, evaluate_unseen, sample_mean
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.loop import pool, run_clients, run_round
from fedref.sampling import Plan, Sampling, make_plan

#: Rows of each client. The first has too few for a support set, the second has no test row.
TRAIN, TEST = (1, 4, 7, 3, 5), (2, 0, 3, 1, 2)
SHIFT, SCALE = np.array([0.5, 0.0]), np.array([1.0, 2.0])  # of the two features
#: EPOCHS draws clients with replacement, for two epochs; STEPS draws different ones, for three steps.
#: In both, some straggle. A support of ¾ of 2 rows is 1½: rounding goes to the even 2, all but one are 1.
EPOCHS = Sampling(4, epochs=2, batch_size=2, sampling="by-samples", stragglers=0.4, support=0.75)
STEPS = Sampling(3, steps=3, batch_size=3, stragglers=0.4, support=0.5)
SMALL = MLP(2, (3,), 2, "tanh", l2=0.1)


class Run(NamedTuple):
    """An algorithm with some of its options, over some rounds.

    samplings : how its rounds are drawn; () where `golden` has them.
    """

    tag: str
    name: str
    options: Mapping[str, Any]
    rounds: int = 3
    samplings: tuple[Sampling, ...] = (EPOCHS,)


#: Options of golden rounds that logs depend on beside the states.
LOGGED = "adaptive_mu", "until_gamma", "init"


def list_runs() -> Iterator[Run]:
    """Yield the runs: the options of the golden vectors' rounds, each once, and what no case has.

    The first of each algorithm is drawn both ways; and once more with the other weights and stragglers.
    Options that change states alone are compared in `golden`: in float32 they run here, too.
    """
    rounds = [case for case in CASES if case.call == "round"]
    some = {(case.algorithm, repr(case.hyper)): case for case in rounds}
    seen, shown = set[str](), set[Any]()
    for tag, name, options, length in (
        *((x.tag, x.algorithm, x.hyper, len(x.arguments()["plans"])) for x in some.values()),
        ("apfl eq.2", "fedavg-update", {"lr": 0.3, "alpha": 0.2, "inner_steps": 3}, 3),
        ("apfl eq.2", "fedavg-meta", {"lr": 0.3, "alpha": 0.2, "inner_steps": 2}, 3),
        ("fedmaml §4.3", "fedmaml", {"inner_steps": 2, "evaluate": "theta1"}, 3),
        ("fedprox alg.2", "fedprox", {"lr": 0.3, "measure_gamma": False}, 3),
        ("apfl §4.1.3", "apfl", {"lr": 0.2, "z": 3, "window": 100}, 5),
        ("per-fedavg eq.6", "per-fedavg", {"inner_steps": 3}, 3),
        ("fedmeta Meta-SGD", "fedmeta-sgd", {"inner_steps": 2}, 3),
        ("fedopt alg.2", "fedadam", {"bias_correction": True}, 4),
        ("fedopt alg.2", "fedyogi", {"bias_correction": True, "server_lr": 0.02}, 4),
    ):
        names = (f.name for f in fields(ALGORITHMS[name]))
        known: dict[str, Any] = {x: options[x] for x in names if x in options}
        key = name, *map(known.get, LOGGED)
        held = "B" in options and key in shown  # a golden case's have a batch size
        drawn = (EPOCHS, STEPS) if name not in seen else () if held else (EPOCHS,)
        yield Run(tag, name, known, max(length, 3), drawn)
        shown.add(key)
        if name not in seen and "weights" in signature(function_of(name)).parameters:
            weighting = "uniform" if known.get("weighting") == "samples" else "samples"
            other = {"weighting": weighting, "drop": not ALGORITHMS[name]().drop}
            yield Run(tag, name, known | other)
        seen.add(name)


def function_of(name: str) -> Any:
    """Return the specification's function of an algorithm's rounds."""
    page = ALGORITHMS[name].__module__.rpartition(".")[2]
    return getattr(spec, name, getattr(spec, page))  # FedAvgM has one of its own


# ---- a federation, and the plans of some rounds ----------------------------------------------------


class World:
    """A few unequal clients, and rounds in which all happens that `is_eventful` asks for."""

    def __init__(self, c: Setting, it: AnyAlgorithm, sampling: Sampling, rounds: int) -> None:
        self.c, self.it, self.sampling = c, it, sampling
        n = sum(TRAIN) + sum(TEST)
        D, rows = c.draw_batch(n), c.rng.permutation(n)
        train = Part(rows[: sum(TRAIN)], np.cumsum([0, *TRAIN]))
        test = Part(rows[sum(TRAIN) :], np.cumsum([0, *TEST]))
        source = Source(SHIFT + SCALE * D.X, D.y)
        self.federation = Federation(source, train, test, shift=SHIFT, scale=SCALE)
        self.trained = pool(self.federation, c.rng) if it.pooled else self.federation
        drawn = Sampling(1, epochs=1, batch_size=3) if it.pooled else sampling
        sizes, first = self.trained.train.sizes, int(c.rng.integers(1 << 30))
        for self.seed in range(first, first + 1000):
            self.plans = [make_plan(drawn, sizes, t, self.seed, it.roles) for t in range(rounds)]
            if it.pooled or is_eventful(self.plans, it, sampling):
                return
        raise RuntimeError("no seed has the plans wanted")  # pragma: no cover

    def batch(self, rows: Array) -> spec.Batch:
        """Return rows of the source, scaled."""
        source = self.federation.source
        return spec.Batch((source.X[rows] - SHIFT) / SCALE, source.y[rows])

    def answer(self, losses: list[float | None]) -> list[Any]:
        """Return the specification's state after each round. losses : of training, where watched."""
        part = self.trained.train
        told = [{} if loss is None else {"loss": loss} for loss in losses]
        inputs = {  # no state that the class has made: the specification makes its own
            "state": {"server": {"theta" if "S" in self.it.roles[0] else "w": self.c.w}},
            "data": self.batch(part.rows)._asdict() | {"offsets": part.offsets},
            "plans": [plan._asdict() | loss for plan, loss in zip(self.plans, told)],
        }
        case = make_case("round", self.c.model, inputs, name_of(self.it), asdict(self.it))
        whole = nest(answer(case))
        return [{"clients": {}, "measured": {}} | whole[str(t)] for t in range(len(losses))]

    def run(
        self, dtype: Any = np.float64, work: Any = run_clients, **how: Any
    ) -> Iterator[tuple[State, Any, float | None]]:
        """Yield fedref's state and log after each round, and the loss that the algorithm watches."""
        it, model, work = self.it, self.c.model, partial(work, **how)
        state = State(it.initial(model, self.c.w.astype(dtype)), {})
        for t, plan in enumerate(self.plans):
            state, log = run_round(it, model, state, plan, self.trained, dtype=dtype, work=work)
            loss = None
            if it.watches_loss:
                at: dict[str, Any] = {"round": t, "seed": self.seed, "dtype": dtype}
                scores = evaluate(it, model, state, self.federation, self.sampling, **at)
                loss = sample_mean(scores.train_loss, scores.n_train)
                state = state._replace(server=it.observe_loss(state.server, loss))
            yield state, log, loss

    def score(self, state: Any, k: int | None, D: Any, *parts: spec.Batch) -> list[float]:
        """Return the specification's scores of client k, or of a new one, that adapts to D."""
        h = SimpleNamespace(**asdict(self.it), shapes=self.c.model.shapes)
        kept = state["clients"].get(k, {})
        w, nan = personal(name_of(self.it), self.c.f, h, state["server"], kept, D), (np.nan, np.nan)
        both = (spec.evaluate(self.c.f, w, D) if len(D.y) else nan for D in parts)
        (test, accuracy), (train, _) = both
        return [len(parts[0].y), accuracy, test, len(parts[1].y), train]


def is_eventful(plans: list[Plan], it: AnyAlgorithm, sampling: Sampling) -> bool:
    """Return whether all events occur in these rounds.

    A client is drawn twice; one straggles, with less work than the others; one takes part in two
    consecutive rounds, and one misses a round between two of its own; no round is empty.
    """
    twice = sampling.sampling == "uniform" or any((p.counts > 1).any() for p in plans)
    less = any((p.straggler & (it.drop | (p.amount < sampling.amount))).any() for p in plans)
    there = [set(p.clients[~(p.straggler & it.drop)].tolist()) for p in plans]
    follows = any(a & b for a, b in pairwise(there))
    misses = any((a & c) - b for a, b, c in zip(there, there[1:], there[2:]))
    return twice and less and follows and misses and all(there)


def name_of(it: AnyAlgorithm) -> str:
    """Return the algorithm's name in cases."""
    return next(name for name, kind in ALGORITHMS.items() if type(it) is kind)


# ---- states and logs --------------------------------------------------------------------------------

#: What a server keeps that the specification does not yield, because it keeps the whole history.
UNNAMED = {
    "falls", "loss", "t", "renew", "delta_mu", "delta_sigma", "length", "window", "mean_old", "std_old",
    "peak", "theta1",
}  # fmt: skip


def compare_run(c: Setting, run: Run) -> Iterator[Report]:
    """Compare rounds, clients one by one and stacked, with the specification's."""
    it = ALGORITHMS[run.name](**run.options)
    c.w[0] = 0.0  # what divides by a parameter is wrong
    for sampling in run.samplings:
        world = World(c, it, sampling, run.rounds)
        both = [list(world.run(stack=stack)) for stack in (False, True)]
        threads = [list(world.run(stack=stack, threads=2)) for stack in (True, False)]
        for run_again in (both[1], *threads):
            for (ours, *_), (alone, *_) in zip(run_again, both[0], strict=True):
                for got, expected in zip(arrays_of(ours), arrays_of(alone), strict=True):
                    yield equal(got, expected, bound=0)
        states = world.answer([loss for *_, loss in both[0]])
        for t, (want, *ours) in enumerate(zip(states, *both, strict=True)):
            yield from compare_scores(world, ours[0][0], want, t)
            for state, log, loss in ours:
                yield from compare_state(state, want, getattr(it, "alpha", 0.0))
                logged = {**log.measured, **it.server_metrics(state.server)}
                missing = want["measured"].keys() - logged.keys()
                assert missing <= ({"gamma"} if not getattr(it, "measure_gamma", True) else set())
                known = want["measured"] | want["server"] | {"renewed": want["server"].get("renew")}
                for name, value in logged.items():
                    yield equal(value, known[name])
                if loss is not None:
                    rows = map(world.federation.train.rows_of, range(len(TRAIN)))
                    data = enumerate(map(world.batch, rows))
                    each = [world.score(want, k, None, D, D)[-1] for k, D in data]
                    yield equal(loss, np.average(each, weights=TRAIN))


def arrays_of(state: State) -> list[Array]:
    """Return the numbers of a state, those of clients in their order."""
    clients = tuple(state.clients[k] for k in sorted(state.clients))
    return [np.asarray(x, float) for x in tree.leaves((state.server, clients)) if x is not None]


def compare_state(state: State, want: Any, start: float) -> Iterator[Report]:
    """Compare the server's state and all that clients keep, leaf by leaf.

    start : a client's number α begins there; near 0 it is a difference, whose rounding is that of its terms.
    """
    server = serialise.dump_state(state.server, float)
    unnamed = server.keys() - want["server"].keys() - UNNAMED
    assert not unnamed, f"the server keeps {', '.join(unnamed)}, which nothing is compared with"
    for name, value in want["server"].items():
        yield equal(server[name], value)
    yield equal(sorted(state.clients), sorted(want["clients"]), bound=0)
    for k, expected in want["clients"].items():
        kept = serialise.dump_state(state.clients[k], float)
        assert kept.keys() == expected.keys(), f"a client keeps {', '.join(kept)}"
        for name, value in expected.items():
            beside = [] if np.ndim(value) else [start]
            yield equal(np.append(kept[name], beside), np.append(value, beside))


def compare_float32(c: Setting, run: Run) -> Iterator[Report]:
    """Check that every array of states and uploads stays float32, and scores are those of cast data."""
    world, uploads = World(c, ALGORITHMS[run.name](**run.options), EPOCHS, 3), list[Any]()

    def work(*given: Any, stack: Any) -> Any:
        it, model, sent, states, data = given
        results, counts = run_clients(it, model, sent, states, data, stack=stack)
        uploads.extend(result.upload for result in results if result)
        return results, counts

    for stack in (False, True):
        *_, (state, *_) = world.run(np.float32, work, stack=stack)
        arrays = tree.leaves((state.server, *state.clients.values(), *uploads))
        dtypes = {x.dtype for x in arrays if isinstance(x, np.ndarray) and x.ndim}
        assert {dtype for dtype in dtypes if dtype.kind == "f"} == {np.dtype(np.float32)}, dtypes
    source = world.federation.source
    cast = replace(world.federation, source=Source(source.X.astype(np.float32), source.y))
    at: dict[str, Any] = {"seed": world.seed, "dtype": np.float32}
    every = partial(evaluate, sampling=EPOCHS, round=3, **at)
    new = partial(evaluate_unseen, clients=np.array([2, 4]), support=0.75, **at)
    for scores in (every, new):
        got, want = (scores(world.it, c.model, state, data) for data in (world.federation, cast))
        yield compare_numbers(got, want, bound=0)


# ---- scores -----------------------------------------------------------------------------------------


def compare_scores(world: World, state: State, want: Any, t: int) -> Iterator[Report]:
    """Compare the scores of all clients, of a few of them, and of clients that never trained."""
    it, federation, model = world.it, world.federation, world.c.model
    rows, unseen = [], []
    for k, n in enumerate(TRAIN):
        train, test = (world.batch(part.rows_of(k)) for part in (federation.train, federation.test))
        role, order = it.adapts_on, spec.stream(world.seed, "adapt", t, k).permutation(n)
        support, _ = spec.split_episode(order, world.sampling.support)
        adapts_to = {"D": order[: world.sampling.batch_size], "S": support}
        adaptation = train.rows(adapts_to[role]) if role else None
        rows.append(world.score(want, k, adaptation, test, train))
        whole = spec.Batch(*map(np.concatenate, zip(train, test)))
        order = spec.stream(world.seed, "unseen", k).permutation(len(whole.y))
        S, Q = map(whole.rows, spec.split_episode(order, 0.75))
        unseen.append(world.score(want, None, S if role else None, Q, S))
    given: dict[str, Any] = {"round": t, "seed": world.seed}
    every = evaluate(it, model, state, federation, world.sampling, **given)
    yield compare_numbers(every, np.transpose(rows))
    some = np.array([4, 2])
    sent, few = it.download(state.server), federation.subset(some)
    how = evaluation.Evaluation(few, some.tolist(), world.sampling, **given)
    alone = evaluation.evaluate_clients(it, model, sent, state.clients, how)
    yield compare_numbers(alone, np.transpose([rows[k] for k in some]))
    new = evaluate_unseen(it, model, state, federation, some, support=0.75, seed=world.seed)
    yield compare_numbers(new, np.transpose([unseen[k] for k in some]))


def compare_numbers(got: Any, want: Any, bound: float = 1e-12) -> Report:
    """Compare scores; −1 stands for NaN, which nothing else is."""
    numbers = [np.nan_to_num(np.array(x, float), nan=-1) for x in (got, want)]
    return equal(numbers[0], numbers[1], bound)


def enter(run: Run) -> None:
    kind: Any = ALGORITHMS[run.name]
    default = {f.name: f.default for f in fields(kind)}
    options = ", ".join(f"{key}={x!r}" for key, x in run.options.items() if x != default[key])
    if run.samplings:
        rounds = f"{run.rounds} rounds of {run.name}({options})"
        claim = f"{rounds} = the specification, states and scores"
        proof(run.tag, claim, [SMALL])(partial(compare_run, run=run))
    claim = f"{run.name}({options}): every array stays float32; scores = those of data cast first"
    proof("float32", claim, [SMALL])(partial(compare_float32, run=run))


RUNS = list(list_runs())
for _run in RUNS:
    enter(_run)


# ---- what the specification's side states: defaults, roles, and on what a client adapts ---------------

#: Fields that are parameters of the specification with another name.
RENAMED = {
    "until_gamma": "gamma", "adaptive_alpha": "adaptive", "inner_steps": "steps", "beta": "mixing",
    "server_lr": "eta_s",
}  # fmt: skip
WEIGHTINGS: dict[Any, str] = {spec.sample_weights: "samples", spec.uniform_weights: "uniform"}
#: Who draws D, D′, D″ or S and Q, and what else than nothing a client adapts to before it is tested.
ROLES = {
    "per-fedavg": "D D1 D2", "per-fedavg-fo": "D D1", "per-fedavg-hf": "D D1 D2",
    **dict.fromkeys(("fedmeta-maml", "fedmeta-fomaml", "fedmeta-sgd", "fedmaml"), "S Q"),
}  # fmt: skip
ADAPTS_ON = {
    **dict.fromkeys(("fedavg-update", "per-fedavg", "per-fedavg-fo", "per-fedavg-hf", "pfedme"), "D"),
    **dict.fromkeys(("fedavg-meta", "fedmeta-maml", "fedmeta-fomaml", "fedmeta-sgd", "fedmaml"), "S"),
}  # fmt: skip


@proof("defaults", "weights, roles and defaults of every algorithm = the specification's", [SMALL])
def defaults(c: Setting) -> Iterator[Report]:
    for name, kind in ALGORITHMS.items():
        it, parameters = kind(), signature(function_of(name)).parameters
        given = {key: x.default for key, x in parameters.items()}
        given |= {"eta_s": given["eta_g"]} if name == "scaffold" else {}
        given |= {"beta1": 0.0} if name == "fedadagrad" else {}  # no momentum
        for key, value in asdict(it).items():
            # a parameter without a default is one that the paper leaves open, such as a step size
            expected = given.get(RENAMED.get(key, key), given.get(key, Parameter.empty))
            assert expected in (value, Parameter.empty), f"{name}: {key}"
        assert it.weighting == WEIGHTINGS.get(given.get("weights", it), it.weighting), name
        assert it.roles == tuple(ROLES.get(name, "D").split()), name
        assert it.adapts_on == ADAPTS_ON.get(name), name
        assert it.drop is (name not in ("fedprox", "fednova")), name
    delta = signature(spec.difference).parameters["delta"].default
    yield equal(per_fedavg.PerFedAvgHF().delta, delta, bound=0)
    three: Any = {"inner_steps": 3}
    lengths = [len(ALGORITHMS[f"per-fedavg{x}"](**three).roles) for x in ("", "-fo", "-hf")]
    yield equal(lengths, [7, 4, 7], bound=0)
