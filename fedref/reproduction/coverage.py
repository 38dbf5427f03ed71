"""What of the papers is reproduced: the table that README.md of the results begins with.

`papers.toml` beside the reproductions names every table, figure and claim, with the section that is
about it. A verdict is read off that section's table.md, from the lines that `claim` writes, and so
cannot differ from it.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from fedref.errors import DataError
from fedref.reproduction.tables import markdown

#: A line of a table.md that judges a claim: whether it holds, and its words.
JUDGED = re.compile(r"^- (Holds|Does not hold)[^*\n]*\*(.+?)\*[;:.]", re.MULTILINE)

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
        text = written(out, item.get("section", ""))
        rows.append([item["paper"], item["what"], link(text), verdict(item, text)])
    return markdown(rows, left=4) if len(rows) > 1 else ""


def written(out: Path, section: str) -> str:
    """A section's table.md, or nothing where it was not made."""
    path = out / section / "table.md"
    return path.read_text("utf-8") if section and path.exists() else ""


def verdict(item: dict[str, Any], text: str) -> str:
    """In words: how often a claim holds, what is shown, or why there is nothing."""
    if "because" in item:
        return f"not here: {item['because']}"
    if not text or item.get("data", "") not in text:
        return f"not run here: `fedref reproduce {item['section']}`"
    if "shows" in item:
        return str(item["shows"])
    judged = [
        holds == "Holds" for holds, words in JUDGED.findall(text) if words.startswith(item["claim"])
    ]
    if not judged:
        return "not judged in the results at hand"
    if len(judged) == 1:
        return "holds" if judged[0] else "does not hold"
    if sum(judged) in (0, len(judged)):
        return f"{'holds' if all(judged) else 'does not hold'} ({len(judged)} places)"
    return f"holds in {sum(judged)} of {len(judged)} places"


def link(text: str) -> str:
    """To the heading of a section in the README that gathers them, as GitHub makes its anchors."""
    if not text:
        return "–"
    title = text.partition("\n")[0].removeprefix("# ").strip()
    anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    return f"[{title}](#{anchor})"
