"""From names to things: the data, split and model of an experiment, each made once a run."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedref.boundary.errors import ConfigError, DataError, FedrefError
from fedref.boundary.values import build
from fedref.datasets import from_manifest, load, split, split_clients
from fedref.datasets.formats import arrays
from fedref.datasets.sources import parse_name
from fedref.experiments import config, names
from fedref.experiments.experiment import Experiment, Table
from fedref.models import FROM_DATA, MODELS
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Source

MOST_CLASSES = 100_000


# ---- data ----------------------------------------------------------------------------------------


@dataclass
class Loader:
    """The data of a run: each source is read once, and each split made once."""

    data_dir: str | Path | None = None
    verify: bool = True  # refuse a data set that differs from the published one
    sources: dict[str, Source | Federation] = field(default_factory=dict)
    federations: dict[str, Federation] = field(default_factory=dict)

    def source(self, data: Table) -> Source | Federation:
        """The rows of [data]; a Federation where they come already divided over clients."""
        key = key_of(data)
        if key not in self.sources:
            self.sources[key] = source_of(data, self.data_dir, self.verify)
        return self.sources[key]

    def federation(self, experiment: Experiment) -> Federation:
        """The split data of an experiment."""
        key = key_of(experiment.data, experiment.split)
        if key not in self.federations:
            self.federations[key] = self._split(experiment.data, dict(experiment.split))
        return self.federations[key]

    def _split(self, data: Table, table: dict[str, Any]) -> Federation:
        rule = table.pop("rule")
        if rule.endswith(".json"):  # it names its data; where they are a file, its folder is known
            name = data["name"]
            return from_manifest(rule, Path(name).parent if is_file(name) else self.data_dir)
        source = self.source(data)
        if isinstance(source, Federation):
            return source
        given = {key: value for key, value in table.items() if value is not None}
        return split(rule, source, given.pop("seed"), **given)


def key_of(*tables: Table) -> str:
    """Equal for tables of the same values; objects are told apart by their identity."""

    def value(x: Any) -> Any:
        return repr(x) if isinstance(x, bool | int | float | str | None) else id(x)

    return repr([sorted((k, value(v)) for k, v in table.items()) for table in tables])


def source_of(data: Table, data_dir: str | Path | None, verify: bool = True) -> Source | Federation:
    """What [data] stands for: a named data set, a file, a function's result, or arrays."""
    rest = dict(data)
    name = rest.pop("name")
    if names.is_given(name):
        return as_source(name, "data")
    function = names.data_function(name)
    if function is None:
        return load(name, data_dir, verify=verify, **rest)
    where = names.written(name)
    try:
        found = function(**rest)
    except FedrefError:
        raise
    except Exception as error:
        raise DataError(f"{where}: {type(error).__name__}: {error}") from error
    return as_source(found, where)


def as_source(found: Any, where: str) -> Source | Federation:
    """(X, y) or (X, y, client), checked; a Source or a Federation as it is."""
    if isinstance(found, Federation | Source):
        check_source(found.source if isinstance(found, Federation) else found)
        return found
    if not isinstance(found, tuple) or len(found) not in (2, 3):
        raise DataError(
            f"{where}: is a {type(found).__name__}, expected a Source, a Federation, or a tuple of "
            "arrays (X, y) or (X, y, client)"
        )
    X, y, *rest = map(np.asarray, found)
    client, more = None, arrays.image_defaults(X)
    if rest:
        client, more["client_names"] = arrays.encode_clients(rest[0], len(X), where)
    return arrays.make_source(X, y, where, client, name=where, **more)


def check_source(source: Source) -> None:
    """Refuse a Source that somebody made of something else than arrays of one length."""
    n = len(source.X)
    for name, part, axes in (("X", source.X, 2), ("y", source.y, 1), ("client", source.client, 1)):
        if name == "client" and part is None:
            continue
        if not isinstance(part, np.ndarray):
            raise DataError(f"{source.name}: {name} is a {type(part).__name__}, expected an array")
        if part.ndim != axes or len(part) != n:
            expected = f"({n}, features)" if axes == 2 else f"({n},)"
            raise DataError(f"{source.name}: {name} has shape {part.shape}, expected {expected}")


def is_file(name: Any) -> bool:
    """Whether data are a file or folder, not a named data set."""
    return isinstance(name, str) and parse_name(name) is None and Path(name).exists()


def absolute(name: Any) -> Any:
    """A file's absolute path; any other name as it is."""
    return str(Path(name).resolve()) if is_file(name) else name


# ---- the model of the data -----------------------------------------------------------------------


def check_inputs(model: Any, name: str, source: Source) -> None:
    """Refuse a model for numbers where the data hold codes, and the other way round."""
    takes = getattr(model, "inputs", "numbers")
    if takes != source.inputs:
        fits = ", ".join(name for name, other in MODELS.items() if other.inputs == source.inputs)
        raise ConfigError(
            f"model {name} takes {takes}, and {source.name} holds {source.inputs}: "
            f"use one of {fits}"
        )


def make_model(table: Table, source: Source) -> Model:
    """The model of a [model] table, with its input and output sizes taken from the data."""
    table = names.model_table(table)
    name = table.pop("name")
    if names.is_object(name):
        own: Model = name
        if own.features != source.X.shape[1]:
            raise ConfigError(
                f"the model {type(own).__name__} takes {own.features} features, but {source.name} "
                f"has {source.X.shape[1]}"
            )
        check_inputs(own, type(own).__name__, source)
        check_targets(own, type(own).__name__, source)
        return own
    cls = names.model_class(name)
    check_inputs(cls, names.written(name), source)
    data: dict[str, Callable[[], Any]] = {
        "features": lambda: source.X.shape[1],
        "length": lambda: source.X.shape[1],
        "classes": lambda: class_count(source, names.written(name)),
        "image": lambda: source.image,
        "vocabulary": lambda: source.vocabulary and len(source.vocabulary),
    }
    taken = {f.name: data[f.name]() for f in fields(cls) if f.name in FROM_DATA}
    if None in taken.values():
        raise ConfigError(f"model {names.written(name)} needs images, and {source.name} has none")
    made: Model = build(cls, table, f"model {names.written(name)}", **taken)
    missing = [member for member in names.MODEL_MEMBERS if not hasattr(made, member)]
    if missing:
        raise ConfigError(
            f"model {names.written(name)} has no {', '.join(missing)}, expected every member of "
            "fedref.models.Model"
        )
    check_targets(made, names.written(name), source)
    return made


def check_targets(model: Model, name: str, source: Source) -> None:
    """Refuse a model of labels where y holds real targets."""
    if model.labels:
        refuse_real(name, source)


def refuse_real(name: str, source: Source) -> None:
    """Name the first y that is no label."""
    if source.real:
        row = int((source.y % 1 != 0).argmax())
        raise ConfigError(
            f"{source.name}: y is {source.y[row]} in row {row}, and model {name} takes labels; "
            "expected whole numbers or words, or a model of real targets, whose labels are ()"
        )


def class_count(source: Source, model: str) -> int:
    """Classes 0..C−1 if the labels are such numbers, else as many as there are labels."""
    refuse_real(model, source)
    labels = source.labels
    if labels[-1] >= MOST_CLASSES:
        raise ConfigError(
            f"{source.name} has the label {labels[-1]}, expected classes 0 to C−1, "
            f"C at most {MOST_CLASSES}"
        )
    return int(labels[-1]) + 1 if labels[0] >= 0 else len(labels)


def relabelled(federation: Federation, model: Model, dtype: Any = np.float64) -> Federation:
    """The federation with labels that the model knows: two labels −1, 1 become 0, 1 for a binary
    logistic model, and the other way round for an SVM; for a model of real targets, y in dtype."""
    source = federation.source
    y = known_labels(source.y, source.labels, model, source.name, dtype)
    return federation if y is source.y else replace(federation, source=replace(source, y=y))


def known_labels(
    y: Array, labels: Array, model: Model, name: str, dtype: Any = np.float64
) -> Array:
    """y as the model knows it; labels : all that occur in the data `name`, of which y may have few."""
    if not model.labels:
        return y.astype(dtype, copy=False)
    known = np.array(model.labels)
    if np.isin(labels, known).all():
        return y
    if len(labels) != len(known):
        raise ConfigError(
            f"{name} has the labels {labels.tolist()}, "
            f"{type(model).__name__} needs {known.tolist()}"
        )
    return np.asarray(known[np.searchsorted(labels, y)])


def own_classes(federation: Federation) -> Federation:
    """The federation with each client's labels counted from 0 among those that it holds: with k of
    them at most, the model tells k classes apart [fedmeta §introduction], whichever they are."""
    source, y = federation.source, np.zeros_like(federation.source.y)
    seen = np.zeros(len(y), np.int64)
    for k in range(federation.clients):
        rows = np.concatenate([federation.train.of(k), federation.test.of(k)])
        y[rows] = np.unique(source.y[rows], return_inverse=True)[1]
        seen[rows] += 1
    if (seen > 1).any():
        raise ConfigError(
            f"classes is own, but row {seen.argmax()} of {source.name} is held by {seen.max()} "
            "clients: expected every row with one client, whose classes are numbered"
        )
    return replace(federation, source=replace(source, y=y))


# ---- all of it -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What a unit needs besides its algorithm: made once for each point of the sweep."""

    experiment: Experiment
    whole: Federation  # as it was split
    federation: Federation  # whom we train and test on
    model: Model
    unseen: tuple[Federation, Array] | None  # everybody, and those that are tested unseen
    validation: Array  # others of everybody that never train, to choose hyperparameters by
    loader: Loader  # whose data they are


def setting(
    experiment: Experiment,
    data_dir: str | Path | None = None,
    loader: Loader | None = None,
) -> Setting:
    """Load, split and check: every mistake in data or options is met here, before any work.

    loader : of other points of the same run; what it has is not made again.
    """
    loader = loader or Loader(data_dir)
    whole = loader.federation(experiment)
    federation = own_classes(whole) if experiment.classes == "own" else whole
    model = make_model(experiment.model, federation.source)
    federation = relabelled(federation, model, experiment.dtype)
    federation.check()
    if not federation.test.rows.size:
        raise DataError(
            f"{whole.source.name}: no client has a test row, so nothing could be evaluated; expected "
            "test rows, which a split makes of clients with two rows or more"
        )
    unseen, validation = None, np.zeros(0, np.int64)
    if experiment.unseen:
        train, validation, test = split_clients(federation.clients, federation.seed)
        if not len(test):
            raise ConfigError(
                f"unseen needs 10 clients or more, to test one in ten, and has {federation.clients}"
            )
        unseen = (federation, test)
        federation = federation.subset(train)
    for label, table in experiment.algorithms.items():
        if names.make_algorithm(label, table).pooled:
            continue
        if experiment.clients_per_round > federation.clients:
            raise ConfigError(
                f"clients-per-round is {experiment.clients_per_round}, "
                f"but there are only {federation.clients} clients to train on"
            )
    return Setting(experiment, whole, federation, model, unseen, validation, loader)


def settled(experiment: Experiment, loader: Loader) -> Experiment:
    """Meet every mistake, at every point of the sweep, before there is a directory or any work.

    Returns the experiment as config.toml will hold it: with the split's values that were found from
    the data, unless a sweep changes them, and files by their absolute paths, so that a run can be
    resumed from another folder.
    """
    for point in config.sweep_points(experiment):
        found = setting(config.at_point(experiment, point), loader=loader)
    data, table = dict(experiment.data), dict(experiment.split)
    manifest = table["rule"].endswith(".json")
    swept = any(key.startswith(("data.", "split.")) for key in experiment.sweep)
    if manifest and not is_file(data["name"]):
        data = names.data_table({"name": found.whole.source.name})
    elif not manifest and not swept and not isinstance(loader.source(data), Federation):
        table |= found.whole.parameters
    data["name"], table["rule"] = absolute(data["name"]), absolute(table["rule"])
    made = replace(experiment, data=data, split=names.split_table(table))
    if not swept:  # the same split under its full name
        loader.federations[key_of(made.data, made.split)] = found.whole
    return made
