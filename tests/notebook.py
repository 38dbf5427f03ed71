"""Runs a notebook's code cells in order, in one namespace, and keeps what they show.

    python -m tests.notebook fedref/teach/tour.ipynb

writes the outputs into the file. What a cell shows is what Jupyter shows: what it prints, the value of
a last expression, and the figures that it leaves open.
"""

import ast
import base64
import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

DPI = 96


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def picture(figure: Any, alt: str) -> dict[str, Any]:
    """Return a figure as an output, the same bytes on every run of one Matplotlib; alt : it in words."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    data = {"image/png": base64.b64encode(file.getvalue()).decode(), "text/plain": [alt]}
    return {"output_type": "display_data", "metadata": {"image/png": {"alt": alt}}, "data": data}


def run_cell(
    source: str, scope: dict[str, Any], number: int, alt: str = "<Figure>"
) -> list[dict[str, Any]]:
    """Run one cell, which may change `scope`, and return its outputs. Raises what the cell raises."""
    tree = ast.parse(source, f"cell {number}")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), scope)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), scope)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = lines(printed.getvalue())
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None and not source.rstrip().endswith(";"):
        result = {"metadata": {}, "data": {"text/plain": lines(repr(value))}}
        outputs.append({"output_type": "execute_result", "execution_count": number, **result})
    for figure in map(plt.figure, plt.get_fignums()):
        outputs.append(picture(figure, alt))
    plt.close("all")
    return outputs


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of this run; a cell's metadata may say its picture in words."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            alt = cell["metadata"].get("alt", "<Figure>")
            outputs = run_cell("".join(cell["source"]), scope, number, alt)
            cell = {**cell, "execution_count": number, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def main(path: Path) -> None:
    notebook = run(json.loads(path.read_text("utf-8")))
    path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    plt.switch_backend("Agg")
    main(Path(sys.argv[1]))
