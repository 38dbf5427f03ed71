"""`fedref data`: lists, shows, downloads, splits and verifies data."""

import argparse
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedref import datasets
from fedref.boundary.errors import ConfigError
from fedref.boundary.files import exists
from fedref.boundary.values import Bounds, declaration_of, literal
from fedref.commands.options import DATA_DIR, REPEATED, Command, Option
from fedref.datasets import describe, manifest, manifest_of, rules, sources
from fedref.datasets.registry import find_nothing
from fedref.rounds.federation import Federation

NAME = (
    "a data set (see `fedref data list`) such as mnist or 'synthetic(0.5,0.5)', a file or a folder"
)

OWN = """\
your own data
  A file or a folder in the place of a data set's name, in one of these formats:
  .npz         arrays X (n, ...) and y (n,); client (n,) if rows belong to clients;
               for a test part of your own test (n,), true for test rows, or train,
               true for all others, or test_from, the first test row
  folder       X.npy and y.npy, and client.npy, test.npy, ... likewise
  .csv, .tsv   a header; column y (or label, class, target); client and test (or
               train) if you have them; every other column is a feature and holds
               numbers; other names: --set data.label=outcome --set data.client=hospital
  .json        LEAF's format
  folder       of idx files, of LEAF files, or with a single file of those above
  Labels are whole numbers or words. Words become 0, 1, ... in sorted order; the
  table of both is printed and kept in the split's manifest. Other numbers are real
  targets, for models of your own. Other arrays than these are refused, not ignored.
  From Python: fedref.run(data=(X, y, client)), or data=(X, y), split="iid"; a DataFrame
  with columns as in a CSV; {"X": X, "y": y, "train": train}; a Source, a Federation.
"""


def rule_lines() -> list[str]:
    """Return a line for each rule."""
    return [f"  {name:<18}{rule.help}" for name, rule in rules.RULES.items()]


def rules_help() -> str:
    """Return a line for each rule, then the parameters of each with their defaults."""
    lines = ["split rules (`fedref data rules --out FILE` draws them)", *rule_lines()]
    lines += ["", "their parameters (--set split.KEY=VALUE)"]
    for name, rule in rules.RULES.items():
        lines += ["", f"  {name}"]
        for f in fields(rule):
            default = "(depends on the data)" if f.default is None else f.default
            meaning = declaration_of(rule, "meanings", f.name).split(";")[0]
            lines.append(f"    {f.name} = {default}: {meaning}")
    return "\n".join(lines)


def parse_settings(given: list[str]) -> dict[str, Any]:
    """Return {"users": 100, ...} of ["split.users=100", ...]."""
    settings: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        name = key.strip().removeprefix("split.").replace("-", "_")
        if not equals or not name or name in settings:
            raise ConfigError(f"--set {text}: expected split.KEY=VALUE, every key once")
        if not key.strip().startswith("split."):
            raise ConfigError(f"--set {text}: expected split.{text}, as for `fedref run`")
        settings[name] = literal(value.strip())
    return settings


def federation_of(args: argparse.Namespace) -> Federation:
    """Return the federation to show: that of a manifest, or a split of a data set."""
    path = Path(args.name)
    if sources.parse_name(args.name) is None and manifest.is_manifest(path):
        return datasets.from_manifest(path, args.data_dir)
    source = datasets.load(args.name, args.data_dir)
    rule = args.split or sources.usual_split(args.name)
    return rules.divide(rule, source, args.seed, parse_settings(args.set))


def list_sources(args: argparse.Namespace) -> None:
    lines = [
        f"{name:<15}{known.help}\n{'':<15}  {how_to_get(name, args.data_dir)}; usual split: {known.split}"
        for name, known in datasets.SOURCES.items()
    ]
    print("\n".join(lines))


def how_to_get(name: str, data_dir: Path | None) -> str:
    """Return where a data set is, or how to get it."""
    known = datasets.SOURCES[name]
    if known.find is find_nothing:
        return "generated"
    path = sources.locate(name, sources.parse_name(name)[1], data_dir)  # type: ignore[index]
    if path is not None:
        return f"found at {path}"
    how = f"`fedref data prepare {name}` downloads it" if known.remotes else "not here"
    return f"{how}; or put {known.files} in DIR/{name}"


def show(args: argparse.Namespace) -> None:
    federation = federation_of(args)
    if args.out is not None:
        from fedref import plots  # matplotlib is slow to import

        plots.holdings(federation, args.out)
    print(describe.statistics_text(federation))
    if args.out is not None:
        print(f"picture: {args.out}")


def prepare(args: argparse.Namespace) -> None:
    source = datasets.load(args.name, args.data_dir)
    call = sources.parse_name(args.name)
    place = None if call is None else sources.locate(*call, args.data_dir)
    published = call is not None and datasets.SOURCES[call[0]].sha256 == source.sha256
    n, p = source.X.shape
    print(f"{source.name}: {n:,} rows of {p} features ({source.X.dtype}), ", end="")
    kind = "real targets" if source.real else "labels"
    print(f"{kind} {source.y.min()} to {source.y.max()}")
    for note in describe.notes(source):
        print(f"  {note}")
    print(f"  sha256 {source.sha256}{' (as published)' if published else ''}")
    print(f"  at {args.name if place is None else place}")


def show_rules(args: argparse.Namespace) -> None:
    """Print the rules. With --out, draw those that can divide the data over --users clients."""
    lines = rule_lines()
    if args.out is not None:
        lines += [f"left out: {name} ({why})" for name, why in draw_rules(args).items()]
        lines.append(f"picture: {args.out}")
    print("\n".join(lines))


def draw_rules(args: argparse.Namespace) -> dict[str, str]:
    """Draw the rules; return those that are not drawn, with the reasons."""
    from fedref import plots  # matplotlib is slow to import

    plots.format_of(args.out)
    source = datasets.load(args.data, args.data_dir)
    federations, refused = dict[str, Federation](), dict[str, str]()
    for name, rule in rules.RULES.items():
        users = {"users": args.users} if hasattr(rule, "users") else {}
        try:
            federations[name] = rules.divide(name, source, args.seed, users)
        except ConfigError as error:
            refused[name] = str(error)
    if not federations:
        raise ConfigError(f"no rule can divide {source.name}: {next(iter(refused.values()))}")
    plots.split_rules(
        federations, args.out, f"{source.name}, {args.users} clients, seed {args.seed}"
    )
    return refused


def split(args: argparse.Namespace) -> None:
    check_out(args.out, args.overwrite)
    source = datasets.load(args.data, args.data_dir)
    federation = rules.divide(args.rule, source, args.seed, parse_settings(args.set))
    described = manifest_of(federation)
    manifest.write(described, args.out)
    print(describe.statistics_text(federation))
    print(f"manifest: {args.out}  sha256 {described['sha256']}")


def check_out(out: str, overwrite: bool) -> None:
    """Refuse a name that --split would not take for a manifest, or a file that exists already."""
    if not out.endswith(".json"):
        raise ConfigError(f"--out {out}: expected FILE.json, which --split takes for a manifest")
    if exists(Path(out)) and not overwrite:
        raise ConfigError(f"--out {out}: exists already; expected another name, or --overwrite")


def verify(args: argparse.Namespace) -> None:
    federation = datasets.from_manifest(args.manifest, args.data_dir)
    source = federation.source
    print(f"{args.manifest}: intact; {source.name} has the SHA-256 it was split from")
    print(f"  {compare_with_rule(federation)}")


def compare_with_rule(federation: Federation) -> str:
    """Say whether rule and seed give the manifest's rows; another NumPy may draw other numbers."""
    if federation.rule not in rules.RULES:
        return f"rule {federation.rule!r} is not one of fedref's: the manifest's rows are used unchanged"
    again = rules.divide(federation.rule, federation.source, federation.seed, federation.parameters)
    same = manifest_of(again)["clients"] == manifest_of(federation)["clients"]
    end = "gives the same rows" if same else "gives other rows here; the manifest's are used"
    return f"{federation.rule} with seed {federation.seed} {end}"


# ---- the table of options ------------------------------------------------------------------------


SPLIT_SEED = Option("--seed S", "seed of the split", int, 0, Bounds(0))
SET = Option(
    "--set KEY=VALUE",
    "a parameter of the split rule, e.g. split.users=10, as for `fedref run`; may be given several "
    "times",
    many=REPEATED,
)
MANIFEST = Option("manifest MANIFEST", "manifest made by `fedref data split`")


def command(
    run: Callable[[argparse.Namespace], None], description: str, *options: Option, epilog: str = ""
) -> Command:
    return Command(run, description, [*options, DATA_DIR], epilog=epilog)


COMMAND = Command(
    None,
    "Data sets, their splits over clients, and manifests that anyone can replay.",
    epilog=OWN,
    commands={
        "list": command(list_sources, "List data sets, and where they are or how to get them."),
        "show": command(
            show,
            "Print a split's statistics; with --out, draw it.",
            Option("name NAME", f"{NAME}, or a split manifest"),
            Option("--split RULE", "split rule (default: the data set's own; see `split`)"),
            SPLIT_SEED,
            SET,
            Option("--out FILE", "picture to write, .png, .svg or .pdf", Path),
        ),
        "prepare": command(
            prepare,
            "Find or download a data set and check it.",
            Option("name NAME", NAME),
        ),
        "rules": command(
            show_rules,
            "List the split rules, and draw them.",
            Option("--data NAME", NAME, default="digits"),
            Option("--users N", "clients", int, 20),
            SPLIT_SEED,
            Option("--out FILE", "picture to write, .png, .svg or .pdf", Path),
        ),
        "split": command(
            split,
            "Divide a data set over clients and write a manifest.",
            Option("rule RULE", "split rule, one of those below"),
            Option("--data NAME", NAME, required=True),
            SPLIT_SEED,
            SET,
            Option("--out FILE.json", "manifest to write", required=True),
            Option("--overwrite", "replace the file if it exists"),
            epilog=rules_help(),
        ),
        "verify": command(verify, "Check a manifest and the data it was made from.", MANIFEST),
    },
)
