"""The base of every algorithm: a few small functions, and the weighted mean that most servers use.

The loop over clients, steps and rounds is written once, in `rounds`; an algorithm only says what
differs. In the papers' functions these mean the same, where a file does not say otherwise:

    symbol  name   what it is
    f_k     model  a `Model`: loss, gradient and Hessian-vector product of the flat w (..., d)
    w       w      the parameters, (..., d)
    D       D      a `Batch`: X (..., B, p), y (..., B), s (..., B) or None
    p_k     p      the clients' weights, which sum to 1, (K,)
    s       steps  how many gradient steps, ≥ 1
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import numpy as np

from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.values import check_fields
from fedref.models.base import Model
from fedref.models.batch import AllData, Batch
from fedref.models.numerics import Array, weighted_sum


class Cohort(NamedTuple):
    """The clients whose work is aggregated: K of N.

    clients : (K,) their indices.
    counts : (K,) how often each was drawn.
    n : (K,) its samples.
    N : the number of all clients.
    """

    clients: Array
    counts: Array
    n: Array
    N: int

    def weights(self, weighting: str) -> Array:
        """p_k, which sum to 1: n_k/Σn_k for "samples", 1/K for "uniform": (K,).

        weighting : "samples" or "uniform", else ConfigError.
        """
        if weighting not in WEIGHTINGS:
            raise ConfigError(unknown("weighting", weighting, WEIGHTINGS))
        share = self.counts * (self.n if weighting == "samples" else 1)
        return share / share.sum()


WEIGHTINGS = ("samples", "uniform")


def weighted_mean(p: Array, w: Array) -> Array:
    """Σ_k p_k w_k, added in client order: (d,) [apfl eq.1].

    p : the clients' weights, which sum to 1, (K,).
    w : a vector of each client, (K, d).

    Raises ValueError if there is not one p_k for each w_k.
    """
    return weighted_sum(p, w)  # [apfl eq.1] w = Σ_k p_k w_k


class Participant(NamedTuple):
    """A client at work in a round: what may be known of it before it starts.

    k : its number, from 0.
    n : n_k, its training rows.
    weight : p_k, its weight in the cohort.
    """

    k: int
    n: int
    weight: float


class ClientResult(NamedTuple):
    """A client's result of a round.

    upload : what it sends, an array or a tuple of them.
    client_state : what it keeps until its next round, the same (None: nothing).
    log : measurements by name, for metrics.csv.
    """

    upload: Any
    client_state: Any = None
    log: Mapping[str, float] = {}


class Server(NamedTuple):
    """The simplest server state.

    w : the global model, (d,).
    """

    w: Array


class State(NamedTuple):
    """The state that a run carries from round to round.

    server : the server's state.
    clients : client → what it keeps.
    """

    server: Any
    clients: Mapping[int, Any]


ServerState = TypeVar("ServerState")
Sent = TypeVar("Sent", bound=Any)  # which has a w, where `start` is as usual
Local = TypeVar("Local")
ClientState = TypeVar("ClientState")


@dataclass(frozen=True)
class Algorithm(Generic[ServerState, Sent, Local, ClientState]):
    """An algorithm: a few pure functions, with FedAvg's server as default.

    Four values are handed from function to function, each an array or a (named) tuple of them:

        server        ServerState: the server keeps it
        sent          Sent: it travels down, and is all that a client sees of the server
        local         Local: a client carries it from step to step
        client_state  ClientState: a client keeps it between rounds (None before its first)

    `step` must work on any leading axes, so that one function serves a client and a stack of them.

    weighting : "samples" (p_k = n_k/Σn_k over the cohort) or "uniform" (1/K).
    drop : whether stragglers are dropped (as FedAvg does) or their partial work is aggregated.
    """

    weighting: str = "samples"
    drop: bool = True

    #: The batches that one step takes; see `sampling`.
    roles: ClassVar[tuple[str, ...]] = ("D",)
    #: Whether each client is tested with a model of its own, and which batch it adapts to for that:
    #: "D", "S" or none.
    personalised: ClassVar[bool] = False
    adapts_on: ClassVar[str | None] = None
    #: Fields that it has from its base and does not use.
    unused: ClassVar[tuple[str, ...]] = ()
    #: Hyperparameters that change nothing where a client takes one local step.
    needs_two_steps: ClassVar[tuple[str, ...]] = ()
    #: Whether training pools all clients' rows: the centralised baseline.
    pooled: ClassVar[bool] = False
    #: The generator over rounds that it is made of: it has all clients of a round in one loop.
    generator: ClassVar[Any] = None

    #: The words that a field may hold; the least and the greatest number (else `usual_bounds`).
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"weighting": WEIGHTINGS}
    bounds: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    usual_bounds: ClassVar[tuple[float, float]] = (0.0, np.inf)

    #: Whether its functions take leading axes of clients. A class says so of itself, `class Mine(FedAvg,
    #: stacks=True)`; what does not is looked at as it works, and tested client by client.
    stacks: ClassVar[bool] = False

    def __init_subclass__(cls, stacks: bool = False) -> None:
        super().__init_subclass__()
        cls.stacks = stacks

    def __post_init__(self) -> None:
        check_fields(self)
        try:
            inspect.signature(self.start).bind(*range(4))
        except TypeError:
            raise ConfigError(
                f"{type(self).__module__}:{type(self).__name__}: start takes "
                f"{inspect.signature(type(self).start)}, expected (self, model, sent, client_state, client), "
                "with client.k, client.n and client.weight"
            ) from None

    @property
    def watches_loss(self) -> bool:
        """Whether `observe_loss` needs the global training loss after every round."""
        return False

    @property
    def stops_early(self) -> bool:
        """Whether `stop` is asked after each local epoch; clients then run one by one."""
        return False

    # The defaults are FedAvg's: a Server goes down, the parameters w come back and are averaged.

    def initial(self, model: Model, w: Array) -> ServerState:
        """Return the server's state before round 0.

        model : a `Model`.
        w : the initial parameters, (d,).
        """
        return cast(ServerState, Server(w))

    def download(self, server: ServerState) -> Sent:
        """Return what the server sends to every client of the cohort.

        server : the server's state.
        """
        return cast(Sent, server)

    def start(
        self, model: Model, sent: Sent, client_state: ClientState | None, client: Participant
    ) -> Local:
        """Return the `local` from which one client starts its steps.

        model : a `Model`.
        sent : what the server has sent, the result of `download`.
        client_state : what the client has kept since its last round (None: nothing yet).
        client : a `Participant`, with client.k, client.n and client.weight.
        """
        return sent.w

    def step(self, model: Model, sent: Sent, local: Local, *batches: Batch) -> Local:
        """Take one local step and return the new `local`. Leading axes (...) are clients.

        model : a `Model`.
        sent : what the server has sent, the result of `download`.
        local : what the client has carried from its steps so far.
        batches : a `Batch` for each of the algorithm's roles, in their order.
        """
        raise NotImplementedError

    def stop(self, model: Model, sent: Sent, local: Local, data: AllData) -> bool:
        """Return whether one client may stop now, after a local epoch.

        model : a `Model`.
        sent : what the server has sent, the result of `download`.
        local : what the client has carried from its steps so far.
        data : a function that returns all training rows of the client as a `Batch`.
        """
        return False

    def finish(
        self,
        model: Model,
        sent: Sent,
        local: Local,
        client_state: ClientState | None,
        data: AllData,
    ) -> ClientResult:
        """Return what one client sends and keeps. Default: it sends its `local` and keeps nothing.

        model : a `Model`.
        sent : what the server has sent, the result of `download`.
        local : what the client has after its last step.
        client_state : what the client has kept since its last round (None: nothing yet).
        data : a function that returns all training rows of the client as a `Batch`.
        """
        return ClientResult(local)

    def client_metrics(
        self, model: Model, sent: Sent, local: Local, data: AllData
    ) -> dict[str, float]:
        """Return measurements that are logged; they are neither sent nor counted as work.

        model : a `Model`.
        sent : what the server has sent, the result of `download`.
        local : what the client has after its last step.
        data : a function that returns all training rows of the client as a `Batch`.
        """
        return {}

    def combine(
        self, model: Model, server: ServerState, uploads: Any, cohort: Cohort
    ) -> ServerState:
        """Return the server's next state.

        model : a `Model`.
        server : the server's state.
        uploads : what the cohort has sent, a tree with leaves (K, ...).
        cohort : the `Cohort` whose uploads these are, in their order.
        """
        w = weighted_mean(cohort.weights(self.weighting), uploads)
        return cast(ServerState, Server(w))

    def observe_loss(self, server: ServerState, loss: float) -> ServerState:
        """Return the server's state after it has seen the global training loss of this round.

        server : the server's state.
        loss : the mean training loss over all clients.
        """
        return server

    def personalised_params(
        self, model: Model, sent: Sent, client_state: ClientState | None, D: Batch | None
    ) -> Array:
        """Return the parameters (d,) that one client tests with.

        model : a `Model`.
        sent : what the server has sent, the result of `download`.
        client_state : what the client has kept since its last round (None: nothing yet).
        D : a `Batch` of its training rows to adapt to (None: the algorithm does not adapt).
        """
        return sent.w

    def server_metrics(self, server: ServerState) -> dict[str, float]:
        """Return extra columns for metrics.csv.

        server : the server's state.
        """
        return {}


#: An algorithm with states of any type, as the loop of rounds sees it.
AnyAlgorithm = Algorithm[Any, Any, Any, Any]
