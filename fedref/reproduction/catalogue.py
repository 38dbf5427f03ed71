"""What there is to reproduce: folders with a report.py and experiment files, and their jobs."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fedref.boundary.errors import ConfigError, unknown
from fedref.datasets import SOURCES, sources
from fedref.experiments import config
from fedref.experiments.config import Experiment
from fedref.experiments.unit import units

PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Reproduction:
    """One folder: its name, where it is, and its report.py as a module."""

    name: str
    folder: Path
    module: ModuleType

    def said(self, name: str, default: Any) -> Any:
        return getattr(self.module, name, default)

    @property
    def owner(self) -> str:
        """Whose runs are reported on."""
        return str(self.said("USES", self.name))

    @property
    def files(self) -> list[Path]:
        """The experiment files."""
        files = sorted((self.folder.parent / self.owner).glob("*.toml"))
        return [file for file in files if file.stem in self.said("STEMS", [f.stem for f in files])]


def root() -> Path:
    """The folder of all reproductions: in the package if installed, beside it in a checkout."""
    inside = PACKAGE / "_reproduce"
    return inside if inside.is_dir() else PACKAGE.parent / "reproduce"


def default_out() -> Path:
    """reproduce/results: of the checkout, or under the current folder in an ordinary install."""
    base = Path("reproduce") if (PACKAGE / "_reproduce").is_dir() else root()
    return base / "results"


def names() -> list[str]:
    return sorted(path.parent.name for path in root().glob("*/report.py"))


def find(name: str) -> Reproduction:
    """The reproduction of that name."""
    if name not in names():
        raise ConfigError(unknown("reproduction", name, [*names(), "all"]))
    folder = root() / name
    spec = spec_from_file_location(
        f"fedref_reproduce_{re.sub('[^a-z0-9]', '_', name)}", folder / "report.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # no __pycache__ beside it
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return Reproduction(name, folder, module)


# ---- what has to be run ------------------------------------------------------------------------


class Job(NamedTuple):
    """One experiment file, with settings on top, and its run directory."""

    name: str  # NAME/STEM
    file: Path
    directory: Path
    settings: Mapping[str, Any]
    experiment: Experiment

    @property
    def rounds(self) -> int:
        """Rounds of all units together, each with its round 0."""
        return (self.experiment.rounds + 1) * len(units(self.experiment))


def run_directory(reproduction: Reproduction, stem: str, runs: Path, quick: bool) -> Path:
    return runs / (reproduction.owner + "-quick" * quick) / stem


def jobs_of(
    reproduction: Reproduction, runs: Path, quick: bool = False, seeds: Sequence[int] | None = None
) -> list[Job]:
    """Its experiments, checked; those that are finished as well."""
    owner = reproduction if reproduction.owner == reproduction.name else find(reproduction.owner)
    jobs = []
    for file in reproduction.files:
        settings = quick_settings(owner.said("QUICK", {}), file.stem) if quick else {}
        if seeds is not None and not file.stem.startswith("ablation-"):
            settings["seeds"] = list(seeds)
        directory = run_directory(reproduction, file.stem, runs, quick)
        made = experiment_of(file, settings)
        jobs.append(Job(f"{owner.name}/{file.stem}", file, directory, settings, made))
    return jobs


def quick_settings(quick: Mapping[str, Any], stem: str) -> dict[str, Any]:
    common = {key: value for key, value in quick.items() if not isinstance(value, Mapping)}
    return {**common, **quick.get(stem, {})}


def experiment_of(file: Path, settings: Mapping[str, Any]) -> Experiment:
    """What `fedref run FILE --set ...` will run."""
    table = config.underscored(config.read(file))
    table.setdefault("name", file.stem)
    with config.naming(str(file)):
        table = config.completed(table)
        for key, value in settings.items():
            table = config.with_setting(table, key, value)
        return config.from_table(table)


def check_directory(job: Job) -> None:
    """A directory that is gone on with must hold the same experiment."""
    path = job.directory / "config.toml"
    if not path.exists():
        return
    found = config.resolved(config.from_table(config.read(path), str(path)))
    wanted = config.resolved(job.experiment)
    # config.toml also has the values of the split that were found from the data
    split = {key: value for key, value in found["split"].items() if key in wanted["split"]}
    found = {**found, "split": split}
    if other := sorted(key for key in wanted if found.get(key) != wanted[key]):
        raise ConfigError(
            f"{job.directory} holds another experiment than {job.file} (other: "
            f"{', '.join(other)}): move it away, or give another --out"
        )


def missing_data(
    reproductions: Sequence[Reproduction], jobs: Sequence[Job], data_dir: Path | None
) -> str:
    """One line that says what is not here and where to put it; "" if all is here."""
    wanted = [(str(job.experiment.data["name"]), job.experiment.data) for job in jobs]
    choices = [
        (choice,) if isinstance(choice, str) else choice
        for reproduction in reproductions
        for choice in reproduction.said("DATA", ())
    ]
    absent = {name: name for name, table in wanted if not here(name, table, data_dir)}
    for choice in choices:
        if not any(here(name, {}, data_dir) for name in choice):
            absent[choice[-1]] = " or ".join(choice)
    lines = [str(sources.missing(name, "not found")) for name in absent]
    for i, (name, shown) in enumerate(absent.items()):
        lines[i] = lines[i].replace(name, shown, 1)
        if SOURCES[name].remotes:
            lines[i] += f", or `fedref data prepare {name}` downloads it"
    return "; ".join(lines)


def here(name: str, table: Mapping[str, Any], data_dir: Path | None) -> bool:
    """Whether a data set can be read without downloading it; a path is left to `fedref run`."""
    more = {key: value for key, value in table.items() if key != "name"}
    call = sources.parse_name(name, more)
    return call is None or sources.locate(*call, data_dir) is not None
