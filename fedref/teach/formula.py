"""Formulae that are both shown and computed: one text, read once, as MathML and as numbers.

    formula := [sum ('←' | '=')] sum [('≤' | '≥' | '<' | '>' | '≠') sum]      w ← w − η g(w; D)
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
Side by side, xᵀy of vectors is their dot product, two matrices are their matrix product, and anything
else goes entry by entry. Σ_k runs over the first axis of every symbol that ends in _k.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import ge, gt, le, lt, mul, ne
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import numpy as np

WORDS = ("log", "exp", "tanh", "max", "min", "sqrt", "diag")
BARS = ("‖", "|")
RELATIONS = ("≤", "≥", "<", ">", "≠")
RAISED = str.maketrans("⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹", "−+0123456789")
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
BELOW = r"_(?:\{[^{}]*\}|[a-z]+|\w)(?:,\w)?"
TOKEN = re.compile(
    r"\s*(?:(?P<number>10[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+|\d+(?:\.\d+)?|½)"
    rf"|(?P<symbol>Σ_(?:\{{[^{{}}]*\}}|\w)"
    rf"|(?:R\{{[^{{}}]+\}}|{'|'.join(WORDS)}|[∇∂]?[^\W\d_Σᵀᵗ²])"
    rf"[\u0302]?[₀-₉]*[′″*]*(?:ᵗ(?:[⁺⁻]¹)?)?(?:{BELOW})?[′″*]*)"
    r"|(?P<sign>.))"
)


class Formula(NamedTuple):
    """A node: what it is, its text if it is a leaf, and its parts."""

    kind: str  # number symbol call sum minus product times over square power transpose norm total
    # relation assign group
    text: str = ""
    parts: tuple["Formula", ...] = ()


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


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of each, then an end."""
    for match in TOKEN.finditer(text.strip()):
        kind = match.lastgroup or "sign"
        yield kind, match[kind]
    yield "end", ""


class Parser:
    """Recursive descent over the tokens of one formula."""

    def __init__(self, text: str) -> None:
        self.text, self.left = text, list(tokens(text))

    def next(self, *signs: str) -> bool:
        """Whether one of these signs comes next; if so it is taken."""
        if self.left[0][1] in signs and self.left[0][0] != "end":
            self.left.pop(0)
            return True
        return False

    def need(self, sign: str) -> None:
        if not self.next(sign):
            found = self.left[0][1] or "the end"
            raise ValueError(f"formula {self.text!r}: found {found!r}, expected {sign!r}")

    def formula(self) -> Formula:
        first = self.sum()
        if self.next("←", "="):
            first = Formula("assign", "←" if "←" in self.text else "=", (first, self.sum()))
        if (sign := self.left[0][1]) and self.next(*RELATIONS):
            first = Formula("relation", sign, (first, self.sum()))
        if self.left[0][0] != "end":
            raise ValueError(f"formula {self.text!r}: {self.left[0][1]!r} is left over")
        return first

    def sum(self) -> Formula:
        parts = [Formula("minus", "", (self.product(),)) if self.next("−") else self.product()]
        while self.left[0][1] in ("+", "−"):
            minus = self.left.pop(0)[1] == "−"
            part = self.product()
            parts.append(Formula("minus", "", (part,)) if minus else part)
        return parts[0] if len(parts) == 1 else Formula("sum", "", tuple(parts))

    def product(self) -> Formula:
        factors, signs = [self.chain()], ""
        while self.left[0][1] in ("⊙", "·"):
            signs += self.left.pop(0)[1]
            factors.append(self.chain())
        return Formula("product", signs, tuple(factors)) if signs else factors[0]

    def chain(self) -> Formula:
        factors = [self.power()]
        while True:
            kind, text = self.left[0]
            if self.next("/"):
                factors[-1] = Formula("over", "", (factors[-1], self.power()))
            elif text == self.inside or (
                kind not in ("number", "symbol") and text not in ("(", "Σ", *BARS)
            ):
                break
            else:
                factors.append(self.power())
        return factors[0] if len(factors) == 1 else Formula("times", "", tuple(factors))

    inside = ""  # the bar that closes a norm

    def power(self) -> Formula:
        atom = self.atom()
        while True:
            if self.next("²"):
                atom = Formula("square", "", (atom,))
            elif self.next("ᵀ"):
                atom = Formula("transpose", "", (atom,))
            elif self.next("ᵗ"):
                atom = Formula("power", "t", (atom,))
            else:
                return atom

    def atom(self) -> Formula:
        kind, text = self.left.pop(0)
        if kind == "number":
            return Formula("number", text)
        if text.startswith("Σ"):
            return Formula("total", text[2:].strip("{}"), (self.product(),))
        if kind == "symbol":
            if self.left[0][1] == "(" and is_function(text):
                self.left.pop(0)
                parts = [self.sum()]
                while self.next(";", ","):
                    parts.append(self.sum())
                self.need(")")
                return Formula("call", text, tuple(parts))
            return Formula("symbol", text)
        if text == "(":
            outside, self.inside = self.inside, ""
            inside = self.sum()
            self.inside = outside
            self.need(")")
            return Formula("group", "", (inside,))
        if text in BARS and kind != "end":
            self.inside = text
            inside = self.sum()
            self.inside = ""
            self.need(text)
            return Formula("norm", text, (inside,))
        raise ValueError(f"formula {self.text!r}: {text or 'the end'!r} begins no term")


#: Letters that stand for functions wherever an opening bracket follows.
FUNCTIONS = ("g", "f", "F", "H", "L", "h", "σ", "σ′", "φ", "φ′", "φ″", "z", *WORDS)


def is_function(symbol: str) -> bool:
    """Whether a symbol before a bracket is a function of it, not a factor."""
    return re.sub(r"_.*", "", symbol).lstrip("∇").rstrip("ᵗ") in FUNCTIONS


def parse(text: str) -> Formula:
    """The tree of a formula; ValueError says what was found and what was expected."""
    return Parser(text).formula()


def evaluate(formula: Formula, env: Mapping[str, Any]) -> Any:
    """Its value, with each symbol's number, array or function from `env`."""
    kind, text, parts = formula
    if kind == "number":
        return number(text)
    if kind == "symbol":
        if text not in env and text == "I":
            return IDENTITY
        return env[text]
    if kind == "call":
        return env[text](*(evaluate(part, env) for part in parts))
    if kind == "total":
        running = [name for name in env if name.endswith(f"_{text}")]
        K = len(env[running[0]])
        each = [env | {name: env[name][k] for name in running} for k in range(K)]  # type: ignore[operator]
        return sum(evaluate(parts[0], one) for one in each)
    values = [evaluate(part, env) for part in (parts[1:] if kind == "assign" else parts)]
    if kind == "times":
        return multiplied(parts, values)
    one = values[0]
    if kind == "product":
        return reduce(mul, values)
    if kind == "sum":
        for value in values[1:]:
            one = one + value
        return one
    if kind == "minus":
        return -one
    if kind == "over":
        return one / values[1]
    if kind == "square":
        return one * one if parts[0].kind != "norm" else one**2
    if kind == "power":
        return one ** env[text]
    if kind == "relation":
        return COMPARED[text](one, values[1])
    if kind == "norm" and text == "|":
        return abs(one)
    if kind == "norm":
        return np.sqrt(np.sum(one * one))
    if kind == "transpose" and isinstance(one, Linear) and one.transposed:
        return Linear(one.transposed)
    if kind == "transpose" and is_matrix(one):
        return one.T
    return one  # group, assign, transpose


COMPARED = dict(zip(RELATIONS, (le, ge, lt, gt, ne)))


def number(text: str) -> float:
    """½, 0.9, 10⁻⁸."""
    shown = text.translate(RAISED)
    if shown != text:
        return float(f"1e{shown[2:].replace('−', '-')}")
    return 0.5 if text == "½" else float(text)


def is_matrix(value: Any) -> bool:
    return not isinstance(value, Linear) and np.ndim(value) == 2


def multiplied(parts: tuple[Formula, ...], values: list[Any]) -> Any:
    """The factors from the right: a linear map takes all that is behind it."""
    result = values[-1]
    for part, value in zip(parts[-2::-1], values[-2::-1]):
        if isinstance(value, Linear) and not isinstance(result, Linear):
            result = value.apply(result)
        elif isinstance(result, Linear):
            result = after(value, result)
        elif is_matrix(value) and is_matrix(result):
            result = value @ result
        elif part.kind == "transpose":
            result = np.sum(value * result)
        else:
            result = value * result
    return result


def after(first: Any, then: Linear) -> Linear:
    """A number, an array or another linear map times a linear map."""
    if isinstance(first, Linear):
        return Linear(lambda v: first.apply(then.apply(v)))
    return Linear(lambda v: first * then.apply(v))


# ---- MathML --------------------------------------------------------------------------------------


def mathml(formula: Formula, block: bool = False) -> str:
    """The formula as a <math> element; each symbol carries its text as data-symbol."""
    display = ' display="block"' if block else ""
    return f"<math{display}><mrow>{element(formula)}</mrow></math>"


def symbol(text: str) -> str:
    """θ̂_j′ as a letter with its subscript and superscript."""
    return f'<mrow data-symbol="{escape(text)}">{letter(text)}</mrow>'


def letter(text: str) -> str:
    """The same as it is drawn."""
    inner = re.match(r"R\{(.*?)\}", text)
    name, _, below = (text[inner.end() :] if inner else text).partition("_")
    above = "".join(c for c in name + below if c in "′″*")
    below = below.rstrip("′″*").strip("{}")
    for sign, shown in (("ᵗ⁺¹", "t+1"), ("ᵗ⁻¹", "t−1"), ("ᵗ", "t")):
        if sign in name:
            name, above = name.replace(sign, ""), shown + above
            break
    name = name.rstrip("′″*")
    below = "".join(c for c in name if c in "₀₁₂₃₄₅₆₇₈₉").translate(LOWERED) + below
    name = name.rstrip("₀₁₂₃₄₅₆₇₈₉")
    primes = "".join(c for c in above if c in "′″")  # raised already, and too small higher up
    above = above.replace(primes, "") if primes else above
    drawn = f"<mi>{escape(name)}</mi>"
    if inner:
        drawn = f"<mrow><mi>R</mi><mo>{{</mo>{letter(inner[1])}<mo>}}</mo></mrow>"
    elif name[0] in "∇∂":
        drawn = f'<mrow><mo rspace="0">{name[0]}</mo><mi>{name[1:]}</mi></mrow>'
    elif "\u0302" in name:
        drawn = f'<mover accent="true"><mi>{name.replace(chr(0x302), "")}</mi><mo>^</mo></mover>'
    sub, sup = (
        "<mo>,</mo>".join(f"<mi>{part}</mi>" for part in below.split(",")),
        f"<mo>{above}</mo>" if above[:1] in "′″*" else f"<mi>{above}</mi>",
    )
    if "," in below:
        sub = f"<mrow>{sub}</mrow>"
    if below and above:
        drawn = f"<msubsup>{drawn}{sub}{sup}</msubsup>"
    elif below:
        drawn = f"<msub>{drawn}{sub}</msub>"
    elif above:
        drawn = f"<msup>{drawn}{sup}</msup>"
    return drawn + f'<mo lspace="0" rspace="0">{primes}</mo>' * bool(primes)


def element(formula: Formula) -> str:
    """One node as presentation MathML."""
    kind, text, parts = formula
    inner = [element(part) for part in parts]
    if kind == "number":
        shown = text.translate(RAISED)
        power = f"<msup><mn>10</mn><mn>{shown[2:]}</mn></msup>" if shown != text else ""
        half = "<mfrac><mn>1</mn><mn>2</mn></mfrac>" if text == "½" else ""
        return power or half or f"<mn>{text}</mn>"
    if kind == "symbol":
        return symbol(text)
    if kind == "call" and text == "sqrt" and parts[0].kind == "over":
        # on one line: without a font for mathematics the root does not grow as high as a fraction
        return f"<msqrt>{element(parts[0]._replace(kind='slash'))}</msqrt>"
    if kind == "call" and text == "sqrt":
        return f"<msqrt>{inner[0]}</msqrt>"
    if kind == "call":
        joined = f"<mo>{',' if text in WORDS else ';'}</mo>".join(inner)
        return f"{symbol(text)}<mo>&#x2061;</mo><mrow><mo>(</mo>{joined}<mo>)</mo></mrow>"
    if kind == "sum":
        signs = (
            "" if part.kind == "minus" or i == 0 else "<mo>+</mo>" for i, part in enumerate(parts)
        )
        return "".join(sign + part for sign, part in zip(signs, inner))
    if kind == "minus":
        return f"<mo>−</mo>{inner[0]}"
    if kind == "product":
        return inner[0] + "".join(f"<mo>{sign}</mo>{one}" for sign, one in zip(text, inner[1:]))
    if kind == "times":  # a fraction needs no brackets
        bare = (p.parts[0] if p.kind == "group" and p.parts[0].kind == "over" else p for p in parts)
        return "<mo>&#x2062;</mo>".join(map(element, bare))
    if kind == "over":  # a fraction needs no brackets
        above, below = (element(p.parts[0] if p.kind == "group" else p) for p in parts)
        return f"<mfrac><mrow>{above}</mrow><mrow>{below}</mrow></mfrac>"
    if kind == "slash":
        return "<mo>/</mo>".join(inner)
    if kind == "square":
        return f"<msup><mrow>{inner[0]}</mrow><mn>2</mn></msup>"
    if kind == "transpose":
        return f"<msup><mrow>{inner[0]}</mrow><mi>T</mi></msup>"
    if kind == "norm":
        return f"<mrow><mo>{text}</mo>{inner[0]}<mo>{text}</mo></mrow>"
    if kind == "group":
        return f"<mrow><mo>(</mo>{inner[0]}<mo>)</mo></mrow>"
    if kind == "power":
        return f"<msup><mrow>{inner[0]}</mrow><mi>{text}</mi></msup>"
    if kind == "total":
        below = f"<mtext>{escape(text)}</mtext>" if " " in text else f"<mi>{text}</mi>"
        return (f"<munder><mo>∑</mo>{below}</munder>" if text else "<mo>∑</mo>") + inner[0]
    return f"{inner[0]}<mo>{escape(text)}</mo>{inner[1]}"  # relation, assign
