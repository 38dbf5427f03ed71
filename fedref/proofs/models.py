"""The models: loss, gradient, Hessian-vector product, and all three of a stack."""

from collections.abc import Iterator
from typing import Any

from fedref import tree
from fedref.checks import Report, check_gradient, check_hvp, stack_equals_loop
from fedref.models import CNN, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.proofs import oracle
from fedref.proofs.case import Case
from fedref.proofs.compare import equal
from fedref.proofs.table import proof


def model_loss(c: Case) -> Iterator[Report]:
    for D in (c.D, c.D1):
        yield equal(c.model.loss(c.w, D), oracle.loss(c.model, c.w, D))


def model_grad(c: Case) -> Iterator[Report]:
    yield check_gradient(lambda w: c.model.loss(w, c.D), lambda w: c.model.grad(w, c.D), c.w, c.vs)


def model_hvp(c: Case) -> Iterator[Report]:
    m, D = c.model, c.D
    f, grad, hvp = (
        (lambda w: m.loss(w, D)), (lambda w: m.grad(w, D)), (lambda w, v: m.hvp(w, v, D))
    )  # fmt: skip
    yield check_hvp(f, grad, hvp, c.w, c.vs)


def model_stack(c: Case) -> Iterator[Report]:
    K = 7  # clients; no other axis has this length
    w, v, D = c.vectors(K), c.vectors(K), tree.stack([c.batch(2) for _ in range(K)])
    yield stack_equals_loop(c.model.loss, w, D)
    yield stack_equals_loop(c.model.grad, w, D)
    yield stack_equals_loop(c.model.hvp, w, v, D)


MODELS: dict[str, Any] = {
    "BinaryLogistic": BinaryLogistic(4, l2=0.1),
    "Logistic": Logistic(3, 4, l2=0.1),
    "LinearSVM hinge": LinearSVM(4, l2=0.1),
    "LinearSVM squared": LinearSVM(4, l2=0.1, squared=True),
    **{f"MLP {phi}": MLP(3, (5, 4), 3, phi, l2=0.1) for phi in ("elu", "relu", "tanh")},
    **{
        f"CNN {phi} {pool}": CNN((6, 5, 2), (3,), 3, 4, 3, phi, pool, l2=0.1)
        for phi in ("elu", "relu", "tanh")
        for pool in ("max", "mean")
    },
    "CNN deep": CNN((10, 12), (2, 3), 3, 4, 3, "relu", "max"),
}
for _name, _model in MODELS.items():
    for _what, _compare, _claim in (
        ("loss", model_loss, "loss = plain loops over the samples"),
        ("grad", model_grad, "grad = complex step of loss"),
        ("hvp", model_hvp, "hvp = complex step of grad"),
        ("stack", model_stack, "loss, grad, hvp of a stack = one by one"),
    ):
        _exact = _what == "hvp" and isinstance(_model, LinearSVM)  # piecewise a quadratic
        proof(f"{_name} {_what}", _claim, [_model], _exact)(_compare)
