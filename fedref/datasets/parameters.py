"""Parameters of split rules and data sets: name, type, bounds, and the check of a given value."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedref.errors import ConfigError, unknown


class Parameter(NamedTuple):
    """One parameter. A default of None means that the value is found from the data."""

    type: type
    default: Any
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


def whole(text: Any) -> int:
    """1000, "1000" or 1000.0, not 3.5 and not True."""
    if isinstance(text, bool) or (number := float(text)) != int(number):
        raise ValueError
    return int(text) if isinstance(text, str | int) else int(number)


def number(text: Any) -> float:
    """A finite number, not True."""
    value = float(text)
    if isinstance(text, bool) or not abs(value) < float("inf"):
        raise ValueError
    return value


def word(text: Any) -> str:
    """A word."""
    if not isinstance(text, str):
        raise ValueError
    return text


READ: dict[type, tuple[Callable[[Any], Any], str]] = {
    int: (whole, "a whole number"),
    float: (number, "a number"),
    str: (word, "a word"),
}


def expected(parameter: Parameter) -> str:
    """What a right value is, for the error message."""
    bounds = (("at least", parameter.low), ("at most", parameter.high))
    said = [f"{word} {bound:g}" for word, bound in bounds if bound is not None]
    if parameter.choices:
        said = [f"one of {', '.join(parameter.choices)}"]
    return ", ".join([READ[parameter.type][1], *said])


def value(name: str, given: Any, parameter: Parameter, owner: str) -> Any:
    """The given value (text from a command line too) in its type and within its bounds."""
    if given is None and parameter.default is None:
        return None
    try:
        read: Any = READ[parameter.type][0](given)
        fits = (
            (not parameter.choices or read in parameter.choices)
            and (parameter.low is None or read >= parameter.low)
            and (parameter.high is None or read <= parameter.high)
        )
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ConfigError(f"{owner}: {name} is {given!r}, expected {expected(parameter)}")
    return read


def resolve(owner: str, known: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter with its value: the given one, checked, or the default."""
    for name in given:
        if name not in known:
            raise ConfigError(unknown(f"parameter of {owner}", name, known))
    return {
        name: value(name, given.get(name, parameter.default), parameter, owner)
        for name, parameter in known.items()
    }
