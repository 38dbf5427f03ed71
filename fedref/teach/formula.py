"""Formulae as MathML: the text behind a tag, read once. Tests compute it from the same reading.

A formula such as `u − αH(w; D″)u` becomes an expression of Python, which `ast` reads. Factors side by
side are joined by `**`, as that binds tighter than `*` and from the right, as H(w; D)v does:

    u − αH(w; D″)u    a0 - a1 ** a2(a3, a4) ** a5         each a is a number or a symbol
    φ″ ⊙ δWᵀ          a0 * a1 ** a2[transpose]            · is @, ² and ᵗ are [square] and [t]
    (μ/2)‖w‖²         group(a0 / a1) ** norm(a2)[square]
    Σ_k p_k I_k       a0 ** a1 ** a2                      Σ sums what follows it

A symbol is one letter with its marks: w, θ̂, D″, wᵗ, c₁, p_k, w_S, R{z}, or one of `WORDS`.
"""

import ast
import re
from typing import Any
from xml.sax.saxutils import escape

WORDS = ("log", "exp", "tanh", "max", "sqrt", "sign", "diag")
#: Letters that stand for functions wherever an opening bracket follows.
FUNCTIONS = ("g", "f", "F", "H", "L", "h", "σ", "φ", "z", *WORDS)
POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "−0123456789")
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
ACCENTS = {"\u0302": "^", "\u0304": "¯"}
#: A letter or R{...}, an accent, digits below, marks, a subscript, more marks.
SYMBOL = (
    rf"(R\{{([^{{}}]+)\}}|{'|'.join(WORDS)}|[∇∂]?[^\W\d_Σᵀᵗ²])([\u0302\u0304]?)([₀-₉]*)"
    r"([′″*]*ᵗ?)(?:_((?:\{[^{}]*\}|[a-z]+|\w)(?:,\w)?))?([′″*]*)"
)
TOKEN = re.compile(
    r"\s*(?:(?P<number>10⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+|\d+(?:\.\d+)?)"
    rf"|(?P<symbol>Σ_\w|{SYMBOL})|(?P<sign>.))"
)
#: A sign of a formula → Python's.
SIGNS = {
    "+": "+", "−": "-", "⊙": "*", "·": "@", "/": "/", "=": "==", "≤": "<=", "≥": ">=", ";": ",",
    ",": ",", ")": ")", "²": "[square]", "ᵀ": "[transpose]", "ᵗ": "[t]",
}  # fmt: skip
BARS = {"‖": "norm", "|": "bar"}
#: Python's operators → what is shown.
OPERATORS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "−", ast.Mult: "⊙", ast.MatMult: "·", ast.Eq: "=", ast.LtE: "≤", ast.GtE: "≥",
}  # fmt: skip
#: What surrounds a group, and what is raised beside it.
BRACKETS = {"norm": "‖‖", "bar": "||", "group": "()"}
RAISED = {"square": "<mn>2</mn>", "transpose": "<mi>T</mi>", "t": "<mi>t</mi>"}


# ---- reading ---------------------------------------------------------------------------------------


def parse(text: str) -> ast.expr:
    """Read a formula: a tree whose names are its numbers and symbols. Raises ValueError."""
    python, leaves = translate(text)
    try:
        tree = ast.parse(python, mode="eval").body
    except SyntaxError:
        raise ValueError(f"formula {text!r} is not complete") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and re.fullmatch(r"a\d+", node.id):
            node.id = leaves[int(node.id[1:])]
    return tree


def translate(text: str) -> tuple[str, list[str]]:
    """Return a formula as Python, and what its names a0, a1, ... stand for."""
    python, leaves, brackets = "", list[str](), list[str]()
    ended = function = False  # whether a factor has ended; whether it is a function
    for match in TOKEN.finditer(text.strip()):
        kind = match.lastgroup or "sign"
        token = match[kind]
        closes = token in BARS and brackets[-1:] == [token]
        opens = token == "(" or (token in BARS and not closes)
        called = token == "(" and ended and function
        if ended and not called and (opens or kind != "sign"):
            python += "**"
        if kind != "sign":
            python += f"a{len(leaves)}"
            leaves.append(token)
        elif opens:
            python += "(" if called else f"{BARS.get(token, 'group')}("
            brackets.append(token)
        elif closes or token in SIGNS:
            python += SIGNS.get(token, ")")
        else:
            raise ValueError(f"formula {text!r}: {token!r} has no meaning")
        if closes or token == ")":
            brackets = brackets[:-1]
        ended = kind != "sign" or closes or token in (")", "²", "ᵀ", "ᵗ")
        # before a bracket a function is no factor
        function = kind == "symbol" and re.sub(r"_.*|[∇′″ᵗ]", "", token) in FUNCTIONS
    return python, leaves


def exponent(text: str) -> str:
    """Return the exponent of a power of ten, such as −8 of 10⁻⁸; "" for any other number."""
    return text[2:].translate(POWERS) if text[-1] in "⁰¹²³⁴⁵⁶⁷⁸⁹" else ""


# ---- MathML ----------------------------------------------------------------------------------------


def mathml(text: str, block: bool = False) -> str:
    """Return a formula as a <math> element. Raises ValueError."""
    display = ' display="block"' if block else ""
    return f"<math{display}><mrow>{draw(parse(text))}</mrow></math>"


def letter(text: str) -> str:
    """Return θ̂_j′ as a letter with its subscript and superscript."""
    match: Any = re.fullmatch(SYMBOL, text)
    name, inner, accent, digits, marks, below, more = (part or "" for part in match.groups())
    marks += more
    drawn = f"<mi>{escape(name)}</mi>"
    if inner:
        drawn = f"<mrow><mi>R</mi><mo>{{</mo>{letter(inner)}<mo>}}</mo></mrow>"
    elif name[0] in "∇∂":
        drawn = f'<mrow><mo rspace="0">{name[0]}</mo><mi>{name[1:]}</mi></mrow>'
    elif accent:
        drawn = f'<mover accent="true">{drawn}<mo>{ACCENTS[accent]}</mo></mover>'
    sub = digits.translate(LOWERED) + below.strip("{}")
    sub = f"<mrow><mi>{sub}</mi></mrow>".replace(",", "</mi><mo>,</mo><mi>") if sub else ""
    sup = {"*": "<mo>*</mo>", "ᵗ": "<mi>t</mi>"}.get(marks.strip("′″"), "")
    kind = "msubsup" if sub and sup else "msub" if sub else "msup" if sup else "mrow"
    # a prime is raised by itself: as a superscript it would be too small
    primes = "".join(f'<mo lspace="0" rspace="0">{c}</mo>' for c in marks if c in "′″")
    return (f"<{kind}>{drawn}{sub}{sup}</{kind}>" if sub or sup else drawn) + primes


def without_brackets(node: ast.expr, only_fractions: bool = False) -> ast.expr:
    """Return a group without its brackets: a fraction and the parts of one need none."""
    match node:
        case ast.Call(ast.Name("group"), [ast.BinOp(_, ast.Div(), _) as fraction]):
            return fraction
        case ast.Call(ast.Name("group"), [inner]) if not only_fractions:
            return inner
    return node


def draw(node: ast.expr) -> str:
    """Return an expression as presentation MathML."""
    match node:
        case ast.Name(text) if text[0].isdigit():
            power = exponent(text)
            return f"<msup><mn>10</mn><mn>{power}</mn></msup>" if power else f"<mn>{text}</mn>"
        case ast.Name(text):
            return letter(text)
        case ast.BinOp(ast.Name(text), ast.Pow(), right) if text[0] == "Σ":
            return f"<munder><mo>∑</mo><mi>{text[2:]}</mi></munder>{draw(right)}"
        case ast.BinOp(left, ast.Pow(), right):
            factors = (without_brackets(part, only_fractions=True) for part in (left, right))
            return "<mo>&#x2062;</mo>".join(map(draw, factors))
        case ast.BinOp(left, ast.Div(), right):
            above, below = (draw(without_brackets(part)) for part in (left, right))
            return f"<mfrac><mrow>{above}</mrow><mrow>{below}</mrow></mfrac>"
        case ast.BinOp(left, operator, right) | ast.Compare(left, [operator], [right]):
            return f"{draw(left)}<mo>{OPERATORS[type(operator)]}</mo>{draw(right)}"
        case ast.UnaryOp(ast.USub(), inner):
            return f"<mo>−</mo>{draw(inner)}"
        case ast.Subscript(inner, ast.Name(power)):
            return f"<msup><mrow>{draw(inner)}</mrow>{RAISED[power]}</msup>"
        case ast.Call(ast.Name(kind), [inner]) if kind in BRACKETS:
            bars = BRACKETS[kind]
            return f"<mrow><mo>{bars[0]}</mo>{draw(inner)}<mo>{bars[1]}</mo></mrow>"
        case ast.Call(ast.Name("sqrt"), [ast.BinOp(over, ast.Div(), under)]):
            # on one line: without a font for mathematics no root is as tall as a fraction
            return f"<msqrt>{draw(over)}<mo>/</mo>{draw(under)}</msqrt>"
        case ast.Call(ast.Name("sqrt"), [inner]):
            return f"<msqrt>{draw(inner)}</msqrt>"
        case ast.Call(ast.Name(function), arguments):
            comma = "," if function in WORDS else ";"
            inside = f"<mo>{comma}</mo>".join(map(draw, arguments))
            return f"{letter(function)}<mo>&#x2061;</mo><mrow><mo>(</mo>{inside}<mo>)</mo></mrow>"
    raise ValueError(f"formula: {ast.unparse(node)} cannot be drawn")
