"""One round: send, work, combine. Only here is the loop over clients and steps."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np

from fedref.algorithm import AnyAlgorithm, ClientResult, Cohort, State
from fedref.models import base, tree
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.cost import Counter, Counts, RoundLog, count_floats, total
from fedref.rounds.federation import Federation
from fedref.rounds.local_data import LocalData, gather
from fedref.rounds.stack import STACK_UP_TO, run_stacked
from fedref.rounds.threads import keep_freed_memory, run_parts, threads_for
from fedref.sampling import Plan

#: `run_clients` or a replacement for it; None is the result of a client that failed.
RunClients = Callable[..., tuple[list[ClientResult | None], Counts]]


def run_client(
    algorithm: AnyAlgorithm, model: Model, sent: Any, client_state: Any, data: LocalData, k: int
) -> Any:
    """Take the k-th client's local steps one by one and return its `local`: this defines a round."""
    local = algorithm.start(model, sent, client_state, data.participant(k))
    everything = cache(partial(data.all_rows, k))
    for t in range(int(data.steps[k])):
        local = algorithm.step(model, sent, local, *(data.batch(r, k, t) for r in algorithm.roles))
        epoch_ends = (t + 1) % data.per_epoch[k] == 0
        if algorithm.stops_early and epoch_ends and algorithm.stop(model, sent, local, everything):
            break
    return local


def run_round(
    algorithm: AnyAlgorithm,
    model: Model,
    state: State,
    plan: Plan,
    federation: Federation,
    *,
    dtype: Any = np.float64,
    work: RunClients | None = None,
) -> tuple[State, RoundLog]:
    """Run one round: send, work, combine. Nothing that is passed in is changed.

    algorithm : an `Algorithm`.
    model : a `Model`.
    state : the `State` before the round.
    plan : who takes part, and with which rows, a `Plan`.
    federation : the clients' data, a `Federation`.
    dtype : float64 or float32.
    work : runs the clients; `run_clients`, or a function that spreads it over processes.
    A client without a result is left out, as a dropped straggler is.
    """
    sent = algorithm.download(state.server)
    travels = not algorithm.pooled  # nothing travels to or from the centralised learner
    keep = participants(algorithm, plan)
    log = RoundLog(
        floats_down=travels * len(plan.clients) * count_floats(sent),
        stragglers=int(plan.straggler.sum()),
        dropped=len(plan.clients) - len(keep),
    )
    if not keep.size:
        return state, log

    client_states = [state.clients.get(int(k)) for k in plan.clients[keep]]
    at_work = Cohort(plan.clients[keep], plan.counts[keep], plan.sizes[keep], federation.clients)
    data = gather(plan, federation, dtype, keep, at_work.weights(algorithm.weighting))
    outcomes, counts = (work or run_clients)(algorithm, model, sent, client_states, data)
    results = [outcome for outcome in outcomes if outcome is not None]
    log = log._replace(counts=counts, failed=len(outcomes) - len(results))
    if not results:
        return state, log

    keep = keep[[outcome is not None for outcome in outcomes]]
    cohort = Cohort(plan.clients[keep], plan.counts[keep], plan.sizes[keep], federation.clients)
    uploads = tree.stack([result.upload for result in results])
    names = dict.fromkeys(name for result in results for name in result.log)
    measured = {name: float(np.mean([r.log[name] for r in results])) for name in names}
    log = log._replace(floats_up=travels * count_floats(uploads), measured=measured)

    new = {
        int(k): result.client_state
        for k, result in zip(cohort.clients, results)
        if result.client_state is not None
    }
    server = algorithm.combine(model, state.server, uploads, cohort)
    return State(server, {**state.clients, **new} if new else state.clients), log


def participants(algorithm: AnyAlgorithm, plan: Plan) -> Array:
    """Return indices of the cohort's clients that run: not stragglers, if the algorithm drops them."""
    return np.flatnonzero(~plan.straggler) if algorithm.drop else np.arange(len(plan.clients))


def run_clients(
    algorithm: AnyAlgorithm,
    model: Model,
    sent: Any,
    client_states: Sequence[Any],
    data: LocalData,
    stack: bool | None = None,
    threads: int | None = None,
) -> tuple[list[ClientResult | None], Counts]:
    """Run some clients of one round; return results and cost. A pure function of its arguments.

    stack : whether to run many clients at once (None: if the model is small). threads : how many
    threads divide the clients (None: those available, if a step is large). The numbers are equal.
    """
    keep_freed_memory()
    # once for all rows: no step checks again
    base.check_batch(model, Batch(data.X, data.y))
    base.check_labels(model, data.y.take(data.row_index))
    K = len(client_states)
    stack = (model.d <= STACK_UP_TO if stack is None else stack) and not algorithm.stops_early
    if threads is None:
        rows = sum(data.rows[role].shape[-1] for role in algorithm.roles)
        sample = model.work[0] * rows
        threads = threads_for(sample * (K if stack else 1), sample * int(data.steps.sum()))
    parts = divide(data.steps, threads, stack)
    counters = [Counter(model) for _ in parts]

    def work(i: int) -> list[ClientResult]:
        states = [client_states[k] for k in parts[i]]
        part = (data if len(parts) == 1 else data.subset(parts[i])).materialise()
        return run_part(algorithm, model, sent, states, part, stack, counters[i])

    def stop(first: int) -> None:
        for counter in counters[first:]:
            counter.stopped = True

    results_of_parts = run_parts(work, range(len(parts)), threads, stop)
    results = dict(zip(chain(*parts), chain(*results_of_parts)))
    return [results[k] for k in range(K)], total(counter.counts for counter in counters)


def divide(steps: Array, threads: int, stack: bool) -> list[Sequence[int]]:
    """Divide a round's clients, by their numbers of steps (K,), into parts that a thread each runs.

    A part is a stack a thread, or a client, the longest first; with one thread it is all of them.
    """
    if threads <= 1:
        return [range(len(steps))]
    order, n = np.argsort(-steps).tolist(), min(threads if stack else len(steps), len(steps))
    return [order[i::n] for i in range(n)]


def run_part(
    algorithm: AnyAlgorithm, model: Model, sent: Any, states: Sequence[Any], data: LocalData,
    stack: bool, counting: Any,
) -> list[ClientResult]:  # fmt: skip
    """Return the results of clients that one thread runs. counting : the model, with its costs counted."""
    if stack:
        locals_after = run_stacked(algorithm, counting, sent, states, data)
    else:
        locals_after = [
            run_client(algorithm, counting, sent, state, data, k) for k, state in enumerate(states)
        ]
    results = []
    for k, (local, state) in enumerate(zip(locals_after, states)):
        everything = cache(partial(data.all_rows, k))
        result = algorithm.finish(counting, sent, local, state, everything)
        log = {**algorithm.client_metrics(model, sent, local, everything), **result.log}
        client_state = tree.copy_views(result.client_state)
        results.append(result._replace(client_state=client_state, log=log))
    return results


def pool(federation: Federation, rng: np.random.Generator) -> Federation:
    """Pool the federation into one client with every training row, shuffled [apfl §4.1.1]."""
    rows = rng.permutation(federation.train.rows)
    part = replace(federation.train, rows=rows, offsets=np.array([0, len(rows)]))
    return replace(federation, train=part)
