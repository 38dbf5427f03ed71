"""Data sets, their splits over clients, and manifests that anyone can replay.

your own data
  A file or a folder in the place of a data set's name, in one of these formats:
  .npz         arrays X (n, ...) and y (n,); client (n,) if rows belong to clients;
               for a test part of your own test (n,), true for test rows
  .csv, .tsv   a header; column y (or label, class, target); client and test if you
               have them; every other column is a feature and holds numbers;
               other names: --set data.label=outcome --set data.client=hospital
  .json        LEAF's format: rows of numbers, windows of characters, or tweets
  .svm         svmlight's text (LIBSVM's), also without a suffix as a9a
  folder       of idx files or of LEAF files
  Labels are whole numbers or words. Words become 0, 1, ... in sorted order; the
  table of both is printed and kept in the split's manifest. Other numbers are real
  targets, for models of your own. Other arrays than these are refused, not ignored.
  From Python: fedref.run(data=(X, y, client)), or data=(X, y), split="iid"; a DataFrame
  with columns as in a CSV; {"X": X, "y": y, "test": test}; a Source, a Federation.
"""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Annotated

from fedref.boundary.errors import ConfigError
from fedref.boundary.files import exists
from fedref.boundary.values import Bounds, schema
from fedref.lab import datasets
from fedref.lab.commands.command_line import HELP_WIDTH, parse_setting
from fedref.lab.datasets import describe, manifest, manifest_of, rules, sources
from fedref.lab.datasets.formats import recipes
from fedref.lab.experiments import config
from fedref.lab.experiments.loading import Loader
from fedref.rounds.federation import Source

__doc__ = f"""{__doc__}
other formats become a .npz or .csv (with client=..., where rows have one)
{recipes.all_of_them()}
"""
NO_CLIENTS = """\
  no column or array client, which says whose row it is: another name is given by
  --set data.client=COLUMN, and --split iid (or `fedref data rules`) divides the rows"""
Seed = Annotated[int, Bounds(0)]


def read_words(
    data: str, rule: str | None, seed: int | None, settings: Sequence[str]
) -> config.Experiment:
    """Return the experiment of `fedref run` that is given the same words."""
    pairs = [parse_setting(text) for text in settings]
    for key, _ in pairs:
        if key.partition(".")[0] not in ("data", "split"):
            raise ConfigError(f"--set {key}: expected data.KEY or split.KEY, as for `fedref run`")
    return config.compose(None, [("data", data), ("split", rule), ("split.seed", seed), *pairs])


def list_sources(*, data_dir: Path | None = None) -> None:
    """List data sets, and where they are or how to get them."""
    for name, known in datasets.SOURCES.items():
        path = sources.locate(name, data_dir)
        how = f"`fedref data prepare {name}` downloads it" if known.addresses else "not here"
        how += f"; or put {known.files} in DIR/{name}"
        how = "generated" if not known.held else f"found at {path}" if path else how
        print(f"{name:<15}{known.help}\n{'':<15}  {how}; usual split: {known.split}")


def show(
    name: str,
    *,
    split: str | None = None,
    seed: Seed | None = None,
    set: list[str] = (),  # type: ignore[assignment]
    data_dir: Path | None = None,
    out: Path | None = None,
) -> None:
    """Print a split's statistics; with --out, draw it.

    name : a data set (see `fedref data list`) such as mnist or 'synthetic(0.5,0.5)', a file or a folder,
        or a split manifest, which is checked with the data it was made from
    split : split rule (default: the data set's own; see `fedref data rules`)
    seed : seed of the split (default: 0)
    set : KEY=VALUE, any value of the data or the split, e.g. split.users=10; several times
    out : picture to write, .png, .svg or .pdf
    """
    if sources.parse_name(name) is None and manifest.is_manifest(Path(name)):
        federation = datasets.from_manifest(name, data_dir)
    else:
        experiment, loader = read_words(name, split, seed, set), Loader(data_dir)
        source = loader.source(experiment.data)
        natural = split is None and out is None and experiment.split["rule"] == "natural"
        if natural and isinstance(source, Source) and source.client is None:
            print(f"{describe.source_text(source)}\n{NO_CLIENTS}")
            return
        federation = loader.federation(experiment.data, experiment.split)
    if out is not None:
        from fedref.lab import plots  # matplotlib is slow to import

        plots.holdings(federation, out)
    print(describe.statistics_text(federation))
    if out is not None:
        print(f"picture: {out}")


def prepare(name: str, *, data_dir: Path | None = None) -> None:
    """Find or download a data set and check it.

    name : a data set (see `fedref data list`), a file or a folder
    """
    source = datasets.load(name, data_dir)
    call = sources.parse_name(name)
    place = None if call is None else sources.locate(call[0], data_dir)
    published = call is not None and datasets.SOURCES[call[0]].sha256 == source.sha256
    print(describe.source_text(source))
    print(f"  sha256 {source.sha256}{' (as published)' if published else ''}")
    print(f"  at {name if place is None else place}")


def show_rules() -> None:
    """List the split rules and their parameters."""
    for name, rule in rules.RULES.items():
        print(f"{name:<18}{rule.help}")
        if rule.elsewhere:
            text = f"elsewhere: {rule.elsewhere}"
            print(fill(text, HELP_WIDTH, initial_indent="  ", subsequent_indent="    "))
        for entry in schema(rule).values():
            default = "(depends on the data)" if entry.default is None else entry.default
            print(f"  {entry.name} = {default}: {entry.meaning.split(';')[0]}")
    print("their parameters are set by --set split.KEY=VALUE")


def split(
    rule: str,
    *,
    data: str,
    seed: Seed | None = None,
    set: list[str] = (),  # type: ignore[assignment]
    data_dir: Path | None = None,
    out: Path,
    overwrite: bool = False,
) -> None:
    """Divide a data set over clients and write a manifest.

    rule : split rule (see `fedref data rules`)
    data : a data set (see `fedref data list`), a file or a folder
    seed : seed of the split (default: 0)
    set : KEY=VALUE, any value of the data or the split, e.g. split.users=10; several times
    out : manifest to write, FILE.json
    overwrite : replace the file if it exists
    """
    if out.suffix != ".json":
        raise ConfigError(f"--out {out}: expected FILE.json, which --split takes for a manifest")
    if exists(out) and not overwrite:
        raise ConfigError(f"--out {out}: exists already; expected another name, or --overwrite")
    experiment = read_words(data, rule, seed, set)
    federation = Loader(data_dir).federation(experiment.data, experiment.split)
    described = manifest_of(federation)
    manifest.write(described, out)
    print(describe.statistics_text(federation))
    print(f"manifest: {out}  sha256 {described['sha256']}")
