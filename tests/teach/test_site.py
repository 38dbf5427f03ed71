"""The site that `fedref explain --html` writes: as files, and in a browser."""

import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from browser import BROWSER, Browser

from fedref import spec
from fedref.teach import pages, source

VOID = ("meta", "link", "br", "input", "img")


class Page(HTMLParser):
    """Where a page points, what can be pointed at, its headings and pictures."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.open, self.headings, self.pictures = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links += [found[key] for key in ("href", "src") if key in found]
        self.ids += [found["id"]] if "id" in found else []
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []
        self.pictures += [found] if tag == "img" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


@pytest.fixture(scope="module")
def read(built):
    return {path.name: Page(path.read_text("utf-8")) for path in built.glob("*.html")}


def test_every_link_leads_somewhere_and_every_element_is_closed(built, read):
    assert len(read) > 17
    for name, page in read.items():
        assert page.open == []
        assert len(set(page.ids)) == len(page.ids)
        for link in page.links:
            if link.startswith("data:"):
                continue
            file, _, place = link.partition("#")
            assert (built / (file or name)).exists(), link
            assert not place or place in read[file or name].ids, link


def test_every_page_is_reached_from_the_first(read):
    seen, new = set(), {"index.html"}
    while new:
        seen |= new
        links = {link.partition("#")[0] for name in new for link in read[name].links}
        new = {link for link in links if link.endswith(".html")} - seen
    assert seen == set(read)


def test_headings_are_in_order_and_pictures_have_words(read):
    for name, page in read.items():
        assert page.headings.count(1) == 1, name
        steps = np.diff([1, *page.headings])
        assert page.headings[0] == 1
        assert steps.max() <= 1, name
        for picture in page.pictures:
            assert picture["alt"]


def test_the_site_is_small_and_asks_nothing_of_the_network(built):
    assert sum(path.stat().st_size for path in built.iterdir()) < 3_000_000
    for path in built.iterdir():
        text = path.read_text("utf-8")
        assert not re.search(r"(src|href)=.?https?:", text), path.name
        assert "<script" not in text


def test_an_algorithm_s_page_has_its_parts_in_order(built):
    parts = [
        "The algorithm", "Derivation", "Two clients", "Equation by equation", "Worked example",
        "Known mistakes", "Decisions", "What <code>fedref check</code> proves", "Exercise",
    ]  # fmt: skip
    for module in source.modules()[1:]:
        text = (built / f"{pages.page_name(module)}.html").read_text("utf-8")
        found = re.findall("<h2>(.*?)</h2>", text)
        assert found == [part for part in parts if part in found]
        assert {"The algorithm", "Two clients", "Worked example", "Decisions"} <= set(found)
    assert found == parts[:0] or len(found) >= 5
    assert re.findall("<h2>(.*?)</h2>", (built / "per_fedavg.html").read_text("utf-8")) == parts


def test_every_equation_is_whole(built):
    text = (built / "equations.html").read_text("utf-8")
    for equation in source.equations():
        assert f"[{equation.tag}]</a>" in text
    assert text.count("<mo>=</mo>") == sum(bool(e.left) for e in source.equations())


def test_every_tag_has_its_line():
    listed = dict(re.findall(r"  \[(.+?)\] +(\S.*)", "\n".join(pages.index())))
    assert set(listed) == set(pages.topics()["equations"])
    for tag, places in listed.items():
        for place in places.split("  "):
            file, _, number = place.partition(":")
            lines = (source.ROOT / file).read_text("utf-8").splitlines()
            near = lines[max(int(number.split()[0]) - 3, 0) :][:8]
            assert tag.split()[-1].split(".")[-1] in "".join(near), place


def luminance(colour):
    """Of #rrggbb, as WCAG 2 defines it."""
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a, b):
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


#: Name → colour, of the light page and of the dark one.
PALETTES = [
    dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", block))
    for block in re.findall(
        r":root\s*\{(.*?)\}", (files("fedref.teach") / "style.css").read_text("utf-8"), re.DOTALL
    )
]


@pytest.mark.parametrize("palette", PALETTES, ids=["light", "dark"])
def test_contrast_is_aa(palette):
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for ground in ("paper", "soft", "mark"):
        for text in ("ink", "comment", "string", "link"):
            assert contrast(palette[text], palette[ground]) >= 4.5, (text, ground)
    for ground in ("paper", "soft"):
        for line in ("c0", "c1", "c2", "c3"):  # graphics
            assert contrast(palette[line], palette[ground]) >= 3, (line, ground)


# ---- in a browser --------------------------------------------------------------------------------

DESK, PHONE = 1200, 390


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if BROWSER is None:
        pytest.skip("no Chromium")
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


#: Elements that reach out of the page to the right, and do not scroll within something.
WIDE = """[...document.querySelectorAll("main *")].filter((e) => {
  if (e.closest("svg, math, details:not([open]) > :not(summary)")) return false;
  for (let up = e.parentElement; up; up = up.parentElement)
    if (["auto", "hidden"].includes(getComputedStyle(up).overflowX) && up !== document.body) return false;
  return e.getBoundingClientRect().right > innerWidth + 1;
}).map((e) => e.outerHTML.slice(0, 80))"""
#: Text that is smaller than 11 pixels.
TINY = """[...document.querySelectorAll("main *")].filter((e) => !e.closest("math, svg")
  && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())
  && parseFloat(getComputedStyle(e).fontSize) < 11).map((e) => e.outerHTML.slice(0, 80))"""
#: Formulae and pictures that take no room.
EMPTY = """[...document.querySelectorAll("math, img, figure svg")].filter((e) => {
  if (e.closest("details:not([open])")) return false;
  const box = e.getBoundingClientRect();
  return box.width < 3 || box.height < 3 || (e.tagName === "IMG" && !e.naturalWidth);
}).map((e) => e.outerHTML.slice(0, 80))"""
#: What scrolls must be reached by the keyboard.
UNREACHED = """[...document.querySelectorAll("main *")].filter((e) => e.scrollWidth > e.clientWidth + 1
  && ["auto", "scroll"].includes(getComputedStyle(e).overflowX) && e.tabIndex < 0
  && !e.querySelector("[tabindex='0']")).map((e) => e.outerHTML.slice(0, 80))"""


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [DESK, PHONE], ids=["desk", "phone"])
def test_every_page_in_a_browser(browser, built, width, dark):
    browser.look(width, dark=dark)
    for path in sorted(built.glob("*.html")):
        browser.go(path)
        assert browser.complaints == [], path.name
        assert all(url.startswith(("file:", "data:")) for url in browser.requests)
        assert browser.run("document.documentElement.scrollWidth") <= width, path.name
        for script in (WIDE, TINY, EMPTY, UNREACHED):
            assert browser.run(script) == [], path.name
        paper = PALETTES[dark]["paper"]
        rgb = ", ".join(str(int(paper[i : i + 2], 16)) for i in (1, 3, 5))
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        assert browser.run(ground) == f"rgb({rgb})"


@pytest.mark.slow
def test_the_first_tab_skips_to_the_page(browser, built):
    browser.look(DESK)
    browser.go(built / "apfl.html")
    assert browser.run("document.querySelector('.skip').getBoundingClientRect().right") <= 0
    browser.press_tab()
    assert browser.run("document.activeElement.getAttribute('href')") == "#main"
    assert browser.run("document.activeElement.getBoundingClientRect().left") >= 0


@pytest.mark.slow
def test_in_print_nothing_is_folded_or_cut_off(browser, built):
    browser.look(700, dark=True, media="print")
    for name in ("per_fedavg", "mistakes"):
        browser.go(built / f"{name}.html")
        assert browser.run("getComputedStyle(document.querySelector('header')).display") == "none"
        folded = """[...document.querySelectorAll("details > :not(summary)")].filter(
          (e) => !e.checkVisibility()).length"""
        assert browser.run(folded) == 0
        cut = """[...document.querySelectorAll("pre")].filter(
          (e) => e.scrollWidth > e.clientWidth + 1).length"""
        assert browser.run(cut) == 0
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        assert browser.run(ground) == "rgb(255, 255, 255)"


def test_the_specification_has_contents(built):
    page = (built / "spec.html").read_text("utf-8")
    assert page.count("<section") == Path(spec.__file__).read_text("utf-8").count("\n# ---- ")
