"""Flower's ServerApp and ClientApp around `server` and `node`: nothing else here knows Flower.

Written against flwr 1.41. A node is configured by its own operator, in `--node-config`: `data`, the
path of its part, and `state`, the folder of its clients' states. All else is in the app's folder.
"""

import io
from collections.abc import Collection, Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp

from fedref.boundary.errors import ConfigError, FedrefError
from fedref.experiments import config
from fedref.experiments.experiment import Experiment
from fedref.experiments.progress import Progress
from fedref.experiments.unit import Record, Unit
from fedref.flower.messages import Packet, Refused
from fedref.flower.node import answer
from fedref.flower.nodes import Options, Reply
from fedref.flower.part import read_part
from fedref.flower.server import serve

#: Flower's codes of errors → what they mean.
ERRORS = {
    code: name.lower().replace("_", " ")
    for name, code in vars(ErrorCode).items()
    if isinstance(code, int)
}


def content_of(packet: Packet) -> RecordDict:
    """A packet as Flower sends it: records of arrays as ArrayRecord, the others as ConfigRecord."""
    content = RecordDict()
    for name, record in packet.items():
        if all(isinstance(value, np.ndarray) for value in record.values()):
            content[name] = ArrayRecord({key: Array(value) for key, value in record.items()})
        else:
            content[name] = ConfigRecord(dict(record))
    return content


def packet_of(content: RecordDict) -> Packet:
    """A packet as it was sent; Refused where there is anything but arrays and plain values."""
    packet: dict[str, dict[str, Any]] = {}
    for name, record in content.items():
        if isinstance(record, ArrayRecord):
            packet[name] = {key: array_of(value) for key, value in record.items()}
        elif isinstance(record, ConfigRecord):
            packet[name] = dict(record)
        else:
            raise Refused(f"holds a {type(record).__name__}, which nobody sends here")
    return packet


def array_of(array: Array) -> np.ndarray[Any, Any]:
    """The array in the bytes of a .npy: never pickled, and no larger than its bytes."""
    stream = io.BytesIO(array.data)
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("its version is not 1.0")
        shape, columns_first, dtype = np.lib.format.read_array_header_1_0(stream)
        data = stream.read()
        if dtype.hasobject or len(data) != prod(shape) * dtype.itemsize:
            raise ValueError(f"{len(data)} bytes for {dtype} of shape {shape}")
        order: Any = "F" if columns_first else "C"
        return np.frombuffer(bytearray(data), dtype).reshape(shape, order=order)
    except Exception as error:  # whatever NumPy's parser raises of bytes that somebody made up
        raise Refused(f"holds an array that cannot be read ({error})") from error


class OverGrid:
    """A `Network` on Flower's Grid."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.sent: dict[str, int] = {}

    def nodes(self) -> Collection[int]:
        return set(self.grid.get_node_ids())

    def send(self, packets: Mapping[int, Packet], limit: float) -> Mapping[str, int]:
        messages = [
            Message(content_of(packet), node, "train", ttl=max(limit, 1.0))
            for node, packet in packets.items()
        ]
        ids = list(self.grid.push_messages(messages))
        found = {id: node for id, node in zip(ids, packets, strict=True) if id}
        self.sent |= found
        return found

    def receive(self, messages: Collection[str]) -> Iterable[Reply]:
        replies = []
        for message in self.grid.pull_messages(list(messages)):
            asked = message.metadata.reply_to_message_id
            if message.has_error():  # made by Flower itself, for the node that was asked
                node, error = self.sent[asked], message.error
                name = ERRORS.get(error.code, f"error {error.code}")
                text = f"Flower says {name}"
                replies.append(Reply(asked, node, None, text))
                continue
            node = message.metadata.src_node_id
            try:
                replies.append(Reply(asked, node, packet_of(message.content)))
            except Refused as refusal:
                packet = {"refused": {"reason": str(refusal)}}
                replies.append(Reply(asked, node, packet))
        for reply in replies:
            self.sent.pop(reply.message, None)
        return replies


def experiment_in(folder: Path) -> Experiment:
    """The experiment of an app's folder."""
    path = folder / "experiment.toml"
    return config.from_table(config.read(path), str(path))


def options_of(values: Mapping[str, Any]) -> Options:
    """The options in [tool.flwr.app.config]."""
    try:
        return Options(
            clients=int(values["clients"]),
            limit=float(values["limit"]),
            wait=float(values["wait"]),
            pinned=bool(values["pinned"]),
        )
    except (LookupError, ValueError, TypeError) as error:
        raise ConfigError(
            f"[tool.flwr.app.config] has no right {error}; expected clients, limit, wait, pinned, out"
        ) from error


def server_app(folder: Path) -> ServerApp:
    """The ServerApp of an app's folder: its experiment, run or gone on with in `out`."""
    app = ServerApp()

    def say(text: str) -> None:
        print(f"fedref: {text}", flush=True)

    def told(unit: Unit, record: Record) -> None:
        accuracy = record.rows[-1].get("accuracy")
        text = "" if accuracy is None else f", accuracy {100 * accuracy:.2f} %"
        say(f"{unit.name}: round {record.round}{text}, {record.status}")

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: Grid, context: Context) -> None:
        values = context.run_config
        try:
            out = Path(str(values.get("out") or "run")).expanduser()
            serve(
                OverGrid(grid),
                experiment_in(folder),
                out,
                options_of(values),
                say,
                Progress(told, say),
            )
            say(f"written to {out}")
        except FedrefError as error:
            say(f"error: {error}")
            raise

    return app


def client_app(folder: Path) -> ClientApp:
    """The ClientApp of an app's folder: answers for the clients of the node that it runs on."""
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator, unused-ignore]
    def train(message: Message, context: Context) -> Message:
        try:
            values = context.node_config
            if missing := [key for key in ("data", "state") if not values.get(key)]:
                raise ConfigError(f"its --node-config has no {missing[0]}")
            site = read_part(Path(str(values["data"])).expanduser())
            state = Path(str(values["state"])).expanduser()
            request = packet_of(message.content)
            reply = answer(request, site, experiment_in(folder), state)
        except FedrefError as error:
            print(f"fedref: {error}", flush=True)
            reply = {"refused": {"reason": f"{type(error).__name__}, told in its own log"}}
        return Message(content_of(reply), reply_to=message)

    return app
