"""A student's file, made from the source that runs by taking one expression out of one line."""

import ast
import inspect
import re
import textwrap
from typing import Any

from fedref.boundary.errors import ConfigError
from fedref.teach import source
from fedref.teach.catalogue import Exercise, find
from fedref.teach.example import Trace, find_example, trace_call
from fedref.teach.pages import computed_values, given_values, model_of
from fedref.teach.source import Equation

#: What stands for the missing expression.
GAP = "..."
#: The class that a method's exercise is written in: `class Yours(MLP)`.
YOURS = "Yours"


def is_method(exercise: Exercise) -> bool:
    return inspect.isclass(exercise.owner)


def function_source(exercise: Exercise) -> str:
    """Return the function as it stands in its file, from the left margin."""
    return textwrap.dedent(inspect.getsource(exercise.right))


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
    right = exercise.right
    line = inspect.getsourcelines(right)[1] + missing_line(exercise).lineno - 1
    where = right.__module__, right.__qualname__, line
    equations = source.equations()
    return next((e for e in equations if (e.module, e.function, e.line) == where), None)


def imports(exercise: Exercise) -> str:
    """Return the lines that import NumPy, and what the function needs from its own file."""
    tree = ast.parse(function_source(exercise))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {"np"}
    used |= {exercise.owner.__name__} if is_method(exercise) else set()
    needed = sorted(used & exercise.right.__globals__.keys())
    return f"import numpy as np\n\nfrom {exercise.right.__module__} import {', '.join(needed)}"


def code(exercise: Exercise, instead: str = GAP) -> str:
    """Return the student's file without its docstring, `instead` in the gap."""
    value, lines = missing_line(exercise).value, function_source(exercise).splitlines()
    head = lines[value.lineno - 1].encode()[: value.col_offset].decode()
    tail = lines[value.end_lineno - 1].encode()[value.end_col_offset :].decode()
    lines[value.lineno - 1 : value.end_lineno] = [f"{head}{instead}{tail}"]
    text = "\n".join(lines)
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
        arguments, options = exercise.example
        return trace_call(exercise.right, *arguments, **options)
    trace = find_example(exercise.right.__module__, exercise.right.__qualname__)
    assert trace
    return trace


def symbol_lines(exercise: Exercise) -> list[str]:
    """Return the table of the algorithm's file, or what the model's docstring says."""
    if is_method(exercise):
        text = inspect.getdoc(exercise.owner) or ""
        return text.partition("\n\n>>>")[0].splitlines()
    names = set(re.findall(r"\w+", function_source(exercise)))
    rows = [row for row in source.symbols(exercise.owner) if row.name in names]
    width, room = (max((len(row[i]) for row in rows), default=0) for i in (0, 1))
    return [f"{s:<{width}}  {name:<{room}}  {shape}" for s, name, shape in rows]


def file_name(exercise: Exercise) -> str:
    """meta_gradient.py"""
    return exercise.name.replace("-", "_") + ".py"


def student_file(exercise: Exercise) -> str:
    """Return the whole file that a student starts from."""
    equation, trace = equation_of(exercise), worked_example(exercise)
    lines = [
        f"Exercise {exercise.name}: {exercise.trains}.",
        "",
        f"One expression of `{exercise.function}` is missing: write it where {GAP} stands.",
        "",
    ]
    if equation:
        lines += [f"[{equation.tag}]  {equation.formula}", ""]
    lines += [f"    {line}".rstrip() for line in symbol_lines(exercise)]
    model = model_of(trace)
    lines += ["", f"Worked example, {model!r}:" if model else "Worked example:"]
    lines += [f"    {name} = {value}" for name, value in given_values(trace)] + ["  gives"]
    lines += [f"    {name} = {value}" for name, value in computed_values(trace)]
    lines += ["", f"Then: fedref exercise check {file_name(exercise)}"]
    return '"""' + "\n".join(lines) + '\n"""\n\n' + code(exercise)


def find_gap(text: str) -> int:
    """Return the line on which the gap still stands, or 0. Raises SyntaxError."""
    for node in ast.walk(ast.parse(text)):
        value = getattr(node, "value", None)
        if isinstance(node, ast.stmt) and isinstance(value, ast.Constant) and value.value is ...:
            return node.lineno
    return 0


def exercise_of(text: str, where: object) -> Exercise:
    """Return the exercise that a file is of, by its first line."""
    found = re.match(r'\s*"""Exercise ([\w-]+):', text)
    if not found:
        wanted = "expected a file that `fedref exercise start` wrote"
        raise ConfigError(f"{where}: begins with no 'Exercise NAME:', {wanted}")
    return find(found[1])
