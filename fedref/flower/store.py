"""What a node's clients keep between rounds: on the node's own disk, whole or not at all.

    FOLDER/RUN/data.sha256            the rows that the run began with
    FOLDER/RUN/UNIT/CLIENT/ROUND.ckpt a client's state as its work of that round left it

The server says of which round a client's last *counted* work was; that state is taken, so an answer
that came late or was refused leaves no trace, and a server that goes on from its last checkpoint
finds the states of that time. Four are kept: the new one, the one that the work began with, and two
before it. The work of a round comes with the evaluation after the round before, which is saved only
then: the server's newest checkpoint may be a round behind, and the one before it two.
"""

import re
from pathlib import Path
from typing import Any

from fedref.boundary.files import write_or_raise
from fedref.experiments import checkpoint
from fedref.flower.messages import NONE, Refused

RUN = re.compile(r"[0-9a-f]{16}")


class Store:
    """The states of one unit of a run."""

    def __init__(self, folder: Path, run: str, unit: int, types: checkpoint.Types) -> None:
        if not RUN.fullmatch(run) or unit < 0:
            raise Refused(
                f"run {run[:40]!r}, unit {unit}: expected 16 hexadecimal digits, and 0 on"
            )
        self.run, self.folder, self.types = folder / run, folder / run / str(unit), types

    def same_data(self, fingerprint: str) -> None:
        """Refused if the rows are not those that the run began with on this node."""
        path = self.run / "data.sha256"
        if not path.exists():
            write_or_raise(path, fingerprint.encode())
        elif path.read_bytes() != fingerprint.encode():
            raise Refused("its rows have changed since the run began")

    def path(self, client: int, round: int) -> Path:
        return self.folder / str(client) / f"{round}.ckpt"

    def read(self, client: int, round: int) -> Any:
        """The state that the client's work of that round left; None for round −1."""
        if round == NONE:
            return None
        path = self.path(client, round)
        try:
            return checkpoint.loads(path.read_bytes(), path.name, self.types)
        except (OSError, ValueError) as error:
            raise Refused(
                f"its own state after round {round + 1} cannot be read on its node"
            ) from error

    def write(self, client: int, before: int, round: int, state: Any) -> None:
        """Keep the state of this round; `before` is the round that it was made from."""
        write_or_raise(self.path(client, round), checkpoint.dumps(state))
        kept = self.rounds(client)
        older = [t for t in kept if t < before]
        for t in set(kept) - {before, round, *older[-2:]}:
            self.path(client, t).unlink(missing_ok=True)

    def rounds(self, client: int) -> list[int]:
        """Of which rounds there is a state, ascending."""
        names = (path.stem for path in (self.folder / str(client)).glob("*.ckpt"))
        return sorted(int(name) for name in names if name.isdigit())
