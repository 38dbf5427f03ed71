"""The situations that the vectors are made of: small, each chosen for what it catches.

A situation is a `Case` without its outputs. All random numbers come from `sampling.stream`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedref.algorithms import ALGORITHMS
from fedref.conformance import serialise
from fedref.conformance.backends.reference import LOOP
from fedref.conformance.vectors import Case
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.models.numerics import Array
from fedref.sampling import Sampling, make_plan, stream

#: A model of each family. Widths differ, so that a transposed layer shows; each has an L2 term.
FAMILIES: dict[str, Any] = {
    "binary": BinaryLogistic(3, l2=0.1),
    "logistic": Logistic(3, 4, l2=0.1),
    "svm": LinearSVM(3, l2=0.1, squared=True),
    "mlp": MLP(3, (4, 2), 3, l2=0.1),
    "cnn": CNN((6, 6), (2,), 3, 3, 3, l2=0.1),
    "lstm": LSTM(4, 3, 3, 1, (2,), l2=0.1),
}
#: Further losses, activations and pools, of which only the derivatives are asked for.
VARIANTS: dict[str, Any] = {
    "hinge": LinearSVM(3, l2=0.1),
    "mlp-tanh": MLP(3, (4,), 3, "tanh"),
    "mlp-relu": MLP(3, (4,), 3, "relu"),
    "cnn-mean": CNN((8, 7, 2), (2, 2), 2, 3, 3, "elu", "mean"),
    "lstm-mean": LSTM(3, 2, 4, 2, (3, 2), "mean"),
}
HYPER: dict[str, Any] = {
    "lr": 0.2, "alpha": 0.3, "beta": 0.2, "delta": 1e-3, "mu": 0.7, "lam": 0.4, "inner_steps": 1,
}  # fmt: skip

TAGS = {
    "fedavg": "apfl eq.1", "fedavg-update": "per-fedavg eq.1", "fedavg-meta": "fedmeta MAML",
    "fedprox": "fedprox alg.2", "per-fedavg": "per-fedavg eq.6", "per-fedavg-fo": "per-fedavg §3.3",
    "per-fedavg-hf": "per-fedavg eq.8", "per-fedavg-steps": "per-fedavg eq.6",
    "fedmeta-maml": "fedmeta MAML", "fedmeta-fomaml": "fedmeta MAML",
    "fedmeta-sgd": "fedmeta Meta-SGD", "fedmaml": "fedmaml §3.2", "fedcurv": "fedcurv penalty",
    "apfl": "apfl eq.6", "centralised": "apfl §4.1.1",
}  # fmt: skip
ABOUT = {
    "fedavg": "SGD from the server's model, averaged by n_k",
    "fedavg-update": "FedAvg, tested after one step on a training batch",
    "fedavg-meta": "FedAvg, fine-tuned on the support set before the test",
    "fedprox": "SGD drawn to the server's model by (μ/2)‖w − wᵗ‖²",
    "per-fedavg": "u − αH(w; D″)u with three different batches",
    "per-fedavg-fo": "u alone: the Hessian term is dropped",
    "per-fedavg-hf": "Hu by a central difference of half-width δ",
    "per-fedavg-steps": "two inner steps, the factors chained right to left",
    "fedmeta-maml": "the gradient through the inner step",
    "fedmeta-fomaml": "first order: the gradient at θ_u",
    "fedmeta-sgd": "gradients in θ and in the vector α",
    "fedmaml": "a sum over clients, through all inner steps",
    "fedcurv": "drawn to the other clients' solutions by their Fisher information",
    "apfl": "w_S ⊙ σ(a) + w_k, held by elastic weight consolidation",
    "centralised": "SGD on the pooled rows",
}

SIZES = np.array([1, 2, 5, 7, 9])
B = 4


def number(text: str) -> int:
    return int.from_bytes(text.encode()) % (1 << 32)


def rng_of(name: str) -> np.random.Generator:
    return stream(0, "conformance", number(name))


def labels(model: Any, rng: np.random.Generator, n: int) -> Array:
    """n labels in which all occur, as far as n allows."""
    known = np.array(model.labels)
    return rng.permutation(np.resize(rng.permutation(known), n)).astype(np.int64)


def batch(model: Any, rng: np.random.Generator, n: int, *lead: int) -> dict[str, Array]:
    y = [labels(model, rng, n) for _ in range(int(np.prod(lead)))]
    shape = (*lead, n, model.features)
    if model.inputs == "codes":  # one more than there are: padding
        X: Array = rng.integers(0, model.vocabulary, shape, endpoint=True)
    else:
        X = rng.normal(size=shape)
    return {"X": X, "y": np.reshape(y, (*lead, n))}


def start(model: Any, rng: np.random.Generator) -> Array:
    return 0.5 * rng.normal(size=model.d)


def case(
    name: str, tag: str, about: str, call: str, algorithm: str, model: Any,
    hyper: Mapping[str, Any], inputs: Mapping[str, Any], required: Sequence[str],
) -> Case:  # fmt: skip
    given = {key: np.asarray(x) for key, x in serialise.flatten(inputs)}
    return Case(
        name, tag, about, call, algorithm, serialise.describe_model(model), complete(call, algorithm, hyper),
        given, {}, tuple(required),
    )  # fmt: skip


#: Version 1 of the vectors knows these with one inner step alone, and does not say so.
ONE_STEP = ("fedavg-update", "per-fedavg", "per-fedavg-fo", "per-fedavg-hf")


def complete(call: str, algorithm: str, hyper: Mapping[str, Any]) -> dict[str, Any]:
    """Every hyperparameter that the call needs, and B, so that no default need be known."""
    if call == "meta_gradient":
        names: tuple[str, ...] = (
            ("alpha", "beta") if algorithm.startswith("per-fedavg") else ("alpha", "inner_steps")
        )
        names += ("delta",) if algorithm == "per-fedavg-hf" else ()
        return {name: hyper[name] for name in names}
    if not algorithm:
        return {}
    known = asdict(LOOP.algorithm_of(algorithm, hyper))
    if algorithm in ONE_STEP:
        del known["inner_steps"]
    return known | {name: hyper[name] for name in ("B",) if name in hyper}


def derivative_cases() -> Iterator[Case]:
    """f, g and Hv of every model, with weighted samples of which one is padding; and an empty batch."""
    about = {
        "loss": "mean loss, weighted samples, one of them padding",
        "grad": "its gradient",
        "hvp": "Hessian times v",
    }
    for name, model in {**FAMILIES, **VARIANTS}.items():
        rng = rng_of(name)
        w, v, D = start(model, rng), start(model, rng), batch(model, rng, 6)
        D["s"] = np.append(rng.uniform(0.5, 2, 5), 0.0)
        for call, text in about.items():
            inputs = {"w": w, **({"v": v} if call == "hvp" else {}), "D": D}
            required = {"loss": "f", "grad": "g", "hvp": "Hv"}[call]
            yield case(
                f"{call}-{name}", "per-fedavg eq.4", text, call, "", model, {}, inputs, [required]
            )
    model, rng = FAMILIES["mlp"], rng_of("dissimilarity")
    yield case(
        "dissimilarity-mlp", "fedprox B", "B(w) and the variance, clients weighted by n_k",
        "dissimilarity", "", model, {},
        {"w": start(model, rng), "clients": {k: batch(model, rng, n) for k, n in enumerate(SIZES)}},
        ["B", "variance"],
    )  # fmt: skip


def meta_gradient_cases() -> Iterator[Case]:
    """The meta-gradient of every variant and family, batches of different sizes."""
    roles: dict[str, tuple[str, ...]] = {
        "per-fedavg": ("w", "D", "D1", "D2"), "per-fedavg-fo": ("w", "D", "D1"),
        "per-fedavg-hf": ("w", "D", "D1", "D2"), "fedmeta-maml": ("theta", "S", "Q"),
        "fedmeta-fomaml": ("theta", "S", "Q"), "fedmeta-sgd": ("theta", "S", "Q"),
        "fedmaml": ("theta", "tr", "val"),
    }  # fmt: skip

    def made(name: str, variant: str, model: Any, hyper: Any, inputs: Any, **more: Any) -> Case:
        last = {"fedmeta-sgd": ["g_theta", "g_alpha"], "fedmaml": ["g"]}
        meta = ["g_theta"] if "fedmeta" in variant else ["meta_gradient"]
        tag, about = more.get("tag", TAGS[variant]), more.get("about", ABOUT[variant])
        required = last.get(variant, meta)
        return case(name, tag, about, "meta_gradient", variant, model, hyper, inputs, required)

    for family, model in FAMILIES.items():
        for variant, (start_name, *batches) in roles.items():
            rng = rng_of(f"{variant} {family}")
            inputs: dict[str, Any] = {start_name: start(model, rng)}
            if variant == "fedmeta-sgd":
                inputs["alpha"] = rng.uniform(0.1, 0.5, model.d)
            inputs |= {D: batch(model, rng, n) for D, n in zip(batches, (4, 5, 3))}
            yield made(f"meta-{variant}-{family}", variant, model, HYPER, inputs)

    model, rng = FAMILIES["mlp"], rng_of("more")
    w, D = start(model, rng), batch(model, rng, 5)
    yield made(
        "meta-per-fedavg-one-batch", "per-fedavg", model, HYPER,
        {"w": w, "D": D, "D1": D, "D2": D},
        tag="per-fedavg eq.3", about="D = D′ = D″: the gradient of f(w − α∇f(w))",
    )  # fmt: skip
    yield made(
        "meta-per-fedavg-steps", "per-fedavg-steps", model, HYPER,
        {"w": w, "D": batch(model, rng, 4, 2), "D1": D, "D2": batch(model, rng, 3, 2)},
    )  # fmt: skip
    S, Q = batch(model, rng, 4), batch(model, rng, 5)
    for variant in ("fedmeta-maml", "fedmeta-sgd", "fedmaml"):
        names = ("tr", "val") if variant == "fedmaml" else ("S", "Q")
        inputs = {"theta": w} | (
            {"alpha": rng.uniform(0.1, 0.5, model.d)} if variant == "fedmeta-sgd" else {}
        )
        yield made(
            f"meta-{variant}-two-steps", variant, model, HYPER | {"inner_steps": 2},
            inputs | dict(zip(names, (S, Q))), about=ABOUT[variant] + ", two inner steps",
        )  # fmt: skip


def trace(
    name: str, algorithm: str, model: Any, *, rounds: int = 3, hyper: Any = None, about: str = "",
    tag: str = "", seed: int = 0, sizes: Array = SIZES, losses: Sequence[float] = (),
    sampling: Mapping[str, Any] | None = None,
) -> Case:  # fmt: skip
    """Several rounds of one algorithm, with the Plans that say what happens in each."""
    rng = rng_of(f"trace {name}")
    drawn = {"clients_per_round": 3, "batch_size": B} | dict(sampling or {})
    if "steps" not in drawn:
        drawn |= {"epochs": 2}
    config = Sampling(**drawn)
    given = HYPER | {"B": B} | dict(hyper or {})
    it = LOOP.algorithm_of(algorithm, given)
    if it.pooled:
        sizes, config = sizes[-1:], Sampling(1, epochs=1, batch_size=B)
    plans = []
    for t in range(rounds):
        plan: dict[str, Any] = make_plan(config, sizes, t, seed, it.roles)._asdict()
        plans.append(plan | ({"loss": losses[t]} if losses else {}))
    server = serialise.dump_state(
        serialise.initial_server(it, model, start(model, rng)), np.float64
    )
    data = batch(model, rng, int(sizes.sum())) | {"offsets": np.append(0, np.cumsum(sizes))}
    main = ["theta", "alpha"] if algorithm == "fedmeta-sgd" else [next(iter(server))]
    required = [f"{t}.server.{key}" for t in range(rounds) for key in main]
    return case(
        name, tag or TAGS[algorithm], about or f"{rounds} rounds: {ABOUT[algorithm]}", "round",
        algorithm, model, given, {"state": {"server": server}, "data": data, "plans": plans},
        required,
    )  # fmt: skip


#: Seed 3 (see the tests): a client takes part in rounds 0 and 2 but not in 1, another in two rounds
#: that follow each other, and the client with one row takes part.
SEED = 3


def round_cases() -> Iterator[Case]:
    """Every algorithm on a model of each family; then what goes wrong between rounds."""
    fall = [3.0 - 0.1 * t for t in range(7)]
    for algorithm in ALGORITHMS:
        if algorithm in ("fedavg-update", "fedavg-meta"):  # trained as FedAvg
            continue
        steps = {"steps": 2} if algorithm.startswith("per-fedavg") else None
        for family, model in FAMILIES.items():
            losses = [3.0, 2.0, 1.0] if algorithm == "apfl" else []
            hyper = {"apfl": {"z": 1, "mu": 1.5}, "fedcurv": {"lr": 0.1, "lam": 0.2}}
            yield trace(
                f"round-{algorithm}-{family}", algorithm, model, seed=SEED, sampling=steps,
                losses=losses, hyper=hyper.get(algorithm),
            )  # fmt: skip
    mlp, binary = FAMILIES["mlp"], FAMILIES["binary"]

    def more(name: str, algorithm: str, about: str, model: Any = mlp, **kw: Any) -> Case:
        return trace(f"round-{name}", algorithm, model, about=about, **({"seed": SEED} | kw))

    half = {"stragglers": 0.5, "epochs": 4}
    yield more(
        "stragglers-dropped", "fedavg", "FedAvg drops stragglers", sampling=half, rounds=2,
        tag="fedprox alg.2",
    )  # fmt: skip
    yield more(
        "stragglers-kept", "fedprox", "FedProx aggregates partial work", sampling=half, rounds=2
    )
    yield more(
        "all-dropped", "fedavg", "every client is dropped: the model does not move",
        sampling={"stragglers": 1.0}, rounds=1, tag="fedprox alg.2",
    )  # fmt: skip
    yield more(
        "drawn-twice", "fedprox", "drawn with probability n_k/n, a client twice; weights 1/K",
        sampling={"sampling": "by-samples", "clients_per_round": 4},
        hyper={"weighting": "uniform"}, rounds=2,
    )  # fmt: skip
    for algorithm in ("fedmeta-maml", "fedmeta-sgd"):
        yield more(
            f"adam-{algorithm}", algorithm, "the server's Adam keeps its moments across rounds",
            tag="fedmeta server", hyper={"server": "adam", "beta": 0.05},
        )  # fmt: skip
        yield more(
            f"{algorithm}-epochs-mlp", algorithm, "an episode of each mini-batch, their sum is sent",
            hyper={"episodes": "epochs"}, rounds=2,
        )  # fmt: skip
    yield more(
        "adaptive-mu", "fedprox", "μ: −0.1 after five falls, then counted anew; +0.1 after a rise",
        model=binary, tag="fedprox μ", rounds=9, losses=[*fall, 2.3, 2.6],
        hyper={"adaptive_mu": True}, sampling={"clients_per_round": 2, "epochs": 1},
    )  # fmt: skip
    yield more(
        "apfl-plateau", "apfl", "a peak of the loss, then a plateau: importance is renewed",
        model=binary, tag="apfl §3.3", rounds=7, losses=[2.0, 3.0, 2.0, 0.5, 0.45, 0.52, 0.4],
        hyper={"z": 0, "init": "continuous", "window": 2, "delta_sigma": 0.2, "lam": 0.5},
        sampling={"clients_per_round": 2, "epochs": 1},
    )  # fmt: skip
    for importance in ("fisher", "si", "mas"):
        yield more(
            f"apfl-{importance}", "apfl", f"importance by {importance}", rounds=2, tag="apfl eq.5",
            hyper={"z": 1, "importance": importance}, losses=[1.0, 1.0],
        )  # fmt: skip


def client_and_server_cases() -> Iterator[Case]:
    """The halves of a round alone, cut from the second or third round of the traces."""
    for whole in list(round_cases()):
        if not (whole.name.endswith("-mlp") or "adam" in whole.name or "twice" in whole.name):
            continue
        t = 2 if len(whole.inputs) and "2.server" in "".join(whole.required) else 1
        yield from cut_round(whole, t)


def cut_round(whole: Case, t: int) -> Iterator[Case]:
    """Round t of a trace: the client with the most rows, and the aggregation."""
    given = whole.arguments()
    state, model = given["state"], serialise.build_model(whole.model)
    for plan in given["plans"][:t]:
        state = LOOP.round(whole.algorithm, whole.model, whole.hyper, state, given["data"], plan)
    plan, data, server = given["plans"][t], given["data"], state["server"]
    after = LOOP.round(whole.algorithm, whole.model, whole.hyper, state, data, plan)
    stem = whole.name.removeprefix("round-").removesuffix("-mlp")
    common = (whole.algorithm, model, whole.hyper)

    if whole.name.endswith("-mlp"):
        i = int(np.argmax(plan["sizes"]))
        k, S = int(plan["clients"][i]), int(plan["steps"][i])
        own = slice(*data["offsets"][k : k + 2])
        kept = state["clients"].get(k)
        inputs = {"server": server, **({"client": kept} if kept else {})}
        inputs["data"] = {"X": data["X"][own], "y": data["y"][own]}
        inputs["rows"] = {role: rows[i, :S] for role, rows in plan["rows"].items()}
        required = [f"upload.{name}" for name in after["uploads"]]
        if k in after["clients"]:
            required += [f"client.{name}" for name in after["clients"][k]]
        about = f"one client's round: {ABOUT[whole.algorithm]}"
        yield case(f"client-{stem}", whole.tag, about, "client", *common, inputs, required)
    inputs = {"server": server, "uploads": after["uploads"], "n": plan["sizes"]}
    inputs |= {"counts": plan["counts"]}
    about = f"the server's half of {whole.name}"
    required = [f"server.{name}" for name in after["server"] if name in main_outputs(whole)]
    yield case(f"aggregate-{stem}", whole.tag, about, "aggregate", *common, inputs, required)


def main_outputs(whole: Case) -> set[str]:
    return {name.split(".")[-1] for name in whole.required}


def evaluation_cases() -> Iterator[Case]:
    """What a client tests with: adapted once, on training rows."""
    for algorithm in ("fedavg", "fedavg-update", "fedavg-meta", "per-fedavg", "fedmeta-maml",
                      "fedmeta-sgd", "fedmaml", "apfl"):  # fmt: skip
        for family, model in FAMILIES.items():
            if family != "mlp" and algorithm not in ("fedavg-update", "fedavg-meta"):
                continue
            rng = rng_of(f"evaluate {algorithm} {family}")
            hyper = HYPER | {"inner_steps": 2}
            it = LOOP.algorithm_of(algorithm, hyper)
            w = serialise.initial_server(it, model, start(model, rng))
            inputs: dict[str, Any] = {"server": serialise.dump_state(w, np.float64)}
            if algorithm == "apfl":
                shapes = serialise.describe_model(model)["shapes"]
                units = sum(shape[-1] for shape in shapes if len(shape) > 1)
                inputs["client"] = {"a": rng.normal(size=units), "w_k": start(model, rng)}
            if it.adapts_on:
                inputs["D"] = batch(model, rng, 5)
            inputs["tests"] = [batch(model, rng, 4), batch(model, rng, 3)]
            yield case(
                f"evaluate-{algorithm}-{family}", TAGS[algorithm],
                "adapted once to training rows, then tested on two batches", "evaluate", algorithm,
                model, hyper, inputs, ["losses"],
            )  # fmt: skip


def all_cases() -> Iterator[Case]:
    yield from derivative_cases()
    yield from meta_gradient_cases()
    yield from client_and_server_cases()
    yield from round_cases()
    yield from evaluation_cases()
