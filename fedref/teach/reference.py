"""The reference: every public name with its signature, its words, its parameters, its errors and its place.

Everything is read from the source as it stands. What a parameter means, its docstring says, so that `help`
shows the same; in the specification, the table of symbols at its head says it for most.
"""

import inspect
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any

from fedref import proofs, spec
from fedref.boundary.docstrings import symbols
from fedref.models import MODELS
from fedref.teach import source
from fedref.teach.markdown import anchor, fence, join, section, table, verbatim
from fedref.teach.source import page_name

#: `rooms`: title → its public names (a class with a + has its methods, too), and what it is about.
TEXT = tomllib.loads(source.text_of("reference.toml"))
#: Where a docstring explains parameters: "v : one direction", or "one, other : labels".
PARAMETER = re.compile(r"(?:^|(?<=[.;,:] ))(\w+(?:, \w+)*) : ", re.M)
#: The specification's symbols: name → what its head says of it.
SPEC_SYMBOLS = {
    name.partition("(")[0]: f"{symbol}, {what}"
    for symbols_, names, what in symbols(spec)
    for symbol, name in zip(symbols_.split(", "), names.split(", "))
}


@cache
def rooms() -> dict[str, list[str]]:
    """Return room → public names, in the order of reference.toml. Only classes with methods are imported."""
    return {title: [*names_in(**room)] for title, room in TEXT["rooms"].items()}


@cache
def public() -> tuple[str, ...]:
    """Return all public names."""
    return tuple(name for names in rooms().values() for name in names)


def names_in(names: list[str], about: str, equations: bool = False) -> dict[str, None]:
    """Return public names, each once. equations : also the functions with tagged formulae."""
    found: dict[str, None] = {}
    for entry in names:
        name = entry.rstrip("+")
        if ".torch." in name and find_spec("torch") is None:
            continue
        found[name] = None
        methods = vars(resolve_name(name)).items() if entry[-1] == "+" else ()
        found |= {f"{name}.{x}": None for x, f in methods if inspect.isfunction(f) and x[0] != "_"}
    functions = (e.function for e in source.equations()) if equations else ()
    return found | {f"{f.__module__}.{f.__qualname__}": None for f in functions}


# ---- one name ------------------------------------------------------------------------------------


def signature(thing: Any) -> str:
    """Return the parameters and their defaults, without types: "" if it is not called."""
    an_error = inspect.isclass(thing) and issubclass(thing, Exception)
    if not callable(thing) or an_error or inspect.isabstract(thing):
        return ""
    parameters = []
    for p in inspect.signature(thing).parameters.values():
        default = ... if " at 0x" in repr(p.default) else p.default
        parameters.append(p.replace(annotation=p.empty, default=default))
    return str(inspect.Signature(parameters)).replace("Ellipsis", "...")


def parameters(thing: Any) -> dict[str, str]:
    """Return what each parameter means, "" where nothing says it."""
    known = (SPEC_SYMBOLS if inspect.getmodule(thing) is spec else {}) | divide(thing)[1]
    names = inspect.signature(thing).parameters if signature(thing) else ()
    return {p: known.get(p, "") for p in names if p != "self"}


def divide(thing: Any) -> tuple[str, dict[str, str]]:
    """Divide a docstring: its words, and what it says of parameters, "name : what it is".

    The words on a parameter end where another is explained, or with a line that ends in a full stop.
    """
    text, doctest, examples = (inspect.getdoc(thing) or "").partition("\n>>> ")
    words, explained = [], dict[str, str]()
    for paragraph in text.split("\n\n"):
        rest, *parts = PARAMETER.split(paragraph)
        for names, part in zip(parts[::2], parts[1::2]):
            what, _, after = re.sub(r"\.\n(?=[^ ])", ".\0", part, count=1).partition("\0")
            explained |= dict.fromkeys(names.split(", "), " ".join(what.split()).rstrip(".;,"))
            rest += after
        words.append(rest)
    return "\n\n".join(filter(str.strip, words)) + f"\n{doctest}{examples}", explained


def entry(name: str) -> str:
    """Return what there is to know of a public name, in Markdown."""
    thing = resolve_name(name)
    words, _ = divide(thing if callable(thing) else resolve_name(name.rpartition(".")[0]))
    if thing in MODELS.values():
        words = words.partition("\n\n")[0]  # its own page has the rest
    rows = ((f"`{p}`", text) for p, text in parameters(thing).items())
    return join(
        fence("python", name + signature(thing)), verbatim(words),
        table("parameter | what it is", rows) if signature(thing) not in ("", "()", "(self)") else "",
        " · ".join((*([f"`{place_of(thing)}`"] if callable(thing) else ()), *lessons(thing))),
    )  # fmt: skip


def place_of(thing: Any) -> str:
    """Return where a function or class is defined, such as fedref/spec.py:195."""
    try:
        return source.place_and_code(thing)[0]
    except OSError:  # Hypothesis has made it of the function that stands there
        module: Any = inspect.getmodule(thing)
        lines = inspect.getsource(module).splitlines()
        line = 1 + lines.index(next(x for x in lines if x.startswith(f"def {thing.__name__}(")))
        return source.place(module, line)


def lessons(thing: Any) -> Iterator[str]:
    """Yield links: to the lesson, to what is proved; and the tests that hold the file, in a clone."""
    module, code = inspect.getmodule(thing), getattr(thing, "__qualname__", "")
    tagged = {e.tag for e in source.equations() if e.function is thing}
    if tagged:
        yield f"[its formulae]({page_name(module)}.html#{anchor(code)})"
    yield from (f"[by hand](model-{key}.html)" for key, cls in MODELS.items() if cls is thing)
    papers = map(page_name, source.modules() if module is spec else ())
    yield from (f"[lesson]({x}.html)" for x in papers if f"def {code}(" in source.spec_code(x))
    if tagged & {proof.tag for proof in proofs.PROOFS}:
        yield "[proved by `fedref check`](proofs.html)"
    path = source.ROOT / "tests" / "/".join(getattr(module, "__name__", "").split(".")[1:])
    tests = path.with_name(f"test_{path.name}.py")
    if tests.exists():
        yield f"`{tests.relative_to(source.ROOT).as_posix()}`"


# ---- pages ---------------------------------------------------------------------------------------


def room_page(title: str) -> str:
    """Return a page with all public names of a room."""
    parts = (section(f"`{name}`", entry(name)) for name in rooms()[title])
    return join(f"# {title}", TEXT["rooms"][title]["about"], *parts)


def page_of(title: str) -> str:
    """Return the name of a room's page."""
    return f"reference-{anchor(title)}"


def contents() -> str:
    """Return the list of all public names by room, each with its first sentence."""
    parts = []
    for title, names in rooms().items():
        rows = (row_of(name, page_of(title)) for name in names)
        parts.append(section(title, TEXT["rooms"][title]["about"], table("fedref. | ", rows)))
    return join(*parts)


def row_of(name: str, page: str) -> tuple[str, str]:
    """Return a public name, as a link to its place on a page, and its first sentence."""
    thing = resolve_name(name)
    link = f"[`{name.removeprefix('fedref.')}`]({page}.html#{anchor(name)})"
    return link, source.first_paragraph(thing) if callable(thing) else ""
