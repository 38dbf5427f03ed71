"""Clients' work by an algorithm or a model that is not fedref's own: never silently wrong.

What such code is given is read-only. In the first round each client is also run alone, and both are
compared to the bit; what a step returns is looked at; an exception names file and line.
"""

import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedref.algorithm import ClientResult
from fedref.boundary.errors import FedrefError, place_of, tell_error
from fedref.models import tree
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.rounds import cost
from fedref.rounds.loop import run_clients

Say = Callable[[str], None]
LEADING = "`step` gets arrays with leading axes of clients: see help(fedref.algorithm.Algorithm)"
TOGETHER = (
    "several clients at once give other numbers than one by one ({}): clients are run one by one, which "
    f"takes longer. {LEADING}"
)
TWICE = (
    "a client gives other numbers when it is run again ({}): it draws random numbers, or keeps something "
    "outside of what its functions return. Its results depend on the order of clients, and `fedref resume` "
    "gives others"
)


class ClientError(FedrefError):
    """A client's work failed: names the client, the round and the reason."""


class OwnCodeError(FedrefError):
    """An algorithm or a model of somebody's own did what it may not do: says what, and where."""


def is_own(thing: Any) -> bool:
    """Return whether an algorithm or a model does not say that it works for several clients at once."""
    return not thing.stacks


def name_of(thing: Any) -> str:
    return f"{type(thing).__module__}:{type(thing).__name__}"


class WatchedAlgorithm:
    """An own algorithm whose batches are read-only, and whose steps are looked at."""

    def __init__(self, algorithm: Any) -> None:
        self.algorithm = algorithm

    def __getattr__(self, name: str) -> Any:
        return getattr(self.algorithm, name)

    def step(self, model: Model, sent: Any, local: Any, *batches: Batch) -> Any:
        after = self.algorithm.step(model, sent, local, *tree.freeze(batches))
        check_form(f"{name_of(self.algorithm)}: the result of `step`", local, after)
        return after


@dataclass
class CarefulClients:
    """A `run_clients` that runs the clients one by one if one fails, to name it or drop it.

    Clients of code that is not fedref's own are run one by one, too, if together they give other
    numbers. one_by_one : whether they are; None: it is decided in the next round.
    """

    on_failure: str = "fail"
    say: Say = lambda text: None
    one_by_one: bool | None = None
    stack: bool | None = None

    def __call__(self, algorithm: Any, model: Model, sent: Any, states: Any, data: Any) -> Any:
        users = [name_of(thing) for thing in (algorithm, model) if is_own(thing)]
        if users:
            tree.freeze((sent, *states))
            algorithm = WatchedAlgorithm(algorithm) if is_own(algorithm) else algorithm
        given = algorithm, model, sent, states, data
        try:
            results, counts = run_clients(*given, stack=False if self.one_by_one else self.stack)
        except Exception as error:
            alone, counts = self.run_one_by_one(*given)
            if None not in alone and not self.one_by_one:
                self.one_by_one = True
                name = (users or [type(algorithm).__name__])[0].rpartition(":")[2]
                self.say(
                    f"{name} fails for several clients at once, and not for one "
                    f"({place_of(error)}): clients are run one by one, which takes longer. {LEADING}"
                )
            return alone, counts
        check_results(results, data)
        if not users or self.one_by_one is not None:
            return results, counts
        alone, _ = run_clients(*given, stack=False)
        difference = first_difference(results, alone, data.clients)
        self.one_by_one = bool(difference)
        if difference:
            again, _ = run_clients(*given, stack=False)
            twice = first_difference(alone, again, data.clients)
            reason = TWICE.format(twice) if twice else TOGETHER.format(difference)
            self.say(f"{', '.join(users)}: {reason}")
        return alone, counts

    def run_one_by_one(
        self, algorithm: Any, model: Model, sent: Any, states: Any, data: Any
    ) -> tuple[list[ClientResult | None], cost.Counts]:
        """Run the clients one by one: name the one that fails, or drop it."""
        results, counts = list[ClientResult | None](), []
        for k, state in enumerate(states):
            try:
                one = data.subset_rows([k])
                (result,), count = run_clients(algorithm, model, sent, [state], one, stack=False)
                check_results([result], one)
            except Exception as error:
                failed = f"client {data.clients[k]} failed in round {data.round + 1}"
                reason = f"{failed}: {tell_error(error)}"
                if self.on_failure != "drop":
                    raise ClientError(reason) from error
                result, count = None, cost.Counts()
                self.say(f"{reason}; it is dropped")
            results.append(result)
            counts.append(count)
        return results, cost.total(counts)


@contextmanager
def errors_of_own_code(*things: Any) -> Iterator[None]:
    """Turn what own code raises into an error that names it: also exit(), which is no Exception."""
    users = [name_of(thing) for thing in things if is_own(thing)]
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit, FedrefError, OSError, MemoryError):
        raise
    except BaseException as error:
        if not users:
            raise  # a fault of fedref's
        raise OwnCodeError(f"{', '.join(users)}: {tell_error(error)}") from error


# ---- what comes back -----------------------------------------------------------------------------


def check_form(what: str, before: Any, after: Any) -> None:
    """Refuse a tree whose numbers have other shapes than those before, or are complex or no numbers.

    A single 0 may become an array: in APFL it stands for "no importance yet".
    """
    new = tree.flatten(after)
    for name, x in tree.flatten(before).items():
        got = np.asarray(new.get(name))
        fits = got.shape == np.shape(x) or np.array_equal(x, 0)
        if is_real(x) and not (is_real(got) and fits):
            kind = f"{got.dtype} {got.shape}" if name in new else "nothing"
            raise OwnCodeError(
                f"{what}, a {type(after).__name__}, has {kind} as {name}, expected real numbers "
                f"{np.shape(x)} as before"
            )


def is_real(x: Any) -> bool:
    return np.asarray(x).dtype.kind in "biuf"


def check_results(results: Sequence[ClientResult | None], data: Any) -> None:
    """Refuse uploads that are no real numbers: None, complex numbers, text."""
    for k, result in enumerate(results):
        for x in tree.leaves(result.upload) if result is not None else ():
            if not is_real(x):
                raise OwnCodeError(
                    f"client {data.clients[k]} uploads {type(x).__name__} of {np.asarray(x).dtype}, "
                    "expected arrays of real numbers"
                )


def check_vector(shown: str, x: Any, d: int) -> None:
    """Refuse what is no vector of d real numbers. shown : who returns it."""
    if not (isinstance(x, np.ndarray) and x.shape == (d,) and is_real(x)):
        kind = f"{x.dtype} {x.shape}" if isinstance(x, np.ndarray) else f"a {type(x).__name__}"
        raise OwnCodeError(f"{shown} {kind}, expected an array of {d} real numbers")


def random_states(scope: Mapping[str, object]) -> bytes:
    """Return the states of the random generators that a program shares, and of those that a scope names."""
    kinds = np.random.Generator | np.random.RandomState | random.Random
    stateless = random.SystemRandom
    named = {
        name: x
        for name, x in scope.items()
        if isinstance(x, kinds) and not isinstance(x, stateless)
    }
    return pickle.dumps((np.random.get_state(), random.getstate(), named))  # noqa: NPY002


def first_difference(together: Sequence[Any], alone: Sequence[Any], clients: Sequence[int]) -> str:
    """Return the first number that differs between two lists of results, and both values; "" if none."""
    for k, pair in enumerate(zip(together, alone)):
        leaves = [tree.flatten((r.upload, r.client_state, dict(r.log))) for r in pair]
        if leaves[0].keys() != leaves[1].keys():
            return f"client {clients[k]} returns other things"
        for x, y in zip(*(own.values() for own in leaves)):
            one, other = np.asarray(x), np.asarray(y)
            if one.shape != other.shape:
                return f"client {clients[k]}: shapes {one.shape} and {other.shape}"
            if not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
                i = np.flatnonzero(np.ravel(one != other))[0]
                return f"client {clients[k]}: {np.ravel(one)[i]:.10g} and {np.ravel(other)[i]:.10g}"
    return ""
