"""The cases of the golden vectors, without outputs: small, each chosen for what it catches.

All random numbers come from `sampling.stream`. A new family of cases is a generator like those below,
and a line in `all_cases`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedref.algorithms import ALGORITHMS
from fedref.conformance.backends.reference import LOOP, algorithm_of
from fedref.draws import serialise
from fedref.draws.sources import (
    NumPySource,
    draw_batch,
    draw_meta_gradient,
    draw_start,
    hyper_of_meta_gradient,
)
from fedref.judge.adapter import INPUTS, VARIANTS
from fedref.judge.case import Case, build_model, describe_model, first_rounds, flatten
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.sampling import Sampling, make_plan, stream

#: A model of each family. Widths differ, so that a transposed layer shows. A compiled backend may take l2 as
#: fixed: two have an L2 term, and come without it, too; of the other families further models have one.
FAMILIES: dict[str, Any] = {
    "binary": BinaryLogistic(3),
    "logistic": Logistic(3, 4),
    "svm": LinearSVM(3, l2=0.1, squared=True),
    "mlp": MLP(3, (4, 2), 3, l2=0.1),
    "cnn": CNN((6, 5), (2,), 3, 3, 3),
    "lstm": LSTM(4, 3, 3, 1, (2,)),
}
#: Further losses, activations and pools, for their derivatives alone.
FURTHER: dict[str, Any] = {
    "hinge": LinearSVM(3, l2=0.1),
    "mlp-tanh": MLP(3, (4,), 3, "tanh"),
    "mlp-relu": MLP(3, (4,), 3, "relu"),
    "cnn-mean": CNN((8, 7, 2), (2, 2), 2, 3, 3, "elu", "mean", 0.1),
    "lstm-mean": LSTM(3, 2, 3, 2, (3, 2), "mean", 0.1),
}
#: Models that read exact zeros: before ReLU and ELU, and in every window of a max-pool. Most are those above.
KINKS: dict[str, Any] = {
    "kink-relu": FURTHER["mlp-relu"],
    "kink-elu": MLP(3, (4, 2), 3),
    "kink-elu-two": MLP(3, (4, 2), 3),
    "kink-cnn-relu": FAMILIES["cnn"],
    "kink-cnn-tanh": CNN((6, 6), (2,), 3, 3, 3, "tanh"),
}
#: Models without a bias.
UNBIASED: dict[str, Any] = {
    "binary-unbiased": BinaryLogistic(5, bias=False, l2=0.1),
    "svm-unbiased": LinearSVM(5, bias=False, l2=0.1),
}
#: Models whose w and v are larger: a row lies beyond the margin, where a squared hinge is 0 and a logistic
#: loss small.
SCALES = {"svm": 2.2, "binary": 4.0}
HYPER: dict[str, Any] = {
    "lr": 0.2, "alpha": 0.3, "beta": 0.2, "delta": 1e-3, "mu": 0.7, "lam": 0.4, "inner_steps": 1,
}  # fmt: skip


#: Algorithm → the paper's equation, and a line for people.
SUBJECTS = {
    "fedavg": ("apfl eq.1", "SGD from the server's model; models are averaged with weights n_k"),
    "fedavg-update": ("per-fedavg eq.1", "FedAvg, tested after one step on a training batch"),
    "fedavg-meta": ("fedmeta MAML", "FedAvg, fine-tuned on the support set before the test"),
    "fedprox": ("fedprox alg.2", "SGD on the loss plus (μ/2)‖w − wᵗ‖²"),
    "per-fedavg": (
        "per-fedavg eq.6",
        "the meta-gradient u − αH(w; D″)u, on three different batches",
    ),
    "per-fedavg-fo": ("per-fedavg §3.3", "the meta-gradient without its Hessian term"),
    "per-fedavg-hf": (
        "per-fedavg eq.8",
        "the meta-gradient, its Hu by a central difference of half-width δ",
    ),
    "per-fedavg-steps": ("per-fedavg eq.6", "the meta-gradient through two inner steps"),
    "fedmeta-maml": ("fedmeta MAML", "the query loss's gradient, taken through the inner step"),
    "fedmeta-fomaml": ("fedmeta MAML", "the query loss's gradient at the adapted θ_u"),
    "fedmeta-sgd": ("fedmeta Meta-SGD", "the query loss's gradients in θ and in the vector α"),
    "fedmaml": (
        "fedmaml §3.2",
        "the sum of the clients' gradients, each taken through all inner steps",
    ),
    "fedcurv": (
        "fedcurv penalty",
        "SGD with a pull to the other clients' solutions, weighted by their Fisher information",
    ),
    "apfl": ("apfl eq.6", "SGD on w_S ⊙ σ(a) + w_k, with elastic weight consolidation of w_S"),
    "centralised": ("apfl §4.1.1", "SGD on the pooled rows"),
    "scaffold": ("scaffold alg.1", "SGD corrected by the control variates c − c_i"),
    "apfl-deng": ("apfl-deng alg.1", "SGD on w, and on v and α through αv + (1 − α)w"),
    "feddyn": ("feddyn alg.1", "SGD with a regulariser that each client keeps and changes"),
    "fedadagrad": ("fedopt alg.2", "the server's Adagrad: v + Δ²"),
    "fedyogi": ("fedopt alg.2", "the server's Yogi: v − (1 − β₂)Δ² sign(v − Δ²)"),
    "fedadam": ("fedopt alg.2", "the server's Adam: β₂v + (1 − β₂)Δ², without bias correction"),
    "fedavgm": ("fedopt fedavgm", "the server's momentum"),
    "fednova": (
        "fednova alg.1",
        "each client's change is divided by its number of steps, then averaged",
    ),
    "pfedme": ("pfedme alg.1", "steps of w along λ(w − θ̃)"),
}
#: Those beyond the five papers: one family of models is enough for them.
FURTHER_ALGORITHMS = (
    "scaffold", "apfl-deng", "feddyn", "fedadagrad", "fedyogi", "fedadam", "fedavgm", "fednova",
    "pfedme",
)  # fmt: skip
#: Algorithms whose clients train a model of their own → what they keep of it.
PERSONAL = {"apfl": ("a", "w_k"), "apfl-deng": ("v", "a")}
#: Settings of rounds that differ from `HYPER`.
ROUND_HYPER: dict[str, dict[str, Any]] = {
    "apfl": {"z": 1, "mu": 1.5},
    "fedcurv": {"lr": 0.1, "lam": 0.2},
    "pfedme": {"lam": 2.0, "beta": 0.8, "inner_steps": 3},
    "scaffold": {"server_lr": 0.9},
    "apfl-deng": {"alpha": 0.5, "lr": 0.1},
}

#: How many rows each client has, and the batch size, by the first of the batches that a step takes: episodes
#: divide all rows (12 = 8 + 4, 20 = 12 + 8) or each mini-batch. A compiled backend compiles each shape anew,
#: so that batches of one model have two or three sizes in all cases, and each function one or two of them:
#: 4, 8 and 12 rows, or 4, 7 and 11. All batches are full, so that only the equations are tested.
Rows = Mapping[str, tuple[Sequence[int], int]]
EQUAL: Rows = {"D": (5 * (8,), 4), "S": (5 * (12,), 4)}
#: With this seed (see the tests) a client takes part in rounds 0 and 2 but not in 1, and another in two
#: consecutive rounds.
SEED, SUPPORT = 3, 0.625
FULL: Rows = {
    "D": ((4, 8, 4, 8, 12), 4), "S": ((12, 20, 12, 20, 20), 4), "S of D": ((12, 24, 12, 24, 24), 12),
}  # fmt: skip
#: The same for the cases named `uneven`. d, B, n_k, K, N and the number of classes differ, so that a mean
#: over the wrong axis shows; last batches are short, and no L2 term hides what else is wrong.
SHORT: Rows = {
    "D": ((4, 11, 11, 4, 11, 4), 7), "S": ((11, 18, 18, 11, 18, 11), 7),
    "S of D": ((29, 47, 47, 29, 47, 29), 18),
}  # fmt: skip
UNEVEN = Logistic(2, 5)
#: A smaller one for many rounds.
SMALL = BinaryLogistic(9)

#: Rows of clients that show errors of data loaders, with batches of 8.
LOADER = {
    1: "fewer than B", 4: "fewer than B", 8: "a full batch alone", 9: "a last batch of one row",
    12: "a short last batch",
}  # fmt: skip


def source_of(name: str) -> NumPySource:
    """Return random numbers that depend on the case's name alone."""
    return NumPySource(stream(0, "conformance", int.from_bytes(name.encode()) % (1 << 32)))


def make_case(
    name: str, call: str, algorithm: str, model: Any, hyper: Mapping[str, Any],
    inputs: Mapping[str, Any], required: Sequence[str], tag: str = "", about: str = "",
    convention: bool = False,
) -> Case:  # fmt: skip
    """Return a case without outputs: its inputs flat, its hyperparameters complete."""
    subject = SUBJECTS.get(algorithm, ("", ""))
    spec, known = describe_model(model), complete_hyper(call, algorithm, hyper)
    flat = {key: np.asarray(x) for key, x in flatten(inputs).items()}
    return Case(
        name, tag or subject[0], about or subject[1], call, algorithm, spec, known, flat, {},
        tuple(required), convention=convention,
    )  # fmt: skip


def complete_hyper(call: str, algorithm: str, hyper: Mapping[str, Any]) -> dict[str, Any]:
    """Return every hyperparameter that the call needs, and B: a backend need know no default."""
    if call == "meta_gradient":
        return hyper_of_meta_gradient(algorithm, hyper)
    if not algorithm:
        return {}
    known = asdict(algorithm_of(algorithm, hyper))
    known.pop("bias_correction", None)  # no case has it
    return known | {name: hyper[name] for name in ("B",) if name in hyper}


def derivative_cases() -> Iterator[Case]:
    """Yield f, g and Hv of every model on weighted samples, one of them padding; g and Hv at kinks; B(w)."""
    about = {
        "loss": ("f", "the mean loss of weighted samples, one of them padding"),
        "grad": ("g", "the gradient of that mean loss"),
        "hvp": ("Hv", "its Hessian times v"),
    }
    kinks = "kinks and ties: biases of 0, a unit or kernel of zeros, a blank background"
    for name, model in {**FAMILIES, **FURTHER, **KINKS, **UNBIASED}.items():
        source, kink = source_of(name), name in KINKS
        w, v = draw_start(source, model), draw_start(source, model)
        n = 7 if name in UNBIASED else 4
        D = draw_batch(source, model, n)
        if kink:
            for i, part in enumerate(model.unpack(w)):
                part[..., : 1 if i == 0 else part.size if part.ndim == 1 else 0] = 0
            D["X"][:, ::3] = 0  # a blank background
        else:
            D["s"] = np.append(source.rng.uniform(0.5, 2, n - 1), 0.0)
        w, v = (SCALES.get(name, 1.0) * x for x in (w, v))
        for call, (output, text) in [*about.items()][kink:]:
            inputs = {"w": w, **({"v": v} if call == "hvp" else {}), "D": D}
            yield make_case(
                f"{call}-{name}", call, "", model, {}, inputs, [output], "per-fedavg eq.4",
                kinks if kink else text, convention=kink,
            )  # fmt: skip
    yield from margin_cases()
    for name, model, rows in (("mlp", FAMILIES["mlp"], FULL), ("uneven", UNEVEN, SHORT)):
        source = source_of("dissimilarity" if name == "mlp" else "dissimilarity-uneven")
        w = draw_start(source, model)
        clients = {k: draw_batch(source, model, n) for k, n in enumerate(rows["D"][0])}
        yield make_case(
            f"dissimilarity-{name}", "dissimilarity", "", model, {}, {"w": w, "clients": clients},
            ["B", "variance"], "fedprox B",
            "B(w) and the variance of the clients' gradients, weighted by n_k",
        )  # fmt: skip


def margin_cases() -> Iterator[Case]:
    """Yield the SVM's derivatives where half of the margins yz are exactly 1, in float32, too."""
    for squared, bias in ((False, True), (False, False), (True, True), (True, False)):
        model = LinearSVM(2, squared=squared, bias=bias)
        w = np.array([1.0, -0.5, 0.25])[: model.d]
        X = np.array([[1.0, 0.5], [0.5, 1.0], [-1.0, 0.5], [2.0, 1.0], [0.5, -1.0], [-0.5, 1.5]])
        y = np.array([1, -1, -1, 1, 1, -1])
        X[::2, 0] += y[::2] - X[::2] @ w[:2] - (w[2] if bias else 0)  # as w has a 1 there
        inputs: dict[str, Any] = {"w": w, "D": {"X": X, "y": y}}
        name, call, output = ("svm", "hvp", "Hv") if squared else ("hinge", "grad", "g")
        inputs |= {"v": np.arange(1.0, model.d + 1)} if squared else {}
        yield make_case(
            f"{call}-kink-{name}{'' if bias else '-unbiased'}", call, "", model, {}, inputs, [output],
            "per-fedavg eq.4", "half of the margins yz are 1, where max(0, 1 − yz) has slope 0",
            convention=True,
        )  # fmt: skip


def meta_gradient_cases() -> Iterator[Case]:
    """Yield the meta-gradient of every variant and family, on batches of different sizes."""

    def meta_case(name: str, variant: str, model: Any, inputs: Any, **more: Any) -> Case:
        hyper = HYPER | more.pop("hyper", {})
        at = f"meta-{name}", "meta_gradient", variant, model, hyper, inputs
        return make_case(*at, VARIANTS[variant][0].split(), **more)

    for family, model in FAMILIES.items():
        for variant in INPUTS:
            if variant == "per-fedavg-steps":
                continue
            source = source_of(f"{variant} {family}")
            others = (4, 4, 4) if variant.startswith("per-fedavg") else (8, 4)
            sizes = (8, 12, 4) if family == "mlp" else others
            inputs = draw_meta_gradient(source, model, variant, sizes)
            if family == "mlp" and not variant.startswith("per-fedavg"):  # 12 and 8, as in rounds
                support, query = INPUTS[variant][-2:]
                inputs |= {support: inputs[query], query: inputs[support]}
            if "alpha" in inputs:
                inputs["alpha"][::2] *= -1  # what is learned may have any sign
            yield meta_case(f"{variant}-{family}", variant, model, inputs)

    model, source = FAMILIES["mlp"], source_of("more")
    w, D = draw_start(source, model), draw_batch(source, model, 4)
    yield meta_case(
        "per-fedavg-one-batch", "per-fedavg", model, {"w": w, "D": D, "D1": D, "D2": D},
        tag="per-fedavg eq.3", about="D = D′ = D″: the gradient of f(w − α∇f(w))",
    )  # fmt: skip
    yield meta_case(
        "per-fedavg-steps", "per-fedavg-steps", model,
        {"w": w, "D": draw_batch(source, model, 8, 2), "D1": D, "D2": draw_batch(source, model, 4, 2)},
    )  # fmt: skip
    S, Q = draw_batch(source, model, 8), draw_batch(source, model, 4)
    for variant in ("fedmeta-maml", "fedmeta-sgd", "fedmaml"):
        inputs = {"theta": w} | (
            {"alpha": source.rates(model.d)} if variant == "fedmeta-sgd" else {}
        )
        yield meta_case(
            f"{variant}-two-steps", variant, MLP(3, (4, 2), 3),
            inputs | dict(zip(INPUTS[variant][-2:], (S, Q))),
            hyper={"inner_steps": 2}, about=SUBJECTS[variant][1] + ", two inner steps",
        )  # fmt: skip
    yield from further_meta_cases(meta_case)


def further_meta_cases(meta_case: Any) -> Iterator[Case]:
    """Yield three inner steps on batches of uneven sizes, models without a bias, and empty support sets."""
    source = source_of("further meta-gradients")
    w, alpha = draw_start(source, UNEVEN), source.rng.uniform(-0.2, 0.5, UNEVEN.d)
    S, Q = draw_batch(source, UNEVEN, 7), draw_batch(source, UNEVEN, 4)
    yield meta_case(
        "per-fedavg-three-steps", "per-fedavg-steps", UNEVEN,
        {"w": w, "D": draw_batch(source, UNEVEN, 7, 3), "D1": Q, "D2": draw_batch(source, UNEVEN, 7, 3)},
        about="the meta-gradient through three inner steps",
    )  # fmt: skip
    for variant in ("fedmeta-maml", "fedmeta-fomaml", "fedmeta-sgd", "fedmaml"):
        start = {"theta": w} | ({"alpha": alpha} if variant == "fedmeta-sgd" else {})
        yield meta_case(
            f"{variant}-three-steps", variant, UNEVEN, start | dict(zip(INPUTS[variant][-2:], (S, Q))),
            hyper={"inner_steps": 3}, about=SUBJECTS[variant][1] + ", three inner steps",
        )  # fmt: skip
    for name, model in UNBIASED.items():
        batches = {
            role: draw_batch(source, model, n) for role, n in (("D", 7), ("D1", 4), ("D2", 7))
        }
        yield meta_case(
            f"per-fedavg-{name}", "per-fedavg", model, {"w": draw_start(source, model)} | batches
        )
    model = Logistic(2, 5, l2=0.3)
    empty, Q = draw_batch(source, model, 0), draw_batch(source, model, 1)  # as in `*-one-row`
    for variant in ("fedmeta-maml", "fedmeta-fomaml", "fedmeta-sgd", "fedmaml"):
        start = {"theta": w} | ({"alpha": alpha} if variant == "fedmeta-sgd" else {})
        yield meta_case(
            f"{variant}-empty", variant, model, start | dict(zip(INPUTS[variant][-2:], (empty, Q))),
            about="an empty support set: the inner step is along the L2 term alone",
        )  # fmt: skip


def make_trace(
    name: str, algorithm: str, model: Any = FAMILIES["mlp"], *, rounds: int = 3, hyper: Any = None,
    about: str = "", tag: str = "", losses: Sequence[float] = (),
    sampling: Mapping[str, Any] | None = None, rows: Rows = FULL, scale: float = 1.0,
    server: Mapping[str, Any] | None = None,
) -> Case:  # fmt: skip
    """Return several rounds of one algorithm, with the Plans that say what happens in each.

    scale : of X; server : fields of its state that are not as at the start.
    """
    source = source_of(f"trace round-{name}")
    it = algorithm_of(algorithm, HYPER | dict(hyper or {}))
    own, B = rows[it.roles[0]]
    sizes, given = np.array(own), HYPER | {"B": B} | dict(hyper or {})
    amount = {} if "steps" in (sampling or {}) else {"epochs": 2}
    usual = {"clients_per_round": 3, "batch_size": B, "support": SUPPORT}
    config = Sampling(**{**usual, **amount, **(sampling or {})})
    if it.pooled:
        sizes, config = sizes[-1:], Sampling(1, epochs=1, batch_size=B)
    plans = []
    for t in range(rounds):
        plan: dict[str, Any] = make_plan(config, sizes, t, SEED, it.roles)._asdict()
        plans.append(plan | ({"loss": losses[t]} if losses else {}))
    first = serialise.initial_server(it, model, draw_start(source, model))
    start = serialise.dump_state(first, np.float64) | dict(server or {})
    data = draw_batch(source, model, int(sizes.sum())) | {"offsets": np.append(0, np.cumsum(sizes))}
    data["X"] = scale * data["X"] if scale != 1 else data["X"]
    main = serialise.required_state(algorithm, start, given)
    required = [f"{t}.server.{key}" for t in range(rounds) for key in main]
    if algorithm in PERSONAL:  # a client's own model: FedAvg's server does not depend on it
        kept, first_round = PERSONAL[algorithm], given.get("z", 0) if algorithm == "apfl" else 0
        required += [
            f"{t}.clients.{k}.{key}"
            for t, plan in enumerate(plans)
            if t >= first_round
            for k in plan["clients"][~plan["straggler"]]
            for key in kept
        ]
    return make_case(
        f"round-{name}", "round", algorithm, model, given,
        {"state": {"server": start}, "data": data, "plans": plans}, required, tag,
        about or f"{rounds} round{'s' if rounds > 1 else ''}: {SUBJECTS[algorithm][1]}",
    )  # fmt: skip


def round_cases() -> Iterator[Case]:
    """Yield rounds of every algorithm; then of stragglers, clients drawn twice, loaders and plateaus."""
    for algorithm in ALGORITHMS:
        if algorithm in ("fedavg-update", "fedavg-meta"):  # trained as FedAvg
            continue
        steps = {"steps": 2} if algorithm.startswith("per-fedavg") else None
        for family, model in FAMILIES.items():
            if family != "mlp" and algorithm in FURTHER_ALGORITHMS:
                continue
            rounds = 3 if family == "mlp" else 1
            losses = [3.0, 2.0, 1.0][:rounds] if algorithm == "apfl" else []
            hyper = ROUND_HYPER.get(algorithm, {})
            if algorithm == "apfl" and rounds == 1:  # the decomposition from the start
                hyper = hyper | {"z": 0}
            yield make_trace(
                f"{algorithm}-{family}", algorithm, model, sampling=steps,
                losses=losses, hyper=hyper, rounds=rounds, rows=FULL if family == "mlp" else EQUAL,
            )  # fmt: skip
    binary, half = FAMILIES["binary"], {"stragglers": 0.5}
    yield make_trace(
        "stragglers-dropped", "fedavg", about="FedAvg drops stragglers", sampling=half, rounds=2,
        tag="fedprox alg.2",
    )  # fmt: skip
    yield make_trace(
        "stragglers-kept",
        "fedprox",
        about="FedProx aggregates partial work",
        sampling=half,
        rounds=2,
    )
    yield make_trace(
        "all-dropped", "fedavg", about="every client is dropped: the model does not move",
        sampling={"stragglers": 1.0}, rounds=1, tag="fedprox alg.2",
    )  # fmt: skip
    yield make_trace(
        "drawn-twice", "fedprox",
        about="clients are drawn with probability n_k/n, one of them twice; weights 1/K",
        sampling={"sampling": "by-samples", "clients_per_round": 4},
        hyper={"weighting": "uniform"}, rounds=2,
    )  # fmt: skip
    for algorithm in ("fedmeta-maml", "fedmeta-sgd"):
        yield make_trace(
            f"adam-{algorithm}", algorithm, about="the server's Adam keeps its moments across rounds",
            tag="fedmeta server", hyper={"server": "adam", "beta": 0.05},
        )  # fmt: skip
        yield make_trace(
            f"{algorithm}-epochs-mlp", algorithm,
            about="an episode for each mini-batch; a client sends the sum of their gradients",
            hyper={"episodes": "epochs"}, rounds=2,
        )  # fmt: skip
    alone = {"clients_per_round": 1, "steps": 1}
    yield make_trace(
        "adaptive-mu", "fedprox",
        about="μ rises by 0.1 after a rise of the loss, falls by 0.1 after five falls",
        model=binary, tag="fedprox μ", rounds=10, hyper={"adaptive_mu": True}, sampling=alone,
        losses=[3.0, 2.9, 2.8, 3.1, 2.7, 2.6, 2.5, 2.4, 2.3, 2.2],
    )  # fmt: skip
    yield make_trace(
        "adaptive-mu-floor", "fedprox", about="μ falls from 0.05 to 0, not below",
        model=binary, tag="fedprox μ", rounds=7, hyper={"adaptive_mu": True, "mu": 0.05},
        losses=[3.0 - 0.1 * t for t in range(7)], sampling=alone,
    )  # fmt: skip
    yield make_trace(
        "loader-fedavg", "fedavg", rounds=2, rows={"D": ([*LOADER], 8)},
        about="clients of one row, of n < B, with a short last batch, with one of one row",
        sampling={"clients_per_round": 5},
    )  # fmt: skip
    yield make_trace(
        "fedmaml-drawn-twice", "fedmaml", about="a client drawn twice counts twice", rounds=1,
        sampling={"sampling": "by-samples", "clients_per_round": 4},
    )  # fmt: skip
    yield make_trace(
        "apfl-plateau", "apfl", about="a peak of the loss, then a plateau: importance is renewed",
        model=binary, tag="apfl §3.3", rounds=7, losses=[2.0, 3.0, 2.0, 0.5, 0.45, 0.52, 0.4],
        hyper={"z": 0, "init": "continuous", "window": 2, "delta_sigma": 0.2, "lam": 0.5},
        sampling={"clients_per_round": 1},
    )  # fmt: skip
    for importance, name in (
        ("fisher", "the empirical Fisher information"),
        ("si", "that of synaptic intelligence"),
        ("mas", "that of memory aware synapses"),
    ):
        yield make_trace(
            f"apfl-{importance}", "apfl", about=f"the importance is {name}", rounds=2, tag="apfl eq.5",
            hyper={"z": 1, "importance": importance}, losses=[1.0, 1.0],
        )  # fmt: skip
    yield from uneven_cases()
    yield from further_round_cases()


#: Name and algorithm of the uneven cases → the settings in which they differ.
UNEVEN_HYPER: dict[str, dict[str, Any]] = {
    "fedavg": {}, "fedprox": {}, "per-fedavg": {"inner_steps": 2}, "per-fedavg-fo": {"inner_steps": 2},
    "per-fedavg-hf": {"inner_steps": 2}, "fedmeta-maml": {"episodes": "epochs", "inner_steps": 2},
    "fedmeta-fomaml": {"episodes": "epochs"}, "fedmeta-sgd": {"beta": 0.1}, "fedmaml": {"inner_steps": 2},
    "fedcurv": {"lam": 0.6}, "apfl": {"z": 1, "mu": 1.5, "lam": 0.4, "init": "continuous"},
    "scaffold": {"server_lr": 0.9}, "scaffold-gradient": {"server_lr": 0.9, "control": "gradient"},
    "apfl-deng": {}, "apfl-deng-fixed": {"adaptive_alpha": False},
    "apfl-deng-clipped": {"alpha": 0.97, "lr": 0.5},
    "feddyn": {}, "fedadagrad": {"server_lr": 0.3, "tau": 0.02, "beta1": 0.6},
    "fedyogi": {"server_lr": 0.3, "beta2": 0.8},
    "fedadam": {"server_lr": 0.3, "beta1": 0.7}, "fednova": {},
    "fedavgm": {"momentum": 0.6, "server_lr": 0.7}, "fedavgm-sgd": {"momentum": 0.0, "server_lr": 0.7},
    "pfedme": {"lam": 2.0, "beta": 0.8, "inner_steps": 5, "alpha": 0.1},
}  # fmt: skip


#: Those that keep stragglers.
KEEPERS = ("fedprox", "fednova")
#: Those whose clients keep something: one takes part three times, so that it keeps what it renewed.
STATEFUL = ("fedcurv", "apfl", "scaffold", "apfl-deng", "feddyn")


def uneven_cases() -> Iterator[Case]:
    """Yield rounds of every algorithm in which all sizes differ, from a state that is not the start's."""
    source = source_of("uneven")
    alpha = source.rng.uniform(-0.2, 0.5, UNEVEN.d)
    for name, hyper in UNEVEN_HYPER.items():
        algorithm = max((a for a in ALGORITHMS if name.startswith(a)), key=len)
        more = f"; {', '.join(f'{key} {value}' for key, value in hyper.items())}" if hyper else ""
        yield make_trace(
            f"uneven-{name}", algorithm, UNEVEN, hyper=hyper, rows=SHORT,
            rounds=4 if algorithm in STATEFUL else 3, scale=2.0,
            losses=[3.0, 2.0, 1.0, 0.9] if algorithm == "apfl" else [],
            sampling={"steps": 2} if algorithm.startswith("per-fedavg") else None,
            server={"alpha": alpha} if algorithm == "fedmeta-sgd" else None,
            about=f"all sizes differ, last batches are short: {SUBJECTS[algorithm][1]}{more}",
        )  # fmt: skip


def further_round_cases() -> Iterator[Case]:
    """Yield adaptive μ with local steps, γ as a stop, stragglers, empty supports and no bias."""
    uneven = {"rows": SHORT}
    adaptive = {"model": SMALL, "tag": "fedprox μ", "hyper": {"adaptive_mu": True}, **uneven}
    yield make_trace(
        "adaptive-mu-equal", "fedprox", rounds=11, **adaptive,
        about="losses that stay equal: μ neither rises nor falls, and the count of falls starts anew",
        losses=[3.0, 3.0, 2.9, 2.8, 2.8, 2.7, 2.6, 2.5, 2.4, 2.3, 2.3],
    )  # fmt: skip
    yield make_trace(
        "adaptive-mu-equal-once", "fedprox", rounds=8, **adaptive,
        about="a loss that stays equal ends the count of falls: μ falls two rounds later",
        losses=[3.0, 2.9, 2.9, 2.8, 2.7, 2.6, 2.5, 2.4],
    )  # fmt: skip
    yield make_trace(
        "adaptive-mu-steps", "fedprox", rounds=10, **adaptive,
        about="the clients' several steps use the μ of their round, which rises and falls",
        losses=[3.0, 2.9, 2.8, 3.1, 3.0, 2.9, 2.8, 2.7, 2.6, 2.5],
    )  # fmt: skip
    yield make_trace(
        "adaptive-mu-state", "fedprox", rounds=6, **adaptive, losses=[3.0, 2.9, 2.8, 2.7, 2.6, 2.5],
        about="the server's μ has moved to 0.05, which the clients use, and falls to 0",
        server={"mu": np.array(0.05)},
    )  # fmt: skip
    yield make_trace(
        "fedprox-until-gamma", "fedprox", SMALL, tag="fedprox γ", rounds=2, **uneven,
        hyper={"until_gamma": 0.85}, sampling={"epochs": 5},
        about="a client stops after the local epoch that made it γ-inexact, γ = 0.85",
    )  # fmt: skip
    more: dict[str, dict[str, Any]] = {
        "fedprox": {"until_gamma": 0.85}, "scaffold": {"control": "gradient", "server_lr": 0.9},
        "apfl-deng": {"adaptive_alpha": False},
    }  # fmt: skip
    for algorithm, hyper in more.items():
        yield make_trace(
            f"small-{algorithm}", algorithm, SMALL, hyper=hyper, sampling={"epochs": 4}, rounds=2, **uneven,
            about=f"{SUBJECTS[algorithm][1]}; {', '.join(f'{key} {x}' for key, x in hyper.items())}",
        )  # fmt: skip
    for window, losses in (
        (2, [3.0, 3.0, 0.9, 0.6, 0.55, 0.5]), (3, [2.0, 2.0, 2.0, 0.9, 0.6, 0.5, 0.45, 0.4]),
    ):  # fmt: skip
        yield make_trace(
            f"apfl-window-{window}", "apfl", SMALL, tag="apfl §3.3", rounds=len(losses),
            losses=losses, sampling={"epochs": 1}, **uneven,
            hyper={"z": 0, "mu": 2.0, "window": window, "delta_sigma": 0.2, "lam": 0.3},
            about=f"the deviation of {window} losses is below 0.2, but not with n − 1; no peak follows",
        )  # fmt: skip
    for algorithm in ("fedavg", "fedprox", "fednova", "scaffold", "fedadam"):
        yield make_trace(
            f"stragglers-{algorithm}", algorithm, UNEVEN, rounds=3, scale=2.0, **uneven,
            sampling={"stragglers": 0.4, "clients_per_round": 5, "epochs": 3},
            about="two of five clients straggle" + "; they are dropped" * (algorithm not in KEEPERS),
        )  # fmt: skip
    for algorithm in ("fedavg", "per-fedavg", "fedmeta-maml", "feddyn", "fedcurv", "pfedme"):
        yield make_trace(
            f"{algorithm}-drawn-twice", algorithm, UNEVEN, rounds=2, **uneven,
            about="clients are drawn with probability n_k/n, one of them twice",
            sampling={"sampling": "by-samples", "clients_per_round": 4},
        )  # fmt: skip
    for algorithm in ("fedmeta-maml", "fedmeta-fomaml", "fedmeta-sgd", "fedmaml"):
        yield make_trace(
            f"{algorithm}-one-row", algorithm, Logistic(2, 5, l2=0.3), rounds=1,
            rows={"S": ((11, 18, 1, 18), 4)}, sampling={"clients_per_round": 3},
            about="one client has one row, its query: its inner step is along the L2 term alone",
        )  # fmt: skip
    for name, model in UNBIASED.items():
        yield make_trace(f"fedavg-{name}", "fedavg", model, rounds=2, **uneven)
    yield from combined_cases()


def combined_cases() -> Iterator[Case]:
    """Yield rounds in which the options of an algorithm meet, so that `--quick` has few cases."""
    alpha = source_of("options").rng.uniform(-0.2, 0.5, UNEVEN.d)
    options: dict[str, dict[str, Any]] = {
        "fedprox": {"mu": 0.05, "adaptive_mu": True, "until_gamma": 0.85},
        "per-fedavg": {"inner_steps": 2},
        "fedmeta-sgd": {"server": "adam", "episodes": "epochs", "inner_steps": 2, "beta": 0.05},
        "fedmaml": {"inner_steps": 2},
        "apfl": {"z": 1, "mu": 1.5, "lam": 0.4, "window": 2, "delta_sigma": 0.2, "importance": "si",
                 "init": "continuous"},
        "scaffold": {"server_lr": 0.9, "control": "gradient"},
        "apfl-deng": {"alpha": 0.97, "lr": 0.5},
        "fednova": {},
    }  # fmt: skip
    falls = [3.0, 2.9, 2.8, 2.7, 2.6, 2.5, 2.9, 2.9, 2.8, 2.8, 2.7, 2.6, 2.5, 2.4, 2.3, 2.4, 2.3]
    losses = {
        "fedprox": falls,
        "apfl": [2.0, 3.0, 2.0, 0.5, 0.45, 0.52],
    }
    for algorithm, hyper in options.items():
        own = losses.get(algorithm, [])
        draws = {"sampling": "by-samples", "clients_per_round": 4, "stragglers": 0.3, "epochs": 2}
        yield make_trace(
            f"options-{algorithm}", algorithm, SMALL if algorithm == "fedprox" else UNEVEN, hyper=hyper,
            losses=own, rounds=len(own) or 3, sampling=draws, rows=SHORT, scale=2.0,
            server={"alpha": alpha} if algorithm == "fedmeta-sgd" else None,
            about=f"stragglers, clients drawn twice, and the options of {algorithm} at once",
        )  # fmt: skip


#: Rounds whose client's half is that of a client that took part before: what it kept moves on.
COMES_BACK = ("round-uneven-apfl-deng", "round-options-apfl-deng")


def client_and_server_cases() -> Iterator[Case]:
    """Yield single clients and aggregations, cut from the last round of some traces; then the loader's."""
    for whole in list(round_cases()):
        if not any(
            part in whole.name
            for part in ("-mlp", "adam", "twice", "uneven", "mu-state", "-options-")
        ):
            continue
        t = max(int(name.split(".")[0]) for name in whole.required)
        yield from split_round(whole, t)
    yield from loader_cases()


def loader_cases() -> Iterator[Case]:
    """Yield FedAvg's client with each number of rows in round 0, and the aggregation of round 1."""
    whole = next(case for case in round_cases() if case.name == "round-loader-fedavg")
    given, model = whole.arguments(), build_model(whole.model)
    for i, (n, text) in enumerate(LOADER.items()):
        inputs = client_inputs(given["state"], given["data"], given["plans"][0], i)
        one = make_case(
            f"client-loader-{n}", "client", "fedavg", model, whole.hyper, inputs, ["upload.w"], "apfl eq.1",
            f"a client of {n} row{'s' if n > 1 else ''}: {text}",
        )  # fmt: skip
        yield one._replace(part=(whole.name, 0, int(given["plans"][0]["clients"][i])))
    for case in split_round(whole._replace(name="round-loader"), 1):
        yield case._replace(part=(whole.name, *case.part[1:]))


def client_inputs(state: Any, data: Any, plan: Any, i: int) -> dict[str, Any]:
    """Return the inputs of the i-th client of a round's plan."""
    k, S = int(plan["clients"][i]), int(plan["steps"][i])
    own, kept = slice(*data["offsets"][k : k + 2]), state.get("clients", {}).get(k)
    return {
        "server": state["server"],
        **({"client": kept} if kept else {}),
        "data": {"X": data["X"][own], "y": data["y"][own]},
        "rows": {role: rows[i, :S] for role, rows in plan["rows"].items()},
    }


def split_round(whole: Case, t: int) -> Iterator[Case]:
    """Yield round t's aggregation; before it, in most traces, the client with the most rows."""
    given = whole.arguments()
    state, model = given["state"], build_model(whole.model)
    for plan in given["plans"][:t]:
        state = LOOP.round(whole.algorithm, whole.model, whole.hyper, state, given["data"], plan)
    plan, data, server = given["plans"][t], given["data"], state["server"]
    after = LOOP.round(whole.algorithm, whole.model, whole.hyper, state, data, plan)
    stem = whole.name.removeprefix("round-").removesuffix("-mlp")
    common = (whole.algorithm, model, whole.hyper)
    sends = ~(plan["straggler"] & bool(whole.hyper["drop"]))

    if any(part in whole.name for part in ("-mlp", "uneven", "mu-state", "-options-")):
        again = [k in state["clients"] for k in plan["clients"].tolist()]
        more = 100 * np.array(again) if whole.name in COMES_BACK else 0
        i = int(np.argmax((plan["sizes"] + more) * sends))
        k, inputs = int(plan["clients"][i]), client_inputs(state, data, plan, i)
        required = [f"upload.{name}" for name in after["uploads"]]
        if k in after["clients"]:
            required += [f"client.{name}" for name in after["clients"][k]]
        at = f"client-{stem}", "client", *common, inputs, required
        case = make_case(*at, whole.tag, f"one client's round: {SUBJECTS[whole.algorithm][1]}")
        yield case._replace(part=(whole.name, t, k))
    inputs = {"server": server, "uploads": after["uploads"]}
    inputs |= {"n": plan["sizes"][sends], "counts": plan["counts"][sends]}
    if whole.algorithm in ("scaffold", "feddyn"):  # which divide by the number of all clients
        inputs["N"] = len(data["offsets"]) - 1
    main = {name.split(".")[-1] for name in whole.required}
    required = [f"server.{name}" for name in after["server"] if name in main]
    at = f"aggregate-{stem}", "aggregate", *common, inputs, required
    case = make_case(*at, whole.tag, f"the server's half of {whole.name}")
    yield case._replace(part=(whole.name, t))


def evaluation_cases() -> Iterator[Case]:
    """Yield clients that are tested, after one adaptation to training rows where the algorithm has it."""
    for algorithm in ("fedavg", "fedavg-update", "fedavg-meta", "per-fedavg", "fedmeta-maml",
                      "fedmeta-sgd", "fedmaml", "apfl", "apfl-deng", "pfedme"):  # fmt: skip
        for family, model in FAMILIES.items():
            if family != "mlp" and algorithm not in ("fedavg-update", "fedavg-meta"):
                continue
            source = source_of(f"evaluate {algorithm} {family}")
            hyper = HYPER | {
                "inner_steps": 2,
                "lam": 2.0 if algorithm == "pfedme" else HYPER["lam"],
            }
            it = algorithm_of(algorithm, hyper)
            state = serialise.initial_server(it, model, draw_start(source, model))
            inputs: dict[str, Any] = {"server": serialise.dump_state(state, np.float64)}
            if algorithm == "fedmeta-sgd":  # learned by now
                inputs["server"]["alpha"] = source.rates(model.d)
            if algorithm == "apfl":
                shapes = describe_model(model)["shapes"]
                units = sum(shape[-1] for shape in shapes if len(shape) > 1)
                inputs["client"] = {"a": source.numbers(units), "w_k": draw_start(source, model)}
            if algorithm == "apfl-deng":
                inputs["client"] = {"v": draw_start(source, model), "a": np.array(0.3)}
            if it.adapts_on:
                inputs["D"] = draw_batch(source, model, 4)
            inputs["tests"] = [draw_batch(source, model, 8) for _ in range(2)]
            yield make_case(
                f"evaluate-{algorithm}-{family}", "evaluate", algorithm, model, hyper, inputs,
                ["losses"], about="a client adapts once, then is tested on two batches",
            )  # fmt: skip
    yield from further_evaluation_cases()


def further_evaluation_cases() -> Iterator[Case]:
    """Yield tests of FedMAML's θ′, of clients that kept nothing yet, on empty supports, of learned α."""
    first = "a client that has not taken part yet"
    regular, svm = Logistic(2, 5, l2=0.3), UNBIASED["svm-unbiased"]
    learned = "adapted by the server's vector α"
    situations: list[tuple[str, str, Any, dict[str, Any], int, str]] = [
        ("fedmaml-theta1", "fedmaml", UNEVEN, {"evaluate": "theta1"}, 4, "θ′ is tested as it is"),
        ("fedmaml-theta1-svm", "fedmaml", svm, {"evaluate": "theta1"}, 4, "θ′ is tested as it is"),
        ("apfl-first", "apfl", UNEVEN, {}, 0, first),
        ("apfl-deng-first", "apfl-deng", UNEVEN, {}, 0, first),
        ("fedmeta-sgd-uneven", "fedmeta-sgd", UNEVEN, {}, 4, learned),
        ("fedmeta-sgd-three-steps", "fedmeta-sgd", UNEVEN, {"inner_steps": 3}, 4, f"{learned}, three steps"),
        ("fedmeta-sgd-svm", "fedmeta-sgd", svm, {}, 4, learned),
        ("per-fedavg-three-steps", "per-fedavg", UNEVEN, {"inner_steps": 3}, 4, "three steps"),
        ("pfedme-uneven", "pfedme", UNEVEN, {"lam": 2.0, "inner_steps": 5}, 4, "five steps towards θ̃"),
    ]  # fmt: skip
    situations += [
        (f"{name}-empty", name, regular, {}, -1, "an empty support set: a step along the L2 term")
        for name in ("fedavg-meta", "fedmeta-maml", "fedmeta-sgd", "fedmaml", "pfedme")
    ]
    situations.append(
        (
            "fedmeta-sgd-svm-empty",
            "fedmeta-sgd",
            FAMILIES["svm"],
            {},
            -1,
            f"{learned}, an empty support set",
        )
    )
    for name, algorithm, model, hyper, rows, about in situations:
        source = source_of(f"evaluate further {name}")
        it = algorithm_of(algorithm, HYPER | hyper)
        state = serialise.initial_server(it, model, draw_start(source, model))
        inputs: dict[str, Any] = {"server": serialise.dump_state(state, np.float64)}
        inputs["server"] |= {
            field: source.rng.uniform(-0.2, 0.5, model.d)
            for field, algorithms in (("alpha", "fedmeta-sgd"), ("theta1", "fedmaml"))
            if algorithm == algorithms
        }
        if rows:
            inputs["D"] = draw_batch(source, model, max(rows, 0))
        n = 8 if model in FAMILIES.values() else 7
        inputs["tests"] = [draw_batch(source, model, n) for _ in range(2)]
        yield make_case(
            f"evaluate-{name}", "evaluate", algorithm, model, HYPER | hyper, inputs, ["losses"], about=about,
        )  # fmt: skip


def with_twin(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield each case; before one with an L2 term, but for aggregations, a twin without that term."""
    for case in cases:
        if case.model["l2"] and case.call != "aggregate":
            about = f"{case.about}; without an L2 term"
            plain = {**case.model, "l2": 0.0}
            twin = case._replace(name=f"{case.name}-no-l2", model=plain, about=about, part=())
            rounds = 2 if case.name.endswith("-mlp") else 1  # what comes later needs no twin
            yield first_rounds(twin, rounds) if case.call == "round" else twin
        yield case


def all_cases() -> Iterator[Case]:
    """Yield every situation, in the index's order."""
    yield from derivative_cases()
    yield from with_twin(meta_gradient_cases())
    yield from with_twin(client_and_server_cases())
    yield from with_twin(round_cases())
    yield from evaluation_cases()
