"""The command line: a function for each command, and `main`, which calls them."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import fedref
from fedref.boundary.errors import FedrefError, printable
from fedref.lab.commands import command_line
from fedref.lab.commands.console import say, signals_raise, standard_streams

#: The exit codes that a shell reports for a process ended by SIGINT or SIGPIPE.
INTERRUPTED, BROKEN_PIPE = 130, 141

#: The option of every command that shows where an error was raised.
TRACEBACK = "--traceback"

PACKAGE = "fedref.lab.commands"
#: Each command: its function, or for a group its module, and what it does.
COMMANDS = {
    "--version": f"{PACKAGE}:print_version print the versions of fedref, Python, NumPy and its BLAS",
    "run": f"{PACKAGE}.run:run train and compare algorithms",
    "resume": f"{PACKAGE}.run:resume continue an interrupted run",
    "plot": f"{PACKAGE}.plot:plot draw curves, bars and histograms of runs",
    "check": f"{PACKAGE}.check:check prove every derivative and equation, numerically",
    "explain": f"{PACKAGE}.explain:explain show an equation beside its code and its numbers",
    "exercise": f"{PACKAGE}.exercise write a missing expression, and learn what yours gives",
    "exercise list": f"{PACKAGE}.exercise:list_exercises list the exercises",
    "exercise start": f"{PACKAGE}.exercise:start write the file of an exercise",
    "exercise hunt": f"{PACKAGE}.exercise:hunt plant a mistake in an algorithm, to be found by a test",
    "exercise check": f"{PACKAGE}.exercise:check check a solution",
    "conformance": f"{PACKAGE}.conformance:conformance test your own implementation against golden vectors",
    "data": f"{PACKAGE}.data list, show, download and split data",
    "data list": f"{PACKAGE}.data:list_sources list data sets, and where they are or how to get them",
    "data show": f"{PACKAGE}.data:show print a split's statistics; with --out, draw it",
    "data prepare": f"{PACKAGE}.data:prepare find or download a data set and check it",
    "data rules": f"{PACKAGE}.data:show_rules list the split rules and their parameters",
    "data split": f"{PACKAGE}.data:split divide a data set over clients and write a manifest",
    "flower": f"{PACKAGE}.flower run an experiment over Flower: rows stay with the clients",
    "flower write": f"{PACKAGE}.flower:write write the app's folder, the nodes' parts and a README",
    "flower check": f"{PACKAGE}.flower:check print what a node would tell a server of its part",
    "cite": f"{PACKAGE}.cite:cite print the papers behind algorithms or a run as BibTeX",
}
DESCRIPTION = """\
The reference implementation of personalised and heterogeneous federated learning:
FedAvg, FedProx, Per-FedAvg, FedMeta, FedMAML, FedCurv, APFL, SCAFFOLD, FedDyn, FedOpt, FedNova, pFedMe.
With --traceback, or FEDREF_TRACEBACK=1, an error shows where it was raised."""

Parse = Callable[[Sequence[str]], Callable[[], Any]]


def main(argv: Sequence[str] | None = None, parser: Parse | None = None) -> int:
    """Run one command. Wrong input gives one line on standard error and exit code 2.

    parser : words → the call of a command (default: of `fedref`'s).
    """
    os.environ.pop("MPLBACKEND", None)  # pictures are files; an unknown name would be an error
    words = list(sys.argv[1:] if argv is None else argv)
    chain_shown = TRACEBACK in words or os.environ.get("FEDREF_TRACEBACK", "0") not in ("", "0")
    try:
        with standard_streams(), signals_raise():
            return (parser or parse)([word for word in words if word != TRACEBACK])() or 0
    except KeyboardInterrupt as stop:
        say("; ".join([str(word) for word in stop.args] or ["interrupted"]))
        return getattr(stop, "code", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone
        return BROKEN_PIPE
    except (FedrefError, RecursionError, MemoryError, OSError) as error:
        if chain_shown:
            traceback.print_exc()
        say(f"error: {reason_of(error)}")
        return 2


def reason_of(error: Exception) -> str:
    """Return in one line what was wrong."""
    if isinstance(error, RecursionError):
        return "tables or lists are nested too deep"
    if isinstance(error, MemoryError):
        return f"not enough memory ({str(error) or 'none is left'})"
    if isinstance(error, OSError):
        return f"{error.filename or 'the system says'}: {error.strerror or error}"
    return str(error)


def print_version() -> None:
    """Print the versions that numbers depend on, and a setting that forces other kernels of BLAS."""
    from fedref.lab.experiments.seal import environment  # it imports NumPy

    versions = "fedref {}, Python {python}, NumPy {numpy}, BLAS {blas} ({kernel})"
    print(versions.format(fedref.__version__, **environment()))
    if kernels := printable(os.environ.get("OPENBLAS_CORETYPE", "")):
        print(f"OPENBLAS_CORETYPE is {kernels}: these kernels may not be the fastest here")


def parse(words: Sequence[str]) -> Callable[[], Any]:
    """Parse a command line; return the call of the command. `fedref exercise` alone lists the exercises."""
    words = ["exercise", "list"] if list(words) == ["exercise"] else words
    return command_line.parse(COMMANDS, words, DESCRIPTION)
