"""Formulae within prose: found in a docstring's text by the parser that reads those beside the lines."""

import re
from collections.abc import Iterator
from itertools import pairwise
from xml.sax.saxutils import escape

from fedref.teach.formula import WORDS, Formula, element, parse

#: A word with the space before it; braces are not cut: Σ_{j ≠ s} is one.
WORD = re.compile(r"\s*(?:[^\s{}]*\{[^{}]*\}[^\s{}]*|\S+)|\s+$")
LONGEST = 30  # words of one formula
SHORT = 20  # signs that are kept on one line


def found(text: str) -> Iterator[tuple[str, Formula | None]]:
    """The text in pieces, each with its tree if it is a formula; joined they are the text.

    A single letter is one beside a formula in a list only: D, D′, D″.
    """
    pieces = list(written(text))
    for i, (piece, tree) in enumerate(pieces):
        if tree or "," not in piece:
            yield piece, tree
            continue
        after = i + 1 < len(pieces) and re.search(r"(?:^|[\s(])([B-HJ-Zb-z]),\s+$", piece)
        before = i > 0 and re.match(r",\s+([B-HJ-Zb-z])(?=[,.;:)])", piece)
        start = before.end(1) - 1 if before else 0
        end = max(after.start(1), start) if after else len(piece)
        cuts = sorted({0, start, start + bool(before), end, end + bool(after), len(piece)})
        for a, b in pairwise(cuts):
            one = piece[a:b]
            yield one, parse(one) if one.isalpha() and len(one) == 1 else None


def written(text: str) -> Iterator[tuple[str, Formula | None]]:
    """The pieces that are formulae by their signs."""
    words, start, plain = WORD.findall(text), 0, ""
    while start < len(words):
        run = words[start : start + LONGEST]
        while run and (cut := formula_in("".join(run))) is None:
            run.pop()
        if not run:
            plain += words[start]
            start += 1
            continue
        before, core, after = cut  # type: ignore[misc]
        if plain + before:
            yield plain + before, None
        yield core, parse(core)
        plain, start = after, start + len(run)
    if plain:
        yield plain, None


def formula_in(text: str) -> tuple[str, str, str] | None:
    """(before, formula, after) of a text that is a formula but for stops and brackets around it."""
    shape = re.fullmatch(r"(\s*)(.*?)([.,:;]*)", text, re.DOTALL)
    assert shape
    before, core, after = shape.groups()
    for opened, closed in ((0, 0), (1, 0), (0, 1), (1, 1)):
        left, right = core[:opened], core[len(core) - closed :]
        inner = core[opened : len(core) - closed]
        if left in ("", "(") and right in ("", ")") and is_mathematics(inner) and parses(inner):
            return before + left, inner, right + after
    return None


def parses(text: str) -> bool:
    try:
        return bool(parse(text))
    except ValueError:
        return False


def is_mathematics(text: str) -> bool:
    """Whether it has a letter, a sign that prose has not, and no word of prose."""
    bare = re.sub(r"_(?:\{[^{}]*\}|\w+)", "_", text)
    words = set(re.findall(r"[A-Za-zÀ-ž]{2,}", bare))
    return bool(
        re.search(r"[^\W\d_]", bare)
        and re.search(r"[^\W\d_A-Za-zÀ-ž]|[_=+/−⊙²ᵀ′″≤≥≠]", bare)
        and words <= {*WORDS}
        and not re.search(r"^a\s|\sa$|\s\(\d\w*\)$", bare)
    )


def typeset(formula: Formula) -> str:
    """A <math> for each term, so that a line can be broken between them; one for a short formula."""
    parts = terms(flat(formula))
    shown = re.sub(r"<[^>]*>|&[^;]*;", "", "".join(parts))
    if len(shown) <= SHORT:
        parts = [element(flat(formula))]
    return "".join(f"<math><mrow>{one}</mrow></math>" for one in parts)


def flat(formula: Formula) -> Formula:
    """The same with its fractions on one line."""
    kind, text, parts = formula
    return Formula("slash" if kind == "over" else kind, text, tuple(map(flat, parts)))


def terms(formula: Formula) -> list[str]:
    """A relation's sides and a sum's terms, each with the sign before it."""
    kind, text, parts = formula
    if kind in ("assign", "relation"):
        left, (right, *rest) = map(terms, parts)
        return [*left, sign(text) + right, *rest]
    if kind != "sum":
        return factors(formula)
    pieces = factors(parts[0])
    for one in parts[1:]:
        minus = one.kind == "minus"
        first, *others = factors(one.parts[0] if minus else one)
        pieces += [sign("−" if minus else "+") + first, *others]
    return pieces


def factors(term: Formula) -> list[str]:
    """A term; if it ends in a Σ over a product, the factors behind the first are apart."""
    *before, last = term.parts if term.kind == "times" else (term,)
    if last.kind != "total" or last.parts[0].kind != "times":
        return [element(term)]
    first, *others = last.parts[0].parts
    total = last._replace(parts=(first,))
    head = term._replace(parts=(*before, total)) if before else total
    return [element(head), *map(element, others)]


def sign(text: str) -> str:
    """With space on both sides, though nothing stands before it."""
    return f'<mo form="infix">{escape(text)}</mo>'
