"""The adapter: where the names of cases meet those of `fedref/spec.py`.

It computes nothing of its own but the mean of weighted samples: each function looks up arguments by
the cases' names and calls the specification. A known mistake may be an edit of a line here, too.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from inspect import signature
from itertools import repeat
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from fedref import spec
from fedref.judge.case import Case, Values, build_model, flatten
from fedref.judge.halves import Round, cut
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM
from fedref.models.base import Model
from fedref.models.numerics import Array

#: Hyperparameters, and what `settings` adds.
Hyper = SimpleNamespace


def answer(case: Case, arguments: Values | None = None) -> dict[str, Any]:
    """Return the specification's outputs for a case, by the papers' names, flat: "0.server.w" → array.

    It has every required output. What the specification has in no form raises NotImplementedError, as in
    a backend.
    arguments : the case's inputs as another library's arrays.
    """
    h = SimpleNamespace(**case.hyper, shapes=case.model["shapes"])
    f = risk_of(build_model(case.model))
    return flatten(CALLS[case.call](case.algorithm, f, h, **(arguments or case.arguments())))


def try_answer(
    case: Case,
    judge: Callable[[Case], Values] = answer,
    error: type[Exception] = NotImplementedError,
) -> dict[str, Array]:
    """Return a judge's outputs as arrays of numbers, without means over clients; {} if it raises `error`."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        try:
            made = {n: np.asarray(x) for n, x in judge(case).items() if ".measured." not in n}
        except error:
            return {}
    return {name: x for name, x in made.items() if x.dtype.kind in "biuf"}


# ---- models and batches --------------------------------------------------------------------------


class WeightedBatch(spec.Batch):
    """A batch whose samples have weights s."""

    s: Array


class WeightedRisk(spec.Risk):
    """f(w; D), also of a batch with weights: Σ s_j f(w; D_j) / Σ s_j, or the L2 term where all are 0."""

    def __call__(self, w: Array, D: Any) -> Any:
        f = partial(spec.Risk.__call__, self)
        if not isinstance(D, WeightedBatch):
            return f(w, D)
        each: Any = [f(w, spec.Batch(*D).rows([j])) for j in np.flatnonzero(D.s)]
        real = D.s[D.s != 0]
        return spec.average(real / real.sum(), each) if each else f(w, spec.Batch(*D).rows([]))


def batch(D: Values) -> spec.Batch:
    """Return {"X", "y"[, "s"]} as the specification's batch."""
    if "s" not in D:
        return spec.Batch(D["X"], D["y"])
    weighted = WeightedBatch(D["X"], D["y"])
    weighted.s = D["s"]
    return weighted


def risk_of(model: Model) -> spec.Risk:
    """Return f(w; D) of a model."""
    loss = spec.cross_entropy
    if isinstance(model, BinaryLogistic):
        loss = spec.logistic_loss
    if isinstance(model, LinearSVM):
        loss = partial(spec.hinge, power=1 + model.squared)
    return WeightedRisk(scores(model), loss, model.labels, model.l2)


def mean_pool(z: Array) -> Array:
    return z.sum(0) / len(z)


def scores(model: Any, phi: Any = None, pool: Any = None) -> Callable[[Array, Array], Array]:
    """Return z(w, X) of a model. phi, pool : in the place of its own activation and pooling."""
    phis = {"elu": spec.elu, "relu": spec.relu, "tanh": np.tanh}
    phi = phi or phis.get(getattr(model, "activation", ""))
    if isinstance(model, LSTM):
        sizes = model.vocabulary, model.embedding, model.hidden, model.classes
        return lambda w, X: spec.lstm(w, X, *sizes, model.output == "mean")
    if isinstance(model, CNN):
        pool = pool or {"max": spec.first_max, "mean": mean_pool}[model.pool]
        layers = (*model.image, 1)[:3], model.channels, model.kernel, model.hidden, model.classes
        return lambda w, X: spec.cnn(w, X, *layers, phi, pool)
    if isinstance(model, MLP):
        return partial(spec.mlp, widths=model.sizes, phi=phi)
    if isinstance(model, BinaryLogistic | LinearSVM):
        return partial(spec.one_score, bias=model.bias)
    return partial(spec.linear, classes=model.classes)


# ---- derivatives and meta-gradients --------------------------------------------------------------


def loss(_: str, f: spec.Risk, h: Hyper, w: Array, D: Values) -> Values:
    return {"f": f(w, batch(D))}


def grad(_: str, f: spec.Risk, h: Hyper, w: Array, D: Values) -> Values:
    return {"g": f.grad(w, batch(D))}


def hvp(_: str, f: spec.Risk, h: Hyper, w: Array, v: Array, D: Values) -> Values:
    return {"Hv": f.hvp(w, v, batch(D))}


def dissimilarity(_: str, f: spec.Risk, h: Hyper, w: Array, clients: Any) -> Values:
    B, variance = spec.dissimilarity(f, w, [batch(D) for D in clients.values()])
    return {"B": B, "variance": variance}


def meta_gradient(variant: str, f: spec.Risk, h: Hyper, **inputs: Any) -> Values:
    names, gradient = VARIANTS[variant]
    values = gradient(f, h, **{name: to_batches(x) for name, x in inputs.items()})
    return dict(zip(names.split(), values)) if " " in names else {names: values}


def to_batches(x: Any) -> Any:
    """Return {"X", "y"} as a batch, or a stack of them one by one; anything else as it is."""
    if not isinstance(x, Mapping):
        return x
    return batch(x) if x["y"].ndim == 1 else [spec.Batch(*pair) for pair in zip(x["X"], x["y"])]


#: Variant → the names of its outputs, and the specification's function of the case's inputs.
VARIANTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "per-fedavg": ("meta_gradient", lambda f, h, w, D, D1, D2: spec.meta_gradient(
        f, w, D, D1, D2, h.alpha)),
    "per-fedavg-fo": ("meta_gradient", lambda f, h, w, D, D1: spec.meta_gradient_fo(
        f, w, D, D1, None, h.alpha)),
    "per-fedavg-hf": ("meta_gradient", lambda f, h, w, D, D1, D2: spec.meta_gradient_hf(
        f, w, D, D1, D2, h.alpha, h.delta)),
    "per-fedavg-steps": ("meta_gradient", lambda f, h, w, D, D1, D2: spec.meta_gradient_steps(
        f, w, D, D1, D2, alpha=h.alpha)),
    "fedmeta-maml": ("g_theta", lambda f, h, theta, S, Q: spec.maml(
        f, theta, S, Q, h.alpha, h.inner_steps)),
    "fedmeta-fomaml": ("g_theta", lambda f, h, theta, S, Q: spec.fomaml(
        f, theta, S, Q, h.alpha, h.inner_steps)),
    "fedmeta-sgd": ("g_theta g_alpha", lambda f, h, theta, alpha, S, Q: spec.meta_sgd(
        f, np.stack([theta, alpha]), S, Q, h.inner_steps)),
    "fedmaml": ("g", lambda f, h, theta, tr, val: spec.maml(
        f, theta, tr, val, h.alpha, h.inner_steps)),
}  # fmt: skip
#: Variant → the names of its inputs.
INPUTS = {name: tuple(signature(f).parameters)[2:] for name, (_, f) in VARIANTS.items()}

# ---- rounds --------------------------------------------------------------------------------------

Run = Callable[[spec.Risk, Array, Iterator[Any], Hyper], Iterator[Any]]
#: Algorithm → its generator, and what that yields by the names of cases: fields of the server's state;
#: after "clients" those that each client keeps; after "measured" one number for each client.
#: h : the hyperparameters and what `settings` adds.
RUNS: dict[str, tuple[tuple[str, ...], Run]] = {
    **dict.fromkeys(("fedavg", "fedavg-update", "fedavg-meta", "centralised"),
        (("w",), lambda f, w, rounds, h: spec.fedavg(f, w, rounds, h.lr, h.weights))),
    "fedprox": (("w", "mu", "measured gamma", "measured penalty"),
        lambda f, w, rounds, h: spec.fedprox(
        f, w, rounds, h.lr, h.mu, h.until_gamma, h.adaptive_mu and h.train_loss, h.weights)),
    **dict.fromkeys(("per-fedavg", "per-fedavg-fo", "per-fedavg-hf"),
        (("w",), lambda f, w, rounds, h: spec.per_fedavg(
        f, w, rounds, h.alpha, h.beta, h.estimate, h.weights))),
    **dict.fromkeys(("fedmeta-maml", "fedmeta-fomaml"),
        (("theta", "m_theta", "v_theta"), lambda f, x, rounds, h: spec.fedmeta(
        f, x, rounds, h.beta, h.estimate, h.server == "adam", h.weights))),
    "fedmeta-sgd": (("theta alpha", "m_theta m_alpha", "v_theta v_alpha"),
        lambda f, x, rounds, h: spec.fedmeta(f, np.stack([x, 0 * x + h.alpha]), rounds, h.beta,
        h.estimate, h.server == "adam", h.weights)),
    "fedmaml": (("theta", "theta1"), lambda f, theta, rounds, h: spec.fedmaml(
        f, theta, rounds, h.alpha, h.beta, h.inner_steps)),
    "fedcurv": (("w", "u", "v", "t", "clients I v t"), lambda f, w, rounds, h: kept_sums(
        spec.fedcurv(f, w, rounds, h.lr, h.lam, h.weights))),
    "apfl": (("w", "F", "clients a w_k", "renew", "measured penalty"),
        lambda f, w, rounds, h: spec.apfl(
        f, w, rounds, spec.unit_of_parameter(h.shapes), h.lr, h.mu, h.lam, h.z, h.train_loss,
        h.delta_mu, h.delta_sigma, h.window, h.importance, h.init == "continuous", h.weights)),
    "scaffold": (("w", "c", "clients c_i"), lambda f, w, rounds, h: spec.scaffold(
        f, w, rounds, h.lr, h.N, h.server_lr, "I" if h.control == "gradient" else "II", h.weights)),
    "apfl-deng": (("w", "clients v a"), lambda f, w, rounds, h: spec.apfl_deng(
        f, w, rounds, h.lr, h.alpha, h.adaptive_alpha, h.weights)),
    "feddyn": (("w", "h", "clients h_k"), lambda f, w, rounds, h: spec.feddyn(
        f, w, rounds, h.lr, h.alpha, h.N, h.weights)),
    **dict.fromkeys(("fedadagrad", "fedyogi", "fedadam"),
        (("w", "m", "v"), lambda f, w, rounds, h: spec.fedopt(
        f, w, rounds, h.lr, h.algorithm, h.server_lr, h.beta1, h.beta2, h.tau,
        getattr(h, "bias_correction", False)))),  # golden vectors are older
    "fedavgm": (("w", "v"), lambda f, w, rounds, h: spec.fedavgm(
        f, w, rounds, h.lr, h.momentum, h.server_lr)),
    "fednova": (("w",), lambda f, w, rounds, h: spec.fednova(f, w, rounds, h.lr, h.weights)),
    "pfedme": (("w",), lambda f, w, rounds, h: spec.pfedme(
        f, w, rounds, h.lr, h.lam, h.alpha, h.inner_steps, h.beta, h.weights)),
}  # fmt: skip
#: Algorithms whose server always weights by samples: the specification has no other weights for them.
BY_SAMPLES = ("fedadagrad", "fedyogi", "fedadam", "fedavgm")


def with_learned(h: Hyper, server: Values) -> Hyper:
    """Return h with what the server has adapted or learned since: FedProx's μ, Meta-SGD's α."""
    known = {name: server[name] for name in ("mu", "alpha") if name in server}
    known = {
        name: x[()] if np.shape(x) == () and hasattr(x, "dtype") else x for name, x in known.items()
    }
    return SimpleNamespace(**vars(h) | known)


def settings(algorithm: str, h: Hyper, N: int, losses: Iterator[float]) -> Hyper:
    """Return h with what a generator needs besides. losses : the training loss after each round."""
    if algorithm in BY_SAMPLES and h.weighting != "samples":
        raise NotImplementedError(f"{algorithm} with weighting {h.weighting!r}")
    weights = {"samples": spec.sample_weights, "uniform": spec.uniform_weights}
    return SimpleNamespace(
        **vars(h), N=N, algorithm=algorithm, weights=weights[h.weighting],
        train_loss=lambda *_: next(losses), estimate=estimate(algorithm, h),
    )  # fmt: skip


def estimate(algorithm: str, h: Hyper) -> Callable[..., Array] | None:
    """Return the meta-gradient of a local step, for those algorithms that are given one."""
    match algorithm:
        case "per-fedavg" if h.inner_steps > 1:
            return partial(estimate_steps, spec.Risk.hvp)
        case "per-fedavg-fo" if h.inner_steps > 1:
            return partial(estimate_steps, None)
        case "per-fedavg-hf" if h.inner_steps > 1:
            return partial(estimate_steps, partial(spec.difference, delta=h.delta))
        case "per-fedavg":
            return spec.meta_gradient
        case "per-fedavg-fo":
            return lambda f, w, D, D1, alpha: spec.meta_gradient_fo(f, w, D, D1, None, alpha)
        case "per-fedavg-hf":
            return partial(spec.meta_gradient_hf, delta=h.delta)
        case "fedmeta-maml":
            return partial(spec.maml, alpha=h.alpha, steps=h.inner_steps)
        case "fedmeta-fomaml":
            return partial(spec.fomaml, alpha=h.alpha, steps=h.inner_steps)
        case "fedmeta-sgd":
            return partial(spec.meta_sgd, steps=h.inner_steps)
    return None


def estimate_steps(
    hvp: Any, f: spec.Risk, w: Array, D: spec.Batch, D1: spec.Batch, *rest: Any
) -> Array:
    """Return the meta-gradient after ν inner steps; `rest` : D″ and those of further steps, then α.

    hvp : H(w)v or what stands in its place; None for the first order, which has no D″.
    """
    *more, alpha = rest
    if hvp is None:
        return spec.meta_gradient_steps(f, w, [D, *more], D1, [], alpha)
    return spec.meta_gradient_steps(f, w, [D, *more[1::2]], D1, more[::2], alpha, hvp)


def kept_sums(states: Iterator[Any]) -> Iterator[Any]:
    """Yield FedCurv's state with its sums u, v over the last round, and what each client keeps."""
    kept = dict[int, Any]()
    for t, (w, ends) in enumerate(states):
        last = {k: (I, I * theta, t) for k, (I, theta) in ends.items()}
        kept |= last
        u, v = (sum(x[i] for x in last.values()) for i in (0, 1))
        yield w, u, v, t + 1, dict(kept)


def rounds(
    algorithm: str, f: spec.Risk, h: Hyper, state: Values, data: Values, plans: Sequence[Values]
) -> Values:
    """Return the states after each round; a round in which nobody takes part changes nothing.

    state : that before round 0.
    """
    cohorts = [clients_of(plan, data, h.drop) for plan in plans]
    losses = iter([plan.get("loss", np.nan) for plan, clients in zip(plans, cohorts) if clients])
    names, run = RUNS[algorithm]
    if getattr(h, "server", "") == "sgd":
        names = names[:1]  # Adam's moments
    h = settings(algorithm, with_learned(h, state["server"]), len(data["offsets"]) - 1, losses)
    states = run(f, next(iter(state["server"].values())), filter(None, cohorts), h)
    known = {n: x for n, x in state["server"].items() if n in " ".join(names).split()}
    now, out = {"server": known}, {}
    for t, clients in enumerate(cohorts):
        now = name_state(names, next(states)) if clients else now
        out[str(t)] = now
    return out


def clients_of(plan: Values, data: Values, drop: bool) -> list[spec.Client]:
    """Return a plan's clients with their batches. drop : whether stragglers take no part."""
    clients = [client_of(plan, i, data) for i in range(len(plan["clients"]))]
    return next(spec.drop_stragglers([clients]), []) if drop else clients


def client_of(plan: Values, i: int, data: Values) -> spec.Client:
    """Return the i-th client of a plan, with its batches."""
    k = int(plan["clients"][i])
    data_k = batch(data).rows(slice(*data["offsets"][k : k + 2]))
    rows = {role: rows[i] for role, rows in plan["rows"].items()}
    steps = steps_of(data_k, rows, plan["steps"][i])
    times, straggles = int(plan["counts"][i]), bool(plan["straggler"][i])
    return spec.Client(k, data_k, steps, int(plan["per_epoch"][i]), times, straggles)


def steps_of(data_k: spec.Batch, rows: Values, S: int) -> list[tuple[spec.Batch, ...]]:
    """Return the batches of each local step; a row of −1 is padding."""
    drawn = [[data_k.rows(index[index >= 0]) for index in each] for each in rows.values()]
    return list(zip(*drawn))[:S]


def name_state(names: tuple[str, ...], values: Any) -> dict[str, Any]:
    """Return what a generator yields by the names of cases."""
    out: dict[str, Any] = {"server": {}, "clients": {}, "measured": {}}
    for name, value in zip(names, values if isinstance(values, tuple) else (values,)):
        first, *more = name.split()
        if first == "clients":
            kept = {
                k: kept_k if isinstance(kept_k, tuple) else (kept_k,) for k, kept_k in value.items()
            }
            out["clients"] = {k: dict(zip(more, kept_k)) for k, kept_k in kept.items()}
        elif first == "measured":
            out["measured"][more[0]] = np.mean(value)
        else:
            out["server"] |= dict(zip((first, *more), value)) if more else {first: value}
    return out


# ---- halves of a round ---------------------------------------------------------------------------

#: Algorithm → how the lists of uploads in its box are named in cases. Default: ws, {"w"}.
UPLOADS: Mapping[str, Mapping[str, str]] = {
    "fedmeta-maml": {"sent": "g_theta"},
    "fedmeta-fomaml": {"sent": "g_theta"},
    "fedmeta-sgd": {"sent": "g_theta g_alpha"},
    "fedmaml": {"gs": "g", "stars": "theta_star"},
    "fedcurv": {"ends": "I theta"},
    "apfl": {"ends": "w", "estimates": "importance"},
    "scaffold": {"dy": "dy", "dc": "dc"},
    "feddyn": {"ends": "w"},
    "fednova": {"taus": "tau", "d": "d"},
}
#: Algorithm → the name in its box of what each client keeps, and the names of that in cases.
KEPT = {
    "apfl": ("personal", "a w_k"), "scaffold": ("controls", "c_i"),
    "apfl-deng": ("personal", "v a"), "feddyn": ("hs", "h_k"),
}  # fmt: skip


@cache
def cut_boxes(half: str) -> Any:
    return cut(spec, half)


def run_half(
    half: str, algorithm: str, f: spec.Risk, h: Hyper, server: Values, clients: list[Any], kept: Any
) -> Any:
    """Return what half of a round yields. kept : what client 0 kept, by the names of cases."""
    one = Round(clients)
    one.state = state_before(algorithm, server, kept)
    _, run = RUNS[algorithm]
    known = globals() | {"spec": cut_boxes(half)}
    if half == "client":
        known["kept_sums"] = iter
    run = FunctionType(run.__code__, known)
    x = server["theta" if "theta" in server else "w"]
    return next(run(f, x, iter([one]), h))


def state_before(algorithm: str, server: Values, kept: Values | None) -> dict[str, Any]:
    """Return a round's state by the names of its box: more than that has, at times."""
    state = {name: server[name] for name in ("c", "h", "m", "v", "F", "falls") if name in server}
    if algorithm.startswith("fedmeta"):
        state |= {n: [server.get(f"{n}_{x}", 0) for x in ("theta", "alpha")] for n in "mv"}
        state = {n: np.stack(x) if algorithm == "fedmeta-sgd" else x[0] for n, x in state.items()}
    if (
        algorithm == "fedcurv"
    ):  # Σ I (θ − θ_j)² over the others, from its sums u = Σ I and v = Σ Iθ_j
        u, v = server["u"], server["v"]
        if kept and kept["t"] == server["t"] - 1:
            u, v = u - kept["I"], v - kept["v"]
        state["previous"] = {"at 1": (v, 1.0), "at 0": (u - v, 0.0)}
    name, fields = KEPT.get(algorithm, ("", ""))
    values = [kept[key] for key in fields.split()] if kept else []
    known = {name: {0: values[0] if len(values) == 1 else tuple(values)} if kept else {}}
    counts_from_1 = algorithm.startswith("fedmeta") or algorithm in BY_SAMPLES  # as Adam does
    t = int(server.get("t", 0)) + counts_from_1
    before = {"before": server.get("loss", np.nan), "renew": bool(server.get("renew"))}
    return state | known | before | {"t": t}


def client(
    algorithm: str, f: spec.Risk, h: Hyper, server: Values, data: Values, rows: Values,
    client: Values | None = None,
) -> Values:  # fmt: skip
    """Return what a client sends and keeps after a round: its half of the algorithm's box."""
    data_k, S, n = batch(data), len(next(iter(rows.values()))), len(data["y"])
    h = settings(algorithm, with_learned(h, server), 1, iter([np.nan]))
    algorithm = "fedavg" if algorithm in BY_SAMPLES else algorithm
    clients = [spec.Client(0, data_k, steps_of(data_k, rows, S), -(-n // getattr(h, "B", n)))]
    local = run_half("client", algorithm, f, h, server, clients, client)
    out: dict[str, Any] = {"upload": {}, "client": {}}
    for name, fields in UPLOADS.get(algorithm, {"ws": "w"}).items():
        sent = local[name]
        for value in sent.values() if isinstance(sent, dict) else sent:
            out["upload"] |= named(fields, value)
    if algorithm == "fedcurv":
        I, theta = local["ends"][0]
        out["client"] = {"I": I, "v": I * theta, "t": server["t"]}
    elif algorithm in KEPT:
        name, fields = KEPT[algorithm]
        out["client"] = named(fields, local[name][0]) if 0 in local[name] else {}
    if algorithm == "fedprox":
        (w,), (penalty,), (gamma,) = local["ws"], local["penalties"], local["gammas"]
        out |= {"gamma": gamma, "h": f(w, data_k) + penalty}
    return out


def named(fields: str, value: Any) -> dict[str, Any]:
    """Return {field: value}, or the parts of a value of several fields by their names."""
    return dict(zip(fields.split(), value)) if " " in fields else {fields: value}


def aggregate(
    algorithm: str, f: spec.Risk, h: Hyper, server: Values, uploads: Values, n: Array, counts: Array,
    N: int | None = None,
) -> Values:  # fmt: skip
    """Return the server's state after a round of these uploads: its half of the algorithm's box."""
    h = settings(
        algorithm, with_learned(h, server), len(n) if N is None else int(N), repeat(np.nan)
    )
    h.adaptive_mu = False  # the loss is not known yet
    box = "fedavg" if algorithm in BY_SAMPLES else algorithm
    clients = []
    for k, (n_k, times) in enumerate(zip(n, counts, strict=True)):
        sent = {
            name: [uploads[field][k] for field in fields.split()]
            for name, fields in UPLOADS.get(box, {"ws": "w"}).items()
            if fields.split()[0] in uploads
        }
        given: Any = {k: x[0] if len(x) == 1 else np.stack(x) for k, x in sent.items()}
        D = spec.Batch(None, range(int(n_k)))
        clients.append(SimpleNamespace(k=k, n=int(n_k), draws=int(times), data=D, sent=given))
    names = tuple(name for name in RUNS[algorithm][0] if "measured" not in name)
    after = name_state(names, run_half("server", algorithm, f, h, server, clients, None))["server"]
    after = {name: x for name, x in after.items() if name in server}
    after |= {"t": server["t"] + 1} if "t" in server else {}
    return {"server": after} | ({} if algorithm == "fedmaml" else {"p": h.weights(clients)})


# ---- evaluation ----------------------------------------------------------------------------------


def evaluate(
    algorithm: str,
    f: spec.Risk,
    h: Hyper,
    server: Values,
    tests: Sequence[Values],
    client: Values | None = None,
    D: Values | None = None,
) -> Values:
    """Return the model that one client tests with, and its mean loss on each test batch."""
    w = personal(algorithm, f, h, server, client or {}, batch(D) if D else None)
    return {"w": w, "losses": np.array([spec.evaluate(f, w, batch(T))[0] for T in tests])}


def personal(
    algorithm: str, f: spec.Risk, h: Hyper, server: Values, client: Values, D: spec.Batch | None
) -> Array:
    """Return the model that one client tests with; `client` : what it kept, D : what it adapts to."""
    w: Array = next(iter(server.values()))
    if algorithm == "apfl" and client:
        return spec.compose(spec.unit_of_parameter(h.shapes), w, client["a"], client["w_k"])
    if algorithm == "apfl-deng" and client:
        return client["a"] * client["v"] + (1 - client["a"]) * w
    if algorithm == "fedmaml" and h.evaluate == "theta1":
        return server["theta1"]
    if D is None:
        return w
    if algorithm == "pfedme":
        return spec.moreau_point(f, w, D, h.lam, h.alpha, h.inner_steps)
    return spec.adapt(f, w, D, server.get("alpha", h.alpha), getattr(h, "inner_steps", 1))


CALLS: dict[str, Callable[..., Values]] = {
    "loss": loss, "grad": grad, "hvp": hvp, "dissimilarity": dissimilarity,
    "meta_gradient": meta_gradient, "client": client, "aggregate": aggregate, "round": rounds,
    "evaluate": evaluate,
}  # fmt: skip
