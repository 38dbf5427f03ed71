"""`fedref cite`: the papers behind algorithms or a run as BibTeX, from the docstrings."""

import re
import sys
import unicodedata
from pathlib import Path

import fedref
from fedref.algorithm import AnyAlgorithm
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError
from fedref.lab.experiments import names
from fedref.lab.experiments.config import read_experiment

#: A citation: "Authors, *Title*, VENUE YEAR", where authors are surnames. The venue may be missing;
#: instead of "VENUE YEAR" there may be "arXiv:ID, YEAR" or "JOURNAL VOLUME (YEAR) PAGES".
CITATION = re.compile(
    r"(?P<authors>(?:[^\W\d_][^.,:;*]*, )+)\*(?P<title>[^*]+)\*, "
    r"(?:arXiv:(?P<eprint>[\d.]+), |(?P<journal>[^.,:;]+) (?P<volume>\d+) \(|(?P<booktitle>[^.,:;]+?) )?"
    r"(?P<year>(?:19|20)\d\d)\b(?:\) (?P<pages>[\d–]+))?"
)
FEDREF = f"""\
@misc{{fedref,
  author = {{{{The fedref authors}}}},
  title = {{{{fedref: the reference implementation of personalised and heterogeneous federated learning}}}},
  note = {{Version {fedref.__version__}}},
}}"""


def read_papers(docstring: str) -> dict[str, str]:
    """Return {key: BibTeX entry} for each paper that a docstring cites by authors, title and year."""
    entries = {}
    for cited in CITATION.finditer(" ".join(docstring.split())):
        paper = {name: text for name, text in cited.groupdict().items() if text}
        authors = paper.pop("authors").removesuffix(", ").split(", ")
        first_word = re.split(r"\W", paper["title"])[0]
        key = unicodedata.normalize("NFKD", f"{authors[0]}{paper['year']}{first_word}".lower())
        key = re.sub(r"[^a-z0-9]", "", key)
        kind = next((k for k in ("journal", "booktitle") if k in paper), "")
        entry = {"journal": "article", "booktitle": "inproceedings", "": "misc"}[kind]
        fields = {
            "author": " and ".join(f"{{{name}}}" if " " in name else name for name in authors),
            **paper,
            "title": f"{{{paper['title']}}}",  # keeps its capitals
        }
        if "pages" in paper:
            fields["pages"] = paper["pages"].replace("–", "--")
        if "eprint" in paper:
            fields["archiveprefix"] = "arXiv"
        lines = "".join(f"  {name} = {{{text}}},\n" for name, text in fields.items())
        entries[key] = f"@{entry}{{{key},\n{lines}}}"
    return entries


def papers_of(algorithm: type[AnyAlgorithm]) -> dict[str, str]:
    """Return the papers that an algorithm's module cites, else those of its base classes' modules."""
    files = (sys.modules[cls.__module__].__doc__ or "" for cls in algorithm.__mro__)
    return next(filter(None, map(read_papers, files)), {})


def cite(*cited: str) -> None:
    """Print the papers behind algorithms or a run, and fedref itself, as BibTeX. Authors are surnames.

    cited : algorithms or run directories (default: all algorithms)
    """
    if sys.flags.optimize > 1:
        raise ConfigError("citations are docstrings, which python -OO drops: run it without -OO")
    algorithms: list[type[AnyAlgorithm]] = []
    for name in cited or ALGORITHMS:
        if name not in ALGORITHMS and Path(name).is_dir():
            algorithms += map(type, read_experiment(Path(name)).algorithms.values())
        else:
            algorithms.append(names.find_class("algorithm", name))
    papers: dict[str, str] = {}
    for algorithm in algorithms:
        papers |= papers_of(algorithm)
    print(FEDREF, *papers.values(), sep="\n\n")
