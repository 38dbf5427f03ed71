"""APFL's Table 1: who holds how much, in our splits and in the paper's."""

from collections.abc import Mapping
from pathlib import Path

from fedref.datasets import load, sources, split
from fedref.datasets.describe import statistics
from fedref.experiments.results import Run
from fedref.plots import holdings
from fedref.rounds.federation import Federation, Source
from reproduce.tables import Number, number_table, show_pictures, write_numbers

DATA = (("mnist",), ("vehicle",), ("cifar10-gray", "cifar10"))

SEEDS = (0, 1, 2)
DRAWS = 40
#: clients, samples, mean and standard deviation of samples a client, as [apfl table 1] prints them.
TOLD = {
    "Vehicle": (23, 43695, 1899, 349),
    "MNIST": (1000, 69035, 69, 106),
    "FEMNIST": (200, 18345, 92, 159),
    "CIFAR-10": (100, 49757, 498, 344),
}
QUANTITIES = ("clients", "samples", "mean", "std")
RULES = {
    "Vehicle": "natural",
    "MNIST": "fedprox-mnist",
    "FEMNIST": "fedprox-femnist",
    "CIFAR-10": "cifar10-powerlaw",
}


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    grey = "cifar10-gray" if sources.locate("cifar10-gray", {}, data_dir) else "cifar10"
    names = {"Vehicle": "vehicle", "MNIST": "mnist", "FEMNIST": "mnist", "CIFAR-10": grey}
    loaded = {name: load(name, data_dir) for name in dict.fromkeys(names.values())}
    numbers, made, pictures = [], [], {}
    for data, told in TOLD.items():
        source = loaded[names[data]]
        federations = [
            split(RULES[data], source, seed)
            for seed in (SEEDS[:1] if RULES[data] == "natural" else SEEDS)
        ]
        found = [statistics(federation) for federation in federations]
        for quantity, value in zip(QUANTITIES, told):
            ours = [float(one[quantity]) for one in found]
            digits = 0 if quantity in ("clients", "samples") else 1
            drawn = quantity == "std" and len(found) > 1
            note = draws(RULES[data], source) if drawn else ""
            numbers.append(Number((data, quantity), ours, value, note, digits=digits))
        made.append(f"{data}: {source.name}, SHA-256 {source.sha256[:12]}, split {RULES[data]}.")
        file = f"{data.lower()}.png"
        means = {"mean, ours": found[0]["mean"], "mean, paper": told[2]}
        holdings(federations[0], out / file, title(data, federations[0]), means)
        pictures[file] = f"{data}: samples a client and labels a client, seed 0"
    heads = ("data", "quantity")
    write_numbers(out / "numbers.csv", heads, numbers)
    return {
        "numbers": number_table(heads, numbers),
        "made": "\n".join(f"- {line}" for line in made),
        "pictures": show_pictures(pictures),
    }


def draws(rule: str, source: Source) -> str:
    """Return the standard deviations of many draws."""
    found = [statistics(split(rule, source, seed))["std"] for seed in range(DRAWS)]
    return f"{min(found):.0f} to {max(found):.0f} in {DRAWS} draws"


def title(data: str, federation: Federation) -> str:
    what = "FEMNIST's rule on MNIST's digits" if data == "FEMNIST" else data
    return f"{what}: {federation.clients:,} clients"
