"""A backend from its name: MODULE:BACKEND, MODULE (whose functions are the backend), or a short name."""

import importlib
import sys
from pathlib import Path
from typing import Any

from fedref.boundary.errors import ConfigError, unknown
from fedref.conformance.backends import NAMES


def load(name: str) -> Any:
    """The object that `name` stands for; a module may lie in the current folder."""
    module, _, attribute = NAMES.get(name, name).partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        hint = "pip install 'fedref[peers]'" if name in NAMES else unknown("backend", name, NAMES)
        raise ConfigError(f"cannot import {module}: {error}; {hint}") from None
    except Exception as error:
        raise ConfigError(f"importing {module} raised {type(error).__name__}: {error}") from error
    for part in filter(None, attribute.split(".")):
        if not hasattr(found, part):
            raise ConfigError(f"{module} has no {part!r}, expected MODULE:BACKEND")
        found = getattr(found, part)
    return found() if isinstance(found, type) else found
