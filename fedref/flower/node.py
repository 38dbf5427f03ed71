"""A node: its rows, its clients' states between rounds, and its answers to the server.

The rows are its part, a .npz of plain arrays, which anybody can write with NumPy:

    X       (n, p) features, as numbers or codes      shift, scale   optional: the features are
    y       (n,) labels, whole numbers                               (X − shift) / scale
    client  (n,) the client's number in the run       image          optional: (H, W, C)
    test    (n,) whether it is a test row             vocabulary     optional: the text of each code

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

from fedref.algorithm import AnyAlgorithm, ClientResult
from fedref.boundary import checkpoint
from fedref.boundary.files import data_error, open_regular, write_or_raise
from fedref.datasets.formats import arrays
from fedref.datasets.formats.npz import read_archive
from fedref.datasets.manifest import check_federation, read_affine
from fedref.datasets.partition import group_by_client, offsets
from fedref.experiments.config import Experiment, stamp
from fedref.experiments.loading import known_labels, make_model
from fedref.experiments.parallel import run_single_threaded
from fedref.experiments.unit import careful_clients, units
from fedref.flower import messages
from fedref.flower.messages import (
    Call,
    ClientAnswer,
    Evaluate,
    Facts,
    MessageError,
    Train,
    check,
    require,
)
from fedref.models.base import Model
from fedref.rounds.evaluation import evaluate_clients
from fedref.rounds.federation import Federation, Source
from fedref.rounds.local_data import LocalData
from fedref.sampling import PADDING

# ---- a node's part -------------------------------------------------------------------------------

NEEDED, OPTIONAL = ("X", "y", "client", "test"), ("shift", "scale", "image", "vocabulary")
EXPECTED = "a node's part: a .npz with X, y, client and test"


class Site(NamedTuple):
    """A node's clients: their numbers in the run, ascending, and their rows."""

    clients: list[int]
    federation: Federation

    @property
    def facts(self) -> Facts:
        """The sizes and kinds of the rows, for the server."""
        source = self.federation.source
        return Facts(
            self.clients,
            self.federation.train.sizes.tolist(),
            self.federation.test.sizes.tolist(),
            source.X.shape[1],
            source.labels.tolist(),
            list(source.image or ()),
            list(source.vocabulary or ()),
        )


def write_part(path: Path, federation: Federation, clients: Iterable[int]) -> None:
    """Write a part with the rows of these clients only."""
    parts = [(part.rows_of(k), k, test) for k in clients for part, test in
             ((federation.train, False), (federation.test, True))]  # fmt: skip
    rows = np.concatenate([rows for rows, _, _ in parts])
    source = federation.source
    contents: dict[str, Any] = {
        "X": source.X[rows],
        "y": source.y[rows],
        "client": np.concatenate([np.full(len(rows), k) for rows, k, _ in parts]),
        "test": np.concatenate([np.full(len(rows), test) for rows, _, test in parts]),
        "shift": federation.shift,
        "scale": federation.scale,
        "image": source.image,
        "vocabulary": source.vocabulary,
    }
    contents = {name: np.asarray(value) for name, value in contents.items() if value is not None}
    write_or_raise(path, partial(np.savez, **contents))


def read_part(path: Path) -> Site:
    """Read and check a node's part; a DataError if one cannot train on it."""
    with open_regular(path, EXPECTED) as file:
        contents, where = read_archive(file, path, EXPECTED), str(path)
    arrays.reject_unknown_arrays(contents, where, NEEDED + OPTIONAL)
    X, *others = arrays.require_arrays(contents, where, NEEDED)
    X, image = arrays.as_features(X, where)
    y, client, test = (
        arrays.as_integers(values, len(X), where, name) for name, values in zip(NEEDED[1:], others)
    )
    if client.min() < 0:
        raise data_error(path, f"client is {client.min()}", "numbers from 0 on")
    if not set(np.unique(test).tolist()) <= {0, 1}:
        raise data_error(path, "test holds other numbers", "1 for test rows, 0 for training rows")
    more: Any = {"image": image}
    more |= {name: tuple(contents[name].tolist()) for name in OPTIONAL[2:] if name in contents}
    numbers, index = np.unique(client, return_inverse=True)
    train, tests = (
        group_by_client(index[rows], len(numbers), rows)
        for rows in (np.flatnonzero(test == 0), np.flatnonzero(test))
    )
    federation = Federation(
        Source(X, y, name=path.name, **more),
        train,
        tests,
        rule="flower",
        shift=read_affine(contents.get("shift", 0.0), "shift", X.shape[1], path),
        scale=read_affine(contents.get("scale", 1.0), "scale", X.shape[1], path),
    )
    for k in np.flatnonzero(train.sizes == 0):
        raise data_error(path, f"client {numbers[k]} has no training row", "at least one")
    check_federation(federation, path, "rows that can be trained on")
    return Site(numbers.tolist(), federation)


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
        require(isinstance(request, Train | Evaluate), "sends no request")
        work = answer_train if isinstance(request, Train) else answer_evaluate
        return checkpoint.dumps(run_single_threaded(work, request, site, experiment, folder))
    except MessageError as error:
        return checkpoint.dumps(f"refuses: {error}")
    except Exception as error:
        print(f"fedref: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return checkpoint.dumps(f"its work raised {type(error).__name__}: see the node's own log")


class Job(NamedTuple):
    """All that a checked request needs."""

    experiment: Experiment  # at the unit's point of the sweep
    seed: int
    algorithm: AnyAlgorithm
    model: Model
    federation: Federation
    at: list[int]  # places of the clients that are meant, among the site's
    states: list[Any]
    folder: Path  # of the unit's states


def prepare(request: Any, site: Site, experiment: Experiment, folder: Path) -> Job:
    """Check what every request says of the run, the clients and the parameters."""
    call = request.call
    check(call, Call(), "the request")
    all_units = units(experiment)
    require(call.experiment == stamp(experiment), "is not the node's experiment")
    require(re.fullmatch("[0-9a-f]{16}", call.run), "run is not 16 hexadecimal digits")
    require(0 <= call.unit < len(all_units), f"unit is {call.unit}, of {len(all_units)}")
    require(0 <= call.round <= experiment.rounds, f"round is {call.round} of {experiment.rounds}")
    require(call.clients == sorted({*call.clients}), "clients are not ascending")
    require({*call.clients} <= {*site.clients}, "asks for other clients than the node's")
    require(len(call.states) == len(call.clients), "has not one state a client")
    require({*site.facts.labels} <= {*call.labels}, "labels lack those of the node")
    unit = all_units[call.unit]
    point = unit.experiment
    labels = np.array(sorted({*call.labels}))
    source = site.federation.source
    require(len(labels) * source.X.shape[1] <= messages.MOST_NUMBERS, "too many labels")
    model = make_model(point.model, replace(source, y=labels))
    require(model.d <= messages.MOST_NUMBERS, "a model too large")
    y = known_labels(source.y, labels, model, source.name)
    algorithm = unit.algorithm
    w = np.zeros(model.d, point.dtype)
    check(request.sent, algorithm.download(algorithm.initial(model, w)), "what it sends", w)
    own = folder / call.run / str(call.unit)
    return Job(
        point, unit.seed, algorithm, model, replace(site.federation, source=replace(source, y=y)),
        [site.clients.index(k) for k in call.clients],
        [read_state(own, k, t) for k, t in zip(call.clients, call.states)], own,
    )  # fmt: skip


def answer_train(
    request: Train, site: Site, experiment: Experiment, folder: Path
) -> tuple[list[ClientAnswer | None], list[int]]:
    """Do the clients' work of a round; return a result for each (None: it failed), and the counts."""
    job = prepare(request, site, experiment, folder)
    call, own, algorithm = request.call, job.federation, job.algorithm
    held = [own.train.rows_of(i) for i in job.at]
    check_plan(request, algorithm.roles, np.array([len(rows) for rows in held]))
    data = LocalData(
        np.array(call.clients), call.round, own.source.X, own.source.y, np.concatenate(held),
        offsets(np.array([len(rows) for rows in held])), dict(zip(algorithm.roles, request.rows)),
        request.steps, request.per_epoch, *own.shift_and_scale, np.dtype(job.experiment.dtype),
        own.source.vocabulary is not None,
    )  # fmt: skip
    work = careful_clients("drop", partial(print, "fedref:", file=sys.stderr, flush=True))
    results, counts = work(algorithm, job.model, request.sent, job.states, data)
    for k, before, result in zip(call.clients, call.states, results):
        if result is not None and result.client_state is not None:
            write_state(job.folder, k, before, call.round, result.client_state)
    return [None if r is None else client_answer(r) for r in results], list(counts)


def client_answer(result: ClientResult) -> ClientAnswer:
    """Return the part of a result that the server gets: the client's state stays here."""
    log = {name: float(value) for name, value in result.log.items()}
    return ClientAnswer(result.upload, result.client_state is not None, log)


def check_plan(request: Train, roles: Sequence[str], sizes: Any) -> None:
    """Refuse a part of a plan that does not fit the clients' rows."""
    K, S = len(sizes), request.rows[0].shape[1] if request.rows and request.rows[0].ndim == 3 else 0
    for name, value in (("steps", request.steps), ("per_epoch", request.per_epoch)):
        check(value, np.zeros(K, np.int64), name)
    require(
        K and len(request.rows) == len(roles), f"sends {len(request.rows)} roles of {len(roles)}"
    )
    require(request.steps.min() >= 0 and request.steps.max() <= S, f"has other than 0 to {S} steps")
    require(request.per_epoch.min() > 0, "has epochs of no step")
    for rows in request.rows:
        check(rows, np.zeros((K, S, rows.shape[-1]), np.int32), "the rows of the plan")
        fit = rows.min(initial=PADDING) >= PADDING and (rows < sizes[:, None, None]).all()
        require(fit, "plans with rows that a client does not have")


def answer_evaluate(
    request: Evaluate, site: Site, experiment: Experiment, folder: Path
) -> tuple[Any, ...]:
    """Return the scores of all the node's clients: the five columns of `Scores`."""
    job = prepare(request, site, experiment, folder)
    check(request.train, True, "train")
    require(request.call.clients == site.clients, "does not ask for all the node's clients")
    scores = evaluate_clients(
        job.algorithm, job.model, request.sent, dict(zip(site.clients, job.states)), job.federation,
        job.experiment.plan_of(len(site.clients)), clients=site.clients,
        round=request.call.round, seed=job.seed, dtype=np.dtype(job.experiment.dtype), train=request.train,
    )  # fmt: skip
    return tuple(scores)


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
