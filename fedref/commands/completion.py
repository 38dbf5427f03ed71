"""What the shell completes, with `argcomplete`, the optional extra `completion`."""

import argparse
import os
from collections.abc import Callable, Iterable
from typing import Any


def completes(
    action: argparse.Action, known: Callable[[], Iterable[str]], *suffixes: str
) -> argparse.Action:
    """Let an argument be completed to these names, to folders, and to files of these suffixes."""

    def found(prefix: str, **_: Any) -> list[str]:
        from argcomplete.completers import FilesCompleter

        return [*known(), *FilesCompleter(suffixes or ("/",))(prefix)]

    vars(action)["completer"] = found
    return action


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell, if it asks, and end the process."""
    if "_ARGCOMPLETE" in os.environ:
        from argcomplete import autocomplete

        autocomplete(parser)
