"""Measure the constants of `fedref.conformance.units`: `python -m reproduce.vectors.units`.

The backend is torch's in float32, with the operands of each matrix product and convolution rounded to U, in
derivatives, too, and sums in float32: as a GPU has it. Printed is, for TF32's unit and all coarser ones, the
largest error of all cases in units of condition × U: of smooth models, and of those with a ReLU, a maximum or
a hinge. Then, for the units that have names, how many known mistakes still fail.
"""

from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedref.conformance import suite, vectors
from fedref.conformance.backends import load_backend
from fedref.conformance.naming import holds
from fedref.conformance.units import KINKS, UNITS, with_units
from fedref.judge import errata
from fedref.judge.compare import difference

PRODUCTS = ("mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm", "convolution")


def rounded(x: Any, unit: float) -> Any:
    """Return x rounded to the nearest number of a significand whose relative rounding is at most `unit`."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return x
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(mantissa / unit) * unit, exponent).to(x.dtype)


class Rounded(TorchDispatchMode):
    """Rounds what is multiplied."""

    def __init__(self, unit: float) -> None:
        super().__init__()
        self.unit = unit

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__.partition("_backward")[0] in PRODUCTS:
            args = [rounded(x, self.unit) for x in args]
        return func(*args, **(kwargs or {}))


def measure(unit: float) -> dict[str, float]:
    """Return for each case but those at kinks its largest error, in units of condition × unit."""
    backend, errors = load_backend("torch"), dict[str, float]()
    for case in vectors.read():
        with Rounded(unit):
            answer = suite.call_safely(backend, case, np.float32)
        if answer.outputs is not None and not case.convention:
            floats = [
                n for n, x in case.outputs.items() if x.dtype.kind == "f" and n in answer.outputs
            ]
            worst = max(difference(answer.outputs[n], case.outputs[n]) for n in floats)
            errors[case.name] = worst / (case.condition * unit)
    return errors


def count_rejected(unit: float) -> tuple[int, int]:
    """Return how many known mistakes some case still tells, and how many there are."""
    cases = sorted(vectors.read(), key=lambda case: case.model["d"])
    wider = with_units(cases, dict.fromkeys((case.call for case in cases), unit))
    known = [[case for case in wider if name in case.catches] for name in errata.MISTAKES]
    rejected = [
        any(not holds(errata.answer(case, name), case, "float64") for case in some)
        for name, some in zip(errata.MISTAKES, known)
    ]
    return sum(rejected), sum(map(bool, known))


if __name__ == "__main__":
    kinked = {c.name for c in vectors.read() if KINKS & {str(x) for x in c.model.values()}}
    for power in range(11, 3, -1):
        errors = measure(2.0**-power)
        for what, some in (("smooth", errors.keys() - kinked), ("kinked", errors.keys() & kinked)):
            worst = max(some, key=errors.__getitem__)
            middle = np.median([errors[case] for case in some])
            print(f"2**-{power} {what}: {errors[worst]:.3g} in {worst}, median {middle:.2g}")
    for name, unit in UNITS.items():
        print(name, "rejects {} of {} known mistakes".format(*count_rejected(unit)))
