"""Variations: the specification with one small change, tried where no known mistake has a backend's numbers.

A change leaves out a factor or a term, turns a sign, doubles, halves or squares, or puts another variable of
the function in a variable's place. Unlike a known mistake nobody has written it down: it is found.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from types import CodeType
from typing import Any, NamedTuple
from unittest.mock import patch

from fedref import spec
from fedref.conformance.trials import Trials
from fedref.judge.adapter import try_answer
from fedref.judge.case import Case

#: What has no variations: dual numbers, and the toy.
END = spec.make_toy.__code__.co_firstlineno
#: Where the models begin.
MODELS = spec.unpack.__code__.co_firstlineno


#: What an expression becomes, and how that is said.
Change = Iterator[tuple[ast.expr, str]]


class Variation(NamedTuple):
    """right → wrong, an expression of a line in a function: spec.NAME or spec.Risk.NAME.

    code : the definition of the function with it.
    """

    function: str
    line: str
    right: str
    wrong: str
    code: Any

    def __str__(self) -> str:
        line = "" if self.right == self.line else f", in {textwrap.shorten(self.line, 100)}"
        return f"as if in {self.function} {self.right} were {self.wrong}{line}"

    def answer(self, case: Case) -> dict[str, Any]:
        """Return what the specification answers with this change, {} where that raises."""
        owner, _, name = self.function.rpartition(".")
        with patch.dict(vars(spec)):
            scope = dict[str, Any]()
            exec(self.code, vars(spec), scope)
            with patch.object(getattr(spec, owner) if owner else spec, name, scope[name]):
                return try_answer(case, error=Exception)


def find_variation(
    failed: Sequence[Case], fits: Callable[[Mapping[str, Any], Case], bool],
    passed: Sequence[Case], holds: Callable[[Mapping[str, Any], Case], bool],
    first: Sequence[Variation], trials: Trials, end: float,
) -> Variation | None:  # fmt: skip
    """Return the first variation that is a backend, or None.

    fits : whether an answer is the backend's, in all cases that failed; holds : whether it is right, in
    all that passed. first : variations to begin with. end : how many calls are to be left of the trials.
    """
    for variation in chain(first, variations_of(functions_of(failed[0]))):
        if trials.left <= end:
            return None
        answer = partial(trials.answer, wrong=str(variation), answer=variation.answer)
        if all(fits(answer(case), case) for case in failed) and all(
            holds(answer(case), case) for case in passed
        ):
            return variation
    return None


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
    codes, outer = set[CodeType](), sys.getprofile()
    sys.setprofile(lambda frame, event, _: codes.add(frame.f_code) if event == "call" else None)
    try:
        work()
    finally:
        sys.setprofile(outer)
    return codes


def is_model(name: str) -> bool:
    """Return whether a function is of the risk or of a model, not of an algorithm."""
    return not spec.stream.__code__.co_firstlineno <= functions()[name].lineno < MODELS


def variations_of(names: Sequence[str]) -> Iterator[Variation]:
    """Yield the variations of these functions: first the algorithm's, of them first those of terms."""
    for of_model in (False, True):
        some = [name for name in names if is_model(name) == of_model]
        for change in (drop_terms, scale_terms, change_names):
            for name in sorted(some, key=lambda name: len(ast.unparse(functions()[name]))):
                yield from vary(name, change)


def vary(name: str, change: Callable[..., Change]) -> Iterator[Variation]:
    """Yield the variations of one function by one kind of change."""
    function = functions()[name]
    module: Any = ast.Module([function], [])
    for parent, field, i, node, line in sites(function):
        values = getattr(parent, field)
        for wrong, said in change(node, parent, function):
            setattr(parent, field, wrong if i is None else [*values[:i], wrong, *values[i + 1 :]])
            code = compile(ast.fix_missing_locations(module), spec.__file__, "exec")
            setattr(parent, field, values)
            yield Variation(name, ast.unparse(line), ast.unparse(node), said, code)


def sites(node: ast.AST, line: Any = None) -> Iterator[tuple[Any, str, int | None, Any, Any]]:
    """Yield the values in a function, each with its parent, its place in that, and its line.

    What is called and what is set is no value.
    """
    for field, value in ast.iter_fields(node):
        for i, inner in enumerate(value) if isinstance(value, list) else [(None, value)]:
            own = inner if isinstance(inner, ast.Assign | ast.Return | ast.Yield) else line
            if isinstance(node, ast.For) and field == "iter":
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
    if isinstance(parent, ast.For):
        for part in ("[1:]", "[:-1]", "[:1]", "[::-1]"):
            yield parse(f"list({ast.unparse(node)}){part}"), f"its {part}"
    elif isinstance(node, ast.BinOp):
        yield from ((side, ast.unparse(side)) for side in (node.left, node.right))
    elif isinstance(node, ast.IfExp):
        yield from ((side, ast.unparse(side)) for side in (node.body, node.orelse))
    elif isinstance(node, ast.Call) and len(node.args) == 1:
        yield node.args[0], ast.unparse(node.args[0])


def scale_terms(node: ast.expr, parent: Any, _: ast.FunctionDef) -> Change:
    """Yield an expression negated, twice, halved, its square."""
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


def change_names(node: ast.expr, parent: Any, function: ast.FunctionDef) -> Change:
    """Yield the other variables of the function in the place of one, and near numbers for a number."""
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
    if isinstance(node, ast.Constant) and type(node.value) is int:
        others = [str(node.value + 1), str(node.value - 1)]
    yield from ((parse(other), other) for other in others)
