"""Units of rounding: how far answers may lie apart if products are rounded more coarsely than their dtype.

    --unit tf32      --unit 2**-9      --unit grad=bfloat16,hvp=2**-7

A GPU rounds what it multiplies to 11 binary digits (TF32, float16) or 8 (bfloat16) and adds in float32. The
tolerance of a case is then its condition × the unit × a constant that was measured.
"""

import re
from collections.abc import Sequence

from fedref.boundary.errors import ConfigError, unknown
from fedref.judge.case import Case

#: Name → the largest relative error of rounding.
UNITS = {"tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}
#: Twice the largest error of all cases, in units of condition × unit (`python -m reproduce.vectors.units`):
#: up to that of TF32; of coarser ones where the model is smooth, and where a unit may cross a kink.
FINE, SMOOTH, KINKED = 2.0, 3.4, 29.0
KINKS = {"svm", "relu", "max"}


def constant(case: Case, unit: float) -> float:
    """Return the factor c: an answer may be off by c × condition × unit."""
    if unit <= UNITS["tf32"]:
        return FINE
    return KINKED if KINKS & {str(x) for x in case.model.values()} else SMOOTH


def parse_units(text: str, calls: Sequence[str]) -> dict[str, float]:
    """Return function → unit of "U" or "FUNCTION=U,...", U a name or a number; {} of "".

    >>> parse_units("grad=2**-9,hvp=tf32", ["loss", "grad", "hvp"])
    {'grad': 0.001953125, 'hvp': 0.00048828125}
    """
    units = dict[str, float]()
    for part in filter(None, text.split(",")):
        call, _, value = part.strip().rpartition("=")
        if call and call not in calls:
            raise ConfigError(f"--unit {part}: {unknown('function', call, calls)}")
        units |= dict.fromkeys([call] if call else calls, parse_unit(value))
    return units


def parse_unit(text: str) -> float:
    """Return a unit by its name or its number, 2**-11 or 1e-3."""
    if text in UNITS:
        return UNITS[text]
    power = re.fullmatch(r"2\*\*-(\d{1,2})", text)
    try:
        unit = 2.0 ** -int(power[1]) if power else float(text)
    except ValueError:
        unit = 0.0
    if not 0 < unit <= 2.0**-4:
        known = ", ".join(UNITS)
        raise ConfigError(f"--unit {text}: expected {known}, 2**-N or a number up to 2**-4")
    return unit


def with_units(cases: Sequence[Case], units: dict[str, float]) -> list[Case]:
    """Return the cases with the tolerances that follow from the units of their functions."""

    def widen(case: Case) -> Case:
        unit = units.get(case.call, 0.0)
        coarse = case.condition * unit * constant(case, unit)
        return case._replace(tolerance={k: max(x, coarse) for k, x in case.tolerance.items()})

    return list(map(widen, cases))


def say_units(cases: Sequence[Case], units: dict[str, float], dtype: str) -> list[str]:
    """Return for each function the smallest relative mistake that some case still tells."""
    lines = []
    for call, unit in units.items():
        least = min((case.tolerance[dtype] for case in cases if case.call == call), default=None)
        if least is not None:
            lines.append(f"unit of {call}: {unit:.2g}; a mistake of {100 * least:.2g} % is told")
    return lines
