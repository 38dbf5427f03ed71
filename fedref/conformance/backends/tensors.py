"""The specification on another library's arrays: its own text, with that library's derivatives.

`fedref/spec.py` and the judge's adapter run as they stand; `np` is another module there, `gradient` is the
library's, and so is every layer of a model that the library has (torch.py). So it is a second witness of
every derivative and every layer. The algorithms are the specification's: their witnesses are the papers,
fedref/algorithms, and the backends of other people.
"""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fedref.judge.case import Case, Values, build_model, cast, nest
from fedref.judge.errata import Edit, Mistake, build_judge

#: H(w)v: a library that differentiates a gradient needs no complex step.
HVP = Edit(
    "return np.imag(self.grad(w + 1e-200j * v, D)) / 1e-200",
    "return gradient(lambda w: (self.grad(w, D) * v).sum(), w)",
)
#: What the specification imports of NumPy by name.
IMPORTED = ("exp", "log", "sqrt", "tanh", "norm")


class Tensors:
    """A backend that answers whole cases.

    library : a module of NumPy's functions for its arrays, with `array`, `gradient` and `use_dtype`;
    layers : the specification's functions that the library has, too.
    """

    def __init__(self, library: Any, **layers: Any) -> None:
        self.library = library
        self.adapter = build_judge(Mistake("in another library", "", "", "", (HVP,)))
        self.spec = self.adapter.spec
        named = {name: getattr(library, name) for name in IMPORTED}
        vars(self.spec).update(np=library, gradient=library.gradient, **named | layers)
        self.adapter.np = library

    def answer_case(self, case: Case, dtype: DTypeLike = np.float64) -> dict[str, Any]:
        """Return the specification's answer to a case, computed by the library in dtype."""
        self.library.use_dtype(np.dtype(dtype).name)
        given = {
            name: self.library.array(cast(x, dtype)) if is_number(name, x) else x
            for name, x in case.inputs.items()
        }
        return {n: np.asarray(x) for n, x in self.adapter.answer(case, nest(given)).items()}

    def loss(self, model: Values, w: Any, D: Values) -> Any:
        """Return a case's loss, differentiable, at the library's vector w: for backends of your own.

        model : a case's table of the model.
        w : the parameters, a tensor (d,).
        D : a case's batch: {"X": (B, p), "y": (B,)} as NumPy arrays.
        """
        D = {name: self.library.array(x) for name, x in D.items()}
        return self.adapter.risk_of(build_model(model))(w, self.adapter.batch(D))


def is_number(name: str, x: Any) -> bool:
    """Return whether the library gets an input: rows, labels, parameters. A plan stays NumPy's."""
    return name.split(".")[-1] in ("X", "y") or (x.dtype.kind == "f" and "plans" not in name)
