"""The page of how derivatives are proved."""

import inspect
from collections.abc import Callable, Mapping

from fedref import checks, proofs, sampling
from fedref.proofs import picture
from fedref.proofs.case import Case
from fedref.proofs.models import MODELS
from fedref.teach.markup import Sheet, escape, highlighted, picture_block, prose, table
from fedref.teach.svg import Picture, draw, panel

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
    made = {name: draw(proof_picture, *given) for name, given in PROOF_PICTURES.items()}
    body = f"<h1>How derivatives are proved</h1><p>{prose(title)}</p>"
    body += f"<p>{prose(how)}</p>"
    body += (
        "<section><h2>The chain</h2><ol>"
        "<li>A model's loss is compared with the specification's.</li>"
        "<li>Its gradient is compared with the complex step of that loss.</li>"
        "<li>Its Hessian-vector product is compared with the complex step of that gradient.</li>"
        "<li>An algorithm's step is compared with the complex step of its own objective, and its "
        "rounds with the specification's.</li>"
        "</ol></section>"
    )
    for name, call in (
        ("complex-step", checks.complex_step_derivative),
        ("taylor-slope", checks.taylor_remainders),
    ):
        body += f"<section><h2>{call.__name__}</h2>{highlighted(inspect.getsource(call), {})}"
        body += f"{picture_block(name, made[name])}</section>"
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
