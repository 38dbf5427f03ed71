"""A node's side: what it answers, as a function of the request, its rows and its store.

The work is done by the functions that a local run calls, on the node's own rows; the mini-batches
are drawn here, from the experiment's seeds. A node does what the experiment says and no more: it
refuses another experiment, more epochs than there are in it, and parameters of another shape.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref import tree
from fedref.algorithm import AnyAlgorithm
from fedref.boundary.errors import FedrefError
from fedref.experiments import config, names
from fedref.experiments.experiment import Experiment
from fedref.experiments.setting import known_labels, make_model
from fedref.experiments.unit import alike, stamp, types_of, units
from fedref.experiments.workers import calmly
from fedref.flower.answers import ClientScores, Worked
from fedref.flower.messages import (
    NONE,
    Call,
    Evaluating,
    Packet,
    Record,
    Refused,
    Training,
    packed,
    read,
    record,
    tree_of,
    unpacked,
)
from fedref.flower.part import Site
from fedref.flower.store import Store
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.rounds.evaluation import evaluate_clients
from fedref.rounds.federation import Federation
from fedref.rounds.local_data import LocalData
from fedref.rounds.loop import run_clients
from fedref.sampling import PADDING, client_batches, steps_of_epoch

#: No batch is padded to more rows than this.
WIDEST = 1 << 24


class Work(NamedTuple):
    """A request that was understood."""

    call: Call
    experiment: Experiment  # at the unit's point of the sweep
    seed: int
    algorithm: AnyAlgorithm
    model: Model
    sent: Any
    site: Site  # with the labels that the model knows
    store: Store


def answer(request: Packet, site: Site, experiment: Experiment, folder: Path) -> Packet:
    """The reply to any request; what is wrong with it is said in the reply."""
    try:
        if set(request) == {"hello"}:
            return {"announced": record(site.announced)}
        reply: Packet = calmly(worked, request, site, experiment, folder)
        return reply
    except FedrefError as error:
        return {"refused": {"reason": str(error)}}


def worked(request: Packet, site: Site, experiment: Experiment, folder: Path) -> Packet:
    """The reply to a call: evaluation first, on what the training then begins with."""
    work = understood(request, site, experiment, folder)
    evaluating = read(Evaluating, request, "evaluate") if "evaluate" in request else None
    training = read(Training, request, "train") if "train" in request else None
    reply: dict[str, Record] = {"call": record(work.call)}
    if evaluating:
        for k, before in zip(*equally_long(evaluating.clients, evaluating.states)):
            reply |= own(work, k, evaluated, before, evaluating.train)
    if training:
        lists = equally_long(training.clients, training.amounts, training.states)
        for k, amount, before in zip(*lists):
            reply |= own(work, k, trained, amount, before, training.widths)
    return reply


def equally_long(*lists: list[int]) -> tuple[list[int], ...]:
    if len({len(one) for one in lists}) > 1:
        raise Refused("asks for clients with lists of different lengths")
    return lists


def own(work: Work, k: int, what: Any, *how: Any) -> Packet:
    """What was asked of client k, or why it cannot be had. Of an error in the work only the kind is
    told: its text may hold values of the client's; it stands in the node's own log."""
    try:
        if k not in work.site.clients:
            raise Refused("is not a client of this node")
        records: Packet = what(work, k, *how)
        return records
    except Refused as error:
        return {f"lost {k}": {"reason": str(error)}}
    except Exception as error:
        print(f"client {k}, round {work.call.round}: {error!r}", file=sys.stderr, flush=True)
        return {f"lost {k}": {"reason": f"its work raised {type(error).__name__}"}}


def understood(request: Packet, site: Site, experiment: Experiment, folder: Path) -> Work:
    """A request for work on this experiment; Refused otherwise."""
    if odd := set(request) - {"call", "sent", "sent numbers", "evaluate", "train"}:
        raise Refused(f"asks {sorted(odd)[0][:60]!r}, which no node knows")
    call = read(Call, request, "call")
    if call.stamp != stamp(experiment):
        raise Refused("asks for another experiment than this node has")
    found = units(experiment)
    if not 0 <= call.unit < len(found):
        raise Refused(f"asks for unit {call.unit} of {len(found)}")
    unit = found[call.unit]
    now = config.at_point(experiment, unit.point)
    if not 0 <= call.round <= now.rounds:
        raise Refused(f"asks for round {call.round} of {now.rounds}")
    labels = np.array(call.labels, np.int64)
    source = site.federation.source
    if not np.isin(source.labels, labels).all():
        raise Refused("leaves out labels that this node has")
    model = make_model(now.model, replace(source, y=labels))
    y = known_labels(source.y, labels, model, source.name)
    federation = replace(site.federation, source=replace(source, y=y))
    algorithm = names.make_algorithm(unit.label, now.algorithms[unit.label])
    sent = received(unpacked(request, "sent"), algorithm, model, np.dtype(now.dtype))
    store = Store(folder, call.run, call.unit, types_of(experiment, unit))
    store.same_data(site.fingerprint)
    return Work(
        call, now, unit.seed, algorithm, model, sent, site._replace(federation=federation), store
    )


def received(leaves: Record, algorithm: AnyAlgorithm, model: Model, dtype: Any) -> Any:
    """What the server sent, if it looks like what this algorithm sends, and is finite."""
    fresh = algorithm.download(algorithm.initial(model, np.zeros(model.d, dtype)))
    sent = tree_of(fresh, leaves)
    arrays = [x for x in tree.leaves(sent) if isinstance(x, np.ndarray)]
    if not alike(sent, fresh, model.d) or any(x.shape != (model.d,) for x in arrays):
        raise Refused("sends parameters of another shape than the experiment's model has")
    if any(x.dtype != dtype for x in arrays) or not tree.finite(sent):
        raise Refused(f"sends parameters that are not finite numbers of {dtype}")
    return sent


def trained(work: Work, k: int, amount: int, before: int, widths: list[int]) -> Packet:
    """Client k's part of a round."""
    algorithm, call = work.algorithm, work.call
    if not 1 <= amount <= work.experiment.plan.amount:
        raise Refused(f"is asked for {amount} epochs or steps of {work.experiment.plan.amount}")
    state = work.store.read(k, before)
    data = local_data(work, k, amount, widths)
    (result,), counts = run_clients(algorithm, work.model, work.sent, [state], data)
    assert result is not None
    if not tree.finite(result.client_state):
        raise Refused("has parameters of its own that are not finite")
    if result.client_state is not None:
        work.store.write(k, before, call.round, result.client_state)
    did = Worked(*counts, result.client_state is not None)
    log = {name: float(value) for name, value in result.log.items()}
    return {
        **packed(result.upload, f"upload {k}"),
        f"work {k}": record(did),
        **({f"log {k}": log} if log else {}),
    }


def local_data(work: Work, k: int, amount: int, widths: list[int]) -> LocalData:
    """Client k's rows and its part of the round's Plan, padded as beside the rest of the cohort."""
    algorithm, plan, federation = work.algorithm, work.experiment.plan, work.site.federation
    rows = rows_of(work.site, k)
    batches = client_batches(
        plan, algorithm.roles, k, len(rows), amount, work.call.round, work.seed
    )
    if len(widths) != len(batches):
        raise Refused(f"is asked for {len(widths)} kinds of batches, expected {len(batches)}")
    padded = {role: wide(own, width)[None] for (role, own), width in zip(batches.items(), widths)}
    shift, scale = federation.shift_and_scale
    return LocalData(
        np.array([k]),
        work.call.round,
        federation.source.X,
        federation.source.y,
        rows,
        np.array([0, len(rows)]),
        padded,
        np.array([len(batches[algorithm.roles[0]])]),
        steps_of_epoch(plan, algorithm.roles, np.array([len(rows)])),
        shift,
        scale,
        np.dtype(work.experiment.dtype),
        federation.source.vocabulary is not None,
    )


def wide(rows: Array, width: int) -> Array:
    """(S, W) rows padded to the width of the cohort's."""
    if not rows.shape[1] <= width <= WIDEST:
        raise Refused(f"is asked for batches of {width} rows, and its own have {rows.shape[1]}")
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=PADDING)


def rows_of(site: Site, k: int) -> Array:
    return site.federation.train.of(int(np.searchsorted(site.clients, k)))


def evaluated(work: Work, k: int, before: int, train: bool) -> Packet:
    """Client k's scores, by the model that it tests with."""
    state = work.store.read(k, before)
    one = np.searchsorted(work.site.clients, [k])
    federation: Federation = work.site.federation.subset(one)
    scores = evaluate_clients(
        work.algorithm,
        work.model,
        work.sent,
        {} if before == NONE else {k: state},
        federation,
        work.experiment.plan,
        clients=[k],
        round=work.call.round,
        seed=work.seed,
        dtype=np.dtype(work.experiment.dtype),
        train=train,
    )
    return {f"scores {k}": record(ClientScores(*(column[0].item() for column in scores)))}
