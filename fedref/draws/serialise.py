"""Conversion of fedref's values to those of a backend (arrays, numbers, dictionaries), and back."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fedref.algorithm import AnyAlgorithm, ClientResult, Participant
from fedref.algorithms import apfl, fedmeta
from fedref.judge.case import Values, name_leaf
from fedref.models import BinaryLogistic, tree
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array

# ---- batches --------------------------------------------------------------------------------


def build_batch(D: Mapping[str, Array]) -> Batch:
    """Return {"X", "y"[, "s"]} as a Batch."""
    return Batch(D["X"], D["y"], D.get("s"))


# ---- states and uploads ------------------------------------------------------------------------


def template_of(it: AnyAlgorithm) -> ClientResult:
    """Return a client's result after a round of one step on a tiny model, as a template of others."""
    model, D = BinaryLogistic(1), Batch(np.ones((2, 1)), np.array([0, 1]))
    sent = it.download(it.initial(model, np.zeros(model.d)))
    start = it.start(model, sent, None, Participant(0, 2, 1.0))
    local = it.step(model, sent, start, *(D for _ in it.roles))
    result = it.finish(model, sent, local, None, lambda: D)
    if isinstance(it, apfl.APFL):  # which keeps nothing before the round z
        return result._replace(client_state=apfl.ClientState(D.X, D.X))
    return result


def dtype_of(server: Values) -> Any:
    """Return the dtype that is computed in: the first leaf's (a text's X holds codes)."""
    return np.asarray(next(iter(server.values()))).dtype


def initial_server(algorithm: AnyAlgorithm, model: Model, w: Array) -> Any:
    """Return the server's state before round 0; APFL's F as an array from the start."""
    server = algorithm.initial(model, w)
    return server._replace(F=np.zeros_like(w)) if isinstance(server, apfl.ServerState) else server


def dump_state(state: object, dtype: DTypeLike) -> dict[str, Array]:
    """Return a state's leaves by name, arrays of numbers in dtype: Adam's m of θ is "m_theta"."""

    def convert(x: Any) -> Array:
        x = np.asarray(x)
        return x.astype(dtype) if x.ndim and x.dtype.kind == "f" else x

    state = _with_window(state, lambda window: np.asarray(window, dtype))
    return {name_leaf(path): convert(x) for path, x in tree.flatten(state).items()}


def required_state(algorithm: str, start: Iterable[str], hyper: Values) -> list[str]:
    """Return which fields of the server's state a backend must return after a round; `start` : all."""
    names = list(start)
    main = ["theta", "alpha"] if algorithm == "fedmeta-sgd" else names[:1]
    main += [name for name in ("c", "h", "m", "v") if name in names and algorithm != "fedcurv"]
    return main + (["mu"] if hyper.get("adaptive_mu") else [])


def load_server(algorithm: AnyAlgorithm, model: Model, values: Mapping[str, Array]) -> Any:
    """Return the server's state from its leaves by name."""
    form = initial_server(algorithm, model, next(iter(values.values())))
    form = _with_window(form, lambda _: 0)
    paths = {name_leaf(path): path for path in tree.flatten(_without_none(form))}
    server = tree.unflatten(form, {paths[name]: _leaf(x) for name, x in values.items()})
    return _with_window(server, lambda window: tuple(np.asarray(window).tolist()))


def load_client_state(algorithm: AnyAlgorithm, values: Mapping[str, Array] | None) -> Any:
    """Return what a client keeps from its leaves by name; None before its first round."""
    if not values:
        return None
    form = template_of(algorithm).client_state
    return tree.unflatten(form, {k: _leaf(x) for k, x in values.items()})


def dump_upload(algorithm: AnyAlgorithm, sent: object) -> dict[str, Array]:
    """Return what a client (or a stack of them) sends, by name."""
    gradient = "g_" if isinstance(algorithm, fedmeta.MAML) else ""
    return {f"{gradient}{name}": x for name, x in tree.flatten(sent).items()}


def load_upload(algorithm: AnyAlgorithm, values: Mapping[str, Array]) -> Any:
    """Invert `dump_upload`."""
    flat = {name.removeprefix("g_"): x for name, x in values.items()}
    return tree.unflatten(template_of(algorithm).upload, flat)


def _leaf(x: Any) -> Any:
    """Return a single number as Python's."""
    return x if np.ndim(x) else np.asarray(x).item()


def _with_window(state: Any, convert: Callable[[Array], object]) -> Any:
    """Return APFL's state with its detector's window converted; other states unchanged."""
    if not isinstance(state, apfl.ServerState):
        return state
    detector = state.detector
    return state._replace(detector=detector._replace(window=convert(detector.window)))


def _without_none(form: Any) -> Any:
    """Return the template with 0 for None, which may become a number and needs a name."""
    if isinstance(form, tuple):
        return type(form)(*(_without_none(part) for part in form))
    return 0 if form is None else form
