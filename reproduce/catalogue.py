"""The catalogue of reproductions: folders with a report and experiment files, and their jobs."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import fedref
from fedref.boundary.errors import ConfigError, unknown
from fedref.datasets import SOURCES, sources
from fedref.experiments import config
from fedref.experiments.config import Experiment
from fedref.experiments.run_directory import read_experiment

PACKAGE = Path(fedref.__file__).resolve().parent


@dataclass(frozen=True)
class Reproduction:
    """One folder: its name, where it is, its report.py as a module, and the text of its report.md."""

    name: str
    folder: Path
    module: ModuleType
    text: str

    def get(self, name: str, default: Any) -> Any:
        """Return what the report.py calls `name`."""
        return getattr(self.module, name, default)

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0].removeprefix("# ")

    @property
    def paper(self) -> str:
        """The second paragraph: which paper and section says it."""
        return self.text.split("\n\n")[1]

    @property
    def owner(self) -> str:
        """The reproduction that has the runs."""
        return str(self.get("USES", self.name))

    @property
    def files(self) -> list[Path]:
        """The experiment files."""
        files = sorted((self.folder.parent / self.owner).glob("*.toml"))
        return [file for file in files if file.stem in self.get("STEMS", [f.stem for f in files])]


def root() -> Path:
    """Return the folder of all reproductions: beside the package in a checkout, in it in a wheel."""
    return Path(__file__).resolve().parent


def default_out() -> Path:
    """Return reproduce/results: of the checkout, or under the current folder if installed."""
    installed = root().is_relative_to(PACKAGE)
    return (Path("reproduce") if installed else root()) / "results"


def names() -> list[str]:
    """Return the names of all reproductions."""
    return sorted(path.parent.name for path in root().glob("*/report.py"))


def find(name: str) -> Reproduction:
    """Return the reproduction of that name."""
    if name not in names():
        raise ConfigError(unknown("reproduction", name, [*names(), "all"]))
    folder = root() / name
    spec = spec_from_file_location(
        f"fedref_reproduce_{re.sub('[^a-z0-9]', '_', name)}", folder / "report.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # no __pycache__ beside it
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return Reproduction(name, folder, module, (folder / "report.md").read_text("utf-8"))


# ---- what has to be run ------------------------------------------------------------------------


class Job(NamedTuple):
    """One experiment file, its run directory, and what is to be run there."""

    name: str  # NAME/STEM
    file: Path
    directory: Path
    experiment: Experiment


def jobs_of(
    reproduction: Reproduction, runs: Path, quick: bool = False, seeds: Sequence[int] | None = None
) -> list[Job]:
    """Return its experiments, checked; those that are finished as well."""
    owner = reproduction if reproduction.owner == reproduction.name else find(reproduction.owner)
    jobs = []
    for file in reproduction.files:
        settings = quick_settings(owner.get("QUICK", {}), file.stem) if quick else {}
        if seeds is not None and not file.stem.startswith("ablation-"):
            settings["seeds"] = list(seeds)
        directory = runs / (owner.name + "-quick" * quick) / file.stem
        made = experiment_of(file, settings)
        jobs.append(Job(f"{owner.name}/{file.stem}", file, directory, made))
    return jobs


def quick_settings(quick: Mapping[str, Any], stem: str) -> dict[str, Any]:
    """Return what QUICK sets for one experiment file."""
    common = {key: value for key, value in quick.items() if not isinstance(value, Mapping)}
    return {**common, **quick.get(stem, {})}


def experiment_of(file: Path, settings: Mapping[str, Any]) -> Experiment:
    """Return what `fedref run FILE --set ...` will run."""
    table = config.with_underscores(config.read(file))
    table.setdefault("name", file.stem)
    with config.naming(str(file)):
        table = config.complete(table)
        for key, value in settings.items():
            table = config.with_setting(table, key, value)
        return config.from_table(table)


def check_directory(job: Job) -> None:
    """Refuse to resume in a directory that holds another experiment."""
    if not (job.directory / "config.toml").exists():
        return
    found = config.as_document(read_experiment(job.directory))
    wanted = config.as_document(job.experiment)
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
    """Return one line that says which data are missing and where to put them; "" if none are."""
    wanted = [(str(job.experiment.data["name"]), job.experiment.data) for job in jobs]
    choices = [
        (choice,) if isinstance(choice, str) else choice
        for reproduction in reproductions
        for choice in reproduction.get("DATA", ())
    ]
    absent = {name: name for name, table in wanted if not is_available(name, table, data_dir)}
    for choice in choices:
        if not any(is_available(name, {}, data_dir) for name in choice):
            absent[choice[-1]] = " or ".join(choice)
    lines = [str(sources.missing_error(name, "not found")) for name in absent]
    for i, (name, shown) in enumerate(absent.items()):
        lines[i] = lines[i].replace(name, shown, 1)
        if SOURCES[name].remotes:
            lines[i] += f", or `fedref data prepare {name}` downloads it"
    return "; ".join(lines)


def is_available(name: str, table: Mapping[str, Any], data_dir: Path | None) -> bool:
    """Whether a data set can be read without downloading it; a path is left to `fedref run`."""
    more = {key: value for key, value in table.items() if key != "name"}
    call = sources.parse_name(name, more)
    return call is None or sources.locate(*call, data_dir) is not None
