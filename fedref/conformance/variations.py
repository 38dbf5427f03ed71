"""Variations: the specification with one small change, tried where no known mistake has a backend's numbers.

A change is a row of `edits.txt`, another variable in the place of one, a line left out, done twice or too
late; or it puts in a number, which is solved for: 0.1 of what a ReLU leaves out. It is made in the
specification's own text, and in what `by_hand.txt` has in the place of that. Nobody has written such a
change down, as a known mistake is: a search finds it.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property, partial
from importlib.resources import files
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from fedref import spec
from fedref.conformance.trials import Trials
from fedref.judge import adapter, errata
from fedref.judge.adapter import try_answer
from fedref.judge.case import Case, Values
from fedref.judge.halves import NAMES, cut
from fedref.judge.lines import follow
from fedref.models.numerics import Array

#: What has no variations: dual numbers, and the toy.
END = spec.make_toy.__code__.co_firstlineno
#: Where the models begin.
MODELS = spec.unpack.__code__.co_firstlineno
#: What of the adapter has variations, and of these what is of a model.
OF_ADAPTER = {
    "kept_sums": False, "personal": False, "mean_pool": True, "WeightedRisk.__call__": True,
    "loss": True, "grad": True, "hvp": True,
}  # fmt: skip
#: The functions of a model alone.
OF_MODELS = "loss", "grad", "hvp"
#: The number that a change puts in, by its name in the code; where it is 0, nothing is changed.
NUMBER = "number_that_is_put_in"
#: A number is solved for by so many secants, in cases with so many wrong entries; a fraction by fewer.
SECANTS, ENTRIES, FEW = 12, 6, 3
#: Functions of one number, of which a part may be exchanged for a part of another.
PHIS = {"elu", "relu", "tanh", "sigmoid", "softplus", "silu", "gelu"}
#: What stands for any expression in the forms of edits.txt; "it" is the whole.
WILD = {*"ABCDEG", "it"}


#: Whether an answer to a case is what it should be; the case.
Test = tuple[Callable[[Values, Case], bool], Case]


@dataclass(eq=False)
class Function:
    """A function of the specification or of the adapter. is_model : it is of a model or of the risk."""

    name: str
    module: ModuleType
    node: ast.FunctionDef
    is_model: bool

    @cached_property
    def names(self) -> set[str]:
        """Its variables and arguments."""
        nodes = [*ast.walk(self.node)]
        stored = {x.id for x in nodes if isinstance(x, ast.Name) and type(x.ctx) is ast.Store}
        return stored | {x.arg for x in nodes if isinstance(x, ast.arg)}

    @cached_property
    def alternatives(self) -> list[ast.AST]:
        """Expressions that may be in the place of a variable: gradients, and sums with a variable."""
        return [
            x
            for x in ast.walk(self.node)
            if (isinstance(x, ast.Call) and ast.unparse(x.func) == "f.grad")
            or (isinstance(x, ast.BinOp) and isinstance(x.op, ast.Add | ast.Sub))
        ]


@dataclass(eq=False)
class Variation:
    """A change of a function: spec.NAME or spec.Risk.NAME.

    made : a node of it, the field that is another, and what that is. right, wrong : what is another, and
    how that is said. line : where it stands. number : what it puts in; nan until it is solved for; or what
    that is in each case, by its name in `quantities`.
    """

    function: Function
    made: tuple[Any, str, Any]
    line: ast.AST
    right: ast.AST
    wrong: str
    number: float | str | None = None
    same: str = ""

    def __str__(self) -> str:
        line = "" if self.right is self.line else f", in {shorten(self.line)}"
        line += self.same
        wrong, t = self.wrong, self.number
        if isinstance(t, str):
            wrong = wrong.format(t=t, more=t, rest=f"(1 - {t})")
        elif t is not None and np.isfinite(t):
            wrong = wrong.format(t=text_of(t), more=text_of(1 + t), rest=text_of(1 - t))
        return f"as if in {self.function.name} {shorten(self.right)} were {wrong}{line}"

    def with_quantities(self, cases: Sequence[Case]) -> "Variation":
        """Return the variation that says what its number also is in all these cases: 10/9, or 1/server_lr."""
        if not isinstance(self.number, float):
            return self
        known, x = list(map(quantities, cases)), self.number + ("{more}" in self.wrong)
        names = [
            n for n in known[0] if all(abs(q.get(n, np.inf) - x) < 1e-7 * abs(x) for q in known)
        ]
        said = f" ({text_of(x)} is also {' and '.join(names)} in these cases)" if names else ""
        return replace(self, same=said)

    @property
    def nearby(self) -> "Variation | None":
        """A model's argument a little farther off: if that fits as well, its value is not what is wrong."""
        node, field, new = self.made
        if not (self.function.is_model and isinstance(self.right, ast.arg)):
            return None
        moved = ast.parse(f"{self.right.arg} = 1.001 * {self.right.arg} + 0.001").body
        return replace(self, made=(node, field, [new[0], *moved, *new[1:]]))

    def with_number(self, number: float | str) -> "Variation":
        """Return the variation that puts in this number."""
        other = copy(self)
        other.number = number
        return other

    @cached_property
    def built(self) -> tuple[Any, str]:
        """The function's code, and its text if halves are cut from that."""
        node, field, new = self.made
        old = getattr(node, field)
        for inner in new if isinstance(new, list) else [new]:
            ast.fix_missing_locations(inner)
        setattr(node, field, new)
        try:
            module: Any = ast.Module([self.function.node], [])
            text = ast.unparse(module) if self.function.name in NAMES else ""
            return compile(module, str(self.function.module.__file__), "exec"), text
        finally:
            setattr(node, field, old)

    def value(self, case: Case) -> float | None:
        """Return the number that is put in for a case, nan where it has none."""
        if isinstance(self.number, str):
            return quantities(case).get(self.number, np.nan) - ("{more}" in self.wrong)
        return self.number

    def answer(self, case: Case) -> dict[str, Any]:
        """Return what the specification answers with this change, {} where that raises."""
        module, boxes = self.function.module, box_texts(case.algorithm)
        owner, _, name = self.function.name.rpartition(".")
        try:
            code, text = self.built
        except SyntaxError:  # a starred expression where none may be
            return {}
        if name in boxes:
            boxes = boxes | {name: text}
        scope, shapes = dict[str, Any](), tuple(map(tuple, case.model["shapes"]))
        exec(code, vars(module), scope)
        halves = partial(cut, spec, text="\n\n\n".join(boxes.values()))  # they have it, too
        with (
            hold(vars(module), {NUMBER: self.value(case), **helpers(shapes)}),
            hold(vars(adapter), {"cut_boxes": halves}),
            hold(vars(module) if not owner else {}, scope),
            hold(adapter.CALLS, scope if name in OF_MODELS else {}),
            nullcontext() if self.function.is_model else remember_gradients(repr(case.model)),
            patch.object(getattr(module, owner), name, scope[name]) if owner else nullcontext(),
        ):
            return try_answer(case, error=Exception)

    def solved(
        self, case: Case, outputs: Values, trials: Trials, entries: int
    ) -> Iterator["Variation"]:
        """Yield the variation with each number for which it may give these outputs.

        entries : how many numbers are wrong, in all cases.
        """
        if not isinstance(self.number, float) or not np.isnan(self.number):
            yield self
            return

        def rest(t: float) -> Array:
            answer = self.with_number(t).answer
            return excess(trials.answer(case, str(self), answer), outputs, case)

        t, r = 0.0, excess(case.outputs, outputs, case)
        slope = (rest(2.0**-10) - r) * 2**10
        if not (slope @ r) ** 2 > 0.5 * (slope @ slope) * (r @ r):  # it leads elsewhere, or nowhere
            return
        for i in range(SECANTS):
            step = -float(slope @ r) / float(slope @ slope)
            r, before = rest(t + step), r
            t, slope = t + step, (r - before) / step
            size = np.max(np.abs(r), initial=0.0)
            if size < 1e-11 or not slope.any():
                break
            if not (np.isfinite(size) and (i < 3 or r @ r < 0.5 * (before @ before))):
                return
        if not t:
            return
        simple = Fraction(t).limit_denominator(20)
        if is_simple := abs(t - simple) < 1e-7 and entries >= FEW:
            yield self.with_number(float(simple))
        put = t + ("{more}" in self.wrong)
        if entries >= FEW:
            for name, x in quantities(case).items():
                if abs(put - x) < 1e-7 * abs(x):
                    yield self.with_number(name)
        if not is_simple and entries >= ENTRIES:
            yield self.with_number(t)


#: Gradients of models as they are, which most variations of an algorithm ask for at the same points.
GRADIENTS = dict[tuple[Any, ...], Array]()


@contextmanager
def remember_gradients(model: str) -> Iterator[None]:
    """Let f.grad return what it has computed before, of the same model, w and rows."""
    grad: Any = spec.Risk.grad

    def remembered(f: spec.Risk, w: Any, D: Any) -> Any:
        if type(w) is not np.ndarray:  # a dual number
            return grad(f, w, D)
        rows = [(np.shape(x), np.asarray(x).tobytes()) for x in (w, *D, getattr(D, "s", ()))]
        key = model, f.l2, w.dtype.char, *rows
        if key not in GRADIENTS:
            if len(GRADIENTS) > 4_096:
                GRADIENTS.clear()
            GRADIENTS[key] = grad(f, w, D)
        return GRADIENTS[key]

    with patch.object(spec.Risk, "grad", remembered):
        yield


@contextmanager
def hold(names: dict[str, Any], others: Mapping[str, Any]) -> Iterator[None]:
    """Let a namespace hold other values for a while."""
    before = {name: names[name] for name in others if name in names}
    names.update(others)
    try:
        yield
    finally:
        for name in others.keys() - before.keys():
            del names[name]
        names.update(before)


def shorten(node: ast.AST) -> str:
    return textwrap.shorten(ast.unparse(node), 100)


def text_of(x: float) -> str:
    """Return a number as a short text.

    >>> text_of(1 / 3), text_of(0.1), text_of(-2.0), text_of(2 ** 0.5)
    ('1/3', '0.1', '-2', '1.41421')
    """
    q = Fraction(x).limit_denominator(20)
    return str(q) if abs(x - q) < 1e-9 and f"{x:.6g}" != f"{x:.3g}" else f"{x:.6g}"


def excess(made: Values, outputs: Values, case: Case) -> Array:
    """Return what an answer's numbers are above the outputs, relative to what is right, or [nan]."""
    wants = {n: x for n, x in case.outputs.items() if x.dtype.kind == "f" and n in outputs}
    if any(n not in made or np.shape(made[n]) != np.shape(outputs[n]) for n in wants):
        return np.array([np.nan])
    scales = {n: float(np.max(np.abs(x), initial=0.0)) or 1.0 for n, x in wants.items()}
    return np.concatenate([np.ravel(made[n] - outputs[n]) / scales[n] for n in wants])


#: What a number may be that is put in: one of a case's, or of these functions of it.
POWERS: Mapping[str, Callable[[float], float]] = {
    "{}": lambda x: x, "1/{}": lambda x: 1 / x, "-{}": lambda x: -x, "2·{}": lambda x: 2 * x,
    "{}/2": lambda x: x / 2, "{}²": lambda x: x * x, "(1 - {})": lambda x: 1 - x, "(1 + {})": lambda x: 1 + x,
    "√{}": lambda x: x**0.5,
}  # fmt: skip


def quantities(case: Case) -> dict[str, float]:
    """Return the numbers of a case that a wrong line may have as a factor, by name, and their powers."""
    known = {**case.hyper, **case.model}
    known |= {
        f"len({n})": x.shape[-1] for n, x in case.inputs.items() if n.rpartition(".")[2] == "y"
    }
    clients = [x for n, x in case.inputs.items() if n in ("n", "plans.0.clients")]
    known |= {"K": len(clients[0])} if clients else {}
    return {
        text.format(name): power(float(x))
        for name, x in known.items()
        if type(x) in (int, float) and x > 0 and x != 1
        for text, power in POWERS.items()
    }


@cache
def helpers(shapes: tuple[tuple[int, ...], ...]) -> dict[str, Any]:
    """Return what the rows of edits.txt call, and which parameters are of weights and of which layers."""
    weight, layer = list[bool](), list[int]()
    for shape in shapes:
        weight += [len(shape) > 1] * int(np.prod(shape))
        layer += [(layer[-1] if layer else 0) + (len(shape) > 1)] * int(np.prod(shape))
    return {
        **{
            name: getattr(spec, name)
            for name in ("norm", "sqrt", "exp", "elu", "relu", "sigmoid", "tanh")
        },
        "constant": lambda x: np.real(spec.value(x)),
        "softplus": lambda z: np.log(1 + np.exp(z)),
        "silu": lambda z: z * spec.sigmoid(z),
        "gelu": lambda z: z * spec.sigmoid(1.5957691216057308 * (z + 0.044715 * z**3)),
        "numbered": enumerate,
        "numbered_back": lambda xs: [*zip(range(len(xs := [*xs]))[::-1], xs)],
        "weights_only": np.array(weight, float),
        "but_first": 1.0 * (np.array(layer) > layer[0]),
        "but_last": 1.0 * (np.array(layer) < layer[-1]),
    }


def find_variation(
    failed: Sequence[Case], tests: Sequence[Test], outputs: Mapping[str, Values],
    variations: Iterable[Variation], trials: Trials, end: float,
) -> Variation | None:  # fmt: skip
    """Return the first variation that is a backend, or None.

    failed : some cases that it must answer as the backend. tests : all that it must pass, with the cases,
    in this order. outputs : the backend's, by case. end : how many calls are to be left of the trials.
    """
    entries = sum(count_wrong(case, outputs[case.name]) for case in failed)

    def fits(one: Variation) -> bool:
        return all(test(trials.answer(case, str(one), one.answer), case) for test, case in tests)

    for variation in variations:
        if trials.left <= end:
            return None
        for one in variation.solved(failed[0], outputs[failed[0].name], trials, entries):
            if fits(one) and not (one.nearby and fits(one.nearby)):
                return one.with_quantities([case for _, case in tests])
    return None


def count_wrong(case: Case, outputs: Values) -> int:
    """Return how many numbers of a case are wrong."""
    return int(np.sum(np.abs(excess(case.outputs, outputs, case)) > case.tolerance["float64"]))


@cache
def box_texts(algorithm: str) -> dict[str, str]:
    """Return the boxes that the halves of an algorithm's rounds are cut from."""
    run = adapter.RUNS[algorithm][1].__code__.co_names if algorithm in adapter.RUNS else ()
    return {n: ast.unparse(functions()[n][0].node) for n in NAMES if n in ("fedavg", *run)}


@cache
def functions() -> dict[str, list[Function]]:
    """Return the functions and methods that have variations, by name: as they are, and by hand.

    A box is there by hand alone, where it is: most of its lines are the same.
    """
    found = {name: [function] for name, function in originals().items()}
    _, *blocks = (files("fedref.conformance") / "by_hand.txt").read_text("utf-8").split("\n\n")
    for edits in (errata.parse(block).edits for block in blocks):
        for module in (spec, adapter):
            text = edited = inspect.getsource(module)
            for edit in edits:
                edited = errata.replace(edited, edit)
            for function in functions_in(edited, module) if edited != text else ():
                original = originals().get(function.name)  # the toy is a few lines further up
                if original and ast.dump(original.node) != ast.dump(function.node):
                    is_box = function.name in NAMES
                    found[function.name] = [function] if is_box else [original, function]
    return found


def functions_in(text: str, module: Any) -> Iterator[Function]:
    """Yield the functions that have variations in a module's text."""
    for node in ast.parse(text).body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef):
                prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                name, line = prefix + inner.name, inner.lineno
                if module is adapter and name in OF_ADAPTER:
                    yield Function(name, module, inner, OF_ADAPTER[name])
                elif module is spec and line < END:
                    first = spec.stream.__code__.co_firstlineno
                    yield Function(name, module, inner, not first <= line < MODELS)


class Observation(NamedTuple):
    """Which lines and variables of the functions a case needs.

    lines : the numbers of those that ran, by function. kinds : the shapes of the variables that are numbers
    or arrays, the types of others.
    """

    lines: dict[str, set[int]]
    kinds: dict[str, dict[str, Any]]


def observe(case: Case) -> Observation:
    """Return which lines run, and what the variables are, while the specification answers a case."""
    seen = Observation({}, {})

    def note(frame: Any, event: str, _: Any) -> Any:
        code = frame.f_code
        name = code.co_qualname.partition(".<locals>")[0]
        if code.co_filename not in (spec.__file__, adapter.__file__) or name not in functions():
            return None
        seen.lines.setdefault(name, set()).add(frame.f_lineno)
        if event == "return":
            kinds = {n: kind_of(x) for n, x in frame.f_locals.items()}
            seen.kinds[name] = {**seen.kinds.get(name, {}), **kinds}
        return note

    follow(lambda: try_answer(case, error=Exception), note)
    return seen


def kind_of(x: Any) -> Any:
    x = spec.value(x)
    return np.shape(x) if isinstance(x, int | float | np.ndarray | np.generic) else type(x)


@cache
def originals() -> dict[str, Function]:
    """Return the functions as they are, by name."""
    some = ((module, inspect.getsource(module)) for module in (spec, adapter))
    return {x.name: x for module, text in some for x in functions_in(text, module)}


def idle_lines(seen: Observation) -> set[str]:
    """Return the lines of functions as they are that did not run, and the heads of loops and ifs."""
    ran = dict[str, bool]()
    for name, numbers in seen.lines.items():
        for x in ast.walk(originals()[name].node):
            if isinstance(x, ast.stmt) and not isinstance(x, ast.FunctionDef):
                head = getattr(x, "iter", getattr(x, "test", None)) or x
                text = ast.unparse(head)
                lines = range(x.lineno, (head.end_lineno or x.lineno) + 1)
                ran[text] = ran.get(text, False) or not numbers.isdisjoint(lines)
    return {text for text in ran if not ran[text]}


# ---- what is changed -----------------------------------------------------------------------------


class Row(NamedTuple):
    """A row of edits.txt: the form of an expression, and what that becomes."""

    form: ast.expr
    wrong: list[ast.expr]


@cache
def rows() -> dict[str, list[Row]]:
    """Return the rows by their headings."""
    _, *blocks = (files("fedref.conformance") / "edits.txt").read_text("utf-8").split("\n\n")
    return {
        block.partition(":")[0]: [
            Row(parse(form), [parse(text) for text in wrong.split(" | ")])
            for form, _, wrong in (line.partition(" → ") for line in block.strip().split("\n")[1:])
        ]
        for block in blocks
    }


def parse(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def matches(form: Any, node: Any, found: dict[str, Any]) -> bool:
    """Return whether an expression has a form; found : what its wild names are, which is filled."""
    if isinstance(form, ast.Name) and form.id in WILD:
        if form.id in found:
            return ast.unparse(found[form.id]) == ast.unparse(node)
        found[form.id] = node
        return isinstance(node, ast.expr)
    if isinstance(form, list):
        return len(form) == len(node) and all(matches(*pair, found) for pair in zip(form, node))
    if not isinstance(form, ast.AST):
        return bool(form == node)
    return type(form) is type(node) and all(
        matches(value, getattr(node, name), found)
        for name, value in ast.iter_fields(form)
        if name != "ctx"
    )


def fill(form: Any, found: Values) -> Any:
    """Return a form with what wild names are in their place."""
    if isinstance(form, ast.Name):
        return found.get(form.id, form)
    if isinstance(form, list):
        return [fill(x, found) for x in form]
    if isinstance(form, ast.AST):
        return type(form)(**{name: fill(value, found) for name, value in ast.iter_fields(form)})
    return form


#: What an expression becomes, and how that is said.
Change = Iterator[tuple[Any, str]]


def apply_rows(node: Any, parent: Any, function: Function, *only: str) -> Change:
    """Yield what the rows of edits.txt make of an expression. only : below these headings."""
    seen = {ast.unparse(node)}
    value: Any = parse(name) if (name := set_by(node)) else node
    known = function.names | {x.id for x in ast.walk(value) if isinstance(x, ast.Name)}
    for heading in only or headings(node, parent, function):
        for form, wrong in rows()[heading]:
            found: dict[str, Any] = {}
            if not matches(form, value, found):
                continue
            found.pop("it", None)
            for template in wrong:
                names = {x.id for x in ast.walk(template) if isinstance(x, ast.Name)}
                if not (names & VARIABLES) - {*found} <= known:
                    continue
                new = fill(template, found | {"it": value})
                if (said := ast.unparse(new)) not in seen:
                    seen.add(said)
                    yield new, ast.unparse(fill(template, found)) if "it" in names else said


#: The variables of algorithms that rows name: only where a function has them.
VARIABLES = {"clients", "client", "D", "step", "y", "weights"}


def headings(node: Any, parent: Any, function: Function) -> Iterator[str]:
    """Yield which rows are for an expression in its place."""
    operator = type(getattr(parent, "op", None))
    if set_by(node):
        yield "argument"
        return
    if isinstance(parent, ast.For):
        yield "loop"
        return
    if isinstance(node, ast.Constant):
        if type(node.value) is int:
            yield "whole"
        return
    yield "each"
    if isinstance(parent, ast.If):
        yield "test"
    elif operator in (ast.Mult, ast.Div, ast.MatMult):
        yield "factor"
    elif not isinstance(node, ast.Name) or operator in (ast.Add, ast.Sub):
        yield "term"
    if (
        isinstance(parent, ast.Call)
        and isinstance(node, ast.Name | ast.Call)
        and not function.is_model
    ):
        yield "sequence"


def vary_by_client(node: Any, parent: Any, function: Function) -> Change:
    """Yield a term times or over what another client or step has another of."""
    yield from apply_rows(node, parent, function, "varying")


def change_names(kinds: Mapping[str, Values], node: Any, parent: Any, function: Function) -> Change:
    """Yield the other variables of a function in the place of one, of its kind, and its gradients."""
    if not isinstance(node, ast.Name) or set_by(node) or node.id not in function.names:
        return
    constant = isinstance(getattr(parent, "right", 0), ast.Constant)
    if isinstance(parent, ast.Compare) or constant:  # another size may differ by one in every case
        yield from ((parse(x), x) for x in (f"{node.id} - 1", f"{node.id} + 1"))
    kind = kinds[function.name]
    others = sorted(function.names - {node.id})
    for x in () if function.is_model else function.alternatives:
        if not isinstance(x, ast.BinOp) or node.id in map(ast.unparse, (x.left, x.right)):
            others.append(ast.unparse(x))
    others = [*dict.fromkeys(others)]
    for other in others:
        if kind.get(other, kind.get(node.id)) == kind.get(node.id, kind.get(other)):
            yield parse(other), other


def put_numbers(node: Any, parent: Any, function: Function) -> Change:
    """Yield an expression times a number, plus one, or a part of it exchanged for a part of another."""
    if name := set_by(node):
        yield parse(f"{name} * (1 + {NUMBER})"), "{more} times it"
        yield parse(f"{name} + {NUMBER}"), "it + {t}"
        return
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
    for other, said in apply_rows(node, None, function):
        part = other in ast.walk(node) and not isinstance(other, ast.Starred | ast.GeneratorExp)
        if part or (isinstance(other, ast.Call) and ast.unparse(other.func) in PHIS):
            yield (
                parse(f"(1 - {NUMBER}) * {text} + {NUMBER} * ({said})"),
                "{rest} times it + {t} times " + said.replace("{", "{{").replace("}", "}}"),
            )


def variations_of(seen: Sequence[Observation], models: bool = True) -> Iterator[Variation]:
    """Yield the variations of the functions that all these cases run: an algorithm's, then the models'."""
    names = set.intersection(*({*one.lines} for one in seen))
    idle = set[str]().union(*map(idle_lines, seen))
    some = [x for name in functions() if name in names for x in functions()[name]]
    some = [x for x in some if models or not x.is_model]
    some = sorted(some, key=lambda x: len(ast.unparse(x.node)))
    kinds = {
        name: {k: v for one in seen[::-1] for k, v in one.kinds.get(name, {}).items()}
        for name in names
    }
    others = partial(change_names, kinds)
    ways = apply_rows, None, others, put_numbers, vary_by_client
    for of_model, change in product((False, True), ways):
        for function in some:
            if function.is_model == of_model:
                yield from vary(function, change, idle) if change else vary_lines(function, idle)


def vary(
    function: Function, change: Callable[..., Change], idle: Collection[str]
) -> Iterator[Variation]:
    """Yield the variations of one function by one kind of change, of small expressions first.

    idle : lines that are left as they are, since they do not run.
    """
    node = function.node
    for parent, field, i, inner, line in list(sites(node)):
        if ast.unparse(line) in idle:
            continue
        values = getattr(parent, field)
        for wrong, said in change(inner, parent, function):
            if name := set_by(inner):  # it is set anew where the function or the loop begins
                first: Any = ast.Assign([ast.Name(name, ast.Store())], wrong)
                place = node if isinstance(inner, ast.arg) else parent
                made = place, "body", [first, *place.body]
            else:
                new = wrong if i is None else [*values[:i], wrong, *values[i + 1 :]]
                made = parent, field, new
            number = np.nan if change is put_numbers else None
            yield Variation(function, made, line, inner, said, number)


def set_by(node: Any) -> str:
    """Return the name of an argument or of a loop's variable, or ""."""
    is_set = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    return str(node.arg) if isinstance(node, ast.arg) else node.id if is_set else ""


def vary_lines(function: Function, idle: Collection[str]) -> Iterator[Variation]:
    """Yield a function with a line left out, done twice, exchanged with the next, or in a loop after it."""
    nodes = [
        x for x in ast.walk(function.node) if isinstance(x, ast.FunctionDef | ast.For | ast.If)
    ]
    places = {id(line): node for node in nodes for line in node.body}
    for node in nodes:
        for i, line in enumerate(node.body):
            if ast.unparse(line) not in idle:
                for owner, body, way in ways_of_line(node, i, places.get(id(node))):
                    yield Variation(function, (owner, "body", body), line, line, way)


def ways_of_line(node: Any, i: int, around: Any) -> Iterator[tuple[Any, list[Any], str]]:
    """Yield what has another body, that, and how it is said, for line i of a node's body.

    around : what has this node in its body; None if nothing that varies does.
    """
    before, line, rest = node.body[:i], node.body[i], node.body[i + 1 :]
    if isinstance(line, ast.Assign | ast.If | ast.For):
        yield node, before + rest or [ast.Pass()], "left out"
        yield node, [*before, line, line, *rest], "done twice"
    if rest and not isinstance(line, ast.FunctionDef):
        yield node, [*before, rest[0], line, *rest[1:]], f"done after {shorten(rest[0])}"
    if around and isinstance(node, ast.For) and node.body[1:]:
        once = ast.If(parse("not number_of_pass"), [line], [])
        target = ast.Tuple([ast.Name("number_of_pass", ast.Store()), node.target], ast.Store())
        for way, count in (("the first", "numbered"), ("the last", "numbered_back")):
            passes = ast.Call(parse(count), [node.iter], [])
            loop = ast.For(target, passes, [*before, once, *rest], [])
            body = [loop if x is node else x for x in around.body]
            yield around, body, f"done in {way} pass alone"
    for loop in rest:
        if isinstance(loop, ast.For) and isinstance(line, ast.Assign):
            yield loop, [line, *loop.body], "done anew in each pass of the loop"


def sites(node: ast.AST, line: Any = None) -> Iterator[tuple[Any, str, int | None, Any, Any]]:
    """Yield the values in a function, each with its parent, its place in that, and its line; parts first.

    What is called or set is no value. Arguments and loops' variables are sites, too, each its own line.
    """
    if isinstance(node, ast.FunctionDef) and line is None:
        yield from ((node.args, "args", i, arg, arg) for i, arg in enumerate(node.args.args))
    if isinstance(node, ast.For):
        names = (x for x in ast.walk(node.target) if isinstance(x, ast.Name) and x.id != "_")
        yield from ((node, "target", None, name, name) for name in names)
    for field, value in ast.iter_fields(node):
        for i, inner in enumerate(value) if isinstance(value, list) else [(None, value)]:
            own = (
                inner if isinstance(inner, ast.Assign | ast.Return | ast.Yield | ast.Expr) else line
            )
            whole = isinstance(node, ast.For | ast.If) and field in ("iter", "test")
            if whole:
                own = inner
            if isinstance(inner, ast.AST):
                yield from sites(inner, own)
            is_set = isinstance(getattr(inner, "ctx", None), ast.Store)
            if whole or (
                isinstance(inner, ast.expr) and line is not None and field != "func" and not is_set
            ):
                yield node, field, None if whole else i, inner, own if whole else line
