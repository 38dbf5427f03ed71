"""`fedref explain`: an equation, an algorithm or a model, with its lines and its numbers."""

import pydoc
import sys
from pathlib import Path

from fedref.boundary.errors import ConfigError
from fedref.lab.commands.command_line import parse_setting
from fedref.lab.experiments.run_directory import disk_errors


def explain(
    *topic: str,
    html: Path | None = None,
    list: bool = False,
    picture: Path | None = None,
    set: list[str] = (),  # type: ignore[assignment]
) -> None:
    """Show an equation, an algorithm or a model.
    A page has why, the paper's loop, formulae beside code, an example to redo by hand.

    topic : a tag, an algorithm, a paper, a model, an exercise, a mistake, or `start`
    html : write all topics as a site that needs no network
    list : list all topics, and the lines of each equation
    picture : draw rounds 1, 2, 5 of an algorithm: FILE.svg, .png, .pdf
    set : KEY=VALUE, a hyperparameter of the picture, such as alpha=0.5, or steps=20, the local steps

    examples
      fedref explain start                  what the words mean, and an order to read in
      fedref explain --list                 every topic, and the index of equations with their lines
      fedref explain per-fedavg             why, the paper's loop, its derivation, a worked example
      fedref explain "per-fedavg eq.6"      an equation, its lines, and its numbers
      fedref explain cnn                    a model: layers, backward pass, R-operator
      fedref explain mistakes               known mistakes: the wrong line, the right one
      fedref explain per-fedavg --picture per-fedavg.svg --set alpha=0.5
      fedref explain --html DIR             everything as pages, with formulae and pictures

    On a terminal a page is shown in the pager ($PAGER); into a file or pipe it is Markdown.
    Everything comes from the source that runs. Formulae stand beside their lines of code, and the tests
    compare both. A worked example is the smallest one without a zero that Hypothesis finds; it needs
    pip install "fedref[teach]".
    """
    if sys.flags.optimize > 1:
        without = "which python -OO drops: run it without -OO"
        raise ConfigError(f"the explanations are docstrings, {without}")
    if set and not picture:
        raise ConfigError("--set is for a picture: give --picture FILE.svg, too")
    from fedref.teach import topics  # it imports the proofs, and SciPy, which is slow to import

    if list or not (topic or html or picture):
        print(*topics.list_topics(), sep="\n")
    elif html:
        from fedref.teach import site  # it imports matplotlib for its pictures

        with disk_errors(html):
            site.build_site(html)
        print(html / "index.html")
    elif picture:
        from fedref.boundary import style
        from fedref.teach import pictures

        settings = dict(map(parse_setting, set))
        style.save(pictures.draw(pictures.draw_rounds, " ".join(topic), settings), picture)
    else:
        text = topics.explain(" ".join(topic))
        if sys.stdout.isatty():
            pydoc.pager(topics.for_terminal(text))
        else:
            print(text)
