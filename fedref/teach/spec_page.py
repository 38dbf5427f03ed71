"""The page of the specification: the papers in one file, section by section."""

import inspect
import re

from fedref import spec
from fedref.teach import source
from fedref.teach.markup import Sheet, escape, highlighted


def spec_page() -> Sheet:
    """Return `fedref/spec.py`: each paper's box, and where the same is written out by hand."""
    _, *sections = re.split(r"^# -+ \d+\. (.*?) -+\n", inspect.getsource(spec), flags=re.M)
    intro = (spec.__doc__ or "").strip()
    body = "<h1>The papers in one file</h1>"
    body += f"<pre class=text tabindex=0>{escape(intro)}</pre>"
    files = {m.__name__.rpartition(".")[2]: m for m in source.modules()}
    for title, code in zip(sections[::2], sections[1::2]):
        body += f"<section><h2>{escape(title)}</h2>"
        paper = re.findall(r"[\w-]+", title)[0].lower().replace("-", "_")
        if paper in files:
            body += (
                f'<p>By hand, fast, and proved equal: <a href="{paper}.html">{paper}.py</a>.</p>'
            )
        body += f"{highlighted(code.strip(), {})}</section>"
    return Sheet("The papers in one file", body, {})
