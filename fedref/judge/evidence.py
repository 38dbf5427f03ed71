"""Evidence: what can be seen in wrong numbers that no known mistake explains."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from fedref.judge.case import Case
from fedref.judge.compare import compare
from fedref.judge.terms import tell
from fedref.judge.verdicts import FAILED, Result
from fedref.models.numerics import Array

#: A mistake explains outputs that differ from its own by less than this, relatively, or the tolerance.
SAME = {"float64": 1e-8, "float32": 1e-4}
#: The name for numbers that were float32 somewhere in the computation.
SINGLE = "float32 somewhere"


def describe(result: Result, case: Case, dtype: str) -> Result:
    """Return the result with SINGLE, or with evidence, where it has numbers and no name."""
    if result.mistakes or result.evidence or result.status != FAILED or not result.outputs:
        return result
    if is_single(result, case, dtype):
        return result._replace(mistakes=(SINGLE,))
    return result._replace(evidence="; ".join(evidence(result, case, dtype)))


def is_single(result: Result, case: Case, dtype: str) -> bool:
    """Return whether all outputs are right to float32's precision, and the wrong one is float32 numbers."""
    if dtype != "float64" or result.reason:
        return False
    if compare(result.outputs, case._replace(tolerance={"float64": case.tolerance["float32"]})):
        return False
    x = np.asarray(result.outputs[result.output])
    return bool(np.array_equal(x, x.astype(np.float32).astype(np.float64)))


def evidence(result: Result, case: Case, dtype: str) -> Iterator[str]:
    """Yield what can be seen in the first output that is wrong."""
    got = np.asarray(result.outputs[result.output], float)
    want = np.asarray(case.outputs[result.output], float)
    scale, far = np.max(np.abs(want), initial=0) or 1, np.max(np.abs(got - want), initial=0)
    # where little is wrong, anything would be the same up to SAME
    same = max(case.tolerance.get(dtype, 0.0) * scale, min(SAME[dtype] * scale, far / 1000))
    wrong = np.abs(got - want) > same
    # what is about 0 is right by chance, as where all are wrong in proportion
    if wrong.any() and (np.abs(want[~wrong]) > same * max(1, scale / far)).any():
        yield f"wrong only in {places_of(wrong, case)}"
    if wrong.any() and not got[wrong].any():
        yield "what is wrong is 0"
        return
    factor = ratio(got[wrong], want[wrong], same)
    if factor is not None and abs(factor - 1) > 1e-7:  # told as 1
        yield f"{tell_number(factor, case)} × what is right"
        return
    start = f"state.{result.output.partition('.')[2]}"
    known = {**case.outputs, **case.inputs}
    del known[result.output]
    for name, x in known.items():
        if x.shape != got.shape or x.dtype.kind != "f" or not x.any():
            continue
        if np.max(np.abs(got - x), initial=0) <= same:
            yield "it is as it was at the start" if name == start else f"it is the right {name}"
            break
    else:
        yield from orders(got, want, same, case)
    if not compare(result.outputs, case._replace(tolerance={"float64": case.tolerance["float32"]})):
        yield "right to the 7 digits of float32, no more"
    for name, x in case.inputs.items():
        if x.shape == want.shape and x.dtype.kind == "f":
            if np.max(np.abs(got - want * x)) <= same:
                yield f"{name} ⊙ what is right"
            factor = ratio((got - want)[wrong], x[wrong], same)
            if factor is not None:
                yield f"off by {tell_number(factor, case)} × {name}"


def ratio(got: Array, want: Array, same: float) -> float | None:
    """Return c where got = c · want but for `same`, from at least two numbers that are not 0."""
    square = float(np.sum(want * want))
    if np.sum(np.abs(want) > same) < 2:
        return None
    c = float(np.sum(got * want)) / square
    return c if np.max(np.abs(got - c * want)) <= same and abs(c) > 1e-12 else None


def tell_number(c: float, case: Case) -> str:
    """Return a number as a fraction, or as one times a hyperparameter of the case, or in six digits.

    >>> from types import SimpleNamespace
    >>> case = SimpleNamespace(hyper={"mu": 0.7}, model={"l2": 0.1})
    >>> tell_number(2 / 3, case), tell_number(-0.35, case), tell_number(2 ** 0.5, case)
    ('2/3', '-1/2·mu', '1.41421')
    """
    known = {**case.hyper, "l2": case.model["l2"]}
    known = {name: x for name, x in known.items() if type(x) is float and x and x != 1}
    q = Fraction(c).limit_denominator(100)
    exact = str(q) if abs(c - q) < 1e-7 * abs(c) else f"{c:.6g}"
    return tell(c, constants=known) or exact


def blocks_of(x: Array, case: Case) -> Iterator[tuple[str, Array]]:
    """Yield an output's parts: each layer's parameters in their shape (behind others), else the whole."""
    if not x.shape or x.shape[-1] != case.model["d"]:
        yield "", x
        return
    end = layer = 0
    for shape in case.model["shapes"]:
        begin, end, layer = end, end + int(np.prod(shape)), layer + (len(shape) > 1)
        name = f"{'W' if len(shape) > 1 else 'b'}{layer}"
        yield name, x[..., begin:end].reshape(*x.shape[:-1], *shape)


def orders(got: Array, want: Array, same: float, case: Case) -> Iterator[str]:
    """Yield along which axis the entries are right, but in another order."""
    for (name, x), (_, y) in zip(blocks_of(got, case), blocks_of(want, case)):
        for axis in range(y.ndim) if np.max(np.abs(x - y), initial=0) > same else ():
            slices = [
                np.moveaxis(z, axis, 0).reshape(len(np.moveaxis(z, axis, 0)), -1) for z in (x, y)
            ]
            near = np.max(np.abs(slices[0][:, None] - slices[1]), axis=-1, initial=0) <= same
            if (near.sum(0) == 1).all() and (near.sum(1) == 1).all():
                order = ", ".join(map(str, near.argmax(1)))
                yield f"{name or 'it'} is right in another order: along axis {axis} yours are {order}"
                break


def places_of(wrong: Array, case: Case) -> str:
    """Return the blocks of parameters that are wrong, or the entries: "W2 (4, 3)", "b1[2]"."""
    places = list[str]()
    if wrong.ndim > 1 and wrong.shape[-1] == case.model["d"]:  # each of a step, client or test
        some = np.flatnonzero(wrong.any(tuple(range(1, wrong.ndim))))
        inner = places_of(np.asarray(wrong[some].any(0)), case)
        first = int(some[0]) if len(some) else 0
        if first and len(some) == len(wrong) - first:
            return f"what follows the first {first} of {len(wrong)}: {inner}"
        which = ", ".join(map(str, some))
        return inner if len(some) == len(wrong) else f"{which} of {len(wrong)}: {inner}"
    for name, part in blocks_of(wrong, case):
        if name and part.all():
            places.append(f"{name} {part.shape}")
        elif part.any():
            at = [tuple(i) for i in np.argwhere(part).tolist()]
            few = ", ".join(f"{name}[{', '.join(map(str, i))}]" for i in at[:4])
            rest = f", … of {part.shape}" if len(at) > 4 else ""
            places.append(whole_axis(name, part) or few + rest)
    return ", ".join(places)


def whole_axis(name: str, wrong: Array) -> str:
    """Return "W2[:, 3]" where exactly the entries of some indices along one axis are wrong, else ""."""
    for axis in range(wrong.ndim) if wrong.ndim > 1 else ():
        some = np.flatnonzero(wrong.any(tuple(i for i in range(wrong.ndim) if i != axis)))
        if np.take(wrong, some, axis).all():
            index = [":"] * wrong.ndim
            return ", ".join(
                f"{name}[{', '.join([*index[:axis], str(i), *index[axis + 1 :]])}]" for i in some
            )
    return ""
