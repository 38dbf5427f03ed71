"""Mistakes of published code as wrong lines of fedref, for runs and pages. The suite's: `errata`.

A mistake is a wrong line in place of a right line of fedref (`Edit`); as a backend, fedref runs with that
line replaced. Where the vectors contain what the wrong line would draw, a class changes it instead.
"""

from fedref import sampling
from fedref.algorithm import Algorithm, Cohort
from fedref.algorithms import fedavg, fedcurv, fedmaml, fedmeta, fedprox, per_fedavg
from fedref.conformance.backends import reference
from fedref.conformance.backends.reference import Reference
from fedref.conformance.edits import Edit, Mistake, row, wrong_line
from fedref.conformance.stand_ins import (
    OneIterator,
    OtherPlan,
    keep_steps,
    use_previous_clients_steps,
)
from fedref.models import LinearSVM, Logistic
from fedref.models.base import FromLogits
from fedref.rounds import evaluation

# ---- the table ---------------------------------------------------------------------------------

PUBLISHED: dict[str, Mistake] = {
    "penalty not squared": wrong_line(
        "fedprox alg.2",
        "the gradient of (μ/2)‖w − wᵗ‖ has constant length; FedProx squares the norm",
        "the pull does not depend on the distance",
        fedprox.prox_gradient, "mu * (w - w0)", "mu / 2 * (w - w0) / (np.linalg.norm(w - w0) or 1)",
        number=1,
    ),
    "the logged objective is the loss alone": wrong_line(
        "fedprox alg.2", "h is what the gradient belongs to: the loss plus (μ/2)‖w − wᵗ‖²",
        "the logged objective is not what is minimised",
        fedprox.objective, " + (mu / 2) * np.sum((w - w0) ** 2, -1)", "",
        number=2,
    ),
    "first order: the inner step's graph was cut": row(
        "fedmeta MAML", "this is FOMAML: in torch, the inner gradient needs create_graph=True",
        "MAML is first-order MAML",
        Edit(fedmeta.maml_gradient, "q = q - model.hvp(theta_j, alpha * q, S)", "pass"),
        Edit(fedmeta.meta_sgd_gradient, "q = q - model.hvp(theta_j, alpha * q, S)", "pass"),
        Edit(fedmaml.meta_gradient, "g = g - alpha * model.hvp(theta_j, g, tr)", "pass"),
        Edit(per_fedavg.meta_gradient, "model.hvp(w, u, D2)", "model.hvp(w, 0 * u, D2)"),
        Edit(per_fedavg.meta_gradient_steps, "u = u - alpha * model.hvp(w_j, u, D2)", "pass"),
        number=3,
    ),
    "the α-gradient is the θ-gradient": wrong_line(
        "fedmeta Meta-SGD", "Meta-SGD's α has a gradient of its own, −q ⊙ g(θ; S)",
        "step sizes learn nothing of their own",
        fedmeta.meta_sgd_gradient, "return q, g_alpha", "return q, q",
        number=4,
    ),
    "the server's Adam starts afresh every round": wrong_line(
        "fedmeta server",
        "with new moments each step is β times a sign: keep m, v and t across rounds",
        "every step is β times a sign",
        fedmeta.MAML.combine, "server.adam,", "server.adam and adam(server.learner),",
        number=5,
    ),
    "FedMeta weighted by sample counts": wrong_line(
        "fedmeta MAML",
        "the server divides by the number of clients, whatever support and query count",
        "large clients count more",
        fedmeta.MAML.combine, "cohort.weights(self.weighting)", 'cohort.weights("samples")',
        kind="variant",
        number=6,
    ),
    "weights count batches": wrong_line(
        "apfl eq.1",
        "p_k is n_k over the cohort's samples, not ⌈n_k/B⌉ (the length of a data loader)",
        "small clients count too much",
        Cohort.weights, "self.n if", "np.ceil(self.n / B) if",
        number=7,
    ),
    "FedProx averaged uniformly": wrong_line(
        "fedprox alg.2", "with weights n_k, as FedAvg has, μ = 0 is FedAvg",
        "small clients count as large ones; μ = 0 is not FedAvg",
        fedprox.FedProx.combine, "cohort.weights(self.weighting)", 'cohort.weights("uniform")',
        kind="variant",
        number=8,
    ),
    "a stale gradient is applied again": row(
        "per-fedavg eq.3", "g(w; D) of the inner step is added to u: nothing zeroed it",
        "the inner gradient counts twice",
        *(
            Edit(
                function,
                "u = model.grad(w - alpha * model.grad(w, D), D1)",
                "g = model.grad(w, D)\nu = g + model.grad(w - alpha * g, D1)",
            )
            for function in (per_fedavg.meta_gradient, per_fedavg.meta_gradient_fo)
        ),
        Edit(fedmeta.maml_gradient, "return q", "return q + model.grad(theta, S)"),
        number=9,
    ),
    "gradients add up from step to step": row(
        "apfl eq.1", "nothing zeroes the gradient between two steps of SGD",
        "steps grow until training diverges",
        Edit(
            fedavg.FedAvg.step,
            "return local_step(model, local, D, lr=self.lr)",
            "w, g = local\ng = g + model.grad(w, D)\nreturn w - self.lr * g, g",
        ),
        Edit(  # what a client carries is w and the sum; FedAvg inherits these two
            Algorithm.start,
            "return sent.w",
            'fedavg = type(self).step.__qualname__ == "FedAvg.step"\n'
            "return (sent.w, np.zeros_like(sent.w)) if fedavg else sent.w",
        ),
        Edit(
            Algorithm.finish,
            "return ClientResult(local)",
            'fedavg = type(self).step.__qualname__ == "FedAvg.step"\n'
            "return ClientResult(local[0] if fedavg else local)",
        ),
        Edit(
            reference.parameters,
            "return local[0].theta",
            "return local[0] if isinstance(local[0], np.ndarray) else local[0].theta",
        ),
        number=9,
    ),
    "clients with n ≤ B do not move but vote": wrong_line(
        "plan", "a client with fewer rows than a batch uses all of them",
        "small clients hold the model back",
        sampling.client_batches, "n, config, amount) for role in roles",
        "n, config, amount * (n > config.batch_size)) for role in roles",
        stand_in=OtherPlan(change=keep_steps(lambda n, B, rows: n > B)),
        number=10,
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
        number=10,
    ),
    "α is β": row(
        "per-fedavg alg.1", "the inner step α and the local step β are two hyperparameters",
        "the inner step has the outer one's size",
        Edit(per_fedavg.PerFedAvg.gradient, "alpha=self.alpha", "alpha=self.beta"),
        Edit(
            Reference.algorithm_of,
            "hyper.items()",
            '(hyper | ({"alpha": hyper["beta"]} if "per-fedavg" in name else {})).items()',
        ),
        Edit(
            Reference.meta_gradient,
            "hyper, **given",
            'hyper | ({"alpha": hyper["beta"]} if "per-fedavg" in variant else {}), **given',
        ),
        number=11,
    ),
    "adapted to the test batch": row(
        "apfl eq.2", "a client adapts to training rows; test rows are only predicted",
        "test rows are trained on: accuracy is too good",
        Edit(evaluation.evaluate_clients, "get(clients[k]), D))", "get(clients[k]), *tests[i]))"),
        Edit(
            Reference.evaluate, "return {",
            "if D is None:\n"
            "    raise NotImplementedError\n"
            "ws = [it.personalised_params(made, sent, own, serialise.build_batch(T)) for T in tests]\n"
            'return {"losses": np.concatenate('
            "[self._scores(made, w, [T]) for w, T in zip(ws, tests)])}\n"
            "return {",
        ),
        number=12,
    ),
    "evaluation trains": row(
        "apfl eq.2",
        "each test batch starts from the adapted model, not from what the last batch left",
        "test rows are trained on: accuracy is too good",
        Edit(
            evaluation.evaluate_clients,
            "ws.append(algorithm.personalised_params(model, sent, client_states.get(clients[k]), D))",
            "own = client_states.get(clients[k])\n"
            "sent = sent._replace(w=algorithm.personalised_params(model, sent, own, D))\n"
            "ws.append(sent.w)",
        ),
        Edit(
            Reference.evaluate, "return {",
            "if D is None:\n"
            "    raise NotImplementedError\n"
            "losses = []\n"
            "for T in tests:\n"
            "    losses.append(self._scores(made, w, [T]))\n"
            "    server = {**server, next(iter(server)): w}\n"
            "    sent = it.download(serialise.load_server(it, made, server))\n"
            "    w = it.personalised_params(made, sent, own, serialise.build_batch(D))\n"
            'return {"losses": np.concatenate(losses)}\n'
            "return {",
        ),
        number=13,
    ),
    "mean of a squared gradient where squares are averaged": wrong_line(
        "fedcurv penalty",
        "the Fisher is the mean over samples of squares, not the square of the mean",
        "the Fisher is far too small near a solution",
        fedcurv.FedCurv.finish, "fisher(model, theta, data())", "model.grad(theta, data()) ** 2",
        number=14,
    ),
    "the Fisher of the last batch": wrong_line(
        "fedcurv penalty",
        "the Fisher is a mean over all of a client's rows, not over its last batch",
        "a noisy penalty",
        fedcurv.FedCurv.finish, "I = fisher(model, theta, data())",
        "D = data()\n"
        "last = slice((len(D.y) - 1) // B * B, None)\n"
        "I = fisher(model, theta, Batch(D.X[last], D.y[last]))",
        number=14,
    ),
    "own term subtracted from a sum it is no part of": wrong_line(
        "fedcurv penalty", "a client that was not in the previous cohort has nothing to subtract",
        "a client is pushed away from its old solution",
        fedcurv.FedCurv.start, " and client_state.t == sent.t - 1", "",
        number=15,
    ),
    "D, D′ and D″ are the same rows": wrong_line(
        "plan", "three independent batches, not three draws from one iterator that wraps",
        "a biased meta-gradient",
        sampling.client_batches, "stream(seed, role, round, client)",
        'stream(seed, "D", round, client)',
        stand_in=OneIterator(),
        number=16,
    ),
    "straggler steps by another client's size": wrong_line(
        "plan", "a straggler's steps are its epochs times its own batches",
        "partial work of the wrong length",
        sampling.make_plan, "return Plan(",
        "others = amount * np.roll(steps_of_epoch(config, roles, n), 1)\n"
        "steps = np.where(straggler, np.minimum(others, steps.max()), steps)\n"
        "return Plan(",
        stand_in=OtherPlan(change=use_previous_clients_steps),
        number=17,
    ),
    "the L2 term is not applied": row(
        "Logistic grad", "(l2/2)‖w‖² belongs to value, gradient and Hessian", "no weight decay",
        Edit(Logistic.grad, "return g + self.l2 * w if self.l2 else g", "return g"),
        Edit(Reference.model_of, "build_model(model)", 'build_model({**model, "l2": 0.0})'),
        number=18,
    ),
    "the SVM's loss is summed": row(
        "LinearSVM hinge loss", "a loss is the mean over the batch",
        "steps grow with the batch size",
        *(
            Edit(
                function, "base.mean_weights(D, m.dtype)", "(1 if D.s is None else D.s)"
            )
            for function in (LinearSVM.grad, LinearSVM.hvp)
        ),
        Edit(
            FromLogits.loss,
            "mean_weights(D, losses.dtype)",
            "(mean_weights(D, losses.dtype) if self.labels != (-1, 1) else "
            "1 if D.s is None else D.s)",
        ),
        number=18,
    ),
    "HF: the sign of d is flipped": wrong_line(
        "per-fedavg eq.7", "the meta-gradient is u − αd",
        "the step leads away from adaptable models",
        per_fedavg.meta_gradient_hf, "return u - alpha * d", "return u + alpha * d",
        number=19,
    ),
    "HF: divided by δ": wrong_line(
        "per-fedavg eq.7", "a central difference divides by 2δ", "twice the second-order term",
        per_fedavg.meta_gradient_hf, "/ (2 * delta)", "/ delta",
        number=19,
    ),
    "HF: δ = 10⁻⁶ in single precision": row(
        "per-fedavg eq.7", "rounding alone: use δ = 10⁻³, or double precision",
        "the second-order term is noise",
        Edit(
            per_fedavg.PerFedAvgHF.gradient,
            "return meta_gradient_hf(model, w, *batches, alpha=self.alpha, delta=self.delta)",
            'low = [Batch(D.X.astype("float32"), D.y) for D in batches]\n'
            'single = w.astype("float32")\n'
            "g = meta_gradient_hf(model, single, *low, alpha=self.alpha, delta=1e-6)\n"
            "return g.astype(w.dtype)",
        ),
        Edit(
            reference._hf,
            "g, u, plus, minus = r.gave",
            "g, u, plus, minus = r.gave\n"
            'low = [Batch(D.X.astype("float32"), D.y) for D in (D, D1, D2)]\n'
            'single, alpha = w.astype("float32"), hyper["alpha"]\n'
            "F = per_fedavg.meta_gradient_hf(r.model, single, *low, alpha=alpha, delta=1e-6)\n"
            "F = F.astype(w.dtype)",
        ),
        number=19,
    ),
    "adaptive μ: the count is not reset": wrong_line(
        "fedprox μ", "after five falls μ decreases once, and the count starts anew", "μ vanishes",
        fedprox.adapt_mu, "0.0), 0) if falls == 5", "0.0), falls) if falls >= 5",
        number=20,
    ),
    "the Hessian is taken on D, not on D″": row(
        "per-fedavg eq.6",
        "differentiating through the inner step gives H(w; D)u; eq.6 has H(w; D″)u",
        "a biased second-order term",
        Edit(per_fedavg.meta_gradient, "model.hvp(w, u, D2)", "model.hvp(w, u, D)"),
        Edit(
            per_fedavg.meta_gradient_hf,
            "(model.grad(w + delta * u, D2) - model.grad(w - delta * u, D2))",
            "(model.grad(w + delta * u, D) - model.grad(w - delta * u, D))",
        ),
        Edit(per_fedavg.meta_gradient_steps, "reversed(D2s)", "reversed(Ds)"),
        kind="variant",
    ),
    "FedMAML averages": wrong_line(
        "fedmaml §3.2", "the server's meta-update sums over clients, as printed",
        "steps are 1/K times as long",
        fedmaml.meta_update, "weighted_sum(counts, gradients)",
        "weighted_sum(counts / counts.sum(), gradients)",
        kind="variant",
    ),
}  # fmt: skip

MISTAKES = PUBLISHED
