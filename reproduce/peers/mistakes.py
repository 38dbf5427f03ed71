"""Mistakes of projects: the specification with a known one of the suite's, or of errata.txt beside.

A row of projects.toml names the mistakes under `equals`. Where the specification has no such part (a
client, or a server, in the middle of a run), the few lines that the project computes stand here.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from cases import answer

from fedref.algorithms.apfl_deng import gradients, mix
from fedref.conformance import errata, naming
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


_, *BLOCKS = Path(__file__).with_name("errata.txt").read_text("utf-8").split("\n\n")
MORE = {mistake.name: mistake for mistake in map(errata.parse, BLOCKS)}
OWN: dict[str, Callable[[Case], Outputs]] = {
    "Deng's APFL without the factor α": deng(without_factor),
    "Deng's APFL applies each global gradient twice; Deng's APFL: v's gradient after w's step": deng(
        twice_and_late
    ),
    "Deng's APFL in the form of FedRep's code": deng(trained_alone, is_stored_mixed=True),
    "the server's Adam starts afresh every round": adam_afresh,
    "FedOpt with Adam's corrected rate, a round ahead": adam_with_corrected_rate,
}


def outputs_with(case: Case, *names: str) -> Outputs:
    """Return what a program with these mistakes answers."""
    both = "; ".join(names)
    if both in OWN:
        return OWN[both](case)
    return errata.answer(case, *([MORE[both]] if both in MORE else names))


def find_names(outputs: Outputs, case: Case) -> tuple[str, ...]:
    """Return the suite's mistakes with which the specification answers what a project did."""
    tags = {name: mistake.tag for name, mistake in errata.MISTAKES.items()}
    near = case.catches or [name for name in tags if tags[name].startswith(f"{case.algorithm} ")]
    return tuple(name for name in near if naming.explains(outputs, case, "float64", name))
