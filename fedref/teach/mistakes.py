"""The known mistakes as edits of the right lines: what a page shows is what a run suffers from.

Each mistake of `conformance.mistakes` is here the line of fedref that would have to be wrong. The right
line is read from the source; the wrong one replaces it in the running function (`made`), and so draws
the picture. A test makes each edit and lets the conformance suite name the mistake.
"""

import importlib
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType
from typing import Any, NamedTuple

from fedref import sampling
from fedref.algorithm import Cohort
from fedref.algorithms import fedavg, fedcurv, fedmaml, fedmeta, fedprox, per_fedavg
from fedref.conformance import suite, vectors
from fedref.conformance.mistakes import MISTAKES, Mistake, NeverZeroed
from fedref.models import LinearSVM, Logistic
from fedref.rounds import evaluation
from fedref.teach.source import place

#: Rows of a mini-batch in the runs; a wrong line may know it too.
B = 40


class Edit(NamedTuple):
    """One place in a function: the text that is right and what stood there instead.

    instead : the whole function that was wrong, where it is more than an edit.
    """

    function: Any
    right: str
    wrong: str
    instead: Any = None


EDITS: dict[str, Edit] = {
    "penalty not squared": Edit(
        fedprox.prox_gradient,
        "mu * (w - w0)", "mu / 2 * (w - w0) / (np.linalg.norm(w - w0) or 1)",
    ),
    "the logged objective is the loss alone": Edit(
        fedprox.objective, " + (mu / 2) * np.sum((w - w0) ** 2, -1)", "",
    ),
    "first order: the inner step's graph was cut": Edit(
        fedmeta.maml_gradient, "q = q - model.hvp(theta_j, alpha * q, S)", "pass",
    ),
    "the α-gradient is the θ-gradient": Edit(
        fedmeta.meta_sgd_gradient, "return q, g_alpha", "return q, q",
    ),
    "the server's Adam starts afresh every round": Edit(
        fedmeta.MAML.combine, "g, moments,", "g, moments and adam(learner),",
    ),
    "FedMeta weighted by sample counts": Edit(
        fedmeta.MAML.combine, "cohort.weights(self.weighting)", 'cohort.weights("samples")',
    ),
    "weights count batches": Edit(Cohort.weights, "self.n if", "np.ceil(self.n / B) if"),
    "FedProx averaged uniformly": Edit(
        fedprox.FedProx.combine, "cohort.weights(self.weighting)", 'cohort.weights("uniform")',
    ),
    "a stale gradient is applied again": Edit(
        per_fedavg.meta_gradient, "u = model.grad(w - ", "u = model.grad(w, D) + model.grad(w - ",
    ),
    "gradients add up from step to step": Edit(fedavg.FedAvg.step, "", "", NeverZeroed.step),
    "clients with n ≤ B do not move but vote": Edit(
        sampling.client_batches,
        "n, config, amount) for role in roles",
        "n, config, amount * (n > config.batch_size)) for role in roles",
    ),
    "the last, short batch is dropped": Edit(
        sampling.minibatches,
        "return _padded(_permutations(rng, n, amount), per_epoch * width).reshape(-1, width)",
        "batches = _padded(_permutations(rng, n, amount), per_epoch * width).reshape(-1, width)\n"
        "return batches[(batches != PADDING).sum(1) == config.batch_size]",
    ),
    "α is β": Edit(per_fedavg.PerFedAvg.gradient, "alpha=self.alpha", "alpha=self.beta"),
    "adapted to the test batch": Edit(
        evaluation.evaluate_clients, "get(clients[k]), D))", "get(clients[k]), *tests[i]))",
    ),
    "evaluation trains": Edit(
        evaluation.evaluate_clients,
        "ws.append(algorithm.personal(model, sent, client_states.get(clients[k]), D))",
        "sent = sent._replace(w=algorithm.personal(model, sent, client_states.get(clients[k]), D))\n"
        "ws.append(sent.w)",
    ),
    "mean of a squared gradient where squares are averaged": Edit(
        fedcurv.FedCurv.finish,
        "fisher(model, theta, data())", "model.grad(theta, data()) ** 2",
    ),
    "the Fisher of the last batch": Edit(
        fedcurv.FedCurv.finish,
        "I = fisher(model, theta, data())",
        "D = data()\n"
        "last = slice((len(D.y) - 1) // B * B, None)\n"
        "I = fisher(model, theta, Batch(D.X[last], D.y[last]))",
    ),
    "own term subtracted from a sum it is no part of": Edit(
        fedcurv.FedCurv.start, " and client_state.t == sent.t - 1", "",
    ),
    "D, D′ and D″ are the same rows": Edit(
        sampling.client_batches,
        "stream(seed, role, round, client)", 'stream(seed, "D", round, client)',
    ),
    "straggler steps by another client's size": Edit(
        sampling.make_plan,
        "return Plan(",
        "others = amount * np.roll(steps_of_epoch(config, roles, n), 1)\n"
        "steps = np.where(straggler, np.minimum(others, steps.max()), steps)\n"
        "return Plan(",
    ),
    "the L2 term is not applied": Edit(
        Logistic.grad, "return g + self.l2 * w if self.l2 else g", "return g",
    ),
    "the SVM's loss is summed": Edit(
        LinearSVM.grad, "base.mean_weights(D, m.dtype)", "(1 if D.s is None else D.s)",
    ),
    "HF: the sign of d is flipped": Edit(
        per_fedavg.meta_gradient_hf, "return u - alpha * d", "return u + alpha * d",
    ),
    "HF: divided by δ": Edit(per_fedavg.meta_gradient_hf, "/ (2 * delta)", "/ delta"),
    "HF: δ = 10⁻⁶ in single precision": Edit(
        per_fedavg.PerFedAvgHF.gradient,
        "return meta_gradient_hf(model, w, *batches, alpha=self.alpha, delta=self.delta)",
        'low = [Batch(D.X.astype("float32"), D.y) for D in batches]\n'
        'g = meta_gradient_hf(model, w.astype("float32"), *low, alpha=self.alpha, delta=1e-6)\n'
        "return g.astype(w.dtype)",
    ),
    "adaptive μ: the count is not reset": Edit(
        fedprox.adapt_mu, "0.0), 0) if falls == 5", "0.0), falls) if falls >= 5",
    ),
    "the Hessian is taken on D, not on D″": Edit(
        per_fedavg.meta_gradient, "model.hvp(w, u, D2)", "model.hvp(w, u, D)",
    ),
    "FedMAML averages": Edit(
        fedmaml.meta_update,
        "weighted_sum(counts, gradients)", "weighted_sum(counts / counts.sum(), gradients)",
    ),
}  # fmt: skip


# ---- the lines -----------------------------------------------------------------------------------


def inner(function: Any) -> Any:
    """The function itself, without decorators."""
    return inspect.unwrap(function)


def source(function: Any) -> str:
    """As it stands in its file, from the left margin."""
    return textwrap.dedent(inspect.getsource(inner(function)))


def edited(edit: Edit) -> str:
    """The function's source with the mistake in it."""
    if edit.instead is not None:
        return source(edit.instead)
    text = source(edit.function)
    if text.count(edit.right) != 1:
        raise ValueError(
            f"{edit.function.__qualname__} holds {edit.right!r} {text.count(edit.right)} times"
        )
    at = text.index(edit.right)
    line = text[text.rindex("\n", 0, at) + 1 : at]
    indent = line[: len(line) - len(line.lstrip())]
    return text.replace(edit.right, edit.wrong.replace("\n", f"\n{indent}"))


class Lines(NamedTuple):
    """right, wrong : the statements that differ; where : file and line of the right ones."""

    right: list[str]
    wrong: list[str]
    where: str


def lines(edit: Edit) -> Lines:
    """The lines that differ, both from the left margin; a whole function where it is no edit."""
    right, wrong = source(edit.function).splitlines(), edited(edit).splitlines()
    _, first = inspect.getsourcelines(inner(edit.function))
    start = 0
    if edit.instead is None:
        while right[start] == wrong[start]:
            start += 1
        end = 0
        while end < min(len(right), len(wrong)) - start and right[-1 - end] == wrong[-1 - end]:
            end += 1
        if start + end == len(right):  # lines were put in: show before what
            end -= 1
        right, wrong = (text[start : len(text) - end] for text in (right, wrong))
    bare = [re.sub(r"\s*# (\[|noqa).*", "", line) for line in (*right, *wrong)]
    both = textwrap.dedent("\n".join(bare)).splitlines()
    module = importlib.import_module(edit.function.__module__)
    return Lines(both[: len(right)], both[len(right) :], place(module, first + start))


# ---- making it -----------------------------------------------------------------------------------


def code_of(edit: Edit) -> CodeType:
    """The wrong function, compiled among the names of the right one."""
    f = inner(edit.function)
    text = edited(edit)
    space = dict(f.__globals__)
    exec(compile(text[text.index("def ") :], f"{f.__qualname__}, wrong", "exec"), space)
    code: CodeType = space[f.__name__].__code__
    return code


@contextmanager
def made(edit: Edit, rows: int = B) -> Iterator[None]:
    """Within, the function is wrong. rows : what B is in the wrong line, a mini-batch's rows."""
    f = inner(edit.function)
    right = f.__code__
    f.__code__ = code_of(edit._replace(wrong=re.sub(r"\bB\b", str(rows), edit.wrong)))
    try:
        yield
    finally:
        f.__code__ = right


# ---- what catches it ---------------------------------------------------------------------------------


class Catch(NamedTuple):
    """A golden vector that fails, and what the suite says of it."""

    case: str
    tag: str
    said: str


@cache
def cases() -> tuple[vectors.Case, ...]:
    return tuple(vectors.read())


def catching(name: str) -> list[vectors.Case]:
    """The golden vectors that a mistake moves by more than 100 of their tolerances."""
    return [case for case in cases() if name in case.catches]


def caught(name: str) -> Catch:
    """The first vector in which this mistake, and no other, explains what came out; one of the paper
    whose file has the line, where there is one."""
    from fedref.conformance.report import what

    backend = MISTAKES[name].backend
    paper = EDITS[name].function.__module__.rpartition(".")[2].replace("_", "-")
    for case in sorted(catching(name), key=lambda case: case.tag.split()[0] != paper):
        (result,) = suite.run(backend, [case])
        if result.mistakes == (name,):
            return Catch(case.name, case.tag, what(result))
    raise ValueError(f"no golden vector tells {name!r} from the others")


def numbered() -> list[tuple[str, Mistake]]:
    """All of them, in the order of the list; those without a number last."""
    return sorted(MISTAKES.items(), key=lambda item: item[1].number or len(MISTAKES))


def signs() -> dict[str, str]:
    """Name → what it is called on the page: 1, 9a, 9b, +."""
    share = Counter(mistake.number for _, mistake in numbered())
    seen: Counter[int] = Counter()
    out = {}
    for name, mistake in numbered():
        letter = chr(ord("a") + seen[mistake.number]) if share[mistake.number] > 1 else ""
        seen[mistake.number] += 1
        out[name] = f"{mistake.number}{letter}" if mistake.number else "+"
    return out


def sentence(text: str) -> str:
    """With a capital letter, but for a symbol, and a full stop."""
    first = text.split()[0]
    word = first == "a" or (len(first) > 1 and first.isalpha())
    return f"{text[0].upper() if word else text[0]}{text[1:]}."


def caught_by(name: str) -> str:
    """Which golden vector tells it, as text."""
    first, others = caught(name), len(catching(name)) - 1
    more = f"; and by {others} more vector{'s' * (others > 1)}" if others else ""
    return f"{first.case} [{first.tag}]: {first.said}{more}"


def mistakes_text() -> Iterator[str]:
    """The same for the terminal, without the runs."""
    yield from ("Twenty mistakes", "===============", "")
    yield "- the wrong line, + the right one, and the golden vector that tells it"
    for name, sign in signs().items():
        mistake, found = MISTAKES[name], lines(EDITS[name])
        yield from ("", f"{sign}. {name}" if sign != "+" else name)
        yield from textwrap.wrap(
            f"{mistake.line}.", 96, initial_indent="  ", subsequent_indent="  "
        )
        yield f"  {found.where}"
        yield from (f"    - {line}" for line in found.wrong)
        yield from (f"    + {line}" for line in found.right)
        yield f"  caught by {caught_by(name)}"
