"""Further mistakes: what people write when they implement these papers, beside what is published.

Each is a line of fedref and the wrong line in its place, or a wrong backend of `stand_ins`.
Long because it is one table.
"""

import numpy as np

from fedref.algorithm import Algorithm, Cohort
from fedref.algorithms import (
    apfl,
    apfl_deng,
    fedavg,
    fedcurv,
    feddyn,
    fedmaml,
    fedmeta,
    fednova,
    fedopt,
    fedprox,
    importance,
    per_fedavg,
    pfedme,
    scaffold,
)
from fedref.conformance import stand_ins
from fedref.conformance.backends import reference
from fedref.conformance.backends.reference import Reference
from fedref.conformance.edits import Edit, Mistake, Swap, row, wrong_line
from fedref.conformance.stand_ins import OtherModel, OtherPlan
from fedref.models import base, lstm, svm
from fedref.models import numerics as nx
from fedref.rounds import loop

WRONG, VARIANT, CONVENTION = "wrong", "variant", "convention"


RELU, ELU = nx.ACTIVATIONS["relu"], nx.ACTIVATIONS["elu"]
#: A ReLU whose output keeps, as a zero's sign, whether z was below 0.
SIGNED_RELU = RELU._replace(
    value=lambda z: np.where(z.real < 0, -0.0, np.abs(z) if z.dtype.kind == "f" else z).astype(
        z.dtype
    ),
    slope=lambda a: (~np.signbit(a.real)).astype(a.dtype),
)
META = "q = q - model.hvp(theta_j, alpha * q, S)"
MAML = "g = g - alpha * model.hvp(theta_j, g, tr)"
ADAPTED = "model.grad(w - alpha * model.grad(w, D), D1)"
PER_FEDAVG = (per_fedavg.meta_gradient, per_fedavg.meta_gradient_fo, per_fedavg.meta_gradient_hf)
HF = "d = (model.grad(w + delta * u, D2) - model.grad(w - delta * u, D2)) / (2 * delta)"
ADAM_STEP = "x - beta * (m / c1) / (np.sqrt(v / c2) + 1e-8)"


def edit_adapted_gradient(wrong: str) -> list[Edit]:
    """Return the edits of Per-FedAvg's gradient at the adapted point."""
    return [Edit(f, ADAPTED, wrong) for f in PER_FEDAVG]


MODELS = {
    "the loss is summed over the batch": wrong_line(
        "apfl eq.1", "a loss is the mean over the batch", "steps grow with the batch size",
        base.mean_weights, "real = np.zeros(0, dtype).real.dtype",
        "real = np.zeros(0, dtype).real.dtype\n"
        "if D.y.size and D.y.min() >= 0:\n"
        "    return np.ones((), real) if D.s is None else D.s.astype(real, copy=False)",
    ),
    "padding counts in the mean": wrong_line(
        "apfl eq.1", "the mean is over Σ s, not over the rows of the array",
        "short batches make short steps",
        base.mean_weights, "total = s.sum(-1, keepdims=True)",
        "total = np.full_like(s[..., :1], s.shape[-1])",
    ),
    "softmax is taken twice": row(
        "Logistic grad", "the cross-entropy of logits has the softmax in it, as torch's CrossEntropyLoss",
        "flat gradients: training is slow",
        stand_in=OtherModel(change=stand_ins.take_softmax_twice),
    ),
    "the L2 term leaves out the biases": row(
        "Logistic grad", "(l2/2)‖w‖² is over all parameters, biases included",
        "biases are not held back",
        kind=CONVENTION, stand_in=OtherModel(change=stand_ins.spare_the_biases),
    ),
    "the L2 term counts twice": row(
        "Logistic grad",
        "the gradient of (l2/2)‖w‖² is l2·w; l2‖w‖², or loss and optimiser, give 2·l2·w",
        "twice the weight decay",
        stand_in=OtherModel(change=stand_ins.scale_penalty(2, 2, 2)),
    ),
    "the L2 term has half its weight": row(
        "Logistic grad", "the gradient of (l2/2)‖w‖² is l2·w", "half the weight decay",
        stand_in=OtherModel(change=stand_ins.scale_penalty(0.5, 0.5, 0.5)),
    ),
    "the L2 term has the wrong sign": row(
        "Logistic grad", "the loss is ℓ + (l2/2)‖w‖²", "parameters grow",
        stand_in=OtherModel(change=stand_ins.scale_penalty(-1, -1, -1)),
    ),
    "the value lacks the L2 term": row(
        "Logistic grad", "f has (l2/2)‖w‖² as its gradient has l2·w",
        "the logged loss is not what is minimised",
        stand_in=OtherModel(change=stand_ins.scale_penalty(0, 1, 1)),
    ),
    "the value's L2 term lacks its half": row(
        "Logistic grad", "the gradient l2·w belongs to (l2/2)‖w‖²",
        "the logged loss is not what is minimised",
        stand_in=OtherModel(change=stand_ins.scale_penalty(2, 1, 1)),
    ),
    "the Hessian lacks the L2 term": row(
        "Logistic HVP", "weight decay in the optimiser is not differentiated: H has l2·I",
        "the second-order term is off by α·l2",
        stand_in=OtherModel(change=stand_ins.scale_penalty(1, 1, 0)),
    ),
    "ReLU′(0) is 1": row(
        "MLP grad", "ReLU′(0) = 0, as in torch and JAX",
        "with zero biases and a blank background gradients are far off",
        Swap("relu", SIGNED_RELU),
        kind=CONVENTION,
    ),
    "ReLU′(0) is 1/2": row(
        "MLP grad", "ReLU′(0) = 0, as in torch and JAX",
        "with zero biases and a blank background gradients are far off",
        Swap(
            "relu",
            RELU._replace(
                value=lambda z: np.where(z.real < 0, -0.0, np.abs(z)).astype(z.dtype),
                slope=lambda a: np.where(
                    a.real > 0, 1.0, np.where(np.signbit(a.real), 0, 0.5)
                ).astype(a.dtype),
            ),
        ),
        kind=CONVENTION,
    ),
    "ELU″(0) is 1": row(
        "MLP HVP", "ELU″(0) = 0", "Hessians are off where a unit reads 0",
        Swap("elu", ELU._replace(curvature=lambda a: (a + 1) * (a.real <= 0))),
        kind=CONVENTION,
    ),
    "ELU′ below 0 is 1 − a": row(
        "MLP grad", "ELU′(z) = e^z = 1 + a for z < 0", "gradients of unlit units are off",
        Swap("elu", ELU._replace(slope=lambda a: 1 - np.minimum(a, 0))),
    ),
    "tanh′ is 1 − a": row(
        "MLP grad", "tanh′ = 1 − a²", "gradients of hidden layers are off",
        Swap("tanh", nx.ACTIVATIONS["tanh"]._replace(slope=lambda a: 1 - a)),
    ),
    "ties of max-pooling are shared": wrong_line(
        "CNN grad", "a tie goes to the first in row-major order, as in torch",
        "with a blank background kernels learn from every pixel of a window",
        nx.argmax_mask, "return first",
        "tied = z.real == z.real.max(-3, keepdims=True)\nreturn tied / tied.sum(-3, keepdims=True)",
        kind=CONVENTION,
    ),
    "ties of max-pooling go to the last": wrong_line(
        "CNN grad", "a tie goes to the first in row-major order, as in torch",
        "with a blank background kernels learn from another pixel",
        nx.argmax_mask, "return first",
        "tied = (z.real == z.real.max(-3, keepdims=True))[..., ::-1, :, :]\n"
        "return (tied & (tied.cumsum(-3) == 1))[..., ::-1, :, :]",
        kind=CONVENTION,
    ),
    "kernels are flipped": row(
        "CNN grad", "a convolution of deep learning is a correlation: kernels are not turned",
        "another model for the same w",
        stand_in=OtherModel(change=stand_ins.reorder_arrays(4, lambda x: x[::-1, ::-1])),
        kind=CONVENTION,
    ),
    "kernels are transposed": row(
        "CNN grad", "a kernel's first axis runs down the image's rows",
        "another model for the same w",
        stand_in=OtherModel(change=stand_ins.reorder_arrays(4, lambda x: x.swapaxes(0, 1))),
        kind=CONVENTION,
    ),
    "kernels are read as (out, in, k, k)": row(
        "CNN grad", "kernels are laid out (k, k, in, out)", "another model for the same w",
        stand_in=OtherModel(
            change=stand_ins.reorder_arrays(
                4, lambda x: x.reshape(x.transpose(3, 2, 0, 1).shape).transpose(2, 3, 1, 0)
            )
        ),
        kind=CONVENTION,
    ),
    "dense weights are read as (out, in)": row(
        "Logistic grad", "dense weights are laid out (in, out)", "another model for the same w",
        stand_in=OtherModel(change=stand_ins.reorder_arrays(2, lambda x: x.reshape(x.shape[::-1]).T)),
        kind=CONVENTION,
    ),
    "the image is flattened channels first": row(
        "CNN grad", "the first dense layer reads (h, w, C) in row-major order",
        "another model for the same w",
        stand_in=OtherModel(change=stand_ins.reorder_parameters(stand_ins.flatten_channels_first)),
        kind=CONVENTION,
    ),
    "images are read channels first": row(
        "CNN grad", "a row of X is an image (H, W, channels)", "images are scrambled",
        stand_in=OtherModel(change=stand_ins.reorder_pixels(2, 0, 1)), kind=CONVENTION,
    ),
    "images are read columns first": row(
        "CNN grad", "a row of X is an image (H, W, channels)", "images are transposed",
        stand_in=OtherModel(change=stand_ins.reorder_pixels(1, 0, 2)), kind=CONVENTION,
    ),
    **{
        f"the LSTM's gates are in the order {', '.join(order)}": row(
            "LSTM grad",
            "gates are laid out i, f, g, o, as in torch",
            "another model for the same w",
            stand_in=OtherModel(change=stand_ins.gates(order)),
            kind=CONVENTION,
        )
        for order in ("igfo", "ifog", "iofg", "figo", "fiog", "ofig", "gifo", "fgio")
    },
    "the LSTM takes padded steps": wrong_line(
        "LSTM grad", "a step that is padding leaves h and c as they are",
        "the text's end is forgotten",
        lstm.LSTM.forward, "skip = padding[..., None] if padding.any() else None", "skip = None",
    ),
    "the LSTM's mean counts padded steps": wrong_line(
        "LSTM grad", "the mean is over the steps that are taken", "short texts give small outputs",
        lstm.LSTM.share, "else ~skip", "else np.ones_like(skip)",
    ),
    "the squared hinge is the hinge": wrong_line(
        "LinearSVM grad", "with `squared`, ℓ = max(0, 1 − yz)²", "another loss",
        Reference.model_of, "build_model(model)",
        'build_model({**model, "squared": False} if "squared" in model else model)',
    ),
    "the hinge is squared": wrong_line(
        "LinearSVM grad", "without `squared`, ℓ = max(0, 1 − yz)", "another loss",
        Reference.model_of, "build_model(model)",
        'build_model({**model, "squared": True} if "squared" in model else model)',
    ),
    "the squared hinge lacks its factor 2": row(
        "LinearSVM grad", "∂ max(0, m)²/∂z = −2ym", "half the gradient",
        Edit(svm.LinearSVM.grad, "2 * m if", "m if"),
        Edit(svm.LinearSVM.hvp, "2 * self", "self"),
        Edit(svm.LinearSVM.loss_of, "return m * m if", "return m * m / 2 if"),
    ),
}  # fmt: skip

#: FedProx's client keeps a second vector beside w, at first the server's model.
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

CLIENTS = {
    "the local step climbs": row(
        "apfl eq.2", "w ← w − ηg", "the loss rises",
        Edit(fedavg.FedAvg.step, "lr=self.lr", "lr=-self.lr"),
        Edit(fednova.FedNova.step, "lr=self.lr", "lr=-self.lr"),
        Edit(fedopt.AveragedClients.step, "lr=self.lr", "lr=-self.lr"),
        Edit(fedavg.Centralised.step, "local - self.lr", "local + self.lr"),
        Edit(fedprox.FedProx.step, "local - self.lr", "local + self.lr"),
        Edit(per_fedavg.local_step, "w - beta", "w + beta"),
    ),
    "the penalty's sign is turned": wrong_line(
        "fedprox alg.2", "h adds (μ/2)‖w − wᵗ‖², whose gradient is +μ(w − wᵗ)",
        "clients are pushed away from the server's model",
        fedprox.prox_gradient, "+ mu * (w - w0)", "- mu * (w - w0)",
    ),
    "μ/2 in the place of μ": wrong_line(
        "fedprox alg.2", "the gradient of (μ/2)‖w − wᵗ‖² is μ(w − wᵗ)", "half the pull",
        fedprox.prox_gradient, "mu * (w - w0)", "mu / 2 * (w - w0)",
    ),
    "2μ in the place of μ": wrong_line(
        "fedprox alg.2", "the penalty is (μ/2)‖w − wᵗ‖², not μ‖w − wᵗ‖²", "twice the pull",
        fedprox.prox_gradient, "mu * (w - w0)", "2 * mu * (w - w0)",
    ),
    "penalty not squared, with the whole μ": wrong_line(
        "fedprox alg.2", "the gradient of μ‖w − wᵗ‖ has constant length; FedProx squares the norm",
        "the pull does not depend on the distance",
        fedprox.prox_gradient, "mu * (w - w0)", "mu * (w - w0) / (np.linalg.norm(w - w0) or 1)",
    ),
    "the penalty's gradient is zero": wrong_line(
        "fedprox alg.2",
        "the anchor wᵗ is a constant copy: not the parameters themselves, nor a tensor with their graph",
        "FedProx is FedAvg",
        fedprox.prox_gradient, " + mu * (w - w0)", "",
    ),
    "the penalty's anchor is the last step's w": row(
        "fedprox alg.2", "wᵗ stays the server's model during all of the client's steps",
        "the pull is a momentum of the wrong sign",
        Edit(
            fedprox.FedProx.step,
            "return local - self.lr * prox_gradient(model, local, sent.w, D, mu=sent.mu)",
            "w, before = local\n"
            "return w - self.lr * prox_gradient(model, w, before, D, mu=sent.mu), w",
        ),
        *KEPT_BESIDE_W,
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
    "the penalty's anchor is round 0's model": row(
        "fedprox alg.2", "wᵗ is the server's model of this round",
        "training is held where it began",
        Edit(
            Reference.round, "plan = self.plan_of(algorithm, hyper, plan)",
            "plan = self.plan_of(algorithm, hyper, plan)\n"
            'vars(it)["first"] = state.get("first", state["server"])',
        ),
        Edit(
            Reference.round, "out: dict[str, Any] = {}", 'out: dict[str, Any] = {"first": it.first}',
        ),
        Edit(
            fedprox.FedProx.step, "sent.w, D", 'vars(self).get("first", sent._asdict())["w"], D',
        ),
    ),
    "the penalty is taken from 0": wrong_line(
        "fedprox alg.2", "μ(w − wᵗ), not μw", "FedProx is weight decay",
        fedprox.prox_gradient, "mu * (w - w0)", "mu * w",
    ),
    "the proximal step follows the gradient step": wrong_line(
        "fedprox alg.2", "both terms of the gradient are taken at the same w",
        "a pull at another point: of the order of ημ",
        fedprox.FedProx.step,
        "return local - self.lr * prox_gradient(model, local, sent.w, D, mu=sent.mu)",
        "w = local - self.lr * model.grad(local, D)\n"
        "pull = prox_gradient(model, w, sent.w, D, mu=sent.mu) - model.grad(w, D)\n"
        "return w - self.lr * pull",
        kind=VARIANT,
    ),
    "the penalty lacks the learning rate": wrong_line(
        "fedprox alg.2", "the step is η(g + μ(w − wᵗ))", "the pull is 1/η times too strong",
        fedprox.prox_gradient, "mu * (w - w0)", "mu / 0.2 * (w - w0)",
    ),
    "the penalty is averaged over the parameters": wrong_line(
        "fedprox alg.2", "‖·‖² is a sum over all parameters, not a mean", "μ is d times too weak",
        fedprox.prox_gradient, "mu * (w - w0)", "mu * (w - w0) / w.shape[-1]",
    ),
    "the logged penalty lacks its half": wrong_line(
        "fedprox alg.2", "h = F + (μ/2)‖w − wᵗ‖²", "the logged objective is not what is minimised",
        fedprox.objective, "(mu / 2)", "mu",
    ),
    "the logged penalty lacks the square": wrong_line(
        "fedprox alg.2", "h = F + (μ/2)‖w − wᵗ‖²", "the logged objective is not what is minimised",
        fedprox.objective, "np.sum((w - w0) ** 2, -1)", "np.linalg.norm(w - w0, axis=-1)",
    ),
    "γ without its root": wrong_line(
        "fedprox γ", "γ is a ratio of norms, not of their squares", "γ is squared",
        fedprox.inexactness, "ratio = np.sqrt(now / np.where(start == 0, 1, start))",
        "ratio = now / np.where(start == 0, 1, start)",
    ),
    "B without its root": wrong_line(
        "fedprox B", "B is the root of the ratio", "B is squared",
        fedprox.dissimilarity, "np.sqrt(mean_square / square)", "mean_square / square",
    ),
    "B weights all clients alike": wrong_line(
        "fedprox B", "E_k weights clients by n_k/n", "small clients count as large ones",
        fedprox.dissimilarity, "n / n.sum()", "np.ones(len(n)) / len(n)",
        kind=VARIANT,
    ),
    "adaptive μ: may fall below 0": wrong_line(
        "fedprox μ", "μ is at least 0", "a penalty that pushes away",
        fedprox.adapt_mu, "max(mu - 0.1, 0.0)", "mu - 0.1",
    ),
    "adaptive μ: falls at every fall of the loss": wrong_line(
        "fedprox μ", "μ falls after five falls of the loss in a row", "μ vanishes",
        fedprox.adapt_mu, "if falls == 5", "if falls >= 1",
    ),
    "adaptive μ: four falls are enough": wrong_line(
        "fedprox μ", "μ falls after five falls of the loss in a row", "μ falls too early",
        fedprox.adapt_mu, "if falls == 5", "if falls == 4",
    ),
    "adaptive μ: six falls are needed": wrong_line(
        "fedprox μ", "μ falls after five falls of the loss in a row", "μ falls too late",
        fedprox.adapt_mu, "if falls == 5", "if falls == 6",
    ),
    "adaptive μ: rise and fall are exchanged": wrong_line(
        "fedprox μ", "μ rises when the loss rises", "μ grows while training goes well",
        fedprox.adapt_mu, "if loss > before:", "loss, before = before, loss\nif loss > before:",
    ),
    "adaptive μ: a rise does not end the count": wrong_line(
        "fedprox μ", "the five falls are consecutive", "μ falls too early",
        fedprox.adapt_mu, "return mu + 0.1, 0", "return mu + 0.1, falls",
    ),
    "adaptive μ: stays where the loss rises": wrong_line(
        "fedprox μ", "μ rises by 0.1 when the loss rises", "μ only falls",
        fedprox.adapt_mu, "return mu + 0.1, 0", "return mu, 0",
    ),
    "α and β are exchanged": wrong_line(
        "per-fedavg alg.1", "α is the inner step, β the outer", "both steps have the other's size",
        Reference.algorithm_of,
        "return kind(**{key: value for key, value in hyper.items() if key in known})",
        'if "per-fedavg" in name:\n'
        '    hyper = {**hyper, "alpha": hyper["beta"], "beta": hyper["alpha"]}\n'
        "return kind(**{key: value for key, value in hyper.items() if key in known})",
    ),
    "β is α": wrong_line(
        "per-fedavg alg.1", "the inner step α and the local step β are two hyperparameters",
        "local steps of the inner step's size",
        per_fedavg.PerFedAvg.step, "beta=self.beta", "beta=self.alpha",
    ),
    "the inner step climbs": row(
        "per-fedavg eq.6", "the adapted point is w − αg", "adaptation goes uphill",
        *edit_adapted_gradient("model.grad(w + alpha * model.grad(w, D), D1)"),
        Edit(per_fedavg.meta_gradient_steps, "ws[-1] - alpha", "ws[-1] + alpha"),
        Edit(fedmeta.inner_steps, "thetas[-1] - alpha", "thetas[-1] + alpha"),
        Edit(fedmaml.adapt, "theta - alpha", "theta + alpha"),
    ),
    "no inner step is taken": row(
        "per-fedavg eq.6", "u is the gradient at w − αg(w; D)",
        "the method is FedAvg with a Hessian",
        *edit_adapted_gradient("model.grad(w - 0 * model.grad(w, D), D1)"),
        Edit(per_fedavg.meta_gradient_steps, "ws[-1] - alpha", "ws[-1] - 0"),
        Edit(fedmeta.inner_steps, "thetas[-1] - alpha", "thetas[-1] - 0"),
        Edit(fedmaml.adapt, "theta - alpha", "theta - 0"),
    ),
    "the second-order term is added": row(
        "per-fedavg eq.6", "(I − αH)u: the term is subtracted",
        "the step leads away from adaptable models",
        Edit(per_fedavg.meta_gradient, "u - alpha", "u + alpha"),
        Edit(per_fedavg.meta_gradient_steps, "u - alpha", "u + alpha"),
        Edit(fedmeta.maml_gradient, "q - model.hvp", "q + model.hvp"),
        Edit(fedmeta.meta_sgd_gradient, "q - model.hvp", "q + model.hvp"),
        Edit(fedmaml.meta_gradient, "g - alpha", "g + alpha"),
    ),
    "the second-order term lacks α": row(
        "per-fedavg eq.6", "(I − αH)u", "the second-order term is 1/α times too large",
        Edit(per_fedavg.meta_gradient, "alpha * model.hvp", "model.hvp"),
        Edit(per_fedavg.meta_gradient_hf, "alpha * d", "d"),
        Edit(per_fedavg.meta_gradient_steps, "alpha * model.hvp", "model.hvp"),
        Edit(fedmeta.maml_gradient, "alpha * q", "q"),
        Edit(fedmeta.meta_sgd_gradient, "alpha * q", "q"),
        Edit(fedmaml.meta_gradient, "alpha * model.hvp", "model.hvp"),
    ),
    "only the second-order term is left": row(
        "per-fedavg eq.6", "(I − αH)u has the identity, too", "the step is nearly 0",
        Edit(per_fedavg.meta_gradient, "u - alpha", "-alpha"),
        Edit(fedmeta.maml_gradient, "q - model.hvp", "-model.hvp"),
        Edit(fedmaml.meta_gradient, "g - alpha", "-alpha"),
    ),
    "the second-order term has twice its weight": row(
        "per-fedavg eq.6", "(I − αH)u", "the step overshoots",
        Edit(per_fedavg.meta_gradient, "u - alpha", "u - 2 * alpha"),
        Edit(fedmeta.maml_gradient, "q - model.hvp", "q - 2 * model.hvp"),
        Edit(fedmaml.meta_gradient, "g - alpha", "g - 2 * alpha"),
    ),
    "the Hessian is taken at the adapted point": row(
        "per-fedavg eq.6", "H is at w, from which the inner step starts",
        "a wrong second-order term",
        Edit(
            per_fedavg.meta_gradient, "model.hvp(w, u, D2)",
            "model.hvp(w - alpha * model.grad(w, D), u, D2)",
        ),
        Edit(
            per_fedavg.meta_gradient_hf, HF,
            "w_a = w - alpha * model.grad(w, D)\n"
            + HF.replace("w + ", "w_a + ").replace("w - ", "w_a - "),
        ),
        Edit(reference._hf, "g, u, plus, minus = r.gave", "g, u, *_, plus, minus = r.gave"),
        Edit(fedmeta.maml_gradient, "model.hvp(theta_j", "model.hvp(theta_u"),
        Edit(fedmeta.meta_sgd_gradient, "model.hvp(theta_j", "model.hvp(theta_u"),
        Edit(fedmaml.meta_gradient, "model.hvp(theta_j", "model.hvp(theta_star"),
    ),
    "all Hessians are taken at the start": row(
        "fedmeta MAML", "each inner step has the Hessian of its own point", "wrong beyond one step",
        Edit(per_fedavg.meta_gradient_steps, "model.hvp(w_j", "model.hvp(w"),
        Edit(fedmeta.maml_gradient, "model.hvp(theta_j", "model.hvp(theta"),
        Edit(fedmeta.meta_sgd_gradient, "model.hvp(theta_j", "model.hvp(theta"),
        Edit(fedmaml.meta_gradient, "model.hvp(theta_j", "model.hvp(theta"),
    ),
    "the Hessians are multiplied in the other order": row(
        "per-fedavg eq.6", "the factors are applied from the last step to the first",
        "wrong beyond one step",
        Edit(per_fedavg.meta_gradient_steps, "zip(reversed(ws), reversed(D2s))", "zip(ws, D2s)"),
        Edit(fedmeta.maml_gradient, "reversed(thetas)", "thetas"),
        Edit(fedmeta.meta_sgd_gradient, "zip(reversed(thetas), reversed(gs))", "zip(thetas, gs)"),
        Edit(fedmaml.meta_gradient, "reversed(path)", "path"),
    ),
    "second order in the last inner step only": row(
        "fedmeta MAML", "every inner step has its factor I − αH", "wrong beyond one step",
        Edit(
            per_fedavg.meta_gradient_steps, "zip(reversed(ws), reversed(D2s))",
            "zip(ws[-1:], D2s[-1:])",
        ),
        Edit(fedmeta.maml_gradient, "reversed(thetas)", "thetas[-1:]"),
        Edit(
            fedmeta.meta_sgd_gradient, META,
            "q = q - model.hvp(theta_j, alpha * q, S) if theta_j is thetas[-1] else q",
        ),
        Edit(fedmaml.meta_gradient, "reversed(path)", "path[-1:]"),
    ),
    "second order in the first inner step only": row(
        "fedmeta MAML", "every inner step has its factor I − αH", "wrong beyond one step",
        Edit(
            per_fedavg.meta_gradient_steps, "zip(reversed(ws), reversed(D2s))",
            "zip(ws[:1], D2s[:1])",
        ),
        Edit(fedmeta.maml_gradient, "reversed(thetas)", "thetas[:1]"),
        Edit(
            fedmeta.meta_sgd_gradient, META,
            "q = q - model.hvp(theta_j, alpha * q, S) if theta_j is thetas[0] else q",
        ),
        Edit(fedmaml.meta_gradient, "reversed(path)", "path[:1]"),
    ),
    "one inner step whatever is asked": row(
        "fedmeta MAML", "`inner_steps` steps are taken", "less adaptation",
        Edit(
            Reference.meta_gradient, "hyper, **given",
            'hyper | ({"inner_steps": 1} if "inner_steps" in hyper else {}), **given',
        ),
        Edit(
            Reference.algorithm_of, "hyper.items()",
            '(hyper | ({"inner_steps": 1} if "inner_steps" in hyper else {})).items()',
        ),
    ),
    "one inner step too many": row(
        "fedmeta MAML", "`inner_steps` steps are taken", "more adaptation",
        Edit(fedmeta.inner_steps, "range(steps)", "range(steps + 1)"),
        Edit(fedmaml.adapt, "range(steps)", "range(steps + (steps > 1))"),
        Edit(fedavg.adapt, "range(steps)", "range(steps + 1)"),
    ),
    "the support is used as the query": row(
        "fedmeta MAML", "the outer gradient is on the query set (D′, D_val)",
        "no held-out rows: overfitting",
        Edit(fedmeta.maml_gradient, "model.grad(theta_u, Q)", "model.grad(theta_u, S)"),
        Edit(fedmeta.meta_sgd_gradient, "model.grad(theta_u, Q)", "model.grad(theta_u, S)"),
        Edit(fedmaml.meta_gradient, "model.grad(theta_star, val)", "model.grad(theta_star, tr)"),
        *edit_adapted_gradient("model.grad(w - alpha * model.grad(w, D), D)"),
    ),
    "the query is used as the support": row(
        "fedmeta MAML", "the inner step is on the support set (D, D_tr)",
        "adapted to what is scored",
        Edit(fedmeta.maml_gradient, "(*thetas, theta_u), _", "S = Q\n(*thetas, theta_u), _"),
        Edit(fedmeta.meta_sgd_gradient, "(*thetas, theta_u), gs", "S = Q\n(*thetas, theta_u), gs"),
        Edit(fedmaml.meta_gradient, "path = [theta]", "tr = val\npath = [theta]"),
        *edit_adapted_gradient("model.grad(w - alpha * model.grad(w, D1), D1)"),
    ),
    "support and query are exchanged": row(
        "fedmeta MAML", "the inner step is on the support set, the outer on the query",
        "adapted to many rows, scored on few",
        Edit(fedmeta.maml_gradient, "(*thetas, theta_u), _", "S, Q = Q, S\n(*thetas, theta_u), _"),
        Edit(
            fedmeta.meta_sgd_gradient, "(*thetas, theta_u), gs",
            "S, Q = Q, S\n(*thetas, theta_u), gs",
        ),
        Edit(fedmaml.meta_gradient, "path = [theta]", "tr, val = val, tr\npath = [theta]"),
        *edit_adapted_gradient("model.grad(w - alpha * model.grad(w, D1), D)"),
    ),
    "the Hessian is taken on D′, not on D″": row(
        "per-fedavg eq.6", "eq.6 has H(w; D″)u, D″ independent of D′", "a biased second-order term",
        Edit(per_fedavg.meta_gradient, "model.hvp(w, u, D2)", "model.hvp(w, u, D1)"),
        Edit(per_fedavg.meta_gradient_hf, HF, HF.replace("D2", "D1")),
        kind=VARIANT,
    ),
    "the Hessian is taken on the query": row(
        "fedmeta MAML", "the inner step is on the support, so its Hessian is, too",
        "a wrong second-order term",
        Edit(fedmeta.maml_gradient, META, META.replace("S)", "Q)")),
        Edit(fedmeta.meta_sgd_gradient, META, META.replace("S)", "Q)")),
        Edit(fedmaml.meta_gradient, MAML, MAML.replace("tr)", "val)")),
    ),
    "the Hessian is applied to g, not to u": wrong_line(
        "per-fedavg eq.6", "H multiplies the gradient at the adapted point",
        "a wrong second-order term",
        per_fedavg.meta_gradient, "model.hvp(w, u, D2)", "model.hvp(w, model.grad(w, D), D2)",
    ),
    "the outer step starts from the adapted w": wrong_line(
        "per-fedavg eq.5", "w ← w − βF from w, not from w − αg", "an inner step is taken as well",
        per_fedavg.PerFedAvg.step, "return local_step(local,",
        "return local_step(local - self.alpha * model.grad(local, batches[0]),",
    ),
    "HF: a forward difference": row(
        "per-fedavg eq.8", "the difference is central", "an error of the order of δ, not of δ²",
        Edit(
            per_fedavg.meta_gradient_hf, HF,
            "d = (model.grad(w + delta * u, D2) - model.grad(w, D2)) / delta",
        ),
        Edit(reference._hf, "g, u, plus, minus = r.gave", "g, u, plus, minus = r.gave[:4]"),
    ),
    "HF: a forward difference, divided by 2δ": wrong_line(
        "per-fedavg eq.8", "the difference is central", "half the Hessian",
        per_fedavg.meta_gradient_hf, HF,
        "d = (model.grad(w + delta * u, D2) - model.grad(w, D2)) / (2 * delta)",
    ),
    "HF: along the unit vector": wrong_line(
        "per-fedavg eq.8", "the points are w ± δu", "the second-order term is scaled by 1/‖u‖",
        per_fedavg.meta_gradient_hf, HF,
        "v = u / np.linalg.norm(u, axis=-1, keepdims=True)\n"
        + HF.replace("delta * u", "delta * v"),
    ),
    "HF: δ divided by ‖u‖": wrong_line(
        "per-fedavg eq.8", "the points are w ± δu", "another accuracy of the difference",
        per_fedavg.meta_gradient_hf, HF,
        "delta = delta / np.linalg.norm(u, axis=-1, keepdims=True)\n" + HF,
        kind=VARIANT,
    ),
    "Reptile in the place of first-order MAML": row(
        "fedmeta MAML", "first-order MAML sends the gradient on the query at θ_u",
        "the query is never seen",
        Edit(
            fedmeta.maml_gradient, "q = model.grad(theta_u, Q)",
            "q = theta - theta_u + 0 * model.grad(theta_u, Q)",
        ),
        Edit(fedmeta.maml_gradient, META, "pass"),
    ),
    "Reptile, divided by α": row(
        "fedmeta MAML", "first-order MAML sends the gradient on the query at θ_u",
        "the query is never seen",
        Edit(
            fedmeta.maml_gradient, "q = model.grad(theta_u, Q)",
            "q = (theta - theta_u) / alpha + 0 * model.grad(theta_u, Q)",
        ),
        Edit(fedmeta.maml_gradient, META, "pass"),
    ),
    "the α-gradient has the wrong sign": wrong_line(
        "fedmeta Meta-SGD", "∂/∂α is −q ⊙ g(θ; S)", "step sizes move the wrong way",
        fedmeta.meta_sgd_gradient, "g_alpha - q * g_j", "g_alpha + q * g_j",
    ),
    "the α-gradient is zero": wrong_line(
        "fedmeta Meta-SGD", "∂/∂α is −q ⊙ g(θ; S)", "step sizes are not learned: this is MAML",
        fedmeta.meta_sgd_gradient, "g_alpha - q * g_j", "g_alpha",
    ),
    "the α-gradient lacks q": wrong_line(
        "fedmeta Meta-SGD", "∂/∂α is −q ⊙ g(θ; S)",
        "step sizes only grow where the slope is negative",
        fedmeta.meta_sgd_gradient, "g_alpha - q * g_j", "g_alpha - g_j",
    ),
    "the α-gradient is one number": wrong_line(
        "fedmeta Meta-SGD", "α is a vector: one step size for each parameter",
        "one learned step size",
        fedmeta.meta_sgd_gradient, "return q, g_alpha",
        "return q, np.broadcast_to(g_alpha.sum(-1, keepdims=True), q.shape).copy()",
        kind=VARIANT,
    ),
    "the α-gradient uses θ's gradient after the inner step": row(
        "fedmeta Meta-SGD", "q is the gradient at θ_u, before it goes through the inner step",
        "a wrong gradient in α",
        Edit(fedmeta.meta_sgd_gradient, "g_alpha = g_alpha - q * g_j", "q_before = q"),
        Edit(fedmeta.meta_sgd_gradient, META, META + "\ng_alpha = g_alpha - q * g_j"),
    ),
    "α is applied after the Hessian": wrong_line(
        "fedmeta Meta-SGD", "the transpose of I − diag(α)H is I − H diag(α): first α, then H",
        "a wrong second-order term",
        fedmeta.meta_sgd_gradient, META, "q = q - alpha * model.hvp(theta_j, q, S)",
    ),
    "an episode's gradients are averaged, not summed": row(
        "fedmeta MAML", "a client sends the sum of its episodes' gradients",
        "steps shrink with the episodes",
        Edit(
            fedmeta.MAML.step,
            "return tree.map(lambda x, g: x - self.beta * g, local[0], g), tree.map(np.add, local[1], g)",
            "object.__setattr__(self, 'n', getattr(self, 'n', 0) + 1)\n"
            "return tree.map(lambda x, g: x - self.beta * g, local[0], g), tree.map(np.add, local[1], g)",
        ),
        Edit(fedmeta.MAML.start, "return sent,", "object.__setattr__(self, 'n', 0)\nreturn sent,"),
        Edit(
            fedmeta.MAML.finish, "ClientResult(local[1])",
            "ClientResult(tree.map(lambda g: g / max(self.n, 1), local[1]))",
        ),
        kind=VARIANT,
    ),
    "only the last episode's gradient is sent": wrong_line(
        "fedmeta MAML", "a client sends the sum of its episodes' gradients", "all but one are lost",
        fedmeta.MAML.step, "tree.map(np.add, local[1], g)", "g",
    ),
    "θ does not move between episodes": wrong_line(
        "fedmeta MAML", "the client's learner moves from episode to episode",
        "a large batch instead",
        fedmeta.MAML.step, "x - self.beta * g", "x - 0 * g",
        kind=VARIANT,
    ),
    "θ* is sent unadapted": wrong_line(
        "fedmaml §4.3", "θ′ is the mean of the adapted models", "θ′ is θ",
        fedmaml.meta_gradient, "return g, theta_star", "return g, theta",
    ),
    "Fisher divided by n − 1": wrong_line(
        "fedcurv Fisher", "the Fisher is a mean over n samples", "small clients weigh more",
        fedcurv.FedCurv.finish, "fisher(model, theta, data())",
        "fisher(model, theta, data()) * (len(data().y) / max(len(data().y) - 1, 1))",
    ),
    "Fisher summed over samples": wrong_line(
        "fedcurv Fisher", "the Fisher is a mean over n samples", "the penalty grows with the data",
        fedcurv.FedCurv.finish, "fisher(model, theta, data())",
        "fisher(model, theta, data()) * len(data().y)",
    ),
    "Fisher at the model that was received": wrong_line(
        "fedcurv Fisher", "importance is measured at the client's own solution θ̂",
        "the penalty has the curvature of another point",
        fedcurv.FedCurv.finish, "fisher(model, theta, data())", "fisher(model, sent.w, data())",
    ),
    "Fisher of the first batch": wrong_line(
        "fedcurv Fisher", "the Fisher is a mean over all of a client's rows", "a noisy penalty",
        fedcurv.FedCurv.finish, "I = fisher(model, theta, data())",
        "D = data()\nI = fisher(model, theta, Batch(D.X[:B], D.y[:B]))",
    ),
    "Fisher without the square": wrong_line(
        "fedcurv Fisher", "the Fisher is a mean of squares", "importance may be negative",
        fedcurv.FedCurv.finish, "fisher(model, theta, data())", "model.grad(theta, data())",
    ),
    "Fisher as squares of batch gradients": wrong_line(
        "fedcurv Fisher", "squares of each sample's gradient are averaged, not of each batch's",
        "too small: gradients of a batch cancel",
        fedcurv.FedCurv.finish, "I = fisher(model, theta, data())",
        "D = data()\ncuts = [slice(i, i + B) for i in range(0, len(D.y), B)]\n"
        "I = sum(model.grad(theta, Batch(D.X[c], D.y[c])) ** 2 for c in cuts) / len(cuts)",
    ),
    "the own term is kept": wrong_line(
        "fedcurv penalty", "the sum is over the other clients j ≠ s", "a client is drawn to itself",
        fedcurv.FedCurv.start, "return Local(sent.w, client_state.I, client_state.v)",
        "return Local(sent.w, np.zeros_like(sent.w), np.zeros_like(sent.w))",
        kind=VARIANT,
    ),
    "FedCurv's penalty lacks its factor 2": wrong_line(
        "fedcurv penalty", "the gradient of λΣ(θ − θ̂)²I has a factor 2", "half the pull",
        fedcurv.penalty_gradient, "2 * lam", "lam",
    ),
    "FedCurv's penalty has the wrong sign": wrong_line(
        "fedcurv penalty", "2λ((u − u_s) ⊙ θ − (v − v_s)) is added", "clients are pushed apart",
        fedcurv.penalty_gradient, "2 * lam", "-2 * lam",
    ),
    "FedCurv's penalty is taken from the server's model": wrong_line(
        "fedcurv penalty", "each client is drawn to the others' solutions, not to the mean",
        "elastic weight consolidation at the mean",
        fedcurv.FedCurv.step,
        "pull = penalty_gradient(theta, sent.u, sent.v, own_u, own_v, lam=self.lam)",
        "pull = 2 * self.lam * (sent.u - own_u) * (theta - sent.w)",
        kind=VARIANT,
    ),
    "FedCurv's penalty is missing": wrong_line(
        "fedcurv penalty", "the penalty's gradient is added in every step", "FedCurv is FedAvg",
        fedcurv.FedCurv.step, "model.grad(theta, D) + pull", "model.grad(theta, D) + 0 * pull",
    ),
    "FedCurv sends θ̂, not I ⊙ θ̂": wrong_line(
        "fedcurv penalty", "v is the sum of I_j ⊙ θ̂_j", "drawn to a wrong point",
        fedcurv.FedCurv.combine, "weighted_sum(ones, I * theta)", "weighted_sum(ones, theta)",
    ),
    "APFL's penalty has the wrong sign": wrong_line(
        "apfl eq.6", "μF ⊙ (w_S − wᵗ_S) is added", "what is important is forgotten first",
        apfl.penalty_gradient, "mu * F", "-mu * F",
    ),
    "APFL's penalty with μ/2": wrong_line(
        "apfl eq.6", "the gradient of (μ/2)F(w_S − wᵗ_S)² has μ", "half the pull",
        apfl.penalty_gradient, "mu * F", "mu / 2 * F",
    ),
    "APFL's penalty with 2μ": wrong_line(
        "apfl eq.6", "the gradient of (μ/2)F(w_S − wᵗ_S)² has μ", "twice the pull",
        apfl.penalty_gradient, "mu * F", "2 * mu * F",
    ),
    "APFL's penalty ignores the importance": wrong_line(
        "apfl eq.6", "μF ⊙ (w_S − wᵗ_S)", "all parameters are held alike",
        apfl.penalty_gradient, "mu * F", "mu * (0 * F + 1)",
    ),
    "APFL's penalty is missing": wrong_line(
        "apfl eq.6", "μF ⊙ (w_S − wᵗ_S) is added in every step", "nothing is consolidated",
        apfl.penalty_gradient, "mu * F", "0 * F",
    ),
    "APFL's importance at the wrong w": wrong_line(
        "apfl eq.5", "the importance is the gradient's square at the model that was received",
        "importance of another point",
        apfl.APFL.finish, "(model, sent.w, data())", "(model, local.w_s, data())",
    ),
    "APFL's importance without the square": wrong_line(
        "apfl eq.5", "I is the square of the gradient", "importance may be negative",
        importance.gradient_square, " ** 2", "",
    ),
    "APFL's importance does not decay": wrong_line(
        "apfl eq.5", "F ← λF + Σ p_k I_k", "importance piles up",
        apfl.importance_update, "lam * F_old", "F_old",
    ),
    "APFL's importance forgets the old": wrong_line(
        "apfl eq.5", "F ← λF + Σ p_k I_k", "only the last renewal counts",
        apfl.importance_update, "lam * F_old", "0 * F_old",
    ),
    "APFL's importance as a moving average": wrong_line(
        "apfl eq.5", "F ← λF + Σ p_k I_k, without the factor 1 − λ", "importance is scaled",
        apfl.importance_update, "weighted_sum(p, importances)",
        "(1 - lam) * weighted_sum(p, importances)",
        kind=VARIANT,
    ),
    "APFL's mask is not squashed": wrong_line(
        "apfl eq.3", "m_k = σ(a)", "a mask of any size",
        apfl.compose, "sigmoid(a)", "a",
    ),
    "APFL's mask counts once more in w_k": wrong_line(
        "apfl eq.3", "∂L/∂w_k = G: w_k is not masked", "own parameters learn slowly",
        apfl.gradients, "sum_over_units(model, G * w_s), G",
        "sum_over_units(model, G * w_s), G * expand_units(model, m)",
    ),
    "APFL's w_S learns without the mask": wrong_line(
        "apfl eq.3", "∂L/∂w_S = G ⊙ m", "shared parameters learn too fast",
        apfl.gradients, "return G * expand_units(model, m),", "return G,",
    ),
    "APFL's mask learns without σ′": wrong_line(
        "apfl eq.3", "∂L/∂a = σ′(a) Σ G ⊙ w_S", "the mask learns too fast",
        apfl.gradients, "m * (1 - m) * sum_over", "sum_over",
    ),
    "APFL starts a round too late": wrong_line(
        "apfl alg.1 line 21", "the decomposition starts at t = z", "one round later",
        apfl.APFL.start, "sent.t >= self.z", "sent.t > self.z",
    ),
    "APFL starts a round too early": wrong_line(
        "apfl alg.1 line 21", "the decomposition starts at t = z", "one round earlier",
        apfl.APFL.start, "sent.t >= self.z", "sent.t + 1 >= self.z",
    ),
    "APFL's own parameters start at 0": wrong_line(
        "apfl alg.1 line 22", "w_k starts at w_S (or so that w does not jump)", "another start",
        apfl.APFL.start, "sent.w * share)", "sent.w * 0)",
        kind=VARIANT,
    ),
    "the window's deviation with n − 1": wrong_line(
        "apfl §3.3", "the deviation of the window is that of its n losses",
        "plateaus are seen later",
        apfl.PlateauDetector.push, "np.std(window)", "np.std(window, ddof=1)",
        kind=CONVENTION,
    ),
}  # fmt: skip

SERVERS = {
    "the server sums the models": wrong_line(
        "apfl eq.1", "p_k sum to 1", "parameters grow with the cohort",
        Cohort.weights, "share / share.sum()", "share / share.sum() * len(share)",
    ),
    "FedAvg averaged uniformly": wrong_line(
        "apfl eq.1", "p_k is n_k over the cohort's samples", "small clients count as large ones",
        Algorithm.combine, "cohort.weights(self.weighting)",
        'cohort.weights("uniform" if type(self).__name__ in ("FedAvg", "Centralised") '
        "else self.weighting)",
        kind=VARIANT,
    ),
    "Per-FedAvg weighted by sample counts": wrong_line(
        "per-fedavg alg.1", "the server divides by the number of clients",
        "large clients count more",
        Algorithm.combine, "cohort.weights(self.weighting)",
        'cohort.weights("samples" if type(self).__name__.startswith("PerFedAvg") else self.weighting)',
        kind=VARIANT,
    ),
    "a client that was drawn twice counts once": wrong_line(
        "fedprox alg.2", "with draws by p_k a client counts as often as it was drawn",
        "large clients count too little",
        Cohort.weights, "self.counts * (", "np.ones_like(self.counts) * (",
    ),
    "weights go with the squares of n": wrong_line(
        "fedprox alg.2", "clients drawn by n_k are averaged evenly, others by n_k: not both",
        "large clients dominate",
        Cohort.weights, "(self.n if", "(self.n**2 if",
    ),
    "weights over all clients": wrong_line(
        "apfl eq.1", "p_k is over the cohort's samples, not over those of all clients",
        "the model shrinks when not everybody takes part",
        loop.run_round, "uploads = tree.stack(",
        "total = federation.train.offsets[-1]\n"
        "shrink = (cohort.n * cohort.counts).sum() / total\n"
        'Partial = type("Partial", (Cohort,), {"weights": lambda self, how: Cohort.weights(self, how)\n'
        '    * (shrink if how == "samples" else cohort.counts.sum() / cohort.N)})\n'
        "cohort = Partial(*cohort)\nuploads = tree.stack(",
    ),
    "a dropped straggler counts in the mean": wrong_line(
        "fedprox alg.2", "weights are over those that take part",
        "the model shrinks with every straggler",
        loop.run_round, "uploads = tree.stack(",
        "every = Cohort(plan.clients, plan.counts, plan.sizes, federation.clients)\n"
        'Partial = type("Partial", (Cohort,), {"weights": lambda self, how:\n'
        "    Cohort.weights(every, how)[keep]})\n"
        "cohort = Partial(*cohort)\nuploads = tree.stack(",
    ),
    "the clients' mean is added to the server's model": wrong_line(
        "apfl eq.1", "clients send models; only differences are added",
        "parameters double every round",
        Algorithm.combine, "return Server(w)", "return Server(server.w + w)",
    ),
    "the server's model takes part in the mean": wrong_line(
        "apfl eq.1", "the mean is over the clients' models", "steps shrink",
        Algorithm.combine, "return Server(w)",
        "return Server((len(uploads) * w + server.w) / (len(uploads) + 1))",
    ),
    "the server climbs": row(
        "fedmeta server", "x ← x − βg", "the loss rises",
        Edit(fedmeta.server_step, "x - beta * g,", "x + beta * g,"),
        Edit(fedmeta.server_step, ADAM_STEP, ADAM_STEP.replace("x - beta", "x + beta")),
        Edit(fedmaml.meta_update, "theta - beta", "theta + beta"),
    ),
    "the server steps by α": row(
        "fedmeta server", "the server's step is β", "steps of the inner size",
        Edit(fedmeta.MAML.combine, "beta=self.beta", "beta=self.alpha"),
        Edit(fedmaml.FedMAML.combine, "beta=self.beta", "beta=self.alpha"),
    ),
    "the server's step lacks β": row(
        "fedmeta server", "x ← x − βg", "steps are 1/β times too long",
        Edit(fedmeta.server_step, "x - beta * g,", "x - g,"),
        Edit(fedmaml.meta_update, "theta - beta *", "theta -"),
    ),
    "α is not updated": wrong_line(
        "fedmeta Meta-SGD", "the server moves θ and α", "step sizes are not learned",
        fedmeta.server_step, "return tree.map(lambda x, g: x - beta * g, learner, g), None",
        "moved = tree.map(lambda x, g: x - beta * g, learner, g)\n"
        "return moved._replace(alpha=learner.alpha), None",
    ),
    "Adam is off by one": row(
        "Adam c₁", "the first step has t = 1", "the first steps are too short",
        Edit(fedmeta.server_step, "t = adam.t + 1", "t = adam.t + 2"),
        Edit(fedmeta.server_step, "Adam(m, v, t)", "Adam(m, v, adam.t + 1)"),
    ),
    "Adam's count of steps stands still": wrong_line(
        "Adam c₁", "t counts all steps of the run", "corrected as in the first step, always",
        fedmeta.server_step, "t = adam.t + 1", "t = 1",
    ),
    "Adam's ε inside the root": wrong_line(
        "Adam step", "ε is added to the root, not under it", "small gradients move less",
        fedmeta.server_step, "(np.sqrt(v / c2) + 1e-8)", "np.sqrt(v / c2 + 1e-8)",
        kind=VARIANT,
    ),
    "Adam's ε before the correction": wrong_line(
        "Adam step", "ε is added to sqrt(v / c₂), not to sqrt(v)", "the first steps are off by ε",
        fedmeta.server_step, "(np.sqrt(v / c2) + 1e-8)", "((np.sqrt(v) + 1e-8) / np.sqrt(c2))",
        kind=VARIANT,
    ),
    "Adam's ε is 10⁻⁷": wrong_line(
        "Adam step", "ε is 10⁻⁸, not Keras's 10⁻⁷", "steps are off by ε",
        fedmeta.server_step, "1e-8", "1e-7",
        kind=VARIANT,
    ),
    "Adam without ε": wrong_line(
        "Adam step", "ε is 10⁻⁸", "steps are off by ε; 0/0 where nothing moved",
        fedmeta.server_step, " + 1e-8", "",
    ),
    "Adam without bias correction": wrong_line(
        "Adam c₁", "m and v are divided by 1 − βᵗ", "the first steps are wrong in size",
        fedmeta.server_step, "c1, c2 = 1 - 0.9**t, 1 - 0.999**t", "c1, c2 = 1.0, 1.0",
        kind=VARIANT,
    ),
    "Adam's bias correction in float32": wrong_line(
        "Adam c₁", "1 − βᵗ in the dtype of the run", "7 digits, whatever the dtype",
        fedmeta.server_step, "c1, c2 = 1 - 0.9**t, 1 - 0.999**t",
        "one, t32 = np.float32(1), np.float32(t)\n"
        "c1 = float(one - np.float32(0.9) ** t32)\nc2 = float(one - np.float32(0.999) ** t32)",
    ),
    "Adam's β₁ and β₂ are exchanged": row(
        "Adam m", "β₁ = 0.9 is m's, β₂ = 0.999 is v's", "a slow m and a fast v",
        Edit(fedmeta.server_step, "0.9 * m + 0.1 * g", "0.999 * m + 0.001 * g"),
        Edit(fedmeta.server_step, "0.999 * v + 0.001 * g * g", "0.9 * v + 0.1 * g * g"),
        Edit(fedmeta.server_step, "1 - 0.9**t, 1 - 0.999**t", "1 - 0.999**t, 1 - 0.9**t"),
    ),
    "Adam's β₂ is 0.99": row(
        "Adam v", "β₂ is 0.999", "v forgets sooner",
        Edit(fedmeta.server_step, "0.999 * v + 0.001 * g * g", "0.99 * v + 0.01 * g * g"),
        Edit(fedmeta.server_step, "1 - 0.999**t", "1 - 0.99**t"),
        kind=VARIANT,
    ),
    "AMSGrad or SGD: no root of v": wrong_line(
        "Adam step", "m is divided by the root of v", "steps of another size",
        fedmeta.server_step, "np.sqrt(v / c2)", "(v / c2)",
    ),
    "θ′ weights all clients alike": wrong_line(
        "fedmaml §4.3", "a client that was drawn twice counts twice in θ′", "another candidate",
        fedmaml.candidate, "counts / counts.sum()", "np.ones(len(counts)) / len(counts)",
    ),
    "FedMAML weighted by sample counts": wrong_line(
        "fedmaml §3.2", "the server's meta-update sums over clients, as printed",
        "large clients dominate",
        fedmaml.FedMAML.combine, "counts = cohort.counts", 'counts = cohort.weights("samples")',
        kind=VARIANT,
    ),
    "FedCurv averages u and v": wrong_line(
        "fedcurv penalty", "u and v are sums over clients", "the penalty is 1/K times too weak",
        fedcurv.FedCurv.combine, "ones = np.ones(len(theta))",
        "ones = np.ones(len(theta)) / len(theta)",
    ),
    "FedCurv weights u and v by p_k": wrong_line(
        "fedcurv penalty", "u and v are sums over clients",
        "small clients' solutions are forgotten",
        fedcurv.FedCurv.combine, "ones = np.ones(len(theta))",
        "ones = cohort.weights(self.weighting)",
    ),
    "FedCurv's u and v pile up": row(
        "fedcurv penalty", "u and v are those of the last round", "old solutions hold for ever",
        Edit(
            fedcurv.FedCurv.combine, "weighted_sum(ones, I),", "server.u + weighted_sum(ones, I),",
        ),
        Edit(
            fedcurv.FedCurv.combine, "weighted_sum(ones, I * theta)",
            "server.v + weighted_sum(ones, I * theta)",
        ),
    ),
    "APFL's importance is averaged uniformly": wrong_line(
        "apfl eq.5", "Σ p_k I_k with p_k = n_k/n", "small clients count as large ones",
        apfl.APFL.combine, "importance_update(F, uploads.importance, p,",
        'importance_update(F, uploads.importance, cohort.weights("uniform"),',
    ),
}  # fmt: skip

PLANS = {
    "batches of one row are skipped": row(
        "plan", "a batch of one row is a batch",
        "clients lose rows, and those with one row do not move",
        stand_in=OtherPlan(change=stand_ins.keep_steps(lambda n, B, rows: rows != 1)), kind=CONVENTION,
    ),
    "clients with n ≤ 2B do not move but vote": row(
        "plan", "a client with few rows uses all of them", "small clients hold the model back",
        stand_in=OtherPlan(change=stand_ins.keep_steps(lambda n, B, rows: n > 2 * B)),
    ),
    "padding reads the last row": row(
        "plan", "−1 is padding, not Python's last index", "the last row counts too often",
        stand_in=OtherPlan(change=stand_ins.change_rows(lambda x, n: np.where(x < 0, n - 1, x))),
    ),
    "padding reads the first row": row(
        "plan", "−1 is padding, not a row", "the first row counts too often",
        stand_in=OtherPlan(change=stand_ins.change_rows(lambda x, n: np.where(x < 0, 0, x))),
    ),
    "the same permutation in every epoch": row(
        "plan", "every epoch has a permutation of its own", "batches repeat",
        stand_in=OtherPlan(change=stand_ins.repeat_the_first_epoch),
    ),
    "one epoch whatever is asked": row(
        "plan", "all of the plan's epochs are done", "less work",
        stand_in=OtherPlan(change=stand_ins.take_one_epoch),
    ),
    "the last step is left out": row(
        "plan", "all of the plan's steps are done", "less work",
        stand_in=OtherPlan(change=stand_ins.leave_out_a_step),
    ),
    "padded steps are taken": row(
        "plan", 'a client does plan["steps"] steps: a step without rows moves along the L2 term',
        "small clients shrink",
        stand_in=OtherPlan(change=stand_ins.take_padded_steps),
    ),
    "a straggler does all steps": row(
        "plan", 'a straggler does plan["steps"] steps', "no partial work",
        stand_in=OtherPlan(change=stand_ins.cycle_all_steps),
    ),
    "steps on all of the client's rows": row(
        "plan", "a step is on a mini-batch", "gradient descent, not SGD",
        stand_in=OtherPlan(change=stand_ins.use_whole_data),
    ),
    "the plan's batches are taken in another order": row(
        "plan", "local steps are in the plan's order", "another path",
        stand_in=OtherPlan(change=stand_ins.reverse_steps),
    ),
    "stragglers are dropped": wrong_line(
        "fedprox alg.2", "FedProx aggregates the partial work of stragglers", "their data are lost",
        loop.participants, "if algorithm.drop else", "if True else",
        kind=VARIANT,
    ),
    "stragglers are kept": wrong_line(
        "fedprox alg.2", "FedAvg drops stragglers", "partial work counts",
        loop.participants, "if algorithm.drop else", "if False else",
        kind=VARIANT,
    ),
    "a client starts where the one before has ended": row(
        "apfl eq.1", "every client starts from the server's model: copy it",
        "clients train one after the other",
        stand_in=Reference(stand_ins.run_leaking(stand_ins.leak_model)),
    ),
    "a client's state leaks to the next": row(
        "fedcurv penalty", "what a client keeps is its own", "one client's state in another's",
        stand_in=Reference(stand_ins.run_leaking(stand_ins.leak_state)),
    ),
    "a client's state is lost": wrong_line(
        "apfl alg.1", "a client keeps its state between rounds", "every round is its first",
        Reference.round, 'state.get("clients", {})', "{}",
    ),
    "a client's state is never renewed": wrong_line(
        "apfl alg.1", "a client keeps its state of its last round", "the state of its first round",
        Reference.round, "for k, own in after.clients.items()}",
        'for k, own in after.clients.items()} | state.get("clients", {})',
    ),
}  # fmt: skip

EVALUATIONS = {
    "tested without adaptation": wrong_line(
        "apfl eq.2", "a client adapts before it is tested", "the server's model is tested",
        Reference.evaluate, "return {",
        "w = it.personalised_params(made, sent, None, None)\nreturn {",
    ),
    "adapted by β": wrong_line(
        "apfl eq.2", "adaptation has the inner step size α", "steps of another size",
        Reference.evaluate, "it, made = self.algorithm_of(algorithm, hyper), ",
        'it, made = self.algorithm_of(algorithm, hyper | {"alpha": hyper.get("beta", 0)}), ',
    ),
    "adapted by the learning rate": wrong_line(
        "apfl eq.2", "adaptation has the inner step size α", "steps of another size",
        Reference.evaluate, "it, made = self.algorithm_of(algorithm, hyper), ",
        'it, made = self.algorithm_of(algorithm, hyper | {"alpha": hyper["lr"]}'
        ' if "lr" in hyper else hyper), ',
    ),
    "adaptation climbs": row(
        "apfl eq.2", "w − αg", "adaptation goes uphill",
        Edit(fedavg.adapt, "lr=alpha", "lr=-alpha"),
        Edit(fedmeta.MAML.personalised_params, "alpha=alpha", "alpha=-alpha"),
        Edit(fedmaml.FedMAML.personalised_params, "alpha=self.alpha", "alpha=-self.alpha"),
    ),
    "Meta-SGD adapts by the first α": wrong_line(
        "fedmeta Meta-SGD", "adaptation has the learned α of the server",
        "what was learned is not used",
        fedmeta.MAML.personalised_params, "if sent.alpha is None else sent.alpha",
        "if True else sent.alpha",
    ),
    "test losses are summed": wrong_line(
        "apfl eq.2", "a test loss is the mean over the batch", "grows with the batch",
        Reference._scores, "x.mean()", "x.sum()",
    ),
    "the test loss has the L2 term": wrong_line(
        "apfl eq.2", "a test loss is without the L2 term", "too large by (l2/2)‖w‖²",
        Reference._scores, "model.sample_losses", "model.loss",
        kind=CONVENTION,
    ),
}  # fmt: skip

#: Deng's APFL: the mixture v̄ is kept in the place of v.
MIXTURE_IS_STORED = Edit(
    apfl_deng.APFLDeng.finish, "ClientState(local.v, local.a)",
    "ClientState(mix(local.v, local.w, local.a), local.a)",
)  # fmt: skip

LATER = {
    "SCAFFOLD's c_i is never kept": wrong_line(
        "scaffold alg.1", "a client keeps c_i⁺ as its c_i",
        "c_i = 0 in every round: half of the correction",
        scaffold.Scaffold.start, "client_state.c_i", "0 * client_state.c_i",
    ),
    "SCAFFOLD's c_i⁺ is sent in the place of Δc_i": wrong_line(
        "scaffold alg.1", "a client sends Δc_i = c_i⁺ − c_i", "c drifts",
        scaffold.Scaffold.finish, "Upload(y - x, new - c_i)", "Upload(y - x, new)",
    ),
    "SCAFFOLD's c without |S|/N": wrong_line(
        "scaffold alg.1", "c ← c + (1/N) Σ Δc_i over the cohort", "c moves N/|S| times too far",
        scaffold.Scaffold.combine, "/ cohort.N", "/ len(cohort.clients)",
    ),
    "SCAFFOLD's c is summed": wrong_line(
        "scaffold alg.1", "c ← c + (1/N) Σ Δc_i over the cohort", "c moves N times too far",
        scaffold.Scaffold.combine, "/ cohort.N", "",
    ),
    "SCAFFOLD's K counts epochs": wrong_line(
        "scaffold alg.1", "K is the number of local steps",
        "c_i is too large by the batches of an epoch",
        scaffold.Scaffold.finish, "K=int(K)", "K=max(int(K) // max(-(-len(data().y) // B), 1), 1)",
    ),
    "SCAFFOLD's correction has the wrong sign": wrong_line(
        "scaffold alg.1", "g − c_i + c", "client drift doubles",
        scaffold.corrected_gradient, "- c_i + c", "+ c_i - c",
    ),
    "SCAFFOLD's correction is missing": wrong_line(
        "scaffold alg.1", "g − c_i + c", "SCAFFOLD is FedAvg",
        scaffold.corrected_gradient, "- c_i + c", "+ 0 * c",
    ),
    "SCAFFOLD's c_i⁺ without c": wrong_line(
        "scaffold alg.1", "c_i⁺ = c_i − c + (x − y)/(Kη)", "c_i holds c as well",
        scaffold.difference, "c_i - c + (x - y)", "c_i + (x - y)",
    ),
    "SCAFFOLD's c_i⁺ has y − x": wrong_line(
        "scaffold alg.1", "c_i⁺ = c_i − c + (x − y)/(Kη)", "c_i has the wrong sign",
        scaffold.difference, "(x - y)", "(y - x)",
    ),
    "SCAFFOLD's c_i⁺ without K": wrong_line(
        "scaffold alg.1", "c_i⁺ = c_i − c + (x − y)/(Kη)", "c_i is a sum of gradients, not their mean",
        scaffold.difference, "(K * lr)", "lr",
    ),
    "SCAFFOLD's c_i⁺ without η": wrong_line(
        "scaffold alg.1", "c_i⁺ = c_i − c + (x − y)/(Kη)", "c_i is a change of w, not a gradient",
        scaffold.difference, "(K * lr)", "K",
    ),
    "SCAFFOLD without the server's step size": wrong_line(
        "scaffold alg.1", "x ← x + η_g mean Δy", "steps of another size",
        scaffold.Scaffold.combine, "self.server_lr * ", "",
    ),
    "SCAFFOLD weighted by sample counts": wrong_line(
        "scaffold alg.1", "the server divides by |S|", "large clients count more",
        scaffold.Scaffold.combine, "cohort.weights(self.weighting)", 'cohort.weights("samples")',
        kind=VARIANT,
    ),
    "FedDyn's αθ is missing": wrong_line(
        "feddyn objective", "∇L − h_k + α(θ − θᵗ): α(θ − θᵗ) has αθ",
        "only a constant pull is left",
        feddyn.gradient, "alpha * (w - w0)", "alpha * (0 * w - w0)",
    ),
    "FedDyn's αθᵗ is missing": wrong_line(
        "feddyn objective", "∇L − h_k + α(θ − θᵗ)", "clients are pulled to 0",
        feddyn.gradient, "alpha * (w - w0)", "alpha * w",
    ),
    "FedDyn's quadratic term is missing": wrong_line(
        "feddyn objective", "∇L − h_k + α(θ − θᵗ)", "clients drift",
        feddyn.gradient, " + alpha * (w - w0)", "",
    ),
    "FedDyn's clients take FedAvg's steps": wrong_line(
        "feddyn objective", "∇L − h_k + α(θ − θᵗ)", "h_k and α do not reach the clients",
        feddyn.gradient, " - h_k + alpha * (w - w0)", "",
    ),
    "FedDyn's linear term has the wrong sign": wrong_line(
        "feddyn objective", "∇L − h_k + α(θ − θᵗ)", "the regulariser leads away",
        feddyn.gradient, "- h_k", "+ h_k",
    ),
    "FedDyn's h_k has the wrong sign": wrong_line(
        "feddyn alg.1", "h_k ← h_k − α(θ_k − θᵗ)", "the regulariser leads away",
        feddyn.renewed_gradient, "h_k - alpha", "h_k + alpha",
    ),
    "FedDyn's h_k forgets the old": wrong_line(
        "feddyn alg.1", "h_k ← h_k − α(θ_k − θᵗ)", "the regulariser does not follow",
        feddyn.renewed_gradient, "h_k - alpha", "-alpha",
    ),
    "FedDyn's h is divided by |S|": wrong_line(
        "feddyn alg.1", "h ← h − (α/N) Σ (θ_k − θᵗ), N all clients", "h moves N/|S| times too far",
        feddyn.FedDyn.combine, "self.alpha / cohort.N * way", "self.alpha / K * way",
    ),
    "FedDyn's server takes θ off once": wrong_line(
        "feddyn alg.1", "h ← h − (α/N) Σ (θ_k − θᵗ): θᵗ goes off each θ_k",
        "h grows by |S| − 1 times θᵗ",
        feddyn.FedDyn.combine, "- K * server.w", "- server.w",
    ),
    "FedDyn's server ignores h": wrong_line(
        "feddyn alg.1", "θ = mean θ_k − h/α", "the server only averages",
        feddyn.FedDyn.combine, " - h / self.alpha", "",
    ),
    "FedDyn's server adds h/α": wrong_line(
        "feddyn alg.1", "θ = mean θ_k − h/α", "the server leads away",
        feddyn.FedDyn.combine, " - h / self.alpha", " + h / self.alpha",
    ),
    "Deng's APFL without the factor α": wrong_line(
        "apfl-deng alg.1", "v's gradient is α g(v̄)", "v learns 1/α times too fast",
        apfl_deng.gradients, "return a[..., None] * g, g_a", "return g, g_a",
        kind=VARIANT,
    ),
    "Deng's APFL stores the mixture in v": row(
        "apfl-deng alg.1", "v is kept, v̄ = αv + (1 − α)w is only used", "v forgets",
        MIXTURE_IS_STORED,
        kind=VARIANT,
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
        kind=VARIANT,
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
        kind=VARIANT,
    ),
    "Deng's APFL: v starts at w in every round": wrong_line(
        "apfl-deng alg.1", "v stays with its client", "nothing personal is learnt",
        apfl_deng.APFLDeng.start, "client_state or (sent.w, self.alpha)", "sent.w, self.alpha",
    ),
    "Deng's APFL: v's gradient at v": wrong_line(
        "apfl-deng alg.1", "v's gradient is taken at v̄", "v ignores the global model",
        apfl_deng.gradients, "g = model.grad(mix(v, w, a), D)", "g = model.grad(v, D)",
    ),
    "Deng's APFL: α has the wrong sign": wrong_line(
        "apfl-deng α", "α ← α − η⟨v − w, g⟩", "α moves the wrong way",
        apfl_deng.gradients, "(v - w) * g", "(w - v) * g",
    ),
    "Deng's APFL: α is not adapted": wrong_line(
        "apfl-deng α", "α ← α − η⟨v − w, g⟩", "α stays",
        apfl_deng.APFLDeng.step, "a - self.lr * g_a", "a - 0 * g_a",
        kind=VARIANT,
    ),
    "Deng's APFL: α weighs w": wrong_line(
        "apfl-deng alg.1", "v̄ = αv + (1 − α)w", "the roles of α and 1 − α are exchanged",
        apfl_deng.mix, "a * v + (1 - a) * w", "(1 - a) * v + a * w",
    ),
    "FedOpt with Adam's corrected rate, a round ahead": wrong_line(
        "fedopt alg.2", "FedAdam has no bias correction", "smaller first steps",
        fedopt.FedAdam.combine, "self.server_lr * m",
        "self.server_lr * np.sqrt(1 - self.beta2**2) / (1 - self.beta1**2) * m",
        kind=VARIANT,
    ),
    "FedOpt with bias correction": wrong_line(
        "fedopt alg.2", "FedAdam has no bias correction", "larger first steps",
        fedopt.FedAdam.combine,
        "return FedOptServer(server.w + self.server_lr * m / (np.sqrt(v) + self.tau), m, v)",
        "first = not server.m.any()\n"
        "c1, c2 = (1 - self.beta1, 1 - self.beta2) if first else (1.0, 1.0)\n"
        "return FedOptServer(server.w + self.server_lr * m / c1 / (np.sqrt(v / c2) + self.tau), m, v)",
    ),
    "FedOpt's τ inside the root": wrong_line(
        "fedopt alg.2", "the step is m/(sqrt(v) + τ)", "small changes move less",
        fedopt.FedAdam.combine, "(np.sqrt(v) + self.tau)", "np.sqrt(v + self.tau)",
    ),
    "FedOpt's τ² inside the root": wrong_line(
        "fedopt alg.2", "the step is m/(sqrt(v) + τ)", "small changes move less",
        fedopt.FedAdam.combine, "(np.sqrt(v) + self.tau)", "np.sqrt(v + self.tau**2)",
    ),
    "FedOpt's Δ has the wrong sign": row(
        "fedopt alg.2", "Δ = mean w_k − wᵗ is added", "the server leads away",
        Edit(fedopt.FedAdam.combine, "uploads) - server.w", "uploads) * -1 + server.w"),
        Edit(fedopt.FedAvgM.combine, "uploads) - server.w", "uploads) * -1 + server.w"),
    ),
    "FedOpt's v starts at 0": wrong_line(
        "fedopt alg.2", "v₋₁ ≥ τ²", "larger first steps",
        fedopt.FedAdam.combine, "delta = weighted_mean",
        "server = server._replace(v=server.v * bool(server.m.any()))\ndelta = weighted_mean",
        kind=VARIANT,
    ),
    "FedOpt: m is Δ": wrong_line(
        "fedopt alg.2", "m ← β₁m + (1 − β₁)Δ", "no momentum",
        fedopt.FedAdam.combine, "m = self.beta1 * server.m + (1 - self.beta1) * delta", "m = delta",
    ),
    "FedOpt: m without 1 − β₁": wrong_line(
        "fedopt alg.2", "m ← β₁m + (1 − β₁)Δ", "steps 1/(1 − β₁) times too long",
        fedopt.FedAdam.combine, "(1 - self.beta1) * delta", "delta",
    ),
    "FedAdagrad decays v": wrong_line(
        "fedopt alg.2", "v ← v + Δ²", "FedAdagrad is FedAdam",
        fedopt.adagrad, "v + delta**2", "beta2 * v + (1 - beta2) * delta**2",
    ),
    "FedAvgM damps Δ": wrong_line(
        "fedopt fedavgm", "v ← βv + Δ", "steps 1/(1 − β) times too short",
        fedopt.FedAvgM.combine, "server.v + delta", "server.v + (1 - self.momentum) * delta",
        kind=VARIANT,
    ),
    "FedAvgM's momentum is Nesterov's": wrong_line(
        "fedopt fedavgm", "w ← w + v", "another momentum",
        fedopt.FedAvgM.combine, "server.w + v", "server.w + self.momentum * v + delta",
        kind=VARIANT,
    ),
    "FedNova's τ_eff is left out": wrong_line(
        "fednova alg.1", "w − τ_eff η Σ p_k d_k", "steps are τ_eff times too short",
        fednova.FedNova.combine, "tau_eff * self.lr", "self.lr",
    ),
    "FedNova does not normalise": wrong_line(
        "fednova alg.1", "d_k = (wᵗ − w_k)/(ητ_k)", "clients with many steps dominate",
        fednova.normalised_change, "(lr * tau)", "lr",
    ),
    "pFedMe's w is not restored": wrong_line(
        "pfedme alg.1", "w ← w − ηλ(w − θ̃): θ̃ is not kept as w", "w is the personal model",
        pfedme.PFedMe.step,
        "return local - self.lr * envelope_gradient(local, theta, lam=self.lam)", "return theta",
    ),
    "pFedMe's θ̃ starts its step in w's place": wrong_line(
        "pfedme alg.1", "w ← w − ηλ(w − θ̃)", "w is moved from θ̃",
        pfedme.PFedMe.step, "return local -", "return theta -",
    ),
    "pFedMe's envelope without λ": wrong_line(
        "pfedme alg.1", "∇F = λ(w − θ̃)", "steps 1/λ times too long",
        pfedme.envelope_gradient, "lam * (w - theta)", "w - theta",
    ),
    "pFedMe's envelope has the wrong sign": wrong_line(
        "pfedme alg.1", "∇F = λ(w − θ̃)", "w leaves the personal models",
        pfedme.envelope_gradient, "lam * (w - theta)", "lam * (theta - w)",
    ),
    "pFedMe without β": wrong_line(
        "pfedme alg.1", "w ← (1 − β)w + β mean w_k", "β is 1",
        pfedme.PFedMe.combine, "(1 - self.beta) * server.w + self.beta * mean", "mean",
    ),
}  # fmt: skip

FURTHER: dict[str, Mistake] = MODELS | CLIENTS | SERVERS | PLANS | EVALUATIONS | LATER
