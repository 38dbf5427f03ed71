"""`fedref explain`: an equation, an algorithm or a model, with its lines and its numbers."""

import sys
import textwrap
from operator import attrgetter
from pathlib import Path
from typing import Any

from fedref.boundary.errors import ConfigError
from fedref.experiments.run_directory import disk_errors


def explain(*topic: str, html: Path | None = None, list: bool = False) -> None:
    """Show an equation, an algorithm or a model.
    A page has formula, code, symbols, decisions, and an example small enough to redo by hand.

    topic : a tag, an algorithm, a model, an exercise or `mistakes`
    html : write all topics as a site that needs no network
    list : list all topics

    examples
      fedref explain --list
      fedref explain "per-fedavg eq.6"      the equation, its line, its symbols, and its numbers
      fedref explain apfl                   the whole algorithm
      fedref explain "apfl alg.1"           any tag of the equation index, in upper or lower case
      fedref explain cnn                    a model: layers, backward pass, R-operator
      fedref explain mistakes               known mistakes: the wrong line, the right one, the symptom
      fedref explain --html DIR             the same as pages, with formulae, and figures to try

    Everything comes from the source that runs. Formulae stand beside their lines of code; the tests compare
    those of the algorithms and of the linear models with the code. A worked example has two parameters (a
    softmax model a few more), three samples and, if the server takes part, two clients.
    """
    if sys.flags.optimize > 1:
        raise ConfigError(
            "the explanations are docstrings, which python -OO drops: run it without -OO"
        )
    from fedref.teach import pages  # it imports the proofs, and they SciPy, which is slow to import

    if list:
        for kind, names in pages.topics().items():
            print(kind)
            for name in names:
                print(f"  {name}")
        return
    if html:
        from fedref.teach import site  # it imports matplotlib for its pictures

        with disk_errors(html):
            print(site.build_site(html)[0])
        return
    if not topic:
        raise ConfigError(
            "nothing to explain: give a tag, an algorithm or a model, --list or --html"
        )
    name = pages.find_topic(" ".join(topic))
    print("\n".join(pages.TEXTS[name]() if name in pages.TEXTS else lines(pages.page_of(name))))


def lines(page: Any) -> list[str]:
    """Return a page as lines for the terminal."""
    out = [page.title, "=" * len(page.title)]
    out += [line for text in page.citation for line in ("", text)]
    out += ["", page.objective] * bool(page.objective) + ["", page.text] * bool(page.text)
    if page.symbols:
        width = max(len(row.symbol) for row in page.symbols)
        names = max(len(row.name) for row in page.symbols)
        out += ["", "Symbols"]
        out += [f"  {s:<{width}}  {name:<{names}}  {shape}" for s, name, shape in page.symbols]
    for function in page.functions:
        out += function_lines(function)
    return out + ["", page.decisions] * bool(page.decisions)


def function_lines(function: Any) -> list[str]:
    """Return a function as lines: its equations, its code, its worked example, its proofs."""
    from fedref.teach import pages

    out = ["", f"{function.name}  {function.place}"]
    for equation in function.equations:
        out += [f"[{equation.tag}]  {equation.formula}".rstrip(), f"  {pages.location(equation)}"]
    out += ["", textwrap.indent(function.code, "    ")]
    if function.trace:
        model = pages.model_of(function.trace)
        out += ["", "  Worked example" + f" ({model})" * (model is not None)]
        out += [f"    {name} = {value}" for name, value in pages.given_values(function.trace)]
        out += ["  gives"]
        out += [f"    {name} = {value}" for name, value in pages.computed_values(function.trace)]
        for equation in filter(attrgetter("formula"), function.equations):
            off = pages.agreement(equation)
            said = f"to {off:.0e} of the largest entry" if off else "to the bit"
            out += [f"  the formula of [{equation.tag}] gives what the line gives, {said}"]
    return out + [f"  proved: {claim}" for claim in function.proofs]
