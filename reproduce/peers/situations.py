"""The situations that all projects are put in: golden vectors without L2 term, and one of two clients."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from fedref.conformance import vectors
from fedref.conformance.backends.reference import LOOP
from fedref.conformance.suite import call_backend
from fedref.judge import Case
from fedref.judge.case import describe_model, flatten
from fedref.models import Logistic
from fedref.sampling import stream

#: A key in adapters/projects.toml → the golden vector that it is made of.
VECTORS = {
    "FedAvg": "client-fedavg", "FedAvg, a batch of one row": "client-loader-9",
    "FedProx": "client-fedprox", "FedProx, sparse gradients": "client-fedprox",
    "Per-FedAvg (FO)": "client-per-fedavg-fo", "Per-FedAvg (FO), α ≠ β": "client-per-fedavg-fo",
    "Per-FedAvg (HF)": "client-per-fedavg-hf", "MAML": "meta-fedmeta-maml-mlp",
    "MAML, two steps": "meta-fedmeta-maml-two-steps", "FOMAML": "meta-fedmeta-fomaml-mlp",
    "Meta-SGD": "meta-fedmeta-sgd-mlp", "mean of clients": "aggregate-fedavg",
    "server's Adam": "aggregate-adam-fedmeta-maml", "FedAvgM": "aggregate-fedavgm",
    "FedAdam": "aggregate-fedadam", "FedYogi": "aggregate-fedyogi",
    "FedAdagrad": "aggregate-fedadagrad",
}  # fmt: skip
#: Or → the name by which a backend knows the algorithm.
NAMES = {
    "APFL (Deng et al.)": "apfl-deng", "APFL (Deng et al.), α adaptive": "apfl-deng",
    "SCAFFOLD": "scaffold", "SCAFFOLD, η_g = 0.9": "scaffold", "SCAFFOLD, one of two": "scaffold",
    "SCAFFOLD, 1 and 3 epochs": "scaffold",
    "FedDyn": "feddyn", "pFedMe": "pfedme", "FedNova": "fednova", "FedCurv": "fedcurv",
    "FedNova, 1 and 3 epochs": "fednova",
    "FedAvg, rounds": "fedavg", "FedAvgM, rounds": "fedavgm", "FedAdam, rounds": "fedadam",
    "FedYogi, rounds": "fedyogi", "FedAdagrad, rounds": "fedadagrad",
}  # fmt: skip
#: 2 clients of 8 rows, 2 batches of 4 each. Where weights are by samples, the second has 4 rows, 1 batch.
ROWS = np.arange(8).reshape(2, 4)
BY_SAMPLES = "fednova", "fedcurv", "fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad"
#: What the server keeps besides w; v of FedOpt starts at τ².
KEPT = {"scaffold": "c", "feddyn": "h", "fedavgm": "v", "fedcurv": "uv"}
KEPT |= dict.fromkeys(("fedadam", "fedyogi", "fedadagrad"), "mv")


@cache
def all_vectors() -> dict[str, Case]:
    return {case.name: case for case in vectors.read()}


def make_case(key: str) -> Case:
    """Return the case of that key; outputs : its required ones, by fedref."""
    case = two_client_case(key) if key in NAMES else without_l2(key)
    return case._replace(outputs=answer(case))


def answer(case: Case) -> dict[str, Any]:
    """Return fedref's required outputs."""
    found = call_backend(LOOP, case, case.arguments())
    return {name: np.asarray(found[name]) for name in case.required}


def without_l2(key: str) -> Case:
    """Return a golden vector's situation without L2 term; full batches unless the key says "one row"."""
    case = all_vectors()[VECTORS[key]]
    inputs = dict(case.inputs)
    if "one row" not in key and "rows.D" in inputs:
        full = (inputs["rows.D"] >= 0).all(1)
        inputs |= {name: x[full] for name, x in inputs.items() if name.startswith("rows")}
    if key in ("MAML", "FOMAML", "Meta-SGD"):  # a support of 8 rows, a query of 12
        inputs |= {f"{a}.{x}": inputs[f"{b}.{x}"] for a, b in ("SQ", "QS") for x in "Xy"}
    hyper = dict(case.hyper)
    if key == "Per-FedAvg (FO)":
        hyper["beta"] = hyper["alpha"]  # some projects have one rate
    if key == "FedProx, sparse gradients":
        hyper["sparse"] = True
    return case._replace(model={**case.model, "l2": 0.0}, inputs=inputs, hyper=hyper)


def two_client_case(key: str) -> Case:
    """Return a situation of two clients and full batches, on logistic regression."""
    name, model, rng = NAMES[key], Logistic(3, 3), stream(0, "peers")
    w = 0.5 * rng.normal(size=model.d)
    data = {"X": rng.normal(size=(16, 3)), "y": np.arange(16) % 3}
    hyper: dict[str, Any] = {"lr": 0.2, "alpha": 0.3, "adaptive_alpha": "adaptive" in key}
    hyper |= {"weighting": "uniform", "drop": True, "server_lr": 1.0, "control": "difference"}
    if name in BY_SAMPLES or name == "pfedme":
        hyper |= all_vectors()[f"aggregate-{name}"].hyper
    if name == "pfedme":
        hyper["alpha"] = hyper["lr"]  # some projects have one rate
    if name == "fedcurv":
        hyper["lam"] = 2.0  # a penalty that is seen after three rounds
    if "beta1" in hyper:
        hyper["beta1"] = 0.9  # FedAdagrad's is 0 in its vector, and then m is Δ
    if "0.9" in key:
        hyper["server_lr"] = 0.9
    inputs: dict[str, Any]
    required: tuple[str, ...]
    if name == "apfl-deng":
        call, required = "client", ("upload.w", "client.v")
        inputs = {"server": {"w": w}, "client": {"v": w + 0.3 * rng.normal(size=w.size), "a": 0.4}}
        inputs |= {"data": data, "rows": {"D": np.arange(8).reshape(2, 4)}}
    else:
        call, required = "round", tuple(f"{t}.server.w" for t in range(3))
        second = 1 if name in BY_SAMPLES else 2  # its batches
        epochs = 3 if "3 epochs" in key else 1  # of the second client
        data |= {"offsets": np.array([0, 8, 8 + 4 * second])}
        data |= {x: data[x][: 8 + 4 * second] for x in "Xy"}
        plan, inputs = two_client_plan(second, epochs), {"data": data}
        alone = {0: one_of(plan, 0), 1: one_of(plan, 1)} if "one of" in key else {}
        inputs |= {"plans": [{"round": t, **alone.get(t, plan)} for t in range(3)]}
        first = {"v": hyper["tau"] ** 2} if "tau" in hyper else {}
        kept = {x: np.full_like(w, first.get(x, 0)) for x in KEPT.get(name, "")}
        server = {"w": w} | kept | ({"t": np.array(0)} if name == "fedcurv" else {})
        inputs |= {"state": {"server": server}}
    flat = {name: np.asarray(x) for name, x in flatten(inputs).items()}
    spec = describe_model(model)
    tolerance: Mapping[str, float] = {"float64": 1e-13, "float32": 1e-5}
    return Case(key, key, "", call, name, spec, hyper, flat, {}, required, tolerance)


def two_client_plan(batches: int, epochs: int) -> dict[str, Any]:
    """Return a round of both clients. batches, epochs : the second's; the first has 2 batches once."""
    both, per_epoch = np.ones(2, int), np.array([2, batches])
    amount = np.array([1, epochs])
    rows = np.full((2, max(amount * per_epoch), 4), -1)
    rows[0, :2] = ROWS
    rows[1, : epochs * batches] = np.tile(ROWS[:batches], (epochs, 1))
    return {
        "clients": np.arange(2), "counts": both, "sizes": 4 * per_epoch, "amount": amount,
        "straggler": both < 1, "steps": amount * per_epoch, "per_epoch": per_epoch, "rows": {"D": rows},
    }  # fmt: skip


def one_of(plan: dict[str, Any], k: int) -> dict[str, Any]:
    """Return the round with client k alone."""
    only = {name: x[k : k + 1] for name, x in plan.items() if name != "rows"}
    return {**only, "rows": {"D": plan["rows"]["D"][k : k + 1]}}
