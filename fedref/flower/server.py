"""A run over nodes: the experiment, the directory, and an engine that asks the nodes."""

import json
import secrets
from collections.abc import Callable
from pathlib import Path

from fedref.algorithm import Algorithm
from fedref.boundary.errors import ConfigError, DataError
from fedref.boundary.files import write_whole
from fedref.experiments import config, names
from fedref.experiments.experiment import Experiment
from fedref.experiments.progress import Progress
from fedref.experiments.results import Run
from fedref.experiments.run import execute
from fedref.experiments.run_directory import begun, locked, resumed
from fedref.experiments.setting import Loader, Setting, key_of
from fedref.experiments.unit import Engine, Unit, stamp
from fedref.flower.engine import Missed, Remote
from fedref.flower.nodes import Network, Nodes, Options
from fedref.flower.roster import Described, Roster, stand_in


def refuse(experiment: Experiment) -> None:
    """ConfigError for what needs rows or states that the server does not have."""
    for label, table in experiment.algorithms.items():
        algorithm = names.make_algorithm(label, table)
        if algorithm.pooled:
            raise ConfigError(
                f"{label} pools all clients' rows, which stay with them here; leave it out"
            )
        if type(algorithm).message is not Algorithm.message:
            raise ConfigError(
                f"{label} sends by what each client keeps, which the server does not know here"
            )
    for key in ("dissimilarity", "unseen"):
        if getattr(experiment, key):
            raise ConfigError(f"{key} needs clients' rows on the server, which are not there")
    if experiment.classes != "all":
        raise ConfigError(
            f"classes={experiment.classes} counts labels that the server does not know"
        )
    swept = [key for key in experiment.sweep if key.partition(".")[0] in ("data", "split")]
    if swept:
        raise ConfigError(f"sweep.{swept[0]} changes the rows of the clients, who have one split")


def serve(
    network: Network,
    experiment: Experiment,
    out: Path,
    options: Options,
    say: Callable[[str], None] = lambda text: None,
    progress: Progress | None = None,
) -> Run:
    """A run into the directory `out`, or what is left of it: the tables of a local run.

    federation.json holds what the nodes announced, missed.csv who was missed. A checkpoint is
    written after every round, since a round over a network takes long anyway.
    """
    refuse(experiment)
    own, path = stamp(experiment), out / "federation.json"
    again = (out / "config.toml").exists() and path.exists()
    if again:
        with locked(out):
            if stamp(resumed(out)) != own:
                raise DataError(f"{out} holds the run of another experiment, expected another out")
            run, known, holder = recalled(path)
            roster = Roster(holder=holder if options.pinned else {}, known=known)
            nodes = Nodes(network, options, say, roster)
            nodes.gather(enough=True)
            return carried_out(experiment, out, nodes, run, known, progress)
    nodes = Nodes(network, options, say)
    nodes.gather(enough=False)
    run, known = secrets.token_hex(8), nodes.roster.described()
    with begun(experiment, out):
        holders = sorted(nodes.roster.holder.items())
        kept = {"run": run, "known": known._asdict(), "holder": holders}
        write_whole(path, (json.dumps(kept, indent=1) + "\n").encode())
        return carried_out(experiment, out, nodes, run, known, progress)


def recalled(path: Path) -> tuple[str, Described, dict[int, int]]:
    """(run, what is known of the data, client → node) of a run that goes on."""
    try:
        kept = json.loads(path.read_bytes())
        return kept["run"], Described(**kept["known"]), dict(map(tuple, kept["holder"]))
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); expected it as the run left it"
        ) from error


def carried_out(
    experiment: Experiment,
    out: Path,
    nodes: Nodes,
    run: str,
    known: Described,
    progress: Progress | None,
) -> Run:
    federation = stand_in(known, str(experiment.data["name"]))
    loader = Loader()
    for point in config.sweep_points(experiment):
        now = config.at_point(experiment, point)
        loader.federations[key_of(now.data, now.split)] = federation
    missed = Missed(out / "missed.csv")

    def engine(unit: Unit, setting: Setting) -> Engine:
        if not setting.model.labels:
            raise ConfigError(
                "models of real targets are not run over Flower, expected one of labels"
            )
        remote = Remote(unit, setting, nodes, missed, run, stamp(experiment), known.labels)
        return Engine(remote.round, remote.evaluate)

    how = progress or Progress(message=nodes.say)
    return execute(experiment, out, every=0, progress=how, loader=loader, engine=engine)
