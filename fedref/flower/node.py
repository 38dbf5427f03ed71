"""A node: its rows, its clients' states between rounds, and its answers to the server.

The rows are its part, a .npz of plain arrays, which anybody can write with NumPy:

    X       (n, ...) features, as numbers or codes    shift, scale   optional: the features are
    y       (n,) labels, whole numbers                               (X − shift) / scale
    client  (n,) the client's number in the run       vocabulary     optional: the text of each code
    test    (n,) whether it is a test row

Plans refer to the rows of a client by their order in the part. A client's states are the files
FOLDER/RUN/UNIT/CLIENT/ROUND.ckpt. A request names the round of its last work that *counted*, so that
work which came late, or which a stopped server does not know of, has no effect.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithm import ClientResult
from fedref.boundary import checkpoint
from fedref.boundary.files import as_data_error, open_regular, write_or_raise
from fedref.datasets import split
from fedref.datasets.formats.arrays import Raw, source_of
from fedref.datasets.formats.npz import read_archive
from fedref.datasets.manifest import check_federation, read_affine
from fedref.datasets.partition import offsets
from fedref.experiments.config import Experiment, stamp
from fedref.experiments.loading import known_labels, make_model
from fedref.experiments.parallel import run_single_threaded
from fedref.experiments.unit import careful_clients, units
from fedref.flower import messages
from fedref.flower.messages import (
    ClientAnswer,
    Facts,
    MessageError,
    Request,
    Work,
    ascend,
    check,
    require,
)
from fedref.models.numerics import Array
from fedref.rounds.evaluation import Scores, evaluate_clients
from fedref.rounds.federation import Federation
from fedref.rounds.local_data import LocalData
from fedref.sampling import PADDING

EXPECTED = "a node's part: a .npz with X, y, client and test"

# ---- a node's part -------------------------------------------------------------------------------


class Site(NamedTuple):
    """A node's clients: their numbers in the run, ascending, and their rows."""

    clients: Array
    federation: Federation

    @property
    def facts(self) -> Facts:
        """The sizes and kinds of the rows, for the server."""
        source, part = self.federation.source, self.federation
        words = np.array(source.vocabulary or (), str)
        image = np.array(source.image or (), np.int64)
        sizes = part.train.sizes, part.test.sizes
        return Facts(self.clients, *sizes, source.X.shape[1], source.labels, image, words)


def write_part(path: Path, federation: Federation, clients: Iterable[int]) -> None:
    """Write a part with the rows of these clients only."""
    parts = [(part.rows_of(k), k, test) for k in clients for part, test in
             ((federation.train, False), (federation.test, True))]  # fmt: skip
    rows = np.concatenate([rows for rows, _, _ in parts])
    source = federation.source
    contents: dict[str, Any] = {
        "X": source.X[rows].reshape(len(rows), *(source.image or (-1,))),
        "y": source.y[rows],
        "client": np.concatenate([np.full(len(rows), k) for rows, k, _ in parts]),
        "test": np.concatenate([np.full(len(rows), test) for rows, _, test in parts]),
        "shift": federation.shift,
        "scale": federation.scale,
    }
    if source.vocabulary is not None:
        contents["vocabulary"] = source.vocabulary
    write_or_raise(path, partial(np.savez, **contents))


def read_part(path: Path) -> Site:
    """Read and check a node's part; a FedrefError if one cannot train on it."""
    with open_regular(path, EXPECTED) as file:
        contents = read_archive(file, path, EXPECTED)
    more = {name: contents.pop(name, None) for name in ("shift", "scale", "vocabulary")}
    words = more["vocabulary"]
    facts = {} if words is None else {"vocabulary": tuple(map(str, words.tolist()))}
    with as_data_error(path, EXPECTED):
        source = source_of(Raw(contents, facts), str(path), name=path.name)
        if source.test_from is None or source.client_names is None:
            raise ValueError("lacks the array client or test")
        if source.real or source.label_names:
            raise ValueError("y holds other values than whole numbers")
        clients = np.array([int(name) for name in source.client_names])
        federation = split("natural", source, scaling="none")
        if clients.min() < 0 or federation.clients < len(clients):
            raise ValueError(f"client is {clients.min()}, or a client has no training row")
    shift, scale = (
        default if more[name] is None else read_affine(more[name], name, source.X.shape[1], path)
        for name, default in (("shift", 0.0), ("scale", 1.0))
    )
    federation = replace(federation, shift=shift, scale=scale)
    check_federation(federation, path, "rows that can be trained on")
    return Site(clients, federation)


# ---- its answers ---------------------------------------------------------------------------------


def answer(data: object, part: Path, experiment: Experiment, folder: Path) -> bytes:
    """Return the answer to a request: facts, results or scores; a text if it is refused or fails.

    The reason of an error may quote rows, so it goes to the node's own log, and its type to the server.
    """
    try:
        request = messages.read(data)
        site = read_part(part)
        if isinstance(request, str):
            return checkpoint.dumps(site.facts)
        require(isinstance(request, Request), "sends no request")
        work = run_single_threaded(do_work, request, site, experiment, folder)
        return checkpoint.dumps(work)
    except MessageError as error:
        return checkpoint.dumps(f"refuses: {error}")
    except Exception as error:
        print(f"fedref: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return checkpoint.dumps(f"its work raised {type(error).__name__}: see the node's own log")


def do_work(request: Request, site: Site, experiment: Experiment, folder: Path) -> Any:
    """Check a request, then do the clients' part of a round, or evaluate them.

    Returns the result of each client (None: it failed) and the counts; or the scores, with 0 in the
    place of what is not known.
    """
    check_head(request, site, experiment)
    run, _, number, round, labels, clients, rounds, sent, work = request
    unit = units(experiment)[number]
    algorithm, point, source = unit.algorithm, unit.experiment, site.federation.source
    model, dtype = make_model(point.model, replace(source, y=labels)), np.dtype(point.dtype)
    require(model.d <= messages.MOST_NUMBERS, "a model too large")
    w = np.zeros(model.d, dtype)
    check(sent, algorithm.download(algorithm.initial(model, w)), "what it sends", w)
    y = known_labels(source.y, labels, model, source.name)
    own, folder = replace(site.federation, source=replace(source, y=y)), folder / run / str(number)
    before = dict(zip(clients.tolist(), rounds.tolist()))
    states = {k: read_state(folder, k, t) for k, t in before.items()}
    if not isinstance(work, Work):
        check(work, True, "work")
        require(np.array_equal(clients, site.clients), "does not ask for all the node's clients")
        scores = evaluate_clients(
            algorithm, model, sent, states, own, point.plan_of(len(clients)), clients=[*before],
            round=round, seed=unit.seed, dtype=dtype, train=work,
        )  # fmt: skip
        test, train = scores.n_test > 0, (scores.n_train > 0) & work
        known = (True, test, test, True, train)
        return Scores(*(np.where(has, column, 0) for has, column in zip(known, scores)))
    held = [own.train.rows_of(i) for i in np.searchsorted(site.clients, clients)]
    sizes = np.array([len(rows) for rows in held])
    check_work(work, algorithm.roles, sizes)
    data = LocalData(
        clients, round, source.X, y, np.concatenate(held), offsets(sizes),
        dict(zip(algorithm.roles, work.rows)), work.steps, work.per_epoch,
        *own.shift_and_scale, dtype, source.vocabulary is not None,
    )  # fmt: skip
    run_clients = careful_clients("drop", partial(print, "fedref:", file=sys.stderr, flush=True))
    results, counts = run_clients(algorithm, model, sent, [*states.values()], data)
    for (k, t), result in zip(before.items(), results):
        if result is not None and result.client_state is not None:
            write_state(folder, k, t, round, result.client_state)
    return tuple(map(without_state, results)), np.array(counts, np.int64)


def without_state(result: ClientResult | None) -> ClientAnswer | None:
    """Return what the server gets of a client's result: its state stays here."""
    if result is None:
        return None
    log = np.array([result.log[name] for name in sorted(result.log)], np.float64)
    return ClientAnswer(result.upload, result.client_state is not None, log)


def check_head(request: Request, site: Site, experiment: Experiment) -> None:
    """Refuse a request for another run, other clients or other labels than there are."""
    check(request._replace(sent=None, work=None), Request(), "the request")
    source, number, labels = site.federation.source, len(units(experiment)), request.labels
    for holds, reason in (
        (request.experiment == stamp(experiment), "is not the node's experiment"),
        (re.fullmatch("[0-9a-f]{16}", request.run), "run is not 16 hexadecimal digits"),
        (0 <= request.unit < number, f"unit is {request.unit}, of {number}"),
        (0 <= request.round <= experiment.rounds, f"round {request.round} is not in the run"),
        (ascend(request.clients), "clients are not ascending"),
        (np.isin(request.clients, site.clients).all(), "asks for other clients than the node's"),
        (len(request.states) == len(request.clients), "has not one state a client"),
        (ascend(labels) and np.isin(source.labels, labels).all(), "labels lack those of the node"),
        (len(labels) * source.X.shape[1] <= messages.MOST_NUMBERS, "has too many labels"),
    ):
        require(holds, reason)


def check_work(work: Work, roles: Sequence[str], sizes: Array) -> None:
    """Refuse a part of a plan that does not fit the clients' rows."""
    K, each = len(sizes), np.zeros(len(sizes), np.int64)
    rows = tuple(np.zeros((K, 0, 0), np.int32) for _ in roles)
    check(work, Work(rows, each, each), "work")
    S = {rows.shape[1] for rows in work.rows}
    require(len(S) == 1 and 0 <= work.steps.min() <= work.steps.max() <= max(S), "steps beyond S")
    require(work.per_epoch.min() > 0, "has epochs of no step")
    for batch in work.rows:
        fit = batch.min(initial=PADDING) >= PADDING and (batch < sizes[:, None, None]).all()
        require(fit, "plans with rows that a client does not have")


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
    own = folder / str(client)
    write_or_raise(own / f"{round}.ckpt", checkpoint.dumps(state))
    rounds = sorted(int(path.stem) for path in own.glob("*.ckpt") if path.stem.isdigit())
    for t in [t for t in rounds if t < before][:-1]:
        (own / f"{t}.ckpt").unlink(missing_ok=True)
