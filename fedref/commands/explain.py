"""`fedref explain`: an equation, an algorithm or a model, with its lines and its numbers."""

import argparse
import textwrap
from pathlib import Path
from typing import Any

from fedref.boundary.errors import ConfigError
from fedref.experiments.run_directory import disk_errors
from fedref.models import MODELS

EPILOG = """\
examples
  fedref explain --list
  fedref explain "per-fedavg eq.6"      the equation, its line, its symbols, and its numbers
  fedref explain apfl                   the whole algorithm
  fedref explain cnn                    a model: layers, backward pass, R-operator
  fedref explain mistakes               twenty mistakes: the wrong line, the right one, what tells it
  fedref explain --html DIR             the same as pages, with formulae, and figures to try

Everything comes from the source that runs: formulae stand beside their lines and are compared with
them by the tests. A worked example has two parameters (a softmax model a few more), three samples and,
where they meet, two clients.
"""


def add_parser(subparsers: Any) -> None:
    """Add `explain` to the commands."""
    parser = subparsers.add_parser(
        "explain",
        help="show an equation beside its code and its numbers",
        description="Show an equation, an algorithm or a model: formula, code, symbols, decisions, "
        "and an example small enough to redo by hand.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "topic", nargs="*", metavar="TOPIC", help="a tag, an algorithm, a model or `mistakes`"
    )
    parser.add_argument(
        "--html", type=Path, metavar="DIR", help="write all of it as a site that needs no network"
    )
    parser.add_argument("--list", action="store_true", help="say what can be explained")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print one page, or the list of all."""
    from fedref.teach import pages  # the proofs bring SciPy along, which takes its time

    if args.list:
        for kind, names in pages.topics().items():
            print(kind)
            for name in names:
                print(f"  {name}")
        return 0
    if args.html:
        from fedref.teach import site  # and its pictures matplotlib

        with disk_errors(args.html):
            print(site.build(args.html)[0])
        return 0
    if not args.topic:
        raise ConfigError(
            "nothing to explain: give a tag, an algorithm or a model, --list or --html"
        )
    topic = " ".join(args.topic)
    print("\n".join(pages.TEXTS[topic]() if topic in pages.TEXTS else lines(pages.page(topic))))
    return 0


def lines(page: Any) -> list[str]:
    """A page for the terminal."""
    from fedref.teach import pages, source

    out = [page.title, "=" * len(page.title)]
    out += ["", page.objective] * bool(page.objective) + ["", page.text] * bool(page.text)
    if page.symbols:
        width = max(len(row.symbol) for row in page.symbols)
        names = max(len(row.name) for row in page.symbols)
        out += ["", "Symbols"]
        out += [f"  {s:<{width}}  {name:<{names}}  {shape}" for s, name, shape in page.symbols]
    for number, equation in enumerate(page.equations):
        out += [
            "",
            f"[{equation.tag}]  {equation.formula}".rstrip(),
            f"  {pages.location(equation)}",
        ]
        function = (equation.module, equation.function)
        if number and function == (
            page.equations[number - 1].module,
            page.equations[number - 1].function,
        ):
            continue
        out += ["", textwrap.indent(source.code_of(equation), "    ")]
        out += example(equation)
        out += [f"  proved: {claim}" for claim in pages.proved_by(equation.tag)]
    if page.name in MODELS:
        out += derivatives_of(page.name)
    if page.decisions:
        out += ["", page.decisions]
    return out


def example(equation: Any) -> list[str]:
    """The worked example of the function that an equation stands in."""
    from fedref.teach import pages, worked

    if not worked.has_example(equation):
        return []
    out = [
        "",
        "  Worked example" + f" ({worked.MODEL})" * ("model" in equation_arguments(equation)),
    ]
    out += numbers(worked.example(equation))
    if equation.formula:
        off = pages.agreement(equation)
        said = f"differs by {off:.0e} of the largest entry" if off else "gives exactly these"
        out += [f"  the formula {said}"]
    return out


def derivatives_of(name: str) -> list[str]:
    """A model's functions: code, worked example, proofs."""
    from fedref.teach import derivatives

    out = []
    for method in derivatives.methods(name):
        out += ["", f"{method.name}  {method.place}"]
        out += [f"[{one.tag}]  {one.formula}" for one in method.formulae] + [""]
        out += [textwrap.indent(method.code, "    ")]
        if trace := derivatives.example(name, method):
            out += ["", f"  Worked example ({derivatives.EXAMPLES[name][0]})", *numbers(trace)]
        out += [f"  proved: {claim}" for claim in method.proved]
    return out


def numbers(trace: Any) -> list[str]:
    """What a worked example starts from, and what its lines make of it."""
    from fedref.teach import pages

    out = [f"    {name} = {value}" for name, value in pages.given(trace)]
    out += ["  gives"]
    return out + [f"    {name} = {value}" for _, name, value in pages.intermediates(trace)]


def equation_arguments(equation: Any) -> set[str]:
    from fedref.teach import worked

    return set(worked.example(equation).steps[0].before)
