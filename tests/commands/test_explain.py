"""`fedref explain`, as a user types it, and the site that it writes."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from running import main, refused

from fedref.algorithms import ALGORITHMS
from fedref.explain import figure, pages, site, source
from fedref.models import MODELS


@pytest.mark.parametrize("topic", [*ALGORITHMS, *MODELS])
def test_every_algorithm_and_model_is_explained(topic, capsys):
    assert main("explain", topic) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) > 8


@pytest.mark.parametrize("tag", sorted({equation.tag for equation in source.equations()}))
def test_every_tag_is_explained_with_its_line(tag, capsys):
    assert main("explain", *tag.split()) == 0
    out = capsys.readouterr().out
    for equation in source.equations():
        if equation.tag == tag:
            assert f"[{tag}]" in out
            assert equation.formula in out
            assert re.search(rf"fedref/.*\.py:{equation.line}\b", out)
            assert equation.code.splitlines()[0].strip() in out


def test_eq_6_with_its_numbers(capsys):
    """u and the meta-gradient as they come out by hand, to four digits."""
    assert main("explain", "per-fedavg eq.6") == 0
    out = capsys.readouterr().out
    sigma = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    X = [np.array(x) for x in ([[1, 2], [-1, 1], [2, 0]], [[0, 1], [1, 1], [-2, 1]])]
    y = [np.array([1, 0, 1]), np.array([1, 1, 0])]
    w = np.array([0.5, -0.25])
    inner = w - 0.5 * X[0].T @ (sigma(X[0] @ w) - y[0]) / 3
    u = X[1].T @ (sigma(X[1] @ inner) - y[1]) / 3
    assert f"u = {pages.shown(u)}" in out
    assert "w = (0.5, -0.25)" in out


def test_the_list_names_every_topic(capsys):
    assert main("explain", "--list") == 0
    listed = {line.strip() for line in capsys.readouterr().out.splitlines()}
    assert {*ALGORITHMS, *MODELS, "per-fedavg eq.6", "apfl eq.3"} <= listed


def test_wrong_topics_are_one_line(capsys):
    assert "did you mean 'fedprox'" in refused(capsys, "explain", "fedprx")
    assert "nothing to explain" in refused(capsys, "explain")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The site, as `--html` writes it."""
    folder = tmp_path_factory.mktemp("site")
    assert main("explain", "--html", folder) == 0
    return folder


class Links(HTMLParser):
    """Where a page points, and what can be pointed at."""

    def __init__(self):
        super().__init__()
        self.links, self.ids, self.open = [], set(), []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links += [found[key] for key in ("href", "src") if key in found]
        self.ids |= {found["id"]} if "id" in found else set()
        if tag not in ("meta", "link", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


def test_every_link_leads_somewhere_and_every_element_is_closed(built):
    read = {}
    for path in built.glob("*.html"):
        read[path.name] = Links()
        read[path.name].feed(path.read_text("utf-8"))
        assert read[path.name].open == []
    assert len(read) > 12
    for name, page in read.items():
        for link in page.links:
            file, _, place = link.partition("#")
            assert (built / (file or name)).exists(), link
            assert not place or place in read[file or name].ids, link


def test_the_site_is_small_and_asks_nothing_of_the_network(built):
    assert sum(path.stat().st_size for path in built.iterdir()) < 3_000_000
    for path in built.iterdir():
        assert not re.search(r"https?://(?!www\.w3\.org)", path.read_text("utf-8")), path.name


def test_every_formula_is_on_its_page(built):
    for equation in source.equations():
        text = (built / f"{site.page_name(equation)}.html").read_text("utf-8")
        assert f"[{equation.tag}]" in text
        assert text.count("<math") >= bool(equation.formula)


def test_where_nothing_can_be_written_is_one_line(capsys, tmp_path):
    (tmp_path / "file").write_text("x")
    assert "file" in refused(capsys, "explain", "--html", tmp_path / "file" / "site")


@pytest.mark.slow
def test_the_figure_has_python_s_numbers(built):
    """The page is opened in a browser; the paths it drew are those of the algorithms' functions."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium")
    page = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
         "--disable-background-networking", f"--user-data-dir={built / 'profile'}", "--dump-dom",
         (built / "per_fedavg.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    drawn = re.search(r'data-round="([^"]*)"', page)
    assert drawn is not None
    shown = json.loads(drawn[1].replace("&quot;", '"'))
    expected = figure.round_of("exact", figure.START)
    np.testing.assert_allclose(shown["mean"], expected["mean"], rtol=1e-12)
    np.testing.assert_allclose(shown["paths"], expected["paths"], rtol=1e-12)
