"""`fedref check`: the proofs, as a table, as JSON, and as a picture."""

import json as json_module
import math
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fedref.boundary.values import Bounds
from fedref.lab.commands.console import show_progress

if TYPE_CHECKING:
    from fedref import proofs


def check(
    *,
    only: list[str] = (),  # type: ignore[assignment]
    seed: Annotated[int, Bounds(0)] = 0,
    json: bool = False,
    plot: Path | None = None,
) -> int:
    """Prove every derivative and every equation, numerically.
    The specification (fedref/spec.py) says what each loss is and differentiates it by dual numbers: nothing
    there is derived by hand. Compare every model's loss, gradient and Hessian-vector product with these,
    every equation with the specification or with the complex step of its own objective, and every
    algorithm's rounds with the specification's: one by one, stacked, on threads, in float32.

    only : TAG, run only the proofs of these tags; part of a tag selects all that contain it (any case)
    seed : seed of the random cases
    json : one JSON document instead of the table
    plot : also draw error against step size: FILE.png, .svg or .pdf

    columns
      tag      the equation, as beside its line in fedref/algorithms/, or a model's function
      compared the claim: which two values are compared
      error    max|got − expected| / max|expected|, the largest of all cases; a row passes with at most
               1e-12 (0 for "bit for bit"); about 1e-16 is rounding

    A dual number a + bε, ε² = 0, carries its derivative: f(a + bε) = f(a) + f′(a) b ε. The complex step
    Im f(w + ihv)/h subtracts nothing either; both are exact to rounding, and each is compared with the other.

    examples
      fedref check                                 everything, in well under a minute on one core
      fedref check --only "per-fedavg eq.6"        one equation
      fedref check --only per-fedavg "MLP tanh"    all tags that contain either
      fedref check --only apfl --json              {seed, ok, seconds, proofs: [{tag, claim, error, bound,
                                                   verdict, note}]}; error: null if it raised (see note)
      fedref check --plot steps.png                why the complex step: a picture for the blackboard

    exit code: 0 all passed; 1 one failed; 2 wrong input

    To check a gradient of your own: `python -c "import fedref.checks; help(fedref.checks)"`.
    """
    if plot:
        from fedref.lab import plots  # matplotlib is slow to import

        plots.format_of(plot)
    from fedref import proofs  # `fedref --help` does not need them

    start = time.perf_counter()
    rows = proofs.run(only, seed, partial(show_progress, "fedref check", " proofs"))
    seconds = time.perf_counter() - start
    print(format_json(rows, seed, seconds) if json else format_table(rows, seconds))
    if plot:
        from fedref.proofs import picture

        picture.draw(plot, seed)
        print(plot, file=sys.stderr if json else sys.stdout)
    return int(any(row.verdict != "ok" for row in rows))


def format_json(rows: "list[proofs.Row]", seed: int, seconds: float) -> str:
    """Return the rows as strict JSON, which has no nan."""
    listed = [row._asdict() | ({"error": None} if math.isnan(row.error) else {}) for row in rows]
    ok = all(row.verdict == "ok" for row in rows)
    report = {"seed": seed, "ok": ok, "seconds": round(seconds, 3), "proofs": listed}
    return json_module.dumps(report, indent=2, ensure_ascii=False, allow_nan=False)


def format_table(rows: "list[proofs.Row]", seconds: float) -> str:
    """Return the rows as an aligned table, with a row's note or exception below it."""
    cells = [("tag", "compared", "error", "verdict")]
    cells += [(f"[{row.tag}]", row.claim, f"{row.error:.1e}", row.verdict) for row in rows]
    tag, claim = (max(len(cell[i]) for cell in cells) for i in (0, 1))
    lines = []
    for (of, what, error, verdict), note in zip(cells, ["", *(row.note for row in rows)]):
        lines.append(f"{of:<{tag}}  {what:<{claim}}  {error:>7}  {verdict}")
        lines += [f"    {note}"] if note else []
    failed = sum(row.verdict != "ok" for row in rows)
    what = f"{failed} of {len(rows)} failed" if failed else f"all {len(rows)} hold"
    return "\n".join([*lines, "", f"{what} ({seconds:.1f} s)"])
