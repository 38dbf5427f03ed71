"""The site that `fedref explain --html` writes: as files, and in a browser."""

import re
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
from browser import BROWSER, Browser

from fedref import spec
from fedref.conformance.errata import MISTAKES, TEXTS
from fedref.teach import pages, pictures, source, topics


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


@pytest.fixture(scope="module")
def read(built):
    return {path.name: Page(path.read_text("utf-8")) for path in built.glob("*.html")}


def test_links_elements_and_headings(built, read):
    for name, page in read.items():
        assert page.open == []
        assert len(set(page.ids)) == len(page.ids), name
        for link in page.links:
            file, _, place = link.partition("#")
            if not link.startswith("data:"):
                assert (built / (file or name)).exists(), link
                assert not place or place in read[file or name].ids, link
        assert page.headings.count(1) == page.headings[0] == 1, name
        assert np.diff([1, *page.headings]).max() <= 1, name
        slider = "class=slider" in page.text  # a script stands there, and nowhere else
        assert page.text.count("<script") == slider, name
        assert slider or "http://www.w3.org" not in page.text
    seen, new = set(), {"index.html"}
    while new:  # every page is reached from the first
        seen |= new
        links = {link.partition("#")[0] for name in new for link in read[name].links}
        new = {link for link in links if link.endswith(".html")} - seen
    assert seen == set(read)
    assert len(seen) > 17
    assert sum(path.stat().st_size for path in built.iterdir()) < 3_200_000


def test_an_algorithm_s_page_has_its_parts_in_order(read):
    parts = [
        "The algorithm", "Derivation", "Two clients", "Equation by equation", "Worked example",
        "Known mistakes", "Decisions", "What <code>fedref check</code> proves", "Exercise",
    ]  # fmt: skip
    for module in source.modules()[1:]:
        shown = re.findall("<h2.*?>(.*?)</h2>", read[f"{pages.page_name(module)}.html"].text)
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


def test_the_first_page_has_an_order_and_every_symbol(read):
    text = read["start.html"].text
    order = ["fedavg", "fedprox", "per_fedavg", "fedmeta", "fedcurv", "apfl"]
    places = [text.index(f'href="{name}.html"') for name in order]
    assert places == sorted(places)
    for name in ("theta", "D1", "client.data", "f.grad(w, D)", "f.hvp(w, v, D)", "beta", "lam"):
        assert name in text.partition("Symbols")[2]


def test_a_mistake_s_right_lines_are_the_specification_s():
    code = {line.strip() for line in TEXTS[spec].splitlines()}
    for name in MISTAKES:
        shown = [line for line in pages.correction(name).splitlines() if line[0] != "#"]
        wrong, right = ({line[1:].strip() for line in shown if line[0] == sign} for sign in "-+")
        assert right <= code
        assert wrong != right or not shown
    assert sum(pages.correction(name) == "" for name in MISTAKES) < len(MISTAKES) / 4


def test_some_runs_with_a_mistake_look_healthy_and_the_page_says_how_many(read):
    losses = [pages.losses(name) for name in pages.RUNS]
    healthy = sum(wrong <= right for right, wrong in losses)
    assert 0 < healthy < len(losses)
    assert all(right != wrong for right, wrong in losses)
    assert f"{healthy} of {len(losses)} test losses" in read["mistakes.html"].text


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
    x = rgb(colour) / 255
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4) @ [
        0.2126,
        0.7152,
        0.0722,
    ]


@pytest.mark.parametrize("palette", PALETTES, ids=["light", "dark"])
def test_contrast_is_aa(palette):
    for ground in ("paper", "soft", "mark"):
        for name in (
            "ink",
            "comment",
            "string",
            "link",
            *(["wrong", "right"] * (ground != "mark")),
        ):
            dark, light = sorted((luminance(palette[name]), luminance(palette[ground])))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, ground)


# ---- in a browser --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if BROWSER is None:
        pytest.skip("no Chromium")
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


#: What reaches out of the page and does not scroll; text below 11 pixels; formulae and pictures that take
#: no room; what scrolls and cannot be reached by the keyboard.
FAULTS = """[...document.querySelectorAll("main *")].filter((e) => {
  if (e.closest("svg, details:not([open]) > :not(summary)")) return false;
  const box = e.getBoundingClientRect(), style = getComputedStyle(e);
  if (e.matches("math, img")) return box.width < 3 || box.height < 3 || e.naturalWidth === 0;
  if (e.closest("math")) return false;
  const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  if (text && parseFloat(style.fontSize) < 11) return true;
  const scrolls = ["auto", "scroll"].includes(style.overflowX) && e.scrollWidth > e.clientWidth + 1;
  if (scrolls && e.tabIndex < 0 && !e.querySelector("[tabindex='0']")) return true;
  for (let up = e.parentElement; up; up = up.parentElement)
    if (["auto", "hidden"].includes(getComputedStyle(up).overflowX) && up !== document.body) return false;
  return box.right > innerWidth + 1;
}).map((e) => e.outerHTML.slice(0, 80))"""


#: Which frames of a slider are seen, and what they hold; how its knob is moved.
FRAMES = """(() => {
  const seen = [...document.querySelectorAll(".frame")].filter((x) => x.getBoundingClientRect().width > 0);
  return [[...new Set(seen.map((x) => x.dataset.frame))], seen.map((x) => x.innerHTML).join()];
})()"""
MOVE = """(() => {{ const knob = document.querySelector("figure.slider input");
  knob.value = {}; knob.dispatchEvent(new Event("input")); }})()"""


@pytest.mark.parametrize("page", pictures.SLIDERS)
def test_a_slider_shows_one_frame_after_another(browser, built, page):
    count, shown = len(pictures.SLIDERS[page].values), set()
    browser.look(1280)
    browser.go(built / f"{page}.html")
    for place, move in ((count // 2, ""), (0, MOVE.format(0)), (count - 1, MOVE.format(count - 1))):
        browser.run(move)
        frames, picture = browser.run(FRAMES)
        assert frames == [str(place)]
        shown.add(picture)
    assert len(shown) == 3
    assert browser.complaints == []
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    browser.go(built / f"{page}.html")
    browser.ask("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.run(FRAMES)[0] == [str(count // 2)]
    assert browser.run("document.querySelector('figure.slider label').hidden")


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "phone"])
def test_every_page_in_a_browser(browser, built, width, dark):
    browser.look(width, dark=dark)
    paper = f"rgb({', '.join(map(str, rgb(PALETTES[dark]['paper'])))})"
    for path in sorted(built.glob("*.html")):
        browser.go(path)
        assert browser.complaints == [], path.name
        assert all(url.startswith(("file:", "data:")) for url in browser.requests)
        assert browser.run("document.documentElement.scrollWidth") <= width, path.name
        assert browser.run(FAULTS) == [], path.name
        assert browser.run("getComputedStyle(document.documentElement).backgroundColor") == paper


@pytest.mark.slow
def test_the_keyboard_and_the_printer(browser, built):
    browser.look(1280)
    browser.go(built / "apfl.html")
    for kind in ("rawKeyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key="Tab", windowsVirtualKeyCode=9)
    assert browser.run("document.activeElement.getAttribute('href')") == "#main"
    assert browser.run("document.activeElement.getBoundingClientRect().left") >= 0
    browser.look(700, dark=True, media="print")
    for name in ("per_fedavg", "mistakes"):
        browser.go(built / f"{name}.html")
        cut = "[...document.querySelectorAll('pre')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
        assert browser.run(cut) == 0
