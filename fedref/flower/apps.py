"""Flower's ServerApp and ClientApp, which call `server` and `client`.

They need flwr 1.41. The operator of a node configures it by `--node-config`: `data` is the path of its
part, `state` the folder of its clients' states. Everything else is in the app's folder.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp

from fedref.boundary.errors import ConfigError, FedrefError
from fedref.boundary.values import build
from fedref.experiments import config
from fedref.experiments.config import Experiment
from fedref.experiments.progress import Progress
from fedref.experiments.unit import Record, Unit
from fedref.flower.client import answer_within, handle_request, read_part
from fedref.flower.nodes import OFFLINE, Options, Reply, no_answer_in
from fedref.flower.protocol import Packet, ProtocolError, write_reason
from fedref.flower.server import serve

#: Flower's errors for an answer that did not come in time.
NO_ANSWER = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)


def content_of(packet: Packet) -> RecordDict:
    """Convert a packet to Flower's form: records of arrays to ArrayRecords, others to ConfigRecords."""
    content = RecordDict()
    for name, record in packet.items():
        if all(isinstance(value, np.ndarray) for value in record.values()):
            content[name] = ArrayRecord({key: Array(value) for key, value in record.items()})
        else:
            content[name] = ConfigRecord(dict(record))
    return content


def packet_of(content: RecordDict) -> Packet:
    """Convert Flower's form back to a packet; a ProtocolError unless it is arrays and plain values."""
    packet: dict[str, dict[str, Any]] = {}
    for name, record in content.items():
        if isinstance(record, ArrayRecord):
            packet[name] = {key: array_of(value) for key, value in record.items()}
        elif isinstance(record, ConfigRecord):
            packet[name] = dict(record)
        else:
            raise ProtocolError(f"holds a {type(record).__name__}, expected arrays or plain values")
    return packet


def array_of(array: Array) -> np.ndarray[Any, Any]:
    """Return the array in a message; Flower keeps it as a .npy, which is never unpickled."""
    try:
        value: Any = array.numpy()
    except Exception as error:  # hostile bytes can make NumPy's reader raise anything
        raise ProtocolError(f"holds an array that cannot be read ({error})") from error
    if not isinstance(value, np.ndarray):
        raise ProtocolError("holds an array that cannot be read (it is an archive)")
    return value


class OverGrid:
    """A `Network` on Flower's Grid."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.awaited: dict[str, tuple[int, float]] = {}  # message id → (node, limit in seconds)

    def nodes(self) -> Collection[int]:
        return set(self.grid.get_node_ids())

    def send(self, packets: Mapping[int, Packet], limit: float) -> Mapping[str, int]:
        messages = [
            Message(content_of(packet), node, "train", ttl=max(limit, 1.0))
            for node, packet in packets.items()
        ]
        ids = list(self.grid.push_messages(messages))
        node_of = {id: node for id, node in zip(ids, packets, strict=True) if id}  # "": not sent
        self.awaited |= {id: (node, limit) for id, node in node_of.items()}
        return node_of

    def receive(self, messages: Collection[str]) -> Iterable[Reply]:
        return [self.reply_of(message) for message in self.grid.pull_messages(list(messages))]

    def reply_of(self, message: Message) -> Reply:
        """Convert Flower's message to a Reply: the node's packet, or the reason why there is none."""
        request, sender = message.metadata.reply_to_message_id, message.metadata.src_node_id
        node, limit = self.awaited.pop(request, (sender, 0.0))
        try:
            if not message.has_error():
                node = sender  # an error, other than a reply, may be from Flower's link
                return Reply(request, node, packet_of(message.content))
            code = message.error.code
            if code in NO_ANSWER:
                return Reply(request, node, no_answer_in(limit))
            if code == ErrorCode.NODE_UNAVAILABLE:
                return Reply(request, node, OFFLINE)
            raise ProtocolError(f"its client app failed (Flower's error {code})")
        except ProtocolError as error:
            return Reply(request, node, {"refused": write_reason(error)})


def experiment_in(folder: Path) -> Experiment:
    """Read the experiment in an app's folder."""
    path = folder / "experiment.toml"
    return config.from_table(config.read(path), str(path))


def options_of(values: Mapping[str, Any]) -> Options:
    """Return the options in [tool.flwr.app.config], without `out`, which the table also holds."""
    table = {"clients": 0} | {key: value for key, value in values.items() if key != "out"}
    options: Options = build(Options, table, "[tool.flwr.app.config]")
    return options


def server_app(folder: Path) -> ServerApp:
    """Return the ServerApp of an app's folder: it runs the experiment, or resumes it, in `out`."""
    app = ServerApp()

    def say(text: str) -> None:
        print(f"fedref: {text}", flush=True)

    def report_round(unit: Unit, record: Record) -> None:
        accuracy = record.rows[-1].get("accuracy")
        text = "" if accuracy is None else f", accuracy {100 * accuracy:.2f} %"
        say(f"{unit.name}: round {record.round}{text}, {record.status}")

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: Grid, context: Context) -> None:
        values = context.run_config
        try:
            out = Path(str(values.get("out") or "run")).expanduser()
            experiment, options = experiment_in(folder), options_of(values)
            serve(OverGrid(grid), experiment, out, options, say, Progress(report_round, say))
            say(f"results written to {out}")
        except FedrefError as error:
            say(f"error: {error}")
            raise

    return app


def client_app(folder: Path) -> ClientApp:
    """Return the ClientApp of an app's folder: it answers for the clients of its node."""
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator, unused-ignore]
    def train(message: Message, context: Context) -> Message:
        def work() -> Packet:
            values = context.node_config
            if missing := [key for key in ("data", "state") if not values.get(key)]:
                raise ConfigError(f"the --node-config of this node lacks the key {missing[0]}")
            site = read_part(Path(str(values["data"])).expanduser())
            state = Path(str(values["state"])).expanduser()
            return handle_request(packet_of(message.content), site, experiment_in(folder), state)

        reply = answer_within(message.metadata.ttl, work)
        return Message(content_of(reply), reply_to=message)

    return app
