"""Evidence by algebra: a wrong answer as a small combination of the terms of the specification's lines.

"Yours is u + alpha * f.hvp(w, u, D2); the coefficient should be -1." The expressions that run in the
specification's algorithms are recorded, and least squares looks for at most three of them whose sum is
the wrong answer, to rounding and with the same simple coefficients in every situation.
"""

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, partial
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedref import spec
from fedref.judge.lines import TRACED
from fedref.models.numerics import Array

Value = TypeVar("Value")

#: The largest rest of an answer, relatively, and of a coefficient that is a fraction.
EXACT, SIMPLE = 1e-9, 1e-7
#: So many entries of an answer are looked at before a combination is tried on all.
ENTRIES = 24
#: The right answer, as a term.
RIGHT = "what is right"


class Combination(NamedTuple):
    """What an answer is, {term: its coefficient}; right : the specification's line, if it has these terms.

    >>> line = {"u": "1", "alpha * f.hvp(w, u, D2)": "-1"}
    >>> print(Combination({"u": "1", "alpha * f.hvp(w, u, D2)": "1/2"}, line))
    yours is u + 1/2·(alpha * f.hvp(w, u, D2)); the coefficient of alpha * f.hvp(w, u, D2) should be -1
    >>> print(Combination({"u": "1"}, line))
    yours is u; - alpha * f.hvp(w, u, D2) is missing
    """

    terms: Mapping[str, str]
    right: Mapping[str, str] = {}

    def __str__(self) -> str:
        lines = [f"yours is {sum_text(self.terms)}"]
        for term, c in self.right.items():
            if term not in self.terms:
                lines.append(f"{sum_text({term: c})} is missing")
            elif self.terms[term] != c:
                lines.append(f"the coefficient of {term} should be {c}")
        return "; ".join(lines)


def sum_text(terms: Mapping[str, str]) -> str:
    """Return a sum as text: {"u": "1", "v - w": "-1/2"} is "u - 1/2·(v - w)"."""
    text = ""
    for term, c in terms.items():
        size = c.removeprefix("-")
        term = f"({term})" if " " in term and (size != "1" or is_sum(term)) else term
        text += f"{' -' if size != c else ' +'} {'' if size == '1' else f'{size}·'}{term}"
    return text.strip().removeprefix("+ ")


def is_sum(term: str) -> bool:
    return len(list(split_sum(ast.parse(term, mode="eval").body))) > 1


def find_combination(
    works: Sequence[Callable[[], object]],
    wrong: Sequence[Array],
    right: Sequence[Array],
    known: Sequence[Mapping[str, float]] = (),
) -> Combination | None:
    """Return the combination that the wrong answers are, the same in at least two situations, or None.

    works : what computes the right answer of each situation, by functions of `fedref.spec`, which it
    looks up when it is called. wrong, right : the answers, real arrays or numbers.
    known : more numbers of each situation that may be factors, {"l2": 0.1}; those in the lines are.
    """
    recorded = [record(work, np.shape(x)) for work, x in zip(works, wrong)]
    if len(recorded) < 2 or not all(np.max(np.abs(x)) < 1e100 for x in wrong):
        return None
    if all(np.allclose(x, y, 0, SIMPLE * np.max(np.abs(y))) for x, y in zip(wrong, right)):
        return None  # "yours is what is right"
    terms = shared([values for values, _ in recorded])
    numbers = shared(
        [{**values, **more} for (_, values), more in zip(recorded, known or [{}] * len(works))]
    )
    return combine(wrong, right, terms, numbers)


def combine(
    wrong: Sequence[Array],
    right: Sequence[Array],
    terms: Mapping[str, Sequence[Array]],
    numbers: Mapping[str, Sequence[float]],
) -> Combination | None:
    """Return the combination that the wrong answers are, of terms and numbers given for each situation."""
    terms = {**terms, RIGHT: [np.asarray(x, float) for x in right]}
    column = partial(column_of, [float(np.linalg.norm(x)) or 1.0 for x in wrong])
    constants, factors = factors_of(numbers)
    factors[""] = np.ones(len(wrong))

    def scale(factor: str, term: str) -> list[Array]:
        return [c * x for c, x in zip(factors[factor], terms[term])]

    plain = independent_terms({term: column(xs, ENTRIES) for term, xs in terms.items()})
    names = [(f, t) for f in ("", *factors) for t in plain]
    columns = {name: column(scale(*name), ENTRIES) for name in dict.fromkeys(names)}
    target, whole = column(wrong, ENTRIES), column(wrong)
    for most in (1, 2, 3) if plain else ():
        fits = list[tuple[Any, Combination]]()
        for some in candidates(columns, target, most):
            A = np.stack([column(scale(*name)) for name in some], 1)
            if coefficients := fit(A, whole, [factor for factor, _ in some], constants):
                parts = {t: c for (_, t), c in zip(some, coefficients)}
                line = line_of(parts, terms)
                fits.append(((not line, sum(map(len, coefficients))), Combination(parts, line)))
        if fits:
            return min(fits, key=lambda one: one[0])[1]
    return None


def column_of(sizes: Sequence[float], xs: Sequence[Array], entries: int = 10**9) -> Array:
    """Return the situations one after another, each divided by the size of its answer."""
    parts = [np.ravel(x) / size for x, size in zip(xs, sizes)]
    return np.concatenate([x[:: -(-x.size // entries)] for x in parts])


def independent_terms(columns: Mapping[str, Array]) -> list[str]:
    """Return terms of which no two have one direction; those of sums first."""
    some = dict[str, Array]()
    for term in sorted(columns, key=lambda term: (term not in addends(), term == RIGHT, len(term))):
        a = columns[term]
        if a.any() and not any(is_parallel(a, b) for b in some.values()):
            some[term] = a
    return [*some]


def fit(
    A: Array, whole: Array, factors: Sequence[str], constants: Mapping[str, float]
) -> list[str]:
    """Return the coefficients with which the columns of A sum to the whole, [] where these are not simple."""
    x, *_ = np.linalg.lstsq(A, whole, rcond=None)
    coefficients = [tell(c, name, constants) for c, name in zip(x, factors)]
    exact = len(whole) > len(x) + 1 and np.max(np.abs(A @ x - whole)) < EXACT
    return coefficients if exact and all(coefficients) else []


# ---- which combinations fit ----------------------------------------------------------------------


def candidates(
    columns: Mapping[tuple[str, str], Array], target: Array, n: int
) -> Iterator[Sequence[tuple[str, str]]]:
    """Yield the combinations of n columns, at most one of them with a factor, that seem to fit."""
    keys = list(columns)
    A = np.stack([a / np.linalg.norm(a) for a in columns.values()], 1)
    plain = [i for i, (factor, _) in enumerate(keys) if not factor]
    some = [
        (*few, i)
        for few in combinations(plain, n - 1)
        for i in range(len(keys))
        if keys[i][1] not in [keys[j][1] for j in few]  # each term once
    ]
    some = [few for few in some if keys[few[-1]][0] or few == tuple(sorted(few))]
    index = np.array(some, int).reshape(len(some), n)
    G, b = A.T @ A, A.T @ target
    M = G[index[:, :, None], index[:, None, :]] + 1e-13 * np.eye(n)
    x = np.linalg.solve(M, b[index][:, :, None])[..., 0]
    rest = [float(np.max(np.abs(A[:, few] @ c - target))) for few, c in zip(index, x)]
    for few, r in zip(some, rest):
        if r < 1e-6:
            yield [keys[i] for i in few]


def is_parallel(a: Array, b: Array) -> bool:
    """Return whether a = c b, to rounding."""
    return bool(abs(abs(a @ b) - np.linalg.norm(a) * np.linalg.norm(b)) < 1e-12 * abs(a @ b))


def factors_of(numbers: Mapping[str, Sequence[float]]) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the numbers that are equal in all situations, and the others; each, its square, 1 over it."""
    constants, factors = dict[str, float](), dict[str, Any]()
    for name, xs in numbers.items():
        if not all(xs) or not np.all(np.isfinite(xs)) or set(xs) <= {1.0, -1.0}:
            continue
        for text, power in ((name, 1), (f"{name}²", 2), (f"1/{name}", -1)):
            cs = np.array(xs, float) ** power
            if len(set(xs)) == 1:
                constants[text] = float(cs[0])
            elif not any(np.allclose(cs, other, 1e-9, 0) for other in factors.values()):
                factors[text] = cs
    pairs = combinations([name for name in numbers if name in constants], 2)
    products = {f"{a}·{b}": constants[a] * constants[b] for a, b in pairs}
    every = np.array([*constants.values(), *products.values()])
    alone = {name: x for name, x in products.items() if np.isclose(x, every, 1e-9, 0).sum() == 1}
    return constants | alone, factors


def tell(c: float, factor: str = "", constants: Mapping[str, float] | None = None) -> str:
    """Return a coefficient, with its factor, as a simple fraction or one times a constant, or "".

    >>> tell(-0.5), tell(2, "alpha"), tell(0.1, "", {"alpha": 0.3, "l2": 0.1}), tell(0.123)
    ('-1/2', '2·alpha', 'l2', '')
    >>> tell(0.03, "", {"alpha²": 0.09, "alpha·l2": 0.03})
    'alpha·l2'
    """
    texts = []
    for name, x in {"": 1.0, **(constants or {})}.items():
        q = Fraction(c / x).limit_denominator(1 if "·" in name else 4)
        if 0 < abs(q.numerator) <= 8 and abs(c / x - q) < SIMPLE * abs(q):
            names = "·".join(filter(None, (name, factor)))
            text = f"{q}·{names}".replace("1·", "", abs(q) == 1) if names else str(q)
            texts.append((bool(name), abs(q.numerator) + q.denominator, text))
    return min(texts, default=(False, 0, ""), key=lambda one: one[:2])[2]


def line_of(parts: Mapping[str, str], terms: Mapping[str, Sequence[Array]]) -> dict[str, str]:
    """Return a line of the specification that sums these terms to what is right, or {}."""
    for line in sums():
        if parts.keys() <= line.keys() <= terms.keys():
            made = zip(*([int(c) * x for x in terms[term]] for term, c in line.items()))
            if all(np.allclose(sum(xs), x, 1e-9, 0) for xs, x in zip(made, terms[RIGHT])):
                return line
    return {}


# ---- what the lines' expressions are -------------------------------------------------------------


def record(
    work: Callable[[], object], shape: tuple[int, ...]
) -> tuple[dict[str, Array], dict[str, float]]:
    """Return the expressions of this shape that run in `work()`, by their text, and the numbers.

    Of an expression that runs more than once it is the last; there is also sum(EXPRESSION), of all.
    """
    from unittest.mock import patch  # imports asyncio, for which a run need not wait

    values = dict[str, list[Any]]()

    def note(text: str, x: Any) -> Any:
        if type(x) in (int, float) or (
            isinstance(x, np.ndarray | np.floating) and x.dtype.kind == "f"
        ):
            values.setdefault(text, []).append(x)
        return x

    scope = {**vars(spec), "note": note}
    exec(recorded()[0], scope)
    with (
        patch.dict(vars(spec), {name: scope[name] for name in recorded()[1]}),
        np.errstate(all="ignore"),
    ):
        work()
    for text in [text for text, xs in values.items() if text.isidentifier() and differ(xs)]:
        del values[text]  # a variable that changes would be another one than in the other terms
    numbers = {text: float(xs[-1]) for text, xs in values.items() if np.shape(xs[-1]) == ()}
    terms = {text: np.asarray(xs[-1]) for text, xs in values.items() if np.shape(xs[-1]) == shape}
    sums = {
        f"sum({text})": sum(values[text]) for text in terms if len(values[text]) > 1 and "(" in text
    }
    return terms | {text: x for text, x in sums.items() if np.shape(x) == shape}, numbers


def differ(xs: Sequence[Array]) -> bool:
    return any(not np.array_equal(x, xs[0]) for x in xs)


@cache
def recorded() -> tuple[Any, tuple[str, ...]]:
    """Return the specification's algorithms with each expression in `note(text, ...)`, and their names."""
    tree: Any = ast.parse(inspect.getsource(spec))
    tree.body = [x for x in tree.body if isinstance(x, ast.FunctionDef) and x.lineno in TRACED]
    for function in tree.body:
        function.body = [Wrap().visit(line) for line in function.body]
    ast.fix_missing_locations(tree)
    return compile(tree, "recorded", "exec"), tuple(x.name for x in tree.body)


class Wrap(ast.NodeTransformer):
    """Put each expression that may be a term into `note(its text, ...)`."""

    def generic_visit(self, node: ast.AST) -> Any:
        text = ast.unparse(node) if isinstance(node, ast.expr) else ""
        if isinstance(node, ast.Yield):  # what it yields is no term of it
            return node
        super().generic_visit(node)
        if not isinstance(node, ast.BinOp | ast.Call | ast.Name | ast.Subscript) or not isinstance(
            getattr(node, "ctx", ast.Load()), ast.Load
        ):
            return node
        return ast.Call(ast.Name("note", ast.Load()), [ast.Constant(text), node], [])


@cache
def sums() -> list[dict[str, str]]:
    """Return the lines of the specification's algorithms that are sums: {term: "1" or "-1"}."""
    tree = ast.parse(inspect.getsource(spec))
    lines = (
        x for x in ast.walk(tree) if isinstance(x, ast.Assign | ast.Return) and x.lineno in TRACED
    )
    return [terms for x in lines if x.value and len(terms := dict(split_sum(x.value))) > 1]


def split_sum(node: ast.expr, sign: int = 1) -> Iterator[tuple[str, str]]:
    """Yield the terms of a sum, each with its sign."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from split_sum(node.left, sign)
        yield from split_sum(node.right, -sign if isinstance(node.op, ast.Sub) else sign)
    else:
        yield ast.unparse(node), str(sign)


@cache
def addends() -> frozenset[str]:
    """Return the terms of all these sums."""
    return frozenset(term for line in sums() for term in line)


def shared(records: Sequence[Mapping[str, Value]]) -> dict[str, list[Value]]:
    """Return the values in all situations of what each of them has."""
    first, *rest = records
    return {
        text: [values[text] for values in records]
        for text in first
        if all(text in values for values in rest)
    }
