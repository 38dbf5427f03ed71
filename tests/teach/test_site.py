"""The site that `fedref explain --html` writes: as files, and in a browser."""

import re
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest

from fedref import spec
from fedref.judge.errata import MISTAKES, TEXTS
from fedref.teach import pages, pictures, site, source, topics


class Page(HTMLParser):
    """A page's text, its links and ids; every element is closed, and every picture has its words."""

    def __init__(self, text):
        super().__init__()
        self.text, self.open, self.links, self.ids = text, [], [], []
        self.feed(text)
        self.headings = [int(level) for level in re.findall("<h([1-6])", text)]

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.links += [given[key] for key in ("href", "src") if key in given]
        self.ids += [given["id"]] if "id" in given else []
        assert tag != "img" or given["alt"]
        self.open += [tag] * (tag not in ("meta", "link", "br", "input", "img"))

    def handle_startendtag(self, tag, attributes):  # of a picture
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


class Pages(dict):
    """The site's pages, each made when it is first read."""

    def __missing__(self, file):
        name = file.removesuffix(".html")
        self[file] = Page(site.page_html(pages.PAGES[name](), name))
        return self[file]


@pytest.fixture(scope="module")
def read():
    return Pages()


def check_page(name, read, files):
    """Check a page's elements, headings and links: to these files, and to places of pages that were read."""
    page = read[name]
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids), name
    for link in page.links:
        file, _, place = link.partition("#")
        if not link.startswith(("data:", "https://")):
            assert (file or name) in files, link
            other = read.get(file or name)  # of a picture it is a part
            assert not place or other is None or place in other.ids, link
    assert ", https://arxiv" not in page.text, name  # an address is a link
    assert page.headings.count(1) == page.headings[0] == 1, name
    assert np.diff([1, *page.headings]).max() <= 1, name
    slider = "class=slider" in page.text  # a script stands there, and nowhere else
    assert page.text.count("<script") == slider, name
    assert slider or "http://www.w3.org" not in page.text


@pytest.mark.parametrize(
    "name", ["index.html", "per_fedavg.html", "fedprox.html", "equations.html"]
)
def test_links_elements_and_headings_of_some_pages(name, read):
    made = {f"{page}.html" for page in pages.PAGES} | {f"{name}.svg" for name in pictures.PICTURES}
    check_page(name, read, made | {"style.css"})


@pytest.mark.slow
def test_links_elements_and_headings(built):
    read = {path.name: Page(path.read_text("utf-8")) for path in built.glob("*.html")}
    for name in read:
        check_page(name, read, {path.name for path in built.iterdir()})
    seen, new = set(), {"index.html"}
    while new:  # every page is reached from the first
        seen |= new
        links = {link.partition("#")[0] for name in new for link in read[name].links}
        new = {link for link in links if link.endswith(".html")} - seen
    assert seen == set(read)
    assert len(seen) > 17
    assert sum(path.stat().st_size for path in built.iterdir()) < 3_600_000


@pytest.mark.parametrize(
    "some", [slice(1, 3), pytest.param(slice(1, None), marks=pytest.mark.slow)]
)
def test_an_algorithm_s_page_has_its_parts_in_order(some, read):
    parts = [
        "The algorithm", "Derivation", "Two clients", "Equation by equation", "Worked example",
        "Known mistakes", "Decisions", "What <code>fedref check</code> proves", "Exercise",
    ]  # fmt: skip
    for module in source.modules()[some]:
        shown = re.findall("<h2.*?>(.*?)</h2>", read[f"{source.page_name(module)}.html"].text)
        assert shown == [part for part in parts if part in shown]
        assert {"The algorithm", "Two clients", "Worked example", "Decisions"} <= set(shown)
    assert re.findall("<h2.*?>(.*?)</h2>", read["per_fedavg.html"].text) == parts


def test_every_equation_is_whole_and_every_tag_has_its_line(read):
    text = read["equations.html"].text
    typeset = [equation for equation in source.equations() if equation.formula]
    assert re.findall("class=tag>(.*?)</span>", text) == [f"[{e.tag}]" for e in typeset]
    assert text.count("<mo>=</mo>") == sum(bool(e.left) for e in typeset)
    listed = dict(re.findall(r"  \[(.+?)\] +(\S.*)", "\n".join(topics.list_topics())))
    assert set(listed) == set(topics.topics()["equations"])
    for tag, places in listed.items():
        for file, number in re.findall(r"(fedref/\S+):(\d+)", places):
            line = (source.ROOT / file).read_text("utf-8").splitlines()[int(number) - 1]
            assert tag.split()[-1].split(".")[-1] in line or "–" in line, (file, number)
    assert read["spec.html"].text.count("<h2") == len(source.spec_sections()) == 18


def test_where_an_original_has_an_equation_is_said_or_that_nobody_looked(read):
    tags = [f"{paper} {number}" for paper, rows in pages.CONCORDANCE.items() for number in rows]
    assert {*tags} <= {*source.tag_lines()}
    assert len(tags) >= 20
    assert "Algorithm 1: a step is line 10" in topics.explain("scaffold alg.1")
    assert "In the original paper: not looked up." in read["equations.html"].text


def test_a_mistake_s_right_lines_are_the_specification_s():
    code = {line.strip() for line in TEXTS[spec].splitlines()}
    for name in MISTAKES:
        shown = [line for line in pages.correction(name).splitlines() if line[0] != "#"]
        wrong, right = ({line[1:].strip() for line in shown if line[0] == sign} for sign in "-+")
        assert right <= code
        assert wrong != right or not shown
    assert sum(pages.correction(name) == "" for name in MISTAKES) < len(MISTAKES) / 4


@pytest.mark.slow
def test_some_runs_with_a_mistake_look_healthy_and_the_page_says_how_many(read):
    text = read["mistakes.html"].text
    rows = re.findall(r"^<td>(\d\.\d{4})</td>\n<td>(\d\.\d{4})</td>$", text, re.MULTILINE)
    healthy = sum(float(wrong) <= float(right) for right, wrong in rows)
    assert all(right != wrong for right, wrong in rows)
    assert 0 < healthy < len(rows) == len(pages.RUNS)
    assert f"{healthy} of {len(rows)} test losses" in text


STYLE = (files("fedref.teach") / "style.css").read_text("utf-8")
#: Name → colour, of the light page and of the dark one.
PALETTES = [
    dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", block))
    for block in re.findall(r":root\s*\{(.*?)\}", STYLE, re.DOTALL)
]


def rgb(colour):
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])


def luminance(colour):
    """Of #rrggbb, as WCAG 2 defines it."""
    x, shares = rgb(colour) / 255, np.array([0.2126, 0.7152, 0.0722])
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4) @ shares


@pytest.mark.parametrize("palette", PALETTES, ids=["light", "dark"])
def test_contrast_is_aa(palette):
    for ground, inks in (("paper", "wrong right"), ("soft", "wrong right"), ("mark", "")):
        for ink in ["ink", "comment", "string", "link", *inks.split()]:
            dark, light = sorted((luminance(palette[ink]), luminance(palette[ground])))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


def test_rounds_stand_one_below_the_other_on_a_phone(read):
    """Three rounds and two halves of the legend: parts of the one picture, or of the slider's."""
    assert read["fedavg.html"].text.count('src="rounds-fedavg.svg#svgView(viewBox(') == 5
    slider = read["fedprox.html"].text
    assert slider.count('<use href="#rounds"/>') == 5
    assert slider.count('id="rounds"') == 1
