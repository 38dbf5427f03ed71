"""The site in a headless Chromium: one page opens the others in frames, and its text is what it found."""

import html
import json
import shutil
import subprocess

import pytest
from teach.test_site import PALETTES, rgb

from fedref.teach import pictures

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files "
    "--enable-logging=stderr --virtual-time-budget=600000 --dump-dom"
)
#: Opens a page in a frame, as wide and dark as asked for, and finds something there.
LOOK = """<body><script type=module>
async function show(page, width = 1280, dark = false, scripts = true) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 900px; color-scheme: ${dark ? "dark" : "light"}`;
  if (!scripts) frame.sandbox = "allow-same-origin";
  document.body.replaceChildren(frame);
  await new Promise((done) => { frame.onload = done; frame.src = page; });
  return [frame.contentDocument, frame.contentWindow.getComputedStyle, frame];
}
const found = {};
for (const page of PAGES) { SCRIPT }
document.body.textContent = JSON.stringify(found);
</script>"""


def look(folder, built, names, script):
    """Return what a script finds in each of the pages; the browser complains of nothing."""
    if BROWSER is None:
        pytest.skip("no Chromium")
    pages = json.dumps([(built / f"{name}.html").as_uri() for name in names])
    page = folder / "look.html"
    page.write_text(LOOK.replace("PAGES", pages).replace("SCRIPT", script), encoding="utf-8")
    words = [BROWSER, *FLAGS.split(), f"--user-data-dir={folder}", page.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert [line for line in said if "frame is sandboxed" not in line] == []
    return json.loads(html.unescape(done.stdout.partition("<body>")[2].partition("</body>")[0]))


SLIDER = """
  const seen = (d) => [...d.querySelectorAll(".frame")].filter((x) => x.getBoundingClientRect().width > 0);
  const [d] = await show(page), knob = d.querySelector("figure.slider input"), shown = [seen(d)];
  for (knob.value of [knob.min, knob.max]) { knob.dispatchEvent(new Event("input")); shown.push(seen(d)); }
  const [still] = await show(page, 1280, false, false);
  found[page] = [...shown, seen(still)].map((some) => some.map((x) => x.dataset.frame));
  found[page].push(new Set(shown.map((some) => some.map((x) => x.innerHTML).join())).size);
  found[page].push(still.querySelector("figure.slider label").hidden);
"""


@pytest.mark.slow
def test_a_slider_shows_its_frames_and_the_middle_one_without_its_script(tmp_path, built):
    found = look(tmp_path, built, pictures.SLIDERS, SLIDER).values()
    for slider, (*shown, different, hidden) in zip(pictures.SLIDERS.values(), found, strict=True):
        count = len(slider.values)
        expected = [{str(n)} for n in (count // 2, 0, count - 1, count // 2)]
        assert ([{*frames} for frames in shown], different, hidden) == (expected, 3, True)


#: What reaches out of the page and does not scroll; text below 11 pixels; formulae and pictures that take
#: no room, or a phone's that do on a desk; what scrolls and cannot be reached by the keyboard;
#: what the printer cuts off.
FAULTS = """
  for (const dark of [false, true]) for (const width of [1280, 390]) {
    const [d, style, frame] = await show(page, width, dark), skip = d.querySelector("a, [tabindex]");
    const faults = [...d.querySelectorAll("main *")].filter((e) => {
      if (e.closest("svg, details:not([open]) > :not(summary)")) return false;
      const box = e.getBoundingClientRect(), scrolls = e.scrollWidth > e.clientWidth + 1;
      if (e.closest(".parts") && width > 704) return box.width > 0; // a phone's, instead of the whole
      if (e.matches("math, img")) return box.width < 3 || box.height < 3 || e.naturalWidth === 0;
      if (e.closest("math")) return false;
      const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
      if (text && parseFloat(style(e).fontSize) < 11) return true;
      if (scrolls && ["auto", "scroll"].includes(style(e).overflowX) && e.tabIndex < 0
        && !e.querySelector("[tabindex='0']")) return true;
      for (let up = e.parentElement; up; up = up.parentElement)
        if (["auto", "hidden"].includes(style(up).overflowX) && up !== d.body) return false;
      return box.right > width + 1;
    });
    skip.focus();
    found[`${page} ${width} ${dark}`] = [skip.getAttribute("href"), skip.getBoundingClientRect().left >= 0,
      d.documentElement.scrollWidth <= width, style(d.documentElement).backgroundColor];
    for (const rule of [...d.styleSheets].flatMap((sheet) => [...sheet.cssRules]))
      if (rule.media) rule.media.mediaText = rule.media.mediaText === "print" ? "all" : "not all";
    frame.style.width = "700px";
    const cut = [...d.querySelectorAll("pre")].filter((e) => e.scrollWidth > e.clientWidth + 1);
    found[`${page} ${width} ${dark}`].push(...[...faults, ...cut].map((e) => e.outerHTML.slice(0, 80)));
  }
"""


@pytest.mark.slow
def test_every_page_on_a_desk_and_a_phone_light_and_dark_by_keyboard_and_in_print(tmp_path, built):
    found = look(tmp_path, built, sorted(path.stem for path in built.glob("*.html")), FAULTS)
    assert len(found) > 4 * 17
    for page, what in found.items():
        paper = ", ".join(map(str, rgb(PALETTES[page.endswith("true")]["paper"])))
        assert what == ["#main", True, True, f"rgb({paper})"], page
