"""The reference implementation of personalised and heterogeneous federated learning.

    run, load_run        run an experiment, or read one, as arrays
    Batch                rows X, labels y, weights s
    spec                 the specification: the papers in one file
    models, algorithms   the same numbers, faster, with derivatives by hand
    algorithm            what an algorithm of your own derives from
    sampling, rounds     who takes part, with which rows; one round
    checks, strategies   property tests of your own functions and algorithms
    conformance          golden vectors, for a backend of your own

Errors of a user are a ConfigError or a DataError. `help(fedref.run)` lists all settings.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedref.boundary.errors import ConfigError, DataError, FedrefError

if TYPE_CHECKING:
    from fedref.lab.experiments.results import load_run
    from fedref.lab.experiments.run import run
    from fedref.models.batch import Batch

__all__ = ["Batch", "ConfigError", "DataError", "FedrefError", "load_run", "run"]
__version__ = "0.1.0"

#: Names that are imported on first use, so that `import fedref` and `fedref --help` are quick.
LATER = {
    "Batch": "models.batch",
    "load_run": "lab.experiments.results",
    "run": "lab.experiments.run",
}
MODULES = ("algorithm", "algorithms", "checks", "conformance", "judge", "lab", "models", "proofs",
           "rounds", "sampling", "spec", "strategies")  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in LATER:
        return getattr(import_module(f"fedref.{LATER[name]}"), name)
    if name in MODULES:
        return import_module(f"fedref.{name}")
    raise AttributeError(f"module 'fedref' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *MODULES, "__version__"])
