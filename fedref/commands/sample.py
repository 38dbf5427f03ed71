"""`fedref sample`: prints text that a run's models generate, before and after adaptation."""

import argparse

import numpy as np

from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.values import Bounds
from fedref.commands.options import DATA_DIR, DIRECTORY, Command, Option
from fedref.datasets.formats import text
from fedref.experiments import config, names
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.run_directory import load_record, read_experiment
from fedref.experiments.unit import LoadedExperiment, Record, Unit, units
from fedref.models.base import Model
from fedref.models.numerics import Array, softmax
from fedref.rounds.federation import Federation
from fedref.sampling import adaptation_rows, stream

LARGEST = 1_000_000


def run(arguments: argparse.Namespace) -> int:
    """Print the text that each unit's model generates, from the unit's latest checkpoint."""
    experiment, loader = read_experiment(arguments.directory), Loader(arguments.data_dir)
    has_checkpoint = False
    for unit in units(experiment):
        record = load_record(arguments.directory, unit)
        if record is not None:
            loaded = load_experiment(config.at_point(experiment, unit.point), loader)
            print(sample_text(loaded, unit, record, arguments), flush=True)
            has_checkpoint = True
    if not has_checkpoint:
        raise ConfigError(f"{arguments.directory}: no finished round yet, expected checkpoints")
    return 0


# ---- text that a trained model generates ---------------------------------------------------------


def sample_text(
    loaded: LoadedExperiment, unit: Unit, record: Record, arguments: argparse.Namespace
) -> str:
    """Return a paragraph: the prompt, and how the model continues it before and after adaptation."""
    federation, model = loaded.federation, loaded.model
    vocabulary = require_vocabulary(federation)
    k = find_client(federation, arguments.client)
    prompt = arguments.prompt
    start = default_prompt(federation, k) if prompt is None else text.codes(prompt)
    lines = [f"{unit.name} after {record.round} rounds, {federation.names[k]}"]
    lines.append(f"  prompt: {text.decode(start, vocabulary)}")
    for what, w in zip(("before:", "after: "), params_before_and_after(loaded, unit, record, k)):
        rng = stream(arguments.seed, "write", unit.seed)
        codes = continue_text(
            model, w, start, arguments.characters, len(vocabulary), rng, arguments.temperature
        )
        lines.append(f"  {what} {text.decode(codes, vocabulary)}")
    return "\n".join(lines) + "\n"


def continue_text(
    model: Model,
    w: Array,
    codes: Array,
    n: int,
    padding: int,
    rng: np.random.Generator,
    temperature: float = 1.0,
) -> Array:
    """Return the n codes that the model generates after `codes`, one by one: (n,).

    Each is drawn with p = softmax(z / temperature), where z are the logits for the `model.features`
    codes before it. At temperature 0 it is the most likely one.
    """
    row = np.concatenate([np.full(model.features, padding), codes]).astype(np.int64)
    for _ in range(n):
        z = model.logits(w, row[None, -model.features :])[0].astype(np.float64)
        p = softmax(z / temperature) if temperature > 0 else np.eye(len(z))[z.argmax()]
        row = np.append(row, rng.choice(len(p), p=p / p.sum()))
    return row[len(row) - n :]


def params_before_and_after(
    loaded: LoadedExperiment, unit: Unit, record: Record, k: int
) -> list[Array]:
    """Return the parameters that client k receives and, if the algorithm adapts them, the adapted."""
    federation, model = loaded.federation, loaded.model
    algorithm = names.make_algorithm(unit.label, loaded.experiment.algorithms[unit.label])
    sent = algorithm.download(record.state.server)
    ws = [algorithm.personalised_params(model, sent, None, None)]
    if algorithm.personalised:
        D, role = None, algorithm.adapts_on
        if role:
            rows, plan = federation.train.rows_of(k), loaded.experiment.plan
            chosen = adaptation_rows(plan, role, len(rows), k, record.round, unit.seed)
            D = federation.batch(rows[chosen], np.dtype(loaded.experiment.dtype))
        ws.append(algorithm.personalised_params(model, sent, record.state.clients.get(k), D))
    return ws


def require_vocabulary(federation: Federation) -> tuple[str, ...]:
    """Return the vocabulary; a ConfigError unless labels are the next characters of the rows' text."""
    source = federation.source
    if source.vocabulary != text.CHARACTERS or len(source.labels) <= 2:
        raise ConfigError(
            f"{source.name} has no next characters to predict, expected data such as shakespeare"
        )
    return source.vocabulary


def find_client(federation: Federation, name: str | None) -> int:
    """Return a client's number by its name; by default, that of the client with most test rows."""
    if name is None:
        return int(federation.test.sizes.argmax())
    if name not in federation.names:
        raise ConfigError(unknown("client", name, federation.names)[:300])
    return federation.names.index(name)


def default_prompt(federation: Federation, k: int) -> Array:
    """Return client k's first test window or, if it has none, its last training window."""
    rows = federation.test.rows_of(k)
    row = rows[0] if len(rows) else federation.train.rows_of(k)[-1]
    return np.asarray(federation.source.X[row])


COMMAND = Command(
    run,
    "Print text that the models of a run on characters generate, before and after they are adapted "
    "to one client (a role of Shakespeare's).",
    (
        DIRECTORY,
        Option(
            "--characters N",
            "number of characters to generate",
            int,
            200,
            bounds=Bounds(1, LARGEST),
        ),
        Option("--client NAME", "e.g. hamlet__HAMLET (default: the one with most test rows)"),
        Option("--prompt TEXT", "text to continue (default: the client's first test window)"),
        Option(
            "--temperature X",
            "0: always the most likely character, 1: the model's own probabilities",
            float,
            0.5,
            bounds=Bounds(0, LARGEST),
        ),
        Option("--seed S", "seed of the random draws", int, 0, bounds=Bounds(0, LARGEST)),
        DATA_DIR,
    ),
)
