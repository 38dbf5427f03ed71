"""Asking nodes: who is there, who holds which clients, and one answer to each message."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from fedref.boundary.errors import FedrefError
from fedref.flower.protocol import (
    Announcement,
    Packet,
    ProtocolError,
    check_totals,
    read_announcement,
)


class Reply(NamedTuple):
    """The answer to a message: a packet, or as text why there is none."""

    message: str
    node: int
    answer: Packet | str


class Network(Protocol):
    """How packets get to nodes; Flower's `Grid` in apps.py, a dictionary of functions in tests."""

    def nodes(self) -> Collection[int]:
        """Return the nodes that are online."""
        ...

    def send(self, packets: Mapping[int, Packet], limit: float) -> Mapping[str, int]:
        """Send one packet to each node, which has so many seconds; return message → node."""
        ...

    def receive(self, messages: Collection[str]) -> Iterable[Reply]:
        """Return the answers to these messages that are there by now."""
        ...


@dataclass(frozen=True)
class Options:
    """How a run is waited for; the first four are in the app's pyproject.toml.

    clients : N, the clients are 0 to N − 1. limit : seconds for a round's work or an evaluation.
    wait : seconds for all clients to be there at the start. pinned : a client stays with the node
    that announced it first, also when that is offline. Else another node may take over a client
    whose node is offline: a node that is restarted without a key has a new number. pause :
    seconds between two looks at what has come.
    """

    bounds: ClassVar = {"clients": (1,), "limit": (1e-3,), "wait": (0,), "pause": (0,)}
    clients: int
    limit: float = 600.0
    wait: float = 300.0
    pinned: bool = False
    pause: float = 0.2


OFFLINE = "its node went offline"


def no_answer_in(limit: float) -> str:
    """Return the reason of a client whose node did not answer in time."""
    return f"no answer in {limit:g} s"


class NoAnswer(str):
    """Why a client's node did not answer: the client is dropped. One that is refused has failed."""


@dataclass
class Nodes:
    """The nodes of a run: the clients that they hold, and one answer to each message in time.

    known : all that was announced, or what the run that goes on began with. holder : client → the
    node that answers for it. present : clients announced since the start. waiting : node → what it
    announced, with a client that is another node's yet.
    """

    network: Network
    options: Options
    say: Callable[[str], None]
    known: Announcement | None = None
    holder: dict[int, int] = field(default_factory=dict)
    present: set[int] = field(default_factory=set)
    greeted: set[int] = field(default_factory=set)
    hellos: dict[str, int] = field(default_factory=dict)  # message → node, without an answer yet
    waiting: dict[int, Announcement] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)  # node → the reason that was said last

    def restore(self, known: Announcement, holder: Mapping[int, int]) -> None:
        """Go on with the clients of an earlier run."""
        self.known, self.holder = known, dict(holder) if self.options.pinned else {}

    @property
    def sizes(self) -> dict[int, tuple[int, int]]:
        """Client → (training rows, test rows)."""
        return sizes_of(self.known) if self.known else {}

    def clients_of(self, node: int) -> list[int]:
        """Return the clients that a node answers for."""
        return sorted(k for k, holder in self.holder.items() if holder == node)

    def greet(self) -> set[int]:
        """Ask every new node for its clients, take those that have answered; return who is online."""
        online = set(self.network.nodes())
        self.greeted &= online  # one that comes back is asked again
        if new := online - self.greeted:
            hello: Packet = {"hello": {"fedref": 1}}
            self.hellos |= self.network.send(dict.fromkeys(new, hello), self.options.limit)
            self.greeted |= new
        answers = self.network.receive(list(self.hellos)) if self.hellos else ()
        for message, node, answer in answers:
            if self.hellos.get(message) == node:
                del self.hellos[message]
                self.try_node(node, self.read_hello, answer)
        self.waiting = {node: said for node, said in self.waiting.items() if node in online}
        for node in sorted(self.waiting):
            self.try_node(node, self.join, online)
        return online

    def try_node(self, node: int, step: Callable[..., None], argument: Any) -> None:
        """Take a step with a node; if it is refused, say once why the node is left out."""
        try:
            step(node, argument)
        except ProtocolError as error:
            if self.left_out.get(node) != str(error):
                self.left_out[node] = str(error)
                self.say(f"node {node} is left out for now: it {error}")

    def read_hello(self, node: int, answer: Packet | str) -> None:
        """Take a node's announcement; a node that did not answer is asked once more."""
        if isinstance(answer, str):
            self.greeted.discard(node)
            raise ProtocolError(f"does not say which clients it has ({answer})")
        self.waiting[node] = read_announcement(answer)

    def join(self, node: int, online: Collection[int]) -> None:
        """Take the clients that a node has announced.

        Refuse them if one is another node's, or has other rows than were announced before.
        """
        said, before = self.waiting[node], self.known
        rows: Any = dict.fromkeys(("clients", "n_train", "n_test", "labels"))  # all but features
        if said.clients[-1] >= self.options.clients:
            raise ProtocolError(
                f"announces client {said.clients[-1]} of 0 to {self.options.clients - 1}"
            )
        if before and said._replace(**rows) != before._replace(**rows):
            raise ProtocolError("announces other features than there were before")
        sizes = self.sizes | sizes_of(said)
        for k in said.clients:
            other, had = self.holder.get(k, node), self.sizes.get(k, sizes[k])
            if other != node and (self.options.pinned or other in online):
                raise ProtocolError(f"announces client {k}, for which node {other} answers")
            if sizes[k] != had:
                words = f"{sizes[k]} training and test rows of client {k}, had {had}"
                raise ProtocolError(f"announces {words}")
        labels = {*said.labels, *(before.labels if before else ())}
        check_totals(sum(map(sum, sizes.values())), said.features, labels)
        clients = sorted(sizes)
        n_train, n_test = ([sizes[k][i] for k in clients] for i in (0, 1))
        self.known = said._replace(
            clients=clients, n_train=n_train, n_test=n_test, labels=sorted(labels)
        )
        self.holder |= dict.fromkeys(said.clients, node)
        self.present |= set(said.clients)
        del self.waiting[node]
        self.left_out.pop(node, None)
        self.say(f"node {node}: clients {shorten(self.clients_of(node))}")

    def missing(self, online: Collection[int]) -> list[int]:
        """Return the clients without a node that is online and has announced them.

        The node of a pinned client may be said to be online before it has found the server again.
        """
        there = {k for k in self.present if self.holder[k] in online}
        return [k for k in range(self.options.clients) if k not in there]

    def wait_for_all(self, enough: bool) -> None:
        """Wait for all clients; a client that does not come is an error, or with `enough` missed."""
        end = time.monotonic() + self.options.wait
        while missing := self.missing(self.greet()):
            if time.monotonic() >= end:
                message = f"no node has client {shorten(missing)} after {self.options.wait:g} s"
                if not enough:
                    raise FedrefError(f"{message}; expected all {self.options.clients} clients")
                self.say(message)
                return
            time.sleep(self.options.pause)

    def ask(self, packets: Mapping[int, Packet]) -> dict[int, Packet | str]:
        """Return each node's answer; as text why there is none."""
        sent = dict(self.network.send(packets, self.options.limit))
        answers: dict[int, Packet | str] = {}
        end = time.monotonic() + self.options.limit
        while sent:
            online = self.greet()
            for message, node, answer in self.network.receive(list(sent)):
                if sent.get(message) != node:
                    self.say(f"node {node}: answers what it was not asked; ignored")
                    continue
                answers[sent.pop(message)] = answer
            for message in [m for m, node in sent.items() if node not in online]:
                answers[sent.pop(message)] = OFFLINE
            if sent and time.monotonic() >= end:
                return answers | dict.fromkeys(sent.values(), no_answer_in(self.options.limit))
            if sent:
                time.sleep(self.options.pause)
        return answers


def shorten(clients: Sequence[int], most: int = 8) -> str:
    """Return the first few clients as text, and how many more there are."""
    text = ", ".join(map(str, clients[:most]))
    return text if len(clients) <= most else f"{text} and {len(clients) - most} more"


def sizes_of(said: Announcement) -> dict[int, tuple[int, int]]:
    """Return client → (training rows, test rows)."""
    return dict(zip(said.clients, zip(said.n_train, said.n_test)))
