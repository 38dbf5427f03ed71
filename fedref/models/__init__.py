"""The models: one file each, value, gradient and Hessian-vector product by hand.

`MODELS` maps the command line's names to them. Of a model's fields, those in `FROM_DATA` are taken
from the data.
"""

from typing import Any

from fedref.models.base import Model, linear_operator
from fedref.models.cnn import CNN
from fedref.models.logistic import BinaryLogistic, Logistic
from fedref.models.lstm import LSTM
from fedref.models.mlp import MLP
from fedref.models.svm import LinearSVM

MODELS: dict[str, type[Any]] = {
    "logistic": Logistic,
    "binary-logistic": BinaryLogistic,
    "svm": LinearSVM,
    "mlp": MLP,
    "cnn": CNN,
    "lstm": LSTM,
}

#: The fields of a model that the data decide.
FROM_DATA = ("features", "classes", "image", "vocabulary", "length")

__all__ = [
    "CNN",
    "FROM_DATA",
    "LSTM",
    "MLP",
    "MODELS",
    "BinaryLogistic",
    "LinearSVM",
    "Logistic",
    "Model",
    "linear_operator",
]
