"""A torch.nn.Module as a model: its parameters are w; the loss is cross-entropy, derived by torch.

It lives beside the experiments, not among the models: those are fedref's own, by hand. torch is imported
only when a module is given. Clients are computed one by one on one thread, so that no number depends on
how many work at once; the plans, algorithms, checks and tables are those of every model. network_checks.py
refuses a network whose loss is no function of w and single rows, or whose gradient by torch is another.
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
#: Of an Embedding: with these torch's gradient is another than the loss's.
UNFIT = "padding_idx", "scale_grad_by_freq", "sparse", "max_norm"


def is_module(thing: Any) -> bool:
    """Return whether a thing is a torch.nn.Module, the class or an object; torch stays unimported."""
    torch: Any = sys.modules.get("torch")
    cls = thing if inspect.isclass(thing) else type(thing)
    return torch is not None and issubclass(cls, torch.nn.Module)


@cache
def model_class(module: Any) -> Any:
    """Return the model's class of a module's class, whose arguments are its fields, or of a module."""
    cls, own = module if inspect.isclass(module) else type(module), dict[str, Any]()
    for name, given in inspect.signature(cls).parameters.items() if cls is module else ():
        if given.kind not in (given.VAR_POSITIONAL, given.VAR_KEYWORD):
            usual = MISSING if given.default is given.empty else given.default
            kind = type(usual) if given.annotation is given.empty else given.annotation
            own[name] = (name, kind, field(default=usual))
    inputs = getattr(cls, "inputs", "numbers")
    sizes = ("features", "classes", "vocabulary")[: 3 if inputs == "codes" else 2]
    table = own | {name: (name, int) for name in sizes}
    model = make_dataclass(
        cls.__name__, [*table.values(), ("l2", float, field(default=0.0))],
        bases=(TorchModel,), frozen=True, kw_only=True,
        namespace={"module": module, "arguments": tuple(own), "inputs": inputs},
    )  # fmt: skip
    model.__module__ = cls.__module__  # Python 3.12 puts this module's name into what it makes
    return model


def new_model(module: Any) -> Any:
    """Return a model without values, for those that are copied or unpickled."""
    return object.__new__(model_class(module))


@contextmanager
def numbers_of(dtype: Any, seed: int | None = None) -> Iterator[None]:
    """Make numbers of this type where a module names none, and draw with this seed; then as before."""
    import torch

    with LOCK, torch.random.fork_rng([], enabled=seed is not None):
        usual = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, np.dtype(dtype).name))
        if seed is not None:
            torch.default_generator.manual_seed(seed)
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

    #: Why there is no H v, and why it may be wrong, as network_checks.py finds.
    hvp_fault = hvp_doubt = ""

    def build(self) -> Any:
        """Return the module that was given, or one of its class, with the values that torch draws now."""
        net: Any = self.module
        return net(**{x: getattr(self, x) for x in self.arguments}) if inspect.isclass(net) else net

    @cached_property
    def net(self) -> Any:
        """A copy of the module, if its parameters are what w can be."""
        import torch

        torch.set_num_threads(1)
        with numbers_of(np.float32, seed=0):  # a worker does not know what a script has set
            net = self.build()
            try:
                net = copy.deepcopy(net)
            except RuntimeError as error:
                raise ConfigError(
                    f"{self}: cannot be copied, as with prune and the old weight_norm; expected those of "
                    f"torch.nn.utils.parametrizations ({error})"
                ) from error
        wrong = {} if [*net.parameters()] else {"the network": "has no parameters"}
        for name, part in net.named_modules():
            for key in UNFIT if isinstance(part, torch.nn.Embedding) else ():
                if getattr(part, key) is not None and getattr(part, key) is not False:
                    wrong[name] = f"has {key}: torch's gradient is not the loss's, or is not dense"
        for name, x in net.named_parameters():
            if torch.nn.parameter.is_lazy(x):
                wrong[name] = "has no size yet: give it, `features` is an argument"
            elif x.is_complex():
                wrong[name] = "is complex, and w real: torch.view_as_complex of a real parameter"
            elif not x.requires_grad:
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
        """Return the parameters as the class draws them, or an object's by `reset_parameters`."""
        import torch

        net, is_class = self.net, inspect.isclass(self.module)
        with numbers_of(np.float32, int(rng.integers(2**62))):
            net = self.build() if is_class else net
            for part in () if is_class else net.modules():
                getattr(part, "reset_parameters", lambda: None)()
            ws = [x.detach().double().ravel() for x in net.parameters()]
            return np.asarray(torch.cat(ws).numpy())

    def compute(
        self, f: Callable[..., Any], w: Array, *rows: tuple[Array, int], shape: Any
    ) -> Array:
        """Return f of torch's arrays, point by point of their leading axes. rows : (array, own axes)."""
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        if w.dtype.kind == "c":
            raise TypeError("a torch module takes real w: compare with Taylor slopes")
        pairs = [(w, 1), *rows]
        lead = np.broadcast_shapes(*(x.shape[: x.ndim - own] for x, own in pairs))
        whole = [np.broadcast_to(x, (*lead, *x.shape[x.ndim - own :])) for x, own in pairs]
        out = np.zeros((*lead, *shape), w.dtype)
        with numbers_of(w.dtype), sdpa_kernel(SDPBackend.MATH):  # the kernel that has an H v
            for i in np.ndindex(lead):
                point = [torch.from_numpy(np.array(x[i])) for x in whole]
                out[i] = f(*point).detach().numpy()
        return out

    def z(self, w: Any, X: Any) -> Any:
        from torch.func import functional_call

        parts = w.split([x.numel() for x in self.parameters.values()])
        own = {k: part.view_as(x) for (k, x), part in zip(self.parameters.items(), parts)}
        for k, x in self.net.named_buffers():
            own[k] = x.to(w.dtype if x.is_floating_point() else x.dtype, copy=True)
        z, expected = functional_call(self.net, own, (X,)), (len(X), self.classes)
        shape = tuple(z.shape) if hasattr(z, "shape") else f"a {type(z).__name__}"
        if shape != expected:
            raise ConfigError(f"{self}: forward returns {shape}, expected {expected}")
        return z

    def objective(self, w: Any, X: Any, y: Any, c: Any) -> Any:
        import torch.nn.functional as F

        losses = F.cross_entropy(self.z(w, X), y, reduction="none")
        return (c * losses).sum() + self.l2 / 2 * (w @ w)

    def logits(self, w: Array, X: Array) -> Array:
        return self.compute(self.z, w, (self.cast(X, w), 2), shape=(X.shape[-2], self.classes))

    def grad(self, w: Array, D: Batch) -> Array:
        self.validate(w, D)
        return self.compute(gradient(self.objective), w, *self.rows(w, D), shape=(self.d,))

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        self.validate(w, D)
        if self.hvp_fault:
            raise ConfigError(self.hvp_fault)

        def product(w: Any, v: Any, *D: Any) -> Any:
            return gradient(lambda w: gradient(self.objective)(w, *D) @ v)(w)

        return self.compute(product, w, (v.astype(w.dtype), 1), *self.rows(w, D), shape=(self.d,))

    def vjp(self, w: Array, X: Array, r: Array) -> Array:
        product = gradient(lambda w, X, r: (self.z(w, X) * r).sum())
        arrays = (self.cast(X, w), 2), (r.astype(w.dtype), 2)
        return self.compute(product, w, *arrays, shape=(self.d,))

    def rows(self, w: Array, D: Batch) -> Iterator[tuple[Array, int]]:
        """Yield X, y and the weights c of a batch, each with the number of its own axes."""
        c = np.broadcast_to(mean_weights(D, w.dtype), D.y.shape)
        yield from ((self.cast(D.X, w), 2), (D.y.astype(np.int64), 1), (c, 1))

    def cast(self, X: Array, w: Array) -> Array:
        return X.astype(np.int64 if self.inputs == "codes" else w.dtype)
