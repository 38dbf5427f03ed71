"""Mistakes of other projects as wrong lines of fedref; as a backend, fedref runs with such a line.

Unlike the suite's (`fedref.conformance.errata`, edits of the specification) they also answer a client in
the middle of a run, and a server alone.
"""

import numpy as np
from edits import (
    Edit,
    EditedReference,
    Mistake,
    OtherPlan,
    apply_edits,
    keep_steps,
    row,
    wrong_line,
)

from fedref import sampling
from fedref.algorithm import Algorithm
from fedref.algorithms import (
    apfl_deng,
    feddyn,
    fedmaml,
    fedmeta,
    fedopt,
    fedprox,
    per_fedavg,
    scaffold,
)
from fedref.conformance import suite
from fedref.conformance.backends import reference
from fedref.conformance.backends.reference import Reference
from fedref.judge.case import Case

KEPT_BESIDE_W = (
    Edit(
        Algorithm.start, "return sent.w",
        'return (sent.w, sent.w) if type(self).__name__ == "FedProx" else sent.w',
    ),
    Edit(
        Algorithm.finish, "return ClientResult(local)",
        "return ClientResult(local[0] if type(local) is tuple else local)",
    ),
    Edit(
        reference.parameters, "return local[0].theta",
        "return local[0] if isinstance(local[0], np.ndarray) else local[0].theta",
    ),
    Edit(
        fedprox.FedProx.client_metrics, "penalty = float(",
        "local = local[0] if type(local) is tuple else local\npenalty = float(",
    ),
    Edit(
        Reference.client, "args = (made, local, sent.w, everything())",
        "args = (made, local[0], sent.w, everything())",
    ),
)  # fmt: skip

MIXTURE_IS_STORED = Edit(
    apfl_deng.APFLDeng.finish, "ClientState(local.v, local.a)",
    "ClientState(mix(local.v, local.w, local.a), local.a)",
)  # fmt: skip
MISTAKES: dict[str, Mistake] = {
    "first order: the inner step's graph was cut": row(
        "fedmeta MAML", "this is FOMAML: in torch, the inner gradient needs create_graph=True",
        "MAML is first-order MAML",
        Edit(fedmeta.maml_gradient, "q = q - model.hvp(theta_j, alpha * q, S)", "pass"),
        Edit(fedmeta.meta_sgd_gradient, "q = q - model.hvp(theta_j, alpha * q, S)", "pass"),
        Edit(fedmaml.meta_gradient, "g = g - alpha * model.hvp(theta_j, g, tr)", "pass"),
        Edit(per_fedavg.meta_gradient, "model.hvp(w, u, D2)", "model.hvp(w, 0 * u, D2)"),
        Edit(per_fedavg.meta_gradient_steps, "u = u - alpha * model.hvp(w_j, u, D2)", "pass"),
    ),
    "the α-gradient is the θ-gradient": wrong_line(
        "fedmeta Meta-SGD", "Meta-SGD's α has a gradient of its own, −q ⊙ g(θ; S)",
        "step sizes learn nothing of their own",
        fedmeta.meta_sgd_gradient, "return q, g_alpha", "return q, q",
    ),
    "the server's Adam starts afresh every round": wrong_line(
        "fedmeta server",
        "with new moments each step is β times a sign: keep m, v and t across rounds",
        "every step is β times a sign",
        fedmeta.MAML.combine, "server.adam,", "server.adam and adam(server.learner),",
    ),
    "the last, short batch is dropped": wrong_line(
        "plan", "drop_last: a client with n < B never moves, and others lose rows",
        "small clients do not move, others lose rows",
        sampling.minibatches,
        "return _pad_rows(_permutations(rng, n, amount), per_epoch * width).reshape(-1, width)",
        "batches = _pad_rows(_permutations(rng, n, amount), per_epoch * width)\n"
        "batches = batches.reshape(-1, width)\n"
        "return batches[(batches != PADDING).sum(1) == config.batch_size]",
        kind="convention", stand_in=OtherPlan(change=keep_steps(lambda n, B, rows: rows == B)),
    ),
    "the penalty's sign is turned": wrong_line(
        "fedprox alg.2", "h adds (μ/2)‖w − wᵗ‖², whose gradient is +μ(w − wᵗ)",
        "clients are pushed away from the server's model",
        fedprox.prox_gradient, "+ mu * (w - w0)", "- mu * (w - w0)",
    ),
    "the penalty's gradient is zero": wrong_line(
        "fedprox alg.2",
        "the anchor wᵗ is a constant copy: not the parameters themselves, nor a tensor with their graph",
        "FedProx is FedAvg",
        fedprox.prox_gradient, " + mu * (w - w0)", "",
    ),
    "the penalty's anchor is overwritten by the step's direction": row(
        "fedprox alg.2", "wᵗ stays the server's model during all of the client's steps",
        "from the second step on a pull to a gradient, not to a model",
        Edit(
            fedprox.FedProx.step,
            "return local - self.lr * prox_gradient(model, local, sent.w, D, mu=sent.mu)",
            "w, before = local\n"
            "step = sent.mu * (w - before) + model.grad(w, D)\n"
            "return w - self.lr * step, step",
        ),
        *KEPT_BESIDE_W,
    ),
    "the proximal step follows the gradient step": wrong_line(
        "fedprox alg.2", "both terms of the gradient are taken at the same w",
        "a pull at another point: of the order of ημ",
        fedprox.FedProx.step,
        "return local - self.lr * prox_gradient(model, local, sent.w, D, mu=sent.mu)",
        "w = local - self.lr * model.grad(local, D)\n"
        "pull = prox_gradient(model, w, sent.w, D, mu=sent.mu) - model.grad(w, D)\n"
        "return w - self.lr * pull",
        kind="variant",
    ),
    "β is α": wrong_line(
        "per-fedavg alg.1", "the inner step α and the local step β are two hyperparameters",
        "local steps of the inner step's size",
        per_fedavg.PerFedAvg.step, "beta=self.beta", "beta=self.alpha",
    ),
    "Adam's bias correction in float32": wrong_line(
        "Adam c₁", "1 − βᵗ in the dtype of the run", "7 digits, whatever the dtype",
        fedmeta.server_step, "c1, c2 = 1 - 0.9**t, 1 - 0.999**t",
        "one, t32 = np.float32(1), np.float32(t)\n"
        "c1 = float(one - np.float32(0.9) ** t32)\nc2 = float(one - np.float32(0.999) ** t32)",
    ),
    "batches of one row are skipped": row(
        "plan", "a batch of one row is a batch",
        "clients lose rows, and those with one row do not move",
        stand_in=OtherPlan(change=keep_steps(lambda n, B, rows: rows != 1)), kind="convention",
    ),
    "a client's state is lost": wrong_line(
        "apfl alg.1", "a client keeps its state between rounds", "every round is its first",
        Reference.round, 'state.get("clients", {})', "{}",
    ),
    "SCAFFOLD's c_i is never kept": wrong_line(
        "scaffold alg.1", "a client keeps c_i⁺ as its c_i",
        "c_i = 0 in every round: half of the correction",
        scaffold.Scaffold.start, "client_state.c_i", "0 * client_state.c_i",
    ),
    "FedDyn's αθ is missing": wrong_line(
        "feddyn objective", "∇L − h_k + α(θ − θᵗ): α(θ − θᵗ) has αθ",
        "only a constant pull is left",
        feddyn.gradient, "alpha * (w - w0)", "alpha * (0 * w - w0)",
    ),
    "FedDyn's clients take FedAvg's steps": wrong_line(
        "feddyn objective", "∇L − h_k + α(θ − θᵗ)", "h_k and α do not reach the clients",
        feddyn.gradient, " - h_k + alpha * (w - w0)", "",
    ),
    "FedDyn's server takes θ off once": wrong_line(
        "feddyn alg.1", "h ← h − (α/N) Σ (θ_k − θᵗ): θᵗ goes off each θ_k",
        "h grows by |S| − 1 times θᵗ",
        feddyn.FedDyn.combine, "- K * server.w", "- server.w",
    ),
    "Deng's APFL without the factor α": wrong_line(
        "apfl-deng alg.1", "v's gradient is α g(v̄)", "v learns 1/α times too fast",
        apfl_deng.gradients, "return a[..., None] * g, g_a", "return g, g_a",
        kind="variant",
    ),
    "Deng's APFL applies each global gradient twice": wrong_line(
        "apfl-deng alg.1", "w ← w − ηg(w; D), once a step", "w learns twice as fast",
        apfl_deng.APFLDeng.step, "w = w - self.lr * model.grad(w, D)",
        "w = w - 2 * self.lr * model.grad(w, D)",
    ),
    "Deng's APFL: v's gradient after w's step": wrong_line(
        "apfl-deng alg.1", "all three gradients are taken before the step", "a mix with another w",
        apfl_deng.APFLDeng.step, "gradients(model, v, w, a, D)",
        "gradients(model, v, w - self.lr * model.grad(w, D), a, D)",
        kind="variant",
    ),
    "Deng's APFL in the form of FedRep's code": row(
        "apfl-deng alg.1", "v's gradient is α g(v̄), and v̄ is not stored",
        "v is trained alone and mixed once a round",
        Edit(
            apfl_deng.APFLDeng.step, "g_v, g_a = gradients(model, v, w, a, D)",
            "g_w, g_v = model.grad(w, D), model.grad(v, D)\n"
            "apart = (v - self.lr * g_v) - (w - self.lr * g_w)\n"
            "g_a = np.sum(apart * mix(g_v, g_w, a), -1) + 0.02 * a",
        ),
        MIXTURE_IS_STORED,
        kind="variant",
    ),
    "FedOpt with Adam's corrected rate, a round ahead": wrong_line(
        "fedopt alg.2", "FedAdam has no bias correction", "smaller first steps",
        fedopt.FedAdam.combine, "self.server_lr * m",
        "self.server_lr * np.sqrt(1 - self.beta2**2) / (1 - self.beta1**2) * m",
        kind="variant",
    ),
}  # fmt: skip


def outputs_with(case: Case, *names: str) -> dict[str, np.ndarray]:
    """Return fedref's outputs with one or two of these mistakes; {} where it has none."""
    backend = MISTAKES[names[0]].backend
    if len(names) > 1:
        edits = tuple(edit for name in names for edit in MISTAKES[name].edits)
        with apply_edits(*edits):  # raises where they change the same words
            backend = EditedReference(edits)
    found = suite.call_safely(backend, case).outputs or {}
    return {name: np.asarray(x) for name, x in found.items()}


def find_names(outputs: dict[str, np.ndarray], case: Case) -> tuple[str, ...]:
    """Return the mistakes that move a required output, and with which fedref returns what a project did."""
    tolerance = 100 * case.tolerance["float64"]
    found = []
    for name in MISTAKES:
        made = outputs_with(case, name)
        if set(case.required) <= made.keys():
            gaps = [suite.difference(made[key], case.outputs[key]) for key in case.required]
            left = [suite.difference(np.asarray(outputs[key]), made[key]) for key in case.required]
            if not max(gaps) <= tolerance and max(left) <= case.tolerance["float64"]:
                found.append(name)
    return tuple(found)
