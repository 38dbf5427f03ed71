"""fedref: the reference implementation of personalised and heterogeneous federated learning."""

from fedref.batch import Batch
from fedref.errors import ConfigError, DataError, FedrefError

__all__ = ["Batch", "ConfigError", "DataError", "FedrefError"]
__version__ = "0.1.0"
