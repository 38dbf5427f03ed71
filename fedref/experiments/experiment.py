"""An experiment: everything that the numbers of a run depend on, as one frozen value."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from fedref.boundary.errors import ConfigError
from fedref.boundary.values import Bounds, check_fields
from fedref.sampling import Sampling

Table = Mapping[str, Any]

DTYPES = ("float64", "float32")
TABLES = ("data", "split", "model", "algorithms", "sweep")


def _field(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Experiment:
    """Everything that a run depends on. The tables are as in TOML, with underscores for dashes."""

    name: str = _field("run", "what the run directory is called after the time")
    rounds: int = _field(100, "communication rounds T (or K)")
    clients_per_round: int = _field(5, "clients that take part in a round")
    epochs: int | None = _field(
        None, "local epochs E; or set steps (FedMeta, FedMAML: one episode)"
    )
    steps: int | None = _field(
        None, "local steps τ, 10 where no epochs are set (centralised: always one epoch)"
    )
    batch_size: int = _field(40, "rows of a mini-batch; 0: all local rows")
    sampling: str = _field("uniform", "how the cohort is drawn: uniform, or by-samples")
    stragglers: float = _field(0.0, "fraction of the cohort that does only part of the work")
    support: float = _field(
        0.8, "fraction of a client's rows in the support set (FedMeta, FedMAML)"
    )
    seeds: tuple[int, ...] = _field((0,), "seeds of start, cohorts and batches: a run for each")
    eval_every: int = _field(1, "rounds between evaluations (first and last are always evaluated)")
    clients_every: int | None = _field(
        None, "rounds between evaluations whose clients are kept (default: all; first and last are)"
    )
    keep_parameters: int | None = _field(
        None,
        "rounds between states that are kept in parameters/ (default: none; first and last are)",
    )
    eval_train: bool = _field(True, "also evaluate the training loss of every client")
    unseen: float = _field(
        0.0,
        "if > 0: train on 80 % of the clients, test 10 % unseen ones with this support fraction, and "
        "10 % for validation likewise",
    )
    classes: str = _field(
        "all", "what is told apart: all classes, or own: each client's own, counted from 0 (k-way)"
    )
    dissimilarity: bool = _field(False, "log B and the gradients' variance when evaluating")
    dtype: str = _field("float64", "float64 or float32")
    on_failure: str = _field("fail", "a client that raises: fail, or drop it and count it")
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
        check_file_name(self.name, "name")
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds are {list(self.seeds)}, expected different integers ≥ 0")
        _ = self.plan  # checks its own values

    @property
    def plan(self) -> Sampling:
        """How its rounds are drawn."""
        return Sampling(**{f.name: getattr(self, f.name) for f in fields(Sampling)})


def check_file_name(name: str, what: str) -> None:
    """Refuse what cannot be part of a file's name."""
    if not name or name.startswith(".") or re.search(r"[/\\\x00-\x1f]", name):
        raise ConfigError(f"{what} is {name!r}, expected a word that can be part of a file's name")
