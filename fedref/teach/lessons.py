"""The pages that belong to no algorithm: how derivatives are proved, and twenty mistakes."""

import inspect
from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.ticker import MaxNLocator

from fedref import checks, proofs, sampling
from fedref.conformance.mistakes import MISTAKES
from fedref.proofs import picture
from fedref.proofs.case import Case
from fedref.proofs.models import MODELS
from fedref.teach import damage, mistakes
from fedref.teach.drawing import Picture, drawn, look, panel
from fedref.teach.html import Sheet, escape, highlighted, prose, shown, table

# ---- how derivatives are proved ----------------------------------------------------------------------

PROOF_PICTURES: Mapping[str, tuple[Callable[..., None], str, str]] = {
    "complex-step": (
        picture.draw_errors,
        "Three curves of the error against the step h: forward and central differences fall and rise "
        "again, the complex step stays at rounding for every small h.",
        "Why differences prove nothing: below some h what they subtract is all rounding. The complex "
        "step subtracts nothing. A small MLP; the same picture as of fedref check --plot.",
    ),
    "taylor-slope": (
        picture.draw_remainders,
        "Three lines of the remainder against the step t, of slope 1, 2 and 3.",
        "A second witness that needs no complex numbers: what Taylor's formula leaves over falls with "
        "slope 2 if the gradient is right, with 3 if the Hessian-vector product is too, and with 1 if "
        "the gradient is wrong.",
    ),
}


def proof_picture(draw: Callable[..., None], alt: str, caption: str) -> Picture:
    """One half of the picture of `fedref check --plot`."""
    case = Case(MODELS["MLP tanh"], sampling.stream(0, "check picture"))
    case.vs = case.vectors(12)
    figure, axes = panel(5.6, 4.6)
    draw(axes, case)
    return Picture(figure, alt, caption)


def proofs_page() -> Sheet:
    """How a derivative is proved: the docstring of the checks, their code, their picture, all claims."""
    title, how, example = (checks.__doc__ or "").strip().split("\n\n", 2)
    made = {name: drawn(proof_picture, *given) for name, given in PROOF_PICTURES.items()}
    body = f"<h1>How derivatives are proved</h1><p>{prose(title)}</p>"
    body += f"<p>{prose(how, formulae=False)}</p>"
    body += (
        "<section><h2>The chain</h2><ol>"
        "<li>A model's loss is compared with plain loops over the samples.</li>"
        "<li>Its gradient is compared with the complex step of that loss.</li>"
        "<li>Its Hessian-vector product is compared with the complex step of that gradient.</li>"
        "<li>An algorithm's step is compared with the complex step of the algorithm's own objective.</li>"
        "</ol></section>"
    )
    for name, call in (
        ("complex-step", checks.complex_step_derivative),
        ("taylor-slope", checks.taylor_remainders),
    ):
        body += f"<section><h2>{call.__name__}</h2>{highlighted(inspect.getsource(call), {})}"
        body += f"{shown(name, made[name])}</section>"
    body += f"<section><h2>Prove your own</h2><pre class=text tabindex=0>{escape(example)}</pre></section>"
    claims: dict[str, list[str]] = {}
    for proof in proofs.PROOFS:
        claims.setdefault(proof.claim, []).append(proof.tag)
    body += (
        "<section><h2>What <code>fedref check</code> proves</h2>"
        + table(
            ("claim", "of"),
            (
                (escape(claim), escape(", ".join(dict.fromkeys(tags))))
                for claim, tags in claims.items()
            ),
        )
        + "</section>"
    )
    return Sheet("How derivatives are proved", body, made)


# ---- twenty mistakes -----------------------------------------------------------------------------------


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
        axes.plot(values, label=label, markevery=3, **look(k))
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
    mistake, lines = MISTAKES[name], mistakes.lines(mistakes.EDITS[name])
    pair = "".join(
        f"<div class={kind}><h3>{kind}</h3>{highlighted(chr(10).join(code), {})}</div>"
        for kind, code in (("wrong", lines.wrong), ("right", lines.right))
    )
    case, _, said = mistakes.caught_by(name).partition(" ")
    return (
        f'<section class=mistake id="{slug(sign, name)}"><h2>{escape(heading(sign, name))}</h2>'
        f"<p>{prose(mistakes.sentence(mistake.line))}</p>"
        f"<p class=where>{escape(lines.where)}</p><div class=beside><div class=pair>{pair}</div>"
        f"{shown(file, made)}</div>"
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
    made = {slug(sign, name): drawn(small, name) for name, sign in called.items()}
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
