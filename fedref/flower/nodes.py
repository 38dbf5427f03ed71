"""Asking nodes: who is there, who holds which clients, and one answer to each message."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from fedref.boundary.errors import FedrefError
from fedref.flower.answers import announced
from fedref.flower.messages import Announced, Packet, Refused
from fedref.flower.roster import Roster


class Reply(NamedTuple):
    """What came back to a message: a packet, or why there is none."""

    message: str
    node: int
    packet: Packet | None
    error: str = ""


class Network(Protocol):
    """How packets get to nodes; Flower's `Grid` in apps.py, a dictionary of functions in tests."""

    def nodes(self) -> Collection[int]:
        """Those that are online."""
        ...

    def send(self, packets: Mapping[int, Packet], limit: float) -> Mapping[str, int]:
        """One packet to each node, which has so many seconds; message → node."""
        ...

    def receive(self, messages: Collection[str]) -> Iterable[Reply]:
        """What has come back to these messages by now."""
        ...


@dataclass(frozen=True)
class Options:
    """How a run is waited for; the first four are in the app's pyproject.toml.

    clients : N, the clients are 0 to N − 1. limit : seconds for a round's work or an evaluation.
    wait : seconds for all clients to be there at the start. pinned : see `Roster`. pause : seconds
    between two looks at what has come.
    """

    clients: int
    limit: float = 600.0
    wait: float = 300.0
    pinned: bool = False
    pause: float = 0.2


@dataclass
class Nodes:
    """The nodes of a run, and asking them: at most one answer a message is heard, and only from
    whom it was sent to."""

    network: Network
    options: Options
    say: Callable[[str], None]
    roster: Roster = field(default_factory=Roster)
    greeted: dict[str, int] = field(default_factory=dict)  # hello → node, without an answer yet
    known: set[int] = field(default_factory=set)
    waiting: dict[int, Announced] = field(default_factory=dict)  # whose clients are another's yet

    def __post_init__(self) -> None:
        self.roster = replace(self.roster, pinned=self.options.pinned)

    def greet(self) -> set[int]:
        """Ask every new node for its clients; hear those that have told. Returns who is online."""
        online = set(self.network.nodes())
        self.known &= online  # one that comes back is asked again
        new = online - self.known
        if new:
            hello: Packet = {"hello": {"fedref": 1}}
            self.greeted |= self.network.send(dict.fromkeys(new, hello), self.options.limit)
            self.known |= new
        for reply in self.network.receive(list(self.greeted)) if self.greeted else ():
            node = reply.node
            if self.greeted.get(reply.message) != node:
                continue
            del self.greeted[reply.message]
            try:
                if reply.packet is None:
                    self.known.discard(node)  # to be asked once more
                    raise Refused(f"does not say which clients it has ({reply.error})")
                self.waiting[node] = announced(reply.packet)
                if problem := self.join(node, online):
                    raise Refused(problem)
            except Refused as error:
                self.say(f"node {node} is left out for now: it {error}")
        for node in [node for node in self.waiting if node not in online]:
            del self.waiting[node]
        for node in list(self.waiting):
            self.join(node, online)
        return online

    def join(self, node: int, online: Collection[int]) -> str:
        """Take a node that has announced its clients, or say why not; it is asked for again."""
        try:
            N = self.options.clients
            self.roster = self.roster.joined(node, self.waiting[node], online, N)
        except Refused as error:
            return str(error)
        del self.waiting[node]
        self.say(f"node {node}: clients {compact(self.roster.clients_of(node))}")
        return ""

    def gather(self, enough: bool) -> None:
        """Wait for all clients; those that do not come are an error, or `enough`: are missed."""
        end = time.monotonic() + self.options.wait
        while missing := self.roster.missing(self.options.clients, self.greet()):
            if time.monotonic() >= end:
                message = f"no node has client {compact(missing)} after {self.options.wait:g} s"
                if not enough:
                    raise FedrefError(f"{message}; expected all {self.options.clients} clients")
                self.say(message)
                return
            time.sleep(self.options.pause)

    def ask(self, packets: Mapping[int, Packet]) -> dict[int, Packet | str]:
        """What each node answers; text: why it does not."""
        sent = dict(self.network.send(packets, self.options.limit))
        found: dict[int, Packet | str] = {}
        end = time.monotonic() + self.options.limit
        while sent:
            online = self.greet()
            for reply in self.network.receive(list(sent)):
                if sent.get(reply.message) != reply.node:
                    self.say(f"node {reply.node}: answers what it was not asked; ignored")
                    continue
                del sent[reply.message]
                found[reply.node] = reply.error if reply.packet is None else reply.packet
            for message in [m for m, node in sent.items() if node not in online]:
                found[sent.pop(message)] = "its node went offline"
            if sent and time.monotonic() >= end:
                limit = f"no answer in {self.options.limit:g} s"
                found |= dict.fromkeys(sent.values(), limit)
                break
            if sent:
                time.sleep(self.options.pause)
        return found


def compact(clients: Sequence[int], most: int = 8) -> str:
    """The first few of them, and how many more there are."""
    text = ", ".join(map(str, clients[:most]))
    return text if len(clients) <= most else f"{text} and {len(clients) - most} more"
