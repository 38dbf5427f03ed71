"""The models: one file each, value, gradient and Hessian-vector product by hand."""

from fedref.models.base import Model, linear_operator
from fedref.models.cnn import CNN
from fedref.models.logistic import BinaryLogistic, Logistic
from fedref.models.mlp import MLP
from fedref.models.svm import LinearSVM

__all__ = ["CNN", "MLP", "BinaryLogistic", "LinearSVM", "Logistic", "Model", "linear_operator"]
