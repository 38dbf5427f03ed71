"""Randomness is data: (seed, round, client) → Plan. No other module of a run draws random numbers.

A Plan says who takes part in a round, how much each does, and which rows form each mini-batch.
Given a Plan a round is deterministic, so another program can replay it. Every stream of random
numbers has its own key, so the numbers of one client, role or round never depend on another's:

    init (seed) · cohort (seed, round) · stragglers (seed, round) · <role> (seed, round, client)

Roles are the batches that one local step takes. D, D1, D2 (D, D′, D″ of the papers) are drawn
independently of each other. S and Q (support and query) divide all of a client's rows: one episode a
round. "S of D" and "Q of D" divide each mini-batch: one episode a mini-batch, from the same
mini-batches that an algorithm with the role D gets.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.boundary.values import Bounds, check_fields
from fedref.models.numerics import Array

PADDING = -1
#: The roles of episodes, one for each mini-batch.
EPISODES = "S of D", "Q of D"


def stream(seed: int, name: str, *key: int) -> np.random.Generator:
    """Return a generator of NumPy's for one purpose and key, independent of all others.

    seed : the seed, a whole number ≥ 0.
    name : what the numbers are for.
    key : numbers that tell streams of one name apart: round, client.
    """
    purpose = int.from_bytes(sha256(name.encode()).digest()[:4])
    return np.random.default_rng([seed, purpose, *key])


@dataclass(frozen=True)
class Sampling:
    """How rounds are drawn. Exactly one of epochs and steps is set, else ConfigError.

    clients_per_round : K, the clients of a round, ≥ 1.
    epochs : E, the local epochs, 1 to 10⁶.
    steps : τ, the local steps, 1 to 10⁶.
    batch_size : B, the rows of a mini-batch (0: all of the client's rows).
    sampling : how a cohort is drawn, "uniform" or "by-samples" (with replacement).
    stragglers : their share of the cohort, 0 to 1.
    support : the share of an episode's rows that go to S, between 0 and 1.
    """

    clients_per_round: int = 10
    epochs: int | None = None
    steps: int | None = None
    batch_size: int = 10
    sampling: str = "uniform"
    stragglers: float = 0.0
    support: float = 0.8

    bounds: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "clients_per_round": (1,),
        "epochs": (1, 10**6),
        "steps": (1, 10**6),
        "batch_size": (0,),
        "stragglers": (0, 1),
        "support": Bounds(0, 1, open="both"),
    }
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"sampling": ("uniform", "by-samples")}

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ConfigError("set epochs or steps, and only one of them")
        check_fields(self)

    @property
    def amount(self) -> int:
        """The work of a client that does not straggle: E epochs, or τ steps."""
        return self.epochs or self.steps or 0


class Plan(NamedTuple):
    """All that is random in one round: K clients, at most S steps, mini-batches of at most W rows.

    round : the round's number, from 0.
    clients : (K,) their indices, ascending.
    counts : (K,) how often each was drawn.
    sizes : (K,) n_k, the training rows of each.
    amount : (K,) epochs (or steps) that each does.
    straggler : (K,) bool, whether it does only a part of its work.
    steps : (K,) mini-batch steps that each does.
    per_epoch : (K,) steps of one epoch.
    rows : role → (K, S, W) rows *within the client's training data*, −1 = padding.
    """

    round: int
    clients: Array
    counts: Array
    sizes: Array
    amount: Array
    straggler: Array
    steps: Array
    per_epoch: Array
    rows: Mapping[str, Array]


def _permutations(rng: np.random.Generator, n: int, times: int) -> Array:
    """Return permutations (times, n); row i does not depend on how many follow."""
    return rng.permuted(np.tile(np.arange(n, dtype=np.int32), (times, 1)), axis=1)


def _pad_rows(a: Array, width: int) -> Array:
    """Pad (rows, n) to (rows, width) with −1 on the right."""
    return np.pad(a, ((0, 0), (0, width - a.shape[1])), constant_values=PADDING)


def minibatches(rng: np.random.Generator, n: int, config: Sampling, amount: int) -> Array:
    """Draw one client's mini-batches: (steps, min(B, n)) rows.

    Epochs: each a fresh permutation cut into ⌈n/B⌉ batches, the last one short (padded).
    Steps: each min(B, n) different rows, independent of the other steps.
    """
    width = min(config.batch_size or n, n)
    if config.epochs is None:
        if n > 64 * width:  # then a whole permutation a step would be a waste
            draws = [rng.choice(n, width, replace=False) for _ in range(amount)]
            return np.stack(draws).astype(np.int32)
        return _permutations(rng, n, amount)[:, :width]
    per_epoch = -(-n // width)
    return _pad_rows(_permutations(rng, n, amount), per_epoch * width).reshape(-1, width)


def episode(rng: np.random.Generator, n: int, support: float) -> tuple[Array, Array]:
    """Draw disjoint support and query rows of one client.

    Both have at least one row where n ≥ 2. With n = 1 the support is empty (adaptation then follows
    the L2 term alone) and the row is the query: no model is tested on rows that it adapted to.
    """
    return cut(rng.permutation(n).astype(np.int32), support)


def cut(rows: Array, support: float) -> tuple[Array, Array]:
    """Cut rows, already in random order, into support and query."""
    n = len(rows)
    first = min(max(round(support * n), 1), n - 1)
    return rows[:first], rows[first:]


def episodes(batches: Array, support: float) -> tuple[Array, Array]:
    """Cut every mini-batch of `batches` (steps, W) in two: S (steps, W_S) and Q (steps, W_Q)."""
    parts = [cut(rows[rows != PADDING], support) for rows in batches]
    widths = [max(len(part[i]) for part in parts) for i in (0, 1)]
    S, Q = (np.concatenate([_pad_rows(p[i][None], widths[i]) for p in parts]) for i in (0, 1))
    return S, Q


def cohort(config: Sampling, sizes: Array, round: int, seed: int) -> tuple[Array, Array]:
    """Draw who takes part: (clients ascending, how often each was drawn)."""
    k = config.clients_per_round
    if k > len(sizes):
        raise ConfigError(f"clients-per-round is {k}, but there are only {len(sizes)} clients")
    rng = stream(seed, "cohort", round)
    if config.sampling == "uniform":
        draws = rng.choice(len(sizes), k, replace=False)
    else:  # with replacement, client k with probability p_k = n_k/n [fedprox alg.2]
        draws = rng.choice(len(sizes), k, p=sizes / sizes.sum())
    clients, counts = np.unique(draws, return_counts=True)
    return clients, counts


def make_plan(
    config: Sampling, sizes: Array, round: int, seed: int, roles: Iterable[str] = ("D",)
) -> Plan:
    """Draw the Plan of a round.

    config : a `Sampling`; ConfigError if it asks for more clients than there are.
    sizes : n_k, the training rows of each client, (N,).
    round : the round's number, from 0.
    seed : the seed, a whole number ≥ 0.
    roles : the batches that one step takes, such as ("D", "D1", "D2").

    >>> plan = make_plan(Sampling(2, epochs=1, batch_size=2), np.array([3, 1, 2]), 0, seed=1)
    >>> plan.clients.shape, plan.rows["D"].shape
    ((2,), (2, 2, 2))
    """
    roles = tuple(roles)
    clients, counts = cohort(config, sizes, round, seed)
    n = sizes[clients]

    # round(p·K) clients straggle and do U{1..E} epochs; a stream of its own draws both. K counts
    # *distinct* clients: one that was drawn twice does its work once. With draws by samples K varies
    # from round to round, so that even with p < 1 all clients of a small round may be stragglers.
    rng = stream(seed, "stragglers", round)
    straggler = np.zeros(len(clients), bool)
    count = int(np.floor(config.stragglers * len(clients) + 0.5))
    straggler[rng.choice(len(clients), count, replace=False)] = True
    less = rng.integers(1, config.amount + 1, len(clients))
    amount = np.where(straggler, less, config.amount)

    columns = zip(clients.tolist(), n.tolist(), amount.tolist())
    batches_of = [client_batches(config, roles, *column, round, seed) for column in columns]
    steps = np.array([len(batches[roles[0]]) for batches in batches_of])
    per_epoch = steps_of_epoch(config, roles, n)
    rows = {role: _stack_rows([batches[role] for batches in batches_of]) for role in roles}
    return Plan(round, clients, counts, n, amount, straggler, steps, per_epoch, rows)


def client_batches(
    config: Sampling,
    roles: tuple[str, ...],
    client: int,
    n: int,
    amount: int,
    round: int,
    seed: int,
) -> dict[str, Array]:
    """Draw one client's mini-batches in a round: role → (steps, W) rows of its n, as in a Plan."""
    if "S" in roles:
        S, Q = episode(stream(seed, "S", round, client), n, config.support)
        return {"S": S[None], "Q": Q[None]}
    if roles == EPISODES:
        D = minibatches(stream(seed, "D", round, client), n, config, amount)
        return dict(zip(EPISODES, episodes(D, config.support)))
    streams = {role: stream(seed, role, round, client) for role in roles}
    return {role: minibatches(rng, n, config, amount) for role, rng in streams.items()}


def steps_of_epoch(config: Sampling, roles: tuple[str, ...], n: Array) -> Array:
    """Return how many steps an epoch of clients with n (K,) rows takes: (K,)."""
    width = np.minimum(config.batch_size or n, n)
    return -(-n // width) if config.epochs and "S" not in roles else np.ones_like(n)


def _stack_rows(clients: list[Array]) -> Array:
    """Stack K ragged (steps, width) arrays into (K, S, W), padded with −1."""
    S, W = (max(rows.shape[axis] for rows in clients) for axis in (0, 1))
    out = np.full((len(clients), S, W), PADDING, np.int32)
    for k, rows in enumerate(clients):
        out[k, : rows.shape[0], : rows.shape[1]] = rows
    return out


def adaptation_rows(
    config: Sampling, role: str, n: int, client: int, round: int, seed: int
) -> Array:
    """Draw *training* rows for a client to adapt to before it is tested: a batch D or a support S."""
    rng = stream(seed, "adapt", round, client)
    if role == "S":
        return episode(rng, n, config.support)[0]
    return rng.permutation(n)[: config.batch_size or n]
