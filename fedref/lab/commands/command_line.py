"""A command is a function: its signature is the command line, and its docstring is the help.

Positional parameters are arguments, keyword parameters are options, and a bool is a switch. A line
`name : meaning` explains a parameter; the first paragraph is the description, and what follows the line of
the first other heading ("examples", "columns", ...) stands below the options, unchanged. A parameter whose
default is a dataclass has an option for each field. `settings` of a function names further options by
group; `below` is a function that returns more text for the end.
"""

import argparse
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from textwrap import fill
from typing import Any

from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.values import Entry, literal, schema, with_dashes

Function = Callable[..., Any]
HELP_WIDTH = 100

#: What a parameter means in all commands that have it; a command's docstring may say something else.
COMMON = {
    "data_dir": "the folder of data sets, as DIR/NAME/... (default: that of the environment variable "
    "FEDREF_DATA)",
    "set": "KEY=VALUE, as split.users=10; may be given several times",
}
#: What stands for a value in the help, by the parameter's name or its type.
FORMS: Mapping[Any, str] = {
    "out": "PATH", "data_dir": "DIR", "directory": "DIR", "directories": "DIR", "folder": "DIR",
    "set": "KEY=VALUE", "timeout": "S", "checkpoint_every": "S",
    "seeds": "A:B|A,B,...", "html": "DIR", "data": "NAME", "split": "RULE", "model": "NAME",
    "what": "ALGORITHM|FILE.toml", "reports": "NAME", "only": "TAG",
    "metric": "NAME[,NAME...]", "against": "NAME", "title": "TEXT", "experiment": "FILE.toml",
    "backend": "MODULE[:BACKEND]",
    int: "N", float: "X", str: "X", Path: "FILE",
}  # fmt: skip
#: Options that have a short form, too.
SHORT = {"out": ["-o"], "quiet": ["-q"]}


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviated options, and whose errors look like fedref's others."""

    def __init__(self, **how: Any) -> None:
        usual = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(**{**usual, **how})

    def error(self, message: str) -> Any:
        raise ConfigError(f"{message} (see `{self.prog} --help`)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; refuse an unknown option, and suggest the closest one that this command has."""
        parsed, rest = super().parse_known_args(args, namespace)
        if rest and rest[0].startswith("--"):
            known = [option for option in self._option_string_actions if option.startswith("--")]
            name, _, value = rest[0].partition("=")
            if "--set" in known and (key := key_of(name.removeprefix("--"), "--lr" in known)):
                after = [*args, ""][args.index(rest[0]) + 1]
                value = value or (after if after and not after.startswith("--") else "VALUE")
                self.error(f"unknown option {name!r}: did you mean --set {key}={value}?")
            self.error(unknown("option", name, known))
        return parsed, rest


def key_of(name: str, of_a_run: bool) -> str:
    """Return the key of --set that an unknown option stands for: "split.users" for "users", or ""."""
    from fedref.lab.datasets.rules import RULES
    from fedref.lab.experiments.config import TABLES, setting_entries

    field = name.replace("-", "_")
    if of_a_run and field in setting_entries():
        return name
    if any(hasattr(rule, field) for rule in RULES.values()):
        return f"split.{name}"
    return name if name.partition(".")[0] in TABLES and "." in name else ""


class Store(argparse.Action):
    """Check a word by the schema, and store its value; several become a list."""

    def __init__(self, *, entry: Entry, **how: Any) -> None:
        super().__init__(**how)
        self.entry = entry._replace(
            name=how["option_strings"][-1] if how["option_strings"] else entry.name
        )

    def __call__(self, parser: Any, namespace: Any, words: Any, option: Any = None) -> None:
        one = self.entry._replace(many=False)
        texts = words if isinstance(words, list) else [words]
        values = [one.check(one.parse(text)) for text in texts]
        before = getattr(namespace, self.dest, None) or []
        setattr(namespace, self.dest, [*before, *values] if self.entry.many else values[0])


# ---- from functions to a parser ------------------------------------------------------------------


def fill_parser(parser: argparse.ArgumentParser, function: Function) -> None:
    """Add the description and the parameters of a function to a parser."""
    text = inspect.cleandoc(function.__doc__ or "")
    description, _, rest = text.partition("\n\n")
    parser.description = fill(" ".join(description.split()), HELP_WIDTH)
    further = re.split(r"^(?=[a-z][\w ,()]*\n  )", rest, maxsplit=1, flags=re.M)
    more = function.below() if hasattr(function, "below") else ""
    parser.epilog = "\n\n".join(filter(None, [*(t.rstrip() for t in further[1:]), more])) or None
    parser.set_defaults(function=function)
    kinds = {name: p.kind for name, p in inspect.signature(function).parameters.items()}
    for name, entry in schema(function).items():
        inside = schema(entry.kind).values() if is_dataclass(entry.default) else [entry]
        for one in inside:
            add_parameter(parser, one, kinds[name])
    for title, entries in getattr(function, "settings", {}).items():
        group = parser.add_argument_group(title)
        for entry in entries:
            text_entry = entry._replace(kind=str, default=None, many=False, optional=True, words=())
            add_parameter(group, text_entry, inspect.Parameter.KEYWORD_ONLY)


def add_parameter(parser: Any, entry: Entry, kind: Any) -> None:
    """Add one parameter to a parser or to a group of one."""
    usual = entry.default not in (None, MISSING, (), False, "")
    form = f"{entry.default:g}" if isinstance(entry.default, float) else entry.default
    meaning = entry.meaning or COMMON.get(entry.name, "")
    meaning += f" [{', '.join(entry.words)}]" * bool(entry.words) + f" (default {form})" * usual
    how: dict[str, Any] = {"help": meaning.replace("%", "%%")}
    options = [*SHORT.get(entry.name, ()), f"--{with_dashes(entry.name)}"]
    if entry.kind is bool:
        parser.add_argument(*options, action="store_true", **how)
        return
    how |= {"metavar": FORMS.get(entry.name) or FORMS[entry.kind], "default": argparse.SUPPRESS}
    if kind is inspect.Parameter.KEYWORD_ONLY:
        how |= {"dest": entry.name, "required": entry.default is MISSING}
        if entry.name == "only" and entry.many:
            how["nargs"] = "+"
        parser.add_argument(*options, action=Store, entry=entry, **how)
    else:
        if kind is inspect.Parameter.VAR_POSITIONAL:
            entry, how = entry._replace(many=True), how | {"nargs": "*", "default": []}
        elif entry.default is not MISSING:
            how["nargs"] = "?"
        parser.add_argument(entry.name, action=Store, entry=entry, **how)


def parse(commands: Mapping[str, str], words: Sequence[str], description: str) -> Callable[[], Any]:
    """Parse a command line; return the call of a command.

    commands : "data show" → "MODULE:FUNCTION what it does". A module is imported only if it is used.
    """
    parser = Parser(prog="fedref", description=description)
    meaning = "print the versions of fedref, Python, NumPy and its BLAS"
    parser.add_argument("--version", action="store_true", help=meaning)
    below = {"": parser.add_subparsers(title="commands", required=True, metavar="COMMAND")}
    for name, text in commands.items():
        place, _, meaning = text.partition(" ")
        above, _, word = name.rpartition(" ")
        sub = below[above].add_parser(word, help=meaning.replace("%", "%%"))
        module, _, function = place.partition(":")
        used = list(words[: len(name.split())]) == name.split()
        if not function:
            below[name] = sub.add_subparsers(title="commands", required=True, metavar="COMMAND")
            if used and module:
                sub.description, _, sub.epilog = import_module(module).GROUP.partition("\n\n")
                sub.description = fill(" ".join(sub.description.split()), HELP_WIDTH)
        elif used:
            fill_parser(sub, getattr(import_module(module), function))
    values = vars(parser.parse_args(words))
    called, first = values.pop("function"), []
    del values["version"]
    for name, parameter in inspect.signature(called).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            first = values.pop(name)
        elif is_dataclass(cls := type(parameter.default)):
            inside = {key: values.pop(key) for key in schema(cls) if key in values}
            values[name] = cls(**inside)
    return partial(called, *first, **values)


def parse_setting(text: str) -> tuple[str, Any]:
    """Return (key, value) of KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r}: expected KEY=VALUE")
    return key.strip(), literal(value.strip())
