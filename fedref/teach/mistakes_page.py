"""The page of twenty mistakes: the wrong line beside the right one, a run, and what catches it."""

import numpy as np
from matplotlib.ticker import MaxNLocator

from fedref.conformance.mistakes import MISTAKES
from fedref.teach import damage, mistakes
from fedref.teach.markup import Sheet, escape, highlighted, picture_block, prose
from fedref.teach.svg import Picture, draw, line_style, panel


def ending(name: str) -> str:
    """What became of both runs, in one sentence."""
    right, wrong = damage.series(name)
    run = damage.RUNS[name]
    what = run.y.partition(",")[0]
    if len(wrong) < len(right):
        return (
            f"The {what} is {right[-1]:.3g} in the end; with the mistake the run diverges in "
            f"{run.x} {len(wrong)}."
        )
    return (
        f"After {len(right) - 1} {run.x}s the {what} is {right[-1]:.3g}, "
        f"with the mistake {wrong[-1]:.3g}."
    )


def small(name: str) -> Picture:
    """The run as it is, and with the mistake."""
    run = damage.RUNS[name]
    figure, axes = panel(3.9, 2.2, xlabel=run.x, ylabel=run.y if len(run.y) < 26 else "")
    if len(run.y) >= 26:
        axes.set_title(run.y, loc="left")
    for k, (label, values) in enumerate(zip(("right", "wrong"), damage.series(name))):
        axes.plot(values, label=label, markevery=3, **line_style(k))
    low, high = np.nanmin(damage.series(name).right), np.nanmax(damage.series(name).right)
    top = max(np.nanmax(damage.series(name).wrong), high)
    if top > 8 * abs(high):  # the right run must still be seen
        axes.set_ylim(low - 0.1 * (high - low), high + 2 * (high - low))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(loc="best")
    return Picture(figure, ending(name), ending(name))


def slug(sign: str, name: str) -> str:
    return f"mistake-{sign}" if sign != "+" else "mistake-" + "-".join(name.split()[:3]).lower()


def heading(sign: str, name: str) -> str:
    title = mistakes.sentence(name).removesuffix(".")
    return f"{sign}. {title}" if sign != "+" else title


def entry(name: str, sign: str, made: Picture, file: str) -> str:
    """One mistake as a section."""
    mistake, lines = MISTAKES[name], mistakes.lines(name)
    pair = "".join(
        f"<div class={kind}><h3>{kind}</h3>{highlighted(chr(10).join(code), {})}</div>"
        for kind, code in (("wrong", lines.wrong), ("right", lines.right))
    )
    case, _, said = mistakes.caught_by(name).partition(" ")
    return (
        f'<section class=mistake id="{slug(sign, name)}"><h2>{escape(heading(sign, name))}</h2>'
        f"<p>{prose(mistakes.sentence(mistake.line))}</p>"
        f"<p class=where>{escape(lines.where)}</p><div class=beside><div class=pair>{pair}</div>"
        f"{picture_block(file, made)}</div>"
        f"<p class=caught>Caught by <code>{escape(case)}</code> {escape(said)}</p></section>"
    )


def unharmed() -> list[str]:
    """The mistakes whose run ends with a loss that is no worse."""
    return [
        name
        for name in MISTAKES
        if "loss" in damage.RUNS[name].y
        and len(damage.series(name).wrong) == len(damage.series(name).right)
        and damage.series(name).wrong[-1] <= damage.series(name).right[-1]
    ]


def mistakes_page() -> Sheet:
    """Twenty mistakes: the wrong line beside the right one, a run, and what catches it."""
    called = mistakes.signs()
    made = {slug(sign, name): draw(small, name) for name, sign in called.items()}
    losses = sum("loss" in run.y for run in damage.RUNS.values())
    body = (
        "<h1>Twenty mistakes</h1><p>All of them were found in public implementations. Each wrong line here "
        "is made in fedref itself: it replaces the right one while the run behind the picture is "
        "computed, and a test lets the conformance suite name the mistake by what it does.</p>"
        f"<p>A curve does not find them: {len(unharmed())} of the {losses} runs whose loss is shown end no "
        "worse with the mistake than without. A golden vector does: <code>fedref conformance</code>.</p>"
    )
    body += '<nav class=contents aria-label="Mistakes"><ol>'
    for name, sign in called.items():
        body += f'<li><a href="#{slug(sign, name)}">{escape(heading(sign, name))}</a></li>'
    body += "</ol></nav>"
    for name, sign in called.items():
        file = slug(sign, name)
        body += entry(name, sign, made[file], file)
    return Sheet("Twenty mistakes", body, made)
