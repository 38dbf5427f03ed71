"""The papers in PyTorch: autograd with create_graph, one client after the other."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from fedref.conformance.backends.papers import Papers, Values


def read_text(model: Values, E: Any, cells: list[Any], text: Any) -> Any:
    """Return the dense layer's input from one text (T,), by torch's LSTM, without padding: (H,).

    E : the embedding; cells : W, b of each layer in turn.
    """
    x = E[text[text < model["vocabulary"]]]
    for W, b in zip(cells[::2], cells[1::2]):
        H = len(b) // 4
        net = torch.nn.LSTM(len(W) - H, H, dtype=W.dtype, device="meta")
        own = {"weight_ih_l0": W[:-H].T, "weight_hh_l0": W[-H:].T}
        own |= {"bias_ih_l0": b, "bias_hh_l0": torch.zeros_like(b)}
        x = torch.func.functional_call(net, own, x)[0] if len(x) else x.new_zeros(0, H)
    if not len(x):
        return x.new_zeros(x.shape[1])
    return x[-1] if model["output"] == "last" else x.mean(0)


class Torch(Papers):
    xp = torch
    activations = {"elu": F.elu, "relu": F.relu, "tanh": torch.tanh}  # noqa: RUF012

    def __init__(self) -> None:
        torch.set_num_threads(1)  # more only get in each other's way on products this small

    def array(self, x: Any) -> Any:
        return torch.tensor(np.asarray(x))

    def numpy(self, x: Any) -> Any:
        return x.detach().numpy()

    def derivative(self, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def g(x: Any) -> Any:
            # an alias of x: whatever else depends on x is a constant for this gradient
            x = x.view_as(x) if x.requires_grad else x.clone().requires_grad_()
            return torch.autograd.grad(f(x), x, create_graph=True)[0]

        return g

    def map_samples(self, f: Callable[[Any, Any], Any], X: Any, y: Any) -> Any:
        return torch.stack([f(X[j : j + 1], y[j : j + 1]).detach() for j in range(len(y))])

    def correlate(self, a: Any, kernel: Any) -> Any:
        out = F.conv2d(a.permute(0, 3, 1, 2), kernel.permute(3, 2, 0, 1))
        return out.permute(0, 2, 3, 1)

    def pool(self, a: Any, kind: str) -> Any:
        pool = F.max_pool2d if kind == "max" else F.avg_pool2d
        return pool(a.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)

    def read_texts(self, model: Values, E: Any, cells: list[Any], X: Any) -> Any:
        return torch.stack([read_text(model, E, cells, text) for text in X])

    def sample_losses(self, model: Values, z: Any, y: Any) -> Any:
        if model["family"] == "binary-logistic":
            return F.binary_cross_entropy_with_logits(z, y.to(z.dtype), reduction="none")
        if model["family"] == "svm":
            hinge = torch.relu(1 - y * z)
            return hinge**2 if model["squared"] else hinge
        return F.cross_entropy(z, y, reduction="none")

    def speed_up(self, key: Any, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return f with detached results: the next call needs no graph of this one."""

        def call_and_detach(*arrays: Any) -> Any:
            out = f(*arrays)
            if isinstance(out, dict):
                return {name: x.detach() for name, x in out.items()}
            return out.detach()

        return call_and_detach


def loss(model: Values, w: Any, D: Values) -> Any:
    """Return a case's loss, differentiable, at the flat tensor w: for backends of your own."""
    return BACKEND.f(model, w, BACKEND.batch(D))


BACKEND = Torch()
