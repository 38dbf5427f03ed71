"""Formulae that are both shown and computed: one text, read once, as MathML and as numbers.

    formula := sum [('≤' | '≥') sum]                                          w − ηg(w; D)
    sum     := ['−'] product (('+' | '−') product)*
    product := chain (('⊙' | '·') chain)*          φ″ ⊙ δWᵀ: what is side by side binds tighter
    chain   := power (['/'] power)*                2λu, αH(w; D)v
    power   := atom ('²' | 'ᵀ' | 'ᵗ')*
    atom    := number | symbol | symbol '(' sum (('; ' | ', ') sum)* ')' | '(' sum ')'
             | '‖' sum '‖' | '|' sum '|'
             | 'Σ_k' product                       Σ takes the product behind it

A symbol is one letter with what is on it: w, θ̂, D″, wᵗ, c₁, p_k, w_S, R{z}, or one of `WORDS`. What
it means comes from outside: numbers, arrays, and functions. A function may return a linear map, such
as the Hessian H(w; D): it is applied to the product behind it, and I is the map that changes nothing.
Side by side, xᵀy of vectors is their dot product, and anything else goes entry by entry. Σ_k runs
over the first axis of every symbol that ends in _k.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add, ge, le, mul, neg, truediv
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import numpy as np

WORDS = ("log", "exp", "tanh", "max", "sqrt", "diag")
#: Letters that stand for functions wherever an opening bracket follows.
FUNCTIONS = ("g", "f", "F", "H", "L", "h", "σ", "φ", "z", *WORDS)
BARS = ("‖", "|")
RAISED = {"²": "square", "ᵀ": "transpose", "ᵗ": "power"}
POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "−0123456789")
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
BELOW = r"_(?:\{[^{}]*\}|[a-z]+|\w)(?:,\w)?"
TOKEN = re.compile(
    r"\s*(?:(?P<number>10⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+|\d+(?:\.\d+)?)"
    rf"|(?P<symbol>Σ_\w|(?:R\{{[^{{}}]+\}}|{'|'.join(WORDS)}|[∇∂]?[^\W\d_Σᵀᵗ²])"
    rf"[\u0302]?[₀-₉]*[′″*]*ᵗ?(?:{BELOW})?[′″*]*)"
    r"|(?P<sign>.))"
)


class Formula(NamedTuple):
    """A node: what it is, its text if it is a leaf, and its parts."""

    kind: str  # number symbol call sum minus product times over square power transpose norm total
    # relation group
    text: str = ""
    parts: tuple["Formula", ...] = ()


# ---- reading -------------------------------------------------------------------------------------


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of each, then an end."""
    for match in TOKEN.finditer(text.strip()):
        kind = match.lastgroup or "sign"
        yield kind, match[kind]
    yield "end", ""


class Parser:
    """Recursive descent over the tokens of one formula."""

    def __init__(self, text: str) -> None:
        self.text, self.left = text, list(tokens(text))
        self.bar = ""  # that closes the norm around

    def take(self, *signs: str) -> str:
        """Take the next sign if it is one of these."""
        kind, text = self.left[0]
        return self.left.pop(0)[1] if kind == "sign" and text in signs else ""

    def sums(self, closing: str) -> tuple[Formula, ...]:
        """Read one sum or several, and the sign that closes them."""
        outside, self.bar = self.bar, closing
        sums = [self.sum()]
        while self.take(";", ","):
            sums.append(self.sum())
        self.bar = outside
        if not self.take(closing):
            found = self.left[0][1] or "the end"
            raise ValueError(f"formula {self.text!r}: found {found!r}, expected {closing!r}")
        return tuple(sums)

    def formula(self) -> Formula:
        formula = self.sum()
        if sign := self.take("≤", "≥"):
            formula = Formula("relation", sign, (formula, self.sum()))
        if self.left[0][0] != "end":
            raise ValueError(f"formula {self.text!r}: {self.left[0][1]!r} is left over")
        return formula

    def sum(self) -> Formula:
        parts, sign = [], self.take("−") or "+"
        while sign:
            part = self.product()
            parts.append(Formula("minus", "", (part,)) if sign == "−" else part)
            sign = self.take("+", "−")
        return parts[0] if len(parts) == 1 else Formula("sum", "", tuple(parts))

    def product(self) -> Formula:
        factors, signs = [self.chain()], ""
        while sign := self.take("⊙", "·"):
            signs += sign
            factors.append(self.chain())
        return Formula("product", signs, tuple(factors)) if signs else factors[0]

    def chain(self) -> Formula:
        factors = [self.power()]
        while True:
            kind, text = self.left[0]
            if self.take("/"):
                factors[-1] = Formula("over", "", (factors[-1], self.power()))
            elif kind in ("number", "symbol") or (text in ("(", *BARS) and text != self.bar):
                factors.append(self.power())
            else:
                return factors[0] if len(factors) == 1 else Formula("times", "", tuple(factors))

    def power(self) -> Formula:
        atom = self.atom()
        while sign := self.take(*RAISED):
            atom = Formula(RAISED[sign], "t" * (sign == "ᵗ"), (atom,))
        return atom

    def atom(self) -> Formula:
        kind, text = self.left.pop(0)
        if kind == "number":
            return Formula("number", text)
        if text.startswith("Σ"):
            return Formula("total", text[2:], (self.product(),))
        if kind == "symbol" and is_function(text) and self.take("("):
            return Formula("call", text, self.sums(")"))
        if kind == "symbol":
            return Formula("symbol", text)
        if text == "(":
            return Formula("group", "", self.sums(")"))
        if text in BARS and kind != "end":
            return Formula("norm", text, self.sums(text))
        raise ValueError(f"formula {self.text!r}: {text or 'the end'!r} begins no term")


def is_function(symbol: str) -> bool:
    """Return whether a symbol before a bracket is a function of it, not a factor."""
    return re.sub(r"_.*|[∇′″ᵗ]", "", symbol) in FUNCTIONS


def parse(text: str) -> Formula:
    """Return the tree of a formula; ValueError says what was found and what was expected."""
    return Parser(text).formula()


# ---- computing -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Linear:
    """A linear map that can be added and scaled: I − αH; Aᵀ where it says how."""

    apply: Callable[[Any], Any]
    transposed: Callable[[Any], Any] | None = None

    def __add__(self, other: "Linear") -> "Linear":
        return Linear(lambda v: self.apply(v) + other.apply(v))

    def __neg__(self) -> "Linear":
        return Linear(lambda v: -self.apply(v))


IDENTITY = Linear(lambda v: v)
#: What a node makes of its parts' values.
OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "sum": lambda *values: reduce(add, values),
    "product": lambda *values: reduce(mul, values),
    "minus": neg,
    "over": truediv,
    "square": lambda x: x * x,
    "transpose": lambda x: Linear(x.transposed) if isinstance(x, Linear) and x.transposed else x,
    "‖": lambda x: np.sqrt(np.sum(x * x)),
    "|": abs,
    "≤": le,
    "≥": ge,
    "group": lambda x: x,
}


def exponent(text: str) -> str:
    """Return −8 of 10⁻⁸, nothing of any other number."""
    return text[2:].translate(POWERS) if text[-1] in "⁰¹²³⁴⁵⁶⁷⁸⁹" else ""


def evaluate(formula: Formula, env: Mapping[str, Any]) -> Any:
    """Return its value, with each symbol's number, array or function from `env`."""
    kind, text, parts = formula
    if kind == "number":
        power = exponent(text).replace("−", "-")
        return float(f"1e{power}" if power else text)
    if kind == "symbol":
        return IDENTITY if text == "I" and text not in env else env[text]
    if kind == "total":
        running = {name: values for name, values in env.items() if name.endswith(f"_{text}")}
        each = [{**env, **dict(zip(running, row))} for row in zip(*running.values())]
        return sum(evaluate(parts[0], one) for one in each)
    values = [evaluate(part, env) for part in parts]
    if kind == "call":
        return env[text](*values)
    if kind == "power":
        return values[0] ** env[text]
    if kind == "times":
        return multiply(parts, values)
    return OPERATIONS[kind if kind in OPERATIONS else text](*values)


def multiply(parts: tuple[Formula, ...], values: list[Any]) -> Any:
    """Multiply from the right: a linear map takes all that is behind it."""
    result = values[-1]
    for part, value in zip(parts[-2::-1], values[-2::-1]):
        result = multiply_two(value, result, part.kind == "transpose")
    return result


def multiply_two(first: Any, then: Any, dot: bool) -> Any:
    if isinstance(then, Linear):
        before = first.apply if isinstance(first, Linear) else lambda v: first * v
        return Linear(lambda v: before(then.apply(v)))
    if isinstance(first, Linear):
        return first.apply(then)
    return np.sum(first * then) if dot else first * then


# ---- MathML --------------------------------------------------------------------------------------


def mathml(formula: Formula, block: bool = False) -> str:
    """Return the formula as a <math> element; each symbol carries its text as data-symbol."""
    display = ' display="block"' if block else ""
    return f"<math{display}><mrow>{element(formula)}</mrow></math>"


def symbol_element(text: str) -> str:
    """θ̂_j′ as a letter with its subscript and superscript."""
    return f'<mrow data-symbol="{escape(text)}">{letter(text)}</mrow>'


def letter(text: str) -> str:
    """The same without the mark of its name."""
    inner = re.match(r"R\{(.*?)\}", text)
    name, _, below = (text[inner.end() :] if inner else text).partition("_")
    above = "".join(c for c in name + below if c in "ᵗ*").replace("ᵗ", "t")
    primes = "".join(
        c for c in name + below if c in "′″"
    )  # raised already, and too small higher up
    digits = "".join(c for c in name if c in "₀₁₂₃₄₅₆₇₈₉").translate(LOWERED)
    below = digits + re.sub("[′″*{}]", "", below)
    name = re.sub("[₀-₉′″*ᵗ]", "", name)
    drawn = f"<mi>{escape(name)}</mi>"
    if inner:
        drawn = f"<mrow><mi>R</mi><mo>{{</mo>{letter(inner[1])}<mo>}}</mo></mrow>"
    elif name[0] in "∇∂":
        drawn = f'<mrow><mo rspace="0">{name[0]}</mo><mi>{name[1:]}</mi></mrow>'
    elif "\u0302" in name:
        drawn = f'<mover accent="true"><mi>{name[0]}</mi><mo>^</mo></mover>'
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


def element(formula: Formula) -> str:
    """Return one node as presentation MathML."""
    kind, text, parts = formula
    inner = [element(part) for part in parts]
    match kind:
        case "number" if power := exponent(text):
            return f"<msup><mn>10</mn><mn>{power}</mn></msup>"
        case "number":
            return f"<mn>{text}</mn>"
        case "symbol":
            return symbol_element(text)
        case "call" if text == "sqrt":
            # on one line: without a font for mathematics the root does not grow as high as a fraction
            over = parts[0].kind == "over"
            return f"<msqrt>{'<mo>/</mo>'.join(map(element, parts[0].parts)) if over else inner[0]}</msqrt>"
        case "call":
            joined = f"<mo>{',' if text in WORDS else ';'}</mo>".join(inner)
            return (
                f"{symbol_element(text)}<mo>&#x2061;</mo><mrow><mo>(</mo>{joined}<mo>)</mo></mrow>"
            )
        case "sum":
            signed = ("" if p.kind == "minus" else "<mo>+</mo>" for p in parts[1:])
            return inner[0] + "".join(sign + one for sign, one in zip(signed, inner[1:]))
        case "minus":
            return f"<mo>−</mo>{inner[0]}"
        case "product":
            return inner[0] + "".join(f"<mo>{sign}</mo>{x}" for sign, x in zip(text, inner[1:]))
        case "times":  # a fraction needs no brackets
            fractions = (p.kind == "group" and p.parts[0].kind == "over" for p in parts)
            bare = (p.parts[0] if fraction else p for p, fraction in zip(parts, fractions))
            return "<mo>&#x2062;</mo>".join(map(element, bare))
        case "over":
            above, below = (element(p.parts[0] if p.kind == "group" else p) for p in parts)
            return f"<mfrac><mrow>{above}</mrow><mrow>{below}</mrow></mfrac>"
        case "square" | "transpose" | "power":
            raised = {"square": "<mn>2</mn>", "transpose": "<mi>T</mi>"}.get(
                kind, f"<mi>{text}</mi>"
            )
            return f"<msup><mrow>{inner[0]}</mrow>{raised}</msup>"
        case "norm":
            return f"<mrow><mo>{text}</mo>{inner[0]}<mo>{text}</mo></mrow>"
        case "group":
            return f"<mrow><mo>(</mo>{inner[0]}<mo>)</mo></mrow>"
        case "total":
            return f"<munder><mo>∑</mo><mi>{text}</mi></munder>{inner[0]}"
    return f"{inner[0]}<mo>{escape(text)}</mo>{inner[1]}"  # relation
