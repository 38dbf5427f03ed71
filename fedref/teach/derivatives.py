"""A model's own functions: their code, what proves them, and worked examples where they fit on a page."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedref import proofs
from fedref.models import CNN, LSTM, MLP, MODELS, LinearSVM, Logistic
from fedref.models import numerics as nx
from fedref.models.base import Model, mean_weights
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.teach import source, through_time, worked
from fedref.teach.formula import Linear, evaluate, parse, tokens
from fedref.teach.source import Equation

#: What of a model is shown, where it has it: value, forward pass, backward, both of the R-operator.
METHODS = (
    "logits", "loss_of", "forward", "vjp", "backward", "grad", "R_forward", "R_backward", "hvp",
)  # fmt: skip

V = np.array([1.0, 0.5])

#: One feature, three classes: W (1, 3), then b. And two units between one feature and two classes.
SOFTMAX_W, SOFTMAX_V = np.array([0.5, 0, -0.5, 0, 0.25, 0]), np.array([1, 0, 0.5, 0, -1, 0])
NET_W = np.array([0.5, -1, 0, 0.5, 1, 0, -0.5, 0.25, 0, 0.25])
NET_V = np.array([1, 0, 0.5, 0, 0, 1, 0.5, 0, -1, 0])
X = np.array([[1.0], [-1.0], [2.0]])


class Example(NamedTuple):
    """A model with parameters, a batch, and a direction for the Hessian."""

    model: Model
    D: Batch
    w: Array
    v: Array


#: Models so small that three samples can be calculated by hand. CNN and LSTM have none.
EXAMPLES: Mapping[str, Example] = {
    "binary-logistic": Example(worked.MODEL, worked.D, worked.W, V),
    "svm": Example(
        LinearSVM(2, squared=True, bias=False),
        Batch(worked.D.X, 2 * worked.D.y - 1),
        worked.W,
        V,
    ),
    "logistic": Example(Logistic(1, 3), Batch(X, np.array([0, 2, 1])), SOFTMAX_W, SOFTMAX_V),
    "mlp": Example(MLP(1, (2,), 2), Batch(X, np.array([0, 1, 1])), NET_W, NET_V),
}


class Method(NamedTuple):
    """A function of a model."""

    name: str
    place: str
    code: str
    proved: list[str]
    function: Callable[..., Any]
    formulae: list[Equation]  # beside its lines


def methods(model: str) -> Iterator[Method]:
    """Those of `METHODS` that a model has, and those for one of its layers that stand beside it."""
    cls = MODELS[model]
    beside = vars(inspect.getmodule(cls))
    layer = {n: f for n, f in beside.items() if getattr(f, "__module__", "") == cls.__module__}
    named = {name: getattr(cls, name, None) for name in METHODS}
    named |= {f"{name}, one layer": layer.get(name) for name in METHODS}
    for name, found in named.items():
        if found is not None:
            module, line = inspect.getmodule(found), inspect.getsourcelines(found)[1]
            assert module
            function = inspect.unwrap(found)
            yield Method(
                name,
                source.place(module, line),
                inspect.cleandoc(" \n" + inspect.getsource(found)),
                proved(cls.__name__, name),
                function,
                [one for one in source.tagged(module) if one.function == function.__qualname__],
            )


def proved(cls: str, method: str) -> list[str]:
    """What `fedref check` proves of a method, for every variant of the model."""
    tags = [(one.tag.split(), one.claim) for one in proofs.PROOFS]
    return list(dict.fromkeys(c for tag, c in tags if (tag[0], tag[-1]) == (cls, method)))


def example(model: str, method: Method) -> worked.Trace | None:
    """The worked example of a pass, a gradient or a Hessian-vector product, if the model has one."""
    if model not in EXAMPLES or method.name not in ("forward", "backward", "grad", "hvp"):
        return None
    return traced(EXAMPLES[model], method)


def traced(example: Example, method: Method) -> worked.Trace:
    """What a method makes of an example, line by line."""
    one, D, w, v = example
    model: Any = one
    if method.name.endswith(", one layer"):
        passed = through_time.arguments(model, D, w, v)
        return worked.traced(method.function, *passed[method.function.__name__])
    z = model.logits(w, D.X)
    arguments: dict[str, Callable[[], tuple[Any, ...]]] = {
        "hvp": lambda: (w, v, D),
        "grad": lambda: (w, D),
        "loss_of": lambda: (z, D.y),
        "forward": lambda: (w, D.X),
        "backward": lambda: (
            w,
            kept[:-1] if isinstance(kept := model.forward(w, D.X), list) else kept,
            nx.cross_entropy_slope(z, D.y, mean_weights(D, z.dtype)),
        ),
    }
    return worked.traced(method.function, one, *arguments[method.name]())


def computed(example: Example, method: Method, equation: Equation) -> list[tuple[Any, Any]]:
    """(what the line of a formula computed, what the formula says) in an example with l2 = 0, each
    time that it ran."""
    trace, formula = traced(example, method), parse(equation.formula)
    return [
        (
            worked.value_of(equation, trace.steps[k], trace),
            evaluate(formula, meaning(example, worked.when(equation, k, trace))),
        )
        for k in worked.runs(equation, trace)
    ]


def meaning(example: Example, values: Mapping[str, Any]) -> dict[str, Any]:
    """The symbols of a model's formulae; _j runs over the samples, _c over the classes."""
    model, D, w, v = example
    if isinstance(model, LSTM):
        return through_time.meaning(values)
    z, n = model.logits(w, D.X), len(D.y)
    env = {"z": z, "y": D.y, "n": n, "v": v, "σ": nx.sigmoid, "log": np.log, "exp": np.exp}
    if isinstance(model, MLP | CNN):
        return env | in_layer(example, values)
    env |= {"max": np.maximum, "a": 1.0 * (1 - D.y * z > 0) if z.ndim == 1 else None}
    A = np.column_stack([D.X, np.ones((n, int(getattr(model, "bias", True))))])
    env["A"] = rows(A, z.shape[1:])
    if z.ndim == 2:
        env |= {"p": nx.softmax(z), "Y": 1.0 * nx.one_hot(D.y, z.shape[1])}
        env |= {"p_j": env["p"], "A_j": [rows(a, z.shape[1:]) for a in A]}
        env |= {"z_c": z.T, "z_y": np.sum(env["Y"] * z, -1)}
    return env


#: Symbols of a network's formulae and the names that hold them: a list has an entry for each layer.
HELD: Mapping[str, str] = {
    "a": "a", "A": "A", "δ": "delta", "∂f": "da",
    "R{a}": "Ra", "R{A}": "RA", "R{δ}": "Rdelta", "R{∂f}": "Rda",
}  # fmt: skip
#: What else the lines hold by another name than the formulae.
MADE = {"R{z}": "Rz", "R{u}": "Ru"}


def names(model: str) -> dict[str, str]:
    """Python name → symbol, for the symbols of a model's formulae."""
    said = {
        text
        for method in methods(model)
        for one in method.formulae
        for kind, text in tokens(one.formula)
        if kind == "symbol"
    }
    every = {**through_time.HELD, **HELD, **MADE}.items()
    held = {name: symbol for symbol, name in every if symbol in said}
    return {**{text: text for text in said if text.isascii()}, **held}


def in_layer(example: Example, values: Mapping[str, Any]) -> dict[str, Any]:
    """The symbols of layer l of an MLP or a CNN, what it reads being a = φ(z) or A = E Q φ(u).

    values : the local variables. Outside of a loop over the layers δ and R{z} are the last layer's,
    all else the first's. φ′ and φ″ are the complex steps of φ and φ′.
    """
    model: Any = example.model
    _, D, w, v = example
    if "outputs" in values:  # a forward pass: it makes the layer behind the last output
        values = {**values, "a": values["outputs"], "l": len(values["outputs"]) - 1}
    l, phi, tiny = values.get("l", 0), nx.ACTIVATIONS[model.activation], 1e-30
    p = nx.softmax(model.logits(w, D.X))
    env: dict[str, Any] = {
        "p": p, "Y": 1.0 * nx.one_hot(D.y, p.shape[1]), "p_c": p.T[:, :, None],
        "z_c": model.logits(w, D.X).T, "z_y": model.logits(w, D.X)[range(len(p)), D.y],
        "φ": phi.value,
        "φ′": lambda z: phi.value(z + tiny * 1j).imag / tiny,
        "φ″": lambda z: phi.slope(phi.value(z + tiny * 1j)).imag / tiny,
    }  # fmt: skip
    env["W"], env["b"] = layer(model, w, l)
    env["V"], env["v_b"] = layer(model, v, l)
    for symbol, name in HELD.items():
        held = values.get(name)
        env[symbol] = held[l] if isinstance(held, list) and l < len(held) else held
    env |= {f"{one}_j": env[one] for one in ("δ", "R{δ}") if env[one] is not None}
    if R := values.get("Rz", values.get("Ru")):
        env["R{z}"] = env["R{u}"] = Rz = R[l - 1 if "l" in values else -1]
        env["R{z}_c"] = env["R{u}_c"] = Rz.T[:, :, None]
    before = layer(model, w, l - 1)
    if isinstance(model, CNN):
        masks = values.get("masks", [])
        P = [partial(model.P, mask=one) for one in masks]
        env["E"] = Linear(partial(model.E, l), partial(model.Et, l))
        env["Q"] = Linear(partial(model.Q, l - 1), partial(model.Qt, l - 1))
        if l < len(masks):
            env["P"] = Linear(P[l], partial(model.Pt, mask=masks[l]))
        if l:
            env["u"] = P[l - 1](values["A"][l - 1] @ before[0]) + before[1]
    elif l:
        env["z"] = values["a"][l - 1] @ before[0] + before[1]
    return env


def layer(model: Any, w: Array, l: int) -> tuple[Array, Array]:
    """(weights as a matrix, bias) of layer l."""
    if isinstance(model, CNN):
        return model.layers(w)[l]
    views = model.unpack(w)
    return views[::2][l], views[1::2][l]


def rows(A: Array, classes: tuple[int, ...]) -> Linear:
    """v ↦ A v for v as a linear model lays it out, and r ↦ Aᵀ r; A (n, p), or (p,) for one sample."""
    two = np.atleast_2d(A)
    return Linear(
        lambda v: A @ v.reshape(A.shape[-1], *classes),
        lambda r: (two.T @ r.reshape(len(two), *classes)).ravel(),
    )
