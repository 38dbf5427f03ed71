"""The English that readers meet: names, first lines of docstrings, and phrases that nobody says.

This keeps what a machine can keep; judgement keeps the rest.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import fedref

ROOT = Path(fedref.__file__).parents[1]
FILES = [p for folder in ("fedref", "reproduce") for p in sorted((ROOT / folder).rglob("*.py"))]
PAGES = [
    page
    for place in ("*.md", "data/**/*.md", "fedref/**/*.md", "reproduce/**/*.md")
    for page in sorted(ROOT.glob(place))
    if page.name != "CHANGELOG.md"
]

#: Participles, prepositions, pronouns, adverbs: as a whole name none says what a function does or
#: what a class is. Words that end in "ed" are participles too, these aside:
BARE = set(
    re.findall(
        r"\w+",
        """at by for from in into of off on onto out over to up above after before behind below beside between
    beyond through till under until upon with within without than or but if each every it its more most
    none one other own same some such that their them they this those what whatever where whether which
    whichever who whole whom whose how when why again ahead apart away enough forth further here late now
    often once only so then there thus together yet old right begun bound brought chosen come done drawn
    felt found given gone had has held kept known laid left lost made meant met paid ran said seen sent
    shown spent spoken sought taken taught told thought unread unseen went won worn written""",
    )
)
NO_PARTICIPLES = {"embed", "exceed", "feed", "need", "proceed", "seed", "speed"}
#: Names that stay, as the field has them.
FIELD = {"centralised": "the name of the baseline that trains on the pooled data"}

#: A docstring that begins so hangs in the air.
NEVER_FIRST = {"that", "what", "which", "who", "whoever", "whom", "whose"}
#: Nor does a function's say what it does, if it begins so.
NO_VERB = set(
    re.findall(
        r"\w+",
        """a all an any both each every its no none one only some several the their these they this those it
    two three after as at before by for from in of on over with without within here how there when where
    why are does gives has is makes reads returns says was writes yields raises""",
    )
)
#: Modules of formulae: the docstring of a function may be its formula, or the quantity's name.
FORMULAE = ("fedref/algorithms/", "fedref/spec.py", "fedref/checks.py")
LONGEST = 100

CLUMSY = re.compile(
    r"\bof which\b|\bthat is none\b|\bas it is(?= and\b|\W*$|[.,;:)])|\bwhoever\b"
    r"|\bmade good for\b|\bspeaks of\b|\bthat suffices\b",
    re.IGNORECASE,
)


class Definition(NamedTuple):
    """A module, class or function, with its docstring's first line; a module has no name.

    is_value : a property is something, and does nothing.
    """

    place: str
    kind: type
    name: str
    first: str
    is_value: bool


def read_definitions(source: str, file: str) -> Iterator[Definition]:
    """Yield all definitions of a file, nested ones too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            marks = " ".join(ast.unparse(mark) for mark in getattr(node, "decorator_list", []))
            place = f"{file}:{getattr(node, 'lineno', 1)}"
            name = getattr(node, "name", "")
            yield Definition(place, type(node), name, first, "property" in marks)


def is_bare(name: str) -> bool:
    """Whether a whole name is a participle, preposition, pronoun or adverb."""
    word = name.strip("_").lower()
    if word in FIELD or name.startswith("__") or "_" in word:
        return False
    return word in BARE or (word.endswith("ed") and word not in NO_PARTICIPLES)


def find_fault(definition: Definition) -> str:
    """Return what is wrong with a docstring's first line; nothing if it is right."""
    first = definition.first
    if not first:
        return ""
    word = re.split(r"[^\w`′’'-]", first)[0].lower()
    if not first.endswith((".", ":")):
        return "does not end with a period or colon"
    if len(first) > LONGEST:
        return f"has {len(first)} characters, expected at most {LONGEST}"
    if word in NEVER_FIRST:
        return f"begins with {word!r}"
    if definition.kind is not ast.FunctionDef or definition.is_value:
        return ""
    if word in NO_VERB and not definition.place.startswith(FORMULAE):
        return f"begins with {word!r}, expected what it does"
    return ""


DEFINITIONS = [
    definition
    for path in FILES
    for definition in read_definitions(path.read_text("utf-8"), str(path.relative_to(ROOT)))
]


def test_names_say_what_they_name():
    bare = [f"{d.place}  {d.name}" for d in DEFINITIONS if is_bare(d.name)]
    assert bare == [], "\n" + "\n".join(bare)


def test_first_lines_of_docstrings():
    faults = [f"{d.place}  {d.first!r} {fault}" for d in DEFINITIONS if (fault := find_fault(d))]
    assert faults == [], "\n" + "\n".join(faults)


def test_no_clumsy_phrases():
    faults = []
    for path in (*FILES, *PAGES):
        name, text = str(path.relative_to(ROOT)), path.read_text("utf-8")
        for found in CLUMSY.finditer(text.replace("\n", " ")):
            line = text.count("\n", 0, found.start()) + 1
            faults.append(f"{name}:{line}  {found[0]}")
    assert faults == [], "\n" + "\n".join(faults)


SOURCE = '''"""Rows of a table, and how
they are read."""
class Row:
    """A row."""
    @property
    def width(self):
        """The number of cells."""
    def read(self):
        """The cells."""
        def own():
            """What is its own."""
def long():
    """Return %s."""
''' % (93 * "x")


def test_what_is_wrong_is_noticed():
    definitions = list(read_definitions(SOURCE, "some.py"))
    assert {d.name: find_fault(d) for d in definitions} == {
        "": "does not end with a period or colon", "Row": "", "width": "",
        "read": "begins with 'the', expected what it does", "own": "begins with 'what'",
        "long": "has 101 characters, expected at most 100",
    }  # fmt: skip
    names = ["found", "Kept", "_padded", "of", "seed", "found_rows", "__or__", "Centralised"]
    assert [name for name in names if is_bare(name)] == names[:4]
    text = "rows of which\nnone stays as it is. As it is written, it is as it is and was"
    assert [m[0] for m in CLUMSY.finditer(text)] == ["of which", "as it is", "as it is"]
