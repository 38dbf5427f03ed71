"""The validator of all values that come from outside: from TOML, the command line or Python.

A dataclass declares what its fields may hold by their types and by two class variables:

    bounds   field → (low, high), or Bounds where an end is excluded
    choices  field → the words that it may hold

Every message says where the value stands, what it is, and what would be right.
"""

import re
import tomllib
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from functools import cache
from math import inf, isfinite
from typing import Any, NamedTuple

from fedref.boundary.errors import ConfigError, printable, unknown

#: Integers of TOML have 64 bits.
LARGEST = 2**63


class Bounds(NamedTuple):
    """The least and the greatest number; open : the ends that are excluded, "", "high" or "both"."""

    low: float = -inf
    high: float = inf
    open: str = ""

    def holds(self, number: float) -> bool:
        above = number > self.low if self.open == "both" else number >= self.low
        return above and (number < self.high if self.open else number <= self.high)

    def __str__(self) -> str:
        low = f"{'above' if self.open == 'both' else 'at least'} {self.low:g}"
        high = f"{'below' if self.open else 'at most'} {self.high:g}"
        said = [low] * (self.low > -inf) + [high] * (self.high < inf)
        return ", " * bool(said) + " and ".join(said)


ANY = Bounds()
#: For a number that something is divided by.
POSITIVE = Bounds(0.0, open="both")

KINDS: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "a string",
}


def with_dashes(name: str) -> str:
    """Return a name as TOML and the command line spell it."""
    return name.replace("_", "-")


def plain(value: Any) -> Any:
    """Return a value in TOML's types: NumPy's numbers, arrays, tuples and ranges are converted."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # from NumPy, which `fedref --help` must not import
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    return value


def quote(value: Any) -> str:
    """Return a value as text for messages; Python refuses to write integers of thousands of digits."""
    try:
        return printable(repr(value))
    except ValueError:
        return "a number of thousands of digits"


def check_value(
    hint: Any, value: Any, where: str, bounds: Bounds = ANY, words: Collection[str] = ()
) -> Any:
    """Return `value` as the type `hint`, if it is within bounds or one of `words`.

    Raises a ConfigError that names `where` the value stands.
    """
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        options = [h for h in typing.get_args(hint) if h is not type(None)]
        return None if value is None else check_value(options[0], value, where, bounds, words)
    if getattr(value, "ndim", None) == 0:  # a number of NumPy's
        value = value.item()
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} is {quote(value)}, expected a list")
        return tuple(check_value(inner, item, where, bounds, words) for item in value)
    if typing.get_origin(hint) is Mapping:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} is {quote(value)}, expected a table")
        return dict(value)
    if hint not in KINDS:  # a type of the user's own
        return value
    result = as_kind(hint, value)
    if words and isinstance(result, str):
        if result not in words:
            above, _, name = where.rpartition(" ")
            above += ": " if above and not above.endswith(":") else " " * bool(above)
            raise ConfigError(above + unknown(name, result, words))
        return result
    if result is None or (hint in (int, float) and not bounds.holds(result)):
        expected = f"one of {', '.join(words)}" if words else f"{KINDS[hint]}{bounds}"
        if hint is int and isinstance(value, int | float) and abs(value) >= LARGEST:
            expected += ", below 2^63"
        raise ConfigError(f"{where} is {quote(value)}, expected {expected}")
    return result


def as_kind(kind: type, value: Any) -> Any:
    """Convert to bool, int, float or str without loss (1e3 is the whole number 1000), else None."""
    if isinstance(value, bool) or kind is bool:
        return value if isinstance(value, bool) and kind is bool else None
    if kind is str:
        return value if isinstance(value, str) and is_text(value) else None
    if not isinstance(value, int | float) or not abs(value) < LARGEST * (1 if kind is int else inf):
        return None
    if kind is float:
        with suppress(OverflowError):
            return float(value) if isfinite(value) else None
        return None
    return int(value) if value == int(value) else None


def is_text(value: str) -> bool:
    """Return whether a string can be written as UTF-8: words of a command line may hold raw bytes."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


# ---- words of a command line ---------------------------------------------------------------------

MOST_SEEDS = 10_000


def literal(text: str) -> Any:
    """Read a text as a TOML value, with .5 and 1. as numbers; anything else stays a string."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):
        return float(text) if re.fullmatch(r"[+-]?(\d+\.|\.\d+)([eE][+-]?\d+)?", text) else text


def seeds_of(text: str) -> list[int]:
    """Read a text as seeds: 3 → 3;  3,7 → 3, 7;  0:5 → 0, 1, 2, 3, 4."""
    spanned = ":" in text
    numbers = [as_kind(int, literal(part.strip())) for part in text.split(":" if spanned else ",")]
    if None in numbers or (spanned and len(numbers) != 2):
        raise ConfigError(f"--seeds is {text[:40]!r}, expected A:B (A to B−1) or A,B,...")
    if (numbers[1] - numbers[0] if spanned else len(numbers)) > MOST_SEEDS:
        raise ConfigError(f"--seeds is {text[:40]!r}, expected at most {MOST_SEEDS} seeds")
    return list(range(*numbers)) if spanned else numbers


# ---- the fields of a dataclass -------------------------------------------------------------------


@cache
def hints_of(cls: Any) -> dict[str, Any]:
    """Return the annotated type of each field."""
    return typing.get_type_hints(cls)


def declaration_of(cls: type[Any], variable: str, name: str) -> Any:
    """Return a field's entry in a class variable such as `bounds`, of the class or of its bases."""
    tables = (vars(c).get(variable, {}) for c in cls.__mro__)
    return next((table[name] for table in tables if name in table), ())


def field_value(cls: Any, name: str, value: Any, where: str) -> Any:
    """Return the value of one field of `cls`, checked."""
    bounds = Bounds(*(declaration_of(cls, "bounds", name) or getattr(cls, "usual_bounds", ())))
    return check_value(
        hints_of(cls)[name], value, where, bounds, declaration_of(cls, "choices", name)
    )


def check_fields(instance: Any, where: str = "") -> None:
    """Check every field of a frozen dataclass, in its `__post_init__`, and convert it to its type."""
    for f in fields(instance):
        name = f"{where} {with_dashes(f.name)}".strip()
        value = field_value(type(instance), f.name, getattr(instance, f.name), name)
        object.__setattr__(instance, f.name, value)


def field_from_text(cls: Any, name: str, text: str) -> Any:
    """Read a text as a value for the field `name` of `cls`: as TOML, but strings need no quotes."""
    takes_text = name in hints_of(cls) and str in (
        hints_of(cls)[name],
        *typing.get_args(hints_of(cls)[name]),
    )
    return text if takes_text else literal(text)


def values_of(
    cls: Any, table: Mapping[str, Any], where: str, given: Iterable[str]
) -> dict[str, Any]:
    """Check a table (keys as Python spells them) against a dataclass; return its values.

    given : fields that may not stand in the table, as their values come from elsewhere.
    """
    known = [f.name for f in fields(cls) if f.init and f.name not in given]
    for key in table:
        if key not in known:
            kind = f"key of {where}" if where else "key"
            raise ConfigError(unknown(kind, with_dashes(key), map(with_dashes, known)))
    return {
        key: field_value(cls, key, value, f"{where} {with_dashes(key)}".strip())
        for key, value in table.items()
    }


def build(cls: type[Any], table: Mapping[str, Any], where: str, **given: Any) -> Any:
    """Make a dataclass from a table and from values that do not stand in it (`given`)."""
    return cls(**values_of(cls, table, where, given), **given)
