"""The same losses, written anew in torch and in JAX: value, gradient and HVP by their autodiff.

Skipped where they are not installed: pip install 'fedref[peers]'.
"""

import warnings
from itertools import pairwise

import numpy as np
import pytest

from fedref import checks
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic
from fedref.models.batch import Batch

WHY = "needs torch and jax, for an independent opinion: pip install 'fedref[peers]'"
TOLERANCE = 1e-10

MODELS = {
    "binary": BinaryLogistic(11, l2=0.1),
    "binary, no bias": BinaryLogistic(11, bias=False),
    "logistic": Logistic(11, 5, l2=0.1),
    "hinge": LinearSVM(11, l2=0.1),
    "squared hinge": LinearSVM(11, l2=0.1, squared=True),
    "mlp elu": MLP(11, (8, 7), 5, l2=0.1),
    "mlp relu": MLP(11, (8, 7), 5, "relu"),
    "mlp tanh": MLP(11, (8, 7), 5, "tanh"),
    "cnn": CNN((16, 17, 3), (4, 5), 5, 8, 5, l2=0.1),
    "cnn elu": CNN((13, 12), (4, 5), 3, 8, 5, "elu"),
    "cnn tanh mean": CNN((13, 12, 2), (4, 5), 3, 8, 5, "tanh", "mean"),
    "cnn of the seed": CNN(),
    "lstm": LSTM(11, 5, 9, 3, (8,), l2=0.1),
    "lstm of two layers": LSTM(11, 5, 9, 3, (8, 7)),
    "lstm mean": LSTM(11, 5, 9, 3, (8,), "mean"),
    "lstm of the paper": LSTM(81, 80, 80),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def problem(model):
    rng = np.random.default_rng(0)
    B = 2 if model.d > 1e5 else 7
    w, v = rng.uniform(-1, 1, (2, model.d)) / (30 if model.d > 1e5 else 1)
    s = rng.uniform(0.5, 2, B)
    X = rng.standard_normal((B, model.features))
    if model.inputs == "codes":
        X = rng.integers(0, model.vocabulary, (B, model.length))
    return w, v, Batch(X, rng.choice(model.labels, B), s)


def cut(w, shapes):
    """w in pieces of these shapes; works for the arrays of any library."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return [w[end - int(np.prod(s)) : end].reshape(s) for end, s in zip(ends.tolist(), shapes)]


def agree(model, w, v, D, value, grad, hvp):
    loss = model.loss(w, D)
    assert abs(loss - value) <= TOLERANCE * abs(loss)
    assert checks.relative_error(model.grad(w, D), grad) <= TOLERANCE
    assert checks.relative_error(model.hvp(w, v, D), hvp) <= TOLERANCE


def importorskip(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, not ours
        return pytest.importorskip(name, reason=WHY)


@pytest.fixture(scope="module")
def torch():
    return importorskip("torch")


@pytest.fixture(scope="module")
def jax():
    jax = importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return jax


def torch_losses(torch, model, w, X, y):
    F = torch.nn.functional
    if isinstance(model, BinaryLogistic | LinearSVM):
        z = X @ w[: model.features]
        z = z + w[-1] if model.bias else z
        if isinstance(model, BinaryLogistic):
            return F.binary_cross_entropy_with_logits(z, y.to(z.dtype), reduction="none")
        m = F.relu(1 - y * z)
        return m**2 if model.squared else m
    if isinstance(model, Logistic):
        W, b = cut(w, [(model.features, model.classes), (model.classes,)])
        return F.cross_entropy(F.linear(X, W.T, b), y, reduction="none")
    if isinstance(model, LSTM):
        E, *layers, D, b = cut(w, model.shapes)
        a = E[X]
        for W, b_W in zip(layers[::2], layers[1::2]):
            n, H = a.shape[-1], len(b_W) // 4
            net = torch.nn.LSTM(n, H, batch_first=True, dtype=w.dtype)
            own = {"weight_ih_l0": W[:n].T, "weight_hh_l0": W[n:].T}
            own |= {"bias_ih_l0": b_W, "bias_hh_l0": torch.zeros_like(b_W)}
            a, _ = torch.func.functional_call(net, own, a)
        r = a[:, -1] if model.output == "last" else a.mean(1)
        return F.cross_entropy(r @ D + b, y, reduction="none")
    phi = getattr(F, model.activation)
    if isinstance(model, MLP):
        layers = cut(w, [s for p, q in pairwise(model.sizes) for s in ((p, q), (q,))])
        a = X
    else:
        pool = F.max_pool2d if model.pool == "max" else F.avg_pool2d
        H, W, c = (*model.image, 1)[:3]
        a = X.reshape(-1, H, W, c).permute(0, 3, 1, 2)  # torch wants channels first
        at, k = 0, model.kernel
        for C in model.channels:
            kernel, b = cut(w[at:], [(k, k, c, C), (C,)])
            a = pool(phi(F.conv2d(a, kernel.permute(3, 2, 0, 1), b)), 2)
            at, c = at + k * k * c * C + C, C
        a = a.permute(0, 2, 3, 1).flatten(1)
        shapes = [(a.shape[1], model.hidden), (model.hidden,)]
        layers = cut(w[at:], [*shapes, (model.hidden, model.classes), (model.classes,)])
    for W, b in zip(layers[:-2:2], layers[1:-2:2]):
        a = phi(F.linear(a, W.T, b))
    return F.cross_entropy(F.linear(a, layers[-2].T, layers[-1]), y, reduction="none")


@every_model
@pytest.mark.filterwarnings("ignore")
def test_torch(torch, model):
    w, v, D = problem(model)
    X, y, s = (torch.tensor(a) for a in D)

    def loss(w):
        losses = torch_losses(torch, model, w, X, y)
        return (s * losses).sum() / s.sum() + model.l2 / 2 * (w * w).sum()

    x = torch.tensor(w, requires_grad=True)
    value = loss(x)
    (grad,) = torch.autograd.grad(value, x, create_graph=True)
    hvp = np.zeros(model.d)
    if grad.requires_grad:  # a constant gradient has none
        (hvp,) = torch.autograd.grad(grad @ torch.tensor(v), x)
    agree(model, w, v, D, value.item(), grad.detach().numpy(), np.asarray(hvp))


def jax_losses(jax, model, w, X, y):
    jnp = jax.numpy
    if isinstance(model, BinaryLogistic | LinearSVM):
        z = X @ w[: model.features] + (w[-1] if model.bias else 0)
        if isinstance(model, BinaryLogistic):
            return -jnp.where(y == 1, jax.nn.log_sigmoid(z), jax.nn.log_sigmoid(-z))
        m = jnp.where(1 - y * z > 0, 1 - y * z, 0)
        return m**2 if model.squared else m
    rows = jnp.arange(len(y))
    if isinstance(model, Logistic):
        W, b = cut(w, [(model.features, model.classes), (model.classes,)])
        return -jax.nn.log_softmax(X @ W + b)[rows, y]
    if isinstance(model, LSTM):
        E, *layers, D, b = cut(w, model.shapes)
        a = E[X].swapaxes(0, 1)  # steps first
        for W, b_W in zip(layers[::2], layers[1::2]):

            def step(state, x, W=W, b_W=b_W):
                h, c = state
                i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ W + b_W, 4, -1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), h

            zero = jnp.zeros((len(y), len(b_W) // 4))
            _, a = jax.lax.scan(step, (zero, zero), a)
        r = a[-1] if model.output == "last" else a.mean(0)
        return -jax.nn.log_softmax(r @ D + b)[rows, y]
    phi = {"relu": jax.nn.relu, "elu": jax.nn.elu, "tanh": jnp.tanh}[model.activation]
    if isinstance(model, MLP):
        at, widths, a = 0, model.sizes, X
    else:
        H, W, c = (*model.image, 1)[:3]
        a = X.reshape(-1, H, W, c)
        at, k = 0, model.kernel
        for C in model.channels:
            kernel, b = cut(w[at:], [(k, k, c, C), (C,)])
            a = jax.lax.conv_general_dilated(
                a, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            a = phi(a + b)
            h, v = a.shape[1] // 2, a.shape[2] // 2
            a = a[:, : 2 * h, : 2 * v].reshape(len(y), h, 2, v, 2, C)
            a = a.max((2, 4)) if model.pool == "max" else a.mean((2, 4))
            at, c = at + k * k * c * C + C, C
        a = a.reshape(len(y), -1)
        widths = (a.shape[1], model.hidden, model.classes)
    for l, (p, q) in enumerate(pairwise(widths)):
        W, b = cut(w[at:], [(p, q), (q,)])
        a = a @ W + b
        a = phi(a) if l < len(widths) - 2 else a
        at += p * q + q
    return -jax.nn.log_softmax(a)[rows, y]


@every_model
@pytest.mark.filterwarnings("ignore")
def test_jax(jax, model):
    w, v, D = problem(model)
    X, y, s = (jax.numpy.asarray(a) for a in D)

    def loss(w):
        losses = jax_losses(jax, model, w, X, y)
        return (s * losses).sum() / s.sum() + model.l2 / 2 * (w * w).sum()

    assert s.dtype == np.float64

    @jax.jit
    def everything(w, v):
        return *jax.value_and_grad(loss)(w), jax.jvp(jax.grad(loss), (w,), (v,))[1]

    value, grad, hvp = everything(w, v)
    agree(model, w, v, D, float(value), np.asarray(grad), np.asarray(hvp))
