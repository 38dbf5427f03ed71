"""An experiment as data: one TOML file, checked when it is read, written back with every value."""

import itertools
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fedref.algorithms import ALGORITHMS
from fedref.datasets.rules import RULES
from fedref.datasets.types import Federation, Source
from fedref.errors import ConfigError, unknown
from fedref.federation import Algorithm
from fedref.models import CNN, MLP, BinaryLogistic, LinearSVM, Logistic, Model
from fedref.sampling import Sampling

Table = Mapping[str, Any]


def _field(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Experiment:
    """Everything that a run depends on. The tables are as in TOML, with dashes or underscores."""

    name: str = _field("run", "what the run directory is called after the time")
    rounds: int = _field(100, "communication rounds T (or K)")
    clients_per_round: int = _field(10, "clients that take part in a round")
    epochs: int | None = _field(None, "local epochs E; or set steps")
    steps: int | None = _field(None, "local steps τ; or set epochs")
    batch_size: int = _field(10, "rows of a mini-batch; 0: all local rows")
    sampling: str = _field("uniform", "how the cohort is drawn: uniform, or by-samples")
    stragglers: float = _field(0.0, "fraction of the cohort that does only part of the work")
    support: float = _field(
        0.8, "fraction of a client's rows in the support set (FedMeta, FedMAML)"
    )
    seeds: tuple[int, ...] = _field((0,), "seeds of start, cohorts and batches: a run for each")
    eval_every: int = _field(1, "rounds between evaluations (first and last are always evaluated)")
    eval_train: bool = _field(True, "also evaluate the training loss of every client")
    unseen: float = _field(
        0.0,
        "if > 0: train on 80 % of the clients, test 10 % unseen ones with this support fraction",
    )
    dissimilarity: bool = _field(False, "log B and the gradients' variance when evaluating")
    dtype: str = _field("float64", "float64 or float32")
    on_failure: str = _field("fail", "a client that raises: fail, or drop it and count it")
    data: Table = field(default_factory=dict)  # name
    split: Table = field(default_factory=dict)  # rule, seed and the rule's parameters
    model: Table = field(default_factory=dict)  # name and its parameters
    algorithms: Mapping[str, Table] = field(default_factory=dict)  # label → hyperparameters
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # key → values

    def __post_init__(self) -> None:
        for name, low in (("rounds", 0), ("eval_every", 1)):
            if getattr(self, name) < low:
                raise ConfigError(
                    f"{dashed(name)} is {getattr(self, name)}, expected at least {low}"
                )
        if not self.seeds or min(self.seeds) < 0:
            raise ConfigError(f"seeds are {list(self.seeds)}, expected one or more integers ≥ 0")
        if not 0 <= self.unseen < 1:
            raise ConfigError(f"unseen is {self.unseen}, expected a fraction from 0 up to 1")
        for name, known in (("dtype", DTYPES), ("on_failure", ("fail", "drop"))):
            if getattr(self, name) not in known:
                raise ConfigError(unknown(dashed(name), getattr(self, name), known))
        _ = self.plan  # checks its own values

    @property
    def plan(self) -> Sampling:
        """How its rounds are drawn."""
        return Sampling(**{f.name: getattr(self, f.name) for f in fields(Sampling)})


DTYPES = ("float64", "float32")

#: Split and model for each source, where the experiment names none.
USUAL: dict[str, tuple[str, str]] = {
    "digits": ("per-fedavg", "mlp"),
    "mnist": ("fedprox-mnist", "logistic"),
    "fashion-mnist": ("fedprox-mnist", "logistic"),
    "emnist": ("fedprox-femnist", "logistic"),
    "cifar10": ("cifar10-powerlaw", "cnn"),
    "cifar10-gray": ("cifar10-powerlaw", "cnn"),
    "vehicle": ("natural", "svm"),
    "landmine": ("natural", "svm"),
}


def dashed(name: str) -> str:
    """As it is written in TOML and on the command line."""
    return name.replace("_", "-")


def underscored(table: Table) -> dict[str, Any]:
    """A TOML table with keys as Python spells them."""
    return {str(key).replace("-", "_"): value for key, value in table.items()}


# ---- checked values ---------------------------------------------------------------------------


def value_of(hint: Any, value: Any, where: str) -> Any:
    """`value` as the annotated type, or a ConfigError that says what was expected."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        options = [h for h in typing.get_args(hint) if h is not type(None)]
        return None if value is None else value_of(options[0], value, where)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} is {value!r}, expected a list")
        return tuple(value_of(inner, item, where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}
    if hint in expected:
        if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
            raise ConfigError(f"{where} is {value!r}, expected {expected[hint]}")
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} is {value!r}, expected a table")
    return dict(value)


def build(cls: type[Any], table: Table, where: str, **given: Any) -> Any:
    """A dataclass from a table; unknown keys and wrong types are refused."""
    hints = typing.get_type_hints(cls)
    known = [f.name for f in fields(cls) if f.init and f.name not in given]
    values = dict(given)
    for key, value in underscored(table).items():
        if key not in known:
            raise ConfigError(unknown(f"key of {where}", dashed(key), [dashed(k) for k in known]))
        values[key] = value_of(hints[key], value, f"{where} {dashed(key)}".strip())
    missing = [
        f.name
        for f in fields(cls)
        if f.default is MISSING and f.default_factory is MISSING and f.name not in values
    ]
    if missing:
        raise ConfigError(f"{where} lacks {', '.join(map(dashed, missing))}")
    return cls(**values)


def from_table(table: Table, where: str = "the experiment") -> Experiment:
    """An Experiment from a TOML document."""
    table = dict(table)
    if "seed" in table:
        if "seeds" in table:
            raise ConfigError(f"{where} has both seed and seeds: set one of them")
        table["seeds"] = [table.pop("seed")]
    experiment: Experiment = build(Experiment, completed(table), where)
    for label in experiment.algorithms:
        algorithm(experiment, label)
    return experiment


def read(path: Path) -> dict[str, Any]:
    """A TOML document, or a ConfigError that names the file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}), expected a TOML file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML ({error})") from None


def built_in() -> dict[str, Any]:
    """The experiment that `fedref run` runs when it is told nothing."""
    return tomllib.loads((files("fedref") / "digits.toml").read_text(encoding="utf-8"))


# ---- what an experiment names -----------------------------------------------------------------


def algorithm_class(experiment: Experiment, label: str) -> type[Algorithm]:
    table = experiment.algorithms[label]
    if not isinstance(table, Mapping):
        raise ConfigError(f"algorithms.{label} is {table!r}, expected a table")
    name = str(table.get("algorithm", label))
    if name not in ALGORITHMS:
        raise ConfigError(unknown("algorithm", name, ALGORITHMS))
    return ALGORITHMS[name]


def algorithm(experiment: Experiment, label: str) -> Algorithm:
    """The algorithm of one [algorithms.LABEL] table; its key `algorithm` is needed only where the
    label is a name of your own."""
    table = {k: v for k, v in experiment.algorithms[label].items() if k != "algorithm"}
    made: Algorithm = build(algorithm_class(experiment, label), table, f"algorithms.{label}")
    return made


#: The models by name, and the fields that come from the data.
MODELS: dict[str, type[Any]] = {
    "logistic": Logistic,
    "binary-logistic": BinaryLogistic,
    "svm": LinearSVM,
    "mlp": MLP,
    "cnn": CNN,
}


@dataclass(frozen=True)
class _MLPTable:
    """[model] name = "mlp": widths of the hidden layers; the outer sizes come from the data."""

    hidden: tuple[int, ...] = (80, 60)
    activation: str = "elu"
    l2: float = 0.0


def make_model(table: Table, source: Source) -> Model:
    """The model of a [model] table, with its input and output sizes taken from the data."""
    table = dict(table)
    name = str(table.pop("name", ""))
    if name not in MODELS:
        raise ConfigError(unknown("model", name, MODELS))
    features, classes = int(source.X.shape[1]), class_count(source)
    where = f"model {name}"
    made: Any
    if name == "mlp":
        layers = build(_MLPTable, table, where)
        made = MLP((features, *layers.hidden, classes), layers.activation, layers.l2)
    elif name == "cnn":
        if source.image is None:
            raise ConfigError(f"model cnn needs images, and {source.name} has none")
        made = build(CNN, table, where, image=tuple(source.image), classes=classes)
    elif name == "logistic":
        made = build(Logistic, table, where, features=features, classes=classes)
    else:
        made = build(MODELS[name], table, where, features=features)
    return made


def class_count(source: Source) -> int:
    """Classes 0..C−1 if the labels are such numbers, else as many as there are labels."""
    labels = source.labels
    return int(labels[-1]) + 1 if labels[0] >= 0 else len(labels)


def relabelled(federation: Federation, model: Model) -> Federation:
    """The federation with labels that the model knows: two labels −1, 1 become 0, 1 for a
    binary logistic model, and the other way round for an SVM."""
    labels, known = federation.source.labels, np.array(model.labels)
    if np.isin(labels, known).all():
        return federation
    if len(labels) != len(known):
        raise ConfigError(
            f"{federation.source.name} has the labels {labels.tolist()}, "
            f"{type(model).__name__} needs {known.tolist()}"
        )
    y = known[np.searchsorted(labels, federation.source.y)]
    return replace(federation, source=replace(federation.source, y=y))


# ---- put together: usual values, file, flags ---------------------------------------------------


def completed(table: Table) -> dict[str, Any]:
    """A TOML document with split and model filled in from what is usual for its data."""
    out = underscored(table)
    data = dict(out.get("data") or {"name": "digits"})
    name = str(data.get("name", "digits"))
    rule, model = USUAL.get(name, ("natural", "logistic"))
    out["data"] = {"name": name, **{k: v for k, v in data.items() if k != "name"}}
    out["split"] = {"rule": rule, **dict(out.get("split", {}))}
    out["model"] = {"name": model, **dict(out.get("model", {}))}
    if out.get("epochs") is None and out.get("steps") is None:
        out["epochs"] = 1
    return out


def literal(text: str) -> Any:
    """A value as TOML spells it; what is no TOML value is a string."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def with_setting(table: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The document with one value changed. A dotted key goes into a table; a plain key is one of
    the experiment's own, or a hyperparameter of every algorithm that has it."""
    out = dict(table)
    head, _, rest = key.replace("-", "_").partition(".")
    own = {f.name for f in fields(Experiment)} | {"seed"}
    if rest:
        if head not in ("data", "split", "model", "algorithms", "sweep"):
            raise ConfigError(unknown("table", head, ("data", "split", "model", "algorithms")))
        inner = dict(out.get(head, {}))
        if head == "algorithms":
            label, _, name = key.partition(".")[2].rpartition(".")
            if label not in inner:
                raise ConfigError(unknown("algorithm of this run", label, inner))
            inner[label] = {**inner[label], name: value}
        else:
            inner[rest] = value
        out[head] = inner
        return out
    if head in own:
        if head in ("epochs", "steps") and value is not None:
            out.pop("steps" if head == "epochs" else "epochs", None)
        if head in ("seed", "seeds"):
            out.pop("seeds" if head == "seed" else "seed", None)
        out[head] = value
        return out
    return with_hyperparameter(out, head, value)


def with_hyperparameter(table: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The same value in every algorithm that has this hyperparameter; one at least must have it."""
    algorithms = dict(table.get("algorithms", {}))
    found = False
    for label, own in algorithms.items():
        cls = ALGORITHMS.get(str(own.get("algorithm", label)))
        if cls and name in {f.name for f in fields(cls)}:
            algorithms[label] = {**underscored(own), name: value}
            found = True
    if not found:
        known = {f.name for label in algorithms for f in fields(ALGORITHMS.get(label, Algorithm))}
        top = {f.name for f in fields(Experiment)}
        message = unknown("key", dashed(name), [dashed(k) for k in known | top])
        raise ConfigError(f"no algorithm of this run takes {dashed(name)}; {message}")
    return {**table, "algorithms": algorithms}


# ---- written back ------------------------------------------------------------------------------


def resolved(experiment: Experiment) -> dict[str, Any]:
    """Every value that the run depends on, as a TOML document."""
    out = {dashed(k): v for k, v in asdict(replace(experiment, **_PLAIN)).items() if v is not None}
    for name in _PLAIN:
        out.pop(name)
    out["seeds"] = list(experiment.seeds)
    out["data"] = dict(experiment.data)
    out["split"] = {dashed(k): v for k, v in split_table(experiment).items()}
    out["model"] = model_table(experiment)
    out["algorithms"] = {
        label: {
            "algorithm": str(table.get("algorithm", label)),
            **{
                dashed(f.name): _toml(getattr(algorithm(experiment, label), f.name))
                for f in fields(algorithm_class(experiment, label))
            },
        }
        for label, table in experiment.algorithms.items()
    }
    if experiment.sweep:
        out["sweep"] = {dashed(k): list(v) for k, v in experiment.sweep.items()}
    return out


def model_table(experiment: Experiment) -> dict[str, Any]:
    """The [model] table with every value that does not come from the data."""
    given = underscored(experiment.model)
    name = str(given.get("name", ""))
    if name not in MODELS:
        raise ConfigError(unknown("model", name, MODELS))
    cls = _MLPTable if name == "mlp" else MODELS[name]
    free = [f for f in fields(cls) if f.name not in ("features", "classes", "image")]
    values = {f.name: given.get(f.name, f.default) for f in free}
    return {"name": name, **{dashed(k): _toml(v) for k, v in values.items()}}


_PLAIN: dict[str, Any] = dict.fromkeys(("data", "split", "model", "algorithms", "sweep"), {})


def _toml(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def split_table(experiment: Experiment) -> dict[str, Any]:
    """The [split] table with every parameter of its rule (those found from the data left out)."""
    table = underscored(experiment.split)
    rule = str(table.get("rule", ""))
    if rule.endswith(".json"):  # a manifest
        return {"rule": rule}
    if rule not in RULES:
        raise ConfigError(unknown("split rule", rule, RULES))
    given = {k: v for k, v in table.items() if k not in ("rule", "seed")}
    known = RULES[rule].parameters
    for key in given:
        if key not in known:
            raise ConfigError(unknown(f"parameter of split {rule}", key, known))
    seed = value_of(int, table.get("seed", 0), "split seed")
    values = {name: given.get(name, parameter.default) for name, parameter in known.items()}
    return {"rule": rule, "seed": seed, **{k: v for k, v in values.items() if v is not None}}


def text(experiment: Experiment) -> str:
    """config.toml: reading it back gives the same experiment."""
    return tomli_w.dumps(resolved(experiment))


# ---- sweeps ------------------------------------------------------------------------------------


def sweep_points(table: Table) -> list[dict[str, Any]]:
    """Every combination of the values in [sweep], in order; one empty one where there is none."""
    sweep = dict(table.get("sweep", {}))
    for key, values in sweep.items():
        if not isinstance(values, list | tuple) or not values:
            raise ConfigError(f"sweep {key} is {values!r}, expected a list of values")
    combinations = itertools.product(*sweep.values())
    return [dict(zip(sweep, combination)) for combination in combinations]


def at_point(experiment: Experiment, point: Table) -> Experiment:
    """The experiment at one point of its sweep."""
    table = resolved(experiment)
    table.pop("sweep", None)
    table = underscored(table)
    for key, value in point.items():
        table = with_setting(table, key, value)
    return from_table(table)
