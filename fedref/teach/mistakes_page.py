"""The page of twenty mistakes: the wrong line beside the right one, and what catches it."""

from fedref.conformance.mistakes import MISTAKES
from fedref.teach import mistakes
from fedref.teach.markup import Sheet, escape, highlighted, picture_block, prose
from fedref.teach.mistake_runs import RUNS, harmless_mistakes, picture_of
from fedref.teach.svg import draw


def file_name(sign: str, name: str) -> str:
    """mistake-9a: a mistake's place on the page, and its picture's file."""
    return f"mistake-{sign if sign != '+' else '-'.join(name.split()[:3]).lower()}"


def heading(sign: str, name: str) -> str:
    title = mistakes.sentence(name).removesuffix(".")
    return f"{sign}. {title}" if sign != "+" else title


def mistake_block(name: str, sign: str, picture: str) -> str:
    """One mistake as a section."""
    lines = mistakes.lines(name)
    pair = "".join(
        f"<div class={kind}><h3>{kind}</h3>{highlighted(chr(10).join(code), {})}</div>"
        for kind, code in (("wrong", lines.wrong), ("right", lines.right))
    )
    case, _, said = mistakes.caught_by(name).partition(" ")
    return (
        f'<section class=mistake id="{file_name(sign, name)}"><h2>{escape(heading(sign, name))}</h2>'
        f"<p>{prose(mistakes.sentence(MISTAKES[name].line))}</p>"
        f"<p class=where>{escape(lines.where)}</p>"
        f"<div class=beside><div class=pair>{pair}</div>{picture}</div>"
        f"<p class=caught>Caught by <code>{escape(case)}</code> {escape(said)}</p></section>"
    )


def mistakes_page() -> Sheet:
    """Twenty mistakes: the wrong line beside the right one, some runs, and what catches each."""
    signs = mistakes.signs()
    pictures = {file_name(signs[name], name): draw(picture_of, name) for name in RUNS}
    blocks = {file: picture_block(file, picture) for file, picture in pictures.items()}
    losses = sum("loss" in run.column for run in RUNS.values())
    entries = "".join(
        f'<li><a href="#{file_name(sign, name)}">{escape(heading(sign, name))}</a></li>'
        for name, sign in signs.items()
    )
    body = (
        "<h1>Twenty mistakes</h1><p>All of them were found in public implementations. Each wrong line "
        "here is made in fedref itself: it replaces the right one while a run is computed, and a test "
        "lets the conformance suite name the mistake by what it does.</p>"
        f"<p>A curve does not find them: {len(harmless_mistakes())} of the {losses} runs whose loss is "
        "shown end no worse with the mistake than without. A golden vector does: "
        "<code>fedref conformance</code>.</p>"
        f'<nav class=contents aria-label="Mistakes"><ol>{entries}</ol></nav>'
    )
    for name, sign in signs.items():
        body += mistake_block(name, sign, blocks.get(file_name(sign, name), ""))
    return Sheet("Twenty mistakes", body, pictures)
