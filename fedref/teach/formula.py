"""Formulae that are both shown and computed: one text, read once, as MathML and as numbers.

A formula such as `u − αH(w; D″)u` becomes an expression of Python, which `ast` reads. Factors side by
side are joined by `**`, as that binds tighter than `*` and from the right, as H(w; D)v does:

    u − αH(w; D″)u    a0 - a1 ** a2(a3, a4) ** a5         each a is a leaf: a number or a symbol
    φ″ ⊙ δWᵀ          a0 * a1 ** a2[transpose]            · is @, ² and ᵗ are [square] and [t]
    (μ/2)‖w‖²         group(a0 / a1) ** norm(a2)[square]
    Σ_k p_k I_k       a0 ** a1 ** a2                      Σ sums what follows it

A symbol is one letter with its marks: w, θ̂, D″, wᵗ, c₁, p_k, w_S, R{z}, or one of `WORDS`. Its value
is given by the caller: a number, an array, or a function. A function may return a linear map, such as
the Hessian H(w; D): it is applied to the product that follows it, and I is the map that changes nothing.
Side by side, xᵀy of vectors is their dot product, and anything else goes entry by entry. Σ_k runs
over the first axis of every symbol that ends in _k.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import add, ge, le, mul, sub, truediv
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import numpy as np

WORDS = ("log", "exp", "tanh", "max", "sqrt", "diag")
#: Letters that stand for functions wherever an opening bracket follows.
FUNCTIONS = ("g", "f", "F", "H", "L", "h", "σ", "φ", "z", *WORDS)
POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "−0123456789")
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
BELOW = r"_(?:\{[^{}]*\}|[a-z]+|\w)(?:,\w)?"
TOKEN = re.compile(
    r"\s*(?:(?P<number>10⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+|\d+(?:\.\d+)?)"
    rf"|(?P<symbol>Σ_\w|(?:R\{{[^{{}}]+\}}|{'|'.join(WORDS)}|[∇∂]?[^\W\d_Σᵀᵗ²])"
    rf"[\u0302\u0304]?[₀-₉]*[′″*]*ᵗ?(?:{BELOW})?[′″*]*)"
    r"|(?P<sign>.))"
)
#: A sign of a formula → Python's.
SIGNS = {
    "+": "+", "−": "-", "⊙": "*", "·": "@", "/": "/", "≤": "<=", "≥": ">=", ";": ",", ",": ",",
    ")": ")", "²": "[square]", "ᵀ": "[transpose]", "ᵗ": "[t]",
}  # fmt: skip
BARS = {"‖": "norm", "|": "bar"}
#: Python's operators → what is shown, and what is computed.
OPERATORS: Mapping[type, tuple[str, Callable[..., Any]]] = {
    ast.Add: ("+", add), ast.Sub: ("−", sub), ast.Mult: ("⊙", mul), ast.MatMult: ("·", mul),
    ast.Div: ("/", truediv), ast.LtE: ("≤", le), ast.GtE: ("≥", ge),
}  # fmt: skip


class Formula(NamedTuple):
    """An expression, and what its names a0, a1, ... stand for."""

    tree: ast.expr
    leaves: list[str]

    def leaf(self, node: ast.expr) -> str:
        """Return the text of a leaf, or nothing."""
        return self.leaves[int(node.id[1:])] if isinstance(node, ast.Name) else ""


# ---- reading ---------------------------------------------------------------------------------------


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of each number, symbol and sign."""
    for match in TOKEN.finditer(text.strip()):
        kind = match.lastgroup or "sign"
        yield kind, match[kind]


def parse(text: str) -> Formula:
    """Read a formula. Raises ValueError."""
    python, leaves, brackets = "", list[str](), list[str]()
    ended = function = False  # whether a factor has ended; whether it is a function
    for kind, token in tokens(text):
        closes = token in BARS and brackets[-1:] == [token]
        if (kind != "sign" or token == "(" or token in BARS) and ended and not closes:
            python += "" if token == "(" and function else "**"
        if kind != "sign":
            python += f"a{len(leaves)}"
            leaves.append(token)
        elif token == "(":
            python += "(" if ended and function else "group("
        elif token in BARS:
            python += ")" if closes else f"{BARS[token]}("
        elif token in SIGNS:
            python += SIGNS[token]
        else:
            raise ValueError(f"formula {text!r}: {token!r} has no meaning")
        if closes or token == ")":
            brackets = brackets[:-1]
        elif token in BARS or token == "(":
            brackets.append(token)
        ended = kind != "sign" or closes or token in (")", "²", "ᵀ", "ᵗ")
        function = kind == "symbol" and is_function(token)
    try:
        return Formula(ast.parse(python, mode="eval").body, leaves)
    except SyntaxError:
        raise ValueError(f"formula {text!r} is not complete") from None


def is_function(symbol: str) -> bool:
    """Return whether a symbol before a bracket is a function of it, not a factor."""
    return re.sub(r"_.*|[∇′″ᵗ]", "", symbol) in FUNCTIONS


# ---- computing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Linear:
    """A linear map that can be added and scaled, as in I − αH. transposed : Aᵀ, where it is needed."""

    apply: Callable[[Any], Any]
    transposed: Callable[[Any], Any] | None = None

    def __add__(self, other: "Linear") -> "Linear":
        return Linear(lambda v: self.apply(v) + other.apply(v))

    def __sub__(self, other: "Linear") -> "Linear":
        return Linear(lambda v: self.apply(v) - other.apply(v))


IDENTITY = Linear(lambda v: v)


def exponent(text: str) -> str:
    """Return the exponent of a power of ten, such as −8 of 10⁻⁸; "" for any other number."""
    return text[2:].translate(POWERS) if text[-1] in "⁰¹²³⁴⁵⁶⁷⁸⁹" else ""


def evaluate(formula: Formula, env: Mapping[str, Any]) -> Any:
    """Return its value, with each symbol's number, array or function from `env`."""

    def value(node: ast.expr) -> Any:
        return evaluate(formula._replace(tree=node), env)

    node = formula.tree
    match node:
        case ast.Name():
            text = formula.leaf(node)
            if text[0].isdigit():
                power = exponent(text).replace("−", "-")
                return float(f"1e{power}" if power else text)
            return IDENTITY if text == "I" and text not in env else env[text]
        case ast.BinOp(left, ast.Pow(), right) if formula.leaf(left).startswith("Σ"):
            index = formula.leaf(left)[1:]
            running = {name: values for name, values in env.items() if name.endswith(index)}
            each = (dict(zip(running, row)) for row in zip(*running.values()))
            return sum(evaluate(formula._replace(tree=right), {**env, **one}) for one in each)
        case ast.BinOp(left, ast.Pow(), right):
            return multiply(value(left), value(right), is_transposed(left))
        case ast.BinOp(left, operator, right) | ast.Compare(left, [operator], [right]):
            return OPERATORS[type(operator)][1](value(left), value(right))
        case ast.UnaryOp(ast.USub(), inner):
            return -value(inner)
        case ast.Subscript(inner, ast.Name(power)):
            x = value(inner)
            if power == "transpose":
                return Linear(x.transposed) if isinstance(x, Linear) and x.transposed else x
            return x * x if power == "square" else x ** env["t"]
        case ast.Call(ast.Name(name), arguments):
            if name == "norm":
                return np.sqrt(np.sum(value(arguments[0]) ** 2))
            if name in ("group", "bar"):
                return abs(value(arguments[0])) if name == "bar" else value(arguments[0])
            return value(node.func)(*map(value, arguments))
    raise ValueError(f"formula: {ast.unparse(node)} has no value")


def is_transposed(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "transpose"


def multiply(first: Any, then: Any, dot: bool) -> Any:
    """Multiply two factors that stand side by side: a linear map is applied to all that follows it."""
    if isinstance(then, Linear):
        before = first.apply if isinstance(first, Linear) else lambda v: first * v
        return Linear(lambda v: before(then.apply(v)))
    if isinstance(first, Linear):
        return first.apply(then)
    return np.sum(first * then) if dot else first * then


# ---- MathML ----------------------------------------------------------------------------------------


def mathml(formula: Formula, block: bool = False) -> str:
    """Return the formula as a <math> element; each symbol carries its text as data-symbol."""
    display = ' display="block"' if block else ""
    return f"<math{display}><mrow>{element(formula)}</mrow></math>"


def symbol_element(text: str) -> str:
    """Return θ̂_j′ as a letter with its subscript and superscript."""
    return f'<mrow data-symbol="{escape(text)}">{letter(text)}</mrow>'


def letter(text: str) -> str:
    """Return the letter with its subscript and superscript alone, without the element around it."""
    inner = re.match(r"R\{(.*?)\}", text)
    name, _, below = (text[inner.end() :] if inner else text).partition("_")
    above = "".join(c for c in name + below if c in "ᵗ*").replace("ᵗ", "t")
    # a prime is raised by itself: as a superscript it would be too small
    primes = "".join(c for c in name + below if c in "′″")
    digits = "".join(c for c in name if c in "₀₁₂₃₄₅₆₇₈₉").translate(LOWERED)
    below = digits + re.sub("[′″*{}]", "", below)
    name = re.sub("[₀-₉′″*ᵗ]", "", name)
    drawn = f"<mi>{escape(name)}</mi>"
    if inner:
        drawn = f"<mrow><mi>R</mi><mo>{{</mo>{letter(inner[1])}<mo>}}</mo></mrow>"
    elif name[0] in "∇∂":
        drawn = f'<mrow><mo rspace="0">{name[0]}</mo><mi>{name[1:]}</mi></mrow>'
    elif name[1:] in ("\u0302", "\u0304"):  # a hat, a bar
        accent = "^" if name[1:] == "\u0302" else "¯"
        drawn = f'<mover accent="true"><mi>{name[0]}</mi><mo>{accent}</mo></mover>'
    sub = f"<mi>{below}</mi>".replace(",", "</mi><mo>,</mo><mi>")
    sub = f"<mrow>{sub}</mrow>" if "," in below else sub
    sup = "<mo>*</mo>" if above == "*" else f"<mi>{above}</mi>"
    if below and above:
        drawn = f"<msubsup>{drawn}{sub}{sup}</msubsup>"
    elif below:
        drawn = f"<msub>{drawn}{sub}</msub>"
    elif above:
        drawn = f"<msup>{drawn}{sup}</msup>"
    return drawn + f'<mo lspace="0" rspace="0">{primes}</mo>' * bool(primes)


def without_brackets(node: ast.expr, only_fractions: bool = False) -> ast.expr:
    """Return a group without its brackets: a fraction and the parts of one need none."""
    match node:
        case ast.Call(ast.Name("group"), [ast.BinOp(_, ast.Div(), _) as fraction]):
            return fraction
        case ast.Call(ast.Name("group"), [inner]) if not only_fractions:
            return inner
    return node


def element(formula: Formula) -> str:
    """Return an expression as presentation MathML."""

    def draw(node: ast.expr) -> str:
        return element(formula._replace(tree=node))

    node = formula.tree
    match node:
        case ast.Name():
            text = formula.leaf(node)
            if text[0].isdigit():
                power = exponent(text)
                return f"<msup><mn>10</mn><mn>{power}</mn></msup>" if power else f"<mn>{text}</mn>"
            return symbol_element(text)
        case ast.BinOp(left, ast.Pow(), right) if formula.leaf(left).startswith("Σ"):
            index = formula.leaf(left)[2:]
            return f"<munder><mo>∑</mo><mi>{index}</mi></munder>{draw(right)}"
        case ast.BinOp(left, ast.Pow(), right):
            left, right = (without_brackets(part, only_fractions=True) for part in (left, right))
            return f"{draw(left)}<mo>&#x2062;</mo>{draw(right)}"
        case ast.BinOp(left, ast.Div(), right):
            above, below = (draw(without_brackets(part)) for part in (left, right))
            return f"<mfrac><mrow>{above}</mrow><mrow>{below}</mrow></mfrac>"
        case ast.BinOp(left, operator, right) | ast.Compare(left, [operator], [right]):
            return f"{draw(left)}<mo>{escape(OPERATORS[type(operator)][0])}</mo>{draw(right)}"
        case ast.UnaryOp(ast.USub(), inner):
            return f"<mo>−</mo>{draw(inner)}"
        case ast.Subscript(inner, ast.Name(power)):
            raised = {"square": "<mn>2</mn>", "transpose": "<mi>T</mi>", "t": "<mi>t</mi>"}[power]
            return f"<msup><mrow>{draw(inner)}</mrow>{raised}</msup>"
        case ast.Call(ast.Name(name), arguments):
            if name in ("norm", "bar", "group"):
                opens, closes = {"norm": ("‖", "‖"), "bar": ("|", "|"), "group": ("(", ")")}[name]
                return f"<mrow><mo>{opens}</mo>{draw(arguments[0])}<mo>{closes}</mo></mrow>"
            text = formula.leaf(node.func)
            match text, arguments:
                # on one line: without a font for mathematics no root is as tall as a fraction
                case "sqrt", [ast.BinOp(over, ast.Div(), under)]:
                    return f"<msqrt>{draw(over)}<mo>/</mo>{draw(under)}</msqrt>"
                case "sqrt", [square]:
                    return f"<msqrt>{draw(square)}</msqrt>"
            joined = f"<mo>{',' if text in WORDS else ';'}</mo>".join(map(draw, arguments))
            bracketed = f"<mrow><mo>(</mo>{joined}<mo>)</mo></mrow>"
            return f"{symbol_element(text)}<mo>&#x2061;</mo>{bracketed}"
    raise ValueError(f"formula: {ast.unparse(node)} cannot be drawn")
