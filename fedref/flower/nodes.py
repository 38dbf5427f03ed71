"""The server's view of the nodes: which are online, which clients they hold, and their answers."""

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
    """The answer to a message: a packet, or as text the reason why there is none."""

    message: str
    node: int
    answer: Packet | str


class Network(Protocol):
    """A way to send packets to nodes: Flower's `Grid` in apps.py, functions in tests."""

    def nodes(self) -> Collection[int]:
        """Return the nodes that are online."""
        ...

    def send(self, packets: Mapping[int, Packet], limit: float) -> Mapping[str, int]:
        """Send one packet to each node, to be answered within `limit` seconds; return message → node."""
        ...

    def receive(self, messages: Collection[str]) -> Iterable[Reply]:
        """Return the answers to these messages that have arrived."""
        ...


@dataclass(frozen=True)
class Options:
    """The server's options; the first four are in the app's pyproject.toml.

    clients : their number N; they are 0 to N − 1. limit : seconds for a round's work or an
    evaluation. wait : seconds to wait at the start for all clients. pinned : only the node that first
    announced a client may hold it. Otherwise another node may take over a client whose node is
    offline, because a node that is restarted without a key has a new number. pause : seconds between
    two checks for answers.
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
    """The reason why a client's node did not answer. The client is then dropped, and has not failed."""


@dataclass
class Nodes:
    """The nodes of a run and the clients that they hold.

    known : all announcements together, or those that a resumed run began with. holder : client → the
    node that holds it. present : clients that were announced since this process began. waiting :
    announcements that may be refused for now, as another node still holds one of their clients.
    """

    network: Network
    options: Options
    say: Callable[[str], None]
    known: Announcement | None = None
    holder: dict[int, int] = field(default_factory=dict)
    present: set[int] = field(default_factory=set)
    greeted: set[int] = field(default_factory=set)
    hellos: dict[str, int] = field(default_factory=dict)  # unanswered message → node
    waiting: dict[int, Announcement] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)  # node → the last reason

    def restore(self, known: Announcement, holder: Mapping[int, int]) -> None:
        """Go on with the clients of an earlier run."""
        self.known, self.holder = known, dict(holder) if self.options.pinned else {}

    @property
    def sizes(self) -> dict[int, tuple[int, int]]:
        """The numbers of rows: client → (training rows, test rows)."""
        return sizes_of(self.known) if self.known else {}

    def greet(self) -> set[int]:
        """Ask new nodes for their clients and read the answers; return the nodes that are online."""
        online = set(self.network.nodes())
        self.greeted &= online  # a node that comes back is asked again
        if new := online - self.greeted:
            hello: Packet = {"hello": {"fedref": 1}}
            self.hellos |= self.network.send(dict.fromkeys(new, hello), self.options.limit)
            self.greeted |= new
        answers = self.network.receive(list(self.hellos)) if self.hellos else ()
        for message, node, answer in answers:
            if self.hellos.get(message) == node:
                del self.hellos[message]
                self.try_node(node, self.read_hello, answer)
        self.waiting = {node: self.waiting[node] for node in self.waiting if node in online}
        for node in sorted(self.waiting):
            self.try_node(node, self.join, online)
        return online

    def try_node(self, node: int, step: Callable[..., None], argument: Any) -> None:
        """Call step(node, argument); if it raises a ProtocolError, report once why the node is out."""
        try:
            step(node, argument)
        except ProtocolError as error:
            if self.left_out.get(node) != str(error):
                self.left_out[node] = str(error)
                self.say(f"node {node} is left out for now: it {error}")

    def read_hello(self, node: int, answer: Packet | str) -> None:
        """Read a node's announcement; let a node that did not answer be asked again."""
        if isinstance(answer, str):
            self.greeted.discard(node)
            raise ProtocolError(f"does not say which clients it has ({answer})")
        self.waiting[node] = read_announcement(answer)

    def join(self, node: int, online: Collection[int]) -> None:
        """Accept the clients that a node has announced.

        Refuse all of them if another node holds one, or if one was announced with other rows before.
        """
        announcement, known = self.waiting[node], self.known
        # fields that differ between nodes; the others describe the features
        own_fields: Any = dict.fromkeys(("clients", "n_train", "n_test", "labels"))
        if announcement.clients[-1] >= self.options.clients:
            raise ProtocolError(
                f"announces client {announcement.clients[-1]} of 0 to {self.options.clients - 1}"
            )
        if known and announcement._replace(**own_fields) != known._replace(**own_fields):
            raise ProtocolError("announces other features than other nodes")
        sizes = self.sizes | sizes_of(announcement)
        for k in announcement.clients:
            other, size_before = self.holder.get(k, node), self.sizes.get(k, sizes[k])
            if other != node and (self.options.pinned or other in online):
                raise ProtocolError(f"announces client {k}, for which node {other} answers")
            if sizes[k] != size_before:
                words = f"{sizes[k]} training and test rows of client {k}, had {size_before}"
                raise ProtocolError(f"announces {words}")
        labels = {*announcement.labels, *(known.labels if known else ())}
        check_totals(sum(map(sum, sizes.values())), announcement.features, labels)
        clients = sorted(sizes)
        n_train, n_test = ([sizes[k][i] for k in clients] for i in (0, 1))
        self.known = announcement._replace(
            clients=clients, n_train=n_train, n_test=n_test, labels=sorted(labels)
        )
        self.holder |= dict.fromkeys(announcement.clients, node)
        self.present |= set(announcement.clients)
        del self.waiting[node]
        self.left_out.pop(node, None)
        self.say(f"node {node}: clients {shorten(announcement.clients)}")

    def missing(self, online: Collection[int]) -> list[int]:
        """Return the clients that no node has announced, or only a node that is offline.

        A node may be online without having announced its clients to a resumed server.
        """
        available = {k for k in self.present if self.holder[k] in online}
        return [k for k in range(self.options.clients) if k not in available]

    def wait_for_all(self, partial: bool) -> None:
        """Wait for all clients; if some do not come, raise an error, or with `partial` only report it."""
        end = time.monotonic() + self.options.wait
        while missing := self.missing(self.greet()):
            if time.monotonic() >= end:
                message = f"no node has client {shorten(missing)} after {self.options.wait:g} s"
                if not partial:
                    raise FedrefError(f"{message}; expected all {self.options.clients} clients")
                self.say(message)
                return
            time.sleep(self.options.pause)

    def ask(self, packets: Mapping[int, Packet]) -> dict[int, Packet | str]:
        """Send each node its packet; return each node's answer, or as text why there is none."""
        sent = dict(self.network.send(packets, self.options.limit))
        answers: dict[int, Packet | str] = {}
        end = time.monotonic() + self.options.limit
        while sent:
            online = self.greet()
            for message, node, answer in self.network.receive(list(sent)):
                if sent.get(message) != node:
                    self.say(f"node {node} answers a message to another node; ignored")
                    continue
                answers[sent.pop(message)] = answer
            for message in [m for m, node in sent.items() if node not in online]:
                answers[sent.pop(message)] = OFFLINE
            if sent and time.monotonic() >= end:
                return answers | dict.fromkeys(sent.values(), no_answer_in(self.options.limit))
            if sent:
                time.sleep(self.options.pause)
        return answers


def shorten(clients: Sequence[int]) -> str:
    """Return the first eight clients as text, and how many more there are."""
    text = ", ".join(map(str, clients[:8]))
    return text if len(clients) <= 8 else f"{text} and {len(clients) - 8} more"


def sizes_of(announcement: Announcement) -> dict[int, tuple[int, int]]:
    """Return client → (training rows, test rows)."""
    return dict(zip(announcement.clients, zip(announcement.n_train, announcement.n_test)))
