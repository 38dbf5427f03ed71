"""`fedref plan`: writes the plans of a run, its data and its starts as files for other programs."""

import argparse
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.boundary.files import write_or_raise
from fedref.boundary.values import with_dashes
from fedref.commands.options import DATA_DIR, DIRECTORY, Command, Option
from fedref.experiments import config, names
from fedref.experiments.config import Experiment
from fedref.experiments.loading import Loader, key_of, load_experiment
from fedref.experiments.run_directory import read_experiment
from fedref.experiments.unit import plan_for, training_federation, units
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation
from fedref.sampling import PADDING, Plan, stream

#: The format of the files, for the help.
FORMAT = """\
OUT/index.json lists the units of the run (`folder`, `label`, `algorithm`, `hyperparameters`, `seed`,
`sweep`, `roles`, `data`, `rounds`) and the dtype of all computations. FOLDER/start.npz of a unit holds

    w (d,)                  the parameters before round 0

and FOLDER/NNNNNN.npz holds a round with K clients, at most S steps and mini-batches of at most W rows:

    clients (K,)            the clients that take part, ascending
    counts (K,)             how often each was drawn
    sizes (K,)              n_k, their training rows
    amount (K,)             epochs (or steps) that each does
    straggler (K,)          whether it is a straggler
    steps (K,)              mini-batch steps that each does
    per_epoch (K,)          mini-batch steps of one epoch
    rows.ROLE (K, S, W)     rows of the data; −1 pads shorter batches and missing steps. Roles are
                            D, D1, D2 (the papers' D, D′, D″), S and Q (support and query)

`data` names a file that holds X (n, p) and y (n,); features are (X − shift) / scale if it has these
two. Client k trains on the rows train_rows[train_offsets[k]:train_offsets[k+1]] and is tested on those
of test_rows and test_offsets.
"""


def run(arguments: argparse.Namespace) -> int:
    """Write the plans, and print their folders."""
    experiment = read_experiment(arguments.directory)
    out = arguments.out or arguments.directory / "plans"
    T = max(unit.point.get("rounds", experiment.rounds) for unit in units(experiment))
    rounds = rounds_of(arguments.rounds, T)
    if (out / "index.json").exists():
        raise ConfigError(f"{out} already holds plans, expected another --out")
    folders = export(experiment, out, rounds, Loader(arguments.data_dir))
    for folder in folders:
        print(out / folder)
    return 0


def rounds_of(text: str | None, T: int) -> range:
    """Read "0:5" as the rounds 0 to 4, within the T rounds of the run."""
    if text is None:
        return range(T)
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and int(first) < int(last) <= T):
        raise ConfigError(f"--rounds is {text!r}, expected A:B with 0 ≤ A < B ≤ {T}")
    return range(int(first), int(last))


# ---- the files -----------------------------------------------------------------------------------


def export(experiment: Experiment, out: Path, rounds: range, loader: Loader) -> list[str]:
    """Write the plans of these rounds for every unit. Return the folders."""
    listed, data = list[dict[str, Any]](), dict[str, str]()
    for unit in units(experiment):
        loaded = load_experiment(config.at_point(experiment, unit.point), loader)
        at_point = loaded.experiment
        algorithm = names.make_algorithm(unit.label, at_point.algorithms[unit.label])
        folder = unit.file.removesuffix(".ckpt")
        trained = training_federation(algorithm, loaded.federation, unit.seed)
        start = loaded.model.init(stream(unit.seed, "init")).astype(at_point.dtype)
        save_npz(out / folder / "start.npz", {"w": start})
        own_rounds = range(rounds.start, min(rounds.stop, at_point.rounds))
        for t in own_rounds:
            plan = plan_for(algorithm, at_point, trained.train.sizes, t, unit.seed)
            save_npz(out / folder / f"{t:06d}.npz", plan_arrays(plan, trained))
        y = loaded.federation.source.y  # its values and dtype depend on the model
        others = {"y": f"{y.dtype} {loaded.model.labels}", "classes": at_point.classes}
        key = key_of(at_point.data, at_point.split, others, {"unseen": bool(at_point.unseen)})
        if key not in data:
            data[key] = f"data-{len(data)}.npz"
            save_npz(out / data[key], data_arrays(loaded.federation))
        table = at_point.algorithms[unit.label]
        listed.append(
            {
                "folder": folder,
                "label": unit.label,
                "algorithm": names.importable_name(table["algorithm"]),
                "hyperparameters": {
                    with_dashes(k): v for k, v in table.items() if k != "algorithm"
                },
                "seed": unit.seed,
                "sweep": dict(unit.point),
                "roles": list(algorithm.roles),
                "data": data[key],
                "rounds": [own_rounds.start, own_rounds.stop],
            }
        )
    index = {"version": 1, "name": experiment.name, "dtype": experiment.dtype, "units": listed}
    write_or_raise(out / "index.json", (json.dumps(index, indent=1) + "\n").encode())
    return [one["folder"] for one in listed]


def plan_arrays(plan: Plan, trained: Federation) -> dict[str, Array]:
    """Return a plan's arrays by name; its rows become rows of the source, −1 is padding."""
    own = [trained.train.rows_of(k) for k in plan.clients.tolist()]
    rows = {
        f"rows.{role}": np.stack(
            [np.where(r == PADDING, PADDING, held[r]) for held, r in zip(own, batches)]
        )
        for role, batches in plan.rows.items()
    }
    rest = {name: x for name, x in plan._asdict().items() if isinstance(x, np.ndarray)}
    return {**rest, **rows}


def data_arrays(federation: Federation) -> dict[str, Array]:
    """Return the arrays of a data file: the rows, and which client holds which."""
    shift, scale = federation.shift_and_scale
    arrays = {"X": federation.source.X, "y": federation.source.y, "shift": shift, "scale": scale}
    for name, part in (("train", federation.train), ("test", federation.test)):
        arrays |= {f"{name}_rows": part.rows, f"{name}_offsets": part.offsets}
    return {name: x for name, x in arrays.items() if x is not None}


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz atomically."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **dict[str, Any](arrays))
    write_or_raise(path, buffer.getvalue())


EXPORT = Command(
    run,
    "Write the plans of a run, its data and its starts as npz.",
    (
        DIRECTORY,
        Option("-o --out OUT", "the folder to write (default DIR/plans)", Path),
        Option("--rounds A:B", "rounds A to B−1, counted from 0 (default: all rounds)"),
        DATA_DIR,
    ),
    epilog="the files\n\n" + FORMAT,
)
COMMAND = Command(
    None,
    "Plans say which clients take part in a round, how much each does, and on which rows.",
    commands={"export": EXPORT},
)
