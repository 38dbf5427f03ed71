"""The site that `fedref explain --html` writes: as files, and in a browser."""

import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from browser import BROWSER, Browser

from fedref import spec
from fedref.algorithms import ALGORITHMS, per_fedavg
from fedref.models import MODELS
from fedref.teach import figure, guide_pages, pages, site, source
from fedref.teach.markup import Sheet, prose

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


def test_every_algorithm_and_model_has_its_page(read):
    for name, cls in ALGORITHMS.items():
        assert name in read[f"{cls.__module__.rpartition('.')[2]}.html"].ids
    for name in MODELS:
        assert f"model-{name}.html" in read


def test_headings_are_in_order_and_pictures_have_words(read):
    for name, page in read.items():
        assert page.headings.count(1) == 1, name
        steps = np.diff([1, *page.headings])
        assert page.headings[0] == 1
        assert steps.max() <= 1, name
        for picture in page.pictures:
            assert picture["alt"]
            assert int(picture["width"]) <= 992  # as wide as the page


def test_the_site_is_small_and_asks_nothing_of_the_network(built):
    assert sum(path.stat().st_size for path in built.iterdir()) < 3_000_000
    for path in built.iterdir():
        assert not re.search(r"https?://(?!www\.w3\.org)", path.read_text("utf-8")), path.name
    assert len((built / "figure.js").read_text("utf-8").splitlines()) < 80


def test_every_formula_is_on_its_page(built):
    for equation in source.equations():
        text = (built / f"{site.page_name(equation.module)}.html").read_text("utf-8")
        assert f"[{equation.tag}]" in text
        assert text.count("<math") >= bool(equation.formula)


def test_a_model_s_formulae_are_on_its_page():
    said = {"logistic": 3, "binary-logistic": 3, "svm": 5, "mlp": 16, "cnn": 21, "lstm": 15}
    for name, count in said.items():
        text = site.model_sheet(name).body
        assert text.count("<math display") == text.count('class="tag"') == count, name
        assert text.count('class="line marked"') == count - (name == "svm") * 2, name


def test_every_decision_is_an_entry_of_its_own(built):
    text = (built / "fedavg.html").read_text("utf-8")
    decisions = text.partition("<h2>Decisions</h2>")[2]
    assert decisions.count("<li>") == 5
    assert "<li>with update. Per-FedAvg" in decisions
    assert "on a fresh batch of training rows; other" in decisions


def test_prose_marks_code_emphasis_and_subscripts():
    assert prose("*full* `w_s` of θ*_k, < 2") == (
        "<em>full</em> <code>w_s</code> of θ*<sub>k</sub>, &lt; 2"
    )
    assert prose("θ*_k and θ*_j, own_u") == "θ*<sub>k</sub> and θ*<sub>j</sub>, own_u"


def test_a_page_is_a_function(monkeypatch):
    monkeypatch.setitem(site.PAGES, "teacher", lambda: Sheet("Hello", "<h1>Hello</h1>"))
    monkeypatch.setitem(site.LINKS, "teacher", "Hello")
    assert site.all_pages()["teacher"]().title == "Hello"
    made = dict(site.site_files({name: site.PAGES[name] for name in ("index", "teacher")}))
    assert "<h1>Hello</h1>" in made["teacher.html"]
    assert 'href="teacher.html"' in made["index.html"]


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
@pytest.mark.parametrize("page", figure.FIGURES)
def test_the_figure_shows_python_s_numbers_for_every_algorithm_and_slider(browser, built, page):
    browser.look(DESK)
    browser.go(built / f"{page}.html")
    for k, variant in enumerate(figure.FIGURES[page]):
        if k:
            browser.run(SLIDE.format("select", k))
        sliders = figure.VARIANTS[variant][1]
        values = {name: figure.SLIDERS[name][2] for name in sliders}
        assert_shown(browser, variant, values)
        for i, name in enumerate(sliders):
            last = len(figure.SLIDERS[name][1]) - 1
            browser.run(SLIDE.format(f"[data-slider='{i}']", last))
            values[name] = figure.SLIDERS[name][1][last]
            assert_shown(browser, variant, values)
    assert browser.complaints == []


SLIDE = """{{const one = document.querySelector(".controls {}"); one.value = {};
one.dispatchEvent(new Event("input", {{bubbles: true}}));}}"""


def assert_shown(browser, variant, values):
    """The text says the numbers, the average has its place, and the paths have their length."""
    course = figure.run_variant(variant, values)
    t = list(values.values())[-1]
    said = browser.run("document.querySelector('figure.try figcaption p').textContent")
    numbers = [f"{x:.3f}" if abs(x) < 99 else "∞" for x in figure.as_json(course.numbers[t])]
    assert re.findall(r"-?\d+\.\d{3}|∞", said) == numbers
    place = "['cx', 'cy'].map((x) => document.querySelector('.mean circle')[x].baseVal.value)"
    x, y = figure.as_json(course.mean[t])
    wanted = [(x / 2.2 + 1) * 240, (1 - y / 2.2) * 240]
    np.testing.assert_allclose(browser.run(place), wanted, rtol=1e-6)
    assert browser.run("document.querySelectorAll('figure.try .dot circle').length") == 2 * t


@pytest.mark.slow
def test_a_symbol_is_reached_by_tab_and_marked_everywhere(browser, built):
    browser.look(DESK)
    browser.go(built / "per_fedavg.html")
    symbols = {row.symbol for row in source.symbols(per_fedavg)}
    reached, inside = set(), set()
    for _ in range(60):
        browser.press_tab()
        found = browser.run(
            """{const a = document.activeElement, s = a.dataset && a.dataset.symbol;
            s ? [s, ...["math", "pre", "td"].map((t) =>
              document.querySelectorAll(`${t} .same, ${t}.same, .same ${t}`).length),
              [...document.querySelectorAll(".same")].every((e) => e.dataset.symbol === s),
              a.closest("table") === null] : null}"""
        )
        if found:
            symbol, in_formula, in_code, in_table, alike, formula = found
            reached.add(symbol)
            inside |= {symbol} if formula else set()
            assert alike
            assert bool(in_table) == (symbol in symbols), symbol
            if symbol in ("w", "u", "α"):
                assert in_formula
                assert in_code
    assert symbols <= reached
    assert {"f", "w", "α", "g", "D"} <= inside  # eq.2, the first on the page


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


def test_the_specification_stands_beside_each_paper_s_code_with_the_proofs_between():
    page = site.PAGES["spec"]().body
    assert page.count("<section") == Path(spec.__file__).read_text("utf-8").count("\n# ---- ")
    for module in source.modules():
        name = site.page_name(module.__name__)
        assert (f'href="{name}.html"' in page) == hasattr(spec, name), name
    section = page.partition('id="spec-per_fedavg"')[2].partition("</section>")[0]
    ours, claims, by_hand = (
        section.index(text) for text in ("f.hvp(w, u, D2)", "proved equal: ", "model.hvp(w, u, D2)")
    )
    assert ours < claims < by_hand


def test_the_first_page_leads_to_every_topic(built, read):
    links = site.topic_links()
    assert set(links) == {name for names in pages.topics().values() for name in names} - {
        "mistakes"
    }
    assert list(links) == sorted(links, key=str.casefold)
    assert set(links.values()) <= set(read["index.html"].links)
    assert [name for name, _ in site.START] == [name for name in site.PAGES if name != "index"]


def test_the_backend_of_the_page_is_that_of_the_readme():
    assert guide_pages.BACKEND in (Path(__file__).parents[2] / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_the_list_of_topics_can_be_searched(browser, built):
    browser.look(DESK)
    browser.go(built / "index.html")
    browser.run(
        """{const find = document.getElementById("find"); find.value = "EQ.6";
        find.dispatchEvent(new Event("input"));}"""
    )
    shown = "[...document.querySelectorAll('#topics li')].filter((e) => !e.hidden).map((e) => e.innerText)"
    assert browser.run(shown) == ["apfl eq.6", "per-fedavg eq.6"]


@pytest.mark.slow
def test_code_does_not_scroll_sideways_on_a_phone(browser, built):
    browser.look(PHONE)
    for path in sorted(built.glob("*.html")):
        browser.go(path)
        wide = "[...document.querySelectorAll('pre')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
        assert browser.run(wide) == 0, path.name
