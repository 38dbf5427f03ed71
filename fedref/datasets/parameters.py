"""Parameters of split rules and data sets: name, type, bounds, and the check of a given value."""

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.values import Bounds, checked, literal


class Parameter(NamedTuple):
    """One parameter. A default of None means that the value is found from the data."""

    type: type
    default: Any
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


def value(name: str, given: Any, parameter: Parameter, owner: str) -> Any:
    """The given value (text from a command line too) in its type and within its bounds."""
    if given is None and parameter.default is None:
        return None
    low, high = parameter.low, parameter.high
    bounds = Bounds(-inf if low is None else low, inf if high is None else high)
    if isinstance(given, str) and parameter.type is not str:
        given = literal(given)
    return checked(parameter.type, given, f"{owner}: {name}", bounds, parameter.choices)


def resolve(owner: str, known: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter with its value: the given one, checked, or the default."""
    for name in given:
        if name not in known:
            raise ConfigError(unknown(f"parameter of {owner}", name, known))
    return {
        name: value(name, given.get(name, parameter.default), parameter, owner)
        for name, parameter in known.items()
    }
