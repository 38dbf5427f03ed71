"""Flower itself: SuperLink, SuperNodes and runs as processes of their own, on loopback.

Slow, and skipped where flwr is not installed.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from federating import experiment_of, near, same_parameters, same_tables

from fedref.lab.experiments import config
from fedref.lab.experiments.results import load_run
from fedref.lab.flower.project import write_app

pytest.importorskip("flwr", reason="Flower is not installed")
pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
PACKAGE = Path(config.__file__).parents[3]
README = PACKAGE / "fedref" / "lab" / "flower" / "README.md"


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


class Cloud:
    """A SuperLink and its nodes, over TLS and with keys. Every process heads a group of its own,
    which ends with the test."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.port, *self.node_ports = free_ports(6)
        self.running: dict[str, subprocess.Popen] = {}
        (folder / "home").mkdir()
        (folder / "home" / "config.toml").write_text(
            f'[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{folder / "ca.crt"}"\n'
        )
        self.environment = os.environ | {
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "PYTHONPATH": str(PACKAGE),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        self.shell(commands_with("openssl").replace("DNS:SERVER", "IP:127.0.0.1"))

    def start(self, name: str, *words: object) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(
                [str(BIN / str(words[0])), *map(str, words[1:])],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env=self.environment, cwd=self.folder, start_new_session=True,
            )  # fmt: skip

    def link(self) -> None:
        words = ["--port", self.port, "--database", "link.db", "--enable-supernode-auth"]
        words += ["--disable-runtime-dependency-installation", "--ssl-ca-certfile", "ca.crt"]
        words += ["--ssl-certfile", "link.crt", "--ssl-keyfile", "link.key"]
        self.start("link", "flower-superlink", *words)
        self.until(self.answers, 60, "the SuperLink does not answer")

    def answers(self) -> bool:
        with socket.socket() as one, suppress(OSError):
            one.connect(("127.0.0.1", self.port))
            return True
        return False

    def node(self, i: int, part: int, key: bool = True) -> None:
        values = f'data="{self.folder}/app/nodes/{part}.npz" state="{self.folder}/state/{i}"'
        words = ["--superlink", f"127.0.0.1:{self.port}", "--port", self.node_ports[i]]
        words += ["--node-config", values, "--root-certificates", "ca.crt"]
        words += ["--auth-supernode-private-key", f"node-{i}"] * key
        self.start(f"node-{i}", "flower-supernode", *words)

    def shell(self, commands: str) -> None:
        subprocess.run(
            ["bash", "-ec", commands], cwd=self.folder, env=self.environment, check=True,
            capture_output=True, timeout=60,
        )  # fmt: skip

    def register(self, i: int) -> None:
        """Make a key and register it, as README.md says."""
        self.shell(commands_with("ssh-keygen").replace("node-0", f"node-{i}"))

    def log(self, name: str) -> str:
        with suppress(FileNotFoundError):
            return (self.folder / f"{name}.log").read_text("utf-8", "replace")
        return ""

    def until(self, holds, limit: float, message: str) -> None:
        """Wait until it holds; fail if the run writes nothing new for so many seconds."""
        end, before = time.monotonic() + limit, ""
        while not holds():
            if (log := self.log("run")) != before:
                end, before = time.monotonic() + limit, log
            if time.monotonic() > end or "fedref: error" in self.log("run"):
                tails = {
                    name: self.log(name)[-2500:] for name in ("run", "link", "node-0", "node-1")
                }
                pytest.fail(message + "".join(f"\n== {k}\n{v}" for k, v in tails.items()))
            time.sleep(0.1)

    def close(self) -> None:
        """End all that was started, and what that has started in sessions of its own."""
        for process in self.running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
        mark = f"FLWR_HOME={self.environment['FLWR_HOME']}\0".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)


@pytest.fixture
def cloud(tmp_path):
    one = Cloud(tmp_path)
    yield one
    one.close()


def commands_with(word: str) -> str:
    """The commands in README.md of which one has this word."""
    blocks = re.findall(r"(?:^    .*\n)+", README.read_text("utf-8"), re.MULTILINE)
    return next(block for block in blocks if word in block)


ALGORITHMS = {"fedavg": {}, "per-fedavg": {}, "fedmeta-sgd": {"server": "adam"}, "apfl": {"z": 1}}


def test_three_rounds_are_those_of_a_local_run(cloud, tmp_path):
    """Over TLS, with keys; a node without one is turned away."""
    split = {"rule": "per-fedavg", "users": 6}  # no client has the labels 8 and 9
    experiment = experiment_of(algorithms=ALGORITHMS, split=split)
    write_app(experiment, tmp_path / "app", nodes=3)
    far = cloud
    far.link()
    for i in range(3):
        far.register(i)
        far.node(i, part=i)
    far.node(3, part=0, key=False)  # it would like to answer for the first node's clients
    key, _ = commands_with("ssh-keygen").splitlines()
    far.shell(key.replace("node-0", "node-4"))  # nobody has registered this one
    far.node(4, part=0)
    far.start("run", "flwr", "run", tmp_path / "app" / "app", "here", "--stream")
    out = tmp_path / "app" / "run"
    written = "fedref: results written to"
    far.until(lambda: written in far.log("run"), 400, "the run does not end")
    near(tmp_path, experiment)
    assert same_tables(out, tmp_path / "near")
    assert same_parameters(load_run(out), load_run(tmp_path / "near"))
    assert (out / "curves.png").stat().st_size > 1000
    assert " node " not in far.log("run")  # none was named for a fault
    for stranger in (3, 4):
        assert "SuperNode ID" not in far.log(f"node-{stranger}")
        assert "Receiving" not in far.log(f"node-{stranger}")
    assert all("Receiving" in far.log(f"node-{i}") for i in range(3))
