"""What `fedref.run` and `fedref.load_run` return: results that a notebook shows, with what their run
directory holds besides."""

import base64
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedref.algorithm import State
from fedref.boundary.errors import ConfigError, DataError
from fedref.experiments.results import Run
from fedref.experiments.run_directory import kept_rounds, kept_state, light, resumed, saved
from fedref.experiments.summary import heading, note_on_steps, summary_rows
from fedref.experiments.unit import units


class Outcome(Run):
    """A Run, with a table and a picture in a notebook, and with the parameters that were kept."""

    __slots__ = ()

    def parameters(
        self, label: str, round: int | None = None, seed: int | None = None, **point: Any
    ) -> State:
        """The state after a round: `server`, and `clients`, client → what it keeps for itself.

        round : one that `keep_parameters` has kept (None: where the run stands).
        """
        unit, record = self.unit_of(label, seed, **point)
        if round is None:
            return record.state
        known = [] if self.directory is None else kept_rounds(self.directory, unit)
        if self.directory is None or round not in known:
            shown = f"those of the rounds {known}" if known else "a run with keep_parameters"
            raise ConfigError(f"the parameters of round {round} are not kept, expected {shown}")
        return kept_state(self.directory, unit, self.experiment, round)

    def _repr_html_(self) -> str:
        """For a notebook: what `fedref run` prints, and curves.png."""
        header, *rows = summary_rows(self)
        lines = [cells("th", header), *(cells("td", row) for row in rows)]
        note = note_on_steps(self)
        return (
            f"<p>{escape(heading(self))}</p><table>{''.join(lines)}</table>"
            + f"<p>{escape(note)}</p>" * bool(note)
            + picture(self)
        )


def cells(tag: str, row: list[str]) -> str:
    """A row of an HTML table."""
    return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in row)}</tr>"


def picture(run: Run) -> str:
    """The curves as an HTML image that holds its own bytes."""
    from fedref import plots  # matplotlib takes its time

    with TemporaryDirectory(prefix="fedref-") as folder:
        path = Path(folder, "curves.png")
        plots.curves(run, path)
        data = base64.b64encode(path.read_bytes()).decode()
    return f'<img width="720" alt="curves" src="data:image/png;base64,{data}">'


def load_run(directory: str | Path, *, client_states: bool = True) -> Outcome:
    """The results of a run directory, from its checkpoints, as they stand.

    client_states : with what the clients keep for themselves (APFL's w_k and a), which for a thousand
    clients is most of a checkpoint: `load_run(DIR).parameters("apfl").clients[3].w_k`.
    """
    directory = Path(directory)
    experiment = resumed(directory)
    work, records = [], []
    for unit in units(experiment):
        record = saved(directory, unit, experiment)
        if record is not None:
            work.append(unit)
            records.append(record if client_states else light(record))
    if not records:
        raise DataError(f"{directory}: no finished round yet, expected checkpoints/*.ckpt")
    return Outcome(experiment, work, records, directory)
