"""The table of proofs: one small case a claim, which `fedref check` runs and prints.

The chain of trust. A plain loop over Python numbers (`oracle`) is the loss; the complex step of the
loss is the gradient; the complex step of the gradient is the Hessian-vector product; and with these
three every equation of every algorithm is compared with the complex step of its own objective, or
with a plain loop that says the same in other words.

A proof is a generator of reports, one for each thing compared; `@proof` puts it into `PROOFS`. It
gets a `Case`: a small model, a point away from all kinks, and batches. To read one, start at
`per_fedavg_eq3`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from fedref import tree
from fedref.algorithm import AnyAlgorithm, Cohort, Server, weighted_mean
from fedref.algorithms import (
    apfl,
    centralised,
    fedavg,
    fedcurv,
    fedmaml,
    fedmeta,
    fedprox,
    importance,
    per_fedavg,
    plateau,
    units,
)
from fedref.batch import Batch
from fedref.checks import (
    BOUND,
    Report,
    check_gradient,
    check_hvp,
    complex_step_gradient,
    complex_step_hvp,
    relative_error,
    stack_equals_loop,
)
from fedref.errors import ConfigError
from fedref.models import CNN, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.models.base import Model
from fedref.numerics import Array
from fedref.sampling import stream

# --- The oracle: losses by plain loops over Python numbers, sharing no code with the models --------


def oracle_scores(model: Any, w: Array, x: Array) -> tuple[list[float], list[Any]]:
    """(z, on which side of each kink it is) of one sample, straight from the class docstrings."""
    numbers, sides = iter(w.tolist()), list[Any]()
    kind = getattr(model, "activation", None)

    def take(*shape: int) -> Any:
        """The next numbers of w, row-major."""
        if not shape:
            return next(numbers)
        return [take(*shape[1:]) for _ in range(shape[0])]

    def phi(z: float) -> float:
        if kind == "tanh":
            return math.tanh(z)
        sides.append(z > 0)
        return max(z, 0.0) if kind == "relu" else (z if z > 0 else math.expm1(z))

    def pool(window: list[float]) -> float:
        if model.pool == "mean":
            return sum(window) / 4
        sides.append(max(range(4), key=window.__getitem__))
        return max(window)

    widths: tuple[int, ...]
    a = x.tolist()
    if isinstance(model, CNN):
        H, W, c = model.pixels
        a = [[[a[(i * W + j) * c + k] for k in range(c)] for j in range(W)] for i in range(H)]
        k, r = model.kernel, range(model.kernel)
        for out in model.channels:
            kernel, b = take(k, k, c, out), take(out)

            def conv(i: int, j: int, o: int, a: Any = a, K: Any = kernel, c: int = c) -> float:
                taps = ((p, q, m) for p in r for q in r for m in range(c))
                return float(sum(a[i + p][j + q][m] * K[p][q][m][o] for p, q, m in taps))

            H, W, c = (H - k + 1) // 2, (W - k + 1) // 2, out
            square = [(p, q) for p in (0, 1) for q in (0, 1)]
            a = [
                [
                    [pool([phi(conv(2 * i + p, 2 * j + q, o) + b[o]) for p, q in square])
                     for o in range(out)]
                    for j in range(W)
                ]
                for i in range(H)
            ]  # fmt: skip
        a = [value for row in a for pixel in row for value in pixel]
        widths = (model.hidden, model.classes)
    elif isinstance(model, MLP):
        widths = model.sizes[1:]
    else:
        widths = (getattr(model, "classes", 1),)

    for l, out in enumerate(widths):
        weight, b = take(len(a), out), take(out)
        z = [sum(a_i * row[o] for a_i, row in zip(a, weight)) + b[o] for o in range(out)]
        a = [phi(z_o) for z_o in z] if l < len(widths) - 1 else z
    return a, sides


def oracle_sample(model: Any, z: list[float], y: int) -> tuple[float, list[Any]]:
    """(ℓ, sides) of one sample from its scores."""
    if isinstance(model, BinaryLogistic):
        return float(-special.log_expit(z[0] if y == 1 else -z[0])), []
    if isinstance(model, LinearSVM):
        margin = 1 - y * z[0]
        return max(margin, 0.0) ** (2 if model.squared else 1), [margin > 0]
    return math.log(sum(math.exp(z_c) for z_c in z)) - z[y], []


def oracle(model: Any, w: Array, D: Batch) -> tuple[float, list[Any]]:
    """(f(w; D), on which side of each kink each sample is)."""
    s = [1.0] * len(D.y) if D.s is None else D.s.tolist()
    f, sides = 0.0, list[Any]()
    for x, y, s_j in zip(D.X, D.y.tolist(), s):
        z, inside = oracle_scores(model, w, x)
        loss, outside = oracle_sample(model, z, y)
        f += s_j * loss / sum(s)
        sides += inside + outside
    return f + model.l2 / 2 * sum(w_j * w_j for w_j in w.tolist()), sides


# --- Cases ----------------------------------------------------------------------------------------


class Case:
    """A small model with a point w, directions vs, and batches D, D1, D2 that keep off the kinks.

    On the way from w to w + v/10, the longest step of a Taylor test, no sample changes sides: one
    that would is drawn again.
    """

    def __init__(self, model: Any, rng: np.random.Generator) -> None:
        self.model, self.rng = model, rng
        self.w, self.vs = self.vector(), 0.1 * self.vectors(3)
        self.s = np.array([1.0, 0.5, 0.0, 2.0])  # weights of D, and padding

    @cached_property
    def D(self) -> Batch:
        return self.batch(4)._replace(s=self.s)

    @cached_property
    def D1(self) -> Batch:
        return self.batch(3)

    @cached_property
    def D2(self) -> Batch:
        return self.batch(5)

    def vector(self) -> Array:
        return np.asarray(0.5 * self.rng.normal(size=self.model.d))

    def vectors(self, n: int) -> Array:
        return np.stack([self.vector() for _ in range(n)])

    def batch(self, n: int) -> Batch:
        return Batch(*(np.concatenate(part) for part in zip(*(self.sample() for _ in range(n)))))

    def sample(self) -> tuple[Array, Array]:
        for _ in range(1000):
            x = self.rng.normal(size=(1, self.model.features))
            D = Batch(x, self.rng.choice(self.model.labels, 1))
            here = oracle(self.model, self.w, D)[1]
            there = (oracle(self.model, self.w + 0.1 * v, D)[1] for v in self.vs)
            if not here or all(sides == here for sides in there):
                return D.X, D.y
        raise RuntimeError(f"no sample keeps off the kinks of {self.model}")  # pragma: no cover


Compare = Callable[[Case], Iterator[Report]]


class Row(NamedTuple):
    """One line of the table: the largest error and the worst slope of all that was compared."""

    tag: str
    claim: str
    error: float
    bound: float
    slope: float | None
    order: int | None
    verdict: str
    note: str = ""


class Proof(NamedTuple):
    """tag : the equation; claim : what is compared with what; exact : whether slope inf is right."""

    tag: str
    claim: str
    compare: Compare
    models: Sequence[Model]
    exact: bool

    def run(self, seed: int) -> Row:
        """All that is compared, on every model; an exception is a failure too."""
        reports = []
        try:
            for i, model in enumerate(self.models):
                reports += self.on(model, seed, i)
        except Exception as exception:
            note = f"{type(exception).__name__}: {exception}"
            return Row(self.tag, self.claim, math.nan, BOUND, None, None, "FAIL", note)
        slopes = [(r.slope, r.order or 0) for r in reports if r.slope is not None]
        slope, order = max(slopes, key=lambda pair: abs(pair[0] - pair[1]), default=(None, None))
        ok = all(r.ok for r in reports) and (slope != math.inf or self.exact)
        error, bound = float(np.max([r.error for r in reports])), max(r.bound for r in reports)
        return Row(self.tag, self.claim, error, bound, slope, order, "ok" if ok else "FAIL")

    def on(self, model: Model, seed: int, i: int) -> list[Report]:
        """One case. An error counts wherever it is; a slope is a statement about almost all points
        (inner steps may land beside a kink), so that a wrong one is looked at in three places."""
        for place in range(3):
            case = Case(model, stream(seed, f"check {self.tag} {self.claim}", i, place))
            reports = list(self.compare(case))
            if all(r.slope_ok for r in reports) or not all(r.error_ok for r in reports):
                break
        return reports


#: The models that the algorithms are checked on, one a family; SMOOTH are those without kinks.
SMOOTH = (
    Logistic(3, 3, l2=0.1),
    MLP(3, (4,), 3, "tanh"),
    CNN((6, 5), (2,), 3, 3, 3, "tanh", "mean"),
)
FAMILIES = (*SMOOTH, LinearSVM(4, l2=0.1, squared=True))
ONE = SMOOTH[:1]  # for what does not depend on the model

PROOFS: list[Proof] = []


def proof(
    tag: str, claim: str, models: Sequence[Model] = FAMILIES, exact: bool = False
) -> Callable[[Compare], Compare]:
    """Put what is decorated into the table."""

    def register(compare: Compare) -> Compare:
        PROOFS.append(Proof(tag, claim, compare, models, exact))
        return compare

    return register


def select(only: Sequence[str]) -> list[Proof]:
    """The proofs whose tag is one of `only`; a name that is no whole tag may be a part of some."""
    chosen = set[str]()
    tags = list(dict.fromkeys(p.tag for p in PROOFS))
    for name in only:
        wanted = name.strip().strip("[]").lower()
        whole = [tag for tag in tags if tag.lower() == wanted]
        found = whole or [tag for tag in tags if wanted and wanted in tag.lower()]
        if not found:
            (near,) = get_close_matches(wanted, tags, n=1, cutoff=0.0)
            raise ConfigError(
                f"no proof has the tag {name!r}: did you mean {near!r}? "
                "`fedref check` without --only lists all tags"
            )
        chosen.update(found)
    return [p for p in PROOFS if p.tag in chosen or not only]


def run(only: Sequence[str] = (), seed: int = 0) -> list[Row]:
    """The table. Each proof has its own random numbers: `only` changes no row.

    >>> [row.verdict for row in run(["per-fedavg eq.3"])]
    ['ok']
    """
    return [p.run(seed) for p in select(only)]


# --- How things are compared ----------------------------------------------------------------------


def equal(got: Any, expected: Any, bound: float = BOUND) -> Report:
    return Report(relative_error(got, expected), bound=bound)


def slow_grad(model: Model, w: Array, D: Batch) -> Array:
    """∇f(w; D) by complex step of the loss."""
    return complex_step_gradient(lambda w: model.loss(w, D), w)


def slow_hvp(model: Model, w: Array, v: Array, D: Batch) -> Array:
    """H(w; D)v by complex step of the gradient."""
    return complex_step_hvp(lambda w: model.grad(w, D), w, v)


def slow_steps(model: Model, w: Array, D: Batch, alpha: Any, steps: int) -> Array:
    """w after some steps w ← w − α ⊙ ∇f(w; D)."""
    for _ in range(steps):
        w = w - alpha * slow_grad(model, w, D)
    return w


def with_block(at: Sequence[Any], block: int, x: Any) -> list[Any]:
    """`at` with x in one place: to look at a function of several arguments as one of that one."""
    return [*at[:block], x, *at[block + 1 :]]


def loop_sum(c: Any, xs: Any) -> Array:
    """Σ_k c_k x_k, number by number."""
    return np.array([math.fsum(c_k * x_j for c_k, x_j in zip(c, column)) for column in zip(*xs)])


def order_in(error: Callable[[float], float], steps: Array) -> float:
    """p where the error goes as step^p."""
    return float(np.polyfit(np.log(steps), np.log([error(h) for h in steps]), 1)[0])


def one_round(
    algorithm: AnyAlgorithm,
    c: Case,
    clients: Sequence[Sequence[Sequence[Batch]]],
    server: Any = None,
    client_states: Any = None,
) -> tuple[Any, list[Any]]:
    """(the server, what each client keeps) after a round from c.w, or from another server state.

    clients[k][t] are the batches of client k's step t; the first is all of its data.
    """
    server = algorithm.initial(c.model, c.w) if server is None else server
    sent, done = algorithm.download(server), []
    for steps, client_state in zip(clients, client_states or [None] * len(clients)):
        local = algorithm.start(c.model, sent, client_state)
        for batches in steps:
            local = algorithm.step(c.model, sent, local, *batches)
        everything = partial(steps[0].__getitem__, 0)
        done.append(algorithm.finish(c.model, sent, local, client_state, everything))
    n = np.array([len(steps[0][0].y) for steps in clients])
    cohort = Cohort(np.arange(len(n)), np.ones_like(n), n)
    uploads = tree.stack([one.upload for one in done])
    return algorithm.combine(c.model, server, uploads, cohort), [one.client_state for one in done]


# --- Models: loss, gradient, Hessian-vector product, stacks ---------------------------------------


def model_loss(c: Case) -> Iterator[Report]:
    for D in (c.D, c.D1):
        yield equal(c.model.loss(c.w, D), oracle(c.model, c.w, D)[0])


def model_grad(c: Case) -> Iterator[Report]:
    yield check_gradient(lambda w: c.model.loss(w, c.D), lambda w: c.model.grad(w, c.D), c.w, c.vs)


def model_hvp(c: Case) -> Iterator[Report]:
    m, D = c.model, c.D
    f, grad, hvp = (
        (lambda w: m.loss(w, D)), (lambda w: m.grad(w, D)), (lambda w, v: m.hvp(w, v, D))
    )  # fmt: skip
    yield check_hvp(f, grad, hvp, c.w, c.vs)


def model_stack(c: Case) -> Iterator[Report]:
    K = 7  # clients; no other axis has this length
    w, v, D = c.vectors(K), c.vectors(K), tree.stack([c.batch(2) for _ in range(K)])
    yield stack_equals_loop(c.model.loss, w, D)
    yield stack_equals_loop(c.model.grad, w, D)
    yield stack_equals_loop(c.model.hvp, w, v, D)


MODELS: dict[str, Any] = {
    "BinaryLogistic": BinaryLogistic(4, l2=0.1),
    "Logistic": Logistic(3, 4, l2=0.1),
    "LinearSVM hinge": LinearSVM(4, l2=0.1),
    "LinearSVM squared": LinearSVM(4, l2=0.1, squared=True),
    **{f"MLP {phi}": MLP(3, (5, 4), 3, phi, l2=0.1) for phi in ("elu", "relu", "tanh")},
    **{
        f"CNN {phi} {pool}": CNN((6, 5, 2), (3,), 3, 4, 3, phi, pool, l2=0.1)
        for phi in ("elu", "relu", "tanh")
        for pool in ("max", "mean")
    },
    "CNN deep": CNN((10, 12), (2, 3), 3, 4, 3, "relu", "max"),
}
for _name, _model in MODELS.items():
    for _what, _compare, _claim in (
        ("loss", model_loss, "loss = plain loops over the samples"),
        ("grad", model_grad, "grad = complex step of loss"),
        ("hvp", model_hvp, "hvp = complex step of grad"),
        ("stack", model_stack, "loss, grad, hvp of a stack = one by one"),
    ):
        _exact = _what == "hvp" and isinstance(_model, LinearSVM)  # piecewise a quadratic
        proof(f"{_name} {_what}", _claim, [_model], _exact)(_compare)


# --- FedAvg ---------------------------------------------------------------------------------------


@proof("apfl eq.1", "FedAvg round = Σ n_k/n w_k by plain loops")
def apfl_eq1(c: Case) -> Iterator[Report]:
    batches, eta = (c.D1, c.D2, c.batch(7)), 0.3
    ws = [c.w - eta * slow_grad(c.model, c.w, D) for D in batches]
    algorithm = fedavg.FedAvg(lr=eta)
    server, _ = one_round(algorithm, c, [[[D]] for D in batches])
    yield equal(server.w, loop_sum([3 / 15, 5 / 15, 7 / 15], ws))


@proof("apfl eq.2", "local_step, adapt = steps along the complex step of f_k")
def apfl_eq2(c: Case) -> Iterator[Report]:
    for steps in (1, 3):
        expected = slow_steps(c.model, c.w, c.D, 0.3, steps)
        yield equal(fedavg.adapt(c.model, c.w, c.D, alpha=0.3, steps=steps), expected)
    yield equal(fedavg.local_step(c.model, c.w, c.D, lr=0.3), slow_steps(c.model, c.w, c.D, 0.3, 1))


@proof("apfl §4.1.1", "Centralised step on pooled rows = step along Σ p_k ∇f_k")
def apfl_centralised(c: Case) -> Iterator[Report]:
    pooled = Batch(*(np.concatenate(pair) for pair in zip(c.D1[:2], c.D2[:2])))
    got = centralised.Centralised(lr=0.3).step(c.model, Server(c.w), c.w, pooled)
    g = loop_sum([3 / 8, 5 / 8], [slow_grad(c.model, c.w, D) for D in (c.D1, c.D2)])
    yield equal(got, c.w - 0.3 * g)


@proof("apfl §4.1.2", "FedCurv in its first round = FedAvg, bit for bit")
def fedcurv_first_round(c: Case) -> Iterator[Report]:
    clients = [[[c.D1]], [[c.D2]]]
    one, other = fedcurv.FedCurv(lr=0.3), fedavg.FedAvg(lr=0.3)
    (got, _), (expected, _) = (one_round(algorithm, c, clients) for algorithm in (one, other))
    yield equal(got.w, expected.w, bound=0)


# --- FedProx --------------------------------------------------------------------------------------


@proof("fedprox alg.2", "objective = oracle loss + (μ/2)‖w − wᵗ‖² by plain loops")
def fedprox_objective(c: Case) -> Iterator[Report]:
    w0 = c.vector()
    expected = oracle(c.model, c.w, c.D)[0] + 0.35 * sum((a - b) ** 2 for a, b in zip(c.w, w0))
    yield equal(fedprox.objective(c.model, c.w, w0, c.D, mu=0.7), expected)


@proof("fedprox alg.2", "prox_gradient = complex step of objective")
def fedprox_gradient(c: Case) -> Iterator[Report]:
    w0 = c.vector()
    yield check_gradient(
        lambda w: fedprox.objective(c.model, w, w0, c.D, mu=0.7),
        lambda w: fedprox.prox_gradient(c.model, w, w0, c.D, mu=0.7),
        c.w, c.vs,
    )  # fmt: skip


@proof("fedprox alg.2", "FedProx with μ = 0 = FedAvg, bit for bit")
def fedprox_mu_zero(c: Case) -> Iterator[Report]:
    clients = [[[c.D1], [c.D2]], [[c.D2], [c.D1]]]
    one, other = fedprox.FedProx(lr=0.3, mu=0.0), fedavg.FedAvg(lr=0.3)
    (got, _), (expected, _) = (one_round(algorithm, c, clients) for algorithm in (one, other))
    yield equal(got.w, expected.w, bound=0)


@proof("fedprox γ", "inexactness = ratio of norms of complex-step ∇h_k")
def fedprox_gamma(c: Case) -> Iterator[Report]:
    w0 = c.vector()
    now, start = (
        complex_step_gradient(lambda w: fedprox.objective(c.model, w, w0, c.D, mu=0.7), w)
        for w in (c.w, w0)
    )
    got = fedprox.inexactness(c.model, c.w, w0, c.D, mu=0.7)
    yield equal(got, math.hypot(*now) / math.hypot(*start))
    yield equal(fedprox.inexactness(c.model, w0, w0, c.D, mu=0.7), 1.0)


@proof("fedprox B", "B and variance = plain loops over complex-step ∇F_k")
def fedprox_dissimilarity(c: Case) -> Iterator[Report]:
    p, gs = (3 / 8, 5 / 8), [slow_grad(c.model, c.w, D) for D in (c.D1, c.D2)]
    g = loop_sum(p, gs)
    got = fedprox.dissimilarity(c.model, c.w, [c.D1, c.D2])
    mean_square = sum(p_k * math.hypot(*g_k) ** 2 for p_k, g_k in zip(p, gs))
    yield equal(got.B, math.sqrt(mean_square) / math.hypot(*g))
    yield equal(got.variance, sum(p_k * math.hypot(*(g_k - g)) ** 2 for p_k, g_k in zip(p, gs)))


@proof("fedprox μ", "adapt_mu = +0.1 on a rise, −0.1 after 5 falls, by hand", ONE)
def fedprox_mu(c: Case) -> Iterator[Report]:
    moves = "+" + 10 * "-" + "=" + 4 * "-" + "=" + 10 * "-" + "+"
    losses = 100.0 + np.cumsum([0, *({"+": 1, "-": -1, "=": 0}[move] for move in moves)])
    by_hand = [
        0.35, *4 * [0.35], 0.25, *4 * [0.25], 0.15, 0.15, *4 * [0.15], 0.15,
        *4 * [0.15], 0.05, *4 * [0.05], 0.0, 0.1,
    ]  # fmt: skip
    mu, falls, got = 0.25, 0, []
    for before, loss in pairwise(losses.tolist()):
        mu, falls = fedprox.adapt_mu(mu, falls, before, loss)
        got.append(mu)
    yield equal(got, by_hand)


# --- Per-FedAvg -----------------------------------------------------------------------------------


@proof("per-fedavg eq.1", "mean of grad = complex step of the mean loss over users")
def per_fedavg_eq1(c: Case) -> Iterator[Report]:
    batches, p = (c.D, c.D1, c.D2), np.full(3, 1 / 3)
    yield check_gradient(
        lambda w: sum(c.model.loss(w, D) for D in batches) / 3,
        lambda w: weighted_mean(p, np.stack([c.model.grad(w, D) for D in batches])),
        c.w, c.vs,
    )  # fmt: skip


@proof("per-fedavg eq.2", "meta_objective = oracle loss after a complex-step step")
def per_fedavg_eq2(c: Case) -> Iterator[Report]:
    expected = oracle(c.model, slow_steps(c.model, c.w, c.D, 0.1, 1), c.D)[0]
    yield equal(per_fedavg.meta_objective(c.model, c.w, c.D, alpha=0.1), expected)


@proof("per-fedavg eq.3", "meta_gradient(D = D′ = D″) = complex step of meta_objective")
def per_fedavg_eq3(c: Case) -> Iterator[Report]:
    yield check_gradient(
        lambda w: per_fedavg.meta_objective(c.model, w, c.D, alpha=0.1),
        lambda w: per_fedavg.meta_gradient(c.model, w, c.D, c.D, c.D, alpha=0.1),
        c.w, c.vs,
    )  # fmt: skip


@proof("per-fedavg eq.4", "grad(w, D) = mean of per-sample complex steps")
def per_fedavg_eq4(c: Case) -> Iterator[Report]:
    gs = [slow_grad(c.model, c.w, Batch(c.D.X[j : j + 1], c.D.y[j : j + 1])) for j in range(4)]
    yield equal(c.model.grad(c.w, c.D), loop_sum(c.s / c.s.sum(), gs))


@proof("per-fedavg eq.5", "local_step = w − β∇F number by number")
def per_fedavg_eq5(c: Case) -> Iterator[Report]:
    got = per_fedavg.local_step(c.w, c.vs[0], beta=0.2)
    yield equal(got, [w_j - 0.2 * v_j for w_j, v_j in zip(c.w.tolist(), c.vs[0].tolist())])


def slow_eq6(model: Model, w: Array, D: Batch, D1: Batch, D2: Batch, alpha: float) -> Array:
    """[per-fedavg eq.6] by complex steps alone."""
    u = slow_grad(model, slow_steps(model, w, D, alpha, 1), D1)
    return u - alpha * slow_hvp(model, w, u, D2)


@proof("per-fedavg eq.6", "meta_gradient(D, D′, D″) = the same by complex steps alone")
def per_fedavg_eq6(c: Case) -> Iterator[Report]:
    got = per_fedavg.meta_gradient(c.model, c.w, c.D, c.D1, c.D2, alpha=0.1)
    yield equal(got, slow_eq6(c.model, c.w, c.D, c.D1, c.D2, 0.1))


@proof("per-fedavg eq.6", "ν = 3 inner steps = complex step of the chained objective")
def per_fedavg_steps(c: Case) -> Iterator[Report]:
    Ds = [c.D, c.D1, c.D2]

    def chained(w: Array) -> Array:
        for D in Ds:
            w = w - 0.1 * c.model.grad(w, D)
        return np.asarray(c.model.loss(w, c.D1))

    def gradient(w: Array) -> Array:
        return per_fedavg.meta_gradient_steps(c.model, w, Ds, c.D1, Ds, alpha=0.1)

    yield check_gradient(chained, gradient, c.w, c.vs)


@proof("per-fedavg §3.3", "meta_gradient_fo = complex step of the loss after the step")
def per_fedavg_fo(c: Case) -> Iterator[Report]:
    got = per_fedavg.meta_gradient_fo(c.model, c.w, c.D, c.D1, alpha=0.1)
    yield equal(got, slow_grad(c.model, slow_steps(c.model, c.w, c.D, 0.1, 1), c.D1))


@proof("per-fedavg eq.7", "meta_gradient_hf = as printed; → eq.6 with slope 2 in δ", SMOOTH)
def per_fedavg_eq7(c: Case) -> Iterator[Report]:
    def hf(delta: float) -> Array:
        return per_fedavg.meta_gradient_hf(
            c.model, c.w, c.D, c.D1, c.D2, alpha=0.1, delta=delta
        )  # fmt: skip

    u = slow_grad(c.model, slow_steps(c.model, c.w, c.D, 0.1, 1), c.D1)
    plus, minus = (slow_grad(c.model, c.w + s * 0.1 * u, c.D2) for s in (1, -1))
    exact = slow_eq6(c.model, c.w, c.D, c.D1, c.D2, 0.1)
    slope = order_in(lambda h: relative_error(hf(h), exact), np.logspace(-3, -2, 5))
    yield Report(relative_error(hf(0.1), u - 0.1 * (plus - minus) / 0.2), slope, 2)


@proof("per-fedavg eq.8", "d = Hu exactly where f is quadratic", FAMILIES[-1:])
def per_fedavg_eq8(c: Case) -> Iterator[Report]:
    u = per_fedavg.meta_gradient_fo(c.model, c.w, c.D, c.D1, alpha=1.0)
    wrong = c.D2._replace(y=-c.model.predict(c.w, c.D2.X))  # all margins above 1: one quadratic
    hf = per_fedavg.meta_gradient_hf(c.model, c.w, c.D, c.D1, wrong, alpha=1.0, delta=0.01)
    yield equal(u - hf, slow_hvp(c.model, c.w, u, wrong))


@proof("per-fedavg eq.8", "d = difference of complex steps; → Hu with slope 2 in δ", SMOOTH)
def per_fedavg_eq8_slope(c: Case) -> Iterator[Report]:
    batches, u = (c.D, c.D1, c.D2), per_fedavg.meta_gradient_fo(c.model, c.w, c.D, c.D1, alpha=1.0)

    def d(delta: float) -> Array:
        return u - per_fedavg.meta_gradient_hf(c.model, c.w, *batches, alpha=1.0, delta=delta)

    plus, minus = (slow_grad(c.model, c.w + s * 0.1 * u, c.D2) for s in (1, -1))
    exact = slow_hvp(c.model, c.w, u, c.D2)
    slope = order_in(lambda h: relative_error(d(h), exact), np.logspace(-3, -2, 5))
    yield Report(relative_error(d(0.1), (plus - minus) / 0.2), slope, 2)


@proof("per-fedavg alg.1", "a round of 2 users, τ = 2 = plain loops over eq.5 and eq.6")
def per_fedavg_alg1(c: Case) -> Iterator[Report]:
    clients = [[(c.D, c.D1, c.D2), (c.D1, c.D2, c.D)], [(c.D2, c.D, c.D1), (c.D, c.D2, c.D1)]]
    ws = []
    for steps in clients:
        w = c.w
        for batches in steps:
            w = w - 0.2 * slow_eq6(c.model, w, *batches, 0.1)
        ws.append(w)
    algorithm = per_fedavg.PerFedAvg(alpha=0.1, beta=0.2)
    server, _ = one_round(algorithm, c, clients)
    yield equal(server.w, loop_sum([0.5, 0.5], ws))


# --- FedMeta --------------------------------------------------------------------------------------


def maml(steps: int) -> Compare:
    def compare(c: Case) -> Iterator[Report]:
        yield check_gradient(
            lambda w: fedmeta.maml_objective(c.model, w, c.D, c.D1, alpha=0.1, steps=steps),
            lambda w: fedmeta.maml_gradient(c.model, w, c.D, c.D1, alpha=0.1, steps=steps),
            c.w, c.vs,
        )  # fmt: skip

    return compare


for _n in (1, 2, 5):
    proof("fedmeta MAML", f"maml_gradient, steps = {_n} = complex step of maml_objective")(maml(_n))


@proof("fedmeta MAML", "maml_objective = oracle loss after complex-step steps")
def fedmeta_objective(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        got = fedmeta.maml_objective(c.model, c.w, c.D, c.D1, alpha=0.1, steps=steps)
        yield equal(got, oracle(c.model, slow_steps(c.model, c.w, c.D, 0.1, steps), c.D1)[0])


@proof("fedmeta MAML", "FOMAML: first order = complex step of f(·; Q) at θ_u")
def fedmeta_fomaml(c: Case) -> Iterator[Report]:
    for steps in (1, 2):
        got = fedmeta.maml_gradient(
            c.model, c.w, c.D, c.D1, alpha=0.1, steps=steps, second_order=False
        )
        yield equal(got, slow_grad(c.model, slow_steps(c.model, c.w, c.D, 0.1, steps), c.D1))


def meta_sgd(steps: int, block: int) -> Compare:
    def compare(c: Case) -> Iterator[Report]:
        at = [c.w, c.rng.uniform(0.05, 0.2, c.model.d)]  # θ, α

        def objective(x: Array) -> Array:
            theta, alpha = with_block(at, block, x)
            return fedmeta.maml_objective(c.model, theta, c.D, c.D1, alpha=alpha, steps=steps)

        def gradient(x: Array) -> Array:
            theta, alpha = with_block(at, block, x)
            return fedmeta.meta_sgd_gradient(c.model, theta, alpha, c.D, c.D1, steps=steps)[block]

        yield check_gradient(objective, gradient, at[block], c.vs)

    return compare


for _n in (1, 3):
    for _i, _of in enumerate("θα"):
        proof("fedmeta Meta-SGD", f"∂/∂{_of}, steps = {_n} = complex step of its objective")(
            meta_sgd(_n, _i)
        )


@proof("fedmeta server", "SGD: a round of 2 clients = θ − (β/m) Σ g_u by plain loops")
def fedmeta_server(c: Case) -> Iterator[Report]:
    clients = [[(c.D, c.D1)], [(c.D1, c.D2)]]

    def slow(S: Batch, Q: Batch) -> Array:
        return complex_step_gradient(
            lambda w: fedmeta.maml_objective(c.model, w, S, Q, alpha=0.1), c.w
        )

    gs = [slow(S, Q) for [(S, Q)] in clients]
    algorithm = fedmeta.MAML(alpha=0.1, beta=0.2)
    server, _ = one_round(algorithm, c, clients)
    yield equal(server.learner.theta, c.w - 0.2 * loop_sum([0.5, 0.5], gs))


@proof("fedmeta server", "Adam, 3 rounds = number by number, moments kept", ONE)
def fedmeta_adam(c: Case) -> Iterator[Report]:
    algorithm = fedmeta.MAML(beta=0.2, server="adam")
    server, gs = algorithm.initial(c.model, c.w), c.vectors(3)
    for g in gs:
        upload = server.learner._replace(theta=g[None])  # of a single client
        cohort = Cohort(np.arange(1), np.ones(1, int), np.ones(1, int))
        server = algorithm.combine(c.model, server, upload, cohort)
    expected = []
    for x_j, column in zip(c.w.tolist(), gs.T.tolist()):
        m = v = 0.0
        for t, g_j in enumerate(column, 1):
            m, v = 0.9 * m + 0.1 * g_j, 0.999 * v + 0.001 * g_j**2
            x_j -= 0.2 * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
        expected.append(x_j)
    yield equal(server.learner.theta, expected)


# --- FedMAML --------------------------------------------------------------------------------------


def fedmaml_gradient(steps: int) -> Compare:
    def compare(c: Case) -> Iterator[Report]:
        yield check_gradient(
            lambda w: fedmaml.meta_objective(c.model, w, c.D, c.D1, alpha=0.1, steps=steps),
            lambda w: fedmaml.meta_gradient(c.model, w, c.D, c.D1, alpha=0.1, steps=steps)[0],
            c.w, c.vs,
        )  # fmt: skip

    return compare


for _n in (1, 2, 5):
    proof("fedmaml §3.2", f"meta_gradient, s = {_n} = complex step of meta_objective")(
        fedmaml_gradient(_n)
    )


@proof("fedmaml §3.2", "a round of 2 clients = θ − β × complex step of the *sum*")
def fedmaml_sum(c: Case) -> Iterator[Report]:
    clients = [[(c.D, c.D1)], [(c.D1, c.D2)]]

    def total(w: Array) -> Any:
        return sum(
            fedmaml.meta_objective(c.model, w, tr, val, alpha=0.1, steps=2)
            for [(tr, val)] in clients
        )

    algorithm = fedmaml.FedMAML(alpha=0.1, beta=0.2, inner_steps=2)
    server, _ = one_round(algorithm, c, clients)
    yield equal(server.theta, c.w - 0.2 * complex_step_gradient(total, c.w))


@proof("fedmaml §4.2", "adapt = θ − α∇L_k by complex step, s = 1, 3")
def fedmaml_adapt(c: Case) -> Iterator[Report]:
    for steps in (1, 3):
        got = fedmaml.adapt(c.model, c.w, c.D, alpha=0.1, steps=steps)
        yield equal(got, slow_steps(c.model, c.w, c.D, 0.1, steps))


@proof("fedmaml §4.2", "worked example: θ + α(y − σ(θᵀx))x", [BinaryLogistic(4)])
def fedmaml_example(c: Case) -> Iterator[Report]:
    (x, *_), (y, *_) = c.D1[:2]
    x = [*x.tolist(), 1.0]  # 1 for the bias
    r = y - special.expit(sum(a * b for a, b in zip(c.w, x)))
    got = fedmaml.adapt(c.model, c.w, Batch(c.D1.X[:1], c.D1.y[:1]), alpha=0.1, steps=1)
    yield equal(got, [w_j + 0.1 * r * x_j for w_j, x_j in zip(c.w, x)])


@proof("fedmaml §4.3", "θ′ = (1/K) Σ θ*_k by plain loops")
def fedmaml_theta1(c: Case) -> Iterator[Report]:
    algorithm = fedmaml.FedMAML(alpha=0.1, inner_steps=2)
    clients = [[(c.D, c.D1)], [(c.D1, c.D2)]]
    server, _ = one_round(algorithm, c, clients)
    stars = [slow_steps(c.model, c.w, tr, 0.1, 2) for [(tr, _)] in clients]
    yield equal(server.theta1, loop_sum([0.5, 0.5], stars))


# --- FedCurv --------------------------------------------------------------------------------------


@proof("fedcurv penalty", "penalty_gradient from u, v = complex step of penalty, j ≠ s", ONE)
def fedcurv_penalty(c: Case) -> Iterator[Report]:
    I, thetas = c.vectors(3) ** 2, c.vectors(3)
    u, v, me = I.sum(0), (I * thetas).sum(0), 1
    others = [(I[j], thetas[j]) for j in range(3) if j != me]
    yield check_gradient(
        lambda w: fedcurv.penalty(w, others, lam=0.7),
        lambda w: fedcurv.penalty_gradient(w, u, v, I[me], I[me] * thetas[me], lam=0.7),
        c.w, c.vs,
    )  # fmt: skip
    j_sum = loop_sum([0.7, 0.7], [I_j * (c.w - theta_j) ** 2 for I_j, theta_j in others])
    yield equal(fedcurv.penalty(c.w, others, lam=0.7), math.fsum(j_sum))


@proof("fedcurv penalty", "the second round's step = complex step of f_s + penalty")
def fedcurv_round(c: Case) -> Iterator[Report]:
    algorithm, clients = fedcurv.FedCurv(lr=0.2, lam=0.7), [[[c.D1]], [[c.D2]]]
    server, client_states = one_round(algorithm, c, clients)
    thetas = [slow_steps(c.model, c.w, D, 0.2, 1) for [[D]] in clients]
    I = loop_fisher(c.model, thetas[1], c.D2)

    def objective(w: Array) -> Any:  # of client 0: only client 1 pulls
        return c.model.loss(w, c.D1) + fedcurv.penalty(w, [(I, thetas[1])], lam=0.7)

    w = loop_sum([3 / 8, 5 / 8], thetas)
    after, _ = one_round(algorithm, c, clients[:1], server, client_states[:1])
    yield equal(after.w, w - 0.2 * complex_step_gradient(objective, w))


def loop_fisher(model: Model, w: Array, D: Batch) -> Array:
    """The mean over samples of squared complex-step gradients."""
    s = [1.0] * len(D.y) if D.s is None else D.s
    gs = [slow_grad(model, w, Batch(D.X[j : j + 1], D.y[j : j + 1])) for j in range(len(D.y))]
    return loop_sum(np.asarray(s) / sum(s), [g**2 for g in gs])


@proof("fedcurv Fisher", "fisher = plain loop over samples, complex-step gradients squared")
def fedcurv_fisher(c: Case) -> Iterator[Report]:
    for D in (c.D, c.D1):
        yield equal(importance.fisher(c.model, c.w, D), loop_fisher(c.model, c.w, D))


# --- APFL -----------------------------------------------------------------------------------------


def loop_compose(model: Model, w_s: Array, a: Array, w_k: Array) -> Array:
    """w_S ⊙ m_k + w_k, number by number: weight and bias of a layer share its units' m."""
    w, at, first = [], 0, 0
    shapes = [view.shape for view in model.unpack(w_s)]
    for weight, bias in zip(shapes[::2], shapes[1::2]):
        units = bias[0]
        for j in range(math.prod(weight) + units):  # the unit is the last axis: it runs fastest
            m = 1 / (1 + math.exp(-a[first + j % units]))
            w.append(w_s[at] * m + w_k[at])
            at += 1
        first += units
    return np.array(w)


class Parts(NamedTuple):
    """A point of APFL: what `apfl.objective` takes."""

    w_s: Array
    a: Array
    w_k: Array
    more: dict[str, Any]


def apfl_parts(c: Case) -> Parts:
    a = c.rng.normal(size=units.units(c.model).max() + 1)
    more = {"F": c.vector() ** 2, "w_ref": c.vector(), "mu": 0.7}
    return Parts(c.vector(), a, c.vector(), more)


@proof("apfl eq.3", "compose = plain loop over layers and units")
def apfl_eq3(c: Case) -> Iterator[Report]:
    w_s, a, w_k, _ = apfl_parts(c)
    yield equal(apfl.compose(c.model, w_s, a, w_k), loop_compose(c.model, w_s, a, w_k))


@proof("apfl eq.4", "objective − loss = (μ/2) Σ F_j (w_S,j − wᵗ_S,j)² by plain loop")
def apfl_eq4(c: Case) -> Iterator[Report]:
    w_s, a, w_k, more = apfl_parts(c)
    got = apfl.objective(c.model, w_s, a, w_k, c.D, **more)
    terms = (F * (w - ref) ** 2 for F, w, ref in zip(more["F"], w_s, more["w_ref"]))
    penalty = 0.35 * math.fsum(terms)
    yield equal(got - c.model.loss(apfl.compose(c.model, w_s, a, w_k), c.D), penalty)


@proof("apfl eq.5", "λF + Σ p_k(∇L_k)² = plain loop over complex-step gradients")
def apfl_eq5(c: Case) -> Iterator[Report]:
    F, batches, p = c.vector() ** 2, (c.D, c.D1), np.array([0.4, 0.6])
    I = np.stack([importance.gradient_square(c.model, c.w, D) for D in batches])
    slow = [slow_grad(c.model, c.w, D) ** 2 for D in batches]
    yield equal(apfl.importance_update(F, I, p, lam=0.7), loop_sum([0.7, *p], [F, *slow]))


@proof("apfl eq.5", "option MAS = plain loop over |complex step of ‖z‖²|")
def apfl_mas(c: Case) -> Iterator[Report]:
    def one(x: Array) -> Array:
        return np.abs(complex_step_gradient(lambda w: np.sum(c.model.logits(w, x[None]) ** 2), c.w))

    expected = loop_sum(c.s / c.s.sum(), [one(x) for x in c.D.X])
    yield equal(importance.mas(c.model, c.w, c.D), expected)


@proof("apfl eq.5", "option SI: path sums of two steps = plain loops")
def apfl_si(c: Case) -> Iterator[Report]:
    algorithm = apfl.APFL(lr=0.2, z=9, importance="si")
    server = algorithm.initial(c.model, c.w)._replace(t=8, renew=True)
    got, _ = one_round(algorithm, c, [[[c.D1], [c.D2]]], server)
    g1 = slow_grad(c.model, c.w, c.D1)
    g2 = slow_grad(c.model, c.w - 0.2 * g1, c.D2)
    path, moved = 0.2 * (g1**2 + g2**2), -0.2 * (g1 + g2)
    yield equal(got.F, [p / (m * m + 0.1) for p, m in zip(path, moved)])


@proof("apfl eq.6", "objective = oracle loss of the looped composite + penalty")
def apfl_eq6(c: Case) -> Iterator[Report]:
    w_s, a, w_k, more = apfl_parts(c)
    penalty = math.fsum(F * (w - ref) ** 2 for F, w, ref in zip(more["F"], w_s, more["w_ref"]))
    expected = oracle(c.model, loop_compose(c.model, w_s, a, w_k), c.D)[0] + 0.35 * penalty
    yield equal(apfl.objective(c.model, w_s, a, w_k, c.D, **more), expected)


def eq6_of(model: Model, at: Sequence[Any], block: int, D: Batch, more: Any) -> Any:
    """(objective, gradient) of [apfl eq.6] as functions of w_S, a or w_k alone."""

    def objective(x: Array) -> Array:
        w_s, a, w_k = with_block(at, block, x)
        return apfl.objective(model, w_s, a, w_k, D, **more)

    def gradient(x: Array) -> Array:
        w_s, a, w_k = with_block(at, block, x)
        g = apfl.gradients(model, w_s, a, w_k, D)[block]
        return g if block else g + apfl.penalty_gradient(w_s, **more)

    return objective, gradient


def apfl_block(block: int) -> Compare:
    def compare(c: Case) -> Iterator[Report]:
        *at, more = apfl_parts(c)
        vs = c.rng.normal(size=(3, len(at[block])))
        objective, gradient = eq6_of(c.model, at, block, c.D, more)
        yield check_gradient(objective, gradient, at[block], vs)

    return compare


for _i, _of in enumerate(("w_S", "a", "w_k")):
    proof("apfl eq.6", f"gradients: ∂/∂{_of} = complex step of objective")(apfl_block(_i))


@proof("apfl alg.1", "a round of 2 clients = plain loops over complex steps of eq.6")
def apfl_alg1(c: Case) -> Iterator[Report]:
    _, a, w_k, more = apfl_parts(c)
    algorithm = apfl.APFL(lr=0.2, mu=0.7, lam=0.6)
    F, own = more["F"], apfl.Own(a, w_k)
    server = algorithm.initial(c.model, c.w)._replace(F=F, t=5, renew=True)
    clients = [[[c.D1], [c.D2]], [[c.D2], [c.D1]]]

    ends, more = [], {"F": F, "w_ref": c.w, "mu": 0.7}
    for steps in clients:
        at = [c.w, a, w_k]
        for [D] in steps:
            fs = [eq6_of(c.model, at, block, D, more)[0] for block in range(3)]
            at = [x - 0.2 * complex_step_gradient(f, x) for f, x in zip(fs, at)]
        ends.append(at)

    p, squares = (3 / 8, 5 / 8), [slow_grad(c.model, c.w, D) ** 2 for D in (c.D1, c.D2)]
    got, client_states = one_round(algorithm, c, clients, server, [own, own])
    yield equal(got.w, loop_sum(p, [w_s for w_s, _, _ in ends]))
    yield equal(got.F, loop_sum([0.6, *p], [F, *squares]))
    for client_state, (_, a_end, w_k_end) in zip(client_states, ends):
        yield equal(client_state.a, a_end)
        yield equal(client_state.w_k, w_k_end)


@proof("apfl alg.1 line 21", "start: paper = σ(1)w_S + w_S; continuous = w_S")
def apfl_start(c: Case) -> Iterator[Report]:
    sigma = 1 / (1 + math.exp(-1))
    for init, scale in (("paper", sigma + 1), ("continuous", 1.0)):
        algorithm = apfl.APFL(init=init)
        sent = algorithm.download(algorithm.initial(c.model, c.w)._replace(t=2))
        own = algorithm.start(c.model, sent, None).own
        assert own is not None
        yield equal(apfl.compose(c.model, c.w, own.a, own.w_k), scale * c.w)


def plateau_by_loop(
    losses: list[float], length: int, delta_mu: float, delta_sigma: float
) -> list[Any]:
    """[apfl alg.1 lines 9–16] as a plain loop: (renew, peak) after every loss."""
    out, mean_old, std_old, peak = [], 0.0, 0.0, False
    for t in range(1, len(losses) + 1):
        renew = False
        if t >= length:
            window = losses[t - length : t]
            mean = sum(window) / length
            std = math.sqrt(sum((x - mean) ** 2 for x in window) / length)
            renew = peak and mean < delta_mu and std < delta_sigma
            if renew:
                mean_old, std_old, peak = mean, std, False
            elif mean > mean_old + std_old:
                peak = True
        out.append((renew, peak))
    return out


def detector_against_loop(columns: slice) -> Compare:
    def compare(c: Case) -> Iterator[Report]:
        noise = c.rng.normal(size=120)
        wave = 1.5 + np.cos(np.arange(120) / 7)
        losses = (wave + 0.1 * noise).tolist()
        detector, got = plateau.PlateauDetector(0.9, 0.4, 5), []
        for loss in losses:
            detector, renew = detector.push(loss)
            got.append((renew, detector.peak))
        expected = np.array(plateau_by_loop(losses, 5, 0.9, 0.4), float)[:, columns]
        assert 0 < expected.mean() < 1, "the case shows nothing"
        yield equal(np.array(got, float)[:, columns], expected, bound=0)

    return compare


for _tag, _claim, _columns in (
    ("apfl §3.3", "PlateauDetector = plain loop over 120 losses", slice(0, 2)),
    ("apfl alg.1 lines 9–16", "PlateauDetector: renewals and peaks = plain loop", slice(0, 2)),
    ("apfl alg.1 line 10", "PlateauDetector: renewals = plain loop", slice(0, 1)),
    ("apfl alg.1 line 14", "PlateauDetector: peaks = plain loop", slice(1, 2)),
):
    proof(_tag, _claim, ONE)(detector_against_loop(_columns))


@proof("apfl §4.1.3", "F is renewed in the rounds z − 1, z, z + 1 whatever the loss", ONE)
def apfl_unconditional(c: Case) -> Iterator[Report]:
    algorithm = apfl.APFL(z=3)
    server, got = algorithm.initial(c.model, c.w), []
    for _ in range(6):
        got.append(float(server.renew))
        server, _ = one_round(algorithm, c, [[[c.D1]]], server)
    yield equal(got, [0, 0, 1, 1, 1, 0], bound=0)
