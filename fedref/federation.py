"""The one place where rounds are run.

An algorithm says what differs (`Algorithm`); the loop over clients, steps and rounds is here.
`run_client` is the specification: one client, one step after the other. `run_stack` does the same
steps for many clients at once along a leading axis; a test shows that both agree to the bit.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedref import tree
from fedref.batch import Batch
from fedref.datasets.types import Federation, affine
from fedref.errors import ConfigError, FedrefError, unknown
from fedref.models.base import Model
from fedref.numerics import Array
from fedref.sampling import PADDING, Plan


class Cohort(NamedTuple):
    """Who was aggregated: clients (K,), counts (K,) how often each was drawn, n (K,) samples."""

    clients: Array
    counts: Array
    n: Array

    def weights(self, weighting: str) -> Array:
        """p_k, summing to 1: by samples n_k/Σn_k, or uniform 1/K."""
        if weighting not in WEIGHTINGS:
            raise ConfigError(unknown("weighting", weighting, WEIGHTINGS))
        share = self.counts * (self.n if weighting == "samples" else 1)
        return np.asarray(share / share.sum())


WEIGHTINGS = ("samples", "uniform")


def weighted_mean(p: Array, w: Array) -> Array:
    """Σ_k p_k w_k, p_k summing to 1, added in client order: p (K,), w (K, d) → (d,)."""
    return weighted_sum(p, w)


def weighted_sum(c: Array, w: Array) -> Array:
    """Σ_k c_k w_k, added in client order, in the dtype of w."""
    c = c.astype(w.dtype)
    total = c[0] * w[0]
    for c_k, w_k in zip(c[1:], w[1:]):
        total = total + c_k * w_k
    return np.asarray(total)


class Done(NamedTuple):
    """What a client ends a round with: what it sends, what it keeps, what we note about it."""

    upload: Any
    mine: Any = None
    log: Mapping[str, float] = {}


class Server(NamedTuple):
    """The simplest server state: the global model w (d,)."""

    w: Array


@dataclass(frozen=True)
class Algorithm:
    """What differs between algorithms: eight small pure functions, with FedAvg's server as default.

    `server` is the server's state, `sent` what travels down (all that a client sees of it),
    `local` what a client carries from step to step, `mine` what it keeps between rounds (None
    before its first). Each is a tree: an array, or a (named) tuple of them. `step` must work on
    any leading axes, so that the same function serves one client and a stack of them.

    weighting : "samples" (p_k = n_k/Σn_k over the cohort) or "uniform" (1/K).
    drop : whether stragglers are dropped (as FedAvg does) or their partial work is aggregated.
    """

    weighting: str = "samples"
    drop: bool = True

    #: The batches that one step takes; see `sampling`.
    roles: ClassVar[tuple[str, ...]] = ("D",)
    #: Whether clients test with a model of their own, and on what batch they make it (or none).
    personalised: ClassVar[bool] = False
    adapts_on: ClassVar[str | None] = None
    #: Whether training pools all clients' rows: the centralised baseline.
    pooled: ClassVar[bool] = False

    #: The words that a field may hold, and its least and greatest number where not 0 and ∞.
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            low, high = self.bounds.get(name, (0.0, np.inf))
            words = WEIGHTINGS if name == "weighting" else self.choices.get(name, ())
            if isinstance(value, str):
                if value not in words:
                    raise ConfigError(unknown(name.replace("_", "-"), value, words))
            elif not (np.isfinite(value) and low <= value <= high):
                expected = f"from {low:g} to {high:g}" if high < np.inf else f"of at least {low:g}"
                raise ConfigError(
                    f"{name.replace('_', '-')} is {value}, expected a finite number {expected}"
                )

    @property
    def watches_loss(self) -> bool:
        """Whether `observe` needs the global training loss after every round."""
        return False

    @property
    def stops_early(self) -> bool:
        """Whether `stop` must be asked after each local epoch: then clients run one by one."""
        return False

    def initial(self, model: Model, w: Array) -> Any:
        """The server's state before round 0, from the initial parameters w (d,)."""
        return Server(w)

    def download(self, server: Any) -> Any:
        """What the server sends to each client of the cohort."""
        return server

    def start(self, model: Model, sent: Any, mine: Any) -> Any:
        """What one client starts its local steps from."""
        return sent.w

    def step(self, model: Model, sent: Any, local: Any, *batches: Batch) -> Any:
        """One local step, on one batch of each role."""
        raise NotImplementedError

    def stop(self, model: Model, sent: Any, local: Any, data: Batch) -> bool:
        """Whether one client may stop now, after a local epoch; `data` is all its training data."""
        return False

    def finish(self, model: Model, sent: Any, local: Any, mine: Any, data: "LocalData") -> Done:
        """What one client sends and keeps; by default it sends its `local`."""
        return Done(local)

    def diagnose(self, model: Model, sent: Any, local: Any, data: "LocalData") -> dict[str, float]:
        """Measurements that are logged, and neither sent nor counted as work."""
        return {}

    def combine(self, model: Model, server: Any, uploads: Any, cohort: Cohort) -> Any:
        """The server's next state; uploads is the tree of what was sent, leaves (K, ...)."""
        return Server(weighted_mean(cohort.weights(self.weighting), uploads))

    def observe(self, server: Any, loss: float) -> Any:
        """The server's state after it has seen the global training loss of this round."""
        return server

    def personal(self, model: Model, sent: Any, mine: Any, D: Batch | None) -> Array:
        """The parameters (d,) that one client tests with."""
        return np.asarray(sent.w)

    def log(self, server: Any) -> dict[str, float]:
        """What of the server's state is worth a column in metrics.csv."""
        return {}


class State(NamedTuple):
    """All that a run carries from round to round."""

    server: Any
    clients: Mapping[int, Any]  # client → mine


class Counter:
    """A model that counts: gradient and HVP evaluations (one a client and batch), and samples."""

    def __init__(self, model: Model) -> None:
        self.model, self.grads, self.hvps = model, 0, 0
        self.grad_samples, self.hvp_samples = 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["model"], name)

    @staticmethod
    def _evaluations(D: Batch, *vectors: Array) -> tuple[int, int]:
        lead = np.broadcast_shapes(D.y.shape[:-1], *(v.shape[:-1] for v in vectors))
        real = D.y.size if D.s is None else int(np.count_nonzero(D.s))
        n = prod(lead)
        return n, n * real // max(prod(D.y.shape[:-1]), 1)

    def grad(self, w: Array, D: Batch) -> Array:
        n, samples = self._evaluations(D, w)
        self.grads += n
        self.grad_samples += samples
        return self.model.grad(w, D)

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        n, samples = self._evaluations(D, w, v)
        self.hvps += n
        self.hvp_samples += samples
        return self.model.hvp(w, v, D)

    @property
    def counts(self) -> Array:
        """(grads, hvps, grad_samples, hvp_samples)."""
        return np.array([self.grads, self.hvps, self.grad_samples, self.hvp_samples])


#: Features up to this size are made floating point once a round, larger ones batch by batch.
GATHER_BYTES = 1 << 26


class LocalData(NamedTuple):
    """The training data of a few clients, all that is shipped to a worker: client k of the group
    holds rows offsets[k]:offsets[k+1] of (X − shift)/scale. rows : role → (K, S, W), −1 = padding.
    """

    X: Array
    y: Array
    offsets: Array
    rows: Mapping[str, Array]
    steps: Array
    per_epoch: Array
    shift: Any
    scale: Any
    dtype: Any

    def features(self, rows: Array | slice) -> Array:
        X = self.X[rows] if isinstance(rows, slice) else self.X.take(rows, 0)
        return affine(X, self.shift, self.scale, self.dtype)

    def ready(self) -> "LocalData":
        """The same, with the features made floating point at once where they are few."""
        if self.X.size * np.dtype(self.dtype).itemsize > GATHER_BYTES:
            return self
        return self._replace(X=self.features(slice(None)), shift=None, scale=None)

    def all(self, k: int) -> Batch:
        """All training data of client k of the group."""
        mine = slice(self.offsets[k], self.offsets[k + 1])
        return Batch(self.features(mine), self.y[mine])

    def only(self, ks: Sequence[int] | Array) -> "LocalData":
        """The data of some clients of the group."""
        parts = [slice(self.offsets[k], self.offsets[k + 1]) for k in ks]
        sizes = [part.stop - part.start for part in parts]
        return self._replace(
            X=np.concatenate([self.X[part] for part in parts]),
            y=np.concatenate([self.y[part] for part in parts]),
            offsets=np.concatenate([[0], np.cumsum(sizes)]),
            rows={role: rows[ks] for role, rows in self.rows.items()},
            steps=self.steps[ks],
            per_epoch=self.per_epoch[ks],
        )

    def batch(self, role: str, k: int, t: int) -> Batch:
        """Client k's batch at step t: X (W, p)."""
        return self._batch(self.rows[role][k, t], self.offsets[k])

    def batches(self, role: str, active: int, t: int) -> Batch:
        """The batches of the first `active` clients at step t: X (active, W, p)."""
        return self._batch(self.rows[role][:active, t], self.offsets[:active, None])

    def _batch(self, rows: Array, offset: Array) -> Batch:
        index, real = rows + offset, rows != PADDING
        if real.all():
            return Batch(self.features(index), self.y.take(index))
        index = np.where(real, index, offset)
        index = np.minimum(index, len(self.y) - 1)  # an empty batch may point past the last client
        return Batch(self.features(index), self.y.take(index), real.astype(self.dtype))


def run_client(
    algorithm: Algorithm, model: Model, sent: Any, mine: Any, data: LocalData, k: int
) -> Any:
    """The specification: client k's local steps, one after the other. Returns its `local`."""
    local = algorithm.start(model, sent, mine)
    for t in range(int(data.steps[k])):
        local = algorithm.step(model, sent, local, *(data.batch(r, k, t) for r in data.rows))
        epoch_ends = (t + 1) % data.per_epoch[k] == 0
        if algorithm.stops_early and epoch_ends and algorithm.stop(model, sent, local, data.all(k)):
            break
    return local


def run_stack(
    algorithm: Algorithm, model: Model, sent: Any, mines: Sequence[Any], data: LocalData
) -> list[Any]:
    """The theorem: the same steps for all clients of the group at once.

    Clients are sorted by their number of steps, so that those still at work are always a prefix.
    """
    order = np.argsort(-data.steps, kind="stable")
    sorted_data = data._replace(
        offsets=data.offsets[:-1][order],
        rows={role: rows[order] for role, rows in data.rows.items()},
    )
    steps = data.steps[order]
    local = tree.stack([algorithm.start(model, sent, mines[k]) for k in order])
    ended: list[Any] = [None] * len(order)
    active = len(order)
    for t in range(int(steps[0]) + 1):
        still = int(np.count_nonzero(steps > t))
        for i in range(still, active):
            ended[order[i]] = tree.map(lambda x, i=i: x[i], local)
        if still == 0:
            break
        if still < active:
            local = tree.map(lambda x, still=still: x[:still], local)
            active = still
        local = algorithm.step(
            model, sent, local, *(sorted_data.batches(r, active, t) for r in data.rows)
        )
    return ended


class ClientError(FedrefError):
    """A client's work failed: says which client, in which round, and why."""


#: From this many parameters on, clients are run one by one: a stack would leave the cache.
STACK_UP_TO = 100_000


def run_group(
    algorithm: Algorithm,
    model: Model,
    sent: Any,
    mines: Sequence[Any],
    data: LocalData,
    stack: bool,
) -> tuple[list[Done], Array]:
    """A few clients' work, a pure function of its arguments: this is what a worker is given."""
    counter, data = Counter(model), data.ready()
    counting: Any = counter
    if stack and not algorithm.stops_early:
        ended = run_stack(algorithm, counting, sent, mines, data)
    else:
        ended = [
            run_client(algorithm, counting, sent, mine, data, k) for k, mine in enumerate(mines)
        ]
    results = []
    for k, (local, mine) in enumerate(zip(ended, mines)):
        own = data._replace(offsets=data.offsets[k : k + 2])
        done = algorithm.finish(counting, sent, local, mine, own)
        log = {**algorithm.diagnose(model, sent, local, own), **done.log}
        results.append(done._replace(log=log))
    return results, counter.counts


class RoundLog(NamedTuple):
    """What one round cost and what was measured in it."""

    floats_down: int = 0
    floats_up: int = 0
    grads: int = 0
    hvps: int = 0
    grad_samples: int = 0
    hvp_samples: int = 0
    stragglers: int = 0
    dropped: int = 0
    failed: int = 0
    measured: Mapping[str, float] = {}


def gather(plan: Plan, federation: Federation, dtype: Any, keep: Array) -> LocalData:
    """The rows of the clients `keep` (indices into the plan's cohort), in the source's own dtype."""
    rows = [federation.train.of(k) for k in plan.clients[keep]]
    index = np.concatenate(rows)
    shift, scale = federation.shift_and_scale
    return LocalData(
        federation.source.X.take(index, 0),
        federation.source.y.take(index),
        np.concatenate([[0], np.cumsum([len(r) for r in rows])]),
        {role: batches[keep] for role, batches in plan.rows.items()},
        plan.steps[keep],
        plan.per_epoch[keep],
        shift,
        scale,
        np.dtype(dtype),
    )


def run_round(
    algorithm: Algorithm,
    model: Model,
    state: State,
    plan: Plan,
    federation: Federation,
    *,
    dtype: Any = np.float64,
    stack: bool | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    on_failure: str = "fail",
) -> tuple[State, RoundLog]:
    """One round: send, work, combine. Nothing that is passed in is changed.

    stack : many clients at once (None: where the model is small); results do not depend on it,
    nor on the executor, the number of workers, or the order in which they finish.
    on_failure : "fail" raises ClientError, "drop" treats a client that fails as one that never
    answered (when a worker dies: every client that it may have been at work on).
    """
    sent = algorithm.download(state.server)
    travels = not algorithm.pooled
    log = RoundLog(
        floats_down=travels * len(plan.clients) * tree.floats(sent),
        stragglers=int(plan.straggler.sum()),
    )
    keep = np.flatnonzero(~plan.straggler) if algorithm.drop else np.arange(len(plan.clients))
    log = log._replace(dropped=len(plan.clients) - len(keep))
    if not keep.size:
        return state, log

    mines = [state.clients.get(int(k)) for k in plan.clients[keep]]
    data = gather(plan, federation, dtype, keep)
    stack = model.d <= STACK_UP_TO if stack is None else stack
    done, counts = _work(
        algorithm, model, sent, mines, data, stack, executor, workers,
        [(int(k), plan.round + 1) for k in plan.clients[keep]], on_failure,
    )  # fmt: skip

    here = [i for i, result in enumerate(done) if result is not None]
    log = log._replace(failed=len(done) - len(here))
    grads, hvps, grad_samples, hvp_samples = counts.tolist()
    log = log._replace(grads=grads, hvps=hvps, grad_samples=grad_samples, hvp_samples=hvp_samples)
    if not here:
        return state, log
    results = [result for result in done if result is not None]
    keep = keep[here]
    cohort = Cohort(plan.clients[keep], plan.counts[keep], plan.sizes[keep])
    uploads = tree.stack([result.upload for result in results])
    names = dict.fromkeys(name for result in results for name in result.log)
    measured = {name: float(np.mean([r.log[name] for r in results])) for name in names}
    log = log._replace(floats_up=travels * tree.floats(uploads), measured=measured)

    kept = {
        int(k): result.mine for k, result in zip(cohort.clients, results) if result.mine is not None
    }
    server = algorithm.combine(model, state.server, uploads, cohort)
    return State(server, {**state.clients, **kept} if kept else state.clients), log


def _work(
    algorithm: Algorithm,
    model: Model,
    sent: Any,
    mines: list[Any],
    data: LocalData,
    stack: bool,
    executor: Executor | None,
    workers: int,
    who: list[tuple[int, int]],
    on_failure: str,
) -> tuple[list[Done | None], Array]:
    """run_group on the whole cohort, or on a part of it in each worker; failures by client."""
    parts = np.array_split(np.arange(len(mines)), min(workers if executor else 1, len(mines)))
    groups = [([mines[i] for i in part], data.only(part) if executor else data) for part in parts]
    futures = []
    if executor is not None:
        futures = [
            executor.submit(run_group, algorithm, model, sent, mine, own, stack)
            for mine, own in groups
        ]

    results: list[Done | None] = []
    counts = np.zeros(4, np.int64)
    for i, (part, group) in enumerate(zip(parts, groups)):
        try:
            done, n = (
                futures[i].result() if futures else run_group(algorithm, model, sent, *group, stack)
            )
            results += done
            counts += n
        except Exception as error:
            if isinstance(error, BrokenExecutor):  # it does not say whose work killed the worker
                if on_failure == "drop":
                    results += [None] * len(part)
                    continue
                lost = [part for part, future in zip(parts, futures) if future.exception()]
                clients = " or ".join(", ".join(str(who[i][0]) for i in part) for part in lost)
                raise ClientError(
                    f"round {who[0][1]}: the worker with clients {clients} died ({error})"
                ) from error
            alone, n = _one_by_one(algorithm, model, sent, group, who, part, on_failure)
            results += alone
            counts += n
    return results, counts


def _one_by_one(
    algorithm: Algorithm,
    model: Model,
    sent: Any,
    group: tuple[list[Any], LocalData],
    who: list[tuple[int, int]],
    part: Array,
    on_failure: str,
) -> tuple[list[Done | None], Array]:
    """After a group failed: its clients alone, to find and name the one that fails."""
    mines, data = group
    results: list[Done | None] = []
    counts = np.zeros(4, np.int64)
    for i, (place, mine) in enumerate(zip(part, mines)):
        try:
            done, n = run_group(algorithm, model, sent, [mine], data.only([i]), False)
            results += done
            counts += n
        except Exception as error:
            client, round = who[place]
            if on_failure != "drop":
                raise ClientError(
                    f"client {client} failed in round {round}: {type(error).__name__}: {error}"
                ) from error
            results.append(None)
    return results, counts


def pool(federation: Federation, rng: np.random.Generator) -> Federation:
    """One client with every training row, shuffled: the IID version [apfl §4.1.1]."""
    rows = rng.permutation(federation.train.rows)
    part = replace(federation.train, rows=rows, offsets=np.array([0, len(rows)]))
    return replace(federation, train=part)
