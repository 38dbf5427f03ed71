"""The command line: a module for each command, and `main`, which calls them."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from traceback import walk_tb

import fedref
from fedref.boundary.errors import FedrefError
from fedref.commands.console import say, signals_raise, standard_streams
from fedref.commands.options import Parser

#: The exit codes that a shell reports for a process ended by SIGINT or SIGPIPE.
INTERRUPTED, BROKEN_PIPE = 130, 141

#: A command's module is imported only when that command is used.
COMMANDS = {
    "run": "train and compare algorithms",
    "resume": "continue an interrupted run",
    "plot": "draw curves, bars and histograms of runs",
    "check": "prove every derivative and equation, numerically",
    "explain": "show an equation beside its code and its numbers",
    "exercise": "write a missing line of an algorithm, and learn what kind of mistake you made",
    "conformance": "test your own implementation against golden vectors",
    "data": "list, show, download, split and verify data",
    "flower": "run an experiment over Flower: rows stay with the clients",
    "reproduce": "repeat the papers' experiments and compare the numbers",
    "cite": "print the papers behind algorithms or a run as BibTeX",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Wrong input gives one line on standard error and exit code 2."""
    os.environ.pop("MPLBACKEND", None)  # pictures are files; an unknown name would be an error
    try:
        with standard_streams(), signals_raise():
            arguments = parse(sys.argv[1:] if argv is None else argv)
            return arguments.run(arguments) or 0
    except FedrefError as error:
        say(f"error: {error}")
    except MemoryError as error:
        say(f"error: not enough memory in {place_of(error)} ({str(error) or 'none is left'})")
    except KeyboardInterrupt as stop:
        say("; ".join([str(word) for word in stop.args] or ["interrupted"]))
        return getattr(stop, "code", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone
        return BROKEN_PIPE
    except OSError as error:
        say(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
    return 2


def place_of(error: BaseException) -> str:
    """Return where in fedref an error was raised, as MODULE.FUNCTION."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    inside = [f for f in frames if f.f_globals.get("__name__", "").startswith("fedref.")]
    return f"{inside[-1].f_globals['__name__']}.{inside[-1].f_code.co_name}"


class Version(argparse.Action):
    """Print the versions that numbers depend on. It imports NumPy only when it is called."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from fedref.experiments.run_directory import environment

        print(
            "fedref {}, Python {python}, NumPy {numpy}, BLAS {blas} ({kernel})".format(
                fedref.__version__, **environment()
            )
        )
        parser.exit()


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; in the result, `run` is the command's function."""
    completing = "_ARGCOMPLETE" in os.environ
    words = os.environ.get("COMP_LINE", "").split() if completing else argv
    parser = Parser(
        prog="fedref",
        description="The reference implementation of personalised and heterogeneous federated "
        "learning:\nFedAvg, FedProx, Per-FedAvg, FedMeta, FedMAML, FedCurv, APFL.",
    )
    help = "print the versions of fedref, Python, NumPy and its BLAS"
    parser.add_argument("--version", action=Version, nargs=0, help=help)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, help in COMMANDS.items():
        subparser = commands.add_parser(name, help=help)
        if name in words:
            import_module(f"fedref.commands.{name}").COMMAND.fill(subparser)
    if completing:  # answers the shell and ends the process
        from argcomplete import autocomplete

        autocomplete(parser, exit_method=sys.exit)
    return parser.parse_args(argv)
