"""`fedref cite`: BibTeX of the papers behind algorithms, the same that their files cite."""

import re
import sys

import pytest
from running import TINY, main, write

from fedref.algorithms import ALGORITHMS
from fedref.lab.commands.cite import papers_of


def cited(capsys, *words) -> list[str]:
    """Return the keys of the entries that the command prints."""
    assert main("cite", *words) == 0
    return re.findall(r"^@\w+\{(\w+),$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_paper_has_an_entry_and_a_link_in_the_algorithm_s_file(name):
    docstring = sys.modules[ALGORITHMS[name].__module__].__doc__
    entries = papers_of(ALGORITHMS[name])
    links = set()
    for entry in entries:
        assert re.fullmatch(r"@\w+\{[a-z]+(19|20)\d\d[a-z]+,\n(  \w+ = \{.+\},\n)+\}", entry)
        assert entry.count("{") == entry.count("}")
        fields = dict(re.findall(r"^  (\w+) = \{(.+)\},$", entry, re.MULTILINE))
        assert {"author", "title", "year"} <= fields.keys()
        links.add(fields["url"])
    assert links == {link.rstrip(".,:;") for link in re.findall(r"https://\S+", docstring)} != set()


def test_a_paper_is_printed_once_after_fedref_itself(capsys):
    words = ("per-fedavg", "apfl", "per-fedavg-hf")
    assert cited(capsys, *words) == ["fedref", "fallah2020personalized", "ni2022adaptive"]
    assert len(cited(capsys)) == 1 + len({e for cls in ALGORITHMS.values() for e in papers_of(cls)})


def test_a_run_directory_names_its_algorithms(here, capsys):
    table = {**TINY, "rounds": 1, "algorithms": {"curv": {"algorithm": "fedcurv"}, "fedprox": {}}}
    assert main("run", write(here / "a.toml", table), "--out", "a", "--quiet") == 0
    capsys.readouterr()
    assert cited(capsys, "a") == ["fedref", "shoham2019overcoming", "li2020federated"]
