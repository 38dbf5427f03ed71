"""A case: a function of the papers, or rounds of an algorithm, with its inputs and right outputs."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from fedref.models import MODELS
from fedref.models.base import Model
from fedref.models.numerics import Array

Values = Mapping[str, Any]


class Case(NamedTuple):
    """One situation: its inputs, and the outputs that are right.

    name : unique; tag : the paper's equation; about : one line for people.
    call : what is computed, a function of the protocol of backends (`fedref.conformance`);
    algorithm : its first argument ("" for a model's derivatives); model : see `describe_model`.
    inputs, outputs : flat, "server.w" → array; outputs in the order in which they arise.
    required : outputs that a backend must return; the others are compared where it returns them.
    tolerance : dtype → largest |difference| allowed, relative to the output's largest entry.
    condition : by how many units of rounding the outputs move, measured.
    digits : another way to compute the outputs → to how many decimal digits it agrees.
    catches : names of the known mistakes that fail here, where that was measured.
    tags : every equation that the case runs, `tag` first.
    convention : only a choice shows here (a slope at a kink): another one is no mistake.
    part : of a half, the case of rounds that it is cut from, the round t, and the client k.
    quick : it is one of few cases that together catch most of the known mistakes (`--quick`).
    """

    name: str
    tag: str
    about: str
    call: str
    algorithm: str
    model: dict[str, Any]
    hyper: dict[str, Any]
    inputs: dict[str, Array]
    outputs: Mapping[str, Array] = {}
    required: tuple[str, ...] = ()
    tolerance: Mapping[str, float] = {}
    condition: float = 1.0
    digits: Mapping[str, int] = {}
    catches: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    convention: bool = False
    part: tuple[str | int, ...] = ()
    quick: bool = False

    def arguments(self, dtype: DTypeLike = np.float64) -> dict[str, Any]:
        """Return fresh inputs, nested, floats in dtype."""
        return nest({name: cast(x, dtype) for name, x in self.inputs.items()})


def make_case(
    call: str, model: Model, inputs: Values, algorithm: str = "", hyper: Values | None = None
) -> Case:
    """Return a case without a name and outputs. inputs : nested, as a backend gets them.

    >>> from fedref.models import BinaryLogistic
    >>> D = {"X": np.ones((1, 1)), "y": np.array([1])}
    >>> make_case("loss", BinaryLogistic(1), {"w": np.zeros(2), "D": D}).inputs["D.X"]
    array([[1.]])
    """
    flat = {name: np.asarray(x) for name, x in flatten(inputs).items()}
    return Case("", "", "", call, algorithm, describe_model(model), dict(hyper or {}), flat)


def cast(x: Array, dtype: DTypeLike) -> Array:
    """Return a copy: floats in dtype, all else unchanged."""
    return x.astype(dtype) if x.dtype.kind == "f" else x.copy()


def first_rounds(case: Case, n: int) -> Case:
    """Return the first n rounds of a case of rounds."""

    def early(name: str) -> bool:
        return int(name.removeprefix("plans.").partition(".")[0]) < n

    inputs = {m: x for m, x in case.inputs.items() if not m.startswith("plans.") or early(m)}
    return case._replace(inputs=inputs, required=tuple(filter(early, case.required)))


# ---- models --------------------------------------------------------------------------------------


def describe_model(model: Model) -> dict[str, Any]:
    """Return a model as JSON: family, fields, d, and the shapes that w is cut into, in order."""
    family = next(name for name, kind in MODELS.items() if type(model) is kind)
    shapes = [list(view.shape) for view in model.unpack(np.zeros(model.d))]
    instance: Any = model
    fields: dict[str, Any] = json.loads(json.dumps(asdict(instance)))
    fields.pop("initialisation", None)
    return {"family": family, **fields, "d": model.d, "shapes": shapes}


def build_model(spec: Values) -> Model:
    """Return the model that `describe_model` described."""
    fields = {k: v for k, v in spec.items() if k not in ("family", "d", "shapes")}
    return MODELS[spec["family"]](**fields)


# ---- nested dictionaries -------------------------------------------------------------------------

#: Values whose keys are numbers: lists of rounds and test batches, and clients by their index.
LISTS, INDEXED = ("plans", "tests"), ("clients",)


def flatten(x: Any, prefix: str = "") -> dict[str, Any]:
    """Return {"a.b.c": leaf} of nested dictionaries and lists, in order."""
    flat: dict[str, Any] = {}
    for key, value in enumerate(x) if isinstance(x, list) else x.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, f"{name}.") if isinstance(value, Mapping | list) else {name: value}
    return flat


def nest(flat: Values, name: str = "") -> Any:
    """Invert `flatten`. name : that of the value itself, which says what its keys are."""
    groups: dict[str, dict[str, Any]] = {}
    for path, value in flat.items():
        key, _, rest = path.partition(".")
        groups.setdefault(key, {})[rest] = value
    inner = {key: part[""] if "" in part else nest(part, key) for key, part in groups.items()}
    if name in LISTS:
        return [inner[str(i)] for i in range(len(inner))]
    return {int(key): value for key, value in inner.items()} if name in INDEXED else inner


#: Fields of a server's state that the names in cases leave out.
UNNAMED = ("learner", "adam", "detector")


def name_leaf(path: str) -> str:
    """Return the name in cases of a leaf of a server's state: Adam's m of θ is "m_theta".

    >>> name_leaf("adam.m.theta")
    'm_theta'
    """
    return "_".join(part for part in path.split(".") if part not in UNNAMED)
