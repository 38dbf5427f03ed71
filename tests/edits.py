"""The small edits of a Python file, one at a time; see mutation.py."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

SWAPS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
ORDERED = (ast.Sub, ast.Div, ast.Pow, ast.FloorDiv, ast.Mod, ast.MatMult)
COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
PAIRS = [
    ("minimum", "maximum"), ("min", "max"), ("any", "all"), ("zeros", "ones"), ("sum", "mean"),
    ("zeros_like", "ones_like"), ("argmin", "argmax"),
]  # fmt: skip
RENAMES = {**dict(PAIRS), **{b: a for a, b in PAIRS}}
#: Functions that do not ask which of two arguments comes first.
SYMMETRIC = ("min", "max", "minimum", "maximum", "result_type", "broadcast_shapes")
FUNCTIONS = (ast.FunctionDef, ast.Lambda)
#: How much of the code around an edit names it.
SHORTEST = 24


class Mutant(NamedTuple):
    """One edit of one file: `key` names it, whatever line it is in.

    lines : where the edited node is; in_function : or whether it runs on import.
    put : puts the new node in its place in the tree (True), or the old one back.
    """

    path: str
    line: int
    key: str
    lines: range
    in_function: bool
    tree: ast.Module
    put: Callable[[bool], None]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.key.split(' ', 1)[1]}"

    def original(self) -> CodeType:
        return compile(self.tree, self.path, "exec")

    def compiled(self) -> CodeType | None:
        """The edited file; None if it is no Python."""
        self.put(True)
        try:
            return compile(ast.fix_missing_locations(self.tree), self.path, "exec")
        except (SyntaxError, ValueError, TypeError):
            return None
        finally:
            self.put(False)

    def changes(self) -> bool:
        return self.compiled() not in (None, self.original())


def negated(node: Any) -> ast.expr:
    return ast.UnaryOp(ast.Not(), node)


def without(items: list[Any], i: int) -> list[Any]:
    return items[:i] + items[i + 1 :]


def remade(node: Any, **fields: Any) -> Any:
    """The same node with some fields replaced; children are shared."""
    return type(node)(**{**{name: getattr(node, name, None) for name in node._fields}, **fields})


def of_expression(node: ast.expr) -> Iterator[ast.expr]:
    """What may stand in place of an expression."""
    if isinstance(node, ast.BinOp):
        if type(node.op) in SWAPS:
            yield remade(node, op=SWAPS[type(node.op)]())
        yield node.left
        yield node.right
        if isinstance(node.op, ORDERED):
            yield remade(node, left=node.right, right=node.left)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bool):
            yield ast.Constant(not value)
        elif isinstance(value, int):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        elif isinstance(value, float):
            yield ast.Constant(value + 1)
            yield ast.Constant(value / 2 if value else -1.0)
        elif isinstance(value, str):
            yield ast.Constant(value + "?")
    elif isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for other in COMPARISONS[type(op)]:
                yield remade(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
    elif isinstance(node, ast.BoolOp):
        yield remade(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())
        for i in range(len(node.values)):
            rest = without(node.values, i)
            yield rest[0] if len(rest) == 1 else remade(node, values=rest)
    elif isinstance(node, ast.IfExp):
        yield remade(node, test=negated(node.test))
        yield node.body
        yield node.orelse
    elif isinstance(node, ast.Call):
        args = node.args
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        for i in range(0 if called in SYMMETRIC else len(args) - 1):
            if not isinstance(args[i], ast.Starred) and not isinstance(args[i + 1], ast.Starred):
                yield remade(node, args=[*args[:i], args[i + 1], args[i], *args[i + 2 :]])
        for i, keyword in enumerate(node.keywords):
            if keyword.arg:
                yield remade(node, keywords=without(node.keywords, i))
        if isinstance(node.func, ast.Attribute) and node.func.attr in RENAMES:
            yield remade(node, func=remade(node.func, attr=RENAMES[node.func.attr]))
        if isinstance(node.func, ast.Name):
            if node.func.id in RENAMES:
                yield remade(node, func=remade(node.func, id=RENAMES[node.func.id]))
            if node.func.id in ("reversed", "sorted", "abs"):
                yield args[0]
    elif isinstance(node, ast.Slice):
        for end in ("lower", "upper", "step"):
            if getattr(node, end) is not None:
                yield remade(node, **{end: None})
    elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
        for i, loop in enumerate(node.generators):
            for j, test in enumerate(loop.ifs):
                for ifs in (
                    [*loop.ifs[:j], negated(test), *loop.ifs[j + 1 :]],
                    without(loop.ifs, j),
                ):
                    loops = [*node.generators[:i], remade(loop, ifs=ifs), *node.generators[i + 1 :]]
                    yield remade(node, generators=loops)


def of_statement(node: ast.stmt, bound: set[str], returns: str, nested: bool) -> Iterator[ast.stmt]:
    """What may stand in place of a statement. bound : names that have a value before it."""
    nothing = ast.Pass()
    if isinstance(node, ast.If | ast.While):
        if not (isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)):
            yield remade(node, test=negated(node.test))
    elif isinstance(node, ast.AugAssign):
        if type(node.op) in SWAPS:
            yield remade(node, op=SWAPS[type(node.op)]())
        yield ast.Assign([node.target], node.value)
        yield nothing
    elif isinstance(node, ast.Assign):
        names = {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        stores = {type(t) for t in node.targets} & {ast.Attribute, ast.Subscript}
        if stores or names <= bound:
            yield nothing
    elif isinstance(node, ast.Return) and node.value is not None:
        if returns == "bool":
            yield ast.Return(ast.Constant(True))
            yield ast.Return(ast.Constant(False))
        elif not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield ast.Return(ast.Constant(None))
        if returns in ("Array", "float"):
            yield ast.Return(ast.UnaryOp(ast.USub(), node.value))
        if nested:
            yield nothing
    elif isinstance(node, ast.Raise | ast.Continue | ast.Break | ast.Delete) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield nothing


def left_alone(parent: ast.AST, field: str, node: ast.AST) -> bool:
    """Annotations, documentation, messages, and what is there for the type checker."""
    if field in ("annotation", "returns", "decorator_list", "bases", "keywords") and not (
        isinstance(parent, ast.Call)
    ):
        return True
    if isinstance(parent, ast.Raise) or isinstance(
        node, ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom
    ):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if not isinstance(node, ast.Assign):
        return False
    value = node.value
    if isinstance(value, ast.Subscript):  # Array = NDArray[Any]
        return isinstance(parent, ast.Module)
    return isinstance(value, ast.Call) and getattr(value.func, "id", "") == "TypeVar"


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines."""
    source, name = path.read_text("utf-8"), str(path.relative_to(root))
    tree = ast.parse(source)
    mutants: list[Mutant] = []
    seen: Counter[str] = Counter()

    def text(node: ast.AST) -> str:
        return ast.unparse(node).split("\n")[0]

    def visit(parent: Any, field: str, i: int | None, around: list[Any], scope: Any) -> None:
        """The edits of one node, then those of its children. around : the nodes that hold it."""
        node = getattr(parent, field) if i is None else getattr(parent, field)[i]
        if left_alone(parent, field, node):
            return
        names, function, bound, returns = scope
        edits: Iterator[Any] = iter(())
        if isinstance(node, ast.expr):
            edits = of_expression(node)
        elif isinstance(node, ast.stmt):
            edits = of_statement(node, set(bound), returns, parent is not function)

        shown = [node, *reversed(around)]
        shown = [n for n in shown if isinstance(n, ast.expr | ast.stmt) and hasattr(n, "lineno")]
        for new in list(edits):
            at = 0
            while isinstance(shown[at], ast.expr) and len(text(shown[at])) < SHORTEST:
                if at + 1 == len(shown) or isinstance(shown[at + 1], (ast.ClassDef, *FUNCTIONS)):
                    break
                at += 1
            before = text(shown[at])
            if not hasattr(new, "lineno"):
                ast.copy_location(new, node)

            def put(edited: bool, new: Any = new) -> None:
                value = new if edited else node
                if i is None:
                    setattr(parent, field, value)
                else:
                    getattr(parent, field)[i] = value

            put(True)
            after = text(new if at == 0 else shown[at])
            put(False)
            if after == before:  # two arguments that are the same
                continue
            head = node.test if isinstance(node, ast.If | ast.While) else node
            lines = range(head.lineno, (head.end_lineno or head.lineno) + 1)
            key = f"{name} {'.'.join(names) or 'module'}: {before} → {after}"
            seen[key] += 1
            key += f" #{seen[key]}" if seen[key] > 1 else ""
            inside = function is not None
            mutants.append(Mutant(name, node.lineno, key, lines, inside, tree, put))

        if isinstance(node, FUNCTIONS):
            for part in ("defaults", "kw_defaults"):
                for j, default in enumerate(getattr(node.args, part)):
                    if default is not None:
                        visit(node.args, part, j, [*around, node], scope)
            given = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
            kind = ast.unparse(node.returns) if getattr(node, "returns", None) else ""
            own = [*names, getattr(node, "name", "lambda")]
            scope = (own, node, given, kind)
        elif isinstance(node, ast.ClassDef):
            scope = ([*names, node.name], function, set(), "")
        for child_field, value in ast.iter_fields(node):
            if isinstance(node, FUNCTIONS) and child_field != "body":
                continue
            if isinstance(value, list):
                for j, child in enumerate(value):
                    if isinstance(child, ast.AST):
                        visit(node, child_field, j, [*around, node], scope)
            elif isinstance(value, ast.AST):
                visit(node, child_field, None, [*around, node], scope)
        if isinstance(node, ast.Assign | ast.For | ast.AnnAssign):
            found = ast.walk(node)
            bound |= {
                n.id for n in found if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }

    for j in range(len(tree.body)):
        visit(tree, "body", j, [], ([], None, set(), ""))
    return mutants
