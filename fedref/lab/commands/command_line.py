"""A command is a function: its signature is the command line, and its docstring is the help.

Positional parameters are arguments, keyword parameters are options, and a bool is a switch. A line
`name : meaning` explains a parameter, and may begin with the FORM of its value; the first paragraph is the
description, and what follows the line of the first other heading ("examples", "columns", ...) stands below
the options, unchanged. A parameter whose default is a dataclass has an option for each field. `settings` of
a function names further options by group; `below` is a function that returns more text for the end. A
command without a function is a group: its text is its module's docstring, and a list of those below it.
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

HELP_WIDTH = 100

#: What a parameter means in all commands that have it; a command's docstring may say something else.
COMMON = {"data_dir": "DIR, the folder of data sets, DIR/NAME/... (default: $FEDREF_DATA)"}
#: A meaning may begin with the form of a value, in capitals: "KEY=VALUE, any value".
FORM = re.compile(r"(?:([A-Z](?![a-z])\S*), )?(.*)")
#: What else stands for an option's value in the help, by its type; for other types the option's name does.
FORMS: Mapping[Any, str] = {int: "N", float: "X", Path: "PATH"}
#: Options that have a short form, too.
SHORT = {"out": ["-o"], "quiet": ["-q"]}


class Parser(argparse.ArgumentParser):
    """A parser with a function's docstring as its help, whose errors look like fedref's others."""

    def __init__(self, prog: str, function: Any) -> None:
        about, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        further = re.split(r"^(?=[a-z][\w ,()]*\n  )", rest, maxsplit=1, flags=re.M)[1:]
        more = [*further, getattr(function, "below", str)()]
        super().__init__(
            prog, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
            description=fill(" ".join(about.split()), HELP_WIDTH),
            epilog="\n\n".join(text.rstrip() for text in more if text) or None,
        )  # fmt: skip
        # argparse takes -1 for a value, but -1e-3 for an option
        self._negative_number_matcher = re.compile(r"-(\d|\.\d|inf|nan)")

    def error(self, message: str) -> Any:
        if message.endswith("expected one argument"):  # argparse takes -apfl for an option
            message += "; write --OPTION=VALUE if the value begins with -"
        raise ConfigError(f"{message} (see `{self.prog} --help`)")

    def _get_value(self, action: Any, word: str) -> Any:
        """Return the value of a word; argparse would put its own sentence in the place of ours."""
        return word if action.type is None or word is argparse.SUPPRESS else action.type(word)

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


# ---- the words of a command line -----------------------------------------------------------------


def parse(commands: Mapping[str, str], words: Sequence[str], description: str) -> Callable[[], Any]:
    """Parse a command line; return the call of a command, or of what prints a group's help.

    commands : "data show" → "MODULE:FUNCTION what it does". A module is imported only if it is used.
    description : of all commands.
    """
    name, rest = "", list(words)
    while rest and f"{name} {rest[0]}".strip() in commands:
        name = f"{name} {rest.pop(0)}".strip()
    place, prog = commands.get(name, "").partition(" ")[0], f"fedref {name}".strip()
    module, _, function = place.partition(":")
    if function:
        return call_of(getattr(import_module(module), function), prog, rest)
    below = {
        command.removeprefix(name).strip(): text.partition(" ")[2]
        for command, text in commands.items()
        if command.rpartition(" ")[0] == name
    }
    if rest and rest[0] not in ("-h", "--help"):
        known = [x for x in below if x[0] != "-"]
        raise ConfigError(f"{unknown('command', rest[0], known)} (see `{prog} --help`)")
    text = import_module(module).__doc__ or "" if module else description
    about, _, more = text.partition("\n\n")
    lines = [f"commands (`{prog} COMMAND --help` explains one)"]
    lines += [f"  {command:<13}{what}" for command, what in below.items()]
    parts = [fill(" ".join(about.split()), HELP_WIDTH), "\n".join(lines), more.rstrip()]
    return partial(print, f"usage: {prog} COMMAND ...", *filter(None, parts), sep="\n\n")


def call_of(function: Callable[..., Any], prog: str, words: Sequence[str]) -> Callable[[], Any]:
    """Return the call of a function with the arguments that these words give."""
    parser, bundles = Parser(prog, function), dict[str, Any]()
    parameters = inspect.signature(function).parameters
    for name, entry in schema(function).items():
        if is_dataclass(entry.default):
            bundles[name] = type(entry.default)
        for one in schema(bundles[name]).values() if name in bundles else [entry]:
            add_parameter(parser, one, parameters[name].kind)
    for title, settings in getattr(function, "settings", {}).items():
        group = parser.add_argument_group(title)
        for entry in settings:  # as text: its algorithm checks it
            text = Entry(entry.name, str, None, meaning=f"X, {entry.describe()}")
            add_parameter(group, text, inspect.Parameter.KEYWORD_ONLY)
    values = vars(parser.parse_args(words))
    for name, cls in bundles.items():
        values[name] = cls(**{key: values.pop(key) for key in schema(cls) if key in values})
    first = [n for n, p in parameters.items() if p.kind is p.VAR_POSITIONAL]
    return partial(function, *(x for name in first for x in values.pop(name)), **values)


def add_parameter(parser: Any, entry: Entry, kind: Any) -> None:
    """Add one parameter to a parser, or to a group of one."""
    form, text = FORM.findall(entry.meaning or COMMON.get(entry.name, ""))[0]
    text += f" [{', '.join(entry.words)}]" if entry.words else ""
    how: dict[str, Any] = {"help": entry._replace(meaning=text).describe().replace("%", "%%")}
    options = [*SHORT.get(entry.name, ()), f"--{with_dashes(entry.name)}"]
    if entry.kind is bool:
        parser.add_argument(*options, action="store_true", **how)
        return
    is_option = kind is inspect.Parameter.KEYWORD_ONLY
    one = entry._replace(name=options[-1] if is_option else entry.name, many=False)
    usual = FORMS.get(entry.kind) if is_option else None
    how |= {"metavar": form or usual or entry.name.upper()}
    how |= {"default": argparse.SUPPRESS, "type": lambda word: one.check(one.parse(word))}
    if is_option and entry.many:
        how |= {"nargs": "+" if entry.name == "only" else 1, "action": "extend"}
    elif is_option:
        how["required"] = entry.default is MISSING
    elif kind is inspect.Parameter.VAR_POSITIONAL:
        how |= {"nargs": "*", "default": []}
    elif entry.default is not MISSING:
        how["nargs"] = "?"
    parser.add_argument(*(options if is_option else [entry.name]), **how)


def parse_setting(text: str) -> tuple[str, Any]:
    """Return (key, value) of KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r}: expected KEY=VALUE")
    return key.strip(), literal(value.strip())
