"""Tables of a command's options, and the parser that is made of them."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from textwrap import fill
from typing import Any

from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.values import ANY, Bounds, check_value, literal
from fedref.commands.console import say

HELP_WIDTH = 100
REPEATED = "append"


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviated options, and whose errors look like fedref's others."""

    def __init__(self, **how: Any) -> None:
        usual = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(**{**usual, **how})

    def error(self, message: str) -> Any:
        say(f"error: {message} (see `{self.prog} --help`)")
        raise SystemExit(2)

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
    from fedref.algorithms import HYPERPARAMETERS
    from fedref.datasets.rules import RULES
    from fedref.experiments.config import TABLES, Experiment

    field_of = name.replace("-", "_")
    if of_a_run and (field_of in {f.name for f in fields(Experiment)} | HYPERPARAMETERS.keys()):
        return name
    if any(hasattr(rule, field_of) for rule in RULES.values()):
        return f"split.{name}"
    return name if name.partition(".")[0] in TABLES and "." in name else ""


@dataclass(frozen=True)
class Option:
    """One row of a command's table: an option, or an argument without dashes.

    form : its form in the help: "--seed N", "-o --out DIR", "directory DIR"; a switch: "--json".
    kind : the type of its value; numbers are read and checked as in TOML files (1e3 is 1000).
    bounds, words : the values that it may have. many : "+" or "*": several values; `REPEATED`: the
    option may be given several times. names : a function that returns names for the shell to complete,
    beside folders and files that end in `suffixes`.
    """

    form: str
    meaning: str
    kind: type = str
    default: Any = None
    bounds: Bounds = ANY
    words: Sequence[str] = ()
    many: str = ""
    required: bool = False
    names: Callable[[], Iterable[str]] | None = None
    suffixes: Sequence[str] = ()

    def add_to(self, parser: Any) -> None:
        """Add the option to a parser or to a group of a parser."""
        parts = self.form.split()
        flags = [part for part in parts if part.startswith("-")] or parts[:1]
        metavar = " ".join(parts[len(flags) :])
        how: dict[str, Any] = {"help": self.meaning.replace("%", "%%")}
        if not metavar:
            parser.add_argument(*flags, action="store_true", **how)
            return
        if self.required:
            how["required"] = True
        if self.many and self.many != REPEATED:
            how["nargs"] = self.many
        if self.default not in (None, ""):
            how["help"] += f" (default {self.default:{'g' if self.kind is float else ''}})"
        default = [] if self.many else self.default
        added = parser.add_argument(
            *flags, action=_Store, option=self, metavar=metavar, default=default, **how
        )
        if self.names:
            added.completer = self._complete

    def parse(self, text: str, name: str) -> Any:
        """Return the value of a word on the command line."""
        if issubclass(self.kind, Path):
            if not text:  # Path("") is the current folder
                raise ConfigError(f"{name} is '', expected the path of a file or folder")
            return self.kind(text)
        value = text if self.kind is str else literal(text)
        return check_value(self.kind, value, name, self.bounds, self.words)

    def _complete(self, prefix: str, **_: Any) -> list[str]:
        from argcomplete.completers import FilesCompleter

        assert self.names is not None
        return [*self.names(), *FilesCompleter(self.suffixes or ("/",))(prefix)]


class _Store(argparse.Action):
    """Check a value and store it; an option with several values becomes a list."""

    def __init__(self, *, option: Option, **how: Any) -> None:
        super().__init__(**how)
        self.option = option

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        words = [values] if isinstance(values, str) else values
        name = option_string or str(self.metavar)
        parsed = [self.option.parse(word, name) for word in words]
        if self.option.many:
            setattr(namespace, self.dest, [*getattr(namespace, self.dest), *parsed])
        else:
            setattr(namespace, self.dest, parsed[0])


@dataclass(frozen=True)
class Command:
    """A command: its function and the table of its options, or its own subcommands.

    run : takes the parsed arguments and returns the exit code; None means 0.
    """

    run: Callable[[argparse.Namespace], int | None] | None
    description: str
    options: Sequence[Option] = ()
    groups: Mapping[str, Sequence[Option]] = field(default_factory=dict)
    epilog: str = ""
    commands: Mapping[str, "Command"] = field(default_factory=dict)

    def fill(self, parser: argparse.ArgumentParser) -> None:
        """Add this command's description, options and subcommands to a parser."""
        parser.description = fill(self.description, HELP_WIDTH)
        parser.epilog = self.epilog or None
        parser.set_defaults(run=self.run)
        for option in self.options:
            option.add_to(parser)
        for title, options in self.groups.items():
            group = parser.add_argument_group(title)
            for option in options:
                option.add_to(group)
        if self.commands:
            below = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
            for name, command in self.commands.items():
                short = command.description.partition(". ")[0].rstrip(".")
                short = short[0].lower() + short[1:]
                command.fill(below.add_parser(name, help=short.replace("%", "%%")))


DATA_DIR = Option(
    "--data-dir DIR",
    "the folder of data sets, as DIR/NAME/... (default: that of the environment variable FEDREF_DATA)",
    Path,
)
DIRECTORY = Option("directory DIR", "the run directory", Path)
