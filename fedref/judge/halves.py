"""The two halves of a round: the boxes of `fedref/spec.py`, cut where clients and server meet.

A box is one loop over rounds, with a loop over clients inside. A half runs one round of it, on a `Round`
that holds the state to begin from:

    server   in the loop over clients each upload is the one that is given: `ws.append(client.sent.ws)`;
             all other lines of that loop are gone
    client   the box yields all its local names, among them what each client sends and keeps

Everything else is the box's own text, on its own lines: so a known mistake, which is a wrong line there, is
in the half where it belongs.
"""

import ast
import inspect
from functools import lru_cache
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

#: Generator → the names that hold its state before a round, and those of what the clients send.
NAMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "fedavg": ((), ("ws",)),
    "fedprox": (("falls", "before"), ("ws",)),
    "per_fedavg": ((), ("ws",)),
    "fedmeta": (("m", "v", "t"), ("sent",)),
    "fedmaml": ((), ("gs", "stars")),
    "fedcurv": (("previous",), ("ends",)),
    "apfl": (("F", "t", "renew", "personal"), ("ends", "estimates")),
    "scaffold": (("c", "controls"), ("dy", "dc")),
    "apfl_deng": (("personal",), ("ws",)),
    "feddyn": (("h", "hs"), ("ends",)),
    "fedopt": (("m", "v", "t"), ()),
    "fedavgm": (("v",), ()),
    "fednova": ((), ("taus", "d")),
    "pfedme": ((), ("ws",)),
}


class Round(list[Any]):
    """The clients of a round, and the state before it: {the generator's name of it: value}."""

    state: dict[str, Any]


def cut(spec: ModuleType, half: str, text: str = "") -> Any:
    """Return the specification (or one with a mistake) with this half of each box in the box's place.

    text : that of the boxes, if it is another.
    """
    whole, halves, line = ModuleType(spec.__name__), dict[str, Any](), 1
    vars(whole).update(vars(spec))
    for part in (text or vars(spec).get("SOURCE") or inspect.getsource(spec)).split("\n\n\n"):
        if part.removeprefix("def ").partition("(")[0] in NAMES:
            file = getattr(spec, "__file__", "<spec>")
            exec(cut_box(part, half, file, line), vars(whole), halves)
        line += part.count("\n") + 3
    if half == "server":  # FedOpt's box has FedAvg's inside; FedNova's clients run the whole of it
        vars(whole).update(halves)
    return SimpleNamespace(**vars(whole) | halves)


@lru_cache(1024)  # most boxes are as they are, whatever is wrong elsewhere
def cut_box(text: str, half: str, file: str, line: int) -> CodeType:
    """Return the code of this half of a box. line : where its text begins in the file."""
    tree = ast.parse(text)
    box: Any = ast.increment_lineno(tree, line - 1).body[0]
    state, sent = NAMES[box.name]
    (rounds,) = (x for x in box.body if isinstance(x, ast.For))
    body, last = rounds.body[:-1], rounds.body[-1]
    if half == "server":
        body = [given_uploads(x, sent) if is_loop(x) else x for x in body]
    else:
        (last,) = ast.parse("yield locals()").body
    begin = ast.parse("\n".join(f"{name} = clients.state[{name!r}]" for name in state)).body
    rounds.body = [*begin, *body, last]
    for new in (*begin, last):
        for node in ast.walk(new):
            ast.copy_location(node, rounds.body[-2])
    code: CodeType = compile(ast.fix_missing_locations(tree), file, "exec")
    return code


def is_loop(x: ast.stmt) -> bool:
    return isinstance(x, ast.For) and ast.unparse(x.iter) == "clients"


def given_uploads(loop: Any, sent: tuple[str, ...]) -> Any:
    """Return the loop over clients with its lines that hand over an upload alone, each the given one."""
    found = list[str]()

    def keep(x: Any) -> list[Any]:
        if isinstance(x, ast.If):
            x.body = [y for part in x.body for y in keep(part)]
            return [x] if x.body else []
        text = ast.unparse(x)
        for name in sent:
            if text.startswith(f"{name}.append("):
                x.value.args[:] = [ast.parse(f"client.sent[{name!r}]", mode="eval").body]
            elif text.startswith(f"{name}[client.k] = "):
                x.value = ast.parse(f"client.sent[{name!r}]", mode="eval").body
            else:
                continue
            found.append(name)
            return [x]
        return []

    loop.body = [y for x in loop.body for y in keep(x)]
    if sorted(found) != sorted(sent):
        raise NotImplementedError(f"the box hands over {found}, expected {sent}")
    return loop
