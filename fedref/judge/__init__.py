"""The judge: `fedref/spec.py` answers every case, and all that is compared is compared with it.

A `Case` is a function of the papers, or some rounds of an algorithm, with its inputs: golden vectors are
cases, and so are those that Hypothesis draws. `answer(case)` is what the specification computes for it:

    >>> import numpy as np
    >>> from fedref.judge import answer, make_case
    >>> from fedref.models import BinaryLogistic
    >>> D = {"X": np.ones((1, 1)), "y": np.array([1])}
    >>> inputs = {"w": np.zeros(1), "D": D, "D1": D, "D2": D}
    >>> model = BinaryLogistic(1, bias=False)
    >>> case = make_case("meta_gradient", model, inputs, "per-fedavg", {"alpha": 0.5, "beta": 1.0})
    >>> answer(case)
    {'meta_gradient': array([-0.38309556])}

Inputs are those of a backend (`fedref.conformance` lists calls, inputs and conventions). Outputs have the
same names, flat: {"meta_gradient": ...}, {"0.server.w": ..., "0.clients.3.c_i": ...}. A round's outputs are
the server's state, as far as the specification yields it; what each client keeps that has taken part so
far; and means over clients, such as `0.measured.penalty`. A part that the specification does not have
raises NotImplementedError.

`trace(lambda: answer(case))` returns the lines of `fedref/spec.py` that ran, with the values that they set,
so that a person can check a case on a blackboard. `find_combination` says which terms of these lines a
wrong answer is made of: "yours is u + alpha * f.hvp(w, u, D2)". `mistaken(algorithm, name)` is an algorithm
with a known mistake (`fedref explain mistakes` lists them): a run of it has the curve of code that makes
it.

All comparisons share this package, so an error in it would show in none of them. The golden vectors guard
against that: other code computed them.
"""

from fedref.judge.adapter import answer
from fedref.judge.case import Case, make_case
from fedref.judge.errata import mistaken
from fedref.judge.lines import Line, trace
from fedref.judge.terms import Combination, find_combination

__all__ = [
    "Case",
    "Combination",
    "Line",
    "answer",
    "find_combination",
    "make_case",
    "mistaken",
    "trace",
]
