"""The pages for users, taken apart into their code and their text."""

import re

from running import ROOT

#: page → its text. Commands, snippets and links of all of them are tested.
NAMES = ("README.md", "fedref/README.md", "data/README.md")
PAGES = {name: (ROOT / name).read_text("utf-8") for name in NAMES}
README, EXTEND, _ = PAGES.values()
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return [code for kind, code in FENCED.findall(text) if kind == language]


ALL = "\n".join(PAGES.values())
SHELL, PYTHON = blocks(ALL, "sh"), blocks(ALL, "python")
PROSE = FENCED.sub("", ALL)
#: file → its snippet: one whose first line is a comment with the file's name.
FILES = {text.split()[1]: text for text in PYTHON if re.match(r"# \w+\.py\n", text)}
