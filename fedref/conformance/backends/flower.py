"""Flower's shipped FedAvg and FedProx strategies, which aggregate the vectors' uploads.

Flower has no uniform weights: a client counts for the number of examples that it reports. For uniform
weights that is how often it was drawn.
"""

from collections.abc import Mapping
from typing import Any

import flwr.common as flwr
import numpy as np
from flwr.server.strategy import FedAvg, FedProx

Values = Mapping[str, Any]


def make_strategy(algorithm: str, hyper: Values) -> Any:
    """Return Flower's strategy for FedAvg or FedProx; for any other it raises NotImplementedError."""
    if algorithm == "fedavg":
        return FedAvg()
    if algorithm == "fedprox":
        return FedProx(proximal_mu=hyper["mu"])
    raise NotImplementedError(algorithm)


def fit_result(w: Any, examples: int) -> Any:
    """Return one client's result as Flower's message."""
    ok = flwr.Status(flwr.Code.OK, "")
    return flwr.FitRes(ok, flwr.ndarrays_to_parameters([w]), examples, {})


class Flower:
    def aggregate(
        self, algorithm: str, model: Values, hyper: Values,
        server: Values, uploads: Values, n: Any, counts: Any, N: int = 0,
    ) -> Any:  # fmt: skip
        chosen = make_strategy(algorithm, hyper)
        examples = counts * (n if hyper["weighting"] == "samples" else 1)
        results: list[Any] = [
            (None, fit_result(w, int(e))) for w, e in zip(uploads["w"], examples, strict=True)
        ]
        merged, _ = chosen.aggregate_fit(1, results, [])
        (w,) = flwr.parameters_to_ndarrays(merged)
        return {"server": {"w": np.asarray(w)}}


BACKEND = Flower()
