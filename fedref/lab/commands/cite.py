"""`fedref cite`: the papers behind algorithms or a run, from fedref/algorithms/papers.bib."""

import re
from importlib.resources import files
from pathlib import Path

import fedref
from fedref.algorithm import AnyAlgorithm
from fedref.algorithms import ALGORITHMS
from fedref.lab.experiments import names
from fedref.lab.experiments.config import read_experiment

PAPERS = (files("fedref.algorithms") / "papers.bib").read_text("utf-8").strip().split("\n\n")


def papers_of(algorithm: type[AnyAlgorithm]) -> list[str]:
    """Return the entries of an algorithm's file, or of the file of the class that it extends."""
    for cls in algorithm.__mro__:
        named = rf"^  keywords = \{{.*\b{cls.__module__.rpartition('.')[2]}\b.*\}},$"
        if entries := [one for one in PAPERS if re.search(named, one, re.M)]:
            return entries
    return []


def cite(*cited: str) -> None:
    """Print the papers behind algorithms or a run, and fedref itself, as BibTeX.

    cited : algorithms or run directories (default: all algorithms)
    """
    algorithms: list[type[AnyAlgorithm]] = []
    for name in cited or ALGORITHMS:
        if name not in ALGORITHMS and Path(name).is_dir():
            algorithms += map(type, read_experiment(Path(name)).algorithms.values())
        else:
            algorithms.append(names.find_class("algorithm", name))
    papers = [entry for algorithm in algorithms for entry in papers_of(algorithm)]
    own = PAPERS[1].replace("VERSION", fedref.__version__)
    print(own, *dict.fromkeys(papers), sep="\n\n")
