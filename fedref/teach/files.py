"""A student's file, made from the source that runs by taking one expression out of one line."""

import ast
import importlib
import inspect
import re
import textwrap
from functools import cache
from types import ModuleType
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


def module_of(exercise: Exercise) -> ModuleType:
    """The file that the line is missing from."""
    if inspect.ismodule(exercise.owner):
        return exercise.owner
    return importlib.import_module(exercise.owner.__module__)


def is_method(exercise: Exercise) -> bool:
    return inspect.isclass(exercise.owner)


@cache
def tree_of(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def function_of(exercise: Exercise) -> ast.FunctionDef:
    """The function in its module's tree."""
    holders: list[ast.stmt] = tree_of(module_of(exercise)).body
    if is_method(exercise):
        (holder,) = (n for n in holders if getattr(n, "name", "") == exercise.owner.__name__)
        assert isinstance(holder, ast.ClassDef)
        holders = holder.body
    found = [n for n in holders if isinstance(n, ast.FunctionDef) and n.name == exercise.function]
    return found[0]


def missing(exercise: Exercise) -> ast.Assign | ast.Return:
    """The statement that is missing: the last that sets the target, or returns."""
    found = [
        node
        for node in ast.walk(function_of(exercise))
        if (isinstance(node, ast.Return) and exercise.target == "return")
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == exercise.target)
    ]
    return max(found, key=lambda node: node.lineno)


def expression(exercise: Exercise) -> ast.expr:
    value = missing(exercise).value
    assert value is not None
    return value


def solution(exercise: Exercise) -> str:
    """The line as it is in the source, without its comment."""
    return ast.unparse(missing(exercise))


def equation_of(exercise: Exercise) -> Equation | None:
    """The tagged equation of the line, if it has one."""
    line = missing(exercise).lineno
    name = module_of(exercise).__name__
    for one in source.equations():
        if (one.module, one.line) == (name, line):
            return one
    return None


def body(exercise: Exercise, instead: str) -> str:
    """The function's source with `instead` for the missing expression, comments and all."""
    lines = inspect.getsource(module_of(exercise)).splitlines()
    function, value = function_of(exercise), expression(exercise)
    first = min([function.lineno, *(node.lineno for node in function.decorator_list)])
    head = lines[value.lineno - 1].encode()[: value.col_offset].decode()
    tail = lines[(value.end_lineno or 0) - 1].encode()[value.end_col_offset :].decode()
    text = [
        *lines[first - 1 : value.lineno - 1],
        f"{head}{instead}{tail}",
        *lines[value.end_lineno or 0 : function.end_lineno],
    ]
    return textwrap.dedent("\n".join(text))


def imports(exercise: Exercise) -> list[str]:
    """NumPy, and what the function needs of its own file and of others."""
    module = module_of(exercise)
    used = {n.id for n in ast.walk(function_of(exercise)) if isinstance(n, ast.Name)}
    lines, own = [], [exercise.owner.__name__] if is_method(exercise) else []
    for node in tree_of(module).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [name for name in node.names if (name.asname or name.name) in used]
            if names:
                node = type(node)(**{**vars(node), "names": names})
                lines.append(ast.unparse(node))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            own += [node.name] * (node.name in used and node.name != exercise.function)
    lines += [f"from {module.__name__} import {', '.join(own)}"] * bool(own)
    numpy = "import numpy as np"  # a solution may use it, even where fedref's does not
    return [numpy, "", *(line for line in lines if line != numpy)]


def code(exercise: Exercise, instead: str = GAP) -> str:
    """The student's file without its docstring."""
    text = body(exercise, instead)
    if is_method(exercise):
        text = f"class {YOURS}({exercise.owner.__name__}):\n" + textwrap.indent(text, " " * 4)
    return "\n".join(imports(exercise)) + "\n\n\n" + text + "\n"


def run(text: str, exercise: Exercise, name: str = "solution") -> Any:
    """The function that a file defines. Raises what the file raises."""
    scope: dict[str, Any] = {"__name__": "exercise", "__file__": name}
    exec(compile(text, name, "exec", dont_inherit=True), scope)
    return (
        getattr(scope[YOURS], exercise.function)
        if is_method(exercise)
        else scope[exercise.function]
    )


def trace(exercise: Exercise) -> Trace:
    """The worked example, line by line."""
    if exercise.example is None:
        found = find_example(exercise.owner.__name__, exercise.function)
        assert found
        return found
    arguments, options = exercise.example
    return trace_call(exercise.callable, *arguments, **options)


def example(exercise: Exercise) -> list[str]:
    """The worked example as lines: what is given, and every value that comes of it."""
    found = trace(exercise)
    lines = [f"Worked example, {model!r}:" if (model := model_of(found)) else "Worked example:"]
    lines += [f"    {name} = {value}" for name, value in given_values(found)] + ["  gives"]
    return lines + [f"    {name} = {value}" for name, value in computed_values(found)]


def symbols(exercise: Exercise) -> list[str]:
    """The table of the algorithm's file, or what the model's docstring says of its derivatives."""
    if is_method(exercise):
        text = inspect.getdoc(exercise.owner) or ""
        return text.partition("\n\n>>>")[0].splitlines()
    used = {n.arg for n in ast.walk(function_of(exercise)) if isinstance(n, ast.arg)}
    used |= {n.id for n in ast.walk(function_of(exercise)) if isinstance(n, ast.Name)}
    rows = [row for row in source.symbols(module_of(exercise)) if row.name in used]
    width, names = (max((len(row[i]) for row in rows), default=0) for i in (0, 1))
    return [f"{s:<{width}}  {name:<{names}}  {shape}" for s, name, shape in rows]


def path_of(exercise: Exercise) -> str:
    """meta_gradient.py"""
    return exercise.name.replace("-", "_") + ".py"


def text(exercise: Exercise) -> str:
    """The whole file that a student starts from."""
    equation = equation_of(exercise)
    head = [f"Exercise {exercise.name}: {exercise.trains}.", ""]
    head += [
        f"One expression of `{exercise.function}` is missing: write it where {GAP} stands.",
        "",
    ]
    if equation:
        head += [f"[{equation.tag}]  {equation.formula}", ""]
    head += [f"    {line}".rstrip() for line in symbols(exercise)]
    head += ["", *example(exercise), "", f"Then: fedref exercise check {path_of(exercise)}"]
    return '"""' + "\n".join(head) + '\n"""\n\n' + code(exercise)


def unfinished(text: str) -> int:
    """The line on which the gap still stands, or 0. Raises SyntaxError."""
    for node in ast.walk(ast.parse(text)):
        value = getattr(node, "value", None)
        if isinstance(node, ast.stmt) and isinstance(value, ast.Constant) and value.value is ...:
            return node.lineno
    return 0


def exercise_of(text: str, where: object) -> Exercise:
    """Which exercise a file is of, by its first line."""
    found = re.match(r'\s*"""Exercise ([\w-]+):', text)
    if not found:
        wanted = "expected a file that `fedref exercise start` wrote"
        raise ConfigError(f"{where}: begins with no 'Exercise NAME:', {wanted}")
    return find(found[1])
