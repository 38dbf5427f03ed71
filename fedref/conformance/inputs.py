"""Other inputs: the specification's answer to a case whose inputs are exchanged, shifted or read otherwise.

If a backend's numbers are such an answer, it has read an argument wrongly, and its lines may all be right.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from fedref.judge.adapter import INPUTS, RUNS, try_answer
from fedref.judge.case import Case, Values
from fedref.models.numerics import Array

#: How the difference is said, and what answers.
Other = tuple[str, Callable[[], dict[str, Any]]]
GATES = "ifgo"


def other_inputs(case: Case) -> Iterator[Other]:
    """Yield the answers for other inputs, each with words for what is another."""
    for words, other in (
        *other_labels(case), *other_arrays(case), *other_values(case), *other_functions(case)
    ):  # fmt: skip
        yield words, partial(try_answer, other, error=Exception)
    for words, order in orders_of_parameters(case.model):
        yield words, partial(answer_in_order, case, order)


def answer_in_order(case: Case, order: Array) -> dict[str, Any]:
    """Return the answer where entry i of all parameters is read as entry order[i]."""
    back = np.argsort(order)
    made = try_answer(case._replace(inputs=in_order(case.inputs, order)), error=Exception)
    return in_order(made, back)


def in_order(arrays: Mapping[str, Array], order: Array) -> dict[str, Array]:
    """Return arrays, with the last axis of those of all parameters in this order."""
    return {n: x[..., order] if x.shape[-1:] == order.shape else x for n, x in arrays.items()}


def orders_of_parameters(model: Values) -> Iterator[tuple[str, Array]]:
    """Yield orders in which a backend may read parameters: gates exchanged, biases before weights."""
    places, end = [], 0
    for shape in model["shapes"]:
        n = int(np.prod(shape))
        places.append(np.arange(end, end + n).reshape(shape))
        end += n

    def join(blocks: list[Array]) -> Array:
        return np.concatenate([block.ravel() for block in blocks])

    moved, biased = [*places], False
    for i in range(1, len(places)):
        if places[i].ndim == 1 < places[i - 1].ndim:
            both = join(places[i - 1 : i + 1])
            moved[i], moved[i - 1] = np.split(both, [places[i].size])
            biased = True
    if biased:
        yield "each bias is read before its weight", join(moved)
    if model["family"] == "lstm":
        layers = range(1, 1 + 2 * len(model["hidden"]))
        for way in permutations(range(4)):
            if way != (0, 1, 2, 3):
                moved = [*places]
                for i in layers:
                    parts = np.split(places[i], 4, axis=-1)
                    moved[i] = np.concatenate([parts[gate] for gate in way], axis=-1)
                gates = ", ".join(GATES[way.index(gate)] for gate in range(4))
                yield f"the gates are read in the order {gates}", join(moved)


def changed(case: Case, words: str, arrays: Mapping[str, Array]) -> tuple[str, Case]:
    return words, case._replace(inputs={**case.inputs, **arrays})


def other_labels(case: Case) -> Iterator[tuple[str, Case]]:
    """Yield the case with other labels, and with rows beside the labels or the weights of others."""
    ys = {n: x for n, x in case.inputs.items() if n.rpartition(".")[2] == "y"}
    ss = {n: x for n, x in case.inputs.items() if n.rpartition(".")[2] == "s"}
    family, C = case.model["family"], case.model.get("classes", 2)
    ways: dict[str, Callable[[Array], Array]] = {}
    if family == "svm":
        ways["the labels −1 and 1 are exchanged"] = np.negative
    elif C == 2:
        ways["the labels 0 and 1 are exchanged"] = lambda y: 1 - y
    else:
        ways["labels are one higher (of the last class: 0)"] = lambda y: (y + 1) % C
        ways["labels are one lower (of class 0: the last)"] = lambda y: (y - 1) % C
        ways["labels count from the last class"] = lambda y: C - 1 - y
        ways["all labels are 0"] = np.zeros_like
    for words, way in ways.items():
        yield changed(case, words, {n: way(y) for n, y in ys.items()})
    for words, step in (("next", -1), ("last", 1)):
        moved = {n: np.roll(y, step, -1) for n, y in ys.items()}
        yield changed(case, f"each row has the label of the {words} row", moved)
    if ss:
        yield changed(case, "all weights s are 1", {n: np.ones_like(s) for n, s in ss.items()})
        yield changed(case, "weights s are 1 or 0", {n: 1.0 * (s != 0) for n, s in ss.items()})


def other_arrays(case: Case) -> Iterator[tuple[str, Case]]:
    """Yield the case with one batch or array in the place of another, or both exchanged."""
    groups: dict[str, dict[str, Array]] = {}
    for name, x in case.inputs.items():
        if not name.startswith(("data", "plans", "rows", "state", "tests", "clients")):
            head, _, last = name.rpartition(".")
            key, field = (head, last) if last in ("X", "y", "s") else (name, "")
            groups.setdefault(key, {})[field] = x
    for a, xs in groups.items():
        for b, others in groups.items():
            same = all(
                x.ndim == y.ndim and x.dtype == y.dtype
                for x, y in zip(xs.values(), others.values())
            )
            if a == b or xs.keys() != others.keys() or not same:
                continue
            if "" in xs and xs[""].shape != others[""].shape:
                continue
            put = {f"{a}.{field}".strip("."): x for field, x in others.items()}
            yield changed(case, f"{b} is in the place of {a}", put)
            if a < b:
                back = {f"{b}.{field}".strip("."): x for field, x in xs.items()}
                yield changed(case, f"{a} and {b} are exchanged", put | back)
        if "X" in xs and len(xs["y"]) > 1 and xs["y"].ndim == 1:
            for words, rows in (("the last row", slice(-1)), ("all rows but the first", slice(1))):
                put = {f"{a}.{field}": x[rows] for field, x in xs.items()}
                yield changed(case, f"{a} lacks {words}", put)
    for name, x in case.inputs.items():
        if name.startswith(("client.", "server.")) and x.dtype.kind == "f":
            yield changed(case, f"{name} is 0", {name: np.zeros_like(x)})
            yield changed(case, f"{name} is 1", {name: np.ones_like(x)})
    for name in ("n", "counts"):
        if name in case.inputs:
            x = case.inputs[name]
            yield changed(case, f"{name} is 1 for every client", {name: np.ones_like(x)})
            yield changed(case, f"{name} is that of the next client", {name: np.roll(x, -1)})
    loss = {n: x for n, x in case.inputs.items() if n.startswith("plans") and n.endswith(".loss")}
    if len(loss) > 1:
        late = [np.array(np.nan), *loss.values()][:-1]
        yield changed(case, "each round has the loss of the round before", dict(zip(loss, late)))


def other_values(case: Case) -> Iterator[tuple[str, Case]]:
    """Yield the case with another hyperparameter or property of the model."""
    hyper = case.hyper
    floats = {name: x for name, x in hyper.items() if type(x) is float}
    for name, x in hyper.items():
        options: list[tuple[str, object]] = []
        if type(x) is bool:
            options = [(str(not x), not x)]
        elif type(x) is int and name != "B":
            options = [(str(n), n) for n in (x - 1, x + 1, 1) if n > 0 and n != x]
        elif name == "weighting":
            options = [(f"'{w}'", w) for w in ("samples", "uniform") if w != x]
        elif name in floats:
            options = [(other, y) for other, y in floats.items() if y != x]
            options += ([("1", 1.0)] if x != 1 else []) + ([("0", 0.0)] if x != 0 else [])
            options += [("1 - it", 1 - x)] if 0 < x < 1 else []
        for said, value in options:
            yield f"{name} is {said}", case._replace(hyper=hyper | {name: value})
    model = {"activation": ("elu", "relu", "tanh"), "pool": ("max", "mean"),
             "output": ("last", "mean"), "squared": (True, False), "l2": (0.0,)}  # fmt: skip
    for name, values in model.items():
        for value in values if name in case.model else ():
            if value != case.model[name]:
                yield (
                    f"the model's {name} is {value!r}",
                    case._replace(model=case.model | {name: value}),
                )


def other_functions(case: Case) -> Iterator[tuple[str, Case]]:
    """Yield the case as one of another algorithm, or of another variant with these inputs."""
    for name in INPUTS if case.call == "meta_gradient" else RUNS if case.algorithm else ():
        if name != case.algorithm:
            yield f"{name} is given these inputs", case._replace(algorithm=name)
