"""Backends to run against the vectors; on the command line a short name stands for each."""

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from fedref.boundary.errors import ConfigError, unknown

NAMES = {
    "fedref": "fedref.conformance.backends.reference:LOOP",
    "fedref:stack": "fedref.conformance.backends.reference:STACK",
    "torch": "fedref.conformance.backends.torch:BACKEND",
}
INSTALL = {"torch": "pip install torch --index-url https://download.pytorch.org/whl/cpu"}


def load_backend(name: str) -> Any:
    """Return the backend of that name: MODULE:OBJECT, MODULE or FILE.py (its functions), or a short name.

    The module may lie in the current folder; a class is called without arguments.
    """
    module, _, attribute = NAMES.get(name, name).partition(":")
    folder = Path.cwd()
    if module.endswith(".py"):
        folder, module = Path(module).resolve().parent, Path(module).stem
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        backend: Any = importlib.import_module(module)
    except ImportError as error:
        hint = INSTALL[name] if name in INSTALL else unknown("backend", name, NAMES)
        raise ConfigError(f"cannot import {module}: {error}; {hint}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # it may exit
        raise ConfigError(f"importing {module} raised {type(error).__name__}: {error}") from error
    for part in filter(None, attribute.split(".")):
        if not hasattr(backend, part):
            raise ConfigError(f"{module} has no {part!r}, expected MODULE:BACKEND")
        backend = getattr(backend, part)
    if isinstance(backend, ModuleType):
        return functions_of(backend)
    return backend() if isinstance(backend, type) else backend


def functions_of(module: ModuleType) -> SimpleNamespace:
    """Return what a module offers: the names of its `__all__`, else what it does not import.

    An imported helper may happen to have a call's name, without being meant as that call. Such names
    are in `imported_names`, so that the suite can say why they are not tested.
    """

    def is_imported(value: Any) -> bool:
        function = inspect.unwrap(value) if callable(value) else value
        return inspect.isroutine(function) and function.__module__ != module.__name__

    imported = {name for name, value in vars(module).items() if is_imported(value)}
    imported -= set(getattr(module, "__all__", ()))
    names = set(getattr(module, "__all__", vars(module))) - imported
    offered = {name: getattr(module, name) for name in names}
    return SimpleNamespace(imported_names=imported, **offered)
