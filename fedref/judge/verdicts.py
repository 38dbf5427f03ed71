"""Verdicts: whether an answer to a case is right, and what to say at a kink, where code makes a choice."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from fedref.judge import compare, errata
from fedref.judge.adapter import try_answer
from fedref.judge.case import Case, Values
from fedref.models.numerics import Array

PASSED, FAILED, NOT_OFFERED, NOT_ASKED = "passed", "failed", "not offered", "not asked"
DERIVATIVES = "loss", "grad", "hvp", "meta_gradient"
SAME_SLOPE = 1e-4  # slopes at a kink are one up to this, relatively, in float32, too
TWICE = "answers differently when asked twice"


class Answer(NamedTuple):
    """A backend's answer to one case: outputs by name, or the reason why there are none.

    outputs : arrays and Python's numbers; what is neither is `NoNumbers`. offered : whether the backend
    has the call, for this case.
    """

    outputs: Values | None = None
    error: str = ""
    remarks: tuple[str, ...] = ()
    offered: bool = True


class Result(NamedTuple):
    """The verdict on one case. output : the first that differs; error : its relative error.

    mistakes : known mistakes that explain it, each by itself; looked : whether they were looked for.
    evidence : what can be seen in the numbers. outputs : all that was returned, where numbers differ.
    """

    case: str
    tag: str
    status: str
    output: str = ""
    error: float | None = None
    tolerance: float | None = None
    reason: str = ""
    mistakes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    outputs: Mapping[str, Any] = {}
    evidence: str = ""
    looked: bool = True


class Graded(NamedTuple):
    """A drawn case with its answer, and the verdict on a backend's."""

    case: Case
    result: Result


def grade(answer: Answer, case: Case, dtype: DTypeLike = np.float64) -> Result:
    """Return the verdict on a backend's answer to one case."""
    result = Result(case.name, case.tag, FAILED, remarks=answer.remarks)
    if not answer.offered:
        return result._replace(status=NOT_OFFERED)
    if answer.outputs is None:
        return result._replace(reason=answer.error)
    with np.errstate(all="ignore"):
        wrong = compare.compare(answer.outputs, case, dtype)
    if wrong is None:
        remarks = (*answer.remarks, *compare.dtype_remarks(answer.outputs, case, dtype))
        return result._replace(status=PASSED, remarks=remarks)
    if case.convention and not wrong.reason and compare.is_convention(wrong.error, measure(case)):
        return result._replace(
            status=PASSED, remarks=answer.remarks + convention_remarks(case, answer.outputs)
        )
    return result._replace(
        output=wrong.output, error=wrong.error, tolerance=case.tolerance[np.dtype(dtype).name],
        reason=wrong.reason, outputs={} if wrong.reason else numbers_of(answer.outputs, case, dtype),
    )  # fmt: skip


def grade_again(case: Case, result: Result, dtype: str, condition: float) -> Graded | None:
    """Return the verdict on numbers that differ, of a case whose condition is known by now.

    It is None if the case does not count. At a kink a difference is a remark where there is a convention.
    """
    if condition < compare.KINK:
        if not result.outputs:
            return Graded(case, result)
        wider = {name: x * condition for name, x in case.tolerance.items()}
        case = case._replace(tolerance=wider)
        return Graded(case, grade(Answer(result.outputs, remarks=result.remarks), case, dtype))
    remarks = convention_remarks(case, result.outputs)
    if remarks and compare.is_convention(result.error, condition):
        return Graded(case, Result(case.name, case.tag, PASSED, remarks=remarks))
    return Graded(case, result) if remarks else None


def measure(case: Case) -> float:
    """Return the condition of a case: how many times as much as its inputs its outputs move."""
    fixed = "loss", ".s"  # a weight of 0 is no number to move
    floats = {n: x for n, x in case.inputs.items() if x.dtype.kind == "f" and not n.endswith(fixed)}

    def answer_at(moved: dict[str, Any]) -> dict[str, Any]:
        return try_answer(case._replace(inputs=case.inputs | moved))

    return compare.measure_condition(answer_at, floats, case.outputs)


#: How it is said that a derivative is another one there.
AT_KINK = "differs at a kink"
#: Where it is stated what a derivative is at a kink: family, activation or pooling of the model.
CONVENTIONS = {
    "svm": "the slope at margin 1 is 0", "relu": "ReLU′(0) = 0", "elu": "ELU″(0) = 0",
    "max": "a tie in max-pooling goes to the first",
}  # fmt: skip
#: Whose other slope it is: that of a known mistake, by this share, is what these functions have
#: (data/vectors/README.md has their slopes by version).
LIBRARIES = (
    ("ReLU′(0) is 1", 1, "torch.clamp before torch 2.14"),
    ("ReLU′(0) is 1/2", 1, "torch.maximum and jax.numpy.maximum"),
    ("ELU″(0) is 1", 1, "jax.nn.elu"),
    ("ties of max-pooling are shared", 1, "torch.amax and jax.numpy.max"),
    ("the hinge's slope at margin 1 is −y", 1, "torch.clamp before torch 2.14"),
    ("the hinge's slope at margin 1 is −y", 1 / 2, "torch.maximum and jax.numpy.maximum"),
)


def convention_remarks(case: Case, outputs: Values) -> tuple[str, ...]:
    """Return what to say of a derivative that differs at a kink; of rounds nothing is stated."""
    kinds = [case.model.get(name) for name in ("family", "activation", "pool")]
    words = [CONVENTIONS[x] for x in kinds if x in CONVENTIONS and case.call in DERIVATIVES]
    library = library_of(case, outputs) if words else ""
    yours = f"; yours is that of {library}" if library else ""
    return tuple(f"{case.call} {AT_KINK}: here {word}{yours}" for word in words)


def library_of(case: Case, outputs: Values) -> str:
    """Return the functions of torch and JAX that have the slope which these outputs have; "" for none."""
    for name, share, library in LIBRARIES:
        made = errata.answer(case, name)
        both = [k for k in case.outputs if k in made and k in outputs]
        mixed = {k: case.outputs[k] + share * (made[k] - case.outputs[k]) for k in both}
        moved = any(compare.difference(x, case.outputs[k]) > SAME_SLOPE for k, x in mixed.items())
        if moved and all(compare.difference(outputs[k], x) <= SAME_SLOPE for k, x in mixed.items()):
            return library
    return ""


def numbers_of(outputs: Values, case: Case, dtype: DTypeLike) -> dict[str, Array]:
    """Return the outputs that the case has, as arrays; without those of another form."""
    return {
        name: np.asarray(outputs[name])
        for name, want in case.outputs.items()
        if name in outputs and not compare.form_error(outputs[name], want, dtype)
    }
