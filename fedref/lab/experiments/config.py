"""An experiment: everything that the numbers of a run depend on. It is a list of assignments.

The usual values, a TOML file, flags, `--set`, Python's arguments and a point of a sweep are assignments of
a value to a key, made one after the other by `assign`, and nothing else:

    rounds               one of the experiment's own values
    data.name            a value in a table; data, split and model alone are their names
    algorithms.apfl.mu   a hyperparameter of one algorithm
    mu                   the same hyperparameter in every algorithm that has it

The schema below says what each key is; how one is given, and how all are written as TOML, follows.
"""

import inspect
import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tomli_w

from fedref.algorithm import Algorithm, AnyAlgorithm
from fedref.algorithms import ALGORITHMS, HYPERPARAMETERS
from fedref.boundary.errors import ConfigError, printable, unknown
from fedref.boundary.files import open_regular_only
from fedref.boundary.values import (
    Bounds,
    Entry,
    build,
    check_fields,
    check_table,
    plain,
    quote,
    schema,
    seeds_of,
    with_dashes,
)
from fedref.lab.datasets import manifest
from fedref.lab.datasets.registry import SOURCES
from fedref.lab.datasets.rules import RULES, parameters_of
from fedref.lab.datasets.sources import is_in_memory, parse_name, usual_split
from fedref.lab.experiments import names
from fedref.models import FROM_DATA, Model
from fedref.sampling import Sampling

Table = Mapping[str, Any]
#: The key that is a table's name: data = "mnist" means data.name = "mnist".
NAME_KEYS = {"data": "name", "split": "rule", "model": "name"}
TABLES = (*NAME_KEYS, "algorithms", "sweep")
#: Of each pair of keys only one may have a value.
EXCLUSIVE = (("epochs", "steps"), ("seed", "seeds"))
#: How many clients take part in a round if an experiment does not say it.
USUAL_COHORT = 5


@dataclass(frozen=True)
class Experiment:
    """Everything that a run depends on. The tables are as in TOML, with underscores for dashes."""

    name: str = "run"
    rounds: Annotated[int, Bounds(0)] = 100
    clients_per_round: int | None = None
    epochs: int | None = None
    steps: int | None = None
    batch_size: int = 40
    sampling: str = "uniform"
    stragglers: float = 0.0
    support: float = 0.8
    seeds: Annotated[tuple[int, ...], Bounds(0)] = (0,)
    eval_every: Annotated[int, Bounds(1)] = 1
    clients_every: Annotated[int, Bounds(1)] | None = None
    keep_parameters: Annotated[int, Bounds(1)] | None = None
    eval_train: bool = True
    unseen: Annotated[float, Bounds(0, 1, open="high")] = 0.0
    classes: Literal["all", "own"] = "all"
    dissimilarity: bool = False
    dtype: Literal["float64", "float32"] = "float64"
    on_failure: Literal["fail", "drop"] = "fail"
    data: Table = field(default_factory=dict)  # name and its parameters
    split: Table = field(default_factory=dict)  # rule, seed and the rule's parameters
    model: Table = field(default_factory=dict)  # name and its parameters
    algorithms: Mapping[str, AnyAlgorithm] = field(default_factory=dict)  # by their labels
    sweep: Mapping[str, Any] = field(default_factory=dict)  # key → values

    meanings: ClassVar[Mapping[str, str]] = {
        "name": "the name of the run directory, after the time",
        "rounds": "communication rounds T (or K)",
        "clients_per_round": "clients that take part in a round (default 5, or all if there are fewer)",
        "epochs": "local epochs E; or set steps (FedMeta, FedMAML: one episode)",
        "steps": "local steps τ, 10 if no epochs are set (centralised: always one epoch)",
        "batch_size": "rows of a mini-batch; 0: all local rows",
        "sampling": "how the cohort is drawn: uniform, or by-samples",
        "stragglers": "fraction of the cohort that does only part of the work",
        "support": "fraction of a client's rows in the support set (FedMeta, FedMAML)",
        "seeds": "seeds of start, cohorts and batches, one run each: 7, or 3,7, or 0:3 for 0, 1, 2",
        "eval_every": "rounds between evaluations (first and last are always evaluated)",
        "clients_every": "rounds between evaluations that clients.csv holds, beside the first and the "
        "last (default: it holds all)",
        "keep_parameters": "rounds between states that parameters/ holds, beside the first and the "
        "last (default: it holds none)",
        "eval_train": "also evaluate the training loss of every client",
        "unseen": "if > 0: train on 80 % of the clients only; 10 % are tested unseen and 10 % for "
        "validation, adapting to this fraction of their rows",
        "classes": "the classes of the model: all, or own: each client's own, counted from 0 (k-way)",
        "dissimilarity": "log FedProx's B and the gradients' variance at evaluations",
        "dtype": "float64 or float32",
        "on_failure": "if a client raises an error: fail, or drop it and count it",
    }
    bounds: ClassVar[Mapping[str, Any]] = Sampling.bounds
    choices: ClassVar[Mapping[str, Any]] = Sampling.choices

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds are {list(self.seeds)}, expected different integers ≥ 0")
        for word in (self.name, *self.algorithms):
            if not word or word.startswith(".") or re.search(r"[/\\\x00-\x1f]", word):
                raise ConfigError(
                    f"name {word!r}: expected a word that can be part of a file's name"
                )
        for key, values in self.sweep.items():
            if key in ("name", "seed", "seeds", "algorithms"):
                how = " (the key seeds takes several seeds without a sweep)" * ("seed" in key)
                raise ConfigError(f"sweep {key}: cannot be swept{how}")
            if not isinstance(values, list) or not values:
                raise ConfigError(f"sweep {key} is {quote(values)}, expected a list of values")
        self.plan_of(USUAL_COHORT)  # checks its own values

    def plan_of(self, clients: int) -> Sampling:
        """Return how the rounds are drawn from this many clients."""
        values = {f.name: getattr(self, f.name) for f in fields(Sampling)}
        usual = min(USUAL_COHORT, clients)
        return Sampling(**values | {"clients_per_round": self.clients_per_round or usual})


def setting_entries() -> dict[str, Entry]:
    """Return every key of an experiment that is no table: its own, and hyperparameters."""
    entries = {name: entry for name, entry in schema(Experiment).items() if name not in TABLES}
    return entries | {
        name: Entry(name, str, None, meaning=m) for name, m in HYPERPARAMETERS.items()
    }


# ---- assignments ---------------------------------------------------------------------------------


def experiment_of(*groups: Iterable[tuple[str, Any]]) -> Experiment:
    """Make an experiment of the (key, value) that are assigned, one group after the other.

    In a group, whole tables come first: they say which algorithms there are.
    """
    table: dict[str, Any] = {head: {} for head in TABLES}
    for group in map(list, groups):
        given = {key for key, value in group if value is not None}
        for one, other in EXCLUSIVE:
            if given.issuperset((one, other)):
                raise ConfigError(f"both {one} and {other} are given, expected one of them")
        for key, value in sorted(group, key=lambda pair: pair[0] not in TABLES):
            assign(table, key, value)
    return complete(table)


def assign(table: dict[str, Any], key: str, value: Any) -> None:
    """Set one value in the table of an experiment."""
    head, _, rest = key.partition(".")
    head, value = head.replace("-", "_"), as_given(value)
    if head == "seed":
        head, value = "seeds", None if value is None else [value]
    if head == "algorithms":
        assign_algorithm(table["algorithms"], rest, value)
    elif head == "sweep":
        table["sweep"] |= {spell_key(rest): value} if rest else dict(leaves(value))
    elif head in NAME_KEYS:
        assign_in_table(table, head, rest.replace("-", "_"), value)
    elif rest:
        raise ConfigError(unknown("table", head, TABLES))
    elif head not in schema(Experiment):
        assign_hyperparameter(table, head, value)
    else:
        refuse_list(head, value, schema(Experiment)[head])
        if head in EXCLUSIVE[0] and value is not None:
            table |= dict.fromkeys(EXCLUSIVE[0])
        table[head] = seeds_of(value) if head == "seeds" and isinstance(value, str) else value


def assign_in_table(table: dict[str, Any], head: str, key: str, value: Any) -> None:
    """Set one value of [data], [split] or [model], or several; another name has other values."""
    if not key and isinstance(value, Mapping) and not is_in_memory(value):
        values = with_underscores(value, head)
    else:
        values = {key or NAME_KEYS[head]: value}
    name, before = values.get(NAME_KEYS[head]), table[head]
    if name is not None and not (isinstance(name, str) and before.get(NAME_KEYS[head]) == name):
        takes_users = isinstance(name, str) and hasattr(RULES.get(name), "users")
        before = {"users": before["users"]} if "users" in before and takes_users else {}
    table[head] = before | values


def assign_algorithm(tables: dict[str, Any], key: str, value: Any) -> None:
    """Choose the algorithms, or set one value of one of them by LABEL.KEY."""
    label, _, name = key.rpartition(".")
    if not key:
        chosen = choose_algorithms(value, dict(tables))
        tables.clear()
        tables |= chosen
    elif label in tables:
        tables[label][name.replace("-", "_")] = value
    else:
        raise ConfigError(unknown("algorithm of this run", label or name, tables))


def choose_algorithms(wanted: Any, tables: Table) -> dict[str, dict[str, Any]]:
    """Return the tables of the wanted algorithms, with their settings in `tables`.

    wanted : {label: name, table, class or object}, or labels, names, classes and objects, one or several.
    """
    if not isinstance(wanted, Mapping):
        words = wanted if isinstance(wanted, list | tuple) else [wanted]
        words = [*itertools.chain(*(ALGORITHMS if one == "all" else [one] for one in words))]
        labelled = dict(label_algorithm(one, tables) for one in words)
        if len(labelled) < len({quote(one) for one in words}):
            raise ConfigError(
                "two algorithms have the same label, expected different ones, as in "
                "[algorithms.LABEL] or algorithms={LABEL: ...}"
            )
        wanted = labelled
    result = {}
    for label, one in wanted.items():
        if isinstance(one, Algorithm):
            one = {"algorithm": type(one), **values_of(one)}
        elif isinstance(one, str | type):
            one = {"algorithm": one}
        result[str(label)] = with_underscores(as_given(one), f"algorithms.{label}")
    return result


def label_algorithm(one: Any, tables: Table) -> tuple[str, Any]:
    """Return the label of an algorithm that is given without one, and its table."""
    if isinstance(one, str) and one in tables:
        return one, tables[one]
    cls = names.find_class("algorithm", type(one) if isinstance(one, Algorithm) else one)
    if isinstance(one, str):
        label = one.rpartition(":")[2].rpartition(".")[2]
        return label, {} if label == one else {"algorithm": one}
    name = names.importable_name(cls)
    return cls.__name__ if ":" in name else name, one


def assign_hyperparameter(table: dict[str, Any], name: str, value: Any) -> None:
    """Set a hyperparameter in every algorithm that has it."""
    having = set[str]()
    for label, values in table["algorithms"].items():
        cls = names.find_class("algorithm", values.get("algorithm", label))
        entries = {key: entry for key, entry in schema(cls).items() if key not in cls.unused}
        having |= entries.keys()
        if name in entries:
            refuse_list(name, value, entries[name])
            values[name] = value
    if name in having:
        return
    having = {*map(with_dashes, having)}
    key, tables = with_dashes(name), named_tables(table).items()
    homes = [f"{head}.{key}" for head, values in tables if name in values]
    if not homes and name not in HYPERPARAMETERS:
        known = {*map(with_dashes, [*schema(Experiment), *HYPERPARAMETERS]), *having}
        raise ConfigError(unknown("key", key, known))
    right = (
        f"did you mean {' or '.join(homes)}?" if homes else f"they take {', '.join(sorted(having))}"
    )
    raise ConfigError(f"no algorithm of this run takes {key}; {right}")


def refuse_list(key: str, value: Any, entry: Entry) -> None:
    """Name the way to a sweep if several numbers are given for a key that holds one."""
    number = r"\s*[-+\d.][-+\d.eE_]*\s*"
    listed = isinstance(value, str) and re.fullmatch(f"{number}(,{number})+", value)
    if entry.kind in (int, float) and not entry.many and (listed or isinstance(value, list)):
        values = value if isinstance(value, list) else f"[{value}]"
        raise ConfigError(
            f"{with_dashes(key)} is {quote(value)}, expected {'a' if entry.kind is float else 'a whole'} "
            f'number; a sweep takes several: --set "sweep.{with_dashes(key)}={values}"'
        )


def as_given(value: Any) -> Any:
    """Return a value in TOML's types; data, classes, functions and objects have none, and stay."""
    if is_in_memory(value) or callable(value) or isinstance(value, Algorithm | Model):
        return value
    if isinstance(value, Mapping):
        return {key: as_given(item) for key, item in value.items()}
    return plain(value)


def with_underscores(table: Any, where: str) -> dict[str, Any]:
    """Return a table with keys as Python spells them; refuse a key that is set in both spellings."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} is {quote(table)}, expected a table")
    result = {str(key).replace("-", "_"): value for key, value in table.items()}
    if len(result) < len(table):
        keys = [str(key).replace("-", "_") for key in table]
        twice = with_dashes(next(key for key in keys if keys.count(key) > 1))
        raise ConfigError(f"{where} sets {twice} twice, with a dash and an underscore")
    return result


def leaves(sweep: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (key, values) of [sweep], whose dotted keys TOML reads as nested tables."""
    if not isinstance(sweep, Mapping):
        raise ConfigError(f"sweep is {quote(sweep)}, expected a table")
    for key, value in sweep.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{key}.")
        else:
            yield spell_key(f"{above}{key}"), value


def spell_key(key: str) -> str:
    """Spell a key with dashes, but not the label in algorithms.LABEL.KEY."""
    head, _, name = key.rpartition(".")
    return f"{head}.{with_dashes(name)}" if head.startswith("algorithms.") else with_dashes(key)


# ---- a table becomes an Experiment ---------------------------------------------------------------

#: The model of a named data set if the experiment names none; logistic regression for all others.
USUAL_MODEL = {
    "digits": "mlp", "cifar10-gray": "cnn", "vehicle": "svm", "landmine": "svm",
    "shakespeare": "lstm", "sent140": "lstm",
}  # fmt: skip
#: Parameters of the usual split rule of a data set, if the experiment does not set them.
USUAL_SPLIT = {"digits": {"users": 20, "train_fraction": 0.7}}


def complete(table: dict[str, Any]) -> Experiment:
    """Make an experiment of its table, with every value that does not depend on the data."""
    if not table["algorithms"]:
        raise ConfigError(f"no algorithm is named, expected one of {', '.join(ALGORITHMS)}")
    is_open = table.get("epochs") is None and table.get("steps") is None
    usual = {"steps": 10} if is_open else {}
    algorithms = {label: make_algorithm(label, one) for label, one in table["algorithms"].items()}
    tables = named_tables(table)
    name = names.default_run_name(tables["data"]["name"])
    return build(
        Experiment, {"name": name, **table, **usual, **tables, "algorithms": algorithms}, ""
    )


def make_algorithm(label: str, table: Table) -> AnyAlgorithm:
    """Make the algorithm of [algorithms.LABEL]; refuse a value for a key that it does not use."""
    values = {key: value for key, value in table.items() if key != "algorithm"}
    cls = names.find_class("algorithm", table.get("algorithm", label))
    algorithm: AnyAlgorithm = build(cls, values, f"algorithms.{label}")
    for key in algorithm.unused:
        if getattr(algorithm, key) != schema(type(algorithm))[key].default:
            raise ConfigError(f"algorithms.{label} {with_dashes(key)}: it has no use for that key")
    return algorithm


def named_tables(table: Table) -> dict[str, dict[str, Any]]:
    """Return [data], [split] and [model]; what is left open is as usual for the data."""
    data = {"name": "digits"} | table["data"]
    name = data["name"].partition("(")[0].strip() if isinstance(data["name"], str) else ""
    usual: dict[str, Any] = {
        "data": data,
        "split": {"rule": usual_split(data["name"]), **USUAL_SPLIT.get(name, {})},
        "model": {"name": USUAL_MODEL.get(name, "logistic")},
    }
    for head in ("split", "model"):
        assign_in_table(usual, head, "", table[head])
    return {head: TABLE_OF[head](usual[head]) for head in usual}


def data_table(table: Table) -> dict[str, Any]:
    """Return [data] with every parameter of a named data set, or of the user's function."""
    name, rest = table["name"], {key: value for key, value in table.items() if key != "name"}
    if is_in_memory(name):
        return dict(table)
    function = names.find_function(name)
    if function is None:
        call = parse_name(Entry("data name", str).check(name), rest)
        return dict(table) if call is None else {"name": call[0], **call[1]}
    try:
        bound = inspect.signature(function).bind(**rest)
    except (TypeError, ValueError) as error:  # ValueError: a function without a signature
        raise ConfigError(f"data set {names.importable_name(name)}: {error}") from None
    bound.apply_defaults()
    return {"name": name, **bound.arguments}


def split_table(table: Table) -> dict[str, Any]:
    """Return [split] with every parameter of its rule; None: it depends on the data."""
    rule, seed = Entry("rule", str).check(table["rule"], "split"), table.get("seed", 0)
    rest = {key: value for key, value in table.items() if key not in ("rule", "seed")}
    if rule.endswith(".json"):  # a manifest
        refuse_more(f"split {rule} is a manifest and", [key for key in table if key != "rule"])
        return {"rule": rule}
    seed = seed if seed == "run" else Entry("seed", int).check(seed, "split")
    return {"rule": rule, "seed": seed, **parameters_of(rule, rest)}


def model_table(table: Table) -> dict[str, Any]:
    """Return [model] with every value that does not depend on the data."""
    name, rest = table["name"], {key: value for key, value in table.items() if key != "name"}
    if isinstance(name, Model):
        refuse_more(f"the model is a {type(name).__name__} and", rest)
        return dict(table)
    cls = names.find_class("model", name)
    given = check_table(cls, rest, f"model {names.importable_name(name)}", FROM_DATA)
    usual = {name: entry.default for name, entry in schema(cls).items() if name not in FROM_DATA}
    known = {key: value for key, value in usual.items() if value is not MISSING}
    return {"name": name, **known, **given}


def refuse_more(what: str, keys: Iterable[str]) -> None:
    """Refuse keys beside something that takes none."""
    if more := ", ".join(map(with_dashes, keys)):
        raise ConfigError(f"{what} takes no parameter, got {more}")


TABLE_OF = {"data": data_table, "split": split_table, "model": model_table}


# ---- files ---------------------------------------------------------------------------------------


@contextmanager
def naming(where: Any) -> Iterator[None]:
    """Prefix the message of an error once with `where`, the name of a file, if there is one."""
    try:
        yield
    except RecursionError:
        raise ConfigError(f"{where or 'a value'}: tables or lists are nested too deep") from None
    except ConfigError as error:
        named = not where or str(error).startswith(f"{where}: ")
        raise (error if named else ConfigError(f"{where}: {error}")) from None


def read(path: Path) -> dict[str, Any]:
    """Read a TOML file; a ConfigError names it."""
    with naming(path):
        try:
            with open(path, "rb", opener=open_regular_only) as file:
                table = tomllib.load(file)
        except OSError as error:
            raise ConfigError(f"cannot be read ({error.strerror}), expected a TOML file") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"is not TOML ({error})") from None
        return with_underscores(table, "the experiment")


def read_experiment(directory: Path, code: bool = True) -> Experiment:
    """Return the experiment in a run directory's config.toml.

    code : whether to import the user's own code that it names; else stand-ins hold its values.
    """
    path = directory / "config.toml"
    if not path.is_file():
        raise ConfigError(
            f"{directory}: is not a run directory, expected {path}; if a run ended before it wrote "
            "that file, the same `fedref run` again starts it"
        )
    with naming(path):
        table = read(path)
        return experiment_of((table if code else names.with_stand_ins(table)).items())


def compose(what: Any, settings: Iterable[tuple[str, Any]]) -> Experiment:
    """Return the experiment of a TOML file, a table, or None: the built-in one; with settings on top.

    Algorithms in its place are those of the built-in one.
    """
    settings = [(key, value) for key, value in settings if value is not None]
    if isinstance(what, list | type | Algorithm) or (isinstance(what, str) and what in ALGORITHMS):
        if "algorithms" in dict(settings):
            raise ConfigError(
                f"{printable(what)} and other algorithms are given, expected one of them"
            )
        what, settings = None, [("algorithms", what), *settings]
    data = dict(settings).get("data", "digits")
    if isinstance(data, Mapping) and not is_in_memory(data):
        arrays = ", ".join(
            key for key, x in data.items() if key != "name" and getattr(x, "ndim", 0)
        )
        if arrays:
            raise ConfigError(f"data is a table with the arrays {arrays}, expected X and y")
    elif not isinstance(data, str) and not is_in_memory(data):
        names.find_function(data)  # refuses what is none
    settings += data_of_manifest(dict(settings))
    if isinstance(what, Experiment):
        base = values_of(what)
    elif isinstance(what, Mapping):
        base = with_underscores(what, "the experiment")
    elif what is None:
        base = built_in_table(dict(settings).get("data"))  # also that of a manifest
    elif isinstance(what, str | Path):
        base = {"name": Path(what).stem, **read(Path(what))}
    else:
        raise ConfigError(
            f"the experiment is {quote(what)}, expected a TOML file, a table, algorithms, or None"
        )
    with naming(what if isinstance(what, str | Path) else ""):
        return experiment_of(base.items(), settings)


def built_in_table(data: Any = None) -> dict[str, Any]:
    """Return the table that is run for a named data set by default, else that of the digits with it."""
    name = data if isinstance(data, str) and data in SOURCES else "digits"
    file = files("fedref.lab.experiments") / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else built_in_table()


def data_of_manifest(settings: Table) -> list[tuple[str, Any]]:
    """Return the assignment of the data that a manifest given as `split` was made of; refuse others."""
    rule, data = settings.get("split"), settings.get("data")
    if not (isinstance(rule, str) and rule.endswith(".json")):
        return []
    name = str(manifest.read(rule)["source"]["name"])
    if data is None:
        return [("data", name)]
    if isinstance(data, str):
        same_file = name == Path(data).resolve().name  # a manifest has no more of a file's path
        if not same_file and (parse_name(data) or data) != parse_name(name):
            raise ConfigError(f"data is {data}, but {rule} is a split of {name}")
    return []


def values_of(instance: Any) -> dict[str, Any]:
    """Return the values of an experiment, an algorithm or a model, by their keys."""
    return {name: getattr(instance, name) for name in schema(type(instance))}


def toml_text(experiment: Experiment) -> str:
    """Return config.toml as text: every value. Reading it back gives the same experiment."""

    def table(values: Table) -> dict[str, Any]:
        return {with_dashes(key): as_toml(x) for key, x in values.items() if x is not None}

    def as_toml(value: Any) -> Any:
        value = value if is_in_memory(value) else plain(value)
        kept = isinstance(value, bool | int | float | str | list | dict)
        return value if kept and not is_in_memory(value) else names.importable_name(value)

    values = values_of(experiment)
    document = table({key: value for key, value in values.items() if key not in TABLES})
    document |= {head: table(values[head]) for head in NAME_KEYS}
    if isinstance(model := experiment.model["name"], Model):
        sizes = dict.fromkeys(FROM_DATA)
        document["model"] |= table(values_of(model) | sizes)
    document["algorithms"] = {
        label: table({"algorithm": algorithm, **values_of(algorithm)})
        for label, algorithm in experiment.algorithms.items()
    }
    if experiment.sweep:
        document["sweep"] = plain(experiment.sweep)
    try:
        return tomli_w.dumps(document)
    except ValueError:  # Python refuses to write such a number
        raise ConfigError("a value has thousands of digits, expected a number below 2^63") from None


def stamp(experiment: Experiment) -> str:
    """Return the SHA-256 of all values of an experiment, which identifies it."""
    return sha256(toml_text(experiment).encode()).hexdigest()


# ---- sweeps --------------------------------------------------------------------------------------


def sweep_points(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """Yield every combination of the values in [sweep], in order; {} without a sweep."""
    for values in itertools.product(*experiment.sweep.values()):
        yield dict(zip(experiment.sweep, values))


def at_point(experiment: Experiment, point: Table) -> Experiment:
    """Return the experiment at one point of its sweep."""
    if not experiment.sweep:
        return experiment
    with naming(f"sweep {quote(point)}"):
        return experiment_of((values_of(experiment) | {"sweep": {}}).items(), point.items())


def depends_on(label: str, algorithm: AnyAlgorithm, key: str) -> bool:
    """Return whether an algorithm depends on a swept key."""
    if key.startswith("algorithms."):
        return key.rpartition(".")[0] == f"algorithms.{label}"
    name = key.replace("-", "_")
    used = name in schema(type(algorithm)) and name not in algorithm.unused
    return "." in key or name in schema(Experiment) or used
