"""The algorithms: one file a paper. `ALGORITHMS` maps the command line's names to them."""

import sys
import tomllib
from importlib.resources import files

from fedref import algorithm
from fedref.algorithm import AnyAlgorithm
from fedref.algorithms import importance
from fedref.algorithms.apfl import APFL
from fedref.algorithms.apfl_deng import APFLDeng
from fedref.algorithms.fedavg import Centralised, FedAvg, FedAvgMeta, FedAvgUpdate
from fedref.algorithms.fedcurv import FedCurv
from fedref.algorithms.feddyn import FedDyn
from fedref.algorithms.fedmaml import FedMAML
from fedref.algorithms.fedmeta import FOMAML, MAML, MetaSGD
from fedref.algorithms.fednova import FedNova
from fedref.algorithms.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from fedref.algorithms.fedprox import FedProx
from fedref.algorithms.per_fedavg import PerFedAvg, PerFedAvgFO, PerFedAvgHF
from fedref.algorithms.pfedme import PFedMe
from fedref.algorithms.scaffold import Scaffold
from fedref.boundary.docstrings import add_lines, explain_parameters

ALGORITHMS: dict[str, type[AnyAlgorithm]] = {
    "fedavg": FedAvg,
    "fedavg-update": FedAvgUpdate,
    "fedavg-meta": FedAvgMeta,
    "fedprox": FedProx,
    "per-fedavg": PerFedAvg,
    "per-fedavg-fo": PerFedAvgFO,
    "per-fedavg-hf": PerFedAvgHF,
    "fedmeta-maml": MAML,
    "fedmeta-fomaml": FOMAML,
    "fedmeta-sgd": MetaSGD,
    "fedmaml": FedMAML,
    "fedcurv": FedCurv,
    "apfl": APFL,
    "centralised": Centralised,
    "scaffold": Scaffold,
    "apfl-deng": APFLDeng,
    "feddyn": FedDyn,
    "fedadagrad": FedAdagrad,
    "fedyogi": FedYogi,
    "fedadam": FedAdam,
    "fedavgm": FedAvgM,
    "fednova": FedNova,
    "pfedme": PFedMe,
}

TEXTS = tomllib.loads((files("fedref.algorithms") / "hyperparameters.toml").read_text("utf-8"))
#: What each hyperparameter means; and where algorithms understand one name differently, what it is to each.
HYPERPARAMETERS: dict[str, str] = TEXTS["hyperparameters"]
MEANINGS: dict[str, dict[str, str]] = TEXTS["meanings"]

for module in {importance, *(sys.modules[cls.__module__] for cls in ALGORITHMS.values())}:
    explain_parameters(module, algorithm)  # for `help`
for cls in ALGORITHMS.values():
    add_lines(cls, HYPERPARAMETERS)

__all__ = ["ALGORITHMS", "HYPERPARAMETERS", "MEANINGS"]
