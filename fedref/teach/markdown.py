"""Pieces of Markdown, of which the pages are made."""

import inspect
import re
import textwrap
from collections.abc import Iterable
from typing import Any


def join(*parts: str) -> str:
    """Return the parts that are not empty, each a paragraph or more."""
    return "\n\n".join(filter(None, parts))


def section(title: str, *parts: str) -> str:
    """Return a section with its heading, or nothing where it is empty."""
    return join(f"## {title}", *parts) if any(parts) else ""


def fence(kind: str, text: str) -> str:
    return f"```{kind}\n{text}\n```" if text else ""


def items(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def table(head: str, rows: Iterable[Iterable[Any]]) -> str:
    """Return a table. head : its columns, "a | b"; cells are Markdown."""
    lines = [head, re.sub(r"[^|]+", " --- ", head).strip()]
    lines += (" | ".join(str(cell).replace("|", r"\|") for cell in row) for row in rows)
    return "\n".join(f"| {line} |" for line in lines)


def verbatim(docstring: str) -> str:
    """Return a docstring as Markdown: doctests, tables and lines of formulae are blocks of code."""
    blocks = inspect.cleandoc(docstring).split("\n\n")
    laid_out = re.compile(r"^(?!    )[\s\S]*(^  |^>>>|\S {3,})", re.M)
    return join(*(textwrap.indent(b, "    ") if laid_out.match(b) else b for b in blocks))


def anchor(heading: str) -> str:
    """Return a heading's place on its page."""
    return re.sub(r"[^\w′″⁺]+", "-", heading.lower()).strip("-")
