"""One schema of values: read from the fields of a dataclass or the parameters of a function.

A name, a type and a default say most, and the docstring what it means: "workers : processes". A dataclass
may add class variables for some of its fields, and a function annotates its parameters:

    bounds    the least and the greatest number    workers: Annotated[int, Bounds(1)] = 1
    choices   the words that it may hold           kind: Literal["curves", "bars"] = "curves"

From this follow the keys of TOML files, the flags, `--help`, `--print-config`, and every message about a
wrong value: where it stands, what it is, and what would be right.
"""

import inspect
import re
import sys
import tomllib
import types
import typing
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from math import inf
from numbers import Real
from pathlib import Path
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
        limits = ([low] if self.low > -inf else []) + ([high] if self.high < inf else [])
        return (", " if limits else "") + " and ".join(limits)


ANY = Bounds()
#: For a number that something is divided by.
POSITIVE = Bounds(0.0, open="both")

KINDS: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    Real: "a number",  # whole or not, as it is given
    str: "a string",
    Path: "a path",
    Mapping: "a table",
}


class Entry(NamedTuple):
    """One value that users can give. many : it is a list of such values."""

    name: str
    kind: Any
    default: Any = MISSING
    bounds: Bounds = ANY
    words: tuple[str, ...] = ()
    meaning: str = ""
    many: bool = False
    optional: bool = False

    def check(self, value: Any, where: str = "") -> Any:
        """Return the value in its type; a ConfigError says `where` it stands and what is expected."""
        place = f"{where} {with_dashes(self.name)}".strip()
        if (value is None and self.optional) or (self.kind not in KINDS and not self.many):
            return value  # also of a type of the user's own
        if self.many:
            if not isinstance(value, list | tuple):
                raise ConfigError(f"{place} is {quote(value)}, expected a list")
            one = self._replace(many=False, optional=False)
            return tuple(one.check(item, where) for item in value)
        result = convert(self.kind, value)
        if self.words and isinstance(result, str):
            if result not in self.words:
                prefix = f"{where}: " if where else ""
                raise ConfigError(prefix + unknown(with_dashes(self.name), result, self.words))
        elif result is None or (self.kind in (int, float) and not self.bounds.holds(result)):
            expected = KINDS[self.kind] + (str(self.bounds) if self.kind in (int, float) else "")
            expected = f"one of {', '.join(self.words)}" if self.words else expected
            if self.kind is int and isinstance(value, int | float) and abs(value) >= LARGEST:
                expected += ", below 2^63"
            raise ConfigError(f"{place} is {quote(value)}, expected {expected}")
        return result

    def parse(self, text: str) -> Any:
        """Return a word of a command line as a value, not yet checked: texts need no quotes."""
        return text if self.kind in (str, Path) and not self.many else literal(text)

    def describe(self) -> str:
        """Return what the value means, and its default."""
        form = f"{self.default:g}" if isinstance(self.default, float) else plain(self.default)
        usual = self.default is not False and self.default not in (None, MISSING, (), "")
        return self.meaning + (f" (default {str(form).lower()})" if usual else "")


def convert(kind: Any, value: Any) -> Any:
    """Convert to a type of `KINDS` without loss (1e3 is the whole number 1000); None if impossible."""
    if hasattr(type(value), "ndim") and value.ndim == 0:  # a number of NumPy's
        value = value.item()
    if kind is Mapping:
        return dict(value) if isinstance(value, Mapping) else None
    if kind in (str, Path):
        # words of a command line may hold raw bytes, which cannot be written as UTF-8
        fits = isinstance(value, str | kind) and not re.search("[\ud800-\udfff]", str(value))
        return kind(value) if fits and (value or kind is str) else None  # Path("") is this folder
    if isinstance(value, bool) or kind is bool:
        return value if isinstance(value, bool) and kind is bool else None
    if not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        return None
    if kind in (float, Real):
        return float(value) if kind is float else value
    return int(value) if abs(value) < LARGEST and value == int(value) else None


# ---- the schema of a dataclass or of a function --------------------------------------------------


def entry_of(name: str, hint: Any, default: Any = MISSING, **more: Any) -> Entry:
    """Return the entry of a field or a parameter with this annotation."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        more["optional"] = True
        (hint, *_) = (h for h in typing.get_args(hint) if h is not type(None))
    if typing.get_origin(hint) is typing.Annotated:
        hint, more["bounds"] = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        hint, more["words"] = str, typing.get_args(hint)
    more["many"] = typing.get_origin(hint) in (tuple, list)
    if more["many"]:
        hint = typing.get_args(hint)[0]
    return Entry(name, typing.get_origin(hint) or hint, default, **more)


#: A line of a docstring that explains a value, and those indented below it.
MEANING = r"^\s*(\w+) : (.+(?:\n\s+.+)*?)(?=\n\s*\w+ : |\n\s*\n|\s*\Z)"


def read_schema(of: Any) -> dict[str, Entry]:
    """Return what the fields of a dataclass, or the parameters of a function, may be."""
    hints, bases = typing.get_type_hints(of, include_extras=True), getattr(of, "__mro__", [of])
    meanings = dict[str, str]()
    for one in reversed(bases):
        found = re.findall(MEANING, one.__doc__ or "", re.M)
        meanings |= {name: " ".join(text.split()) for name, text in found}

    bounds, words = (ChainMap(*(vars(x).get(v, {}) for x in bases)) for v in ("bounds", "choices"))
    usual, defaults = getattr(of, "usual_bounds", ()), dict[str, Any]()
    if is_dataclass(of):
        defaults = {f.name: f.default for f in fields(of) if f.init}
    else:
        given = inspect.signature(of).parameters.values()
        defaults = {p.name: p.default for p in given if p.kind is not p.VAR_KEYWORD}
    return {
        name: entry_of(
            name, hints.get(name, Any), MISSING if default is inspect.Parameter.empty else default,
            bounds=Bounds(*(bounds.get(name) or usual)), words=tuple(words.get(name, ())),
            meaning=meanings.get(name, ""),
        )
        for name, default in defaults.items()
    }  # fmt: skip


#: `read_schema`, which reads each of them once; types are hashable, whatever mypy says of a class's own hash.
schema: Callable[[Any], dict[str, Entry]] = cache(read_schema)


def values_of(instance: Any) -> dict[str, Any]:
    """Return the values of a dataclass, by their names."""
    return {name: getattr(instance, name) for name in schema(type(instance))}


def check_fields(instance: Any, where: str = "") -> None:
    """Check every field of a frozen dataclass, in its `__post_init__`, and convert it to its type."""
    for entry in schema(type(instance)).values():
        object.__setattr__(instance, entry.name, entry.check(getattr(instance, entry.name), where))


def check_table(
    of: Any, table: Mapping[str, Any], where: str, without: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the values of a table, checked; without : fields whose values come from elsewhere."""
    known = {name: entry for name, entry in schema(of).items() if name not in without}
    for key in table:
        if key not in known:
            kind = f"key of {where}" if where else "key"
            raise ConfigError(unknown(kind, with_dashes(key), map(with_dashes, known)))
    return {key: known[key].check(value, where) for key, value in table.items()}


def build(cls: type[Any], table: Mapping[str, Any], where: str, **given: Any) -> Any:
    """Make a dataclass from a table and from values that may not stand in it (`given`)."""
    return cls(**check_table(cls, table, where, given), **given)


# ---- texts ---------------------------------------------------------------------------------------


def with_dashes(name: str) -> str:
    """Return a name as TOML and the command line spell it."""
    return name.replace("_", "-")


def literal(text: str) -> Any:
    """Read a text as a TOML value, with .5 and 1. as numbers; anything else stays a string."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):
        return float(text) if re.fullmatch(r"[+-]?(\d+\.|\.\d+)([eE][+-]?\d+)?", text) else text


MOST_SEEDS = 10_000


def seeds_of(text: str) -> list[int]:
    """Read a text as seeds: 3 → 3;  3,7 → 3, 7;  0:5 → 0, 1, 2, 3, 4."""
    is_range = ":" in text
    numbers = [convert(int, literal(part.strip())) for part in text.split(":" if is_range else ",")]
    if None in numbers or (is_range and len(numbers) != 2):
        raise ConfigError(f"--seeds is {text[:40]!r}, expected A:B (A to B−1) or A,B,...")
    if (numbers[1] - numbers[0] if is_range else len(numbers)) > MOST_SEEDS:
        raise ConfigError(f"--seeds is {text[:40]!r}, expected at most {MOST_SEEDS} seeds")
    return list(range(*numbers)) if is_range else numbers


def quote(value: Any) -> str:
    """Return a value as text for messages, also if its `__repr__` raises."""
    try:
        return printable(repr(value))
    except Exception as error:  # ValueError: Python refuses to write such integers
        is_huge = isinstance(error, ValueError)
        return "a number of thousands of digits" if is_huge else f"a {type(value).__name__}"


def plain(value: Any) -> Any:
    """Return a value in TOML's types: NumPy's numbers, arrays, tuples and ranges are converted."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if hasattr(type(value), "tolist"):  # from NumPy, which `fedref --help` must not import
        return value.tolist()
    return [plain(item) for item in value] if isinstance(value, list | tuple | range) else value
