"""Flower itself: SuperLink, SuperNodes and runs as processes of their own, on loopback.

Slow, and skipped where flwr is not installed.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from pathlib import Path

import pytest
from federating import experiment_of, missed, near, same_parameters, same_tables

from fedref.experiments import config
from fedref.experiments.results import load_run
from fedref.experiments.run import run
from fedref.flower.project import write_app

pytest.importorskip("flwr", reason="Flower is not installed")
pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
PACKAGE = Path(config.__file__).parents[2]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


class Cloud:
    """A SuperLink and its nodes. Every process is the head of a group, which ends with the test."""

    def __init__(self, folder: Path, secure: bool = False):
        self.folder, self.secure = folder, secure
        self.port, *self.node_ports = free_ports(6)
        self.running: dict[str, subprocess.Popen] = {}
        (folder / "home").mkdir()
        connection = f'[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
        if secure:
            make_certificate(folder)
            connection += f'root-certificates = "{folder / "ca.crt"}"\n'
        else:
            connection += "insecure = true\n"
        (folder / "home" / "config.toml").write_text(connection)
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

    def start(self, name: str, *words: object) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(
                [str(BIN / str(words[0])), *map(str, words[1:])],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env=self.environment, cwd=self.folder, start_new_session=True,
            )  # fmt: skip

    def link(self) -> None:
        words = ["--port", self.port, "--database", self.folder / "link.db"]
        words += ["--disable-runtime-dependency-installation"]
        if self.secure:
            words += ["--ssl-ca-certfile", self.folder / "ca.crt", "--enable-supernode-auth"]
            words += ["--ssl-certfile", self.folder / "link.crt"]
            words += ["--ssl-keyfile", self.folder / "link.key"]
        else:
            words += ["--insecure"]
        self.start("link", "flower-superlink", *words)
        self.until(self.answers, 60, "the SuperLink does not answer")

    def answers(self) -> bool:
        with socket.socket() as one, suppress(OSError):
            one.connect(("127.0.0.1", self.port))
            return True
        return False

    def node(self, i: int, part: int | None = None, key: bool = True) -> None:
        part = i if part is None else part
        values = f'data="{self.folder}/app/nodes/{part}.npz" state="{self.folder}/state/{i}"'
        words = ["--superlink", f"127.0.0.1:{self.port}", "--port", self.node_ports[i]]
        words += ["--node-config", values]
        if not self.secure:
            words += ["--insecure"]
        else:
            words += ["--root-certificates", self.folder / "ca.crt"]
            if key:
                words += ["--auth-supernode-private-key", self.folder / f"node-{i}"]
        self.start(f"node-{i}", "flower-supernode", *words)

    def register(self, i: int) -> None:
        make_key(self.folder / f"node-{i}")
        words = [BIN / "flwr", "supernode", "register", self.folder / f"node-{i}.pub", "here"]
        subprocess.run(words, env=self.environment, check=True, capture_output=True, timeout=60)

    def run(self) -> None:
        """Submit the app; its log is in run.log."""
        self.start("run", "flwr", "run", self.folder / "app" / "app", "here", "--stream")

    def ended(self) -> bool:
        return "fedref: written to" in self.log("run")

    def log(self, name: str) -> str:
        with suppress(FileNotFoundError):
            return (self.folder / f"{name}.log").read_text("utf-8", "replace")
        return ""

    def until(self, holds, limit: float, message: str) -> None:
        end = time.monotonic() + limit
        while not holds():
            if time.monotonic() > end or "fedref: error" in self.log("run"):
                tails = {
                    name: self.log(name)[-2500:] for name in ("run", "link", "node-0", "node-1")
                }
                pytest.fail(message + "".join(f"\n== {k}\n{v}" for k, v in tails.items()))
            time.sleep(0.1)

    def end(self, name: str, how: int = signal.SIGKILL) -> None:
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        process.wait(30)

    def close(self) -> None:
        """End all that was started, and what that has started in sessions of its own."""
        for name in list(self.running):
            self.end(name)
        self.sweep("")

    def sweep(self, word: str) -> None:
        """End what is left of ours with this word in its command line: a SuperLink that is killed
        leaves its ServerApp, where nobody reaps the process between them."""
        mark = f"FLWR_HOME={self.environment['FLWR_HOME']}\0".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                ours = mark in (process / "environ").read_bytes()
                if ours and word.encode() in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)


@pytest.fixture
def cloud(tmp_path):
    clouds = []

    def make(secure=False):
        clouds.append(Cloud(tmp_path, secure))
        return clouds[-1]

    yield make
    for one in clouds:
        one.close()


def make_certificate(folder: Path) -> None:
    """ca.crt, and link.crt with link.key for 127.0.0.1."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def named(text):
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    now, ca, own = datetime.now(UTC), *(ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def builder(subject, key):
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("ca"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=2))
        )

    root = builder("ca", ca).add_extension(x509.BasicConstraints(True, 0), True)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    link = builder("link", own).add_extension(names, False)
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(root.sign(ca, hashes.SHA256()).public_bytes(pem))
    (folder / "link.crt").write_bytes(link.sign(ca, hashes.SHA256()).public_bytes(pem))
    (folder / "link.key").write_bytes(
        own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def make_key(path: Path) -> None:
    """A node's key pair, as `ssh-keygen -t ecdsa -b 384` makes it: `path` and `path`.pub."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.with_suffix(".pub").write_bytes(public)


def configured(folder: Path, **values: object) -> None:
    """Other values in the app's [tool.flwr.app.config]."""
    import tomli_w

    path = folder / "app" / "app" / "pyproject.toml"
    table = config.read(path)
    table["tool"]["flwr"]["app"]["config"] |= values
    path.write_text(tomli_w.dumps(table))


ALGORITHMS = {
    "fedavg": {},
    "per-fedavg": {},
    "fedmeta-sgd": {"server": "adam"},
    "apfl": {"z": 1},
}


def test_three_rounds_are_those_of_a_local_run(cloud, tmp_path):
    """Over TLS, with keys; a node without one is turned away."""
    experiment = experiment_of(algorithms=ALGORITHMS)
    write_app(experiment, tmp_path / "app", nodes=3)
    configured(tmp_path, pinned=True, wait=60.0)
    far = cloud(secure=True)
    far.link()
    for i in range(3):
        far.register(i)
        far.node(i)
    far.node(3, part=0, key=False)  # it would like to answer for the first node's clients
    make_key(tmp_path / "node-4")  # nobody has registered this one
    far.node(4, part=0)
    far.run()
    out = tmp_path / "app" / "run"
    far.until(far.ended, 400, "the run does not end")
    near(tmp_path, experiment)
    assert same_tables(out, tmp_path / "near")
    assert same_parameters(load_run(out), load_run(tmp_path / "near"))
    assert (out / "missed.csv").read_text().count("\n") == 1
    for stranger in (3, 4):
        assert "SuperNode ID" not in far.log(f"node-{stranger}")
        assert "Receiving" not in far.log(f"node-{stranger}")
    assert all("Receiving" in far.log(f"node-{i}") for i in range(3))


def test_a_link_and_a_node_are_killed(cloud, tmp_path):
    """The run goes on from its checkpoint, to the same numbers; then without the node's clients,
    each in missed.csv; and with them again when it is back, with the states from its own disk."""
    # As many rounds as it takes: the link lets a node that was killed in again after a minute.
    experiment = experiment_of(algorithms={"fedcurv": {}}, rounds=100, clients_per_round=7)
    own = write_app(experiment, tmp_path / "app", nodes=3, limit=40.0)[2]
    configured(tmp_path, pinned=True, wait=60.0)
    out = tmp_path / "app" / "run"
    far = cloud(secure=True)
    far.link()
    for i in range(3):
        far.register(i)
        far.node(i)

    def reached(t):
        return lambda: f": round {t}, " in far.log("run")

    far.run()
    far.until(reached(1), 120, "round 1 is not reached")
    far.end("link")
    far.sweep("flwr-serverapp")
    far.end("run")
    far.link()
    far.run()
    far.until(reached(2), 120, "the run does not go on")
    far.end("node-2")
    far.until(lambda: lost_in(out), 120, "nobody is missed")
    far.node(2)

    def back():
        if far.running["node-2"].poll() is not None:  # refused: the link holds it to be there yet
            far.node(2)
        return load_run(out).records[0].round > max(lost_in(out))

    far.until(back, 200, "the node is not back")
    far.close()

    record, rows, lost = load_run(out).records[0], missed(out), lost_in(out)
    assert {int(row["client"]) for row in rows} == set(own), rows
    here = run(experiment).records[0]
    first = min(int(row["round"]) for row in rows)
    assert first >= 2
    assert record.rows[:first] == here.rows[:first]
    assert record.rows[max(lost)] != here.rows[max(lost)]
    assert [row["dropped"] for row in record.rows] == [
        sum(t <= row["round"] for t in lost) for row in record.rows
    ]
    assert not any(row["failed"] for row in record.rows)
    assert {record.state.clients[k] for k in own} == {record.round - 1}


def lost_in(out: Path) -> list[int]:
    """The rounds in which a client's work was missed, once for each."""
    rows = missed(out) if (out / "missed.csv").exists() else []
    return [int(row["round"]) for row in rows if row["phase"] == "training"]
