"""Variations: the specification with one small change, tried where no known mistake has a backend's numbers.

A change leaves out a factor or a term, turns a sign, doubles, halves or squares, or puts another variable
or function in the place of one; or it puts in a number, which is solved for: 0.1 of what a ReLU leaves out.
Nobody has written such a change down, as a known mistake is: a search finds it.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, partial
from itertools import chain, product
from types import CodeType
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from fedref import spec
from fedref.conformance.trials import Trials, profile
from fedref.judge import adapter
from fedref.judge.adapter import try_answer
from fedref.judge.case import Case
from fedref.judge.halves import NAMES, cut
from fedref.models.numerics import Array

#: What has no variations: dual numbers, and the toy.
END = spec.make_toy.__code__.co_firstlineno
#: Where the models begin.
MODELS = spec.unpack.__code__.co_firstlineno
#: The number that a change puts in, by its name in the code; where it is 0, nothing is changed.
NUMBER = "number_that_is_put_in"
#: A number is solved for by so many secants, in cases with so many wrong entries; a fraction by fewer.
SECANTS, ENTRIES, FEW = 12, 6, 3
#: Functions of one number, one of which may stand in the place of another.
PHIS = {
    "relu": "relu({})", "elu": "elu({})", "tanh": "tanh({})", "sigmoid": "sigmoid({})", "phi": "phi({})",
    "softplus": "log(1 + exp({}))", "silu": "({0}) * sigmoid({0})",
    "gelu": "({0}) * sigmoid(1.5957691216057308 * (({0}) + 0.044715 * ({0}) ** 3))",
}  # fmt: skip


#: What an expression becomes, and how that is said.
Change = Iterator[tuple[ast.expr, str]]


class Variation(NamedTuple):
    """right → wrong, an expression of a line in a function: spec.NAME or spec.Risk.NAME.

    text, code : the function's definition with it. number : what it puts in; nan until it is solved for.
    """

    function: str
    line: str
    right: str
    wrong: str
    text: str
    code: Any
    number: float | None = None

    def __str__(self) -> str:
        line = "" if self.right == self.line else f", in {textwrap.shorten(self.line, 100)}"
        wrong, t = self.wrong, self.number
        if t is not None and np.isfinite(t):
            wrong = wrong.format(t=say(t), more=say(1 + t), rest=say(1 - t))
        return f"as if in {self.function} {self.right} were {wrong}{line}"

    def answer(self, case: Case) -> dict[str, Any]:
        """Return what the specification answers with this change, {} where that raises."""
        owner, _, name = self.function.rpartition(".")
        boxes = box_texts(case.algorithm)
        if self.function in boxes:
            boxes = boxes | {self.function: self.text}
        with patch.dict(vars(spec), {NUMBER: self.number, "SOURCE": "\n".join(boxes.values())}):
            scope = dict[str, Any]()
            exec(self.code, vars(spec), scope)
            with (
                patch.object(getattr(spec, owner) if owner else spec, name, scope[name]),
                patch.object(adapter, "cut_boxes", partial(cut, spec)),  # halves have it, too
            ):
                return try_answer(case, error=Exception)

    def solved(
        self, case: Case, outputs: Mapping[str, Any], trials: Trials, entries: int
    ) -> "Variation | None":
        """Return the variation with the number for which it gives these outputs, if there may be one."""

        def rest(t: float) -> Array:
            answer = self._replace(number=t).answer
            return gap(trials.answer(case, str(self), answer), outputs, case)

        t, r = 0.0, gap(case.outputs, outputs, case)
        slope = (rest(2.0**-10) - r) * 2**10
        if not (slope @ r) ** 2 > 0.5 * (slope @ slope) * (r @ r):  # it leads elsewhere, or nowhere
            return None
        for i in range(SECANTS):
            step = -float(slope @ r) / float(slope @ slope)
            r, before = rest(t + step), r
            t, slope = t + step, (r - before) / step
            size = np.max(np.abs(r), initial=0.0)
            if size < 1e-11 or not slope.any():
                break
            if not (np.isfinite(size) and (i < 3 or r @ r < 0.5 * (before @ before))):
                return None
        simple = Fraction(t).limit_denominator(20)
        is_simple = abs(t - simple) < 1e-7
        known = entries >= (FEW if is_simple else ENTRIES)
        return self._replace(number=float(simple) if is_simple else t) if known and t else None


def say(x: float) -> str:
    """Return a number as a short text.

    >>> say(1 / 3), say(0.1), say(-2.0), say(2 ** 0.5)
    ('1/3', '0.1', '-2', '1.41421')
    """
    q = Fraction(x).limit_denominator(20)
    return str(q) if abs(x - q) < 1e-9 and f"{x:.6g}" != f"{x:.3g}" else f"{x:.6g}"


def gap(made: Mapping[str, Any], outputs: Mapping[str, Any], case: Case) -> Array:
    """Return what an answer's numbers are above the outputs, relative to what is right, or [nan]."""
    wants = {n: x for n, x in case.outputs.items() if x.dtype.kind == "f" and n in outputs}
    if any(n not in made or np.shape(made[n]) != np.shape(outputs[n]) for n in wants):
        return np.array([np.nan])
    scales = {n: float(np.max(np.abs(x), initial=0.0)) or 1.0 for n, x in wants.items()}
    return np.concatenate([np.ravel(made[n] - outputs[n]) / scales[n] for n in wants])


def find_variation(
    failed: Sequence[Case], fits: Callable[[Mapping[str, Any], Case], bool],
    passed: Sequence[Case], holds: Callable[[Mapping[str, Any], Case], bool],
    outputs: Mapping[str, Mapping[str, Any]], first: Sequence[Variation], trials: Trials, end: float,
) -> Variation | None:  # fmt: skip
    """Return the first variation that is a backend, or None.

    fits : whether an answer is the backend's, in all cases that failed; holds : whether it is right, in
    all that passed. outputs : the backend's, by case. first : variations to begin with.
    end : how many calls are to be left of the trials.
    """
    entries = sum(count_wrong(case, outputs[case.name]) for case in failed)
    for variation in chain(first, variations_of(functions_of(failed[0]))):
        if trials.left <= end:
            return None
        if variation.number is not None and np.isnan(variation.number):
            solved = variation.solved(failed[0], outputs[failed[0].name], trials, entries)
            if solved is None:
                continue
            variation = solved
        answer = partial(trials.answer, wrong=str(variation), answer=variation.answer)
        if all(fits(answer(case), case) for case in failed) and all(
            holds(answer(case), case) for case in passed
        ):
            return variation
    return None


def count_wrong(case: Case, outputs: Mapping[str, Any]) -> int:
    """Return how many numbers of a case are wrong."""
    return int(np.sum(np.abs(gap(case.outputs, outputs, case)) > case.tolerance["float64"]))


@cache
def box_texts(algorithm: str) -> dict[str, str]:
    """Return the boxes that the halves of an algorithm's rounds are cut from."""
    run = adapter.RUNS[algorithm][1].__code__.co_names if algorithm in adapter.RUNS else ()
    return {n: ast.unparse(functions()[n]) for n in NAMES if n in ("fedavg", *run)}


@cache
def functions() -> dict[str, ast.FunctionDef]:
    """Return the specification's functions and methods by name, without dual numbers and the toy."""
    found = dict[str, ast.FunctionDef]()
    for node in ast.parse(inspect.getsource(spec)).body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef) and inner.lineno < END:
                prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                found[prefix + inner.name] = inner
    return found


def functions_of(case: Case) -> list[str]:
    """Return the names of the specification's functions that answer a case."""
    ran = codes_of(lambda: try_answer(case, error=Exception))
    seen = {x.co_qualname.partition(".<locals>")[0] for x in ran if x.co_filename == spec.__file__}
    return [name for name in functions() if name in seen]


def codes_of(work: Callable[[], Any]) -> set[CodeType]:
    """Return the code of every function that runs during `work()`."""
    codes = set[CodeType]()
    profile(work, lambda frame, event, _: codes.add(frame.f_code) if event == "call" else None)
    return codes


def is_model(function: ast.FunctionDef) -> bool:
    """Return whether a function is of the risk or of a model, not of an algorithm."""
    return not spec.stream.__code__.co_firstlineno <= function.lineno < MODELS


def variations_of(names: Sequence[str]) -> Iterator[Variation]:
    """Yield the variations of these functions: first the algorithm's, of them first those of terms.

    Those with a number follow, and last other names in models, which are most.
    """
    some = sorted(names, key=lambda name: len(ast.unparse(functions()[name])))
    ofs = {of: [name for name in some if is_model(functions()[name]) == of] for of in (False, True)}
    terms, numbers = (
        (drop_terms, scale_terms, change_functions, change_arguments),
        (put_numbers, put_numbers_in_arguments),
    )
    for of_model, changes in (
        (False, (*terms, change_names)), (True, terms), (False, numbers), (True, numbers),
        (True, (change_names,)),
    ):  # fmt: skip
        for change, name in product(changes, ofs[of_model]):
            yield from vary(name, change)


def vary(name: str, change: Callable[..., Change]) -> Iterator[Variation]:
    """Yield the variations of one function by one kind of change."""
    function = functions()[name]
    module: Any = ast.Module([function], [])
    number = np.nan if change in (put_numbers, put_numbers_in_arguments) else None
    for parent, field, i, node, line in sites(function):
        values = getattr(parent, field)
        wrong: Any
        for wrong, said in change(node, parent, function):
            if isinstance(node, ast.arg):  # it is set anew where the function begins
                wrong = ast.Assign([ast.Name(node.arg, ast.Store())], wrong)
                new, place, values = [wrong, *function.body], (function, "body"), function.body
            else:
                new = wrong if i is None else [*values[:i], wrong, *values[i + 1 :]]
                place = parent, field
            setattr(*place, new)
            code = compile(ast.fix_missing_locations(module), spec.__file__, "exec")
            text = ast.unparse(module) if name in NAMES else ""
            setattr(*place, values)
            yield Variation(name, ast.unparse(line), ast.unparse(node), said, text, code, number)


def sites(node: ast.AST, line: Any = None) -> Iterator[tuple[Any, str, int | None, Any, Any]]:
    """Yield the values in a function, each with its parent, its place in that, and its line.

    What is called and what is set is no value. Arguments are sites, too, each its own line.
    """
    if isinstance(node, ast.FunctionDef) and line is None:
        yield from ((node.args, "args", i, arg, arg) for i, arg in enumerate(node.args.args))
    for field, value in ast.iter_fields(node):
        for i, inner in enumerate(value) if isinstance(value, list) else [(None, value)]:
            own = (
                inner if isinstance(inner, ast.Assign | ast.Return | ast.Yield | ast.Expr) else line
            )
            if isinstance(node, ast.For | ast.If) and field in ("iter", "test"):
                yield node, field, None, inner, inner
                own = inner
            is_set = isinstance(getattr(inner, "ctx", None), ast.Store)
            if isinstance(inner, ast.expr) and line is not None and field != "func" and not is_set:
                yield node, field, i, inner, line
            if isinstance(inner, ast.AST):
                yield from sites(inner, own)


def parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def drop_terms(node: ast.expr, parent: Any, _: ast.FunctionDef) -> Change:
    """Yield an expression without a term, a factor or a function; of a loop some of its passes."""
    if isinstance(parent, ast.If):
        yield from ((parse(text), text) for text in ("True", "False"))
    elif isinstance(parent, ast.For):
        for part in ("[1:]", "[:-1]", "[:1]", "[::-1]"):
            yield parse(f"list({ast.unparse(node)}){part}"), f"its {part}"
    elif isinstance(node, ast.BinOp):
        yield from ((side, ast.unparse(side)) for side in (node.left, node.right))
    elif isinstance(node, ast.IfExp):
        yield from ((side, ast.unparse(side)) for side in (node.body, node.orelse))
    elif isinstance(node, ast.Call) and len(node.args) == 1:
        yield node.args[0], ast.unparse(node.args[0])


def scale_terms(node: ast.expr, parent: Any, _: ast.FunctionDef) -> Change:
    """Yield an expression negated, twice, halved, its square; near numbers for a number."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield from ((parse(x), x) for x in (str(node.value + 1), str(node.value - 1)))
    operator = type(getattr(parent, "op", None))
    texts: tuple[str, ...] = ("-{}", "2 * {}", "{} / 2")
    if operator in (ast.Mult, ast.Div, ast.MatMult):  # of factors, their product has these
        texts = ("{} ** 2",)
    elif isinstance(parent, ast.For) or (
        isinstance(node, ast.Name) and operator not in (ast.Add, ast.Sub)
    ):
        texts = ()
    if isinstance(node, ast.BinOp | ast.Call | ast.Subscript | ast.Attribute | ast.Name):
        for text in texts:
            yield parse(text.format(f"({ast.unparse(node)})")), text.format("it")


def change_functions(node: ast.expr, parent: Any, function: ast.FunctionDef) -> Change:
    """Yield another function of one number in the place of one, or the sequence in the other direction."""
    for name, text in alternatives(node, parent, function):
        yield parse(text), name
    if (
        isinstance(parent, ast.Call)
        and isinstance(node, ast.Name | ast.Call)
        and not is_model(function)
    ):
        text = ast.unparse(node)
        yield parse(f"{text}[::-1]"), f"{text}[::-1]"


def alternatives(
    node: ast.expr, parent: Any, function: ast.FunctionDef
) -> Iterator[tuple[str, str]]:
    """Yield what else a function of one number could be, where the expression is one."""
    called, of = ast.unparse(getattr(node, "func", parse("0"))), ""
    if called in PHIS and isinstance(node, ast.Call):
        of = ast.unparse(node.args[0])
    elif function.name in PHIS and isinstance(parent, ast.Return):
        called, of = function.name, function.args.args[0].arg
    for name, text in PHIS.items():
        if of and name not in (called, "phi"):
            yield f"{name}({of})", text.format(of)


def change_arguments(node: ast.AST, parent: Any, _: ast.FunctionDef) -> Change:
    """Yield a function of an argument in its place; of a factor, too."""
    factor = isinstance(getattr(parent, "op", None), ast.Mult | ast.Div)
    if isinstance(node, ast.arg) or (factor and isinstance(node, ast.Name | ast.Attribute)):
        texts: tuple[str, ...] = "sqrt({})", "exp({})", "1 / {}", "1 - {}"
        if isinstance(node, ast.arg):
            texts = "2 * {}", "{} / 2", "-{}", "{} ** 2", *texts
        for text in texts:
            yield parse(text.format(f"({ast.unparse(node)})")), text.format("it")


def put_numbers(node: ast.expr, parent: Any, function: ast.FunctionDef) -> Change:
    """Yield an expression times a number, plus one, or a part of it exchanged for a part of another."""
    operator = type(getattr(parent, "op", None))
    text = f"({ast.unparse(node)})"
    is_number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
    if not is_number and not isinstance(
        node, ast.BinOp | ast.UnaryOp | ast.Call | ast.Subscript | ast.Attribute | ast.Name | ast.IfExp
    ):  # fmt: skip
        return
    if operator not in (ast.Mult, ast.Div, ast.MatMult) and not is_number:
        yield parse(f"{text} * (1 + {NUMBER})"), "{more} times it"
    if operator not in (ast.Add, ast.Sub):
        yield parse(f"{text} + {NUMBER}"), "it + {t}"
    others = [(ast.unparse(side), said) for side, said in drop_terms(node, None, function)]
    others += [(text, name) for name, text in alternatives(node, parent, function)]
    for other, said in others:
        yield (
            parse(f"(1 - {NUMBER}) * {text} + {NUMBER} * ({other})"),
            f"{{rest}} times it + {{t}} times {said}",
        )


def put_numbers_in_arguments(node: ast.AST, parent: Any, _: ast.FunctionDef) -> Change:
    """Yield an argument times a number, and plus one."""
    if isinstance(node, ast.arg):
        yield parse(f"{node.arg} * (1 + {NUMBER})"), "{more} times it"
        yield parse(f"{node.arg} + {NUMBER}"), "it + {t}"


def change_names(node: ast.expr, parent: Any, function: ast.FunctionDef) -> Change:
    """Yield the other variables of the function in the place of one."""
    others = list[str]()
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        names = {x.arg for x in ast.walk(function) if isinstance(x, ast.arg)}
        names |= {
            x.id for x in ast.walk(function) if isinstance(x, ast.Name) and type(x.ctx) is ast.Store
        }
        others = sorted(names - {node.id}) if node.id in names else []
        size = isinstance(parent, ast.Compare) or isinstance(
            getattr(parent, "right", 0), ast.Constant
        )
        if others and size:  # another size may differ by one in every case
            others = [f"{node.id} - 1", f"{node.id} + 1", *others]
    if isinstance(node, ast.Call) and ast.unparse(node) == "weights(clients)":
        others = ["sample_weights(clients)", "uniform_weights(clients)"]
    yield from ((parse(other), other) for other in others)
