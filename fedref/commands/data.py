"""`fedref data`: list, show, prepare, rules, split, verify, export-leaf."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fedref import datasets
from fedref.boundary.errors import ConfigError
from fedref.boundary.files import exists
from fedref.commands.console import whole_number
from fedref.datasets import describe, manifest, manifest_of, rules, sources
from fedref.datasets.formats import leaf
from fedref.datasets.parameters import Parameter
from fedref.rounds.federation import Federation, Source

Parser = argparse.ArgumentParser
NAME = (
    "a data set (see `fedref data list`) such as mnist or 'synthetic(0.5,0.5)', a file or a folder"
)


OWN = """\
your own data
  A file or a folder in the place of a data set's name, in one of these formats:
  .npz         arrays X (n, ...) and y (n,); client (n,) if rows belong to clients;
               for a test part of your own test (n,), true for test rows, or
               test_from, the first of them
  folder       X.npy and y.npy, and client.npy, test.npy, test_from.npy likewise
  .csv, .tsv   a header; column y (or label, class, target); client and test if you
               have them; every other column is a feature and holds numbers
  .json, .mat  LEAF's format; cell arrays X, Y with a cell a client
  folder       of idx files, of LEAF files, or with a single file of those above
  Labels are whole numbers or words; words become 0, 1, ... in their order, and
  which is which is printed and kept in the split's manifest. Other numbers are real
  targets, for models of your own. Other arrays than these are refused, not ignored.
  From Python: fedref.run(data=(X, y, client)), or data=(X, y), split="iid"; a Source, a Federation.
"""

# ---- what is asked ------------------------------------------------------------------------------


def add_parser(subparsers: "argparse._SubParsersAction[Parser]") -> None:
    """Add `data` and its sub-commands."""
    data = subparsers.add_parser(
        "data",
        help="list, show, download, split and verify data",
        description="Data sets, their splits over clients, and manifests that anyone can replay.",
        epilog=OWN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    data.set_defaults(run=run)
    commands = data.add_subparsers(dest="data_command", metavar="COMMAND", required=True)
    for name, (_, add, help) in COMMANDS.items():
        epilog = rules_help() if name == "split" else None
        parser = commands.add_parser(
            name,
            help=help,
            description=help[0].upper() + help[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add(parser)
        parser.add_argument(
            "--data-dir",
            metavar="DIR",
            help="folder that holds data sets as DIR/<name>/... (default: FEDREF_DATA)",
        )


def add_nothing(parser: Parser) -> None:
    pass


def add_unverified(parser: Parser) -> None:
    parser.add_argument(
        "--data-unverified",
        action="store_true",
        help="use a data set whose content is not the published one (its hash is known)",
    )


def add_show(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help=f"{NAME}, or a split manifest")
    parser.add_argument(
        "--split", metavar="RULE", help="split rule (default: the data set's own; see `split`)"
    )
    add_seed_and_set(parser)
    add_unverified(parser)
    parser.add_argument("--out", metavar="FILE", help="picture to write (default: NAME.png)")


def add_prepare(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help=NAME)
    add_unverified(parser)


def add_rules(parser: Parser) -> None:
    parser.add_argument(
        "--data", metavar="NAME", default="digits", help=f"{NAME} (default: digits)"
    )
    parser.add_argument(
        "--users", type=whole_number, default=20, metavar="N", help="clients (default: 20)"
    )
    parser.add_argument("--seed", metavar="S", default="0", help="seed of the splits (default: 0)")
    add_unverified(parser)
    parser.add_argument("--out", metavar="FILE", help="picture to write, .png, .svg or .pdf")


def add_split(parser: Parser) -> None:
    parser.add_argument("rule", metavar="RULE", help="split rule, one of those below")
    parser.add_argument("--data", metavar="NAME", required=True, help=NAME)
    add_seed_and_set(parser)
    add_unverified(parser)
    parser.add_argument("--out", metavar="FILE.json", required=True, help="manifest to write")
    parser.add_argument("--overwrite", action="store_true", help="even if there is such a file")


def add_manifest(parser: Parser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST", help="manifest made by `fedref data split`")


def add_export(parser: Parser) -> None:
    add_manifest(parser)
    parser.add_argument("--out", metavar="DIR", required=True, help="folder to write to")
    parser.add_argument("--raw", action="store_true", help="features as in the source, not scaled")


def add_seed_and_set(parser: Parser) -> None:
    parser.add_argument("--seed", metavar="S", default="0", help="seed of the split (default: 0)")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a parameter of the split rule, e.g. split.users=10, as for `fedref run`; may be given "
        "several times",
    )


def rule_lines() -> list[str]:
    """Every rule in one line."""
    return [f"  {name:<18}{rule.help}" for name, rule in rules.RULES.items()]


def rules_help() -> str:
    """Every rule in one line, then with its parameters and their defaults."""
    lines = ["split rules (`fedref data rules --out FILE` draws them)", *rule_lines()]
    lines += ["", "their parameters (--set split.KEY=VALUE)"]
    for name, rule in rules.RULES.items():
        lines += ["", f"  {name}"]
        lines += [f"    {key} = {shown(p)}" for key, p in rule.parameters.items()]
    return "\n".join(lines).replace("%", "%%")


def shown(parameter: Parameter) -> str:
    """Its default and its meaning, in one line."""
    default = "(by the data)" if parameter.default is None else parameter.default
    return f"{default}: {parameter.help.split(';')[0]}"


# ---- what is done -------------------------------------------------------------------------------


def run(args: argparse.Namespace) -> int:
    """Do what was asked; wrong input is a FedrefError."""
    COMMANDS[args.data_command].run(args)
    return 0


def settings(given: list[str]) -> dict[str, str]:
    """["split.users=100", ...] → {"users": "100", ...}."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        name = key.strip().removeprefix("split.").replace("-", "_")
        if not equals or not name or name in found:
            raise ConfigError(f"--set {text}: expected split.KEY=VALUE, every key once")
        if not key.strip().startswith("split."):
            raise ConfigError(f"--set {text}: expected split.{text}, as for `fedref run`")
        found[name] = value.strip()
    return found


def default_rule(name: str, source: Source) -> str:
    """The rule that a data set is usually split by: its own clients, if it has some."""
    call = sources.parse_name(name)
    if call is not None:
        return sources.SOURCES[call[0]].split
    return "iid" if source.client is None else "natural"


def federation_of(args: argparse.Namespace) -> Federation:
    """The federation of `show`: a manifest's, or a split of a data set."""
    path = Path(args.name)
    if sources.parse_name(args.name) is None and manifest.is_manifest(path):
        return datasets.from_manifest(path, args.data_dir)
    source = datasets.load(args.name, args.data_dir, verify=not args.data_unverified)
    rule = args.split or default_rule(args.name, source)
    return rules.divide(rule, source, args.seed, settings(args.set))


def list_(args: argparse.Namespace) -> None:
    for name, known in sources.SOURCES.items():
        print(f"{name:<15}{known.help}")
        print(f"{'':<15}  {where(name, args.data_dir)}; usual split: {known.split}")


def where(name: str, data_dir: str | None) -> str:
    """Where a data set is, or how it is got."""
    known = sources.SOURCES[name]
    if known.find is sources.made:
        return "generated"
    path = sources.locate(name, sources.parse_name(name)[1], data_dir)  # type: ignore[index]
    if path is not None:
        return f"found at {path}"
    how = f"`fedref data prepare {name}` downloads it" if known.remotes else "not here"
    return f"{how}; or put {known.files} in DIR/{name}"


def show(args: argparse.Namespace) -> None:
    federation = federation_of(args)
    print(describe.text(federation))
    path = Path(args.out or f"{federation.source.name}.png")
    describe.picture(federation, path)
    print(f"picture: {path}")


def prepare(args: argparse.Namespace) -> None:
    source = datasets.load(args.name, args.data_dir, verify=not args.data_unverified)
    call = sources.parse_name(args.name)
    place = None if call is None else sources.locate(*call, args.data_dir)
    published = (
        call is not None
        and place is not None
        and not args.data_unverified
        and sources.check_published(call[0], place, source)
    )
    n, p = source.X.shape
    print(f"{source.name}: {n:,} rows of {p} features ({source.X.dtype}), ", end="")
    kind = "real targets" if source.real else "labels"
    print(f"{kind} {source.y.min()} to {source.y.max()}")
    if words := describe.legend(source):
        print(f"  labels are {words}")
    print(f"  sha256 {source.sha256}{' (as published)' if published else ''}")
    print(f"  at {args.name if place is None else place}")


def show_rules(args: argparse.Namespace) -> None:
    """List the rules; draw those that can divide the data over so many clients."""
    print("\n".join(rule_lines()))
    if args.out is None:
        return
    from fedref import plots  # matplotlib takes its time

    plots.format_of(Path(args.out))
    source = datasets.load(args.data, args.data_dir, verify=not args.data_unverified)
    drawn, without = dict[str, Federation](), dict[str, str]()
    for name, rule in rules.RULES.items():
        users = {"users": args.users} if "users" in rule.parameters else {}
        try:
            drawn[name] = rules.divide(name, source, args.seed, users)
        except ConfigError as error:
            without[name] = str(error)
    title = f"{source.name}, {args.users} clients, seed {args.seed}"
    if not drawn:
        raise ConfigError(f"no rule can divide {source.name}: {next(iter(without.values()))}")
    plots.split_rules(drawn, args.out, title)
    for name, why in without.items():
        print(f"left out: {name} ({why})")
    print(f"picture: {args.out}")


def split(args: argparse.Namespace) -> None:
    refuse_out(args.out, args.overwrite)
    source = datasets.load(args.data, args.data_dir, verify=not args.data_unverified)
    federation = rules.divide(args.rule, source, args.seed, settings(args.set))
    described = manifest_of(federation)
    manifest.write(described, args.out)
    print(describe.text(federation))
    print(f"manifest: {args.out}  sha256 {described['sha256']}")


def refuse_out(out: str, overwrite: bool) -> None:
    """Refuse a manifest that --split would not take, or that would replace another file unasked."""
    if not out.endswith(".json"):
        raise ConfigError(f"--out {out}: expected FILE.json, which --split takes for a manifest")
    if exists(Path(out)) and not overwrite:
        raise ConfigError(f"--out {out}: is there already; expected another name, or --overwrite")


def verify(args: argparse.Namespace) -> None:
    federation = datasets.from_manifest(args.manifest, args.data_dir)
    found = federation.source
    print(f"{args.manifest}: intact; {found.name} has the SHA-256 it was split from")
    print(f"  {replayed(federation)}")


def replayed(federation: Federation) -> str:
    """Whether the rule and seed give these rows here: another NumPy may draw other numbers."""
    if federation.rule not in rules.RULES:
        return f"rule {federation.rule!r} is not one of fedref's: the manifest's rows are used as they are"
    again = rules.divide(federation.rule, federation.source, federation.seed, federation.parameters)
    same = manifest_of(again)["clients"] == manifest_of(federation)["clients"]
    end = "gives the same rows" if same else "gives other rows here; the manifest's are used"
    return f"{federation.rule} with seed {federation.seed} {end}"


def export_leaf(args: argparse.Namespace) -> None:
    federation = datasets.from_manifest(args.manifest, args.data_dir)
    for path in leaf.export(federation, Path(args.out), args.raw):
        print(path)


class Command(NamedTuple):
    """One sub-command: what it does, how its arguments are added, its one line of help."""

    run: Callable[[argparse.Namespace], None]
    add: Callable[[Parser], None]
    help: str


COMMANDS = {
    "list": Command(list_, add_nothing, "list data sets, and where they are or how to get them"),
    "show": Command(show, add_show, "print a split's statistics and write a picture of it"),
    "prepare": Command(prepare, add_prepare, "find or download a data set and check it"),
    "rules": Command(show_rules, add_rules, "list the split rules, and draw them"),
    "split": Command(split, add_split, "divide a data set over clients and write a manifest"),
    "verify": Command(verify, add_manifest, "check a manifest and the data it was made from"),
    "export-leaf": Command(export_leaf, add_export, "write a split as LEAF JSON files"),
}
