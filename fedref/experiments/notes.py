"""Notes below the table of a run: a line for each problem, with the option that may help."""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from fedref.experiments.config import Experiment
from fedref.experiments.unit import LoadedExperiment
from fedref.models.numerics import Array
from fedref.plots.tables import Row, Table, group_rows

#: Training is slow if features differ in size by more than this factor, or are larger than this.
RATIO, LARGE = 15.0, 10.0
#: A loss still falls if the last tenth of the rounds brings more than this part of its whole fall
#: (0.1 would be the mean pace), and more than twice its noise. Fewer evaluations do not show it.
FALL, EVALUATIONS = 0.035, 10
#: How many training rows the facts are taken from.
ROWS = 500


class DataFacts(NamedTuple):
    """Facts about the data and the model that the notes need.

    guess : the loss of a model with all parameters 0, log(classes) for softmax; NaN if unknown.
    scales : root mean square of the smallest and of the largest feature; (1, 1) if the features are
    standardised already, or cannot be.
    """

    guess: float
    scales: tuple[float, float]


def facts_of(loaded: LoadedExperiment) -> DataFacts:
    """Measure the facts on some training rows of all clients."""
    federation, model = loaded.federation, loaded.model
    rows = federation.train.rows
    batch = federation.batch(rows[:: max(1, len(rows) // ROWS)])
    guess, scales = np.nan, (1.0, 1.0)
    if model.labels:
        with suppress(Exception):  # a model of the user's own may not take zeros
            guess = float(model.loss(np.zeros(model.d), batch))
    scaling = federation.parameters.get("scaling")
    if scaling in ("none", "unit") and not federation.source.vocabulary:
        rms = np.sqrt(np.mean(np.square(batch.X), 0))
        if rms.any():
            # all pixels have one unit; small ones are just black in most images
            least = rms.max() if federation.source.image else rms[rms > 0].min()
            scales = float(least), float(rms.max())
    return DataFacts(guess, scales)


def is_worse_than_guessing(data: DataFacts | None, loss: float) -> bool:
    """Return whether a test loss is clearly above that of guessing."""
    return data is not None and loss > 1.1 * data.guess


def notes_on(
    table: Table, summary: list[Row], experiment: Experiment, data: DataFacts | None
) -> Iterator[str]:
    """Yield the notes on a run's table."""
    steps = {}
    for label, algorithm in experiment.algorithms.items():
        name = "lr" if hasattr(algorithm, "lr") else "beta"
        if hasattr(algorithm, name) and not any(key.endswith(name) for key in experiment.sweep):
            steps[label] = f"{name} = {getattr(algorithm, name):g}"
    if len({text.partition(" = ")[2] for text in steps.values()}) > 1:
        sizes = ", ".join(f"{label} {text}" for label, text in steps.items())
        yield f"step sizes differ ({sizes}), which may change the ranking."

    labels = np.isfinite(table["accuracy"]).any()
    worse = [row for row in summary if is_worse_than_guessing(data, row["test_loss"])]
    if labels and worse and data is not None:
        losses = ", ".join(f"{row['title']} {row['test_loss']:.4g}" for row in worse)
        yield (
            f"the final test loss is above that of guessing, {data.guess:.3g} ({losses}), whatever "
            "the accuracy: smaller steps may help (--lr, --alpha, --beta)."
        )

    least, largest = data.scales if data is not None else (1.0, 1.0)
    if largest > LARGE or largest > RATIO * least:
        sizes = f"{least:.2g} to {largest:.2g}" if least < largest else f"{largest:.2g}"
        yield f"features have a root mean square of {sizes}: --set split.scaling=standardise may help."

    falling = [title for title, seeds in group_rows(table).items() if still_falls(seeds)]
    if falling:
        yield f"the loss of {', '.join(falling)} still falls at the end: more --rounds may help."


def still_falls(seeds: dict[int, Table]) -> bool:
    """Return whether the loss, mean over seeds, falls fast in the last tenth of the rounds."""
    series = []
    for rows in seeds.values():
        known = rows["train_loss"][~np.isnan(rows["train_loss"])]
        series.append(known if known.size else rows["test_loss"][~np.isnan(rows["test_loss"])])
    diverged = any(rows["diverged"].any() for rows in seeds.values())
    if diverged or len({len(s) for s in series}) > 1 or len(series[0]) < EVALUATIONS:
        return False
    losses: Array = np.mean(series, 0)
    k = len(losses) // 10
    last, before = losses[-k:].mean(), losses[-2 * k : -k].mean()
    noise = np.std(np.diff(losses[-max(2 * k, 6) :])) / np.sqrt(k)
    return bool(before - last > max(FALL * (losses[0] - last), 2 * noise) and losses[0] > last)
