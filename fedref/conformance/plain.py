"""Between fedref's own values and what a backend sees: NumPy arrays, numbers and dictionaries."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from fedref.algorithm import AnyAlgorithm
from fedref.algorithms import apfl, fedcurv, fedmaml, fedmeta
from fedref.models import MODELS
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array

#: Levels of a server's state that its plain names leave out.
UNNAMED = ("learner", "adam", "detector")
#: What an upload holds, by the papers' names, and what it is made of.
UPLOADS: dict[type[AnyAlgorithm], tuple[Any, tuple[str, ...]]] = {
    fedmeta.MAML: (fedmeta.Learner, ("g_theta", "g_alpha")),
    fedmaml.FedMAML: (fedmaml.Upload, ("g", "theta_star")),
    fedcurv.FedCurv: (fedcurv.Upload, ("theta", "I")),
    apfl.APFL: (apfl.Upload, ("w", "importance")),
}
#: What a client keeps, where it keeps anything.
OWN: dict[type[AnyAlgorithm], Any] = {fedcurv.FedCurv: fedcurv.Own, apfl.APFL: apfl.Own}


def describe(model: Model) -> dict[str, Any]:
    """A model as JSON: its family, its fields, d, and the shapes that w is cut into, in order."""
    family = next(name for name, kind in MODELS.items() if type(model) is kind)
    shapes = [list(view.shape) for view in model.unpack(np.zeros(model.d))]
    made: Any = model
    own: dict[str, Any] = json.loads(json.dumps(asdict(made)))
    own.pop("initialisation", None)
    return {"family": family, **own, "d": model.d, "shapes": shapes}


def model(spec: Mapping[str, Any]) -> Any:
    """The model that `describe` described."""
    fields = {k: v for k, v in spec.items() if k not in ("family", "d", "shapes")}
    return MODELS[spec["family"]](**fields)


def dtype_of(server: Mapping[str, Any]) -> Any:
    """The dtype that is computed in: a text's X holds codes."""
    return np.asarray(next(iter(server.values()))).dtype


def batch(D: Mapping[str, Array] | None) -> Batch | None:
    """{"X", "y"[, "s"]} → Batch."""
    return None if D is None else Batch(D["X"], D["y"], D.get("s"))


def flat(x: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested dictionaries and lists → ("a.b.c", leaf), in order."""
    items = enumerate(x) if isinstance(x, list) else x.items()
    for key, value in items:
        if isinstance(value, Mapping | list):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


#: Dictionaries whose keys are numbers: of rounds and test batches in order, of clients by index.
LISTS, INDEXED = ("plans", "tests"), ("clients",)


def nested(pairs: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flat`."""
    out: dict[str, Any] = {}
    for path, value in pairs.items():
        *above, last = path.split(".")
        level = out
        for key in above:
            level = level.setdefault(key, {})
        level[last] = value
    return _numbered(out)


def _numbered(x: Any, name: str = "") -> Any:
    if not isinstance(x, dict):
        return x
    inner = {key: _numbered(value, key) for key, value in x.items()}
    if name in LISTS:
        return [inner[str(i)] for i in range(len(inner))]
    return {int(key): value for key, value in inner.items()} if name in INDEXED else inner


def to_plain(tree: Any, dtype: Any, prefix: str = "") -> dict[str, Array]:
    """A named tuple's leaves by name, arrays of numbers in dtype: Adam's m of θ is "m_theta"."""
    out = dict[str, Array]()
    for name, value in zip(tree._fields, tree):
        if hasattr(value, "_fields"):
            inner = prefix if name in UNNAMED else f"{prefix}{name}_"
            out |= to_plain(value, dtype, inner)
        elif value is not None:
            leaf = np.asarray(value, dtype if isinstance(value, tuple) else None)
            out[prefix + name] = (
                leaf.astype(dtype) if leaf.ndim and leaf.dtype.kind == "f" else leaf
            )
    return out


def from_plain(template: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    """The inverse, in the form of a template; a leaf that is None there may have become a number."""
    out: list[Any] = []
    for name, leaf in zip(template._fields, template):
        value = values.get(prefix + name)
        if hasattr(leaf, "_fields"):
            out.append(from_plain(leaf, values, prefix if name in UNNAMED else f"{prefix}{name}_"))
        elif isinstance(leaf, tuple):
            out.append(tuple(np.asarray(value).tolist()))
        elif isinstance(leaf, np.ndarray) or value is None:
            out.append(value)
        else:
            out.append(np.asarray(value).item())
    return type(template)(*out)


def initial(algorithm: AnyAlgorithm, model: Model, w: Array) -> Any:
    """The server's state before round 0, all of it arrays."""
    server = algorithm.initial(model, w)
    return server._replace(F=np.zeros_like(w)) if isinstance(server, apfl.Shared) else server


def _of(table: Mapping[type[AnyAlgorithm], Any], algorithm: AnyAlgorithm) -> Any:
    return next((entry for kind, entry in table.items() if isinstance(algorithm, kind)), None)


def upload(algorithm: AnyAlgorithm, sent: Any) -> dict[str, Array]:
    """What a client (or a stack of them) sends, by name."""
    found = _of(UPLOADS, algorithm)
    if found is None:
        return {"w": sent}
    return {name: x for name, x in zip(found[1], sent) if x is not None}


def upload_of(algorithm: AnyAlgorithm, values: Mapping[str, Array]) -> Any:
    """The inverse."""
    found = _of(UPLOADS, algorithm)
    if found is None:
        return values["w"]
    kind, names = found
    return kind(*(values.get(name) for name in names))


def own_of(algorithm: AnyAlgorithm, values: Mapping[str, Array] | None) -> Any:
    """A client's state from its plain form; None before its first round."""
    if not values:
        return None
    kind = _of(OWN, algorithm)
    template = kind(*(0 if name == "t" else np.zeros(1) for name in kind._fields))
    return from_plain(template, values)


def server_of(algorithm: AnyAlgorithm, model: Model, values: Mapping[str, Array]) -> Any:
    """The server's state from its plain form."""
    w = next(iter(values.values()))
    return from_plain(initial(algorithm, model, w), values)
