"""A node: its rows, its clients' states between rounds, and its answers to the server.

The rows are its part, a .npz of plain arrays, which anybody can write with NumPy:

    X       (n, p) features, as numbers or codes      shift, scale   optional: the features are
    y       (n,) labels, whole numbers                               (X − shift) / scale
    client  (n,) the client's number in the run       image          optional: (H, W, C)
    test    (n,) whether it is a test row             vocabulary     optional: the text of each code

Plans refer to the rows of a client by their order in the part. The clients' states are in a folder:

    FOLDER/RUN/part.sha256            the hash of the part that the run began with
    FOLDER/RUN/UNIT/CLIENT/ROUND.ckpt a client's state after its work of that round

A node calls the same functions as a local run, and draws its clients' mini-batches from the
experiment's seeds. It refuses what is not in its copy of the experiment: another experiment, more
epochs, parameters of another shape.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import file_digest
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, cast

import numpy as np

from fedref import tree
from fedref.algorithm import AnyAlgorithm
from fedref.boundary import checkpoint
from fedref.boundary.files import data_error, open_regular, write_or_raise
from fedref.datasets.formats import arrays
from fedref.datasets.formats.npz import read_archive
from fedref.datasets.manifest import check_federation, read_affine
from fedref.datasets.partition import group_by_client
from fedref.experiments import config, names
from fedref.experiments.config import Experiment
from fedref.experiments.loading import known_labels, make_model
from fedref.experiments.parallel import run_single_threaded
from fedref.experiments.unit import stamp, units
from fedref.flower import protocol
from fedref.flower.protocol import (
    NONE,
    Announcement,
    Call,
    ClientScores,
    EvaluateRequest,
    Packet,
    ProtocolError,
    TrainRequest,
    Work,
)
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.rounds.evaluation import evaluate_clients
from fedref.rounds.federation import Federation, Source
from fedref.rounds.local_data import LocalData, gather
from fedref.rounds.loop import run_clients
from fedref.sampling import PADDING, Plan, client_batches, steps_of_epoch

# ---- a node's part -------------------------------------------------------------------------------

NEEDED, OPTIONAL = ("X", "y", "client", "test"), ("shift", "scale", "image", "vocabulary")
EXPECTED = "a node's part: a .npz with X, y, client and test"


class Site(NamedTuple):
    """A node's clients: their numbers in the run (M,), ascending, and their rows."""

    clients: Array
    federation: Federation
    sha256: str  # of the file, to notice changed rows; it stays on the node

    @property
    def announcement(self) -> Announcement:
        """The description of the rows that the server gets: sizes and kinds."""
        source = self.federation.source
        return Announcement(
            self.clients.tolist(),
            self.federation.train.sizes.tolist(),
            self.federation.test.sizes.tolist(),
            source.X.shape[1],
            source.labels.tolist(),
            list(source.image or ()),
            list(source.vocabulary or ()),
        )

    def rows_of(self, k: int) -> Federation:
        """Return a federation of client k alone."""
        return self.federation.subset(np.searchsorted(self.clients, [k]))


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
        digest = file_digest(file, "sha256").hexdigest()
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
    return Site(numbers, federation, digest)


# ---- the clients' states -------------------------------------------------------------------------


class Store:
    """The clients' states of one unit of a run, each a file that is written atomically.

    A request names the round of the client's last work that *counted*, and the client begins with the
    state after that round. So work whose answer came late or was refused has no effect, and a server
    that resumes from a checkpoint finds the states of that time.

    Four states of a client are kept: the new one, the one that the work began with, and two older
    ones. The server saves a round only after its evaluation, whose message also asks for the work of
    the next round. So its newest checkpoint may be a round behind, and its previous one two.
    """

    def __init__(self, folder: Path, run: str, unit: int) -> None:
        if not protocol.RUN.fullmatch(run):
            raise ProtocolError(f"asks for run {run!r}, expected 16 hexadecimal digits")
        self.run, self.folder = folder / run, folder / run / str(unit)

    def check_part(self, sha256: str) -> None:
        """Raise a ProtocolError if the part has changed since the run began on this node."""
        path = self.run / "part.sha256"
        if not path.exists():
            write_or_raise(path, sha256.encode())
        elif path.read_bytes() != sha256.encode():
            raise ProtocolError("its rows have changed since the run began")

    def path(self, client: int, round: int) -> Path:
        return self.folder / str(client) / f"{round}.ckpt"

    def read(self, client: int, round: int) -> Any:
        """Return the client's state after that round; None for round −1."""
        if round == NONE:
            return None
        path = self.path(client, round)
        try:
            return checkpoint.loads(path.read_bytes(), path.name)
        except (OSError, ValueError) as error:
            raise ProtocolError(f"its own state after round {round + 1} cannot be read") from error

    def write(self, client: int, before: int, round: int, state: Any) -> None:
        """Write the client's state after this round; `before` : the round whose state it began with."""
        write_or_raise(self.path(client, round), checkpoint.dumps(state))
        kept = self.rounds(client)
        older = [t for t in kept if t < before]
        for t in set(kept) - {before, round, *older[-2:]}:
            self.path(client, t).unlink(missing_ok=True)

    def rounds(self, client: int) -> list[int]:
        """Return the rounds for which the client has a state, ascending."""
        names = (path.stem for path in (self.folder / str(client)).glob("*.ckpt"))
        return sorted(int(name) for name in names if name.isdigit())


# ---- a node's answers ----------------------------------------------------------------------------


class Job(NamedTuple):
    """A request that has been checked, with everything that its work needs."""

    call: Call
    experiment: Experiment  # at the unit's point of the sweep
    seed: int
    algorithm: AnyAlgorithm
    model: Model
    sent: Any
    site: Site  # with the model's labels
    store: Store


def handle_request(request: Packet, site: Site, experiment: Experiment, folder: Path) -> Packet:
    """Return the reply to any request."""
    if "hello" in request:
        return {"announcement": protocol.write(site.announcement)}
    return cast(Packet, run_single_threaded(run_request, request, site, experiment, folder))


def reason_for(error: Exception, where: str) -> protocol.Record:
    """Return the reason to send for an error: the text of a ProtocolError, else only the error's type.

    The text of other errors may hold values of rows, so it is only printed in the node's own log.
    """
    if isinstance(error, ProtocolError):
        return protocol.write_reason(error)
    print(f"fedref: {where}: {error!r}", file=sys.stderr, flush=True)
    kind = type(error).__name__
    return protocol.write_reason(f"its work raised {kind}: see the node's own log")


def answer_within(seconds: float, work: Callable[[], Packet]) -> Packet:
    """Return the answer of `work`, or a refusal if it fails or takes longer than so many seconds.

    Work that hangs would block the node: Flower ends the process of a message when it is answered.
    """
    late = {"refused": protocol.write_reason(f"its work took longer than {seconds:g} s")}
    replies: list[Packet] = []

    def answer() -> None:
        try:
            replies.append(work())
        except Exception as error:
            replies.append({"refused": reason_for(error, "a request")})

    thread = Thread(target=answer, daemon=True)
    thread.start()
    thread.join(seconds)
    return replies[0] if replies else late


def run_request(request: Packet, site: Site, experiment: Experiment, folder: Path) -> Packet:
    """Return the reply to a call. Evaluate first, as training writes new states."""
    job = read_job(request, site, experiment, folder)
    reply: dict[str, protocol.Record] = {}
    for word, work in (("evaluate", evaluate_client), ("train", train_client)):
        for k in site.clients.tolist():
            if f"{word} {k}" in request:
                try:
                    reply |= work(job, k, request)
                except Exception as error:
                    where = f"client {k}, round {job.call.round}"
                    reply[f"lost {k}"] = reason_for(error, where)
    return reply


def read_job(request: Packet, site: Site, experiment: Experiment, folder: Path) -> Job:
    """Check a request against the experiment and return its job."""
    call: Call = protocol.read(Call(), request, "call")
    if call.stamp != stamp(experiment):
        raise ProtocolError("asks for another experiment than this node has")
    known = units(experiment)
    if not 0 <= call.unit < len(known):
        raise ProtocolError(f"asks for unit {call.unit} of {len(known)}")
    unit = known[call.unit]
    at_point = config.at_point(experiment, unit.point)
    if not 0 <= call.round <= at_point.rounds:
        raise ProtocolError(f"asks for round {call.round} of {at_point.rounds}")
    source = site.federation.source
    protocol.check_totals(len(source.y), source.X.shape[1], call.labels)
    if call.labels != sorted({*call.labels} | {*source.labels.tolist()}):
        raise ProtocolError("leaves out labels that this node has, or does not sort them")
    labels = np.array(call.labels, np.int64)
    model = make_model(at_point.model, replace(source, y=labels))
    protocol.check_size("parameters", model.d)
    y = known_labels(source.y, labels, model, source.name)
    federation = replace(site.federation, source=replace(source, y=y))
    algorithm = names.make_algorithm(unit.label, at_point.algorithms[unit.label])
    w = np.zeros(model.d, at_point.dtype)
    example = algorithm.download(algorithm.initial(model, w))
    sent = protocol.read(example, request, "sent", vector=w)
    store = Store(folder, call.run, call.unit)
    store.check_part(site.sha256)
    site = site._replace(federation=federation)
    return Job(call, at_point, unit.seed, algorithm, model, sent, site, store)


def train_client(job: Job, k: int, request: Packet) -> Packet:
    """Do client k's work of a round; return its upload and its counts."""
    experiment, round = job.experiment, job.call.round
    asked: TrainRequest = protocol.read(TrainRequest(), request, f"train {k}")
    if not 1 <= asked.amount <= experiment.plan.amount:
        words = f"{asked.amount} epochs or steps of {experiment.plan.amount}"
        raise ProtocolError(f"is asked for {words}")
    federation = job.site.rows_of(k)
    data = local_data(
        job.algorithm, experiment, federation, k, asked.amount, round, job.seed, asked.widths
    )
    state = job.store.read(k, asked.state)
    (result,), counts = run_clients(job.algorithm, job.model, job.sent, [state], data)
    assert result is not None
    if not tree.finite(result.client_state):
        raise ProtocolError("has parameters of its own that are not finite")
    keeps = result.client_state is not None
    if keeps:
        job.store.write(k, asked.state, round, result.client_state)
    work = Work(counts, keeps, [float(value) for value in result.log.values()])
    return {
        f"upload {k}": protocol.write_arrays(result.upload),
        f"work {k}": protocol.write(work),
    }


def local_data(
    algorithm: AnyAlgorithm, experiment: Experiment, federation: Federation,
    k: int, amount: int, round: int, seed: int, widths: Sequence[int] | None = None,
) -> LocalData:  # fmt: skip
    """Return client k's data for a round, with mini-batches padded to the widths of the cohort's.

    federation : holds this client alone. widths : a width for each role (None: no padding).
    """
    n = federation.train.sizes
    batches = client_batches(experiment.plan, algorithm.roles, k, int(n[0]), amount, round, seed)
    if widths is not None and len(widths) != len(batches):
        raise ProtocolError(f"is asked for {len(widths)} kinds of batches, expected {len(batches)}")
    widths = widths or [rows.shape[1] for rows in batches.values()]
    one = np.ones(1, np.int64)
    plan = Plan(
        round,
        clients=0 * one,
        counts=one,
        sizes=n,
        amount=amount * one,
        straggler=np.zeros(1, bool),
        steps=len(batches[algorithm.roles[0]]) * one,
        per_epoch=steps_of_epoch(experiment.plan, algorithm.roles, n),
        rows={
            role: pad_rows(rows, width, federation.source.X.shape[1])[None]
            for (role, rows), width in zip(batches.items(), widths)
        },
    )
    data = gather(plan, federation, experiment.dtype, 0 * one)
    return data._replace(clients=k * one)


def pad_rows(rows: Array, width: int, features: int) -> Array:
    """Pad rows (S, own width) to (S, width); refuse a width that is smaller or takes much memory."""
    steps, own_width = rows.shape
    if width < own_width:
        raise ProtocolError(f"is asked for batches of {width} rows, and its own have {own_width}")
    protocol.check_size("steps × rows of a batch", steps, width)
    protocol.check_size("rows of a batch × features", width, features)
    return np.pad(rows, ((0, 0), (0, width - own_width)), constant_values=PADDING)


def evaluate_client(job: Job, k: int, request: Packet) -> Packet:
    """Evaluate client k with the model that it tests with; return its scores."""
    asked: EvaluateRequest = protocol.read(EvaluateRequest(), request, f"evaluate {k}")
    federation, state = job.site.rows_of(k), job.store.read(k, asked.state)
    scores = evaluate_clients(
        job.algorithm,
        job.model,
        job.sent,
        {} if asked.state == NONE else {k: state},
        federation,
        job.experiment.plan,
        clients=[k],
        round=job.call.round,
        seed=job.seed,
        dtype=np.dtype(job.experiment.dtype),
        train=asked.train,
    )
    n_test, *test, n_train, train_loss = (column[0].item() for column in scores)
    train = [train_loss] if asked.train and n_train else []
    return {f"scores {k}": protocol.write(ClientScores(test if n_test else [], train))}
