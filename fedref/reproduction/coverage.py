"""What of the papers is reproduced: the table that README.md of the results begins with.

`papers.toml` beside the reproductions names every table, figure and claim, with the section that is
about it. A verdict is read off that section's table.md, from the lines that `claim` writes, and so
cannot differ from it.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from fedref.boundary.errors import DataError
from fedref.reproduction.tables import markdown

#: A line of a table.md that judges a claim or says why not: verdict, rule, and the claim's words.
JUDGED = re.compile(
    r"^- (Holds|Does not hold|Not judged)(?: \(([^)]*)\))?: \*(.+?)\*[;:.]", re.MULTILINE
)

KEYS = {"paper", "what", "section", "claim", "shows", "data", "because"}


def items(root: Path) -> list[dict[str, Any]]:
    """What papers.toml lists; nothing where there is none."""
    path = root / "papers.toml"
    if not path.exists():
        return []
    found: list[dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))["item"]
    for item in found:
        ways = {"because", "claim", "shows"} & item.keys()
        if set(item) - KEYS or not {"paper", "what"} <= set(item) or len(ways) != 1:
            raise DataError(
                f"{path}: {item} is not understood, expected paper, what, and either section with "
                "claim or shows, or because"
            )
    return found


def table(root: Path, out: Path) -> str:
    """The Markdown table of everything in papers.toml, with verdicts from OUT/SECTION/table.md."""
    rows = [["paper", "table, figure or claim", "section", "verdict"]]
    for item in items(root):
        texts = [written(out, section) for section in sections(item)]
        links = ", ".join(link(text) for text in texts if text)
        rows.append([item["paper"], item["what"], links or "–", verdict(item, "\n".join(texts))])
    return markdown(rows, left=4) if len(rows) > 1 else ""


def sections(item: dict[str, Any]) -> list[str]:
    """Those that are about it: a claim may be judged in several."""
    found = item.get("section", [])
    return [found] if isinstance(found, str) else list(found)


def written(out: Path, section: str) -> str:
    """A section's table.md, or nothing where it was not made."""
    path = out / section / "table.md"
    return path.read_text("utf-8") if path.exists() else ""


def verdict(item: dict[str, Any], text: str) -> str:
    """In words: how often a claim holds, what is shown, or why there is nothing."""
    if "because" in item:
        return f"not here: {item['because']}"
    if not text.strip() or item.get("data", "") not in text:
        return f"not run here: `fedref reproduce {' '.join(sections(item))}`"
    if "shows" in item:
        return str(item["shows"])
    found = [line for line in JUDGED.findall(text) if line[2].startswith(item["claim"])]
    judged = [(said == "Holds", rule) for said, rule, _ in found if said != "Not judged"]
    if not judged:
        return "not judged" if found else "not judged in the results at hand"
    held, places = sum(holds for holds, _ in judged), len(judged)
    words = "holds" if held else "does not hold"
    if 0 < held < places:
        words += f" in {held} of {places} places"
    elif places > 1:
        words += f" ({places} places)"
    once = sum(rule.startswith("one seed") for _, rule in judged)
    if once:
        words += "; one seed" if once == places else f"; {once} of them with one seed"
    if len(found) > places:
        words += f"; {len(found) - places} not judged"
    return words


def link(text: str) -> str:
    """To the heading of a section in the README that gathers them, as GitHub makes its anchors."""
    title = text.partition("\n")[0].removeprefix("# ").strip()
    anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    return f"[{title}](#{anchor})"
