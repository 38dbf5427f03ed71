"""The algorithms, models and data sets that names in an experiment stand for.

A name is one of fedref's own, or MODULE:NAME (imported, from the current folder first), or the name
of an entry point of an installed package, in the group `fedref.algorithms`, `fedref.models` or
`fedref.data`. From Python, the class, the function or the object itself may take the place of its
name.
"""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from fedref.algorithm import Algorithm, AnyAlgorithm
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.values import build, check_value, values_of, with_dashes
from fedref.datasets.registry import SOURCES
from fedref.datasets.rules import parameters_of
from fedref.datasets.sources import IN_MEMORY, is_in_memory, parse_name
from fedref.models import FROM_DATA, MODELS, Model
from fedref.rounds.federation import Federation, Source

Table = Mapping[str, Any]

_WORD = r"[^\W\d]\w*"
MODULE_NAME = re.compile(rf"{_WORD}(\.{_WORD})*:{_WORD}(\.{_WORD})*")


def entry_points_of(group: str) -> dict[str, Any]:
    """Return name → entry point of the installed packages, for one group of `fedref.*`."""
    return {point.name: point for point in entry_points(group=f"fedref.{group}")}


def import_name(name: str) -> Any:
    """Import MODULE:NAME; the current folder comes first, as for `python -m`."""
    module, _, attribute = name.partition(":")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        thing: Any = importlib.import_module(module)
        for word in attribute.split("."):
            thing = getattr(thing, word)
    except Exception as error:  # the module may raise anything when it runs
        raise ConfigError(
            f"{name}: cannot be imported ({type(error).__name__}: {error}); expected MODULE:NAME, "
            "with MODULE.py in the current folder or installed"
        ) from error
    return thing


def resolve_name(kind: str, group: str, name: Any, known: Mapping[str, Any]) -> Any:
    """Resolve a name to an object. Non-strings are returned unchanged."""
    if not isinstance(name, str):
        return name
    if name in known:
        return known[name]
    if MODULE_NAME.fullmatch(name):
        return import_name(name)
    more = entry_points_of(group)
    if name not in more:
        raise ConfigError(unknown(kind, name, {*known, *more}))
    try:
        return more[name].load()
    except Exception as error:
        raise ConfigError(
            f"{kind} {name}: {more[name].value} cannot be imported ({error}), expected an "
            "installed package that works"
        ) from error


def importable_name(thing: Any) -> str:
    """Return the name under which a class or function can be imported again."""
    if isinstance(thing, str):
        return thing
    if is_in_memory(thing):
        return thing.name if isinstance(thing, Source) else "arrays"
    cls = thing if inspect.isclass(thing) or inspect.isfunction(thing) else type(thing)
    own: dict[Any, str] = {c: name for known in (ALGORITHMS, MODELS) for name, c in known.items()}
    return own.get(cls, f"{cls.__module__}:{cls.__qualname__}")


def own_code(things: Iterable[Any]) -> dict[str, str]:
    """Return MODULE:NAME → the SHA-256 of the module's file, of what is not fedref's own."""
    hashes = {}
    for thing in things:
        module = sys.modules.get(getattr(thing, "__module__", ""))
        file = getattr(module, "__file__", None)
        if file and not thing.__module__.startswith("fedref."):
            hashes[importable_name(thing)] = sha256(Path(file).read_bytes()).hexdigest()
    return hashes


def check_file_name(name: str, what: str) -> None:
    """Raise a ConfigError if a name cannot be part of a file's name."""
    if not name or name.startswith(".") or re.search(r"[/\\\x00-\x1f]", name):
        raise ConfigError(f"{what} is {name!r}, expected a word that can be part of a file's name")


# ---- algorithms ----------------------------------------------------------------------------------


def algorithm_class(name: Any) -> type[AnyAlgorithm]:
    """Return the class of an algorithm, given by its name or as the class."""
    cls = resolve_name("algorithm", "algorithms", name, ALGORITHMS)
    if not (inspect.isclass(cls) and issubclass(cls, Algorithm) and is_dataclass(cls)):
        raise ConfigError(
            f"algorithm {name!r}: is not an algorithm, expected the name of one, or a dataclass that "
            "derives from fedref.algorithm.Algorithm"
        )
    return cls


def make_algorithm(label: str, table: Table) -> AnyAlgorithm:
    """Make the algorithm of one [algorithms.LABEL] table."""
    values = {key: value for key, value in table.items() if key != "algorithm"}
    cls = algorithm_class(table.get("algorithm", label))
    algorithm: AnyAlgorithm = build(cls, values, f"algorithms.{label}")
    return algorithm


def algorithm_table(label: str, table: Table) -> dict[str, Any]:
    """Return the table [algorithms.LABEL] with every hyperparameter.

    It needs the key `algorithm` only if the label is not an algorithm's name.
    """
    check_file_name(label, "the label of an algorithm")
    algorithm = make_algorithm(label, table)
    return {
        "algorithm": table.get("algorithm", label),
        **{f.name: getattr(algorithm, f.name) for f in fields(algorithm)},
    }


# ---- models --------------------------------------------------------------------------------------


def model_class(name: Any) -> type[Any]:
    """Return the class of a model, given by its name or as the class."""
    cls = resolve_name("model", "models", name, MODELS)
    what = f"model {importable_name(name)}"
    if not (inspect.isclass(cls) and is_dataclass(cls) and issubclass(cls, Model)):
        raise ConfigError(
            f"{what} is {cls!r}, expected a dataclass derived from fedref.models.Model"
        )
    if missing := sorted(cls.__abstractmethods__):
        raise ConfigError(f"{what} has no {', '.join(missing)}, which every model must have")
    return cls


def is_object(name: Any) -> bool:
    """Return whether a model is given as a made object, not by its name or class."""
    return not isinstance(name, str) and not inspect.isclass(name)


def model_table(table: Table) -> dict[str, Any]:
    """Return the table [model] with every value that does not depend on the data."""
    table = dict(table)
    name = table.pop("name")
    if is_object(name):
        if not isinstance(name, Model):
            raise ConfigError(f"model name is {name!r}, expected a string")
        if table:
            more = ", ".join(map(with_dashes, table))
            raise ConfigError(
                f"the model is a {type(name).__name__} and takes no {more} in [model]"
            )
        return {"name": name}
    cls = model_class(name)
    values = {f.name: f.default for f in fields(cls) if f.default is not MISSING}
    values |= values_of(cls, table, f"model {importable_name(name)}", FROM_DATA)
    return {"name": name, **{k: v for k, v in values.items() if k not in FROM_DATA}}


# ---- data and splits -----------------------------------------------------------------------------


def default_run_name(data: Any) -> str:
    """Return the default name of an experiment on these data."""
    source = data.source if isinstance(data, Federation) else data
    if is_in_memory(source) and not isinstance(source, Source):
        return "data"
    name = source if isinstance(source, str) else getattr(source, "name", "") or "data"
    return name.partition(":")[2] or Path(name.partition("(")[0]).resolve().stem


def data_function(name: Any) -> Any:
    """Return the user's function that a name of data stands for; None for data sets and files."""
    if callable(name):
        return name
    if isinstance(name, list | tuple) or hasattr(name, "__array__"):
        raise ConfigError(f"data is a {type(name).__name__}, expected a name, a path, {IN_MEMORY}")
    text = check_value(str, name, "data name")
    if parse_name(text) is not None or os.path.exists(text):
        return None
    if MODULE_NAME.fullmatch(text) or text in entry_points_of("data"):
        function = resolve_name("data set", "data", text, SOURCES)
        if not callable(function):
            raise ConfigError(f"data set {text} is {function!r}, expected a function")
        return function
    return None


def data_table(table: Table) -> dict[str, Any]:
    """Return the table [data] with every parameter of its source."""
    if is_in_memory(table["name"]):
        return dict(table)
    rest = {k: v for k, v in table.items() if k != "name"}
    if (load := data_function(table["name"])) is not None:
        try:
            bound_call = inspect.signature(load).bind(**rest)
        except (TypeError, ValueError) as error:  # a built-in function may have no signature
            raise ConfigError(f"data set {importable_name(table['name'])}: {error}") from None
        bound_call.apply_defaults()
        return {"name": table["name"], **bound_call.arguments}
    call = parse_name(table["name"], rest)
    return dict(table) if call is None else {"name": call[0], **call[1]}


def split_table(table: Table) -> dict[str, Any]:
    """Return the table [split] with every parameter of its rule (None: depends on the data)."""
    rule = check_value(str, table["rule"], "split rule")
    given = {k: v for k, v in table.items() if k not in ("rule", "seed")}
    if rule.endswith(".json"):  # a manifest
        if len(table) > 1:
            more = ", ".join(with_dashes(k) for k in table if k != "rule")
            raise ConfigError(f"split {rule} is a manifest and takes no parameter, got {more}")
        return {"rule": rule}
    seed = check_value(int, table.get("seed", 0), "split seed")
    return {"rule": rule, "seed": seed, **parameters_of(rule, given)}
