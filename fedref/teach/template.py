"""A student's file, the source that runs without one expression; and the page for teachers."""

import ast
import inspect
import re
import textwrap
from typing import Any

from fedref.boundary.errors import ConfigError
from fedref.teach import source
from fedref.teach.catalogue import EXERCISES, KINDS, Exercise, find
from fedref.teach.example import Trace, find_example, trace_call
from fedref.teach.pages import computed_values, given_values, model_of
from fedref.teach.source import Equation

#: What stands for the missing expression.
GAP = "..."
#: The class that a method's exercise is written in: `class Yours(MLP)`.
YOURS = "Yours"

#: Text in a function's source → (its notation in formulae, its meaning in the code).
NOTATION = {
    "model.grad": ("g(w; D)", "model.grad(w, D): the gradient of the mean loss over the batch D, at w"),
    "model.hvp": ("H(w; D)v", "model.hvp(w, v, D): the Hessian of the mean loss, times the vector v"),
    "∇f_k": ("∇f_k(w; D)", "the same as g(w; D), for client k"),
    "∇F_k": ("∇F_k(w)", "the same as g(w; D), for client k"),
    "∇h_k": ("h_k(w; wᵗ)", "F_k(w) + (μ/2)‖w − wᵗ‖²: the loss of client k, and a penalty"),
    "F_old": ("F", "importance, (d,): F_old before this update, and what is returned after it"),
    "p_k": ("p_k", "p[k]: the weight of client k; p is (K,), and its sum is 1"),
    "Σ_k": ("Σ_k", "the sum over the clients k"),
    "self.logits": ("z, Av", "self.logits(w, X), self.logits(v, X): the scores of the rows of X, (n,)"),
    "self.vjp": ("Aᵀr", "self.vjp(w, X, r): the sum over the rows of r_j ∂z_j/∂w"),
    "mean_weights": ("1/n", "base.mean_weights(D, dtype): what each row counts in a mean over D"),
    "nx.sigmoid": ("σ(z)", "nx.sigmoid(z)"),
    "np.matmul(a[l].mT": ("δ_l", "delta (n, out): ∂ℓ/∂z_l, for the layer that l has come to"),
    "W[2 * l]": ("W_{l+1}, b_{l+1}", "W[2 * l] (in, out), W[2 * l + 1] (out,)"),
    "phi.slope": ("φ′(z)", "phi.slope(a), from a = φ(z)"),
    "inner_steps": ("θ_u", "θ after all inner steps θ ← θ − α ⊙ g(θ; S)"),
    "⊙": ("⊙", "the product entry by entry"),
}  # fmt: skip


def is_method(exercise: Exercise) -> bool:
    return inspect.isclass(exercise.owner)


def function_source(exercise: Exercise) -> str:
    """Return the function as it stands in its file, from the left margin."""
    return textwrap.dedent(inspect.getsource(exercise.source_function))


def missing_line(exercise: Exercise) -> Any:
    """Return the statement that is missing: the last that sets the target, or returns."""
    kind = ast.Return if exercise.target == "return" else ast.Assign
    return max(
        (
            node
            for node in ast.walk(ast.parse(function_source(exercise)))
            if isinstance(node, kind)
            and (isinstance(node, ast.Return) or ast.unparse(node.targets[0]) == exercise.target)
        ),
        key=lambda node: node.lineno,
    )


def solution(exercise: Exercise) -> str:
    """Return the line as it is in the source, without its comment."""
    return ast.unparse(missing_line(exercise))


def equation_of(exercise: Exercise) -> Equation | None:
    """Return the tagged equation of the line, if it has one."""
    function = exercise.source_function
    line = inspect.getsourcelines(function)[1] + missing_line(exercise).lineno - 1
    where = function.__module__, function.__qualname__, line
    equations = source.equations()
    return next((e for e in equations if (e.module, e.function, e.line) == where), None)


def imports(exercise: Exercise) -> str:
    """Return the lines that import NumPy, and the names that the function needs from its own file."""
    tree = ast.parse(function_source(exercise))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {"np"}
    used |= {exercise.owner.__name__} if is_method(exercise) else set()
    needed = sorted(used & exercise.source_function.__globals__.keys())
    return f"import numpy as np\n\nfrom {exercise.source_function.__module__} import {', '.join(needed)}"


def code(exercise: Exercise, instead: str = GAP, bare: bool = False) -> str:
    """Return the student's file without its docstring, `instead` in the gap.

    bare : without the function's docstring and comments, which have formulae.
    """
    value, lines = missing_line(exercise).value, function_source(exercise).splitlines()
    head = lines[value.lineno - 1].encode()[: value.col_offset].decode()
    tail = lines[value.end_lineno - 1].encode()[value.end_col_offset :].decode()
    lines[value.lineno - 1 : value.end_lineno] = [f"{head}{instead}{tail}"]
    text = "\n".join(lines)
    if bare:
        tree: Any = ast.parse(text)
        function = tree.body[0]
        function.body = function.body[ast.get_docstring(function) is not None :]
        text = ast.unparse(tree)
    if is_method(exercise):
        text = f"class {YOURS}({exercise.owner.__name__}):\n" + textwrap.indent(text, " " * 4)
    return f"{imports(exercise)}\n\n\n{text}\n"


def define_function(text: str, exercise: Exercise, name: str = "solution") -> Any:
    """Run a file's text and return the function that it defines. Raises what the file raises."""
    scope: dict[str, Any] = {"__name__": "exercise", "__file__": name}
    exec(compile(text, name, "exec", dont_inherit=True), scope)
    if is_method(exercise):
        return getattr(scope[YOURS], exercise.function)
    return scope[exercise.function]


def worked_example(exercise: Exercise) -> Trace:
    """Return the worked example of the function, line by line."""
    if exercise.example:
        return trace_call(exercise.example)
    trace = find_example(exercise.source_function.__module__, exercise.source_function.__qualname__)
    assert trace
    return trace


def symbol_lines(exercise: Exercise, hard: bool) -> list[str]:
    """Return the meaning of the symbols: rows of the file's table and of `NOTATION`.

    A model's method also gets the model's docstring; a hard exercise only its part about the loss.
    """
    text, lines, rows = function_source(exercise), [], []
    if is_method(exercise):
        about = (inspect.getdoc(exercise.owner) or "").partition("\n\n>>>")[0]
        lines = [*(about.partition("\n\n")[0] if hard else about).splitlines(), ""]
    else:
        nodes = list(ast.walk(ast.parse(text)))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        table = source.symbols(exercise.owner)
        rows = [(s, f"{name}, {shape}") for s, name, shape in table if name in names]
    rows += [row for key, row in NOTATION.items() if key in text]
    width = max(len(symbol) for symbol, _ in rows)
    return lines + [f"{symbol:<{width}}  {meaning}" for symbol, meaning in rows]


def file_name(exercise: Exercise) -> str:
    """Return the name of the student's file, such as meta_gradient.py."""
    return exercise.name.replace("-", "_") + ".py"


def student_file(exercise: Exercise, hard: bool = False) -> str:
    """Return the whole file that a student starts from. hard : without formulae and comments."""
    equation, trace = equation_of(exercise), worked_example(exercise)
    lines = [
        f"Exercise {exercise.name}: {exercise.trains}.",
        "",
        f"One expression of `{exercise.function}` is missing: write it where {GAP} stands.",
        "",
    ]
    if equation:
        lines += [f"[{equation.tag}]  {'' if hard else equation.formula}".rstrip(), ""]
    lines += [f"    {line}".rstrip() for line in symbol_lines(exercise, hard)]
    model = model_of(trace)
    lines += ["", f"Worked example, {model!r}:" if model else "Worked example:"]
    lines += [f"    {name} = {value}" for name, value in given_values(trace)] + ["  gives"]
    lines += [f"    {name} = {value}" for name, value in computed_values(trace)]
    lines += ["", f"Then: fedref exercise check {file_name(exercise)}"]
    text = code(exercise, bare=hard)
    return '"""' + "\n".join(lines) + '\n"""\n\n' + text


def teachers_page(with_solutions: bool = False) -> list[str]:
    """Return the overview of all exercises for teachers, and the kinds of mistakes told apart."""
    lines = ["Minutes are an estimate for students who have read the file's docstring.", ""]
    for name, exercise in EXERCISES.items():
        equation = equation_of(exercise)
        tag = f"[{equation.tag}] " if equation else ""
        function = exercise.source_function
        lines += [
            name,
            f"  trains    {exercise.trains}",
            f"  before    {exercise.before}",
            f"  minutes   {exercise.minutes}",
            f"  from      {tag}{function.__module__}, {function.__qualname__}",
            f"  mistakes  {', '.join(exercise.kinds)}",
        ]
        lines += [f"  solution  {solution(exercise)}"] * with_solutions + [""]
    lines += ["Kinds of mistakes, and how they show"]
    return lines + [f"  {kind}: {shows}" for kind, shows in KINDS.items()]


def find_gap(text: str) -> int:
    """Return the line on which the gap still stands, or 0. Raises SyntaxError."""
    for node in ast.walk(ast.parse(text)):
        value = getattr(node, "value", None)
        if isinstance(node, ast.stmt) and isinstance(value, ast.Constant) and value.value is ...:
            return node.lineno
    return 0


def exercise_of(text: str, where: object) -> Exercise:
    """Return the exercise that the first line of a file names."""
    name = re.match(r'\s*"""Exercise ([\w-]+):', text)
    if not name:
        wanted = "expected a file that `fedref exercise start` wrote"
        raise ConfigError(f"{where}: begins with no 'Exercise NAME:', {wanted}")
    return find(name[1])
