"""Flower's ServerApp and ClientApp, which call `server` and `node`.

They need flwr 1.42. The operator of a node configures it by `--node-config`: `data` is the path of its
part, `state` the folder of its clients' states. Everything else is in the app's folder.
"""

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedref.boundary.errors import FedrefError
from fedref.boundary.values import Bounds, Entry
from fedref.lab.experiments import config
from fedref.lab.experiments.progress import Progress, describe
from fedref.lab.experiments.unit import Record, Unit
from fedref.lab.flower.node import answer
from fedref.lab.flower.server import serve

#: Seconds between looks for answers.
PAUSE = 0.2
#: What the values in [tool.flwr.app.config] may be.
OPTIONS = (Entry("clients", int, bounds=Bounds(1)), Entry("limit", float, bounds=Bounds(0)))


def content_of(data: bytes) -> RecordDict:
    """Return a message as Flower carries it: bytes that Flower does not look into."""
    array = Array(dtype="uint8", shape=(len(data),), stype="fedref", data=data)
    return RecordDict({"fedref": ArrayRecord({"message": array})})


def bytes_of(content: Any) -> Any:
    """Return what should be the bytes of a message; None if it holds something else."""
    with suppress(Exception):
        return content["fedref"]["message"].data


class OverGrid:
    """A `Network` on Flower's Grid."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def nodes(self) -> Collection[int]:
        return set(self.grid.get_node_ids())

    def ask(self, requests: Mapping[int, bytes], limit: float) -> Mapping[int, Any]:
        """Send the requests and wait for the answers; only the node that was asked can give one."""
        asked = [
            Message(content_of(data), node, "train", ttl=max(limit, 1.0))
            for node, data in requests.items()
        ]
        ids = list(self.grid.push_messages(asked)) if asked else []
        waiting = {id: node for id, node in zip(ids, requests, strict=True) if id}
        answers: dict[int, Any] = {node: "is offline" for id, node in zip(ids, requests) if not id}
        end = time.monotonic() + limit
        while waiting and time.monotonic() < end:  # Grid.send_and_receive looks every 3 s only
            for message in self.grid.pull_messages(list(waiting)):
                node = waiting.pop(message.metadata.reply_to_message_id, None)
                if node is None:
                    continue
                if message.has_error():
                    answers[node] = f"gives no answer (Flower: {message.error.reason})"
                elif message.metadata.src_node_id != node:
                    answers[node] = "another node answers in its place"
                else:
                    answers[node] = bytes_of(message.content)
            time.sleep(PAUSE if waiting else 0)
        return answers


def server_app(folder: Path) -> ServerApp:
    """Return the ServerApp of an app's folder: it runs the experiment, or resumes it, in `out`."""
    app = ServerApp()

    def say(text: str) -> None:
        print(f"fedref: {text}", flush=True)

    def report_round(unit: Unit, record: Record) -> None:
        say(f"{describe(unit, record)}; {record.status}")

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: Grid, context: Context) -> None:
        values = context.run_config
        try:
            out = Path(str(values.get("out") or "run")).expanduser()
            clients, limit = (
                entry.check(values.get(entry.name), "[tool.flwr.app.config]") for entry in OPTIONS
            )
            serve(
                OverGrid(grid), config.compose(folder / "experiment.toml", []), out,
                clients=clients, limit=limit, say=say, progress=Progress(report_round, say),
            )  # fmt: skip
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
        keys = ("data", "state")
        part, states = (Path(str(context.node_config.get(key))).expanduser() for key in keys)
        experiment = config.compose(folder / "experiment.toml", [])
        reply = answer(bytes_of(message.content), part, experiment, states)
        return Message(content_of(reply), reply_to=message)

    return app
