"""Names of things: fedref's own, MODULE:NAME, or an entry point of an installed package.

From Python the class, the function or the object itself may stand in the place of its name. The groups
of entry points are `fedref.algorithms`, `fedref.models` and `fedref.data`.
"""

import inspect
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import is_dataclass, make_dataclass
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any

from fedref.algorithm import Algorithm
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.values import Entry, quote
from fedref.lab.datasets.sources import IN_MEMORY, is_in_memory, parse_name
from fedref.lab.experiments import generator, generator_of_spec, torch_model
from fedref.models import MODELS, Model
from fedref.rounds.federation import Source

MODULE_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
#: Of each kind: what fedref knows by name, and from which class a user's own must derive.
KINDS: Mapping[str, tuple[Mapping[str, Any], Any, str]] = {
    "algorithm": (ALGORITHMS, Algorithm, "fedref.algorithm.Algorithm"),
    "model": (MODELS, Model, "fedref.models.Model"),
}
#: Where generators of the specification are, right ones and those with a known mistake.
SPECIFIED = "fedref.spec", "fedref.judge"
NAMES = {cls: name for name, cls in (ALGORITHMS | MODELS).items()}


def entry_points_of(kind: str) -> dict[str, str]:
    """Return name → MODULE:NAME of installed packages, for an "algorithm", a "model" or "data"."""
    group = "fedref.data" if kind == "data" else f"fedref.{kind}s"
    return {point.name: point.value for point in entry_points(group=group)}


def import_name(kind: str, name: str) -> Any:
    """Import an entry point or MODULE:NAME, from the current folder first; None for other names."""
    value = entry_points_of(kind).get(name, name)
    if not MODULE_NAME.fullmatch(value):
        return None
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return resolve_name(value)
    except (Exception, SystemExit) as error:  # the module may raise anything when it runs
        raise ConfigError(
            f"{value}: cannot be imported ({type(error).__name__}: {error}); expected MODULE:NAME, "
            "with MODULE.py in the current folder or installed"
        ) from error


def find_class(kind: str, name: Any) -> type[Any]:
    """Return the class of an algorithm or a model, given by its name or as the class."""
    (known, base, place), thing, shown = KINDS[kind], name, importable_name(name)
    module, _, function = shown.partition(":")
    if kind == "algorithm" and module in SPECIFIED:
        return generator_of_spec.specified_class(function)
    if not (callable(name) or torch_model.is_module(name)):
        text = Entry("name", str).check(name, kind)
        thing = known.get(text) or import_name(kind, text)
        if thing is None:
            raise ConfigError(unknown(kind, name, {*known, *entry_points_of(kind)}))
    if kind == "model" and torch_model.is_module(thing):
        return torch_model.model_class(thing)
    if kind == "algorithm" and callable(thing) and not inspect.isclass(thing):
        return generator.algorithm_of(thing)
    if not (inspect.isclass(thing) and issubclass(thing, base) and is_dataclass(thing)):
        expected = f"a dataclass derived from {place}, or the name of one"
        raise ConfigError(f"{kind} is {shown!r}, expected {expected}")
    if missing := ", ".join(sorted(getattr(thing, "__abstractmethods__", ()))):
        raise ConfigError(f"{kind} {shown} has no {missing}, which every {kind} must have")
    return thing


def find_function(name: Any) -> Any:
    """Return the user's function that a name of data stands for; None for data sets and files."""
    if callable(name):
        return name
    if not isinstance(name, str):
        raise ConfigError(f"data is a {type(name).__name__}, expected a name, a path, {IN_MEMORY}")
    known = parse_name(name) is not None or os.path.exists(name)
    function = None if known else import_name("data", name)
    if function is not None and not callable(function):
        raise ConfigError(f"data set {name} is {quote(function)}, expected a function")
    return function


def importable_name(thing: Any) -> str:
    """Return the name under which a class, a function or the class of an object can be imported."""
    if isinstance(thing, str):
        return thing
    if is_in_memory(thing):
        return thing.name if isinstance(thing, Source) else "arrays"
    cls = thing if inspect.isclass(thing) or inspect.isfunction(thing) else type(thing)
    return NAMES.get(cls, f"{cls.__module__}:{cls.__qualname__}")


def with_stand_ins(table: dict[str, Any]) -> dict[str, Any]:
    """Return the table of a config.toml with stand-ins for classes and functions of the user's own.

    They have the names and the values, and do nothing: a run is read without its code.
    """
    algorithms = table.get("algorithms", {}).items()
    return table | {
        "data": with_stand_in(table.get("data", {}), "name", object),
        "model": with_stand_in(table.get("model", {}), "name", Model),
        "algorithms": {label: with_stand_in(x, "algorithm", Algorithm) for label, x in algorithms},
    }


def with_stand_in(table: Mapping[str, Any], key: str, base: type[Any]) -> dict[str, Any]:
    """Return a table whose MODULE:NAME is replaced by a class that takes the table's values."""
    if not MODULE_NAME.fullmatch(str(table.get(key, ""))):
        return dict(table)
    values = {name.replace("-", "_"): value for name, value in table.items() if name != key}
    inherited = getattr(base, "__dataclass_fields__", ())
    # a swept 1 is 1.0 where the file has a float
    kinds = {
        k: type(x) if isinstance(x, bool | int | float | str) else Any for k, x in values.items()
    }
    new = [(name, kind, None) for name, kind in kinds.items() if name not in inherited]
    more = {"usual_bounds": (), **dict.fromkeys(getattr(base, "__abstractmethods__", ()))}
    made: Any = make_dataclass("StandIn", new, bases=(base,), frozen=True, namespace=more)
    made.__module__, _, made.__qualname__ = table[key].partition(":")
    return {**table, key: made}


def require_importable(*things: Any) -> None:
    """Refuse objects that config.toml cannot name, because the run could not be resumed."""
    for thing in things:
        name, is_module = importable_name(thing), torch_model.is_module(thing)
        unnamed = is_in_memory(thing) or (is_module and not inspect.isclass(thing))
        if unnamed or not (isinstance(thing, str) or can_be_imported(thing, name)):
            what = "data given as arrays" if is_in_memory(thing) else f"an object of {name}"
            raise ConfigError(
                f"{what if unnamed else name} cannot be imported again, so the run could not be "
                "resumed; expected a file, or the MODULE:NAME of a class or a function at the top of "
                "a module, or no `out`"
            )


def can_be_imported(thing: Any, name: str) -> bool:
    """Return whether a class, a function or the class of an object is what its name finds elsewhere."""
    module, _, path = name.partition(":")
    if not path or module in SPECIFIED:  # fedref's own
        return True
    found: Any = sys.modules.get(module)
    for word in path.split("."):
        found = getattr(found, word, None)
    same = any(found is x for x in (thing, type(thing), getattr(thing, "generator", None) or thing))
    return module != "__main__" and same
