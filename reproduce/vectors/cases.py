"""The cases of the golden vectors, without outputs: small, each chosen for what it catches.

All random numbers come from `sampling.stream`. A new family of cases is a generator like those below,
and a line in `all_cases`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedref.algorithms import ALGORITHMS
from fedref.conformance import serialise
from fedref.conformance.backends.reference import LOOP, algorithm_of
from fedref.judge.case import Case, build_model, describe_model, flatten
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.models.numerics import Array
from fedref.sampling import Sampling, make_plan, stream

#: A model of each family. Widths differ, so that a transposed layer shows; each has an L2 term.
FAMILIES: dict[str, Any] = {
    "binary": BinaryLogistic(3, l2=0.1),
    "logistic": Logistic(3, 4, l2=0.1),
    "svm": LinearSVM(3, l2=0.1, squared=True),
    "mlp": MLP(3, (4, 2), 3, l2=0.1),
    "cnn": CNN((6, 5), (2,), 3, 3, 3, l2=0.1),
    "lstm": LSTM(4, 3, 3, 1, (2,), l2=0.1),
}
#: Further losses, activations and pools, for their derivatives alone.
VARIANTS: dict[str, Any] = {
    "hinge": LinearSVM(3, l2=0.1),
    "mlp-tanh": MLP(3, (4,), 3, "tanh"),
    "mlp-relu": MLP(3, (4,), 3, "relu"),
    "cnn-mean": CNN((8, 7, 2), (2, 2), 2, 3, 3, "elu", "mean"),
    "lstm-mean": LSTM(3, 2, 4, 2, (3, 2), "mean"),
}
#: Models that read exact zeros: before ReLU and ELU, and in every window of a max-pool.
KINKS: dict[str, Any] = {
    "kink-relu": MLP(3, (4,), 3, "relu"),
    "kink-elu": MLP(3, (4,), 3, "elu"),
    "kink-cnn-relu": CNN((6, 6), (2,), 3, 3, 3, "relu"),
    "kink-cnn-tanh": CNN((6, 6), (2,), 3, 3, 3, "tanh"),
}
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
BEYOND = (
    "scaffold", "apfl-deng", "feddyn", "fedadagrad", "fedyogi", "fedadam", "fedavgm", "fednova",
    "pfedme",
)  # fmt: skip
#: Settings of rounds that differ from `HYPER`.
ROUND_HYPER: dict[str, dict[str, Any]] = {
    "apfl": {"z": 1, "mu": 1.5},
    "fedcurv": {"lr": 0.1, "lam": 0.2},
    "pfedme": {"lam": 2.0, "beta": 0.8, "inner_steps": 3},
    "scaffold": {"server_lr": 0.9},
}

#: Rows of the clients, and the batch size: all batches are full, so that only the equations are tested.
#: With this seed (see the tests) a client takes part in rounds 0 and 2 but not in 1, and another in two
#: consecutive rounds.
SIZES, B, SEED = np.array([4, 8, 4, 8, 12]), 4, 3
#: Rows of clients that show errors of data loaders.
LOADER = {
    1: "fewer than B", 3: "fewer than B", 7: "a short last batch", 8: "full batches alone",
    9: "a last batch of one row",
}  # fmt: skip


def rng_of(name: str) -> np.random.Generator:
    """Return a random generator that depends on the case's name alone."""
    return stream(0, "conformance", int.from_bytes(name.encode()) % (1 << 32))


def draw_labels(model: Any, rng: np.random.Generator, n: int) -> Array:
    """Return n labels in which every label occurs, as far as n allows."""
    known = np.array(model.labels)
    return rng.permutation(np.resize(rng.permutation(known), n)).astype(np.int64)


def draw_batch(model: Any, rng: np.random.Generator, n: int, *lead: int) -> dict[str, Array]:
    """Return n random samples, or an array of such batches of shape `lead`."""
    y = [draw_labels(model, rng, n) for _ in range(int(np.prod(lead)))]
    shape = (*lead, n, model.features)
    if model.inputs == "codes":  # the code `vocabulary` is padding
        X: Array = rng.integers(0, model.vocabulary, shape, endpoint=True)
    else:
        X = rng.normal(size=shape)
    return {"X": X, "y": np.reshape(y, (*lead, n))}


def draw_start(model: Any, rng: np.random.Generator) -> Array:
    """Return random parameters: a model's usual start may be zeros."""
    return 0.5 * rng.normal(size=model.d)


def make_case(
    name: str, call: str, algorithm: str, model: Any, hyper: Mapping[str, Any],
    inputs: Mapping[str, Any], required: Sequence[str], tag: str = "", about: str = "",
) -> Case:  # fmt: skip
    """Return a case without outputs: its inputs flat, its hyperparameters complete."""
    subject = SUBJECTS.get(algorithm, ("", ""))
    spec, known = describe_model(model), complete_hyper(call, algorithm, hyper)
    flat = {key: np.asarray(x) for key, x in flatten(inputs).items()}
    return Case(
        name, tag or subject[0], about or subject[1], call, algorithm, spec, known, flat, {},
        tuple(required),
    )  # fmt: skip


def complete_hyper(call: str, algorithm: str, hyper: Mapping[str, Any]) -> dict[str, Any]:
    """Return every hyperparameter that the call needs, and B: a backend need know no default."""
    if call == "meta_gradient":
        names: tuple[str, ...] = (
            ("alpha", "beta") if algorithm.startswith("per-fedavg") else ("alpha", "inner_steps")
        )
        names += ("delta",) if algorithm == "per-fedavg-hf" else ()
        return {name: hyper[name] for name in names}
    if not algorithm:
        return {}
    known = asdict(algorithm_of(algorithm, hyper))
    return known | {name: hyper[name] for name in ("B",) if name in hyper}


def derivative_cases() -> Iterator[Case]:
    """Yield f, g and Hv of every model on weighted samples, one of them padding; g and Hv at kinks; B(w)."""
    about = {
        "loss": ("f", "the mean loss of weighted samples, one of them padding"),
        "grad": ("g", "the gradient of that mean loss"),
        "hvp": ("Hv", "its Hessian times v"),
    }
    kinks = "kinks and ties: biases of 0, a unit or kernel of zeros, a blank background"
    for name, model in {**FAMILIES, **VARIANTS, **KINKS}.items():
        rng, kink = rng_of(name), name in KINKS
        w, v = draw_start(model, rng), draw_start(model, rng)
        D = draw_batch(model, rng, 4 if kink else 6)
        if kink:
            for i, part in enumerate(model.unpack(w)):
                part[..., : 1 if i == 0 else part.size if part.ndim == 1 else 0] = 0
            D["X"][:, ::3] = 0  # a blank background
        else:
            D["s"] = np.append(rng.uniform(0.5, 2, 5), 0.0)
        for call, (output, text) in [*about.items()][kink:]:
            inputs = {"w": w, **({"v": v} if call == "hvp" else {}), "D": D}
            yield make_case(
                f"{call}-{name}", call, "", model, {}, inputs, [output], "per-fedavg eq.4",
                kinks if kink else text,
            )  # fmt: skip
    model, rng = FAMILIES["mlp"], rng_of("dissimilarity")
    w, clients = draw_start(model, rng), {k: draw_batch(model, rng, n) for k, n in enumerate(SIZES)}
    yield make_case(
        "dissimilarity-mlp", "dissimilarity", "", model, {}, {"w": w, "clients": clients},
        ["B", "variance"], "fedprox B", "B(w) and the variance of the clients' gradients, weighted by n_k",
    )  # fmt: skip


def meta_gradient_cases() -> Iterator[Case]:
    """Yield the meta-gradient of every variant and family, on batches of different sizes."""
    roles: dict[str, tuple[str, ...]] = {
        "per-fedavg": ("w", "D", "D1", "D2"), "per-fedavg-fo": ("w", "D", "D1"),
        "per-fedavg-hf": ("w", "D", "D1", "D2"), "fedmeta-maml": ("theta", "S", "Q"),
        "fedmeta-fomaml": ("theta", "S", "Q"), "fedmeta-sgd": ("theta", "S", "Q"),
        "fedmaml": ("theta", "tr", "val"),
    }  # fmt: skip

    outputs = {"fedmeta-sgd": ["g_theta", "g_alpha"], "fedmaml": ["g"]}
    outputs |= {name: ["g_theta"] for name in ("fedmeta-maml", "fedmeta-fomaml")}

    def meta_case(name: str, variant: str, model: Any, inputs: Any, **more: Any) -> Case:
        hyper = HYPER | more.pop("hyper", {})
        at = f"meta-{name}", "meta_gradient", variant, model, hyper, inputs
        return make_case(*at, outputs.get(variant, ["meta_gradient"]), **more)

    for family, model in FAMILIES.items():
        for variant, (start_name, *batch_names) in roles.items():
            rng = rng_of(f"{variant} {family}")
            inputs: dict[str, Any] = {start_name: draw_start(model, rng)}
            if variant == "fedmeta-sgd":
                inputs["alpha"] = rng.uniform(0.1, 0.5, model.d)
            inputs |= {name: draw_batch(model, rng, n) for name, n in zip(batch_names, (4, 5, 3))}
            yield meta_case(f"{variant}-{family}", variant, model, inputs)

    model, rng = FAMILIES["mlp"], rng_of("more")
    w, D = draw_start(model, rng), draw_batch(model, rng, 5)
    yield meta_case(
        "per-fedavg-one-batch", "per-fedavg", model, {"w": w, "D": D, "D1": D, "D2": D},
        tag="per-fedavg eq.3", about="D = D′ = D″: the gradient of f(w − α∇f(w))",
    )  # fmt: skip
    yield meta_case(
        "per-fedavg-steps", "per-fedavg-steps", model,
        {"w": w, "D": draw_batch(model, rng, 4, 2), "D1": D, "D2": draw_batch(model, rng, 3, 2)},
    )  # fmt: skip
    S, Q = draw_batch(model, rng, 4), draw_batch(model, rng, 5)
    for variant in ("fedmeta-maml", "fedmeta-sgd", "fedmaml"):
        names = ("tr", "val") if variant == "fedmaml" else ("S", "Q")
        inputs = {"theta": w} | (
            {"alpha": rng.uniform(0.1, 0.5, model.d)} if variant == "fedmeta-sgd" else {}
        )
        yield meta_case(
            f"{variant}-two-steps", variant, model, inputs | dict(zip(names, (S, Q))),
            hyper={"inner_steps": 2}, about=SUBJECTS[variant][1] + ", two inner steps",
        )  # fmt: skip


def make_trace(
    name: str, algorithm: str, model: Any = FAMILIES["mlp"], *, rounds: int = 3, hyper: Any = None,
    about: str = "", tag: str = "", losses: Sequence[float] = (),
    sampling: Mapping[str, Any] | None = None, sizes: Array = SIZES,
) -> Case:  # fmt: skip
    """Return several rounds of one algorithm, with the Plans that say what happens in each."""
    rng = rng_of(f"trace round-{name}")
    amount = {} if "steps" in (sampling or {}) else {"epochs": 2}
    config = Sampling(**{"clients_per_round": 3, "batch_size": B, **amount, **(sampling or {})})
    given = HYPER | {"B": B} | dict(hyper or {})
    it = algorithm_of(algorithm, given)
    if it.pooled:
        sizes, config = sizes[-1:], Sampling(1, epochs=1, batch_size=B)
    plans = []
    for t in range(rounds):
        plan: dict[str, Any] = make_plan(config, sizes, t, SEED, it.roles)._asdict()
        plans.append(plan | ({"loss": losses[t]} if losses else {}))
    first = serialise.initial_server(it, model, draw_start(model, rng))
    server = serialise.dump_state(first, np.float64)
    data = draw_batch(model, rng, int(sizes.sum())) | {"offsets": np.append(0, np.cumsum(sizes))}
    main = ["theta", "alpha"] if algorithm == "fedmeta-sgd" else [next(iter(server))]
    main += [name for name in ("c", "h", "m", "v") if name in server and algorithm != "fedcurv"]
    main += ["mu"] if given.get("adaptive_mu") else []
    required = [f"{t}.server.{key}" for t in range(rounds) for key in main]
    return make_case(
        f"round-{name}", "round", algorithm, model, given,
        {"state": {"server": server}, "data": data, "plans": plans}, required, tag,
        about or f"{rounds} round{'s' * (rounds > 1)}: {SUBJECTS[algorithm][1]}",
    )  # fmt: skip


def round_cases() -> Iterator[Case]:
    """Yield rounds of every algorithm; then of stragglers, clients drawn twice, loaders and plateaus."""
    for algorithm in ALGORITHMS:
        if algorithm in ("fedavg-update", "fedavg-meta"):  # trained as FedAvg
            continue
        steps = {"steps": 2} if algorithm.startswith("per-fedavg") else None
        for family, model in FAMILIES.items():
            if family != "mlp" and algorithm in BEYOND:
                continue
            rounds = 3 if family == "mlp" else 1
            losses = [3.0, 2.0, 1.0][:rounds] if algorithm == "apfl" else []
            hyper = ROUND_HYPER.get(algorithm, {})
            if algorithm == "apfl" and rounds == 1:  # the decomposition from the start
                hyper = hyper | {"z": 0}
            yield make_trace(
                f"{algorithm}-{family}", algorithm, model, sampling=steps,
                losses=losses, hyper=hyper, rounds=rounds,
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
    for algorithm in ("fedavg", "fedprox", "per-fedavg"):
        yield make_trace(
            f"loader-{algorithm}", algorithm, rounds=2, sizes=np.array([*LOADER]),
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


def client_and_server_cases() -> Iterator[Case]:
    """Yield single clients and aggregations, cut from the last round of some traces; then the loader's."""
    for whole in list(round_cases()):
        if not (whole.name.endswith("-mlp") or "adam" in whole.name or "twice" in whole.name):
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
        yield make_case(
            f"client-loader-{n}", "client", "fedavg", model, whole.hyper, inputs, ["upload.w"], "apfl eq.1",
            f"a client of {n} row{'s' * (n > 1)}: {text}",
        )  # fmt: skip
    yield from split_round(whole._replace(name="round-loader"), 1)


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
    """Yield round t's aggregation; before it, in traces of the MLP, the client with the most rows."""
    given = whole.arguments()
    state, model = given["state"], build_model(whole.model)
    for plan in given["plans"][:t]:
        state = LOOP.round(whole.algorithm, whole.model, whole.hyper, state, given["data"], plan)
    plan, data, server = given["plans"][t], given["data"], state["server"]
    after = LOOP.round(whole.algorithm, whole.model, whole.hyper, state, data, plan)
    stem = whole.name.removeprefix("round-").removesuffix("-mlp")
    common = (whole.algorithm, model, whole.hyper)

    if whole.name.endswith("-mlp"):
        i = int(np.argmax(plan["sizes"]))
        k, inputs = int(plan["clients"][i]), client_inputs(state, data, plan, i)
        required = [f"upload.{name}" for name in after["uploads"]]
        if k in after["clients"]:
            required += [f"client.{name}" for name in after["clients"][k]]
        at = f"client-{stem}", "client", *common, inputs, required
        yield make_case(*at, whole.tag, f"one client's round: {SUBJECTS[whole.algorithm][1]}")
    inputs = {"server": server, "uploads": after["uploads"], "n": plan["sizes"]}
    inputs |= {"counts": plan["counts"]}
    if whole.algorithm in ("scaffold", "feddyn"):  # which divide by the number of all clients
        inputs["N"] = len(data["offsets"]) - 1
    main = {name.split(".")[-1] for name in whole.required}
    required = [f"server.{name}" for name in after["server"] if name in main]
    at = f"aggregate-{stem}", "aggregate", *common, inputs, required
    yield make_case(*at, whole.tag, f"the server's half of {whole.name}")


def evaluation_cases() -> Iterator[Case]:
    """Yield clients that are tested, after one adaptation to training rows where the algorithm has it."""
    for algorithm in ("fedavg", "fedavg-update", "fedavg-meta", "per-fedavg", "fedmeta-maml",
                      "fedmeta-sgd", "fedmaml", "apfl", "apfl-deng", "pfedme"):  # fmt: skip
        for family, model in FAMILIES.items():
            if family != "mlp" and algorithm not in ("fedavg-update", "fedavg-meta"):
                continue
            rng = rng_of(f"evaluate {algorithm} {family}")
            hyper = HYPER | {
                "inner_steps": 2,
                "lam": 2.0 if algorithm == "pfedme" else HYPER["lam"],
            }
            it = algorithm_of(algorithm, hyper)
            state = serialise.initial_server(it, model, draw_start(model, rng))
            inputs: dict[str, Any] = {"server": serialise.dump_state(state, np.float64)}
            if algorithm == "fedmeta-sgd":  # learned by now
                inputs["server"]["alpha"] = rng.uniform(0.1, 0.5, model.d)
            if algorithm == "apfl":
                shapes = describe_model(model)["shapes"]
                units = sum(shape[-1] for shape in shapes if len(shape) > 1)
                inputs["client"] = {"a": rng.normal(size=units), "w_k": draw_start(model, rng)}
            if algorithm == "apfl-deng":
                inputs["client"] = {"v": draw_start(model, rng), "a": np.array(0.3)}
            if it.adapts_on:
                inputs["D"] = draw_batch(model, rng, 5)
            inputs["tests"] = [draw_batch(model, rng, 4), draw_batch(model, rng, 3)]
            yield make_case(
                f"evaluate-{algorithm}-{family}", "evaluate", algorithm, model, hyper, inputs,
                ["losses"], about="a client adapts once, then is tested on two batches",
            )  # fmt: skip


def with_twin(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield each case; before one with an L2 term, but for aggregations, a twin without that term."""
    for case in cases:
        if case.model["l2"] and case.call != "aggregate":
            about = f"{case.about}; without an L2 term"
            plain = {**case.model, "l2": 0.0}
            twin = case._replace(name=f"{case.name}-no-l2", model=plain, about=about)
            rounds = 2 if case.name.endswith("-mlp") else 1  # what comes later needs no twin
            yield keep_first_rounds(twin, rounds) if case.call == "round" else twin
        yield case


def keep_first_rounds(case: Case, rounds: int) -> Case:
    """Return a trace's first rounds."""

    def early(name: str) -> bool:
        return int(name.split(".")[0]) < rounds

    inputs = {
        name: x
        for name, x in case.inputs.items()
        if not name.startswith("plans.") or early(name.removeprefix("plans."))
    }
    return case._replace(inputs=inputs, required=tuple(filter(early, case.required)))


def all_cases() -> Iterator[Case]:
    """Yield every situation, in the index's order."""
    yield from derivative_cases()
    yield from with_twin(meta_gradient_cases())
    yield from with_twin(client_and_server_cases())
    yield from with_twin(round_cases())
    yield from evaluation_cases()
