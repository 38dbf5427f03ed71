"""Clients' work by an algorithm or a model that is not fedref's own: never silently wrong.

What such code is given is read-only. In the first round each client is also run alone, and both are
compared to the bit; what a step returns is looked at; an exception names file and line.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fedref import tree
from fedref.algorithm import ClientResult
from fedref.boundary.errors import FedrefError, place_of, tell_error
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
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
    """Return whether an algorithm or a model is not fedref's own."""
    return not type(thing).__module__.startswith("fedref.")


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
        check_step(self.algorithm, local, after)
        return after


def careful_clients(on_failure: str = "fail", say: Say = lambda text: None, **how: Any) -> Any:
    """Return a `run_clients` that runs the clients one by one if one fails, to name it or drop it.

    Clients of code that is not fedref's own are run one by one, too, if together they give other numbers.
    """
    compared = set[str]()

    def work(algorithm: Any, model: Model, sent: Any, states: Any, data: Any) -> Any:
        own = [name_of(thing) for thing in (algorithm, model) if is_own(thing)]
        if own:
            tree.freeze((sent, *states))
            algorithm = WatchedAlgorithm(algorithm) if is_own(algorithm) else algorithm
        given = algorithm, model, sent, states, data
        try:
            results, counts = run_clients(*given, **how)
        except Exception as error:
            failure = error
        else:
            check_results(results, data)
            if {*own} <= compared or how.get("stack") is False:
                return results, counts
            compared.update(own)
            alone, _ = run_clients(*given, stack=False)
            difference = first_difference(results, alone, data.clients)
            if difference:
                how["stack"] = False
                again, _ = run_clients(*given, stack=False)
                twice = first_difference(alone, again, data.clients)
                say(
                    f"{', '.join(own)}: {TWICE.format(twice) if twice else TOGETHER.format(difference)}"
                )
            return alone, counts
        alone, counts = run_one_by_one(*given, on_failure, say)
        if None not in alone and how.get("stack") is not False:
            how["stack"] = False  # from now on, and this is said once
            name = (own or [type(algorithm).__name__])[0].rpartition(":")[2]
            say(
                f"{name} fails for several clients at once, and not for one "
                f"({place_of(failure)}): clients are run one by one, which takes longer. {LEADING}"
            )
        return alone, counts

    return work


def run_one_by_one(
    algorithm: Any, model: Model, sent: Any, states: Any, data: Any, on_failure: str, say: Say
) -> tuple[list[ClientResult | None], cost.Counts]:
    """Run the clients one by one: name the one that fails, or drop it."""
    results, counts = list[ClientResult | None](), []
    for k, state in enumerate(states):
        try:
            one = data.subset_rows([k])
            (result,), count = run_clients(algorithm, model, sent, [state], one, stack=False)
            check_results([result], one)
        except Exception as error:
            reason = (
                f"client {data.clients[k]} failed in round {data.round + 1}: {tell_error(error)}"
            )
            if on_failure != "drop":
                raise ClientError(reason) from error
            result, count = None, cost.Counts()
            say(f"{reason}; it is dropped")
        results.append(result)
        counts.append(count)
    return results, cost.total(counts)


@contextmanager
def errors_of_own_code(*things: Any) -> Iterator[None]:
    """Turn what own code raises into an error that names it: also exit(), which is no Exception."""
    own = [name_of(thing) for thing in things if is_own(thing)]
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit, FedrefError, OSError, MemoryError):
        raise
    except BaseException as error:
        if not own:
            raise  # a fault of fedref's
        raise OwnCodeError(f"{', '.join(own)}: {tell_error(error)}") from error


# ---- what comes back -----------------------------------------------------------------------------


def check_step(algorithm: Any, before: Any, after: Any) -> None:
    """Refuse what a step returns if it has another form than what it was given, or complex numbers."""
    if after is None and before is not None:
        raise OwnCodeError(
            f"{name_of(algorithm)}: `step` returns None, expected what a client carries on"
        )
    old, new = tree.flatten(before), tree.flatten(after)
    if old.keys() != new.keys():
        raise OwnCodeError(
            f"{name_of(algorithm)}: `step` returns {type(after).__name__} ({', '.join(new) or 'one value'}), "
            f"expected {type(before).__name__} ({', '.join(old) or 'one value'}) as it was given"
        )
    for name, x in old.items():
        got = np.asarray(new[name])
        if x is not None and (got.shape != np.shape(x) or got.dtype.kind not in "biuf"):
            raise OwnCodeError(
                f"{name_of(algorithm)}: `step` returns {name or 'an array'} of {got.dtype} {got.shape}, "
                f"expected real numbers {np.shape(x)} as it was given"
            )


def check_results(results: Sequence[ClientResult | None], data: Any) -> None:
    """Refuse results that are no real numbers: None, complex numbers, text."""
    for k, result in enumerate(results):
        for x in tree.leaves(result.upload) if result is not None else ():
            if np.asarray(x).dtype.kind not in "biuf":
                raise OwnCodeError(
                    f"client {data.clients[k]} uploads {type(x).__name__} of {np.asarray(x).dtype}, "
                    "expected arrays of real numbers"
                )


def check_server(algorithm: Any, before: Any, after: Any) -> None:
    """Refuse a server's state of another form than before the round: a mean over the wrong axis."""
    old, new = tree.flatten(before), tree.flatten(after)
    for name, x in old.items():
        if x is None or not np.ndim(x):
            continue
        got = new.get(name)
        if got is None or np.shape(got) != np.shape(x) or np.asarray(got).dtype.kind == "c":
            said = "nothing" if got is None else f"{np.asarray(got).dtype} {np.shape(got)}"
            raise OwnCodeError(
                f"{name_of(algorithm)}: after a round the server's {name or 'state'} is {said}, "
                f"expected {np.asarray(x).dtype} {np.shape(x)} as before it"
            )


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


def check_samples(model: Model, w: Array, D: Batch) -> None:
    """Refuse an own model whose losses of several samples at once are not those of one by one."""
    rows = range(min(len(D.y), 4))
    whole = np.asarray(model.sample_losses(w, Batch(D.X[: len(rows)], D.y[: len(rows)])))
    l2 = getattr(model, "l2", 0.0) / 2 * (w @ w)
    for j in rows:
        one = float(model.loss(w, Batch(D.X[j : j + 1], D.y[j : j + 1]))) - l2
        if whole.shape != (len(rows),) or not np.isclose(whole[j], one, rtol=1e-4, atol=1e-6):
            got = f"{whole[j]:.6g}" if whole.shape == (len(rows),) else f"shape {whole.shape}"
            raise OwnCodeError(
                f"{name_of(model)}: the loss of training row {j} among several is {got}, alone {one:.6g}: "
                "`loss` gets batches with leading axes, or write `sample_losses`"
            )
