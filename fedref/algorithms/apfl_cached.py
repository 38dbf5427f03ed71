"""APFL whose clients cache the importance F: the server sends it only to clients whose F is old.

The numbers are those of `APFL`, to the bit; only the bytes differ. The paper claims hardly any extra
communication, because F is renewed only once after the preset rounds; yet alg.1 sends F to every client
in every round. A run uses it with
`algorithm = "fedref.algorithms.apfl_cached:APFLCachedImportance"`.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithm import AllData, ClientResult
from fedref.algorithms.apfl import APFL, ClientState, Local, ServerState
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array


class CachingClient(NamedTuple):
    """A client's state in APFL, and the fingerprint of the F that it has (0: none)."""

    own: ClientState | None
    fingerprint: int


def fingerprint(F: Any) -> int:
    """Return a number that is equal for equal F; 0 for the F that no client has measured yet."""
    if not np.ndim(F):
        return 0
    return int.from_bytes(sha256(np.asarray(F).tobytes()).digest()[:6]) or 1


def own_of(client_state: Any) -> ClientState | None:
    """Return the client's state in APFL."""
    return None if client_state is None else client_state.own


@dataclass(frozen=True)
class APFLCachedImportance(APFL):
    """APFL that sends F only to clients that do not have it."""

    def download_for(self, sent: ServerState, client_state: Any) -> ServerState:
        has = client_state is not None and client_state.fingerprint == fingerprint(sent.F)
        return sent._replace(F=0) if has else sent

    def start(self, model: Model, sent: ServerState, client_state: Any) -> Local:
        return super().start(model, sent, own_of(client_state))

    def finish(
        self, model: Model, sent: ServerState, local: Local, client_state: Any, data: AllData
    ) -> ClientResult:
        result = super().finish(model, sent, local, own_of(client_state), data)
        new = CachingClient(result.client_state, fingerprint(sent.F))
        return result._replace(client_state=None if new == (None, 0) else new)

    def personalised_params(
        self, model: Model, sent: ServerState, client_state: Any, D: Batch | None
    ) -> Array:
        return super().personalised_params(model, sent, own_of(client_state), D)
