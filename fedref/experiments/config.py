"""An experiment as data: one TOML file, checked when it is read, written back with every value."""

import itertools
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fedref.algorithm import AnyAlgorithm
from fedref.algorithms import ALGORITHMS, HYPERPARAMETERS
from fedref.datasets.rules import parameters_of
from fedref.datasets.sources import SOURCES, parse_name
from fedref.errors import ConfigError, unknown
from fedref.federation import Federation, Source
from fedref.models import FROM_DATA, MODELS, Model
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
    epochs: int | None = _field(
        None, "local epochs E; or set steps (FedMeta, FedMAML: one episode)"
    )
    steps: int | None = _field(None, "local steps τ; or set epochs (centralised: always one epoch)")
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
        file_name(self.name, "name")
        for name, low in (("rounds", 0), ("eval_every", 1)):
            if getattr(self, name) < low:
                raise ConfigError(
                    f"{dashed(name)} is {getattr(self, name)}, expected at least {low}"
                )
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds are {list(self.seeds)}, expected different integers ≥ 0")
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
MOST_CLASSES = 100_000
TABLES = ("data", "split", "model", "algorithms", "sweep")

#: Two ways to say one thing: only one of each may be used.
EITHER = (("seed", "seeds"), ("epochs", "steps"))

#: The model for each source where the experiment names none; logistic regression for all others.
USUAL_MODEL = {
    "digits": "mlp",
    "cifar10": "cnn",
    "cifar10-gray": "cnn",
    "vehicle": "svm",
    "landmine": "svm",
}


def usual(data: str) -> tuple[str, str]:
    """(split rule, model) for a data set, where the experiment names none."""
    name = data.partition("(")[0].strip()
    rule = SOURCES[name].split if name in SOURCES else "natural"
    return rule, USUAL_MODEL.get(name, "logistic")


def dashed(name: str) -> str:
    """As it is written in TOML and on the command line."""
    return name.replace("_", "-")


def underscored(table: Table, where: str = "the experiment") -> dict[str, Any]:
    """A TOML table with keys as Python spells them."""
    out = {str(key).replace("-", "_"): value for key, value in table.items()}
    if len(out) < len(table):
        names = [str(key).replace("-", "_") for key in table]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{where} sets {dashed(twice)} twice, with a dash and an underscore")
    return out


def file_name(name: str, what: str) -> None:
    """Refuse what cannot be part of a file's name."""
    if not name or name.startswith(".") or re.search(r"[/\\\x00-\x1f]", name):
        raise ConfigError(f"{what} is {name!r}, expected a word that can be part of a file's name")


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Mistakes say in which file they are, if it is one."""
    try:
        yield
    except ConfigError as error:
        raise (ConfigError(f"{where}: {error}") if where else error) from None


# ---- checked values ---------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """As TOML has it: NumPy's numbers and arrays, tuples and ranges, as numbers and lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    return value


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
        value = float(value) if abs(value) < 2**63 else math.inf
    expected = {
        bool: "true or false",
        int: "an integer",
        float: "a finite number",
        str: "a string",
    }
    if hint in expected:
        fits = isinstance(value, hint) and not (hint is int and isinstance(value, bool))
        outside = fits and (
            (hint is int and abs(value) >= 2**63) or (hint is float and not math.isfinite(value))
        )
        if outside or not fits:
            raise ConfigError(f"{where} is {value!r}, expected {expected[hint]}")
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} is {value!r}, expected a table")
    return dict(value)


def table_of(value: Any, where: str) -> dict[str, Any]:
    """A TOML table with keys as Python spells them, or a ConfigError."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} is {value!r}, expected a table")
    return underscored(value, where)


def values_of(
    cls: type[Any], table: Table, where: str, given: Iterable[str] = ()
) -> dict[str, Any]:
    """The values of a table for a dataclass; unknown keys and wrong types are refused."""
    hints = typing.get_type_hints(cls)
    known = [f.name for f in fields(cls) if f.init and f.name not in given]
    values = {}
    for key, value in underscored(table, where).items():
        if key not in known:
            kind = f"key of {where}" if where else "key"
            raise ConfigError(unknown(kind, dashed(key), [dashed(k) for k in known]))
        values[key] = value_of(hints[key], value, f"{where} {dashed(key)}".strip())
    return values


def build(cls: type[Any], table: Table, where: str, **given: Any) -> Any:
    """A dataclass from a table, and from what the table does not say."""
    return cls(**values_of(cls, table, where, given), **given)


def from_table(table: Table, where: str = "") -> Experiment:
    """An Experiment with every value that does not come from the data; mistakes name `where`."""
    with naming(where):
        return _from_table(table)


def _from_table(table: Table) -> Experiment:
    table = completed(table)
    for one, other in EITHER:
        if table.get(one) is not None and table.get(other) is not None:
            raise ConfigError(f"both {one} and {other} are set, expected one of them")
    if "seed" in table:
        table["seeds"] = [table.pop("seed")]
    experiment: Experiment = build(Experiment, table, "")
    if not experiment.algorithms:
        raise ConfigError(f"no algorithm is named, expected one of {', '.join(ALGORITHMS)}")
    return replace(
        experiment,
        data=data_table(experiment.data),
        split=split_table(experiment.split),
        model=model_table(experiment.model),
        algorithms={label: algorithm_table(experiment, label) for label in experiment.algorithms},
    )


def read(path: Path) -> dict[str, Any]:
    """A TOML document, or a ConfigError that names the file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}), expected a TOML file"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not TOML ({error})") from None


def built_in() -> dict[str, Any]:
    """The experiment that `fedref run` runs when it is told nothing."""
    return tomllib.loads((files("fedref.experiments") / "digits.toml").read_text(encoding="utf-8"))


# ---- what an experiment names -----------------------------------------------------------------


def algorithm_class(experiment: Experiment, label: str) -> type[AnyAlgorithm]:
    """The class of one [algorithms.LABEL] table; its key `algorithm` is needed only where the label
    is a name of your own."""
    name = str(experiment.algorithms[label].get("algorithm", label))
    if name not in ALGORITHMS:
        raise ConfigError(unknown("algorithm", name, ALGORITHMS))
    return ALGORITHMS[name]


def algorithm(experiment: Experiment, label: str) -> AnyAlgorithm:
    """The algorithm of one [algorithms.LABEL] table."""
    table = {k: v for k, v in experiment.algorithms[label].items() if k != "algorithm"}
    made: AnyAlgorithm = build(algorithm_class(experiment, label), table, f"algorithms.{label}")
    return made


def make_model(table: Table, source: Source) -> Model:
    """The model of a [model] table, with its input and output sizes taken from the data."""
    table = model_table(table)
    name = table.pop("name")
    data = {"features": source.X.shape[1], "classes": class_count(source), "image": source.image}
    cls = MODELS[name]
    taken = {f.name: data[f.name] for f in fields(cls) if f.name in FROM_DATA}
    if None in taken.values():
        raise ConfigError(f"model {name} needs images, and {source.name} has none")
    made: Model = build(cls, table, f"model {name}", **taken)
    return made


def class_count(source: Source) -> int:
    """Classes 0..C−1 if the labels are such numbers, else as many as there are labels."""
    labels = source.labels
    if labels[-1] >= MOST_CLASSES:
        raise ConfigError(
            f"{source.name} has the label {labels[-1]}, expected classes 0 to C−1, "
            f"C at most {MOST_CLASSES}"
        )
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
    """A TOML document with keys as Python spells them, with every table, and with split and model
    filled in from what is usual for its data."""
    out = {key: plain(value) for key, value in underscored(table).items()}
    tables = {name: table_of(out.get(name, {}), name) for name in TABLES}
    data = {"name": "digits", **tables["data"]}
    rule, model = usual(value_of(str, data["name"], "data name"))
    # labels are names of the user's own: they stay as they are
    algorithms = {
        label: table_of(own, f"algorithms.{label}")
        for label, own in out.get("algorithms", {}).items()
    }
    out |= {
        "data": data,
        "split": {"rule": rule, **tables["split"]},
        "model": {"name": model, **tables["model"]},
        "algorithms": algorithms,
        "sweep": flat(out.get("sweep", {})),
    }
    if out.get("epochs") is None and out.get("steps") is None:
        out["epochs"] = 1
    return out


def flat(sweep: Table, above: str = "") -> dict[str, Any]:
    """[sweep] with model.hidden as one dotted key, whether or not TOML read it as nested tables."""
    out: dict[str, Any] = {}
    for key, value in sweep.items():
        nested = isinstance(value, Mapping)
        out |= flat(value, f"{above}{key}.") if nested else {spelled(f"{above}{key}"): value}
    return out


def spelled(key: str) -> str:
    """A key with dashes; the label in algorithms.LABEL.KEY stays as it is."""
    head, _, name = key.rpartition(".")
    return f"{head}.{dashed(name)}" if head.startswith("algorithms.") else dashed(key)


def literal(text: str) -> Any:
    """A value as TOML spells it, and .5 or 1.; what is neither is a string."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):
        return float(text) if re.fullmatch(r"[+-]?(\d+\.|\.\d+)([eE][+-]?\d+)?", text) else text


def with_settings(table: Table, settings: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The document, completed, with some values changed, one after the other."""
    out, settings = completed(table), list(settings)
    named = {key for key, value in settings if value is not None}
    for one, other in EITHER:
        if {one, other} <= named:
            raise ConfigError(f"both {one} and {other} are given, expected one of them")
    for key, value in settings:
        out = with_setting(out, key, value)
    return out


def with_setting(table: Table, key: str, value: Any) -> dict[str, Any]:
    """The completed document with one value changed. A dotted key goes into a table; a plain key is
    one of the experiment's own, or a hyperparameter of every algorithm that has it."""
    head, _, rest = key.partition(".")
    head = head.replace("-", "_")
    if rest:
        if head not in TABLES:
            raise ConfigError(unknown("table", head, TABLES))
        change = in_algorithms if head == "algorithms" else in_table
        return {**table, head: change(table_of(table[head], head), head, rest, value)}
    if head not in {f.name for f in fields(Experiment)} | {"seed"}:
        return with_hyperparameter(table, head, value)
    out = dict(table)
    for pair in EITHER:
        if head in pair and value is not None:
            out = {k: v for k, v in out.items() if k not in pair}
    return {**out, head: value}


def in_table(table: Table, head: str, key: str, value: Any) -> dict[str, Any]:
    """[data], [split], [model] or [sweep] with one value changed."""
    if head == "sweep":
        return {**flat(table), spelled(key): value}
    key = key.replace("-", "_")
    if key in ("name", "rule") and table.get(key) != value:
        return {key: value}  # the other values are those of another data set, rule or model
    return {**table, key: value}


def in_algorithms(table: Table, head: str, key: str, value: Any) -> dict[str, Any]:
    """[algorithms] with one value changed, by LABEL.KEY."""
    label, _, name = key.rpartition(".")
    if label not in table:
        raise ConfigError(unknown("algorithm of this run", label or name, table))
    return {**table, label: {**table[label], name.replace("-", "_"): value}}


def with_hyperparameter(table: Table, name: str, value: Any) -> dict[str, Any]:
    """The same value in every algorithm that has this hyperparameter; one at least must have it."""
    algorithms = dict(table["algorithms"])
    taken = {
        label: {
            f.name for f in fields(ALGORITHMS.get(str(own.get("algorithm", label)), AnyAlgorithm))
        }
        for label, own in algorithms.items()
    }
    for label, names in taken.items():
        if name in names:
            algorithms[label] = {**algorithms[label], name: value}
    if not any(name in names for names in taken.values()):
        own = {f.name for f in fields(Experiment)}.union(HYPERPARAMETERS)
        message = unknown("key", dashed(name), map(dashed, own))
        if name in HYPERPARAMETERS:
            message = f"they take {', '.join(sorted(map(dashed, set().union(*taken.values()))))}"
        raise ConfigError(f"no algorithm of this run takes {dashed(name)}; {message}")
    return {**table, "algorithms": algorithms}


# ---- written back ------------------------------------------------------------------------------


def resolved(experiment: Experiment) -> dict[str, Any]:
    """Every value of an experiment, as a TOML document."""

    def written(table: Table) -> dict[str, Any]:
        return {dashed(k): _toml(v) for k, v in table.items() if v is not None}

    own = {f.name: getattr(experiment, f.name) for f in fields(Experiment) if f.name not in TABLES}
    return {
        **written(own),
        **{name: written(getattr(experiment, name)) for name in ("data", "split", "model")},
        "algorithms": {label: written(table) for label, table in experiment.algorithms.items()},
        **({"sweep": flat(experiment.sweep)} if experiment.sweep else {}),
    }


def _toml(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def data_table(table: Table) -> dict[str, Any]:
    """[data] with every parameter of its source."""
    rest = {k: v for k, v in table.items() if k != "name"}
    found = parse_name(table["name"], rest)
    return dict(table) if found is None else {"name": found[0], **found[1]}


def split_table(table: Table) -> dict[str, Any]:
    """[split] with every parameter of its rule (None: to be found from the data)."""
    rule = value_of(str, table["rule"], "split rule")
    given = {k: v for k, v in table.items() if k not in ("rule", "seed")}
    if rule.endswith(".json"):  # a manifest
        if len(table) > 1:
            more = ", ".join(dashed(k) for k in table if k != "rule")
            raise ConfigError(f"split {rule} is a manifest and takes no parameter, got {more}")
        return {"rule": rule}
    seed = value_of(int, table.get("seed", 0), "split seed")
    return {"rule": rule, "seed": seed, **parameters_of(rule, given)}


def model_table(table: Table) -> dict[str, Any]:
    """[model] with every value that does not come from the data."""
    name = value_of(str, table["name"], "model name")
    if name not in MODELS:
        raise ConfigError(unknown("model", name, MODELS))
    cls = MODELS[name]
    values = {f.name: f.default for f in fields(cls) if f.default is not MISSING}
    values |= values_of(
        cls, {k: v for k, v in table.items() if k != "name"}, f"model {name}", FROM_DATA
    )
    return {"name": name, **{k: v for k, v in values.items() if k not in FROM_DATA}}


def algorithm_table(experiment: Experiment, label: str) -> dict[str, Any]:
    """[algorithms.LABEL] with every hyperparameter."""
    file_name(label, "the label of an algorithm")
    made = algorithm(experiment, label)
    name = str(experiment.algorithms[label].get("algorithm", label))
    return {"algorithm": name, **{f.name: getattr(made, f.name) for f in fields(made)}}


def text(experiment: Experiment) -> str:
    """config.toml: reading it back gives the same experiment."""
    return tomli_w.dumps(resolved(experiment))


# ---- sweeps ------------------------------------------------------------------------------------


def sweep_points(experiment: Experiment) -> list[dict[str, Any]]:
    """Every combination of the values in [sweep], in order; one empty one where there is none."""
    sweep = experiment.sweep
    for key, values in sweep.items():
        if key in ("seed", "seeds", "name") or key.startswith("sweep"):
            raise ConfigError(
                f"sweep {key}: a sweep is over other values (seeds have their own key)"
            )
        if not isinstance(values, list | tuple) or not values:
            raise ConfigError(f"sweep {key} is {values!r}, expected a list of values")
    combinations = itertools.product(*sweep.values())
    return [dict(zip(sweep, combination)) for combination in combinations]


def at_point(experiment: Experiment, point: Table) -> Experiment:
    """The experiment at one point of its sweep."""
    table = resolved(replace(experiment, sweep={}))
    return from_table(with_settings(table, point.items()), f"sweep {point}" if point else "")
