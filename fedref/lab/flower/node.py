"""A node: its rows, its clients' states between rounds, and its answers to the server.

The rows are its part, a .npz of plain arrays, which anybody can write with NumPy:

    X       (n, ...) features, as numbers or codes    shift, scale   optional: the features are
    y       (n,) labels, whole numbers                               (X − shift) / scale
    client  (n,) the client's number in the run       vocabulary     optional: the text of each code
    test    (n,) whether it is a test row             labels         optional: all of the data set

Plans refer to the rows of a client by their order in the part. A client's states are the files
FOLDER/RUN/UNIT/CLIENT/ROUND.ckpt. A request names the round of its last work that *counted*, so that
work which came late, or which a stopped server does not know of, has no effect.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedref.algorithm import ClientResult
from fedref.boundary.files import as_data_error, data_error, open_regular, write_or_raise
from fedref.lab.datasets import split
from fedref.lab.datasets.describe import MOST_CLASSES
from fedref.lab.datasets.formats.arrays import Raw, source_of
from fedref.lab.datasets.formats.npz import read_archive
from fedref.lab.datasets.manifest import check_federation, read_affine
from fedref.lab.experiments import checkpoint
from fedref.lab.experiments.config import Experiment
from fedref.lab.experiments.loading import known_labels, make_model
from fedref.lab.experiments.own_code import CarefulClients, is_own
from fedref.lab.experiments.parallel import run_single_threaded
from fedref.lab.experiments.unit import units
from fedref.lab.flower import messages
from fedref.lab.flower.messages import ClientAnswer, Facts, Like, MessageError, Request, Work
from fedref.models.numerics import Array
from fedref.rounds.evaluation import Evaluation, evaluate_clients
from fedref.rounds.federation import Federation, Source
from fedref.rounds.local_data import gather
from fedref.sampling import PADDING, Plan

EXPECTED = "a node's part: a .npz with X, y, client and test"

# ---- a node's part -------------------------------------------------------------------------------


def facts_of(federation: Federation) -> Facts:
    """Return the sizes and kinds of a node's rows, for the server."""
    source, sizes = federation.source, (federation.train.sizes, federation.test.sizes)
    image, words = np.array(source.image or (0, 0, 0)), np.array(source.vocabulary or (), str)
    clients = [int(name) for name in federation.names]
    return Facts(np.array([clients, *sizes]), source.labels, source.X.shape[1], image, words)


def write_part(path: Path, federation: Federation, clients: Iterable[int]) -> None:
    """Write a part with the rows of these clients only."""
    source, numbers = federation.source, np.array([*clients])
    chosen = federation.subset(numbers)
    rows = np.concatenate([chosen.train.rows, chosen.test.rows])
    contents: dict[str, Any] = {
        "X": source.X[rows].reshape(len(rows), *(source.image or (-1,))),
        "y": source.y[rows],
        "client": numbers[np.concatenate([chosen.train.owners, chosen.test.owners])],
        "test": np.arange(len(rows)) >= len(chosen.train.rows),
        "shift": federation.shift,
        "scale": federation.scale,
        "labels": source.labels,
    }
    if source.vocabulary is not None:
        contents["vocabulary"] = source.vocabulary
    write_or_raise(path, partial(np.savez, **contents))


def read_part(path: Path) -> Federation:
    """Read a node's part, whose clients have their numbers in the run, ascending, for names.

    A FedrefError if one cannot train on it.
    """
    with open_regular(path, EXPECTED) as file:
        contents = read_archive(file, path, EXPECTED)
    words, labels = contents.pop("vocabulary", None), contents.pop("labels", None)
    facts = {} if words is None else {"vocabulary": tuple(map(str, words.tolist()))}
    affine: dict[str, Any] = {k: contents.pop(k) for k in ("shift", "scale") if k in contents}
    with as_data_error(path, EXPECTED):
        source = source_of(Raw(contents, facts), str(path), name=path.name)
        if source.test_from is None or source.client_names is None:
            raise ValueError("lacks the array client or test")
        if source.real or source.label_names:
            raise ValueError("y holds other values than whole numbers")
        lowest = min(map(int, source.client_names))
        federation = split("natural", source, scaling="none")
        if lowest < 0 or federation.clients < len(source.client_names):
            raise ValueError(f"client is {lowest}, or a client has no training row")
    p = source.X.shape[1]
    affine = {name: read_affine(x, name, p, path) for name, x in affine.items()}
    if labels is not None:
        source = with_labels(source, labels, path)
    federation = replace(federation, source=source, **affine)
    check_federation(federation, path, "rows that can be trained on")
    return federation


def with_labels(source: Source, labels: Array, path: Path) -> Source:
    """Return a source in which all these labels occur: those that the clients lack in rows of nobody.

    The data set has such rows, too, where a split gives them to no client or to other nodes' clients.
    """
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) > MOST_CLASSES:
        wrong = f"labels is {labels.dtype} {labels.shape}"
        raise data_error(path, wrong, f"labels as whole numbers (C,), at most {MOST_CLASSES}")
    if (missing := np.setdiff1d(labels, source.y)).size == 0:
        return source
    X = np.concatenate([source.X, np.zeros((len(missing), source.X.shape[1]), source.X.dtype)])
    return replace(source, X=X, y=np.concatenate([source.y, missing.astype(source.y.dtype)]))


# ---- its answers ---------------------------------------------------------------------------------


def answer(data: object, part: Path, experiment: Experiment, folder: Path) -> bytes:
    """Return the answer to a request: facts, results or scores; a text if it is refused or fails.

    The reason of an error may quote rows, so it goes to the node's own log, and its type to the server.
    """
    try:
        request = messages.read(data)
        federation = read_part(part)
        if isinstance(request, str):
            return checkpoint.dumps(facts_of(federation))
        done = run_single_threaded(do_work, request, federation, experiment, folder)
        return checkpoint.dumps(done)
    except MessageError as error:
        return checkpoint.dumps(f"refuses: {error}")
    except Exception as error:
        print(f"fedref: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return checkpoint.dumps(f"its work raised {type(error).__name__}: see the node's own log")


def do_work(request: Any, federation: Federation, experiment: Experiment, folder: Path) -> Any:
    """Check a request, then do the clients' part of a round, or evaluate them.

    Returns the result of each client (None: it failed) and the counts; or accuracy, test loss and
    training loss (3, K), with 0 in the place of what is not known.
    """
    known, all_units, last = facts_of(federation).sizes[0], units(experiment), experiment.rounds
    clients = Like(int, (2, None), [[known[0]], [-1]], [[known[-1]], [last]])
    number, round = Like(int, (), 0, len(all_units) - 1), Like(int, (), 0, last)
    messages.require(isinstance(request, Request), "sends no request")
    like = Request(Like(int, (), 0), number, round, Like(int, (None,)), clients, None, None)
    messages.check(request._replace(sent=None, work=None), like, "the request")
    unit, labels, work = all_units[request.unit], request.labels, request.work
    algorithm, point, source = unit.algorithm, unit.experiment, federation.source
    messages.require(np.isin(source.y, labels).all(), "does not know all labels of the node's rows")
    model, dtype = make_model(point.model, replace(source, y=labels)), np.dtype(point.dtype)
    size = max(model.d, len(source.y) * len(labels))
    messages.require(size <= messages.MOST_NUMBERS, "a model too large")
    w = np.zeros(model.d, dtype)
    like_sent = algorithm.download(algorithm.initial(model, w))
    messages.check(request.sent, like_sent, "what it sends", w)
    y = known_labels(source.y, labels, model, source.name)
    federation = replace(federation, source=replace(source, y=y))
    folder = folder / f"{request.run}/{unit.number}"
    before = dict(request.clients.T.tolist())
    places = np.searchsorted(known, request.clients[0])
    right = len(before) == len(places) > 0 and set(before) <= {*known.tolist()}
    messages.require(right, "asks for other clients than the node's")
    states = {k: read_state(folder, k, t) for k, t in before.items()}
    if not isinstance(work, Work):
        messages.check(work, True, "work")
        messages.require([*before] == known.tolist(), "does not ask for all the node's clients")
        sampling = point.plan_of(len(known))
        how = Evaluation(federation, [*before], sampling, request.round, unit.seed, dtype, work)
        scores = evaluate_clients(algorithm, model, request.sent, states, how)
        test, train = scores.n_test > 0, (scores.n_train > 0) & work
        columns = (test, scores.accuracy), (test, scores.test_loss), (train, scores.train_loss)
        return np.array([np.where(has, column, 0) for has, column in columns])
    check_work(work, algorithm.roles, federation.train.sizes[places])
    rows = dict(zip(algorithm.roles, work.rows))
    steps, per_epoch = work.steps
    unread = np.empty(0)  # by `gather`
    plan = Plan(request.round, places, unread, unread, unread, unread, steps, per_epoch, rows)
    data = gather(plan, federation, dtype, np.arange(len(places)), work.weights)
    data = data._replace(clients=request.clients[0])
    # a node may be a process a round, which knows no earlier one: a user's code is never stacked here
    alone = is_own(algorithm) or is_own(model) or None
    say = partial(print, "fedref:", file=sys.stderr, flush=True)
    run_clients = CarefulClients("drop", say, one_by_one=alone)
    results, counts = run_clients(algorithm, model, request.sent, [*states.values()], data)
    for (k, t), result in zip(before.items(), results):
        if result is not None and result.client_state is not None:
            write_state(folder, k, t, request.round, result.client_state)
    return tuple(map(without_state, results)), np.array(counts, np.int64)


def check_work(work: Work, roles: Sequence[str], sizes: Array) -> None:
    """Refuse a part of a plan that does not fit the clients' rows (K,)."""
    K = len(sizes)
    rows = Like(np.int32, (K, None, None), PADDING, sizes[:, None, None] - 1)
    messages.check(work.rows, (rows,) * len(roles), "work.rows")
    most = min(batches.shape[1] for batches in work.rows)
    messages.check(work.steps, Like(int, (2, K), [[0], [1]], [[most], [np.inf]]), "work.steps")
    messages.check(work.weights, Like(float, (K,), 0, 1), "work.weights")


def without_state(result: ClientResult | None) -> ClientAnswer | None:
    """Return what the server gets of a client's result: its state stays here."""
    if result is None:
        return None
    log = np.array([result.log[name] for name in sorted(result.log)], np.float64)
    return ClientAnswer(result.upload, result.client_state is not None, log)


# ---- its clients' states -------------------------------------------------------------------------


def read_state(folder: Path, client: int, round: int) -> Any:
    """Return the client's state after that round; None for round −1."""
    if round < 0:
        return None
    path = folder / str(client) / f"{round}.ckpt"
    try:
        return checkpoint.loads(path.read_bytes(), path.name)
    except (OSError, ValueError) as error:
        raise MessageError(f"has no state of client {client} after round {round + 1}") from error


def write_state(folder: Path, client: int, before: int, round: int, state: Any) -> None:
    """Write the client's state after this round.

    The state that it began with is kept, and one older: the server's checkpoint may be a round behind,
    and its previous one two.
    """
    place = folder / str(client)
    write_or_raise(place / f"{round}.ckpt", checkpoint.dumps(state))
    rounds = sorted(int(path.stem) for path in place.glob("*.ckpt") if path.stem.isdigit())
    for t in [t for t in rounds if t < before][:-1]:
        (place / f"{t}.ckpt").unlink(missing_ok=True)
