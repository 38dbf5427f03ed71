"""Which torch networks cannot be models: `examine` refuses them before a run, each in one sentence.

A loss is a function of w and of single rows: nothing is drawn, kept or shared between rows. torch's
gradient has to be the loss's, and where H v is needed, it has to be the gradient's.
"""

import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError, printable, user_line
from fedref.lab.experiments.torch_model import TorchModel, numbers_of
from fedref.models.batch import Batch
from fedref.models.numerics import Array

#: What torch says of a network that it cannot compute or derive → what to do.
HINTS = {
    "Long, Int": "X holds numbers, X.long() codes (of texts they come to a class with inputs = 'codes')",
    "dtype|scalar type": "w and X are float64, or with --dtype float32; .float() is not, nor are layers in "
    "a list that is no nn.ModuleList",
    "saved tensor hooks|setup_context": "no checkpointing; an autograd.Function needs setup_context",
    "in-?place": "it changes a value that others need: X = X / 2 in the place of X /= 2",
    r"numpy\(\)|inference tensor": "torch cannot derive it: no .numpy(), no inference_mode",
    "is not implemented": "torch has no derivative of this",
}
#: The step of a difference quotient, how far it may be off at kinks, and H v from symmetry.
STEP, NEAR, SYMMETRIC = 1e-6, 1e-4, 1e-8
CALLS = 64  # are compared, if torch draws


class Call(NamedTuple):
    """A call of a part of the network: its input and buffers before and after, and its output."""

    name: str
    inputs: list[int]
    buffers: list[int]
    inputs_after: list[int]
    buffers_after: list[int]
    output: list[int]


def marks(tree: Any) -> list[int]:
    """Return hashes of all tensors in a tree, to compare them."""
    import torch

    def mark(x: Any) -> int:
        try:
            return hash(x.detach().to(torch.complex128).numpy().tobytes())
        except RuntimeError:  # inside of torch.vmap it has no values yet
            return 0

    return [mark(x) for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def parts_of(model: TorchModel) -> dict[str, Any]:
    """Return the parts of the network by what a message calls them."""
    named = model.net.named_modules()
    return {f"{k} ({type(x).__name__})" if k else "forward": x for k, x in named}


def watch(model: TorchModel, w: Array, X: Array, seed: int = 0) -> tuple[Array, list[Call], bool]:
    """Return the logits, the calls of parts as they return, and whether torch drew random numbers."""
    import torch

    running, calls = list[Any](), list[Call]()

    def enter(name: str, part: Any, *inputs: Any) -> None:
        running.append((name, marks(inputs), marks([*part.buffers()])))

    def leave(part: Any, *values: Any) -> None:
        after = marks(values[:-1]), marks([*part.buffers()]), marks(values[-1])
        calls.append(Call._make((*running.pop(), *after)))

    with numbers_of(w.dtype, seed), ExitStack() as hooks:
        state = torch.get_rng_state()
        for name, part in parts_of(model).items():
            before = part.register_forward_pre_hook(partial(enter, name), with_kwargs=True)
            for hook in (before, part.register_forward_hook(leave, with_kwargs=True)):
                hooks.enter_context(hook)
        try:
            z = model.logits(w, X)
        except Exception as error:
            raise explain(model, error, *[name for name, *_ in running[-1:]]) from error
        return z, calls, not torch.equal(state, torch.get_rng_state())


def explain(model: TorchModel, error: Exception, part: str = "forward") -> ConfigError:
    """Say what torch raised in a sentence that names the part of the network, and the user's line."""
    if isinstance(error, ConfigError):
        return error
    text, line = printable(error, 250), user_line(error)
    if operation := re.search(r"([a-z_]+?)(_dense)?_backward", text):
        kind = operation[1].replace("_", "")
        part = next((k for k in parts_of(model) if k.lower().endswith(f"({kind})")), part)
    where = f"{part}, {line[0]}, line {line[1]}" if line else part
    hints = [hint for words, hint in HINTS.items() if re.search(words, text)]
    return ConfigError(": ".join([str(model), where, *hints[:1], text.rstrip(".")]))


def examine(model: TorchModel, D: Batch) -> None:
    """Refuse a loss that is no function of w and single rows, or not the one that torch derives.

    D : some rows, two at least. Leaves in the model why there is no H v, or why it may be wrong.
    """
    rng = np.random.default_rng(0)
    w, again = (model.init(np.random.default_rng(0)) for _ in range(2))
    if not np.array_equal(w, again, equal_nan=True):
        raise ConfigError(
            f"{model}: two starts of one seed differ: draw initial values by torch, with no seed or "
            "generator of your own"
        )
    w = w * rng.normal(1, 0.1, model.d) + rng.normal(0, 0.01, model.d)
    refuse_state(model, w, D.X)
    refuse_shared_rows(model, w, D.X)
    if np.isfinite(loss := model.loss(w, D)):  # else the run diverges, and says so
        vs = rng.normal(size=(5, model.d)) * (abs(w) + 0.01)
        refuse_gradient(model, w, D, vs, loss)
        vars(model)["hvp_fault"], vars(model)["hvp_doubt"] = judge_hvp(model, w, D, vs)


def refuse_state(model: TorchModel, w: Array, X: Array) -> None:
    """Refuse what changes X or a buffer, draws, or keeps anything from call to call."""
    z, calls, draws = watch(model, w, X)
    for call in calls:
        if call.buffers != call.buffers_after:
            raise ConfigError(
                f"{model}: {call.name} changes buffers, which clients would share: use "
                "GroupNorm or LayerNorm for BatchNorm"
            )
    if calls[-1].inputs != calls[-1].inputs_after:
        raise ConfigError(f"{model}: forward changes X: write X = X / 2 in the place of X /= 2")
    for seed in range(1, CALLS if draws else 2):
        other, others, _ = watch(model, w, X, seed)
        if not np.array_equal(z, other, equal_nan=True):
            names = [a.name for a, b in zip(calls, others) if a[:3] == b[:3] and a != b]
            raise ConfigError(
                f"{model}: {[*names, 'forward'][0]} draws at random, or keeps something "
                "from call to call: a loss is a function of w and D; leave dropout out"
            )


def refuse_shared_rows(model: TorchModel, w: Array, X: Array) -> None:
    """Refuse rows whose logits depend on what else is in the batch, or on its size."""
    z, B = model.logits(w, X), len(X)
    for i, size in ((0, B), (B - 1, B), (0, 1)):
        alone = watch(model, w, X[np.full(size, i)])[0][i % size]
        if not np.allclose(alone, z[i], rtol=1e-6, atol=1e-9, equal_nan=True):
            raise ConfigError(
                f"{model}: the loss of a row depends on the other rows, as with BatchNorm, means over "
                "the batch, or batch_first=False: clients' batches are padded with any rows"
            )


def quotient(f: Callable[[Array, Batch], Any], w: Array, v: Array, D: Batch) -> Any:
    """Return the change of f along v, by a central difference."""
    return (f(w + STEP * v, D) - f(w - STEP * v, D)) / (2 * STEP)


def refuse_gradient(model: TorchModel, w: Array, D: Batch, vs: Array, loss: Array) -> None:
    """Refuse a gradient that is not the loss's along all of vs (5, d): one step may meet kinks."""
    try:
        g = model.grad(w, D)
    except Exception as error:
        raise explain(model, error) from error

    if not np.isfinite(g).all():
        raise ConfigError(f"{model}: torch's gradient is not finite where the loss is {loss:.6g}")

    def differs(v: Array) -> bool:
        error = abs(g @ v - quotient(model.loss, w, v, D))
        return not error <= NEAR * np.linalg.norm(g * v) + 1e-8

    if all(map(differs, vs)):
        sizes = [x.numel() for x in model.parameters.values()]
        which = np.repeat(np.arange(len(sizes)), sizes)
        names = [k for j, k in enumerate(model.parameters) if all(map(differs, vs * (which == j)))]
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        raise ConfigError(
            f"{model}: torch's gradient is not the loss's, in {shown or 'all together'}: it "
            "passes through detach, no_grad, .data, .item(), a hook or a backward of your own"
        )


def judge_hvp(model: TorchModel, w: Array, D: Batch, vs: Array) -> tuple[str, str]:
    """Return why there is no H v, and why it may be wrong; "" for neither."""
    try:
        Hv = [model.hvp(w, v, D) for v in vs]
    except Exception as error:
        return f"{explain(model, error)}: algorithms that need no H v run", ""

    def is_symmetric(i: int, j: int) -> bool:
        sides, size = (vs[i] @ Hv[j], vs[j] @ Hv[i]), abs(vs[i]) @ abs(Hv[j])
        return abs(sides[0] - sides[1]) <= SYMMETRIC * size

    if not any(is_symmetric(i, i + 1) for i in range(3)):
        return (
            f"{model}: torch's second derivative is wrong, u·Hv = {vs[0] @ Hv[1]:.6g} and v·Hu = "
            f"{vs[1] @ Hv[0]:.6g}, as with parametrizations.weight_norm: algorithms that need no H v run"
        ), ""
    errors = [Hv[i] - quotient(model.grad, w, v, D) for i, v in enumerate(vs)]
    if all(np.linalg.norm(e) > NEAR * np.linalg.norm(Hv[i]) + 1e-8 for i, e in enumerate(errors)):
        doubt = "torch's H v differs from a difference quotient of the gradient: kinks?"
        return "", f"{model}: {doubt}"
    return "", ""
