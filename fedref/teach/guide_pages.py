"""The pages that are not about one paper or model: the specification, proofs, mistakes, and guides."""

import inspect
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from fedref import checks, conformance, proofs, rounds, sampling, spec
from fedref.conformance.mistakes import MISTAKES
from fedref.proofs import picture
from fedref.proofs.case import Case
from fedref.proofs.models import MODELS
from fedref.teach import mistakes, source
from fedref.teach.catalogue import EXERCISES, KINDS
from fedref.teach.markup import (
    Sheet,
    docstring,
    escape,
    fold,
    highlight,
    picture_block,
    prose,
    table,
)
from fedref.teach.pictures import Picture, draw, make_panel

# ---- the specification beside the code -------------------------------------------------------------


def spec_page() -> Sheet:
    """Return the page of `fedref/spec.py`: each section, what is proved of it, and the code by hand."""
    _, *sections = re.split(r"^# -+ \d+\. (.*?) -+\n", inspect.getsource(spec), flags=re.M)
    body = f"<h1>The papers in one file</h1>{docstring(spec.__doc__ or '')}"
    body += (
        "<p>Below, each section of <code>fedref/spec.py</code> stands beside the lines that run, and "
        "between them stand the claims that <code>fedref check</code> proves. The specification takes "
        "its derivatives by complex steps; the lines that run have them written out by hand.</p>"
    )
    files = {module.__name__.rpartition(".")[2]: module for module in source.modules()}
    for title, code in zip(sections[::2], sections[1::2]):
        paper = re.findall(r"[\w-]+", title)[0].lower().replace("-", "_")
        ours = f"<h3>specification</h3>{highlight(code.partition('# ====')[0].strip(), {})}"
        if paper in files:
            ours = f"<div>{ours}</div><div>{code_by_hand(paper, files[paper])}</div>"
            ours = f"<div class=beside>{ours}</div>"
        body += f'<section id="spec-{paper}"><h2>{prose(title)}</h2>{ours}</section>'
    return Sheet("The papers in one file", body)


def code_by_hand(paper: str, module: ModuleType) -> str:
    """Return the claims that are proved about a paper's file, and its functions with equations."""
    module_of_proofs = f"fedref.proofs.{paper}"
    claims = [p.claim for p in proofs.PROOFS if p.compare.__module__ == module_of_proofs]
    items = "".join(f"<li>{escape(claim)}</li>" for claim in dict.fromkeys(claims))
    names = dict.fromkeys(equation.function for equation in source.equations_in(module))
    functions = [source.find(module, name) for name in names]
    if paper == "fedavg":  # the loop is written once, for all algorithms
        functions.append(rounds.run_client)
    html = fold(f"proved equal: {len(set(claims))} claims", f"<ul>{items}</ul>")
    html += f'<h3>by hand: <a href="{paper}.html">{paper}.py</a></h3>'
    for function in functions:
        place, code = source.place_and_code(function)
        html += f"<p class=where>{escape(place)}</p>{highlight(code, {})}"
    return html


# ---- proofs ----------------------------------------------------------------------------------------

PROOF_PICTURES: Mapping[str, tuple[Callable[..., None], str, str]] = {
    "complex-step": (
        picture.draw_errors,
        "Three curves of the error against the step h: forward and central differences fall and rise "
        "again, the complex step stays at rounding for every small h.",
        "Why differences prove nothing: with a small h, what they subtract is all rounding. The complex "
        "step subtracts nothing. A small MLP; `fedref check --plot` draws the same picture.",
    ),
    "taylor-slope": (
        picture.draw_remainders,
        "Three lines of the remainder against the step t, of slope 1, 2 and 3.",
        "A second witness that needs no complex numbers: the remainder of Taylor's formula falls with "
        "slope 2 if the gradient is right, with 3 if the Hessian-vector product is right too, and with "
        "1 if the gradient is wrong.",
    ),
}


def proof_picture(draw_half: Callable[..., None], alt: str, caption: str) -> Picture:
    """Draw one half of the picture of `fedref check --plot`."""
    case = Case(MODELS["MLP tanh"], sampling.stream(0, "check picture"))
    case.vs = case.draw_vectors(12)
    figure, axes = make_panel(5.6, 4.6)
    draw_half(axes, case)
    return Picture(figure, alt, caption)


def proofs_page() -> Sheet:
    """Return how a derivative is proved: the method, its code and pictures, and all claims."""
    title, how, example = (checks.__doc__ or "").strip().split("\n\n", 2)
    pictures = {name: draw(proof_picture, *given) for name, given in PROOF_PICTURES.items()}
    body = (
        f"<h1>How derivatives are proved</h1><p>{prose(title)}</p><p>{prose(how)}</p>"
        "<section><h2>The chain</h2><ol>"
        "<li>A model's loss is compared with the specification's.</li>"
        "<li>Its gradient is compared with the complex step of that loss.</li>"
        "<li>Its Hessian-vector product is compared with the complex step of that gradient.</li>"
        "<li>An algorithm's step is compared with the complex step of its own objective, and its "
        "rounds with the specification's.</li></ol></section>"
    )
    calls: tuple[Any, ...] = checks.complex_step_derivative, checks.taylor_remainders
    for call, (name, made) in zip(calls, pictures.items()):
        code = highlight(inspect.getsource(call), {})
        body += f"<section><h2>{call.__name__}</h2>{code}{picture_block(name, made)}</section>"
    body += f"<section><h2>Prove your own</h2>{docstring(example)}</section>"
    claims: dict[str, dict[str, None]] = {}
    for proof in proofs.PROOFS:
        claims.setdefault(proof.claim, {})[proof.tag] = None
    rows = ((escape(claim), escape(", ".join(tags))) for claim, tags in claims.items())
    body += "<section><h2>What <code>fedref check</code> proves</h2>"
    return Sheet(
        "How derivatives are proved", f"{body}{table(('claim', 'of'), rows)}</section>", pictures
    )


# ---- mistakes --------------------------------------------------------------------------------------


def mistake_anchor(name: str) -> str:
    """Return a mistake's place on the page."""
    return "mistake-" + "-".join(re.findall(r"\w+", name.lower()))


def mistake_block(name: str) -> str:
    """Return one mistake as a section."""
    lines, (case, said) = mistakes.differing_lines(name), mistakes.catch(name)
    pair = "".join(
        f"<div class={kind}><h3>{kind}</h3>{highlight(chr(10).join(code), {})}</div>"
        for kind, code in (("wrong", lines.wrong), ("right", lines.right))
    )
    return (
        f'<section class=mistake id="{mistake_anchor(name)}"><h2>{escape(mistakes.heading(name))}</h2>'
        f"<p>{prose(mistakes.as_sentence(MISTAKES[name].line))}</p>"
        f"<p class=where>{escape(lines.where)}</p><div class=pair>{pair}</div>"
        f"<p class=caught>Caught by <code>{escape(case)}</code> {escape(said)}</p></section>"
    )


def mistakes_page() -> Sheet:
    """Return the known mistakes: wrong line and right line, some runs, and what catches each."""
    names = mistakes.ordered_names()
    losses = sum("loss" in run.column for run in mistakes.RUNS.values())
    links = {
        name: f'<a href="#{mistake_anchor(name)}">{escape(mistakes.heading(name))}</a>'
        for name in names
    }
    runs = table(
        ("mistake", "measured", "without it", "with it"),
        ((links[name], *map(escape, mistakes.outcome(name))) for name in mistakes.RUNS),
    )
    entries = "".join(f"<li>{links[name]}</li>" for name in names)
    body = (
        "<h1>Known mistakes</h1><p>All of them were found in public implementations. On this page each "
        "wrong line is one of fedref's own, changed. The conformance suite runs fedref with the wrong "
        "line, and names the mistake by what it computes.</p>"
        f'<nav class=contents aria-label="Mistakes"><ol>{entries}</ol></nav>'
        "<section><h2>A learning curve does not find them</h2><p>Ten short runs on the digits, without "
        f"the mistake and with it: {len(mistakes.harmless_mistakes())} of the {losses} losses end no "
        "worse with the mistake. A golden vector, which <code>fedref conformance</code> compares, finds "
        f"each of them.</p>{runs}</section>"
    )
    return Sheet("Known mistakes", body + "".join(map(mistake_block, names)))


# ---- guides ----------------------------------------------------------------------------------------

#: The backend of README, whose mistake the suite names.
BACKEND = """\
import torch
from fedref.conformance.backends.torch import loss  # of a case's model: you write the algorithm alone

def meta_gradient(variant, model, hyper, **inputs):
    if variant != "per-fedavg":
        raise NotImplementedError  # not offered, so not tested
    w, D, D1 = torch.tensor(inputs["w"], requires_grad=True), inputs["D"], inputs["D1"]
    (g,) = torch.autograd.grad(loss(model, w, D), w)
    return torch.autograd.grad(loss(model, w - hyper["alpha"] * g, D1), w)[0].numpy()
"""


def backends_page() -> Sheet:
    """Return the guide for authors of a faster implementation."""
    body = (
        "<h1>For backend authors</h1><p>You have written one of these algorithms in torch, JAX or C++, "
        "and want to know whether it is right. fedref ships golden vectors: small cases with all inputs, "
        "all intermediate values and whole rounds. The suite runs your functions on them, says which "
        "output is the first to differ, and names the mistake if it knows it.</p>"
        "<section><h2>From Python</h2><ol><li>Write <code>my_backend.py</code> with one function or more of "
        "the list below. This one has a mistake:"
        f"{highlight(BACKEND, {})}</li>"
        "<li>Run <code>fedref conformance my_backend --only &quot;per-fedavg eq.3&quot;</code>. It answers "
        "that the inner step's graph was cut: <code>create_graph=True</code> is missing in the line that "
        "computes <code>g</code>.</li>"
        "<li>Add functions; what is missing, or raises NotImplementedError, counts as not offered. "
        "<code>--dtype float32</code> compares in single precision, <code>--json</code> is for a "
        "program.</li></ol></section>"
        "<section><h2>From another language</h2><p>The vectors are <code>.npz</code> files with an index "
        "in JSON. <code>data/vectors/README.md</code> describes both, and lists the conventions, such as "
        "which maximum counts in a tie. Readers in plain Python, C++ and JavaScript lie beside "
        "it.</p></section>"
        '<section><h2>If it fails</h2><p>Look at <a href="mistakes.html">the known mistakes</a>, and at '
        'the paper\'s page: <a href="equations.html">every equation</a> has its line of code and an '
        "example to compute by hand.</p></section>"
        f"<section><h2>What a backend is</h2>{docstring(conformance.__doc__ or '')}</section>"
    )
    return Sheet("For backend authors", body)


def teachers_page() -> Sheet:
    """Return the guide for teachers: a course, and the exercises."""
    rows = (
        (
            f"<code>{name}</code>", escape(one.trains), escape(one.before), str(one.minutes),
            escape(", ".join(one.kinds)),
        )
        for name, one in EXERCISES.items()
    )  # fmt: skip
    kinds = ((escape(kind), escape(said)) for kind, said in KINDS.items())
    body = (
        "<h1>For teachers</h1><p>A course on personalised federated learning needs no GPU, no data to "
        "download and no framework: every run below takes seconds on a laptop. It can have these four "
        "sessions.</p><ol>"
        '<li><b>Derivatives.</b> Read <a href="proofs.html">how derivatives are proved</a>. Students '
        "prove a gradient of their own with <code>fedref.checks</code>, then write the exercises "
        "<code>backward</code> and <code>curvature</code>.</li>"
        "<li><b>Federated averaging.</b> Run the notebook <code>reproduce/tour.ipynb</code>: thirty "
        "cells, from a gradient to a personalised federation. Move the sliders on "
        '<a href="fedavg.html">FedAvg\'s page</a>. Exercises: <code>step</code>, '
        "<code>proximal</code>.</li>"
        '<li><b>Personalisation.</b> Read <a href="per_fedavg.html">Per-FedAvg</a>, '
        '<a href="fedmeta.html">FedMeta</a> and <a href="apfl.html">APFL</a>, and redo the worked '
        "examples by hand. Exercises: <code>meta-gradient</code>, <code>hessian-free</code>, "
        "<code>meta-sgd</code>, <code>importance</code>.</li>"
        '<li><b>Mistakes.</b> Show the wrong lines of <a href="mistakes.html">the known mistakes</a> '
        "without their names, and let students say what is wrong. Each comes from a public "
        "implementation.</li></ol>"
        "<section><h2>Exercises</h2><p>An exercise is a function of fedref in which one expression is "
        "missing. <code>fedref exercise start NAME DIR</code> writes the file; with <code>--hard</code> "
        "it has no formula. <code>fedref exercise check FILE</code> says whether the answer is right, "
        "and if not, what kind of mistake it is. It never says what is right. <code>fedref exercise list "
        "--solution</code> prints the solutions. The minutes are an estimate.</p>"
        f"{table(('exercise', 'trains', 'needs before', 'minutes', 'tells apart'), rows)}</section>"
        "<section><h2>Kinds of mistakes, and what a student is told</h2>"
        f"{table(('kind', 'what is said'), kinds)}</section>"
    )
    return Sheet("For teachers", body)
