"""Short runs on the specification's toy with a known mistake: a learning curve does not show it."""

from functools import cache, reduce
from typing import Any

import numpy as np

from fedref import spec
from fedref.conformance.errata import MISTAKES, TEXTS, replace, run

#: Mistake → the run, by the names of `spec.run_toy`: batches D, DDD or SQ are the roles of a local step.
RUNS = {
    "penalty not squared": "fedprox(f, w, D, ETA, 1.0)",
    "gradients add up from step to step": "fedavg(f, w, D, ETA)",
    "the Hessian is applied to g, not to u": "per_fedavg(f, w, DDD, ALPHA, BETA)",
    "HF: divided by δ": "per_fedavg(f, w, DDD, ALPHA, BETA, meta_gradient_hf)",
    "first order: the inner step's graph was cut": "fedmeta(f, w, SQ, BETA, partial(maml, alpha=ALPHA))",
    "FedMAML averages": "fedmaml(f, w, SQ, ALPHA, BETA)",
    "the own term is kept": "fedcurv(f, w, D, ETA, 1.0)",
    "SCAFFOLD's c_i is never kept": "scaffold(f, w, D, ETA, N)",
    "FedDyn's h is divided by |S|": "feddyn(f, w, D, ETA, ALPHA, N)",
    "FedNova's τ_eff is left out": "fednova(f, w, D, ETA)",
}


@cache
def losses(name: str) -> tuple[float, float]:
    """Return the clients' mean test loss after the toy's rounds, without a mistake and with it.

    Where the method adapts, each client first takes its step on its training rows.
    """
    f, train, tests = spec.make_toy()
    roles = {"D": ["D"], "DDD": ["D", "D1", "D2"], "SQ": ["S", "Q"]}
    rounds = {
        key: list(spec.drop_stragglers(spec.toy_rounds(train, r))) for key, r in roles.items()
    }
    alpha = 0.0 if "w, D," in RUNS[name] else spec.ALPHA
    ends = []
    with np.errstate(all="ignore"):
        for text in (TEXTS[spec], reduce(replace, MISTAKES[name].edits, TEXTS[spec])):
            names: dict[str, Any] = vars(run(text, "fedref.spec")) | rounds
            names |= {"f": names["make_toy"]()[0], "w": np.zeros(12)}  # f of its own dual numbers
            w = spec.last(eval(RUNS[name], names))
            w = w[0] if isinstance(w, tuple) else w
            adapted = [spec.adapt(f, w, D, alpha) for D in train]
            ends.append(float(np.mean([f(x, D) for x, D in zip(adapted, tests)])))
    return ends[0], ends[1]
