"""A torch.nn.Module as a model: its parameters are w; the loss is cross-entropy, derived by torch.

It lives beside the experiments, not among the models: those are fedref's own, by hand. torch is imported
only when a module is given. Clients are computed one by one on one thread, so that no number depends on
how many work at once; the plans, algorithms, checks and tables are those of every model.
"""

import copy
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, field, make_dataclass
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.models.base import SoftmaxLogits, mean_weights
from fedref.models.batch import Batch
from fedref.models.numerics import Array

#: A module is computed with by one thread at a time: torch puts the parameters into it meanwhile.
LOCK = threading.RLock()


def is_module(thing: Any) -> bool:
    """Return whether a thing is a torch.nn.Module, the class or an object; torch stays unimported."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and (
        isinstance(thing, torch.nn.Module)
        or (inspect.isclass(thing) and issubclass(thing, torch.nn.Module))
    )


@cache
def model_class(module: Any) -> Any:
    """Return the model's class of a module's class, whose arguments are its fields, or of a module."""
    cls, own = module if inspect.isclass(module) else type(module), dict[str, Any]()
    for name, given in inspect.signature(cls).parameters.items() if cls is module else ():
        if given.kind not in (given.VAR_POSITIONAL, given.VAR_KEYWORD):
            usual = MISSING if given.default is given.empty else given.default
            kind = type(usual) if given.annotation is given.empty else given.annotation
            own[name] = (name, kind, field(default=usual))
    table = own | {"features": ("features", int), "classes": ("classes", int)}
    return make_dataclass(
        cls.__name__, [*table.values(), ("l2", float, field(default=0.0))],
        bases=(TorchModel,), frozen=True, kw_only=True,
        namespace={"module": module, "arguments": tuple(own), "__module__": cls.__module__},
    )  # fmt: skip


def new_model(module: Any) -> Any:
    """Return a model without values, for those that are copied or unpickled."""
    return object.__new__(model_class(module))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw as torch does with this seed, whatever state and type of numbers other code has set."""
    import torch

    usual = torch.get_default_dtype()
    with LOCK, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_default_dtype(torch.float32)  # a worker does not know what a script has set
        try:
            yield
        finally:
            torch.set_default_dtype(usual)


def gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return ∂f/∂w, w being the first argument of f."""
    from torch.func import grad

    return grad(f)


class TorchModel(SoftmaxLogits):
    """The model of a module, which returns the logits (B, classes) of rows (B, features)."""

    module: ClassVar[Any]
    arguments: ClassVar[tuple[str, ...]]  # of the module's class
    takes_complex: ClassVar[bool] = False

    def __reduce__(self) -> Any:
        return new_model, (self.module,), vars(self)

    @cached_property
    def net(self) -> Any:
        """The module, with nothing in it but parameters: what else it kept would be shared by clients."""
        import torch

        torch.set_num_threads(1)
        net: Any = self.module
        with seeded(0):
            if inspect.isclass(net):
                net = net(**{name: getattr(self, name) for name in self.arguments})
            net = copy.deepcopy(net)
        kept = (
            "is a buffer that training changes, and clients would share: use GroupNorm or LayerNorm"
        )
        wrong = {name: f"{kept} for BatchNorm" for name, _ in net.named_buffers()}
        for name, part in net.named_modules():
            if "Dropout" in type(part).__name__ and part.p:
                wrong[name] = "draws at random; a loss is a function of w and D: p = 0"
        for name, x in net.named_parameters():
            if not x.requires_grad:
                wrong[name] = "is not trained: all parameters are the vector w"
        for name, why in wrong.items():
            raise ConfigError(f"{self}: {name} {why}")
        return net

    @cached_property
    def parameters(self) -> dict[str, Any]:
        return dict(self.net.named_parameters())

    @cached_property
    def d(self) -> int:
        return sum(x.numel() for x in self.parameters.values())

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """One part: which of a module's parameters make up a unit is not known. Each is one."""
        return ((1, self.d),)

    def init(self, rng: np.random.Generator) -> Array:
        """Return the parameters as their modules draw them; those without `reset_parameters` stay."""
        import torch

        modules = [*self.net.modules()]
        with seeded(int(rng.integers(2**62))):
            for part in modules:
                if hasattr(part, "reset_parameters"):
                    part.reset_parameters()
            ws = [x.detach().double().ravel() for x in self.parameters.values()]
            return np.asarray(torch.cat(ws).numpy())

    def compute(
        self, f: Callable[..., Any], w: Array, *rows: tuple[Array, int], shape: Any
    ) -> Array:
        """Return f of torch's arrays, point by point of their leading axes. rows : (array, own axes)."""
        import torch

        if w.dtype.kind == "c":
            raise TypeError("a torch module takes real w: compare with Taylor slopes")
        pairs = [(w, 1), *rows]
        lead = np.broadcast_shapes(*(x.shape[: x.ndim - own] for x, own in pairs))
        whole = [np.broadcast_to(x, (*lead, *x.shape[x.ndim - own :])) for x, own in pairs]
        out = np.zeros((*lead, *shape), w.dtype)
        with LOCK:
            for i in np.ndindex(lead):
                point = [torch.from_numpy(np.array(x[i])) for x in whole]
                out[i] = f(*point).detach().numpy()
        return out

    def z(self, w: Any, X: Any) -> Any:
        from torch.func import functional_call

        parts = w.split([x.numel() for x in self.parameters.values()])
        own = {k: part.view_as(x) for (k, x), part in zip(self.parameters.items(), parts)}
        z = functional_call(self.net, own, (X,))
        if z.shape != (len(X), self.classes):
            raise ConfigError(
                f"{self}: forward returns {tuple(z.shape)}, expected {(len(X), self.classes)}"
            )
        return z

    def objective(self, w: Any, X: Any, y: Any, c: Any) -> Any:
        import torch.nn.functional as F

        losses = F.cross_entropy(self.z(w, X), y, reduction="none")
        return (c * losses).sum() + self.l2 / 2 * (w @ w)

    def logits(self, w: Array, X: Array) -> Array:
        return self.compute(self.z, w, (X.astype(w.dtype), 2), shape=(X.shape[-2], self.classes))

    def grad(self, w: Array, D: Batch) -> Array:
        self.validate(w, D)
        return self.compute(gradient(self.objective), w, *self.rows(w, D), shape=(self.d,))

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        self.validate(w, D)

        def product(w: Any, v: Any, *D: Any) -> Any:
            return gradient(lambda w: gradient(self.objective)(w, *D) @ v)(w)

        return self.compute(product, w, (v.astype(w.dtype), 1), *self.rows(w, D), shape=(self.d,))

    def vjp(self, w: Array, X: Array, r: Array) -> Array:
        product = gradient(lambda w, X, r: (self.z(w, X) * r).sum())
        arrays = (X.astype(w.dtype), 2), (r.astype(w.dtype), 2)
        return self.compute(product, w, *arrays, shape=(self.d,))

    def rows(self, w: Array, D: Batch) -> Iterator[tuple[Array, int]]:
        """Yield X, y and the weights c of a batch, each with the number of its own axes."""
        c = np.broadcast_to(mean_weights(D, w.dtype), D.y.shape)
        yield from ((D.X.astype(w.dtype), 2), (D.y.astype(np.int64), 1), (c, 1))
