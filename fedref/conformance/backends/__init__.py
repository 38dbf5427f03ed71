"""Backends that are run against the vectors; a short name stands for each on the command line."""

import importlib
import sys
from pathlib import Path
from typing import Any

from fedref.boundary.errors import ConfigError, unknown

NAMES = {
    "fedref": "fedref.conformance.backends.reference:LOOP",
    "fedref:stack": "fedref.conformance.backends.reference:STACK",
    "fedref:workers": "fedref.conformance.backends.reference:WORKERS",
    "torch": "fedref.conformance.backends.torch:BACKEND",
    "jax": "fedref.conformance.backends.jax:BACKEND",
    "flower": "fedref.conformance.backends.flower:BACKEND",
}


def load_backend(name: str) -> Any:
    """Return the backend of that name: MODULE:OBJECT, MODULE (its functions), or a short name.

    The module may lie in the current folder; a class is called without arguments.
    """
    module, _, attribute = NAMES.get(name, name).partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        backend: Any = importlib.import_module(module)
    except ImportError as error:
        hint = "pip install 'fedref[peers]'" if name in NAMES else unknown("backend", name, NAMES)
        raise ConfigError(f"cannot import {module}: {error}; {hint}") from None
    except Exception as error:
        raise ConfigError(f"importing {module} raised {type(error).__name__}: {error}") from error
    for part in filter(None, attribute.split(".")):
        if not hasattr(backend, part):
            raise ConfigError(f"{module} has no {part!r}, expected MODULE:BACKEND")
        backend = getattr(backend, part)
    return backend() if isinstance(backend, type) else backend
