"""Mistakes of servers and of Deng's clients, as their authors write them: each is named by its half alone."""

from types import SimpleNamespace

import numpy as np
import pytest
from golden import GOLDEN

from fedref.conformance import naming, suite
from fedref.conformance.backends.reference import LOOP
from fedref.judge import verdicts


def names_of(backend, call, algorithm):
    """What the suite names of each case that fails."""
    cases = [c for c in GOLDEN.values() if (c.call, c.algorithm) == (call, algorithm)]
    results = list(suite.run(backend, cases))
    found = naming.find_mistakes(results, cases, "float64")
    both = zip(results, (dict(zip(naming.FOUND, one)) for one in found), strict=True)
    return {one["mistakes"] for result, one in both if result.status == verdicts.FAILED}


def mean(x, p=None):
    return np.average(x, axis=0, weights=p)


def moments(s, d, h, v):
    """The server's step of FedAdam, with this v."""
    m = h["beta1"] * s["m"] + (1 - h["beta1"]) * d
    return {"w": s["w"] + h["server_lr"] * m / (np.sqrt(v) + h["tau"]), "m": m, "v": v}


def scaffold_mean(s, up, h, n, counts, N):
    return {"w": s["w"] + h["server_lr"] * mean(up["dy"]), "c": s["c"] + mean(up["dc"])}


def feddyn_once(s, up, h, n, counts, N):
    moved = s["h"] - h["alpha"] * (up["w"].sum(0) - s["w"]) / N
    return {"w": mean(up["w"], counts) - moved / h["alpha"], "h": moved}


def feddyn_cohort(s, up, h, n, counts, N):
    moved = s["h"] - h["alpha"] * mean(up["w"] - s["w"])
    return {"w": mean(up["w"], counts) - moved / h["alpha"], "h": moved}


def fedadam_of_m(s, up, h, n, counts, N):
    d = mean(up["w"], n) - s["w"]
    m = h["beta1"] * s["m"] + (1 - h["beta1"]) * d
    return moments(s, d, h, h["beta2"] * s["v"] + (1 - h["beta2"]) * m**2)


def fedadam_for_fedyogi(s, up, h, n, counts, N):
    d = mean(up["w"], n) - s["w"]
    return moments(s, d, h, h["beta2"] * s["v"] + (1 - h["beta2"]) * d**2)


def nesterov(s, up, h, n, counts, N):
    d = mean(up["w"], n) - s["w"]
    v = h["momentum"] * s["v"] + d
    return {"w": s["w"] + h["server_lr"] * (h["momentum"] * v + d), "v": v}


def fednova_without_tau(s, up, h, n, counts, N):
    return {"w": s["w"] - h["lr"] * mean(up["d"], n)}


def fedmaml_mean(s, up, h, n, counts, N):
    theta = s["theta"] - h["beta"] * mean(up["g"], counts)
    return {"theta": theta, "theta1": mean(up["theta_star"], counts)}


def fedcurv_means(s, up, h, n, counts, N):
    u, v = mean(up["I"]), mean(up["I"] * up["theta"])
    return {"w": mean(up["theta"], n), "u": u, "v": v, "t": s["t"] + 1}


@pytest.mark.parametrize(
    ("algorithm", "wrong", "name"),
    [("scaffold", scaffold_mean, "SCAFFOLD's c without |S|/N"),
     ("feddyn", feddyn_once, "FedDyn's server takes θᵗ off once"),
     ("feddyn", feddyn_cohort, "FedDyn's h is divided by |S|"),
     ("fedadam", fedadam_of_m, "FedOpt's v has m, not Δ"),
     ("fedyogi", fedadam_for_fedyogi, "FedYogi is FedAdam"),
     ("fedavgm", nesterov, "FedAvgM's momentum is Nesterov's"),
     ("fednova", fednova_without_tau, "FedNova's τ_eff is left out"),
     ("fedmaml", fedmaml_mean, "FedMAML averages"),
     ("fedcurv", fedcurv_means, "FedCurv averages u and v")],
)  # fmt: skip
def test_a_server_alone_is_told_its_mistake(algorithm, wrong, name):
    def aggregate(algorithm, model, hyper, server, uploads, n, counts, N=None):
        return {"server": wrong(server, uploads, hyper, n * counts, counts, N)}

    assert names_of(SimpleNamespace(aggregate=aggregate), "aggregate", algorithm) == {(name,)}


def deng(change):
    """A client of Deng's APFL on fedref's derivatives. change : α's gradient → what is taken of it."""

    def client(algorithm, model, hyper, server, data, rows, client=None):
        w, (v, a) = server["w"], (server["w"], np.asarray(hyper["alpha"]))
        if client:
            v, a = client["v"], client["a"]
        for index in rows["D"]:
            D = {name: x[index[index >= 0]] for name, x in data.items()}
            g = LOOP.grad(model, a * v + (1 - a) * w, D)
            step = change(g @ (v - w)) if hyper["adaptive_alpha"] else 0.0
            moved = w - hyper["lr"] * LOOP.grad(model, w, D), v - hyper["lr"] * a * g
            (w, v), a = moved, np.clip(a - hyper["lr"] * step, 0, 1)
        return {"upload": {"w": w}, "client": {"v": v, "a": a}}

    return SimpleNamespace(client=client)


@pytest.mark.parametrize(
    ("change", "names"),
    [(lambda g: g, set()), (lambda g: -g, {("Deng's APFL: α has the wrong sign",)}),
     (lambda g: 0 * g, {("Deng's APFL: α is not adapted",)})],
)  # fmt: skip
def test_a_client_of_dengs_is_told_what_it_does_to_alpha(change, names):
    assert names_of(deng(change), "client", "apfl-deng") == names


def test_fedavg_in_the_place_of_dengs_apfl_is_told_what_it_lacks():
    def rounds(algorithm, model, hyper, state, data, plan):
        return LOOP.round("fedavg", model, hyper, state, data, plan)

    cases = [c for c in GOLDEN.values() if (c.call, c.algorithm) == ("round", "apfl-deng")]
    results = [*suite.run(SimpleNamespace(round=rounds), cases)]
    assert results
    assert {(r.status, r.output.split(".")[-1], r.reason) for r in results} == {
        (verdicts.FAILED, "v", "is missing")
    }
