"""fedref/spec.py's generators as algorithms of a run: `fedref run fedref.spec:per_fedavg per-fedavg`.

With a known mistake, too: `fedref run "fedref.judge:feddyn with FedDyn's αθ is missing" feddyn`. Each
built-in algorithm has the settings of its class, and rounds and tests that the specification computes;
judge/adapter.py says how its generator is called, and what its yields are.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import getsource
from types import SimpleNamespace
from typing import Any, ClassVar

from fedref import spec
from fedref.algorithm import State
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.values import values_of
from fedref.conformance import vectors
from fedref.judge import adapter, tape
from fedref.judge.case import name_leaf
from fedref.judge.errata import MISTAKES, build_judge, replace
from fedref.judge.objective import Objective
from fedref.models import tree
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array


class Specified:
    """What differs from the built-in algorithm, from which a class derives, too."""

    generator: ClassVar[str]  # its name
    mistake: ClassVar[str] = ""
    judge: ClassVar[Any] = adapter
    watches_loss = stops_early = False

    def __reduce__(self) -> Any:
        return rebuild, (type(self).__qualname__, values_of(self))

    def hyper(self, model: Model) -> Any:
        return SimpleNamespace(**values_of(self), shapes=model.shapes)

    @property
    def parts(self) -> list[str]:
        """What is yielded, as judge/adapter.py names it."""
        names, _ = adapter.RUNS[self.generator]
        return [*(names[:1] if getattr(self, "server", "") == "sgd" else names)]

    @property
    def server_names(self) -> list[str]:
        words = [part.split() for part in self.parts]
        return [x for one in words if one[0] not in ("clients", "measured") for x in one]

    def name_server(self, server: Any) -> dict[str, Any]:
        return {name: x for name, x in zip(self.server_names, server) if x is not None}

    def initial(self, model: Model, w: Array) -> Any:
        first = ALGORITHMS[self.generator].initial(self, model, w)  # type: ignore[arg-type]
        known = {name_leaf(path): x for path, x in tree.flatten(first).items()}
        return tuple(known.get(name) for name in self.server_names)

    def download(self, server: Any) -> Any:
        return server

    def generate(self, f: Objective, w: Array, rounds: Iterator[Any]) -> Iterator[Any]:
        h = self.judge.settings(self.generator, self.hyper(f.model), f.N, iter(()))
        h.train_loss = f.train_loss
        run: Any = self.judge.RUNS[self.generator][1]
        states: Iterator[Any] = run(f, w, rounds, h)
        return states

    def state_of(self, yielded: Any) -> tuple[State, dict[str, float]]:
        state = adapter.name_state(tuple(self.parts), yielded)
        server = tuple(state["server"].get(name) for name in self.server_names)
        clients = {k: tuple(kept.values()) for k, kept in state["clients"].items()}
        return State(server, clients), state["measured"]

    def as_yielded(self, w: Array, *clients: Any) -> Any:
        """Return what is tested in the form in which it is yielded."""
        kept = [part for part in self.parts[1:] if clients and not part.startswith("measured")]
        return (w, *(clients[0] if part.startswith("clients") else None for part in kept))

    def server_metrics(self, server: Any) -> dict[str, float]:
        named = self.name_server(server)
        return {"mu": float(named["mu"])} if "mu" in named else {}

    def personalised_params(
        self, model: Model, sent: Any, client_state: Any, D: Batch | None
    ) -> Array:
        names = next((part.split()[1:] for part in self.parts if part.startswith("clients")), [])
        kept = {} if client_state is None else dict(zip(names, client_state))
        f: Any = Objective(model)
        rows = None if D is None else spec.Batch(D.X, D.y)
        hyper, server = self.hyper(model), self.name_server(sent)
        with tape.gradients():
            return self.judge.personal(self.generator, f, hyper, server, kept, rows)


def rebuild(name: str, values: Mapping[str, Any]) -> Any:
    return specified_class(name)(**values)


@cache
def specified_class(name: str) -> type[Any]:
    """Return the class of an algorithm as the specification computes it: "per_fedavg", "... with MISTAKE"."""
    label, _, mistake = name.partition(" with ")
    label = label.replace("_", "-")
    if label not in ALGORITHMS:
        words = (word.replace("-", "_") for word in ALGORITHMS)
        raise ConfigError(unknown("algorithm of fedref.spec", label.replace("-", "_"), words))
    own: dict[str, Any] = {"generator": label}
    place, path = spec.__name__, label.replace("-", "_")
    if mistake:
        if mistake not in (known := mistakes_of_rounds(label)):
            raise ConfigError(unknown(f"mistake of {label}", mistake, known))
        own |= {"mistake": mistake, "judge": build_judge(mistake)}
        place, path = "fedref.judge", f"{label} with {mistake}"
    made = type(name, (Specified, ALGORITHMS[label]), own)
    made.__module__, made.__qualname__ = place, path
    return dataclass(frozen=True)(made)


def mistakes_of_rounds(label: str) -> list[str]:
    """Return the known mistakes that change an algorithm's golden rounds and lie in what a run executes."""
    index = vectors.read_index(vectors.folder())
    own = (x for x in index["cases"] if (x["algorithm"], x["call"]) == (label, "round"))
    found = sorted({i for case in own for i in case["catches"]})
    names = (index["mistakes"][i]["name"] for i in found)
    cohort: Any = adapter.clients_of, adapter.client_of, adapter.steps_of, adapter.batch
    a_runs_own: Any = adapter.answer, adapter.rounds, *cohort, spec.Batch, spec.Risk
    others = "".join(map(getsource, a_runs_own))
    others += getsource(spec).partition("# ==== Part three")[2]  # models
    edits = {name: MISTAKES[name].edits for name in names}
    return [x for x in edits if all(replace(others, edit) == others for edit in edits[x])]
