"""fedref: the reference implementation of personalised and heterogeneous federated learning."""

from fedref.boundary.errors import ConfigError, DataError, FedrefError
from fedref.experiments.outcome import load_run
from fedref.experiments.run import run
from fedref.models.batch import Batch

__all__ = ["Batch", "ConfigError", "DataError", "FedrefError", "load_run", "run"]
__version__ = "0.1.0"
