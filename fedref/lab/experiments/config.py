"""An experiment: everything that the numbers of a run depend on. It is one tree, and a key is a path in it.

    rounds               one of the experiment's own values
    data.name            a value in a table; data, split and model alone are their names
    algorithms.apfl.mu   a hyperparameter of one algorithm; or apfl.mu
    mu                   the same hyperparameter in every algorithm that has it

A TOML file, flags, `--set`, Python's arguments and a point of a sweep are assignments of values to paths
(`assignments`), which replace those of the tree one after the other (`assign`), and the tree becomes an
Experiment once (`complete`). A leaf's type, range, words, default and meaning stand where its class
declares it, and nowhere else: `fedref.boundary.values.schema` reads them, for keys as for flags.
"""

import inspect
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, replace
from hashlib import sha256
from importlib.resources import files
from itertools import chain, product
from numbers import Number
from pathlib import Path
from shlex import quote as quote_word
from typing import Annotated, Any, ClassVar, Literal

import tomli_w

from fedref.algorithm import Algorithm, AnyAlgorithm
from fedref.algorithms import ALGORITHMS, HYPERPARAMETERS, MEANINGS
from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.files import open_regular_only
from fedref.boundary.values import (
    Bounds,
    Entry,
    build,
    check_fields,
    check_table,
    literal,
    plain,
    quote,
    schema,
    seeds_of,
    values_of,
    with_dashes,
)
from fedref.lab.datasets import manifest
from fedref.lab.datasets.registry import OTHER_DATA, SOURCES
from fedref.lab.datasets.rules import RULES, parameters_of
from fedref.lab.datasets.sources import is_in_memory, parse_name
from fedref.lab.experiments import names
from fedref.models import FROM_DATA, Model
from fedref.sampling import Sampling

Table = Mapping[str, Any]
#: The key that is a table's name: data = "mnist" means data.name = "mnist".
NAME_KEYS = {"data": "name", "split": "rule", "model": "name"}
TABLES = (*NAME_KEYS, "algorithms", "sweep")
#: Other words for a key; `what` is the first argument of `fedref.run`.
ALIASES = {"seed": "seeds", "algorithm": "algorithms", "what": "algorithms"}
ALIASES |= {head: f"{head}.{name}" for head, name in NAME_KEYS.items()}
#: Of these two only one has a value.
EXCLUSIVE = {"epochs": "steps", "steps": "epochs"}
#: A name or a label is a part of files' names: with the seed, the hash and the round, at most 255 bytes.
MOST_BYTES, FILE_NAME = 180, re.compile(r"(?!\.)[^/\\\x00-\x1f\ud800-\udfff]+")
#: How many clients take part in a round if an experiment does not say it.
USUAL_COHORT = 5


@dataclass(frozen=True)
class Experiment:
    """Everything that a run depends on. The tables are as in TOML, with underscores for dashes.

    name : the name of the run directory, after the time
    rounds : communication rounds T (or K)
    clients_per_round : clients that take part in a round (default 5, or all if there are fewer)
    epochs : local epochs E; or set steps (FedMeta, FedMAML: one episode)
    steps : local steps τ, 10 if no epochs are set (centralised: always one epoch)
    batch_size : rows of a mini-batch; 0: all local rows
    sampling : how the cohort is drawn: uniform, or by-samples
    stragglers : fraction of the cohort that does only part of the work
    support : fraction of a client's rows in the support set (FedMeta, FedMAML)
    seeds : seeds of start, cohorts and batches, one run each: 7, or 3,7, or 0:3 for 0, 1, 2
    eval_every : rounds between evaluations (first and last are always evaluated)
    clients_every : rounds between evaluations that clients.csv holds, beside the first and the last
      (default: it holds all)
    keep_parameters : rounds between states that parameters/ holds, beside the first and the last
      (default: it holds none)
    eval_train : also evaluate the training loss of every client
    unseen : if > 0: train on 80 % of the clients only; 10 % are tested unseen and 10 % for validation,
      adapting to this fraction of their rows
    classes : the classes of the model: all, or own: each client's own, counted from 0 (k-way)
    dissimilarity : log FedProx's B and the gradients' variance at evaluations
    dtype : float64 or float32
    on_failure : if a client raises an error: fail, or drop it and count it
    """

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

    bounds: ClassVar[Mapping[str, Any]] = Sampling.bounds
    choices: ClassVar[Mapping[str, Any]] = Sampling.choices

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds are {list(self.seeds)}, expected different integers ≥ 0")
        for word in (self.name, *self.algorithms):
            if not FILE_NAME.fullmatch(word) or len(word.encode()) > MOST_BYTES:
                expected = f"a part of a file's name, at most {MOST_BYTES} bytes of UTF-8"
                raise ConfigError(f"name {quote(word)}: expected {expected}")
        for key, values in self.sweep.items():
            if path_of(key) in ("name", "algorithms", "seeds"):
                several = " (the keys algorithms and seeds take several values without a sweep)"
                why = "" if path_of(key) == "name" else several
                raise ConfigError(f"sweep {key}: cannot be swept{why}")
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
    own = {name: entry for name, entry in schema(Experiment).items() if name not in TABLES}
    return own | {k: Entry(k, str, None, meaning=text) for k, text in HYPERPARAMETERS.items()}


# ---- a source becomes assignments: path → value --------------------------------------------------


def assignments(source: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """Return path → value of all that a source gives; refuse a path that is given twice."""
    spellings, values = dict[str, str](), dict[str, Any]()
    for spelling, value in chain(*(leaves(str(key), value) for key, value in source)):
        path = path_of(spelling)
        for other in (path, EXCLUSIVE.get(path, path)):
            if spellings.get(other, spelling) != spelling:
                both = f"both {spellings[other]} and {spelling} are given"
                raise ConfigError(f"{both}, expected one of them")
        values.pop(path, None)  # the last one is assigned last
        spellings[path], values[path] = spelling, value
    return values


def leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of a value, or of each value in a table; nothing of None.

    Values have TOML's types, but for data, classes, functions and objects.
    """
    if path_of(key) == "algorithms":
        yield from leaves_of_algorithms(key, value)
    elif isinstance(value, Mapping) and is_table(key, value):
        for name, item in value.items():
            yield from leaves(f"{key}.{name}", item)
    elif value is not None:
        is_data = key in ("data", "data.name")
        yield key, value if is_data else plain(value)


def is_table(key: str, value: Table) -> bool:
    """Return whether a table holds values by their keys; data may be a table of arrays."""
    if key == "data" and "name" not in value:
        return all(x is None or isinstance(x, str | Number) for x in value.values())
    return key in NAME_KEYS or key.partition(".")[0] == "sweep"


def leaves_of_algorithms(key: str, wanted: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of the algorithms that are wanted, then which they are, by their labels.

    wanted : {label: name, table, class or object}, or labels, names, classes and objects, one or several.
    """
    if isinstance(wanted, Mapping):
        pairs = [(str(label), one) for label, one in wanted.items()]
    else:
        words = wanted if isinstance(wanted, list | tuple) else [wanted]
        words = [*chain(*(ALGORITHMS if isinstance(x, str) and x == "all" else [x] for x in words))]
        places = [names.importable_name(x) for x in words]
        last = [place.rpartition(":")[2].rpartition(".")[2] for place in places]
        labels = [p if last.count(word) > 1 else word for word, p in zip(last, places)]
        pairs = [*zip(labels, words)]
    chosen = dict[str, Any]()
    for label, one in pairs:
        table = table_of(one) if isinstance(one, Algorithm) else one
        if isinstance(table, Mapping):
            for name, x in table.items():
                yield from leaves(f"algorithms.{label}.{name}", x)
            chosen[label] = {"algorithm": table.get("algorithm", label)}
        elif isinstance(one, str) or callable(one):
            chosen[label] = {"algorithm": one} if isinstance(wanted, Mapping) else one
        else:
            where = f"algorithms.{label}" if isinstance(wanted, Mapping) else "algorithm"
            expected = "a table, or an algorithm's name, class or object"
            raise ConfigError(f"{where} is {quote(one)}, expected {expected}")
    if len(chosen) < len({quote(one) for _, one in pairs}):
        how = "as in [algorithms.LABEL] or algorithms={LABEL: ...}"
        raise ConfigError(f"two algorithms have the same label, expected different ones, {how}")
    if chosen or not isinstance(wanted, Mapping):  # an empty table says nothing
        yield key, chosen


def path_of(key: str) -> str:
    """Return the path of a key, spelled with underscores."""
    path = spell_key(key, "_")
    return ALIASES.get(path, path)


def spell_key(key: str, mark: str = "-") -> str:
    """Spell a key with one mark between words, but not the label in algorithms.LABEL.KEY."""
    label = re.match(r"(sweep[.])?algorithms[.].*[.]|", key)[0]  # type: ignore[index]
    return label + re.sub("[-_]", mark, key.removeprefix(label))


# ---- assignments replace values of the tree ------------------------------------------------------


def experiment_of(*sources: Iterable[tuple[Any, Any]], on: Experiment | None = None) -> Experiment:
    """Make an experiment of the (key, value) that are assigned, one source after the other.

    Of a source, the names of things come first: they say which other keys there are. A file without
    algorithms has values for those that are named beside it. on : an experiment to begin with.
    """
    tree: dict[str, Any] = tree_of(on) if on else {head: {} for head in TABLES}
    groups = [assignments(source) for source in sources]
    named = (values["algorithms"] for values in groups if "algorithms" in values)
    assign(tree, "algorithms", next(named, tree["algorithms"]))
    for values in groups:
        for path in sorted(values, key=lambda path: path not in ALIASES.values()):
            assign(tree, path, values[path])
    return complete(tree)


def tree_of(experiment: Experiment) -> dict[str, Any]:
    """Return all values of an experiment, each at its path."""
    tree = {key: x for key, x in values_of(experiment).items() if x is not None}
    tree |= {head: dict(tree[head]) for head in TABLES}
    return tree | {"algorithms": {k: table_of(x) for k, x in experiment.algorithms.items()}}


def table_of(algorithm: AnyAlgorithm) -> dict[str, Any]:
    """Return [algorithms.LABEL] of an algorithm."""
    return {"algorithm": type(algorithm), **values_of(algorithm)}


def assign(tree: dict[str, Any], path: str, value: Any) -> None:
    """Replace one value of an experiment, or a hyperparameter of all algorithms that have it."""
    head, _, rest = path.partition(".")
    if path == "algorithms":
        if not value:
            raise ConfigError(f"no algorithm is named, expected one of {', '.join(ALGORITHMS)}")
        tree[path] = {
            label: one if isinstance(one, Mapping) else tree[path].get(one) or {"algorithm": one}
            for label, one in value.items()
        }
    elif head in NAME_KEYS:
        tree[head] = with_values(head, tree[head], {rest: value})
    elif head == "sweep" and rest:
        tree[head][spell_key(rest)] = value
    elif path == "seeds" and isinstance(value, str | int) and not isinstance(value, bool):
        tree[path] = seeds_of(str(value))
    else:
        tables = [tree] if path in schema(Experiment) else tables_with(path, tree)
        refuse_several(path, value)
        tree.pop(EXCLUSIVE.get(path, ""), None)
        for table in tables:
            table[path.rpartition(".")[2]] = value


def with_values(head: str, before: Table, values: Table) -> dict[str, Any]:
    """Return [data], [split] or [model] with more values; under another name, it has other values."""
    name = values.get(NAME_KEYS[head])
    if name is not None and not (isinstance(name, str) and before.get(NAME_KEYS[head]) == name):
        takes_users = isinstance(name, str) and hasattr(RULES.get(name), "users")
        before = {"users": before["users"]} if takes_users and "users" in before else {}
    return {**before, **values}


def tables_with(path: str, tree: Table) -> list[dict[str, Any]]:
    """Return the tables of the algorithm that a path names, or of all that have it as a hyperparameter."""
    algorithms, where = tree["algorithms"], path.rpartition(".")[0]
    for label, table in algorithms.items():
        if where in (f"algorithms.{label}", spell_key(label, "_")):
            return [table]
    known = {
        label: used_entries(names.find_class("algorithm", table["algorithm"]))
        for label, table in algorithms.items()
    }
    if having := [algorithms[label] for label, entries in known.items() if path in entries]:
        return having
    if where and where not in TABLES:
        label, words = spell_key(where.removeprefix("algorithms.")), {*TABLES, *known}
        raise ConfigError(unknown("table or algorithm of this run", label, words))
    taken = {with_dashes(key) for entries in known.values() for key in entries}
    if path in HYPERPARAMETERS:
        takes = f"takes {with_dashes(path)}; they take {', '.join(sorted(taken))}"
        raise ConfigError(f"no algorithm of this run {takes}")
    tables: dict[str, Table] = {f"algorithms.{label}": one for label, one in known.items()}
    tables |= named_tables(tree)
    below = {f"{head}.{key}" for head, table in tables.items() for key in table}
    words = {*map(spell_key, {*schema(Experiment), *HYPERPARAMETERS, *below}), *taken}
    raise ConfigError(unknown("key", spell_key(path), words))


def used_entries(algorithm: type[Any]) -> dict[str, Entry]:
    """Return the hyperparameters that an algorithm makes use of."""
    return {key: entry for key, entry in schema(algorithm).items() if key not in algorithm.unused}


def refuse_several(path: str, value: Any) -> None:
    """Refuse several numbers in the place of one, which are a sweep."""
    text = f"[{value}]" if isinstance(value, str) else quote(value)
    several = literal(text) if "." not in path and path not in ("name", "seeds", *TABLES) else None
    if isinstance(several, list) and {type(x) for x in several} <= {int, float} and "," in text:
        key = spell_key(path)
        sweep = f'a sweep takes several: --set "sweep.{key}={text}"'
        raise ConfigError(f"{key} is {quote(value)}, expected one number; {sweep}")


# ---- a table becomes an Experiment ---------------------------------------------------------------


def complete(table: dict[str, Any]) -> Experiment:
    """Make an experiment of its table, with every value that does not depend on the data."""
    algorithms = {label: make_algorithm(label, one) for label, one in table["algorithms"].items()}
    usual: dict[str, Any] = {} if EXCLUSIVE.keys() & table else {"steps": 10}
    tables = named_tables(table)
    name = tables["data"]["name"]  # of a data set, a file or a function, which is the run's, too
    word = "data" if is_in_memory(name) else names.importable_name(name).rpartition(":")[2]
    usual["name"] = Path(os.path.abspath(word)).stem or "data"
    return build(Experiment, {**usual, **table, **tables, "algorithms": algorithms}, "")


def make_algorithm(label: str, table: Table) -> AnyAlgorithm:
    """Make the algorithm of [algorithms.LABEL]; refuse a value for a key that it does not use."""
    values = dict(table)
    cls = names.find_class("algorithm", values.pop("algorithm"))
    if taken := sorted(used_entries(cls).keys() & schema(Experiment).keys()):
        also = "is a setting of the run, too; expected another name"
        raise ConfigError(f"algorithms.{label}: {taken[0]} {also}")
    algorithm: AnyAlgorithm = build(cls, values, f"algorithms.{label}")
    for key in algorithm.unused:
        if getattr(algorithm, key) != schema(cls)[key].default:
            raise ConfigError(f"algorithms.{label} {with_dashes(key)}: it has no use for that key")
    return algorithm


def named_tables(table: Table) -> dict[str, dict[str, Any]]:
    """Return [data], [split] and [model]; what is left open is as usual for the data."""
    data = {"name": "digits"} | table["data"]
    name = data["name"].partition("(")[0].strip() if isinstance(data["name"], str) else ""
    usual = SOURCES.get(name, OTHER_DATA)
    split = with_values("split", {"rule": usual.split, **usual.split_values}, table["split"])
    model = with_values("model", {"name": usual.model}, table["model"])
    tables = {"data": data, "split": split, "model": model}
    return {head: complete_table(head, one) for head, one in tables.items()}


def complete_table(head: str, table: Table) -> dict[str, Any]:
    """Return [data], [split] or [model] with every value that does not depend on the data."""
    rest, key = dict(table), NAME_KEYS[head]
    name = rest.pop(key)
    shown = f"{head} {names.importable_name(name)}"
    whole = {
        "data": is_in_memory(name),
        "split": shown.endswith(".json"),  # a manifest
        "model": isinstance(name, Model),
    }
    if whole[head]:
        if rest:
            more = ", ".join(map(with_dashes, rest))
            raise ConfigError(f"{shown} has all its values and takes no more, got {more}")
        return {key: name}
    if head == "model":
        cls = names.find_class(head, name)
        given = check_table(cls, rest, shown, FROM_DATA)
        usual = {k: one.default for k, one in schema(cls).items() if k not in FROM_DATA}
        return {key: name} | {k: x for k, x in (usual | given).items() if x is not MISSING}
    if head == "data":
        if function := names.find_function(name):
            try:
                bound = inspect.signature(function).bind(**rest)
            except (TypeError, ValueError) as error:  # ValueError: a function without a signature
                raise ConfigError(f"{shown}: {error}") from None
            bound.apply_defaults()
            return {key: name, **bound.arguments}
        name, rest = parse_name(Entry("data name", str).check(name), rest) or (name, rest)
        return {key: name, **rest}
    rule, seed = Entry(key, str).check(name, head), rest.pop("seed", 0)
    seed = seed if seed == "run" else Entry("seed", int).check(seed, head)
    return {key: rule, "seed": seed, **parameters_of(rule, rest)}


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
    """Read a TOML file."""
    try:
        with open(path, "rb", opener=open_regular_only) as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror}), expected a TOML file") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is not TOML ({error})") from None


def read_experiment(directory: Path, code: bool = True) -> Experiment:
    """Return the experiment in a run directory's config.toml.

    code : whether to import the user's own code that it names; else stand-ins hold its values.
    """
    path = directory / "config.toml"
    if not directory.is_dir():
        raise ConfigError(f"{directory}: no such folder, expected a run directory")
    if not path.is_file():
        hint = "if a run ended before it wrote that file, the same `fedref run` again starts it"
        raise ConfigError(f"{directory}: is not a run directory, expected {path}; {hint}")
    with naming(path):
        table = read(path)
        return experiment_of((table if code else names.with_stand_ins(table)).items())


def compose(what: Any, settings: Iterable[tuple[str, Any]]) -> Experiment:
    """Return the experiment of a TOML file, a table, or None: the built-in one; with settings on top.

    Algorithms in its place are those of the built-in one.
    """
    settings = [(key, value) for key, value in settings if value is not None]
    given, on = dict(settings), what if isinstance(what, Experiment) else None
    is_name = isinstance(what, str) and what in ALGORITHMS
    if is_name or callable(what) or isinstance(what, list | Algorithm):
        what, settings = None, [("what", what), *settings]
    data = data_of_manifest(given.get("split"), given.get("data"))
    with naming(what if isinstance(what, str | Path) else ""):
        if isinstance(what, str | Path):
            what = {"name": Path(what).stem, **read(Path(what))}
        table = {} if on else built_in_table(data) if what is None else what
        if not isinstance(table, Mapping):
            expected = "a TOML file, a table, algorithms, or None"
            raise ConfigError(f"the experiment is {quote(what)}, expected {expected}")
        experiment = experiment_of(table.items(), [*settings, ("data", data)], on=on)
    refuse_two_meanings(experiment, settings)
    return experiment


def refuse_two_meanings(experiment: Experiment, settings: Iterable[tuple[str, Any]]) -> None:
    """Refuse a setting of all algorithms, as --alpha, that two of them understand differently."""
    for key, value in assignments(settings).items():
        name, used = key.removeprefix("sweep."), experiment.algorithms.items()
        kinds = {label: type(one) for label, one in used if name in used_entries(type(one))}
        if len({meaning_of(name, cls) for cls in kinds.values()} - {None}) > 1:
            word = f"{with_dashes(name)}={json.dumps(value, separators=(',', ':'))}"
            lines = (quote_word(f"{key.removesuffix(name)}{label}.{word}") for label in kinds)
            raise ConfigError(
                f"{with_dashes(name)} means different things to {', '.join(kinds)}; expected it for those "
                f"that you mean: --set {' --set '.join(lines)}"
            )


def meaning_of(name: str, cls: type[Any]) -> str | None:
    """Return what a hyperparameter is to a built-in algorithm; None to one's own, whose author knows it."""
    for one, meaning in MEANINGS.get(name, {}).items():
        if issubclass(cls, ALGORITHMS[one]):
            return meaning
    built_in = any(name in schema(base) for base in cls.__mro__ if base in ALGORITHMS.values())
    return "" if built_in else None


def built_in_table(data: Any = None) -> dict[str, Any]:
    """Return the table that is run for a named data set by default, else that of the digits with it."""
    name = data if isinstance(data, str) and data in SOURCES else "digits"
    file = files("fedref.lab.experiments") / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else built_in_table()


def data_of_manifest(rule: Any, data: Any) -> Any:
    """Return the data that a manifest given as `split` was made of; refuse others."""
    if not (isinstance(rule, str) and rule.endswith(".json")):
        return data
    name = str(manifest.read(rule)["source"]["name"])
    if isinstance(data, str):
        same_file = name == Path(data).resolve().name  # a manifest has no more of a file's path
        if not same_file and (parse_name(data) or data) != parse_name(name):
            raise ConfigError(f"data is {data}, but {rule} is a split of {name}")
    return name if data is None else data


def toml_text(experiment: Experiment) -> str:
    """Return config.toml as text: every value. Reading it back gives the same experiment."""

    def table(values: Table) -> dict[str, Any]:
        return {with_dashes(key): as_toml(x) for key, x in values.items() if x is not None}

    def as_toml(value: Any) -> Any:
        kept = None if is_in_memory(value) else plain(value)
        is_toml = isinstance(kept, bool | int | float | str | list | dict)
        return kept if is_toml else names.importable_name(value)

    document = tree_of(experiment)
    if isinstance(model := experiment.model["name"], Model):
        document["model"] = {"name": model, **values_of(model), **dict.fromkeys(FROM_DATA)}
    document |= {head: table(document[head]) for head in NAME_KEYS}
    document["algorithms"] = {k: table(one) for k, one in document["algorithms"].items()}
    document["sweep"] = plain(experiment.sweep) or None
    try:
        return tomli_w.dumps(table(document))
    except ValueError:  # Python refuses to write such a number
        raise ConfigError("a value has thousands of digits, expected a number below 2^63") from None


def stamp(experiment: Experiment) -> str:
    """Return the SHA-256 of all values of an experiment, which identifies it."""
    return sha256(toml_text(experiment).encode()).hexdigest()


# ---- sweeps --------------------------------------------------------------------------------------


def sweep_points(experiment: Experiment) -> Iterator[tuple[dict[str, Any], Experiment]]:
    """Yield every combination of the values in [sweep], in order, or {}, and the experiment with these."""
    on = replace(experiment, sweep={})
    for values in product(*experiment.sweep.values()):
        point = dict(zip(experiment.sweep, values))
        with naming(f"sweep {quote(point)}"):
            one = experiment_of(point.items(), on=on) if point else experiment
        yield point, one


def labels_with(experiment: Experiment, key: str) -> set[str]:
    """Return the labels of the algorithms that depend on a swept key."""
    path, tree = path_of(key), tree_of(experiment)
    if path in schema(Experiment) or path.partition(".")[0] in NAME_KEYS:
        return {*tree["algorithms"]}
    having = tables_with(path, tree)
    return {k for k, one in tree["algorithms"].items() if any(one is table for table in having)}
