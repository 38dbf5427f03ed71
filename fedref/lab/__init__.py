"""What runs experiments on the reference: data, experiments, pictures, commands, Flower.

The reference imports nothing of it, but for the front door: `fedref.run`, `fedref.load_run`, the command.
"""

from importlib import import_module
from typing import Any

MODULES = ("commands", "datasets", "experiments", "flower", "plots")


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"fedref.lab.{name}")
    raise AttributeError(f"module 'fedref.lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*MODULES]
