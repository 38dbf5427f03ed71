"""The data, the split and the model of a unit. A run loads each of them once.

What cannot be trained on is refused here, in one line, before any work.
"""

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedref.algorithm import AnyAlgorithm, State
from fedref.boundary.errors import ConfigError, DataError, FedrefError
from fedref.boundary.values import build, schema
from fedref.lab.datasets import from_manifest, load, manifest_of, split, split_clients
from fedref.lab.datasets.describe import MOST_CLASSES
from fedref.lab.datasets.rules import with_validation
from fedref.lab.datasets.sources import from_memory, is_in_memory, parse_name
from fedref.lab.experiments import config, names, network_checks
from fedref.lab.experiments.config import USUAL_COHORT, Experiment, Table
from fedref.lab.experiments.own_code import errors_of_own_code, is_own, name_of
from fedref.lab.experiments.torch_model import TorchModel
from fedref.lab.experiments.unit import LoadedExperiment, Say, Unit, check_many, units
from fedref.models import MODELS, Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Part, Source
from fedref.rounds.loop import run_round
from fedref.sampling import Sampling, make_plan

# ---- data ----------------------------------------------------------------------------------------


@dataclass
class Loader:
    """The data of a run: each source is read once, and each split is made once."""

    data_dir: str | Path | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    phase: Callable[[str], None] = lambda text: None  # is told what it does

    def __reduce__(self) -> Any:
        return Loader, (self.data_dir,)

    def load_once(self, key: str, make: Callable[[], Any]) -> Any:
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def source(self, data: Table) -> Source | Federation:
        """Return the rows of [data], or a Federation if they are divided over clients already."""
        self.phase("loading")
        make = partial(source_of, data, self.data_dir)
        source: Source | Federation = self.load_once(key_of(data), make)
        self.phase("splitting")
        return source

    def federation(self, data: Table, table: Table) -> Federation:
        """Return the data of [data], divided over clients as [split] says."""
        return self.load_once(key_of(data, table), lambda: self.split_source(data, dict(table)))

    def split_hash(self, whole: Federation) -> str:
        """Return the SHA-256 of a split and its data."""
        return str(self.load_once(f"hash {id(whole)}", lambda: manifest_of(whole)["sha256"]))

    def split_source(self, data: Table, table: dict[str, Any]) -> Federation:
        rule = table.pop("rule")
        if rule.endswith(".json"):  # a manifest names its data, which may be in a file's folder
            folder = Path(data["name"]).parent if is_file(data["name"]) else self.data_dir
            return from_manifest(rule, folder)
        source = self.source(data)
        if isinstance(source, Federation):
            share, seed = table.get("validation"), table["seed"]
            return with_validation(source, share, seed) if share else source
        if rule == "natural" and is_in_memory(data["name"]) and source.client is None:
            raise ConfigError(
                "data has no clients: expected data=(X, y, client), or client beside X and y, or a rule "
                'that divides the rows, such as split="iid"'
            )
        given = {key: value for key, value in table.items() if value is not None}
        return split(rule, source, given.pop("seed"), **given)


def key_of(*tables: Table) -> str:
    """Return a key that is equal for tables of the same values; objects differ by identity."""

    def key(value: Any) -> Any:
        is_object = callable(value) or is_in_memory(value) or isinstance(value, Model)
        return id(value) if is_object else repr(value)

    return repr([{name: key(value) for name, value in table.items()} for table in tables])


def source_of(data: Table, data_dir: str | Path | None) -> Source | Federation:
    """Load the rows of a named data set, a file, a function's result, or arrays."""
    rest = {key: value for key, value in data.items() if key != "name"}
    name = data["name"]
    if is_in_memory(name):
        return from_memory(name, "data")
    function = names.find_function(name)
    if function is None:
        return load(name, data_dir, **rest)
    where = names.importable_name(name)
    try:
        return from_memory(function(**rest), where)
    except FedrefError:
        raise
    except Exception as error:
        raise DataError(f"{where}: {type(error).__name__}: {error}") from error


def is_file(name: Any) -> bool:
    """Return whether data are a file or folder, not a named data set."""
    return isinstance(name, str) and parse_name(name) is None and Path(name).exists()


# ---- the model of the data -----------------------------------------------------------------------


def make_model(table: Table, source: Source) -> Model:
    """Make the model of [model], with its sizes taken from the data."""
    name, p = table["name"], source.X.shape[1]
    shown = f"model {names.importable_name(name)}"
    known: Any = name if isinstance(name, Model) else names.find_class("model", name)
    if known.inputs != source.inputs:
        fits = ", ".join(name for name, other in MODELS.items() if other.inputs == source.inputs)
        raise ConfigError(
            f"{shown} takes {known.inputs}, and {source.name} holds {source.inputs}: use one of {fits}"
        )
    model: Model = name if isinstance(name, Model) else fill_model(known, table, source, shown)
    if isinstance(name, Model) and name.features != p:
        raise ConfigError(f"{shown} takes {model.features} features, but {source.name} has {p}")
    if model.labels:
        refuse_real(source, shown)
    return model


def refuse_real(source: Source, shown: str) -> None:
    """Refuse real targets for a model that takes labels."""
    if source.real:
        row = int((source.y % 1 != 0).argmax())
        raise ConfigError(
            f"{source.name}: y is {source.y[row]} in row {row}, and {shown} takes labels; expected "
            "whole numbers or words, or a model of real targets, whose labels are ()"
        )


def fill_model(cls: type[Any], table: Table, source: Source, shown: str) -> Model:
    """Make a model of a class; what the table leaves open is taken from the data.

    There are as many classes as the largest label + 1, or as labels if one of them is negative.
    """
    entries, p, labels = schema(cls), source.X.shape[1], source.labels
    words = source.vocabulary and len(source.vocabulary)
    sizes = {"features": p, "length": p, "image": source.image, "vocabulary": words}
    sizes["classes"] = int(labels[-1]) + 1 if labels[0] >= 0 else len(labels)
    given = {key: size for key, size in sizes.items() if key in entries}
    if None in given.values():
        raise ConfigError(f"{shown} needs images, and {source.name} has none")
    if "classes" in given:
        refuse_real(source, shown)
    if "classes" in given and labels[-1] >= MOST_CLASSES:
        raise ConfigError(
            f"{source.name} has the label {labels[-1]}, expected classes 0 to C−1, C at most {MOST_CLASSES}"
        )
    rest = {key: value for key, value in table.items() if key != "name"}
    for key in sorted(entries.keys() - {*given, *rest}):
        if entries[key].default is MISSING:
            hint = f"give it in [model], or as --set model.{key}=VALUE"
            raise ConfigError(f"{shown} needs {key}: {hint}")
    model: Model = build(cls, rest, shown, **given)
    return model


def check_own_model(model: Model, federation: Federation) -> None:
    """Refuse a model of the user's own that computes other things at once than one by one."""
    if not is_own(model):
        return
    if isinstance(model, TorchModel):
        network_checks.examine(model, federation.batch(np.resize(federation.train.rows, 8)))
    rng, rows = np.random.default_rng(0), federation.train.rows[:4]
    D = federation.batch(np.tile(rows, (2, 1)))
    w = np.stack([model.init(rng), model.init(rng) + rng.normal(0, 0.1, model.d)])
    pairs = [(w, D)] + [(w[k], Batch(D.X[k], D.y[k])) for k in range(2)]
    shapes = {"loss": (2,), "grad": w.shape, "sample_losses": D.y.shape, "predict": D.y.shape}
    for name, shape in shapes.items():
        function: Any = getattr(model, name)
        both, *each = (function(v, part.X if name == "predict" else part) for v, part in pairs)
        problem = "gives other numbers for two clients at once than one by one"
        if (got := np.shape(both)) != shape:
            problem = f"returns shape {got} for two clients at once, expected {shape}"
        if got != shape or not np.allclose(both, each, rtol=1e-6, atol=1e-9, equal_nan=True):
            raise ConfigError(
                f"{type(model).__name__}.{name} {problem}: w is (..., d), X is (..., B, p), and sums go "
                "over the last axes"
            )
    several = model.sample_losses(w[0], Batch(D.X[0], D.y[0]))
    for j, loss in enumerate(several):
        row = Batch(D.X[0, j : j + 1], D.y[0, j : j + 1])
        alone = float(model.loss(w[0], row)) - getattr(model, "l2", 0.0) / 2 * (w[0] @ w[0])
        if not np.isclose(loss, alone, rtol=1e-4, atol=1e-6):
            raise ConfigError(
                f"{name_of(model)}: the loss of training row {j} among several is {loss:.6g}, alone "
                f"{alone:.6g}: `loss` gets batches with leading axes, or write `sample_losses`"
            )


def asks_for_hvp(algorithm: AnyAlgorithm, model: Model, federation: Federation) -> bool:
    """Return whether a client's first step asks for H v; what else goes wrong, the run will say."""
    stand_in, sizes = copy.copy(model), federation.train.sizes
    object.__setattr__(stand_in, "hvp", lambda w, v, D: 0 * v)
    with suppress(Exception):
        state = State(algorithm.initial(model, model.init(np.random.default_rng(0))), {})
        plan = make_plan(Sampling(1, steps=1), sizes, 0, 0, algorithm.roles)
        return run_round(algorithm, stand_in, state, plan, federation)[1].counts.hvps > 0
    return False


def known_labels(
    y: Array, labels: Array, model: Model, name: str, dtype: Any = np.float64
) -> Array:
    """Return y as the model's labels, or for a model of real targets in the dtype.

    Labels −1, 1 become 0, 1 for a binary logistic model, and 0, 1 become −1, 1 for an SVM. labels : all
    labels of the data set `name`, ascending; y may hold only some of them.
    """
    if not model.labels:
        return y.astype(dtype, copy=False)
    known = np.array(model.labels)
    if np.isin(labels, known).all():
        return y
    if len(labels) != len(known):
        needed = f"{type(model).__name__} needs {known.tolist()}"
        raise ConfigError(f"{name} has the labels {labels.tolist()}, {needed}")
    return np.asarray(known[np.searchsorted(labels, y)])


def number_classes_per_client(federation: Federation) -> Federation:
    """Return the federation with each client's labels renumbered 0, 1, ... among those that it holds.

    If no client holds more than k labels, the model has k classes [fedmeta §introduction].
    """
    source, y = federation.source, np.zeros_like(federation.source.y)
    holders = np.zeros(len(y), np.int64)
    parts, N = federation.parts.values(), federation.clients
    held = [np.concatenate([part.rows_of(k) for part in parts]) for k in range(N)]
    if (unseen := federation.unseen) is not None:
        held += [unseen.rows_of(k) for k in range(len(unseen.sizes))]
    for rows in held:
        y[rows] = np.unique(source.y[rows], return_inverse=True)[1]
        holders[rows] += 1
    if (holders > 1).any():
        raise ConfigError(
            f"classes is own, but row {holders.argmax()} of {source.name} is held by {holders.max()} "
            "clients: expected every row at one client only"
        )
    return replace(federation, source=replace(source, y=y))


# ---- all of it -----------------------------------------------------------------------------------


def load_experiment(experiment: Experiment, loader: Loader | None = None) -> LoadedExperiment:
    """Load, split and check the data of an experiment without a sweep.

    loader : shared with other points of the same run, as it keeps sources and splits.
    """
    e, loader = experiment, loader or Loader()
    rest = {"classes": e.classes, "dtype": e.dtype, "unseen": bool(e.unseen)}
    key = key_of(e.data, split_of(e), e.model, rest)
    loaded: LoadedExperiment = loader.load_once(key, partial(load_all, e, loader))
    wanted, clients = e.clients_per_round or 1, loaded.federation.clients
    if wanted > clients and not all(algorithm.pooled for algorithm in e.algorithms.values()):
        there = f"there are only {clients} clients to train on"
        raise ConfigError(f"clients-per-round is {wanted}, but {there}")
    if fault := getattr(loaded.model, "hvp_fault", ""):
        for label, algorithm in e.algorithms.items():
            if asks_for_hvp(algorithm, loaded.model, loaded.federation):
                raise ConfigError(f"{label} needs H v. {fault}")
    return loaded


def split_of(experiment: Experiment) -> Table:
    """Return [split]; its seed may be that of the run."""
    follows = experiment.split.get("seed") == "run"
    return {**experiment.split, "seed": experiment.seeds[0]} if follows else experiment.split


def load_all(experiment: Experiment, loader: Loader) -> LoadedExperiment:
    whole = loader.federation(experiment.data, split_of(experiment))
    federation = number_classes_per_client(whole) if experiment.classes == "own" else whole
    model = make_model(experiment.model, federation.source)
    source = federation.source
    y = known_labels(source.y, source.labels, model, source.name, experiment.dtype)
    if y is not source.y:
        federation = replace(federation, source=replace(source, y=y))
    federation.check()
    with errors_of_own_code(model):
        check_own_model(model, federation)
    own = federation.unseen
    if not federation.test.rows.size and own is None:
        raise DataError(
            f"{whole.source.name}: no client has a test row, so nothing could be evaluated; expected "
            "test rows, which a split makes of clients with two rows or more"
        )
    unseen, kept_back = None, np.zeros(0, np.int64)
    if own is not None:  # all that the data have for training is trained on
        none = Part(np.zeros(0, np.int64), np.zeros_like(own.offsets))
        alone = replace(federation, train=none, test=own, validation=None)
        unseen = (alone, np.arange(len(own.sizes)))
    elif experiment.unseen:
        train, kept_back, test = split_clients(federation.clients, federation.seed)
        if not len(test):
            clients = federation.clients
            raise ConfigError(f"unseen needs 10 clients or more, and there are only {clients}")
        unseen = (federation, test)
        federation = federation.subset(train)
    return LoadedExperiment(whole, federation, model, unseen, kept_back)


def resolve_experiment(
    experiment: Experiment, loader: Loader, say: Say = lambda text: None, many: bool = False
) -> Experiment:
    """Check every unit before any work. Return the experiment as config.toml will hold it.

    Values that depend on the data are set, unless they differ over the sweep. Paths are absolute, so
    that a run can be resumed from another folder. say : is called if there are few clients. many : allow
    a sweep of more than 10 000 units.
    """
    check_many(experiment, many)
    work = units(experiment)
    loaded = [load_experiment(unit.experiment, loader) for unit in work]
    data, table = dict(experiment.data), dict(experiment.split)
    swept = any(key.startswith(("data", "split")) for key in experiment.sweep)
    if table["rule"].endswith(".json"):
        table["rule"] = str(Path(table["rule"]).resolve())
        if not is_file(data["name"]):
            data = config.complete_table("data", {"name": loaded[0].whole.source.name})
    elif not swept and not isinstance(loader.source(data), Federation):
        table = config.complete_table("split", table | dict(loaded[0].whole.parameters))
    if is_file(data["name"]):
        data["name"] = str(Path(data["name"]).resolve())
    check_settings(experiment, work, loaded, say)
    cohorts = {min(USUAL_COHORT, one.federation.clients) for one in loaded}
    usual = experiment.clients_per_round
    if usual is None and len(cohorts) == 1 and "clients-per-round" not in experiment.sweep:
        (usual,) = cohorts
        if usual < USUAL_COHORT:
            say(f"clients-per-round is {usual}: there are no more clients")
    if not swept:  # the split need not be made again for the completed table
        for unit, one in zip(work, loaded):
            loader.kept[key_of(data, split_of(replace(unit.experiment, split=table)))] = one.whole
    return replace(experiment, data=data, split=table, clients_per_round=usual)


def check_settings(
    experiment: Experiment, work: Sequence[Unit], loaded: Sequence[LoadedExperiment], say: Say
) -> None:
    """Refuse what a generator cannot do; say which settings have no effect, and what is doubtful."""
    for label, algorithm in experiment.algorithms.items():
        if experiment.on_failure == "drop" and algorithm.generator:
            raise ConfigError(
                f"on-failure is drop, and {label} is a generator, which has all clients of a round in one "
                "loop; expected on-failure=fail, or a class"
            )
        for key in algorithm.unused:
            given = {getattr(a, key, None) for a in experiment.algorithms.values()}
            if len(given - {getattr(algorithm, key), None}):
                say(f"{label} has no use for {key}, which is set for others")
    doubts = {
        doubt for unit, (_, federation, model, *_) in zip(work, loaded)
        if (doubt := getattr(model, "hvp_doubt", "")) and asks_for_hvp(unit.algorithm, model, federation)
    }  # fmt: skip
    for doubt in sorted(doubts):
        say(doubt)
    for label, algorithm in experiment.algorithms.items():
        steps = {unit.experiment.steps for unit in work if unit.label == label}
        for key in algorithm.needs_two_steps if steps == {1} else ():
            if {key, f"algorithms.{label}.{key}"} & experiment.sweep.keys():
                say(f"{label}: {key} has no effect with one local step: all points are equal")
