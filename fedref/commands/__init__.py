"""The command line, one file a command: `fedref run | resume | plot | plan | sample | check |
explain | exercise | conformance | data | flower | reproduce`.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import fedref
from fedref.boundary.errors import FedrefError, unknown
from fedref.commands import (
    check,
    conformance,
    data,
    exercise,
    explain,
    flower,
    plan,
    plot,
    reproduce,
    resume,
    run,
    sample,
)
from fedref.commands.completion import complete
from fedref.commands.console import say, standard_streams, stoppable

#: What a shell says of a process that SIGINT or SIGPIPE ended.
INTERRUPTED, NO_READER = 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; wrong input is one line on standard error and exit code 2."""
    try:
        with standard_streams(), stoppable():
            parser = make_parser()
            complete(parser)
            arguments = parser.parse_args(argv)
            return int(arguments.run(arguments))
    except FedrefError as error:
        say(f"error: {error}")
    except MemoryError as error:
        say(f"error: not enough memory ({error or 'none is left'})")
    except KeyboardInterrupt as stop:
        say("; ".join([str(word) for word in stop.args] or ["interrupted"]))
        return getattr(stop, "code", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone
        return NO_READER
    except OSError as error:
        say(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
    return 2


class Parser(argparse.ArgumentParser):
    """Options in full only, and errors in the same form as all others."""

    def error(self, message: str) -> Any:
        say(f"error: {message} (see `{self.prog} --help`)")
        raise SystemExit(2)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse an unknown option here, where the known ones are known."""
        found, more = super().parse_known_args(args, namespace)
        if more and more[0].startswith("--"):
            known = [option for option in self._option_string_actions if option.startswith("--")]
            self.error(unknown("option", more[0].partition("=")[0], known))
        return found, more


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands; each sets `run`, which takes what was parsed."""
    parser = Parser(
        prog="fedref",
        description="The reference implementation of personalised and heterogeneous federated "
        "learning: FedAvg, FedProx, Per-FedAvg, FedMeta, FedMAML, FedCurv, APFL.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"fedref {fedref.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in (
        run, resume, plot, plan, sample, check, explain, exercise, conformance, data, flower,
        reproduce,
    ):  # fmt: skip
        module.add_parser(commands)
    return parser
