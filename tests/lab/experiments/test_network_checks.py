"""Networks as torch's users write them: torch's own double backward, or a sentence that refuses them."""

import warnings

import numpy as np
import pytest
from running import main

import fedref
from fedref import checks, strategies
from fedref.boundary.errors import ConfigError
from fedref.lab.experiments import network_checks
from fedref.lab.experiments.progress import Progress
from fedref.lab.experiments.torch_model import model_class
from fedref.models.batch import Batch
from fedref.rounds.federation import Source

torch = pytest.importorskip("torch", reason="pip install torch")
prune = pytest.importorskip("torch.nn.utils.prune")
nn, F = torch.nn, torch.nn.functional
parametrizations = nn.utils.parametrizations

FEATURES, CLASSES, ROWS = 6, 3, 8
RNG = np.random.default_rng(0)
#: Whole numbers, so that an Embedding can take them, too.
D = Batch(RNG.integers(0, 5, (ROWS, FEATURES)).astype(float), RNG.integers(0, CLASSES, ROWS))
DATA = D.X, D.y, np.repeat([0, 1], ROWS // 2)


@pytest.fixture(autouse=True)
def usual_numbers():
    """torch's own default, which another test's backend may have changed."""
    torch.set_default_dtype(torch.float32)


class Own(nn.Module):
    """Parts, and forward(parts, X) as a function of them."""

    def __init__(self, forward, *parts):
        super().__init__()
        self.part = nn.ModuleList(parts)
        self.function = forward

    def forward(self, X):
        return self.function(self.part, X)


class Values(nn.Module):
    """Parameters of these shapes and constants, and f(self, X)."""

    def __init__(self, f, *shapes, constants=(), dtype=None):
        super().__init__()
        self.w = nn.ParameterList(0.5 * torch.randn(shape, dtype=dtype) for shape in shapes)
        self.f = f
        for k, x in enumerate(constants):
            self.register_buffer(f"c{k}", x)

    def forward(self, X):
        return self.f(self, X)


def linear(n=FEATURES, m=CLASSES, **how):
    return nn.Linear(n, m, **how)


def chain(*parts):
    return nn.Sequential(*parts)


def hidden(*parts, width=4):
    """Between two linear layers."""
    return chain(linear(m=width), *parts, linear(width))


def last_step(p, X):
    return p[1](p[0](X[..., None])[0][:, -1])


def recurrent(cell, size=3, out=None, **how):
    return Own(last_step, cell(1, size, batch_first=True, **how), linear(out or size))


class Do(nn.Module):
    """A function as a part."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, h):
        return self.f(h)


def weights(f, **how):
    """f(X, W) of the weights of a linear layer."""
    return Values(lambda s, X: f(X, s.w[0]), (FEATURES, CLASSES), **how)


def images(*parts, n):
    return chain(nn.Unflatten(1, (1, 2, 3)), *parts, nn.Flatten(), linear(n))


def series(*parts, n):
    return chain(nn.Unflatten(1, (1, FEATURES)), *parts, nn.Flatten(), linear(n))


def tokens(*parts):
    """A row as six tokens of four numbers; their mean is classified."""
    return Own(
        lambda p, X: p[-1](chain(*p[1:-1])(p[0](X[..., None])).mean(1)),
        linear(1, 4),
        *parts,
        linear(4),
    )


def attention(**how):
    options = {name: how.pop(name) for name in ("need_weights",) if name in how}

    def forward(p, X):
        h = p[0](X[..., None])
        return p[2](p[1](h, h, h, **options)[0].mean(1))

    return Own(
        forward, linear(1, 4), nn.MultiheadAttention(4, 2, batch_first=True, **how), linear(4)
    )


def embedding(X_of=lambda X: X.long(), **how):
    return Own(lambda p, X: p[1](p[0](X_of(X)).mean(1)), nn.Embedding(5, 4, **how), linear(4))


def residual(p, X):
    h = p[0](X)
    return p[2](h + F.silu(p[1](h)))


def mixture(p, X):
    return (p[0](X).softmax(-1)[:, :, None] * torch.stack([e(X) for e in p[1:]], 1)).sum(1)


def tied():
    net = Own(
        lambda p, X: p[2](torch.tanh(p[1](torch.tanh(p[0](X))))),
        linear(6, 6),
        linear(6, 6),
        linear(),
    )
    net.part[1].weight = net.part[0].weight
    return net


class Forward(nn.Module):
    """The parts of a mistake in forward."""

    def __init__(self):
        super().__init__()
        self.first, self.last = linear(m=4), linear(4)

    def forward(self, X):
        h = self.first(X)
        return self.last(h.detach())


class Positions(nn.Module):
    """A transformer's encoder with a table of positions and a token for the class."""

    def __init__(self, dropout=0.0, **how):
        super().__init__()
        self.embed, self.token = linear(1, 4), nn.Parameter(torch.randn(1, 1, 4))
        angle = torch.arange(FEATURES + 1)[:, None] / 100 ** (torch.arange(4) / 4)
        self.register_buffer(
            "positions", torch.where(torch.arange(4) % 2 == 0, angle.sin(), angle.cos())
        )
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout, batch_first=True, **how)
        self.body, self.last = (
            nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
            linear(4),
        )

    def forward(self, X):
        h = torch.cat([self.token.expand(len(X), -1, -1), self.embed(X[..., None])], 1)
        return self.last(self.body(h + self.positions)[:, 0])


class StartsAtZero(nn.Module):
    """An LSTM whose first states forward makes itself, of torch's default type."""

    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(1, 3, 2, batch_first=True), linear(3)

    def forward(self, X):
        h = torch.zeros(2, len(X), 3)
        return self.last(self.lstm(X[..., None], (h, h))[0][:, -1])


class Keeps(nn.Module):
    """A hidden state that one batch leaves to the next."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.h = linear(m=4), linear(4), 0.0

    def forward(self, X):
        h = torch.tanh(self.first(X) + self.h)
        self.h = h.mean().detach()
        return self.last(h)


class NumpysStart(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.W = nn.Parameter(
            torch.from_numpy(np.random.default_rng().normal(size=(features, classes)))
        )

    def forward(self, X):
        return X @ self.W


class Excite(nn.Module):
    """Channels are weighted by what all steps say of them."""

    def __init__(self):
        super().__init__()
        self.body = chain(linear(4, 2), nn.Hardswish(), linear(2, 4), nn.Sigmoid())

    def forward(self, h):
        return h * self.body(h.mean(2))[..., None]


class StochasticDepth(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = linear(4, 4)

    def forward(self, h):
        keep = (torch.rand(len(h), 1) > 0.2).to(h.dtype)
        return h + keep * self.f(h)


class Reversal(torch.autograd.Function):
    """The gradient reversal of domain-adversarial networks."""

    @staticmethod
    def forward(h):
        return h.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return -g


class Square(torch.autograd.Function):
    """As torch.func does not take it: without setup_context."""

    @staticmethod
    def forward(ctx, h):
        ctx.save_for_backward(h)
        return h * h

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]


def quietly(change, *args):
    """torch says that it is old."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return change(*args)


def in_place(p, X):
    X /= 2
    return p[0](X)


def without_gradient(p, X):
    with torch.no_grad():
        h = torch.tanh(p[0](X))
    return p[1](h)


def decides(p, X):
    h = p[0](X)
    return p[1](h if p[0].weight.sum().item() > 1e6 else torch.tanh(h))


def checkpointed(p, X):
    return p[1](torch.utils.checkpoint.checkpoint(p[0], X, use_reentrant=False))


def fourier(self, X):
    return (torch.fft.rfft(X) * self.w[0]).abs() @ self.w[1]


def prototypes(p, X):
    return -((p[0](X)[:, None] - p[1].weight) ** 2).sum(-1)


def batch_second(p, X):
    return p[1](p[0](X[..., None])[0][:, -1])


#: Networks that run: gradient and H v are those of torch's double backward.
RUN = {
    "LSTM": lambda: recurrent(nn.LSTM),
    "LSTM of two layers, both ways": lambda: recurrent(nn.LSTM, out=6, num_layers=2, bidirectional=True),
    "LSTM with proj_size": lambda: recurrent(nn.LSTM, out=2, proj_size=2),
    "GRU": lambda: recurrent(nn.GRU),
    "RNN": lambda: recurrent(nn.RNN),
    "Embedding of X.long()": embedding,
    "attention with weights": attention,
    "GroupNorm": lambda: hidden(nn.GroupNorm(2, 4)),
    "LayerNorm": lambda: hidden(nn.LayerNorm(4)),
    "RMSNorm": lambda: hidden(nn.RMSNorm(4)),
    "InstanceNorm": lambda: images(nn.Conv2d(1, 2, 1), nn.InstanceNorm2d(2, affine=True), n=12),
    "Conv1d, ReLU, MaxPool": lambda: series(nn.Conv1d(1, 2, 3), nn.ReLU(), nn.MaxPool1d(2), n=4),
    "depthwise Conv2d and GELU": lambda: images(
        nn.Conv2d(1, 2, 1), nn.Conv2d(2, 2, 2, groups=2), nn.GELU(), n=4
    ),
    "residual SiLU": lambda: Own(residual, linear(m=4), linear(4, 4), linear(4)),
    "tied weights": tied,
    "Bilinear": lambda: Own(lambda p, X: p[0](X, X), nn.Bilinear(FEATURES, FEATURES, CLASSES)),
    "mixture of experts": lambda: Own(mixture, linear(m=2), linear(), linear()),
    "PReLU": lambda: hidden(nn.PReLU()),
    "in-place ReLU on an inner value": lambda: hidden(nn.ReLU(inplace=True)),
    "unused parameters": lambda: Own(lambda p, X: p[0](X), linear(), linear()),
    "float64": lambda: hidden(nn.Tanh()).double(),
    "bfloat16": lambda: hidden(nn.Tanh()).bfloat16(),
    "parametrizations.orthogonal": lambda: chain(parametrizations.orthogonal(linear(6, 6)), linear()),
    "a table of positions": Positions,
    "scaled_dot_product_attention": lambda: Own(
        lambda p, X: p[3](F.scaled_dot_product_attention(*[q(X[..., None]) for q in p[:3]]).mean(1)),
        *[linear(1, 4) for _ in range(3)], linear(4),
    ),
    "attention without weights": lambda: attention(need_weights=False),
    "TransformerEncoderLayer": lambda: tokens(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)),
    # of our own
    "an LSTM that starts at torch.zeros": StartsAtZero,
    "GELU encoder, norm first": lambda: Positions(activation="gelu", norm_first=True),
    "a GRU with attention over its steps": lambda: Own(
        lambda p, X: (lambda h: p[2]((p[1](h).softmax(1) * h).sum(1)))(p[0](X[..., None])[0]),
        nn.GRU(1, 3, batch_first=True), linear(3, 1), linear(3),
    ),
    "a gated, dilated convolution": lambda: series(nn.Conv1d(1, 4, 2, dilation=2), nn.GLU(1), n=8),
    "squeeze and excitation": lambda: series(nn.Conv1d(1, 4, 3, padding=1), Excite(), n=24),
    "a transposed convolution": lambda: series(nn.ConvTranspose1d(1, 2, 2, 2), nn.Softplus(), n=24),
    "a sine network": lambda: hidden(Do(lambda h: torch.sin(3 * h))),
    "maxout": lambda: chain(linear(m=8), Do(lambda h: h.unflatten(1, (4, 2)).amax(-1)), linear(4)),
    "a set network": lambda: tokens(nn.ReLU()),
    "Euler's steps of an ODE": lambda: Own(
        lambda p, X: p[1](X + sum(0.1 * torch.tanh(p[0](X)) for _ in range(2))), linear(6, 6), linear()
    ),
    "prototypes": lambda: Own(prototypes, linear(m=4), linear(4)),
    "a low-rank layer": lambda: Values(lambda s, X: X @ s.w[0] @ s.w[1], (FEATURES, 2), (2, CLASSES)),
    "a real Fourier layer": lambda: Values(
        lambda s, X: (torch.fft.rfft(X) * torch.view_as_complex(s.w[0])).abs() @ s.w[1], (4, 2), (4, CLASSES)
    ),
    "a mask as a constant": lambda: Values(
        lambda s, X: X @ (s.w[0] * s.c0), (FEATURES, CLASSES), constants=[torch.arange(18).view(6, 3) % 2]
    ),
    "an output of float scale": lambda: Own(lambda p, X: p[0](X) * torch.tensor(0.1), linear()),
    "a branch by a weight's value": lambda: Own(decides, linear(m=4), linear(4)),
    "torch.vmap over rows": lambda: Own(lambda p, X: torch.vmap(p[0])(X), linear()),
    "cosine similarity": lambda: Own(
        lambda p, X: 5 * F.cosine_similarity(p[0](X)[:, None], p[1].weight, dim=-1), linear(m=4), linear(4)
    ),
    "adaptive pooling and interpolation": lambda: series(
        nn.Conv1d(1, 2, 2), nn.AdaptiveAvgPool1d(3), nn.Upsample(scale_factor=2, mode="linear"), n=12
    ),
    "packed steps of an LSTM cell": lambda: Own(
        lambda p, X: p[1](p[0](X[:, 3:], p[0](X[:, :3]))[0]), nn.LSTMCell(3, 4), linear(4)
    ),
    "dropout of an object in eval mode": lambda: hidden(nn.Dropout(0.5)).eval(),
    "BatchNorm of an object in eval mode": lambda: hidden(nn.BatchNorm1d(4)).eval(),
    "spectral norm by hand": lambda: weights(lambda X, W: X @ (W / torch.linalg.matrix_norm(W, 2))),
}  # fmt: skip

#: Networks that are refused: the words of the sentence.
REFUSED = {
    "(N, 1) scores": (lambda: linear(m=1), r"forward returns \(8, 1\), expected \(8, 3\)"),
    "frozen parameters": (lambda: hidden(linear(4, 4).requires_grad_(False)), "1.weight is not trained"),
    "Dropout": (lambda: hidden(nn.Dropout(0.5)), r": 1 \(\w+\) draws at random"),
    "a little Dropout": (lambda: hidden(nn.Dropout(0.005), width=2), r": 1 \(\w+\) draws at random"),
    "BatchNorm": (lambda: hidden(nn.BatchNorm1d(4)), r": 1 \(BatchNorm1d\) changes buffers.*GroupNorm"),
    "spectral_norm": (
        lambda: chain(parametrizations.spectral_norm(linear())),
        r": 0.parametrizations.weight.0 \(_SpectralNorm\) changes buffers",
    ),
    "LSTM's dropout": (
        lambda: recurrent(nn.LSTM, num_layers=2, dropout=0.5), r": part.0 \(LSTM\) draws at random"
    ),
    "attention's dropout": (
        lambda: attention(dropout=0.5), r": part.1 \(MultiheadAttention\) draws at random"
    ),
    "an encoder's dropout": (
        lambda: Positions(dropout=0.1), r": body.layers.0.self_attn \(MultiheadAttention\) draws at random"
    ),
    "F.dropout": (lambda: Own(lambda p, X: p[0](F.dropout(X)), linear()), "forward draws at random"),
    "randn_like": (
        lambda: Own(lambda p, X: p[0](X + torch.randn_like(X)), linear()), "forward draws at random"
    ),
    "BatchNorm of the batch alone": (
        lambda: hidden(nn.BatchNorm1d(4, track_running_stats=False)), "a row depends on the other rows"
    ),
    "X − X.mean(0)": (lambda: chain(Do(lambda X: X - X.mean(0)), linear()), "depends on the other rows"),
    "Embedding(padding_idx=0)": (lambda: embedding(padding_idx=0), "part.0 has padding_idx"),
    "scale_grad_by_freq": (lambda: embedding(scale_grad_by_freq=True), "part.0 has scale_grad_by_freq"),
    "sparse": (lambda: embedding(sparse=True), "part.0 has sparse"),
    "max_norm": (lambda: embedding(max_norm=1.0), "part.0 has max_norm"),
    "complex parameters": (
        lambda: Values(fourier, (4,), (4, CLASSES), dtype=torch.complex64), "w.0 is complex.*view_as_complex"
    ),
    "LazyLinear": (lambda: chain(nn.LazyLinear(4), linear(4)), "0.weight has no size yet"),
    "a tuple from forward": (lambda: Own(lambda p, X: (p[0](X), X), linear()), "forward returns a tuple"),
    "X.float()": (lambda: Own(lambda p, X: p[0](X.float()), linear()), r"part.0.*\.float\(\) is not"),
    "Embedding on X as it comes": (lambda: embedding(lambda X: X), r"part.0.*X\.long\(\)"),
    "the old weight_norm": (
        lambda: chain(quietly(nn.utils.weight_norm, linear())), "cannot be copied.*old weight_norm"
    ),
    "a pruned layer": (
        lambda: chain(prune.random_unstructured(linear(), "weight", 0.3)), "cannot be copied.*prune"
    ),
    "checkpointing": (lambda: Own(checkpointed, linear(m=4), linear(4)), "no checkpointing"),
    "X /= 2": (lambda: Own(in_place, linear()), r"forward changes X: write X = X / 2"),
    "detach": (Forward, "gradient is not the loss's, in first.weight, first.bias:"),
    "no_grad": (lambda: Own(without_gradient, linear(m=4), linear(4)), "not the loss's, in part.0"),
    # of our own
    "an LSTM of batch_first=False": (
        lambda: Own(batch_second, nn.LSTM(1, 3), linear(3)), "a row depends on the other rows"
    ),
    "a state from call to call": (Keeps, "keeps something from call to call"),
    "stochastic depth": (lambda: hidden(StochasticDepth()), r": 1 \(\w+\) draws at random"),
    "RReLU": (lambda: hidden(nn.RReLU()), r": 1 \(\w+\) draws at random"),
    "Gumbel's softmax": (lambda: hidden(Do(F.gumbel_softmax)), r": 1 \(\w+\) draws at random"),
    "NumPy's random numbers": (
        lambda: hidden(Do(lambda h: h * float(np.random.default_rng().normal()))), "draws at random"
    ),
    "gradient reversal": (lambda: hidden(Do(Reversal.apply)), "not the loss's, in 0.weight, 0.bias:"),
    "a straight-through estimate": (
        lambda: hidden(Do(lambda h: h + (torch.sign(h) - h).detach())), "not the loss's, in 0.weight"
    ),
    "a Function without setup_context": (lambda: hidden(Do(Square.apply)), "needs setup_context"),
    "squeeze()": (lambda: chain(linear(), Do(torch.squeeze)), r"returns \(3,\), expected \(1, 3\)"),
    "a dictionary from forward": (
        lambda: chain(linear(), Do(lambda z: {"logits": z})), "forward returns a dict"
    ),
    "images as they are not": (
        lambda: chain(nn.Conv2d(1, 2, 1), nn.Flatten(), linear()), r": 0 \(Conv2d\): .*Expected 3D"
    ),
    "a size that does not fit": (lambda: hidden(linear(5, 4)), r": 1 \(Linear\): .*cannot be multiplied"),
    "F.embedding with padding_idx": (
        lambda: weights(lambda X, W: F.embedding(X.long(), W, 0).sum(1)), "not the loss's, in w.0"
    ),
    "a moving average as a buffer": (
        lambda: Values(
            lambda s, X: (s.c0.copy_(0.9 * s.c0 + 0.1 * X.mean()), X @ s.w[0])[1], (FEATURES, CLASSES),
            constants=[torch.zeros(())],
        ), "forward changes buffers"
    ),
    "NumPy's initial values": (lambda: NumpysStart, "two starts of one seed differ"),
    "a square root at 0": (lambda: weights(lambda X, W: X @ W + (0 * W.sum()).sqrt()), "not finite"),
    "no parameters": (lambda: Do(lambda X: X[:, :CLASSES]), "has no parameters"),
    "layers in a list": (
        lambda: (lambda outside: Own(lambda p, X: p[0](X) + outside(X), linear()))(linear()), "nn.ModuleList"
    ),
    ".numpy()": (lambda: hidden(Do(lambda h: torch.from_numpy(h.numpy()))), r"no \.numpy\(\)"),
}  # fmt: skip

#: Networks that run where no H v is needed: the words with which they are refused where it is.
NO_HVP = {
    "weight_norm": (
        lambda: chain(parametrizations.weight_norm(linear(m=4)), linear(4)), "second derivative is wrong"
    ),
    "Hardsigmoid": (lambda: hidden(nn.Hardsigmoid()), r": 1 \(\w+\): torch has no derivative"),
    "EmbeddingBag": (
        lambda: chain(Do(torch.Tensor.long), nn.EmbeddingBag(5, 4), linear(4)),
        r": 1 \(EmbeddingBag\): torch has no derivative",
    ),
    "cdist": (lambda: weights(lambda X, W: -torch.cdist(X, W.T)), "torch has no derivative"),
}  # fmt: skip


def double_backward(model, w, v):
    """torch's gradient and H v of the module itself, without torch.func."""
    net = model.net.double()
    torch.nn.utils.vector_to_parameters(torch.tensor(w), net.parameters())
    X, y = torch.tensor(D.X), torch.tensor(D.y)
    torch.set_default_dtype(torch.float64)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        loss, ws = F.cross_entropy(net(X), y), [*net.parameters()]
        how = {"allow_unused": True, "materialize_grads": True}
        gs = torch.autograd.grad(loss, ws, create_graph=True, **how)
        g = torch.cat([g.ravel() for g in gs])
        Hv = torch.autograd.grad(g @ torch.tensor(v), ws, **how)
    torch.set_default_dtype(torch.float32)
    return g.detach().numpy(), torch.cat([h.ravel() for h in Hv]).numpy()


def model_of(network):
    torch.manual_seed(0)
    return model_class(network())(features=FEATURES, classes=CLASSES)


def examined(network):
    model = model_of(network)
    network_checks.examine(model, D)
    return model


def difference(model, w, v, h=1e-4):
    """H v by Richardson's difference quotient of the gradient: its error is O(h⁴)."""
    near, far = (
        (model.grad(w + k * v, D) - model.grad(w - k * v, D)) / (2 * k) for k in (h, 2 * h)
    )
    return (4 * near - far) / 3


@pytest.mark.parametrize("name", RUN)
def test_it_runs_and_gives_torchs_double_backward(name):
    model = examined(RUN[name])
    assert not model.hvp_fault + model.hvp_doubt
    w, v = np.random.default_rng(1).normal(0, 0.5, (2, model.d))
    g, Hv = model.grad(w, D), model.hvp(w, v, D)
    for got, expected in zip((g, Hv), double_backward(model, w, v)):
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_a_sentence(name):
    network, words = REFUSED[name]
    with pytest.raises(ConfigError, match=words) as error:
        examined(network)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", NO_HVP)
def test_it_runs_unless_its_second_derivative_is_needed(name):
    network, words = NO_HVP[name]
    model, how = examined(network), {"data": DATA, "model": network(), "rounds": 1}
    w, v = np.random.default_rng(1).normal(0, 0.5, (2, model.d))
    if not model.hvp_fault:  # torch 2.14 derives cdist twice, 2.13 does not
        assert np.linalg.norm(model.hvp(w, v, D) - difference(model, w, v)) < 1e-8
        return
    for algorithm in ("fedavg", "per-fedavg-hf"):
        fedref.run(algorithm=algorithm, **how)
    for algorithm in ("per-fedavg", "fedmeta-sgd"):
        with pytest.raises(ConfigError, match=f"{algorithm} needs H v.*{words}"):
            fedref.run(algorithm=[algorithm], **how)
    with pytest.raises(ConfigError, match=words):  # an algorithm may ask for it late
        model.hvp(w, v, D)


@pytest.mark.parametrize("name", [name for name in RUN if "ttention" in name or "ncoder" in name])
def test_attention_gives_a_difference_quotient_of_its_gradient(name):
    model = examined(RUN[name])
    w, v = np.random.default_rng(1).normal(0, 0.5, (2, model.d))
    expected = difference(model, w, v)
    assert np.linalg.norm(model.hvp(w, v, D) - expected) <= 1e-9 * np.linalg.norm(expected)


class HalfSquare(torch.autograd.Function):
    """h², whose second derivative forgets that 2h depends on h: what is left is symmetric."""

    @staticmethod
    def forward(h):
        return h * h

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0].detach()


def test_a_second_derivative_that_no_difference_quotient_has_is_a_warning(here):
    told = []
    for algorithm in ("fedavg", "per-fedavg"):
        net = hidden(Do(HalfSquare.apply))
        how = {"data": DATA, "model": net, "rounds": 1, "progress": Progress(message=told.append)}
        fedref.run(algorithm=algorithm, **how)
        assert ("kinks" in " ".join(told)) == (algorithm == "per-fedavg")


def test_the_command_says_it_and_writes_nothing(here, capsys):
    lines = "def forward(self, X):", "        return self.last(torch.nn.functional.dropout(X))"
    init = "def __init__(self, features, classes):", "        super().__init__()"
    layer = "        self.last = torch.nn.Linear(features, classes)"
    text = "import torch\n\nclass Drops(torch.nn.Module):\n    "
    text += "\n".join([*init, layer, "", "    " + lines[0], lines[1], ""])
    (here / "drops.py").write_text(text)
    for more in (["--dry-run"], ["--workers", "2", "--seeds", "0,1"]):
        assert main("run", "fedavg", "--model", "drops:Drops", "--rounds", "1", *more) == 2
        said = capsys.readouterr().err
        assert "Drops(features=64, classes=10, l2=0.0): forward draws at random" in said
        assert "Traceback" not in said
    assert not (here / "runs").exists()


def test_torchs_generator_stays_as_it_was(here):
    (here / "some_data.csv").write_text(
        "client,y,a,b\n" + "".join(f"{i % 3},{i % 2},{i},{i * i % 7}\n" for i in range(30))
    )
    state = torch.get_rng_state()
    (here / "plain.py").write_text(
        "from torch import nn\n\n\nclass Plain(nn.Linear):\n    def __init__(self, features, classes):\n"
        "        super().__init__(features, classes)\n"
    )
    words = ["run", "fedavg", "--model", "plain:Plain", "--data", "some_data.csv", "--rounds", "1"]
    words += ["--out", "o"]
    assert main(*words, "-q") == 0
    assert main("resume", "o", "-q") == 0
    assert torch.equal(state, torch.get_rng_state())


class StartsAtOnes(nn.Module):
    """Initial values that the class chooses itself."""

    def __init__(self, features, classes):
        super().__init__()
        self.first, self.last = linear(features, 4), linear(4, classes)
        self.own = nn.Parameter(torch.randn(4))
        nn.init.ones_(self.first.weight)

    def forward(self, X):
        return self.last(self.own * torch.tanh(self.first(X)))


def test_a_class_draws_its_own_initial_values_for_each_seed():
    model = model_class(StartsAtOnes)(features=2, classes=3)
    one, two = (model.init(np.random.default_rng(seed)) for seed in (0, 1))
    names = [*model.parameters]
    sizes = [x.numel() for x in model.parameters.values()]
    parts = [dict(zip(names, np.split(w, np.cumsum(sizes)[:-1]))) for w in (one, two)]
    assert (one == model.init(np.random.default_rng(0))).all()
    for name in names:
        same = np.array_equal(*(part[name] for part in parts))
        assert same == (name == "first.weight")
    assert (parts[0]["first.weight"] == 1).all()


class Letters(nn.Module):
    """Texts arrive as codes, whole numbers; the code `vocabulary` is padding."""

    inputs = "codes"

    def __init__(self, vocabulary, classes):
        super().__init__()
        self.embed, self.last = nn.Embedding(vocabulary + 1, 4), linear(4, classes)

    def forward(self, X):
        return self.last(torch.tanh(self.embed(X)).mean(1))


def test_texts_come_as_codes_to_a_class_that_wants_them():
    words = {"client": DATA[2], "vocabulary": ("a", "b", "c", "d", "e"), "name": "texts"}
    source = Source(D.X.astype(np.uint8), D.y, **words)
    result = fedref.run(algorithm="per-fedavg", model=Letters, data=source, rounds=2)
    assert np.isfinite(result.records[0].rows[-1]["test_loss"])


@pytest.mark.parametrize(
    ("network", "wrong"),
    [(REFUSED["X − X.mean(0)"][0], {"padding"}), (Forward, {"gradient"}), (RUN["GRU"], set())],
)
def test_check_model_finds_it_too(network, wrong):
    model = model_of(network)
    w, v = np.random.default_rng(1).normal(0, 0.5, (2, model.d))
    reports = checks.check_model(strategies.Problem(model, w, v, D))
    assert {name for name, report in reports.items() if not report.ok} >= wrong
    assert wrong or all(report.ok for report in reports.values()), reports
