"""The specification in PyTorch: autograd in the place of dual numbers, torch's layers in the models'."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from fedref.conformance.backends.tensors import Tensors

torch.set_num_threads(1)  # more only get in each other's way on products this small


# ---- what the specification calls of NumPy -------------------------------------------------------


def array(x: Any) -> Any:
    return torch.as_tensor(np.asarray(x))


def gradient(f: Any, x: Any) -> Any:
    """Return ∇f(x); inside the function of another gradient it can be differentiated again."""
    nested = x.requires_grad
    x = x.view_as(x) if nested else x.clone().requires_grad_()  # all else is constant
    y = f(x)
    if not (torch.is_tensor(y) and y.requires_grad):
        return torch.zeros_like(x)
    return torch.autograd.grad(y, x, create_graph=nested, materialize_grads=True)[0]


def stack(xs: Any, axis: int = 0) -> Any:
    return torch.stack([torch.as_tensor(x) for x in xs], axis)


def mean(xs: Any, axis: int = 0) -> Any:
    return (xs if torch.is_tensor(xs) else stack(xs)).to(torch.get_default_dtype()).mean(axis)


def split(x: Any, at: Any, axis: int = 0) -> Any:
    return x.tensor_split(at if isinstance(at, int) else at.tolist(), axis)


def of_numbers(f: Any) -> Any:
    """Return f of tensors, for numbers too."""
    return lambda x: f(torch.as_tensor(x))


#: What is not here, such as who takes part in a round, stays NumPy's.
LIBRARY = SimpleNamespace(**vars(np))
vars(LIBRARY).update(
    array=array, gradient=gradient, stack=stack, mean=mean, split=split, norm=torch.linalg.norm,
    use_dtype=lambda name: torch.set_default_dtype(getattr(torch, name)),
    **{name: of_numbers(getattr(torch, name)) for name in ("exp", "log", "sqrt", "tanh")},
    where=torch.where, concatenate=torch.cat, zeros=torch.zeros, ones=torch.ones, sign=torch.sign,
    zeros_like=torch.zeros_like, full_like=torch.full_like, clip=torch.clip,
    maximum=lambda x, least: x.clamp(min=least),
    flatnonzero=lambda x: np.flatnonzero(x).tolist(),
)  # fmt: skip


# ---- the models' layers, by torch's own ----------------------------------------------------------


def cnn(
    w: Any, X: Any, image: Any, channels: Any, kernel: int, hidden: int, classes: int, phi: Any,
    pool: Any,
) -> Any:  # fmt: skip
    """Return the logits as the specification does, by torch's convolution and pooling."""
    H, W, c = image
    a = X.reshape(len(X), H, W, c).permute(0, 3, 1, 2)
    pool2d = F.max_pool2d if pool is BACKEND.spec.first_max else F.avg_pool2d
    for out in channels:
        K, b, w = BACKEND.spec.unpack(w, (kernel, kernel, a.shape[1], out), (out,))
        a = pool2d(phi(F.conv2d(a, K.permute(3, 2, 0, 1), b)), 2)
    a = a.permute(0, 2, 3, 1).reshape(len(X), -1)
    return BACKEND.spec.mlp(w, a, (a.shape[1], hidden, classes), phi)


def lstm(
    w: Any, X: Any, vocabulary: int, embedding: int, hidden: Any, classes: int, mean: bool = False
) -> Any:
    """Return the logits as the specification does, by torch's LSTM on each text without its padding."""
    E, w = BACKEND.spec.unpack(w, (vocabulary, embedding))
    texts = [E[text[text < vocabulary]] for text in X]
    for n, H in zip((embedding, *hidden), hidden):
        W, b, w = BACKEND.spec.unpack(w, (n + H, 4 * H), (4 * H,))
        net = torch.nn.LSTM(n, H, dtype=W.dtype, device="meta")
        own = {"weight_ih_l0": W[:n].T, "weight_hh_l0": W[n:].T}
        own |= {"bias_ih_l0": b, "bias_hh_l0": torch.zeros_like(b)}

        def read(x: Any, net: Any = net, own: Any = own, H: int = H) -> Any:
            return torch.func.functional_call(net, own, x)[0] if len(x) else x.new_zeros(0, H)

        texts = [read(x) for x in texts]
    ends = [(h.mean(0) if mean else h[-1]) if len(h) else h.new_zeros(H) for h in texts]
    return BACKEND.spec.linear(w, torch.stack(ends), classes)


def cross_entropy(z: Any, y: Any) -> Any:
    return F.cross_entropy(z, y, reduction="none")


def logistic_loss(z: Any, y: Any) -> Any:
    return F.binary_cross_entropy_with_logits(z, y.to(z.dtype), reduction="none")


BACKEND = Tensors(
    LIBRARY, elu=F.elu, relu=torch.relu, sigmoid=of_numbers(torch.sigmoid), cnn=cnn, lstm=lstm,
    cross_entropy=cross_entropy, logistic_loss=logistic_loss,
)  # fmt: skip
loss = BACKEND.loss
