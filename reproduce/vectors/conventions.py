"""Slopes and curvatures at kinks, by library and version: `python -m reproduce.vectors.conventions [FILE]`.

It measures fedref, and torch and JAX if they are installed, and writes their columns into the table of
fedref/teach/text/frameworks.md; columns of other versions stay as they are.
"""

import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fedref import checks, spec

PAGE = Path(__file__).parents[2] / "fedref/teach/text/frameworks.md"
BEGIN, END = "<!-- conventions -->\n", "<!-- end of conventions -->\n"

#: What is measured: its name, the point, and whether the second derivative is.
ROWS = {
    "ReLU′(0)": (0.0, 1), "ReLU6′(0)": (0.0, 1), "ReLU6′(6)": (6.0, 1),
    "leaky ReLU′(0), 0.01 below": (0.0, 1),
    "ELU′(0)": (0.0, 1), "ELU″(0)": (0.0, 2), "ELU′(0), α = 2": (0.0, 1), "CELU″(0)": (0.0, 2),
    "SELU′(0)": (0.0, 1), "abs′(0)": (0.0, 1), "norm′(0)": (0.0, 1), "max(x, 0)′(0)": (0.0, 1),
    "min(x, 0)′(0)": (0.0, 1), "clip(x, 0, 1)′(0)": (0.0, 1), "clip(x, 0, 1)′(1)": (1.0, 1),
    "hinge′(1), by clip or max": (1.0, 1), "its square″(1)": (1.0, 2),
    "softplus(25) − 25": (25.0, 0), "softplus′(25) − 1": (25.0, 1),
    "max pooling, a tie: of the first": (0.0, 1), "maximum of an array, a tie: of the first": (0.0, 1),
}  # fmt: skip


def pair(stack: Any) -> Callable[[Any], Any]:
    """Return x ↦ (x, 0), of which x is the first of two equal values at 0."""
    return lambda x: stack([x, 0 * x])


def in_fedref() -> tuple[str, dict[str, Any], Callable[..., float]]:
    """Return fedref's functions: the specification's, and the rules of its dual numbers."""

    def measure(f: Any, x: float, order: int) -> float:
        at, one = np.array([x]), np.ones(1)
        total: Any = lambda w: f(w).sum()  # noqa: E731
        if order == 0:
            return float(f(at)[0]) - x
        g = checks.dual_gradient(total, at) if order == 1 else checks.dual_hvp(total, at, one)
        return float(g[0])

    tie = pair(np.stack)
    return "fedref", {
        "ReLU′(0)": spec.relu, "ELU′(0)": spec.elu, "ELU″(0)": spec.elu, "abs′(0)": np.abs,
        "norm′(0)": np.linalg.norm, "max(x, 0)′(0)": lambda x: np.maximum(x, 0),
        "min(x, 0)′(0)": lambda x: np.minimum(x, 0), "clip(x, 0, 1)′(0)": lambda x: np.clip(x, 0, 1),
        "clip(x, 0, 1)′(1)": lambda x: np.clip(x, 0, 1),
        "hinge′(1), by clip or max": lambda x: spec.hinge(x, 1),
        "its square″(1)": lambda x: spec.hinge(x, 1, 2),
        "softplus(25) − 25": lambda x: np.logaddexp(x, 0), "softplus′(25) − 1": lambda x: np.logaddexp(x, 0),
        "max pooling, a tie: of the first": lambda x: spec.first_max(tie(x)),
        "maximum of an array, a tie: of the first": lambda x: np.max(tie(x), 0),
    }, measure  # fmt: skip


def in_torch() -> tuple[str, dict[str, Any], Callable[..., float]]:
    torch = import_module("torch")
    F = torch.nn.functional

    def measure(f: Any, x: float, order: int) -> float:
        w = torch.tensor([x], dtype=torch.float64, requires_grad=True)
        y = f(w).sum()
        for _ in range(order):
            (y,) = torch.autograd.grad(y, w, create_graph=True)
        return float(y.detach()) - x * (order == 0)

    tie = pair(torch.stack)
    return f"torch {torch.__version__.partition('+')[0]}", {
        "ReLU′(0)": F.relu, "ReLU6′(0)": F.relu6, "ReLU6′(6)": F.relu6,
        "leaky ReLU′(0), 0.01 below": F.leaky_relu, "ELU′(0)": F.elu, "ELU″(0)": F.elu,
        "ELU′(0), α = 2": lambda x: F.elu(x, 2.0), "CELU″(0)": F.celu, "SELU′(0)": F.selu,
        "abs′(0)": torch.abs, "norm′(0)": torch.linalg.vector_norm,
        "max(x, 0)′(0)": lambda x: torch.maximum(x, 0 * x.detach()),
        "min(x, 0)′(0)": lambda x: torch.minimum(x, 0 * x.detach()),
        "clip(x, 0, 1)′(0)": lambda x: torch.clamp(x, 0, 1),
        "clip(x, 0, 1)′(1)": lambda x: torch.clamp(x, 0, 1),
        "hinge′(1), by clip or max": lambda x: torch.clamp(1 - x, min=0),
        "its square″(1)": lambda x: torch.clamp(1 - x, min=0) ** 2,
        "softplus(25) − 25": F.softplus, "softplus′(25) − 1": F.softplus,
        "max pooling, a tie: of the first": lambda x: F.max_pool1d(tie(x).T[None], 2),
        "maximum of an array, a tie: of the first": lambda x: torch.amax(tie(x), 0),
    }, measure  # fmt: skip


def in_jax() -> tuple[str, dict[str, Any], Callable[..., float]]:
    jax: Any = import_module("jax")
    jax.config.update("jax_enable_x64", True)
    np_, nn = jax.numpy, jax.nn

    def measure(f: Any, x: float, order: int) -> float:
        g: Any = lambda x: f(x[None]).sum()  # noqa: E731
        for _ in range(order):
            g = jax.grad(g)
        return float(g(np_.array(x))) - x * (order == 0)

    tie = pair(np_.stack)

    def pool(x: Any) -> Any:
        return jax.lax.reduce_window(tie(x), -np_.inf, jax.lax.max, (2, 1), (2, 1), "VALID")

    return f"JAX {jax.__version__}", {
        "ReLU′(0)": nn.relu, "ReLU6′(0)": nn.relu6, "ReLU6′(6)": nn.relu6,
        "leaky ReLU′(0), 0.01 below": nn.leaky_relu, "ELU′(0)": nn.elu, "ELU″(0)": nn.elu,
        "ELU′(0), α = 2": lambda x: nn.elu(x, 2.0), "CELU″(0)": nn.celu, "SELU′(0)": nn.selu,
        "abs′(0)": np_.abs, "norm′(0)": np_.linalg.norm, "max(x, 0)′(0)": lambda x: np_.maximum(x, 0),
        "min(x, 0)′(0)": lambda x: np_.minimum(x, 0), "clip(x, 0, 1)′(0)": lambda x: np_.clip(x, 0, 1),
        "clip(x, 0, 1)′(1)": lambda x: np_.clip(x, 0, 1),
        "hinge′(1), by clip or max": lambda x: np_.maximum(0, 1 - x),
        "its square″(1)": lambda x: np_.maximum(0, 1 - x) ** 2,
        "softplus(25) − 25": nn.softplus, "softplus′(25) − 1": nn.softplus,
        "max pooling, a tie: of the first": pool,
        "maximum of an array, a tie: of the first": lambda x: np_.max(tie(x), 0),
    }, measure  # fmt: skip


LIBRARIES = in_fedref, in_torch, in_jax


def measure_all(libraries: Iterable[Callable[[], Any]] = LIBRARIES) -> dict[str, list[str]]:
    """Return the column of each library that is installed: the numbers of ROWS, "" for what it lacks."""
    columns = dict[str, list[str]]()
    for library in libraries:
        try:
            name, functions, measure = library()
        except ImportError:
            continue
        columns[name] = []
        for row, (x, order) in ROWS.items():
            y = measure(functions[row], x, order) if row in functions else None
            y = y - 1 if y is not None and row.endswith("− 1") else y
            columns[name].append("" if y is None else f"{y + 0.0:.3g}".replace("-", "−"))
    return columns


def read_table(text: str) -> dict[str, list[str]]:
    """Return the columns of the table in a page; {} if there is none."""
    match = re.search(f"{BEGIN}(.*?){END}", text, re.DOTALL)
    lines = [line.strip("|\n").split("|") for line in match[1].splitlines()] if match else []
    cells = [[cell.strip() for cell in line] for line in lines if line != [""]]
    if not cells or [row[0] for row in cells[2:]] != [*ROWS]:
        return {}
    return {name: [row[i] for row in cells[2:]] for i, name in enumerate(cells[0]) if i}


def write_table(columns: dict[str, list[str]]) -> str:
    """Return the table as text: fedref first, then torch and JAX by version."""

    def key(name: str) -> tuple[int, list[int]]:
        library, _, version = name.partition(" ")
        return ["fedref", "torch", "JAX"].index(library), [
            int(n) for n in re.findall(r"\d+", version)
        ]

    names = sorted(columns, key=key)
    lines = [["", *names], ["---", *["--:"] * len(names)]]
    lines += [[row, *(columns[name][i] for name in names)] for i, row in enumerate(ROWS)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(path: Path = PAGE) -> None:
    text = path.read_text("utf-8")
    table = write_table(read_table(text) | measure_all())
    start, rest = text.split(BEGIN)
    path.write_text(start + BEGIN + table + END + rest.partition(END)[2], "utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
