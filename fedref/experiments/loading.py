"""Loading an experiment: its data, split and model by their names. A run loads each of them once."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedref.boundary.errors import ConfigError, DataError, FedrefError
from fedref.boundary.values import build
from fedref.datasets import from_manifest, load, split, split_clients
from fedref.datasets.sources import from_memory, is_in_memory, parse_name
from fedref.experiments import config, names
from fedref.experiments.config import Experiment
from fedref.experiments.names import Table
from fedref.experiments.unit import LoadedExperiment
from fedref.models import FROM_DATA, MODELS
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Source

MOST_CLASSES = 100_000


# ---- data ----------------------------------------------------------------------------------------


@dataclass
class Loader:
    """The data of a run; it reads each source once and makes each split once."""

    data_dir: str | Path | None = None
    sources: dict[str, Source | Federation] = field(default_factory=dict)
    federations: dict[str, Federation] = field(default_factory=dict)

    def source(self, data: Table) -> Source | Federation:
        """Return the rows of [data], or a Federation if they are divided over clients already."""
        key = key_of(data)
        if key not in self.sources:
            self.sources[key] = source_of(data, self.data_dir)
        return self.sources[key]

    def federation(self, experiment: Experiment) -> Federation:
        """Return the split data of an experiment."""
        key = key_of(experiment.data, experiment.split)
        if key not in self.federations:
            self.federations[key] = self._split(experiment.data, dict(experiment.split))
        return self.federations[key]

    def _split(self, data: Table, table: dict[str, Any]) -> Federation:
        rule = table.pop("rule")
        if rule.endswith(".json"):  # a manifest names its data, which may be in a file's folder
            name = data["name"]
            return from_manifest(rule, Path(name).parent if is_file(name) else self.data_dir)
        source = self.source(data)
        if isinstance(source, Federation):
            return source
        given = {key: value for key, value in table.items() if value is not None}
        return split(rule, source, given.pop("seed"), **given)


def key_of(*tables: Table) -> str:
    """Return a key that is equal for tables of the same values; objects differ by identity."""

    def value(x: Any) -> Any:
        return repr(x) if isinstance(x, bool | int | float | str | None) else id(x)

    return repr([sorted((k, value(v)) for k, v in table.items()) for table in tables])


def source_of(data: Table, data_dir: str | Path | None) -> Source | Federation:
    """Load the rows of [data]: of a named data set, a file, a function's result, or arrays."""
    rest = dict(data)
    name = rest.pop("name")
    if is_in_memory(name):
        return from_memory(name, "data")
    function = names.data_function(name)
    if function is None:
        return load(name, data_dir, **rest)
    where = names.importable_name(name)
    try:
        result = function(**rest)
    except FedrefError:
        raise
    except Exception as error:
        raise DataError(f"{where}: {type(error).__name__}: {error}") from error
    return from_memory(result, where)


def is_file(name: Any) -> bool:
    """Return whether data are a file or folder, not a named data set."""
    return isinstance(name, str) and parse_name(name) is None and Path(name).exists()


def absolute_path(name: Any) -> Any:
    """Return a file's absolute path; any other name unchanged."""
    return str(Path(name).resolve()) if is_file(name) else name


# ---- the model of the data -----------------------------------------------------------------------


def check_inputs(model: Any, name: str, source: Source) -> None:
    """Refuse a model for numbers if the data hold codes, and a model for codes if they do not."""
    takes = getattr(model, "inputs", "numbers")
    if takes != source.inputs:
        fits = ", ".join(name for name, other in MODELS.items() if other.inputs == source.inputs)
        raise ConfigError(
            f"model {name} takes {takes}, and {source.name} holds {source.inputs}: "
            f"use one of {fits}"
        )


def make_model(table: Table, source: Source) -> Model:
    """Make the model of a [model] table, with its input and output sizes taken from the data."""
    table = names.model_table(table)
    name = table.pop("name")
    if names.is_object(name):
        given_model: Model = name
        if given_model.features != source.X.shape[1]:
            raise ConfigError(
                f"the model {type(given_model).__name__} takes {given_model.features} features, but "
                f"{source.name} has {source.X.shape[1]}"
            )
        check_inputs(given_model, type(given_model).__name__, source)
        if given_model.labels:
            refuse_real(type(given_model).__name__, source)
        return given_model
    cls, shown = names.model_class(name), names.importable_name(name)
    check_inputs(cls, shown, source)
    data: dict[str, Callable[[], Any]] = {
        "features": lambda: source.X.shape[1],
        "length": lambda: source.X.shape[1],
        "classes": lambda: class_count(source, shown),
        "image": lambda: source.image,
        "vocabulary": lambda: source.vocabulary and len(source.vocabulary),
    }
    from_data = {f.name: data[f.name]() for f in fields(cls) if f.name in FROM_DATA}
    if None in from_data.values():
        raise ConfigError(f"model {shown} needs images, and {source.name} has none")
    given = {*table, *from_data}
    lacking = [
        f.name
        for f in fields(cls)
        if f.init and f.default is f.default_factory is MISSING and f.name not in given
    ]
    if lacking:
        raise ConfigError(
            f"model {shown} needs {lacking[0]}: give it in [model], or as "
            f"--set model.{lacking[0]}=VALUE"
        )
    model: Model = build(cls, table, f"model {shown}", **from_data)
    if model.labels:
        refuse_real(shown, source)
    return model


def check_shapes(model: Model, federation: Federation) -> None:
    """Raise ConfigError if a model of the user's own cannot compute for two clients at once."""
    if type(model).__module__.startswith("fedref."):
        return
    X, y, _ = federation.batch(federation.train.rows[:2], np.dtype(np.float64))
    w, D = (
        np.stack(2 * [model.init(np.random.default_rng(0))]),
        Batch(*(np.stack([x, x]) for x in (X, y))),
    )
    for name, shape in (("loss", (2,)), ("grad", w.shape)):
        got = np.shape(getattr(model, name)(w, D))
        if got != shape:
            raise ConfigError(
                f"{type(model).__name__}.{name} returns shape {got} for two clients at once, expected "
                f"{shape}: w is (..., d), X is (..., B, p), and sums go over the last axes"
            )


def refuse_real(name: str, source: Source) -> None:
    """Refuse real targets; the message names the first y that is not a label."""
    if source.real:
        row = int((source.y % 1 != 0).argmax())
        raise ConfigError(
            f"{source.name}: y is {source.y[row]} in row {row}, and model {name} takes labels; "
            "expected whole numbers or words, or a model of real targets, whose labels are ()"
        )


def class_count(source: Source, model: str) -> int:
    """Count the classes: the largest label + 1, or the labels if one of them is negative."""
    refuse_real(model, source)
    labels = source.labels
    if labels[-1] >= MOST_CLASSES:
        raise ConfigError(
            f"{source.name} has the label {labels[-1]}, expected classes 0 to C−1, "
            f"C at most {MOST_CLASSES}"
        )
    return int(labels[-1]) + 1 if labels[0] >= 0 else len(labels)


def map_labels(federation: Federation, model: Model, dtype: Any = np.float64) -> Federation:
    """Return the federation with its labels replaced by those of the model.

    Labels −1, 1 become 0, 1 for a binary logistic model, and 0, 1 become −1, 1 for an SVM. For a
    model of real targets, y is converted to the dtype.
    """
    source = federation.source
    y = known_labels(source.y, source.labels, model, source.name, dtype)
    return federation if y is source.y else replace(federation, source=replace(source, y=y))


def known_labels(
    y: Array, labels: Array, model: Model, name: str, dtype: Any = np.float64
) -> Array:
    """Map y to the model's labels.

    labels : all labels of the data set `name`, ascending; y may hold only some of them.
    """
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


def number_classes_per_client(federation: Federation) -> Federation:
    """Return the federation with each client's labels renumbered 0, 1, ... among those that it holds.

    If no client holds more than k labels, the model has k classes [fedmeta §introduction].
    """
    source, y = federation.source, np.zeros_like(federation.source.y)
    seen = np.zeros(len(y), np.int64)
    for k in range(federation.clients):
        rows = np.concatenate([federation.train.rows_of(k), federation.test.rows_of(k)])
        y[rows] = np.unique(source.y[rows], return_inverse=True)[1]
        seen[rows] += 1
    if (seen > 1).any():
        raise ConfigError(
            f"classes is own, but row {seen.argmax()} of {source.name} is held by {seen.max()} "
            "clients: expected every row at one client only"
        )
    return replace(federation, source=replace(source, y=y))


# ---- all of it -----------------------------------------------------------------------------------


def load_experiment(experiment: Experiment, loader: Loader | None = None) -> LoadedExperiment:
    """Load, split and check the data of one point of the sweep; raise an error for any mistake.

    loader : shared with other points of the same run, as it keeps sources and splits.
    """
    loader = loader or Loader()
    whole = loader.federation(experiment)
    federation = number_classes_per_client(whole) if experiment.classes == "own" else whole
    model = make_model(experiment.model, federation.source)
    federation = map_labels(federation, model, experiment.dtype)
    federation.check()
    check_shapes(model, federation)
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
                f"unseen needs 10 clients or more, and there are only {federation.clients}"
            )
        unseen = (federation, test)
        federation = federation.subset(train)
    for label, table in experiment.algorithms.items():
        if names.make_algorithm(label, table).pooled:
            continue
        if (experiment.clients_per_round or 1) > federation.clients:
            raise ConfigError(
                f"clients-per-round is {experiment.clients_per_round}, "
                f"but there are only {federation.clients} clients to train on"
            )
    return LoadedExperiment(experiment, whole, federation, model, unseen, validation)


def usual_cohort(loaded: LoadedExperiment, message: Callable[[str], None]) -> int:
    """Return how many clients take part in a round if the experiment does not say it."""
    clients = loaded.federation.clients
    if loaded.experiment.clients_per_round is None and clients < config.USUAL_COHORT:
        message(f"clients-per-round is {clients}: there are no more clients")
    return min(clients, config.USUAL_COHORT)


def resolve_experiment(
    experiment: Experiment, loader: Loader, message: Callable[[str], None] = lambda text: None
) -> Experiment:
    """Validate every sweep point before a run directory is created.

    Returns the experiment as config.toml will hold it. Values that depend on the data are set,
    unless they differ over the sweep. Paths are absolute, so that a run can be resumed from another
    folder. message : is called if fewer clients than usual take part in a round.
    """
    cohorts = set[int]()
    for point in config.sweep_points(experiment):
        loaded = load_experiment(config.at_point(experiment, point), loader)
        cohorts.add(usual_cohort(loaded, message))
    data, table = dict(experiment.data), dict(experiment.split)
    manifest = table["rule"].endswith(".json")
    swept = any(key.startswith(("data.", "split.")) for key in experiment.sweep)
    if manifest and not is_file(data["name"]):
        data = names.data_table({"name": loaded.whole.source.name})
    elif not manifest and not swept and not isinstance(loader.source(data), Federation):
        table |= loaded.whole.parameters
    data["name"], table["rule"] = absolute_path(data["name"]), absolute_path(table["rule"])
    result = replace(experiment, data=data, split=names.split_table(table))
    if len(cohorts) == 1 and "clients-per-round" not in result.sweep:
        result = replace(result, clients_per_round=result.clients_per_round or cohorts.pop())
    if not swept:  # the split need not be made again for the completed table
        loader.federations[key_of(result.data, result.split)] = loaded.whole
    return result
