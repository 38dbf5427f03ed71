"""Asking nodes: who is there, who holds which clients, and one answer to each message."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from fedref.boundary.errors import FedrefError
from fedref.flower.protocol import Announced, Packet, Refused, check_totals, read_announced


class Reply(NamedTuple):
    """What came back to a message: a packet, or as text why there is none."""

    message: str
    node: int
    answer: Packet | str


class Network(Protocol):
    """How packets get to nodes; Flower's `Grid` in apps.py, a dictionary of functions in tests."""

    def nodes(self) -> Collection[int]:
        """Return those that are online."""
        ...

    def send(self, packets: Mapping[int, Packet], limit: float) -> Mapping[str, int]:
        """Send one packet to each node, which has so many seconds; return message → node."""
        ...

    def receive(self, messages: Collection[str]) -> Iterable[Reply]:
        """Return what has come back to these messages by now."""
        ...


@dataclass(frozen=True)
class Options:
    """How a run is waited for; the first four are in the app's pyproject.toml.

    clients : N, the clients are 0 to N − 1. limit : seconds for a round's work or an evaluation.
    wait : seconds for all clients to be there at the start. pinned : a client stays with the node
    that announced it first, also when that is offline. Else another node may take over a client
    whose node is offline, as a node does that was restarted without a key and so comes with a new
    number. pause : seconds between two looks at what has come.
    """

    bounds: ClassVar = {"clients": (1,), "limit": (1e-3,), "wait": (0,), "pause": (0,)}
    clients: int
    limit: float = 600.0
    wait: float = 300.0
    pinned: bool = False
    pause: float = 0.2


def late(limit: float) -> str:
    """Return the reason of a client whose node did not answer in time."""
    return f"no answer in {limit:g} s"


OFFLINE = "its node went offline"


@dataclass
class Nodes:
    """The nodes of a run: which clients they hold, and one answer to each message, from whom it was
    sent to, within a time.

    holder : client → the node that answers for it. sizes : client → (training rows, test rows), as
    announced, or as the run that goes on began with. present : clients announced since the start.
    kind : features, image and vocabulary. waiting : announced, but a client is another node's yet.
    """

    network: Network
    options: Options
    say: Callable[[str], None]
    holder: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    present: set[int] = field(default_factory=set)
    kind: tuple[int, list[int], list[str]] | None = None
    labels: set[int] = field(default_factory=set)
    greeted: set[int] = field(default_factory=set)
    hellos: dict[str, int] = field(default_factory=dict)  # message → node, without an answer yet
    waiting: dict[int, Announced] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)  # node → the reason that was said last

    def restore(self, known: Announced, holder: Mapping[int, int]) -> None:
        """Go on with what an earlier run was told."""
        self.sizes = dict(zip(known.clients, zip(known.n_train, known.n_test)))
        self.kind, self.labels = (known.features, known.image, known.vocabulary), {*known.labels}
        self.holder = dict(holder) if self.options.pinned else {}

    def known(self) -> Announced:
        """Return what is known of all clients, once each has had a node."""
        assert self.kind is not None
        clients, (features, image, vocabulary) = sorted(self.sizes), self.kind
        n_train, n_test = ([self.sizes[k][i] for k in clients] for i in (0, 1))
        return Announced(clients, n_train, n_test, features, sorted(self.labels), image, vocabulary)

    def clients_of(self, node: int) -> list[int]:
        return sorted(k for k, holder in self.holder.items() if holder == node)

    def greet(self) -> set[int]:
        """Ask every new node for its clients, take those that have told; return who is online."""
        online = set(self.network.nodes())
        self.greeted &= online  # one that comes back is asked again
        new = online - self.greeted
        if new:
            hello: Packet = {"hello": {"fedref": 1}}
            self.hellos |= self.network.send(dict.fromkeys(new, hello), self.options.limit)
            self.greeted |= new
        for message, node, answer in self.network.receive(list(self.hellos)) if self.hellos else ():
            if self.hellos.get(message) != node:
                continue
            del self.hellos[message]
            try:
                if isinstance(answer, str):
                    self.greeted.discard(node)  # to be asked once more
                    raise Refused(f"does not say which clients it has ({answer})")
                self.waiting[node] = read_announced(answer)
            except Refused as error:
                self.leave_out(node, str(error))
        for node in sorted(self.waiting):
            if node not in online:
                del self.waiting[node]
                continue
            try:
                self.join(node, self.waiting[node], online)
            except Refused as error:
                self.leave_out(node, str(error))
        return online

    def leave_out(self, node: int, reason: str) -> None:
        """Say, once, why a node is not asked for its clients' work."""
        if self.left_out.get(node) != reason:
            self.left_out[node] = reason
            self.say(f"node {node} is left out for now: it {reason}")

    def join(self, node: int, said: Announced, online: Collection[int]) -> None:
        """Take a node that has announced its clients; Refused if a client is another node's, or if
        it has other rows than were announced before."""
        if said.clients[-1] >= self.options.clients:
            raise Refused(f"announces client {said.clients[-1]} of 0 to {self.options.clients - 1}")
        kind = said.features, said.image, said.vocabulary
        if self.kind not in (None, kind):
            raise Refused("announces other features than there were before")
        sizes = dict(zip(said.clients, zip(said.n_train, said.n_test)))
        for k, now in sizes.items():
            other, before = self.holder.get(k, node), self.sizes.get(k, now)
            if other != node and (self.options.pinned or other in online):
                raise Refused(f"announces client {k}, for which node {other} answers")
            if now != before:
                raise Refused(f"announces {now} training and test rows of client {k}, had {before}")
        sizes, labels = {**self.sizes, **sizes}, {*self.labels, *said.labels}
        check_totals(sum(map(sum, sizes.values())), said.features, labels)
        self.sizes, self.labels, self.kind = sizes, labels, kind
        self.holder |= dict.fromkeys(said.clients, node)
        self.present |= set(said.clients)
        del self.waiting[node]
        self.left_out.pop(node, None)
        self.say(f"node {node}: clients {shorten(self.clients_of(node))}")

    def missing(self, online: Collection[int]) -> list[int]:
        """Return the clients without a node that is online and has told of them. One that is pinned
        may be said to be online while its node has not found the server again."""
        there = {k for k in self.present if self.holder[k] in online}
        return [k for k in range(self.options.clients) if k not in there]

    def gather(self, enough: bool) -> None:
        """Wait for all clients; those that do not come are an error, or `enough`: are missed."""
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
        """Return what each node answers; text: why it does not."""
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
                return answers | dict.fromkeys(sent.values(), late(self.options.limit))
            if sent:
                time.sleep(self.options.pause)
        return answers


def shorten(clients: Sequence[int], most: int = 8) -> str:
    """Return the first few of them, and how many more there are."""
    text = ", ".join(map(str, clients[:most]))
    return text if len(clients) <= most else f"{text} and {len(clients) - most} more"
