"""Mistakes of projects: the specification with a known one of the suite's, or a few lines here.

A row of projects.toml names the mistakes under `equals`. Most are the suite's own
(`fedref.conformance.errata`); where the specification has no such part, or nobody else makes the
mistake, the few lines that the project computes stand here.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from cases import answer

from fedref.algorithms.apfl_deng import gradients, mix
from fedref.conformance import errata, suite
from fedref.judge.case import Case, build_model
from fedref.models.batch import Batch
from fedref.models.numerics import Array

Outputs = dict[str, Any]


def open_case(case: Case) -> tuple[Any, Any, Any]:
    """Return (the model, the hyperparameters by name, the inputs)."""
    return build_model(case.model), SimpleNamespace(**case.hyper), case.arguments()


def batches(data: Any, rows: Array, first: int = 0) -> list[Batch]:
    """Return the batch of each step; rows count from `first`, a row of −1 is padding."""
    X, y = data["X"][first:], data["y"][first:]
    return [Batch(X[i[i >= 0]], y[i[i >= 0]]) for i in rows]


def prox_away_and_late(case: Case) -> Outputs:
    """Push clients away from the server's model, after the gradient step."""
    model, h, given = open_case(case)
    w = start = given["server"]["w"]
    for D in batches(given["data"], given["rows"]["D"]):
        w = w - h.lr * model.grad(w, D)
        w = w + h.lr * h.mu * (w - start)
    return {"upload.w": w}


def prox_anchored_at_steps(case: Case) -> Outputs:
    """Anchor the penalty at the direction of the last step: a pull to a gradient, not to a model."""
    model, h, given = open_case(case)
    w = before = given["server"]["w"]
    for D in batches(given["data"], given["rows"]["D"]):
        before = h.mu * (w - before) + model.grad(w, D)
        w = w - h.lr * before
    return {"upload.w": w}


Step = Callable[[Any, Any, Array, Array, Array, Batch], tuple[Array, Array, Array]]


def deng(step: Step, is_stored_mixed: bool = False) -> Callable[[Case], Outputs]:
    """Return Deng's APFL with another step of (w, v, α); is_stored_mixed : the client keeps v̄."""

    def client(case: Case) -> Outputs:
        model, h, given = open_case(case)
        w, (v, a) = given["server"]["w"], (given["client"][name] for name in "va")
        for D in batches(given["data"], given["rows"]["D"]):
            w, v, g_a = step(model, h, w, v, a, D)
            a = np.clip(a - h.lr * g_a, 0, 1) if h.adaptive_alpha else a
        return {"upload.w": w, "client.v": mix(v, w, a) if is_stored_mixed else v}

    return client


def without_factor(model: Any, h: Any, w: Array, v: Array, a: Array, D: Batch) -> Any:
    """Step v by g(v̄), not by α g(v̄)."""
    _, g_a = gradients(model, v, w, a, D)
    g = model.grad(mix(v, w, a), D)
    return w - h.lr * model.grad(w, D), v - h.lr * g, g_a


def twice_and_late(model: Any, h: Any, w: Array, v: Array, a: Array, D: Batch) -> Any:
    """Step w twice by each gradient, and take v's gradient after w's step."""
    step = h.lr * model.grad(w, D)
    g_v, g_a = gradients(model, v, w - step, a, D)
    return w - 2 * step, v - h.lr * g_v, g_a


def trained_alone(model: Any, h: Any, w: Array, v: Array, a: Array, D: Batch) -> Any:
    """Train v alone; it is mixed once a round."""
    g_w, g_v = model.grad(w, D), model.grad(v, D)
    end_w, end_v = w - h.lr * g_w, v - h.lr * g_v
    return end_w, end_v, (end_v - end_w) @ mix(g_v, g_w, a) + 0.02 * a


def feddyn_with_fedavg_steps(case: Case) -> Outputs:
    """Keep h_k and α from the clients; take θ off once at the server, not off each θ_k."""
    model, h, given = open_case(case)
    w, K, out = given["state"]["server"]["w"], 2, {}
    drift = np.zeros_like(w)
    for plan in given["plans"]:
        ends = []
        for k, first in enumerate(given["data"]["offsets"][:-1]):
            end = w
            for D in batches(given["data"], plan["rows"]["D"][k], first):
                end = end - h.lr * model.grad(end, D)
            ends.append(end)
        drift = drift - h.alpha / K * (sum(ends) - w)
        w = sum(ends) / K - drift / h.alpha
        out[f"{plan['round']}.server.w"] = w
    return out


def meta_sgd_cut_short(case: Case) -> Outputs:
    """Leave out second derivatives, and give α the gradient of θ."""
    model, _, given = open_case(case)
    S, Q = (Batch(given[name]["X"], given[name]["y"]) for name in "SQ")
    theta, alpha = given["theta"], given["alpha"]
    g = model.grad(theta - alpha * model.grad(theta, S), Q)
    return {"g_theta": g, "g_alpha": g}


def adam_afresh(case: Case) -> Outputs:
    """Begin the server's Adam anew: no moments, no count of steps."""
    kept = ("server.theta", "server.w")
    zero = {n: 0 * x for n, x in case.inputs.items() if n.startswith("server.") and n not in kept}
    return answer(case._replace(inputs=case.inputs | zero))


def adam_with_corrected_rate(case: Case) -> Outputs:
    """Give FedAdam Adam's correction of the bias, that of the second step."""
    h = case.hyper
    rate = h["server_lr"] * np.sqrt(1 - h["beta2"] ** 2) / (1 - h["beta1"] ** 2)
    return answer(case._replace(hyper={**h, "server_lr": rate}))


OWN: dict[tuple[str, ...], Callable[[Case], Outputs]] = {
    ("the penalty's anchor is overwritten by the step's direction",): prox_anchored_at_steps,
    (
        "the penalty's sign is turned",
        "the proximal step follows the gradient step",
    ): prox_away_and_late,
    (
        "first order: the inner step's graph was cut",
        "the α-gradient is the θ-gradient",
    ): meta_sgd_cut_short,
    ("Deng's APFL without the factor α",): deng(without_factor),
    (
        "Deng's APFL applies each global gradient twice",
        "Deng's APFL: v's gradient after w's step",
    ): deng(twice_and_late),
    ("Deng's APFL in the form of FedRep's code",): deng(trained_alone, is_stored_mixed=True),
    (
        "FedDyn's clients take FedAvg's steps",
        "FedDyn's server takes θ off once",
    ): feddyn_with_fedavg_steps,
    ("the server's Adam starts afresh every round",): adam_afresh,
    ("FedOpt with Adam's corrected rate, a round ahead",): adam_with_corrected_rate,
}


def outputs_with(case: Case, *names: str) -> Outputs:
    """Return what a program with these mistakes answers."""
    return OWN[names](case) if names in OWN else errata.answer(case, *names)


def find_names(outputs: Outputs, case: Case) -> tuple[str, ...]:
    """Return the suite's mistakes with which the specification answers what a project did."""
    tags = {name: mistake.tag for name, mistake in errata.MISTAKES.items()}
    near = case.catches or [name for name in tags if tags[name].startswith(f"{case.algorithm} ")]
    return tuple(name for name in near if suite.explains(outputs, case, "float64", name))
