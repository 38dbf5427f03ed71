"""`fedref cite`: BibTeX of the papers that the algorithms' docstrings cite."""

import re

import pytest
from running import TINY, main, refused, write

from fedref.algorithms import ALGORITHMS
from fedref.algorithms.apfl import APFL
from fedref.lab.commands.cite import papers_of, read_papers


def cited(capsys, *words) -> list[str]:
    """Return the keys of the entries that the command prints."""
    assert main("cite", *words) == 0
    return re.findall(r"^@\w+\{(\w+),$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_a_paper(name):
    papers = papers_of(ALGORITHMS[name])
    assert papers
    for key, entry in papers.items():
        assert re.fullmatch(r"[a-z]+(19|20)\d\d[a-z]+", key)
        assert re.fullmatch(r"@\w+\{\w+,\n(  \w+ = \{.+\},\n)+\}", entry)
        assert entry.count("{") == entry.count("}")
        assert {"author", "title", "year"} <= set(re.findall(r"^  (\w+) =", entry, re.MULTILINE))


def test_each_form_of_a_citation():
    text = """A title. MAML: Agüera y Arcas, Mor-Yosef, *SGD: it is
    learnt*, Sci Sin Inform 52 (2022) 2306–2320. Li, *Two*, arXiv:2003.13461, 2020: Two. Ho, *Of*,
    NeurIPS workshop 2019; *not* this, *nor* that 2020. Mc, *No venue*, 2017."""
    article, preprint, talk, bare = read_papers(text).values()
    assert article == (
        "@article{aguerayarcas2022sgd,\n"
        "  author = {{Agüera y Arcas} and Mor-Yosef},\n"
        "  title = {{SGD: it is learnt}},\n"
        "  journal = {Sci Sin Inform},\n"
        "  volume = {52},\n"
        "  year = {2022},\n"
        "  pages = {2306--2320},\n"
        "}"
    )
    assert preprint.startswith("@misc{li2020two,\n")
    assert "eprint = {2003.13461},\n  year = {2020},\n  archiveprefix = {arXiv}" in preprint
    assert talk.startswith("@inproceedings{ho2019of,\n")
    assert "booktitle = {NeurIPS workshop}" in talk
    assert bare == "@misc{mc2017no,\n  author = {Mc},\n  title = {{No venue}},\n  year = {2017},\n}"


def test_a_paper_is_printed_once_after_fedref_itself(capsys):
    words = ("per-fedavg", "apfl", "per-fedavg-hf")
    assert cited(capsys, *words) == ["fedref", "fallah2020personalized", "ni2022adaptive"]
    assert len(cited(capsys)) == 1 + len({k for c in ALGORITHMS.values() for k in papers_of(c)})


def test_a_run_directory_names_its_algorithms(here, capsys):
    table = {**TINY, "rounds": 1, "algorithms": {"curv": {"algorithm": "fedcurv"}, "fedprox": {}}}
    assert main("run", write(here / "a.toml", table), "--out", "a", "--quiet") == 0
    capsys.readouterr()
    assert cited(capsys, "a") == ["fedref", "shoham2019overcoming", "li2020federated"]


def test_an_algorithm_without_papers_has_those_of_its_base(capsys, monkeypatch):
    class Mine(APFL):
        """An APFL of one's own."""

    assert papers_of(Mine) == papers_of(ALGORITHMS["apfl"])
    monkeypatch.setattr("sys.flags", type("", (), {"optimize": 2}))
    assert "python -OO drops" in refused(capsys, "cite")
