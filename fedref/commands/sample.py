"""`fedref sample`: text that a run's models write, before and after adaptation to a client."""

import argparse

from fedref.boundary.errors import ConfigError
from fedref.boundary.values import Bounds
from fedref.commands.options import DATA_DIR, DIRECTORY, Command, Option
from fedref.experiments import writing
from fedref.experiments.writing import Written

LARGEST = 1_000_000


def run(arguments: argparse.Namespace) -> int:
    """Print what every algorithm of the run writes."""
    texts = writing.texts(
        arguments.directory,
        arguments.characters,
        client=arguments.client,
        prompt=arguments.prompt,
        temperature=arguments.temperature,
        seed=arguments.seed,
        data_dir=arguments.data_dir,
    )
    text = None
    for text in texts:
        print(paragraph(text), flush=True)
    if text is None:
        raise ConfigError(f"{arguments.directory}: no finished round yet, expected checkpoints")
    return 0


def paragraph(text: Written) -> str:
    """Return the lines of one text."""
    lines = [
        f"{text.unit} after {text.round} rounds, {text.client}",
        f"  prompt: {text.prompt}",
        f"  before: {text.before}",
    ]
    if text.after is not None:
        lines.append(f"  after:  {text.after}")
    return "\n".join(lines) + "\n"


COMMAND = Command(
    run,
    "Print text that the models of a run on characters write, before and after they are adapted to "
    "one client (a role of Shakespeare's).",
    (
        DIRECTORY,
        Option("--characters N", "how many", int, 200, bounds=Bounds(1, LARGEST)),
        Option("--client NAME", "e.g. hamlet__HAMLET (default: the one with most test rows)"),
        Option("--prompt TEXT", "go on from this (default: the client's first test window)"),
        Option(
            "--temperature X",
            "0: always the likeliest character, 1: as the model has it",
            float,
            0.5,
            bounds=Bounds(0, LARGEST),
        ),
        Option("--seed S", "of the draws", int, 0, bounds=Bounds(0, LARGEST)),
        DATA_DIR,
    ),
)
