"""An experiment: everything that the numbers of a run depend on, read from TOML and written to it.

TOML, with settings on top → Experiment → config.toml. `complete` makes a table with keys as Python
spells them and with every sub-table; `experiment_of` makes it an Experiment with every value.

Long because the values of an experiment come from a file, from flags and from Python.
"""

import itertools
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import tomli_w

from fedref.algorithm import Algorithm
from fedref.algorithms import ALGORITHMS, HYPERPARAMETERS
from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.files import open_regular_only
from fedref.boundary.values import Bounds, build, check_fields, plain, quote, with_dashes
from fedref.datasets.formats import leaf
from fedref.datasets.registry import SOURCES
from fedref.datasets.sources import find, is_in_memory, parse_name, usual_split
from fedref.experiments import names
from fedref.experiments.names import Table
from fedref.models import FROM_DATA
from fedref.sampling import Sampling

# ---- the experiment ------------------------------------------------------------------------------

DTYPES = ("float64", "float32")
#: How many clients take part in a round if an experiment does not say it.
USUAL_COHORT = 5
TABLES = ("data", "split", "model", "algorithms", "sweep")


def _field(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Experiment:
    """Everything that a run depends on. The tables are as in TOML, with underscores for dashes."""

    name: str = _field("run", "the name of the run directory, after the time")
    rounds: int = _field(100, "communication rounds T (or K)")
    clients_per_round: int | None = _field(
        None, "clients that take part in a round (default 5, or all if there are fewer)"
    )
    epochs: int | None = _field(
        None, "local epochs E; or set steps (FedMeta, FedMAML: one episode)"
    )
    steps: int | None = _field(
        None, "local steps τ, 10 if no epochs are set (centralised: always one epoch)"
    )
    batch_size: int = _field(40, "rows of a mini-batch; 0: all local rows")
    sampling: str = _field("uniform", "how the cohort is drawn: uniform, or by-samples")
    stragglers: float = _field(0.0, "fraction of the cohort that does only part of the work")
    support: float = _field(
        0.8, "fraction of a client's rows in the support set (FedMeta, FedMAML)"
    )
    seeds: tuple[int, ...] = _field((0,), "seeds of start, cohorts and batches: one run each")
    eval_every: int = _field(1, "rounds between evaluations (first and last are always evaluated)")
    clients_every: int | None = _field(
        None,
        "rounds between evaluations that clients.csv holds, beside the first and the last "
        "(default: it holds all)",
    )
    keep_parameters: int | None = _field(
        None,
        "rounds between states that parameters/ holds, beside the first and the last (default: it "
        "holds none)",
    )
    eval_train: bool = _field(True, "also evaluate the training loss of every client")
    unseen: float = _field(
        0.0,
        "if > 0: train on 80 % of the clients only; 10 % are tested unseen and 10 % for validation, "
        "adapting to this fraction of their rows",
    )
    classes: str = _field(
        "all", "the classes of the model: all, or own: each client's own, counted from 0 (k-way)"
    )
    dissimilarity: bool = _field(
        False, "log FedProx's B and the gradients' variance at evaluations"
    )
    dtype: str = _field("float64", "float64 or float32")
    on_failure: str = _field("fail", "if a client raises an error: fail, or drop it and count it")
    data: Table = field(default_factory=dict)  # name and its parameters
    split: Table = field(default_factory=dict)  # rule, seed and the rule's parameters
    model: Table = field(default_factory=dict)  # name and its parameters
    algorithms: Mapping[str, Table] = field(default_factory=dict)  # label → hyperparameters
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # key → values

    bounds: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **Sampling.bounds,
        "rounds": (0,),
        "eval_every": (1,),
        "clients_every": (1,),
        "keep_parameters": (1,),
        "unseen": Bounds(0, 1, open="high"),
    }
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Sampling.choices,
        "dtype": DTYPES,
        "classes": ("all", "own"),
        "on_failure": ("fail", "drop"),
    }

    def __post_init__(self) -> None:
        check_fields(self)
        names.check_file_name(self.name, "name")
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds are {list(self.seeds)}, expected different integers ≥ 0")
        _ = self.plan  # checks its own values

    @property
    def plan(self) -> Sampling:
        """How the rounds are drawn."""
        values = {f.name: getattr(self, f.name) for f in fields(Sampling)}
        if self.clients_per_round is None:
            values["clients_per_round"] = USUAL_COHORT
        return Sampling(**values)


# ---- usual values --------------------------------------------------------------------------------

#: Pairs of keys that exclude each other.
EXCLUSIVE = (("seed", "seeds"), ("epochs", "steps"))

#: Local steps if an experiment sets neither steps nor epochs.
USUAL_STEPS = 10

#: The model of a named data set if the experiment names none; logistic regression for all others.
USUAL_MODEL = {
    "digits": "mlp",
    "cifar10-gray": "cnn",
    "vehicle": "svm",
    "landmine": "svm",
    "shakespeare": "lstm",
    "sent140": "lstm",
}

#: Parameters of the usual split rule of a data set, if the experiment does not set them.
USUAL_SPLIT = {"digits": {"users": 20, "train_fraction": 0.7}}


def usual_tables(data: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the usual ([split], [model]) of a data set, for what the experiment leaves open."""
    name = data.partition("(")[0].strip() if isinstance(data, str) else ""
    if name not in SOURCES:
        return {"rule": usual_split(data)}, {"name": "lstm" if is_text(data) else "logistic"}
    split = {"rule": usual_split(data), **USUAL_SPLIT.get(name, {})}
    return split, {"name": USUAL_MODEL.get(name, "logistic")}


def is_text(data: Any) -> bool:
    """Return whether data are a file or folder that holds text."""
    path = find(data) if isinstance(data, str) and parse_name(data) is None else None
    return path is not None and leaf.holds_text(path)


# ---- read ----------------------------------------------------------------------------------------


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Prefix the message of an error with `where`, the name of a file, if it is not empty."""
    try:
        yield
    except RecursionError:
        raise ConfigError(f"{where or 'a value'}: tables or lists are nested too deep") from None
    except ConfigError as error:
        raise (ConfigError(f"{where}: {error}") if where else error) from None


def read(path: Path) -> dict[str, Any]:
    """Read a TOML file; a ConfigError names it."""
    try:
        with open(path, "rb", opener=open_regular_only) as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}), expected a TOML file"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not TOML ({error})") from None
    return table


def built_in_table(data: str = "digits") -> dict[str, Any]:
    """Return the table that `fedref run` takes for a named data set by default; {} if it has none."""
    file = files("fedref.experiments") / f"{data}.toml"
    known = data in SOURCES and file.is_file()
    return tomllib.loads(file.read_text(encoding="utf-8")) if known else {}


def from_table(table: Table, where: str = "") -> Experiment:
    """Make an Experiment of a TOML table; errors name `where` it was read."""
    with naming(where):
        return experiment_of(complete(table))


def experiment_of(table: Table) -> Experiment:
    """Make an Experiment, with every value that does not depend on the data, of a completed table."""
    for one, other in EXCLUSIVE:
        if table.get(one) is not None and table.get(other) is not None:
            raise ConfigError(f"both {one} and {other} are set, expected one of them")
    if "seed" in table:
        table = {k: v for k, v in table.items() if k != "seed"} | {"seeds": [table["seed"]]}
    experiment: Experiment = build(Experiment, table, "")
    if not experiment.algorithms:
        raise ConfigError(f"no algorithm is named, expected one of {', '.join(ALGORITHMS)}")
    return replace(
        experiment,
        data=names.data_table(experiment.data),
        split=names.split_table(experiment.split),
        model=names.model_table(experiment.model),
        algorithms={
            label: names.algorithm_table(label, own) for label, own in experiment.algorithms.items()
        },
    )


# ---- put together: usual values, file, settings --------------------------------------------------


def with_underscores(table: Table, where: str = "the experiment") -> dict[str, Any]:
    """Return a TOML table with keys as Python spells them."""
    out = {str(key).replace("-", "_"): value for key, value in table.items()}
    if len(out) < len(table):
        keys = [str(key).replace("-", "_") for key in table]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ConfigError(f"{where} sets {with_dashes(twice)} twice, with a dash and an underscore")
    return out


def table_of(value: Any, where: str) -> dict[str, Any]:
    """Return a sub-table with keys as Python spells them; make one of a class or an object."""
    if isinstance(value, Algorithm):
        return {"algorithm": type(value)} | {f.name: getattr(value, f.name) for f in fields(value)}
    if where.startswith("algorithms.") and isinstance(value, type):
        return {"algorithm": value}
    as_name = where == "data" and (is_in_memory(value) or callable(value))
    if as_name or (where == "model" and hasattr(value, "hvp")):
        return {"name": value}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} is {quote(value)}, expected a table")
    arrays = [key for key, given in value.items() if key != "name" and getattr(given, "ndim", 0)]
    if where == "data" and arrays:
        raise ConfigError(f"data is a table with the arrays {', '.join(arrays)}, expected X and y")
    return with_underscores(value, where)


def complete(table: Table) -> dict[str, Any]:
    """Return an experiment's table with keys as Python spells them and with every sub-table.

    Split and model are the usual ones for the data if the table names none.
    """
    given = with_underscores(table)
    out = {key: plain(value) for key, value in given.items() if key not in TABLES}
    tables = {name: table_of(given.get(name, {}), name) for name in TABLES}
    for name in ("data", "split", "model"):
        tables[name] = {k: v if k == "name" else plain(v) for k, v in tables[name].items()}
    data = {"name": "digits", **tables["data"]}
    split, model = usual_tables(data["name"])
    if tables["split"].get("rule", split["rule"]) != split["rule"]:
        split = {}  # the usual parameters are those of another rule
    # the user has chosen the labels: their dashes and underscores stay
    algorithms = {
        label: plain(table_of(own, f"algorithms.{label}"))
        for label, own in given.get("algorithms", {}).items()
    }
    out |= {
        "data": data,
        "split": {**split, **tables["split"]},
        "model": {**model, **tables["model"]},
        "algorithms": algorithms,
        "sweep": flatten_sweep(plain(given.get("sweep", {}))),
    }
    if out.get("epochs") is None and out.get("steps") is None:
        out["steps"] = USUAL_STEPS
    return out


def flatten_sweep(sweep: Table, above: str = "") -> dict[str, Any]:
    """Return [sweep] with dotted keys such as model.hidden, which TOML reads as nested tables."""
    out: dict[str, Any] = {}
    for key, value in sweep.items():
        nested = isinstance(value, Mapping)
        out |= (
            flatten_sweep(value, f"{above}{key}.")
            if nested
            else {spell_key(f"{above}{key}"): value}
        )
    return out


def spell_key(key: str) -> str:
    """Spell a key with dashes, but not the label in algorithms.LABEL.KEY."""
    head, _, name = key.rpartition(".")
    return f"{head}.{with_dashes(name)}" if head.startswith("algorithms.") else with_dashes(key)


#: The key that a sub-table has for its name: data="mnist" is data={"name": "mnist"}.
NAME_KEYS = (("data", "name"), ("split", "rule"), ("model", "name"))


def compose(
    table: Table,
    algorithms: Sequence[Any] = (),
    choices: Table = MappingProxyType({}),
    settings: Iterable[tuple[str, Any]] = (),
) -> Experiment:
    """Make the experiment of a TOML table with other choices on top.

    algorithms : names, classes or objects that replace the table's, if there are any. choices :
    data, split and model, each a name, an object or a whole table. settings : keys and values that
    are set last.
    """
    table = dict(table)
    for head, key in NAME_KEYS:
        value, own = choices.get(head), table.get(head)
        same = isinstance(value, str) and isinstance(own, Mapping) and own.get(key) == value
        if value is not None and not same:  # if it is the same, keep the table's parameters for it
            whole = isinstance(value, Mapping) and not is_in_memory(value)
            table[head] = value if whole else {key: value}
    table = complete(table)
    if algorithms:
        table["algorithms"] = choose_algorithms(algorithms, table["algorithms"])
    return experiment_of(with_settings(table, settings))


def choose_algorithms(chosen: Sequence[Any], tables: Table) -> dict[str, Any]:
    """Return the [algorithms] tables of the chosen algorithms, with their settings in `tables`.

    chosen : labels of `tables`, names, classes or objects; "all" means each of fedref's own.
    """
    if "all" in (one for one in chosen if isinstance(one, str)):
        chosen = [*(one for one in chosen if one != "all"), *ALGORITHMS]
    result: dict[str, Any] = {}
    for i, one in enumerate(chosen):
        if any(one is other or (isinstance(one, str) and one == other) for other in chosen[:i]):
            continue
        label, table = named_algorithm(one, tables)
        if label in result:
            raise ConfigError(
                f"two algorithms are called {label}, expected different labels, as in "
                "[algorithms.LABEL] or algorithms={LABEL: ...}"
            )
        result[label] = plain(table_of(table, f"algorithms.{label}"))
    return result


def named_algorithm(chosen: Any, tables: Table) -> tuple[str, Any]:
    """Return (label, table) of one chosen algorithm, with its settings if it is a label of `tables`."""
    if isinstance(chosen, str) and chosen in tables:
        return chosen, tables[chosen]
    if isinstance(chosen, str) and not names.MODULE_NAME.fullmatch(chosen):
        known = {*ALGORITHMS, *tables, "all"}
        if chosen not in known and chosen not in (more := names.entry_points_of("algorithms")):
            raise ConfigError(unknown("algorithm", chosen, {*known, *more}))
    cls = names.algorithm_class(type(chosen) if isinstance(chosen, Algorithm) else chosen)
    name = names.importable_name(cls)
    if isinstance(chosen, str):
        label = chosen.rpartition(":")[2].rpartition(".")[2]
        return label, {} if label == chosen else {"algorithm": chosen}
    return cls.__name__ if ":" in name else name, chosen


def with_settings(table: Table, settings: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the completed table with some values changed, one after the other."""
    out, settings = dict(table), list(settings)
    named = {key for key, value in settings if value is not None}
    for one, other in EXCLUSIVE:
        if {one, other} <= named:
            raise ConfigError(f"both {one} and {other} are given, expected one of them")
    for key, value in settings:
        out = with_setting(out, key, value)
    return out


def with_setting(table: Table, key: str, value: Any) -> dict[str, Any]:
    """Return the completed table with one value changed.

    A dotted key goes into a sub-table. A plain key is one of the experiment's own; else it is a
    hyperparameter, and is set in every algorithm that has it.
    """
    value = plain(value)
    head, _, rest = key.partition(".")
    head = head.replace("-", "_")
    if rest:
        if head not in TABLES:
            raise ConfigError(unknown("table", head, TABLES))
        change = set_in_algorithm if head == "algorithms" else set_in_table
        return {**table, head: change(table[head], head, rest, value)}
    if head in TABLES:
        table_of(value, head)  # raises if the value cannot be such a table
        return complete({**table, head: value})
    if head not in {f.name for f in fields(Experiment)} | {"seed"}:
        return with_hyperparameter(table, head, value)
    out = dict(table)
    for pair in EXCLUSIVE:
        if head in pair and value is not None:
            out = {k: v for k, v in out.items() if k not in pair}
    return {**out, head: value}


def set_in_table(table: Table, head: str, key: str, value: Any) -> dict[str, Any]:
    """Return [data], [split], [model] or [sweep] with one value changed."""
    if head == "sweep":
        return {**flatten_sweep(table), spell_key(key): value}
    key = key.replace("-", "_")
    if key in ("name", "rule") and table.get(key) != value:
        return {key: value}  # the other values belong to another data set, rule or model
    return {**table, key: value}


def set_in_algorithm(table: Table, head: str, key: str, value: Any) -> dict[str, Any]:
    """Return [algorithms] with one value changed, by LABEL.KEY."""
    label, _, name = key.rpartition(".")
    if label not in table:
        raise ConfigError(unknown("algorithm of this run", label or name, table))
    return {**table, label: {**table[label], name.replace("-", "_"): value}}


def with_hyperparameter(table: Table, name: str, value: Any) -> dict[str, Any]:
    """Set a hyperparameter in every algorithm that has it; a ConfigError if none has it."""
    algorithms = dict(table["algorithms"])
    taken = {label: hyperparameters(label, own) for label, own in algorithms.items()}
    for label, known in taken.items():
        if name in known:
            algorithms[label] = {**algorithms[label], name: value}
    if not any(name in known for known in taken.values()):
        own = {f.name for f in fields(Experiment)}.union(HYPERPARAMETERS, *taken.values())
        message = unknown("key", with_dashes(name), map(with_dashes, own))
        if name in HYPERPARAMETERS:
            message = (
                f"they take {', '.join(sorted(map(with_dashes, set().union(*taken.values()))))}"
            )
        makers = {"data": names.data_table, "split": names.split_table, "model": names.model_table}
        if homes := [head for head, make in makers.items() if name in make(table[head])]:
            message = (
                f"did you mean {' or '.join(f'{head}.{with_dashes(name)}' for head in homes)}?"
            )
        raise ConfigError(f"no algorithm of this run takes {with_dashes(name)}; {message}")
    return {**table, "algorithms": algorithms}


def hyperparameters(label: str, table: Table) -> set[str]:
    """Return the names of an algorithm's hyperparameters."""
    return {f.name for f in fields(names.algorithm_class(table.get("algorithm", label)))}


# ---- writing -------------------------------------------------------------------------------------


def as_document(experiment: Experiment) -> dict[str, Any]:
    """Return every value of an experiment as a TOML document."""

    def as_toml(table: Table) -> dict[str, Any]:
        return {with_dashes(k): _toml(v) for k, v in table.items() if v is not None}

    own = {f.name: getattr(experiment, f.name) for f in fields(Experiment) if f.name not in TABLES}
    named = {name: as_toml(getattr(experiment, name)) for name in ("data", "split", "model")}
    if names.is_object(model := experiment.model["name"]):
        values = {f.name: getattr(model, f.name) for f in fields(model)}
        named["model"] |= as_toml({k: v for k, v in values.items() if k not in FROM_DATA})
    return {
        **as_toml(own),
        **named,
        "algorithms": {label: as_toml(table) for label, table in experiment.algorithms.items()},
        **({"sweep": flatten_sweep(experiment.sweep)} if experiment.sweep else {}),
    }


def _toml(value: Any) -> Any:
    """Convert a value to TOML's types; a class, a function or an object becomes its name."""
    if is_in_memory(value):
        return names.importable_name(value)
    if isinstance(value, tuple):
        return list(value)
    kept = isinstance(value, bool | int | float | str | list | dict)
    return value if kept else names.importable_name(value)


def toml_text(experiment: Experiment) -> str:
    """Return config.toml as text: reading it back gives the same experiment."""
    try:
        return tomli_w.dumps(as_document(experiment))
    except ValueError:  # Python refuses to write such a number
        raise ConfigError("a value has thousands of digits, expected a number below 2^63") from None


# ---- sweeps --------------------------------------------------------------------------------------


def sweep_points(experiment: Experiment) -> list[dict[str, Any]]:
    """Return every combination of the values in [sweep], in order; [{}] without a sweep."""
    sweep = experiment.sweep
    for key, values in sweep.items():
        if key in ("seed", "seeds", "name") or key.startswith("sweep"):
            raise ConfigError(
                f"sweep {key}: cannot be swept (the key seeds takes several seeds without a sweep)"
            )
        if not isinstance(values, list | tuple) or not values:
            raise ConfigError(f"sweep {key} is {quote(values)}, expected a list of values")
    combinations = itertools.product(*sweep.values())
    return [dict(zip(sweep, combination)) for combination in combinations]


def restrict_point(experiment: Experiment, label: str, point: Table) -> dict[str, Any]:
    """Return the keys and values of a sweep point that an algorithm depends on."""
    own = {f.name for f in fields(Experiment)}
    known = hyperparameters(label, experiment.algorithms[label])

    def concerns(key: str) -> bool:
        head, _, _ = key.rpartition(".")
        name = key.replace("-", "_")
        return head == f"algorithms.{label}" or (
            not head.startswith("algorithms.") and (bool(head) or name in own or name in known)
        )

    return {key: value for key, value in point.items() if concerns(key)}


def as_table(experiment: Experiment) -> dict[str, Any]:
    """Return an experiment as a completed table, which `with_settings` can change."""
    own = {f.name: getattr(experiment, f.name) for f in fields(Experiment)}
    return {key: value for key, value in own.items() if value is not None}


def change(experiment: Experiment, settings: Iterable[tuple[str, Any]]) -> Experiment:
    """Return the experiment with some values changed."""
    return experiment_of(with_settings(as_table(experiment), settings))


def at_point(experiment: Experiment, point: Table) -> Experiment:
    """Return the experiment at one point of its sweep."""
    with naming(f"sweep {quote(point)}" if point else ""):
        return change(replace(experiment, sweep={}), point.items())
