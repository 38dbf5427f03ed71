"""fedref/teach/tour.ipynb: it runs in order, asserts what it says, and shows what it is committed with."""

import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import notebook
import pytest

PATH = Path(__file__).parent.parent / "fedref" / "teach" / "tour.ipynb"
TOUR = json.loads(PATH.read_text("utf-8"))
CODE = [cell for cell in TOUR["cells"] if cell["cell_type"] == "code"]
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?")


def shown(cells):
    """(cell, kind, text) of every output; pictures without their bytes."""
    return [
        (number, output["output_type"], "".join(output.get("text") or output["data"]["text/plain"]))
        for number, cell in enumerate(cells, 1)
        for output in cell["outputs"]
    ]


def near(a: str, b: str) -> bool:
    """Whether two printed numbers differ by no more than one in the last digit; errors of rounding
    may be anything below 1e-12."""
    if "e" in a:
        return a == b or max(abs(float(a)), abs(float(b))) < 1e-12
    return abs(float(a) - float(b)) <= 1.001 * 10.0 ** -len(a.partition(".")[2])


def test_it_is_thirty_small_cells_that_have_been_run():
    assert len({cell["id"] for cell in TOUR["cells"]}) == len(TOUR["cells"]) == 30
    assert PATH.stat().st_size < 400_000
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    assert all(cell["outputs"] for cell in CODE)
    outputs = [output for cell in CODE for output in cell["outputs"]]
    alts = [x["metadata"]["image/png"]["alt"] for x in outputs if "image/png" in str(x)]
    assert (len(alts), min(map(len, alts)) > 30) == (6, True)


@pytest.mark.slow
def test_it_runs_and_shows_what_it_was_committed_with():
    plt.switch_backend("Agg")
    found = [cell for cell in notebook.run(TOUR)["cells"] if cell["cell_type"] == "code"]
    got, wanted = shown(found), shown(CODE)
    assert [NUMBER.sub("#", str(x)) for x in got] == [NUMBER.sub("#", str(x)) for x in wanted]
    numbers = [[n for *_, text in one for n in NUMBER.findall(text)] for one in (got, wanted)]
    pairs = list(zip(*numbers, strict=True))
    assert len(pairs) > 30
    assert [(a, b) for a, b in pairs if not near(a, b)] == []
