"""The base of every model: a model writes a few functions, the others follow from them.

A model is a frozen value with pure functions of the flat parameter vector `w` of shape (..., d).
No state, no cached forward pass. For a batch D = (X (..., B, p), y (..., B), s (..., B) or None)

    f(w; D) = Σ_j s_j ℓ_j(w) / Σ_j s_j + (l2/2) ‖w‖²          (s = 1 where not given)

with `‖w‖²` over *all* parameters, biases included. If all s_j are 0 the first term is 0.
Leading axes of w and X broadcast: `w (K, d)` with `X (K, B, p)` are K clients at once.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from fedref.boundary.errors import ConfigError
from fedref.models import numerics as nx
from fedref.models.batch import Batch
from fedref.models.numerics import Array

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


class Model(ABC):
    """A model as a run needs it. A subclass writes `d`, `init`, `loss`, `grad` and `predict`.

    inputs : what X holds, "numbers" or "codes" (whole numbers that stand for characters or words).
    takes_complex : whether `loss` and `grad` take complex w, so that complex steps check them.
    stacks : whether all take leading axes of clients. A class says so of itself, `class Mine(MLP,
    stacks=True)`; what does not is examined before a run.
    features : how many a sample has.
    l2 : the weight of the L2 term in `loss` and `grad`, ≥ 0.
    """

    inputs: ClassVar[str] = "numbers"
    takes_complex: ClassVar[bool] = True
    stacks: ClassVar[bool] = False
    features: Any
    l2: float = 0.0

    def __init_subclass__(cls, stacks: bool = False) -> None:
        super().__init_subclass__()
        cls.stacks = stacks

    @property
    @abstractmethod
    def d(self) -> int:
        """The number of parameters."""

    @abstractmethod
    def init(self, rng: np.random.Generator) -> Array:
        """Return initial parameters, float64 of shape (d,).

        rng : NumPy's random generator.
        """

    @abstractmethod
    def loss(self, w: Array, D: Batch) -> Array:
        """f(w; D): (...). fedref's models raise ValueError for shapes or labels that do not fit.

        w : the parameters, (..., d).
        D : a `Batch`: X (..., B, p), y (..., B), s (..., B) or None.
        """

    @abstractmethod
    def grad(self, w: Array, D: Batch) -> Array:
        """g(w; D) = ∇f: (..., d). Errors are those of `loss`.

        w : the parameters, (..., d).
        D : a `Batch`: X (..., B, p), y (..., B), s (..., B) or None.
        """

    @abstractmethod
    def predict(self, w: Array, X: Array) -> Array:
        """Return the label, or the real target, of every sample: (..., B).

        w : the parameters, (..., d).
        X : features, (..., B, p).
        """

    # ---- what follows from these; a model may write its own ---------------------------------------

    @property
    def labels(self) -> tuple[int, ...]:
        """The labels that y may hold, in ascending order; () if y holds real targets."""
        return tuple(range(getattr(self, "classes", 0)))

    def hvp(self, w: Array, v: Array, D: Batch) -> Array:
        """H(w; D)v = ∇²f·v, by a complex step through `grad`: (..., d).

        w : the parameters, (..., d).
        v : a direction, (..., d).
        D : a `Batch`: X (..., B, p), y (..., B), s (..., B) or None.

        Raises ConfigError where `grad` drops the imaginary part of w.
        """
        h = nx.complex_step(w, v)
        g = self.grad(w + 1j * h * v, D)
        if not np.iscomplexobj(g):
            refuse_lost_step(self, w, v, D)
        return g.imag / h

    def sample_losses(self, w: Array, D: Batch) -> Array:
        """ℓ_j(w) of every sample, without L2: (..., B).

        w : the parameters, (..., d).
        D : a `Batch`, X (..., B, p) and y (..., B), whose weights s are ignored.
        """
        losses = self.loss(w[..., None, :], Batch(D.X, D.y).per_sample())
        return losses - (self.l2 / 2) * (w * w).sum(-1)[..., None] if self.l2 else losses

    def sample_scores(self, batches: Iterable[tuple[Array, Batch]]) -> tuple[Array, Array]:
        """Return ℓ_j without L2, and whether the prediction is right, of every sample: (R,) both.

        batches : pairs (w, D). Real targets are neither right nor wrong: NaN.
        """
        parts = [(self.sample_losses(w, D), self.predict(w, D.X), D.y) for w, D in batches]
        losses, predictions, y = map(np.concatenate, zip(*parts))
        return losses, self.compare(predictions, y)

    def compare(self, predictions: Array, y: Array) -> Array:
        """Return whether each prediction is y; NaN where y holds real targets: (..., B).

        predictions : the result of `predict`, (..., B).
        y : labels or targets, (..., B).
        """
        return predictions == y if self.labels else np.full(y.shape, np.nan)

    def logits(self, w: Array, X: Array) -> Array:
        """z(w; x) of every sample: (..., B), or (..., B, classes); a margin for the SVM.

        w : the parameters, (..., d).
        X : features, (..., B, p).

        Raises ConfigError where the model has none.
        """
        raise ConfigError(f"{type(self).__name__} has no logits(w, X), which this needs")

    def vjp(self, w: Array, X: Array, r: Array) -> Array:
        """Σ_j ∂(r_j · z_j)/∂w, the vector-Jacobian product: (..., d).

        w : the parameters, (..., d).
        X : features, (..., B, p).
        r : what multiplies the logits, in their shape.

        Raises ConfigError where the model has none.
        """
        raise ConfigError(f"{type(self).__name__} has no vjp(w, X, r), which this needs")

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of w's parts: for each layer its weight, then its bias. Default: one weight."""
        return ((1, self.d),)

    @cached_property
    def layout(self) -> list[tuple[tuple[Any, slice], tuple[int, ...]]]:
        """(index, shape) of each part of the flat vector."""
        ends = pairwise(accumulate(map(prod, self.shapes), initial=0))
        return [((..., slice(*end)), shape) for end, shape in zip(ends, self.shapes)]

    def unpack(self, w: Array) -> tuple[Array, ...]:
        """Return views of w: for each layer its weight, then its bias.

        w : the parameters, (..., d), else ValueError.
        """
        lead = w.shape[:-1]
        if w.ndim < 1 or w.shape[-1] != self.d:
            raise ValueError(f"w has shape {w.shape}, expected (..., {self.d})")
        return tuple([w[part].reshape(lead + shape) for part, shape in self.layout])

    @property
    def products(self) -> tuple[int, ...]:
        """Multiplications of one sample's forward pass, layer by layer."""
        return tuple(prod(shape) for shape in self.shapes if len(shape) > 1)

    @property
    def work(self) -> tuple[int, int]:
        """Multiplications in the matrix products of (a gradient, an HVP), for one sample.

        A gradient needs each layer's products A W, Aᵀδ and δWᵀ. An HVP needs A W and δWᵀ, and for each
        of the three both terms of the product rule. The first layer has no δWᵀ, and R{A} = 0 there.
        """
        first, *later = self.products
        return 2 * first + 3 * sum(later), 3 * first + 8 * sum(later)

    def validate(self, w: Array, D: Batch) -> None:
        """Raise ValueError if a point or a batch does not fit: fedref's models do in `loss`, `grad`, `hvp`.

        w : the parameters, (..., d).
        D : a `Batch`: X (..., B, p), y (..., B), s (..., B) or None.
        """
        check(self, w, D)


def check(model: Model, w: Array, D: Batch) -> None:
    """Refuse shapes and labels that would otherwise be broadcast or indexed into nonsense."""
    arrays = isinstance(w, np.ndarray | np.generic | NDArrayOperatorsMixin)  # w may be dual numbers
    if not (arrays and all(isinstance(x, np.ndarray | np.generic) for x in (D.X, D.y))):
        raise ValueError("w, X and y are not all NumPy arrays: np.asarray makes them so")
    if w.ndim < 1 or w.shape[-1] != model.d:
        raise ValueError(f"w has shape {w.shape}, expected (..., d) with d = {model.d}")
    check_batch(model, D)
    check_labels(model, D.y)


def check_batch(model: Model, D: Batch) -> None:
    """Refuse features, labels and weights of other shapes than the model's, and weights < 0."""
    X, y, s = D
    if X.ndim < 2 or X.shape[-1] != model.features:
        raise ValueError(f"X has shape {X.shape}, expected (..., B, {model.features})")
    if y.shape != X.shape[:-1]:
        raise ValueError(f"y has shape {y.shape}, expected {X.shape[:-1]}: one label a row of X")
    if s is not None and s.shape != y.shape:
        raise ValueError(f"s has shape {s.shape}, expected {y.shape}: one weight a row of X")
    if s is not None and s.size and not s.min() >= 0:  # nor NaN
        raise ValueError(f"s has the weight {s.min()}, expected weights ≥ 0")
    if model.inputs == "codes":
        check_codes(X, model.vocabulary)  # type: ignore[attr-defined]


def check_codes(X: Array, padding: int) -> None:
    """Refuse values that are not the codes 0 to padding − 1, or `padding`, which stands for no code."""
    if X.dtype.kind not in "iu":
        raise ValueError(f"X holds {X.dtype}, expected codes: whole numbers from 0 to {padding}")
    if X.size and not 0 <= X.min() <= X.max() <= padding:
        raise ValueError(
            f"codes run from {X.min()} to {X.max()}, expected 0 to {padding - 1}, "
            f"or {padding} for padding"
        )


def check_labels(model: Model, y: Array) -> None:
    """Refuse labels that the model does not know; real targets may be any numbers."""
    if not model.labels:
        return
    low, high = model.labels[0], model.labels[-1]
    dense = high - low + 1 == len(model.labels)  # the SVM has −1 and +1, but not 0
    if dense and y.dtype.kind in "iub":
        are_labels = not y.size or (low <= y.min() and y.max() <= high)
    else:
        are_labels = np.all(np.logical_or.reduce([y == label for label in model.labels]))
    if not are_labels:
        expected = f"integers from {low} to {high}" if dense else f"one of {model.labels}"
        raise ValueError(
            f"labels run from {y.min()} to {y.max()}, expected {expected} ({type(model).__name__})"
        )


def refuse_lost_step(model: Model, w: Array, v: Array, D: Batch) -> None:
    """Refuse a gradient that is real at a complex w, unless its derivative is indeed 0.

    From w − hv to w + hv, a gradient with a derivative changes in proportion to h. A piecewise constant
    one does not change, or jumps.
    """
    ends = ((model.grad(w + h * v, D), model.grad(w - h * v, D)) for h in (1e-3, 1e-4))
    change_far, change_near = (plus - minus for plus, minus in ends)
    if np.linalg.norm(change_far - 10 * change_near) < 0.1 * np.linalg.norm(change_far):
        raise ConfigError(
            f"{type(model).__name__}.grad loses the imaginary part of w, as np.abs does, so that no "
            "hvp can be derived from it: use functions that keep it, or write hvp(w, v, D)"
        )


@cache
def equal_weights(B: int, dtype: Any) -> Array:
    """Return 1/B, or 1 of no sample: ()."""
    return nx.constant(1 / max(B, 1), (), np.zeros(0, dtype).real.dtype)


def mean_weights(D: Batch, dtype: Any) -> Array:
    """c_j = s_j / Σ_j s_j, so that Σ_j c_j ℓ_j is the mean loss: (..., B).

    Where s is None it is 1/B, of shape (). All-zero weights give c = 0: an empty batch has loss 0 and
    gradient 0 (up to the L2 term).

    D : a `Batch`: X (..., B, p), y (..., B), s (..., B) or None.
    dtype : the dtype of what they weigh, whose real part they have.
    """
    if D.s is None:
        return equal_weights(D.y.shape[-1], dtype)
    s = D.s.astype(np.zeros(0, dtype).real.dtype, copy=False)
    total = s.sum(-1, keepdims=True)
    return s / np.where(total == 0, 1, total)


class FromLogits(Model):
    """A model whose loss is a function of logits z(w; x).

    `shapes`, `init`, `logits`, `loss_of`, `label_of` and `grad` must be written.
    """

    @cached_property
    def d(self) -> int:
        return sum(map(prod, self.shapes))

    @abstractmethod
    def loss_of(self, z: Array, y: Array) -> Array:
        """ℓ(z, y) of every sample from its logits: (..., B)."""

    @abstractmethod
    def label_of(self, z: Array) -> Array:
        """Return the label, or the real target, that logits z predict: (..., B)."""

    def sample_losses(self, w: Array, D: Batch) -> Array:
        self.validate(w, D)
        return self.loss_of(self.logits(w, D.X), D.y)

    def loss(self, w: Array, D: Batch) -> Array:
        losses = self.sample_losses(w, D)
        f = (losses * mean_weights(D, losses.dtype)).sum(-1)
        return f + (self.l2 / 2) * (w * w).sum(-1) if self.l2 else f

    def predict(self, w: Array, X: Array) -> Array:
        return self.label_of(self.logits(w, X))

    def sample_scores(self, batches: Iterable[tuple[Array, Batch]]) -> tuple[Array, Array]:
        parts = zip(*((self.logits(w, D.X), D.y) for w, D in batches))
        z, y = map(np.concatenate, parts)
        return self.loss_of(z, y), self.compare(self.label_of(z), y)


class SoftmaxLogits(FromLogits):
    """ℓ = −log softmax(z)_y for logits z (..., B, classes) and y ∈ {0, ..., classes−1}."""

    classes: int

    def loss_of(self, z: Array, y: Array) -> Array:
        return nx.cross_entropy(z, y)  # [loss] log(Σ_c exp(z_c)) − z_y

    def label_of(self, z: Array) -> Array:
        return z.real.argmax(-1)


# ---- initialisation ----------------------------------------------------------------------------

Start = Callable[[np.random.Generator, tuple[int, ...], int, int], Array]


def fan_in(rng: np.random.Generator, shape: tuple[int, ...], n: int, m: int) -> Array:
    """Uniform(−1/√n, 1/√n), weights and biases."""
    return rng.uniform(-1 / np.sqrt(n), 1 / np.sqrt(n), prod(shape) + shape[-1])


def glorot(rng: np.random.Generator, shape: tuple[int, ...], n: int, m: int) -> Array:
    """Weights Uniform(−√(6/(n + m)), √(6/(n + m))), biases 0 (Glorot and Bengio 2010)."""
    bound = np.sqrt(6 / (n + m))
    return np.append(rng.uniform(-bound, bound, prod(shape)), np.zeros(shape[-1]))


def he(rng: np.random.Generator, shape: tuple[int, ...], n: int, m: int) -> Array:
    """Weights Normal(0, 2/n), biases 0 (He et al. 2015)."""
    return np.append(rng.normal(0, np.sqrt(2 / n), prod(shape)), np.zeros(shape[-1]))


#: name → weight and bias of one layer from (rng, weight shape, n = fan_in, m = fan_out).
INITIALISATIONS: dict[str, Start] = {"fan-in": fan_in, "glorot": glorot, "he": he}
#: The words that the fields of a layered network may hold: field → choices.
WORDS = {"activation": tuple(nx.ACTIVATIONS), "initialisation": tuple(INITIALISATIONS)}


def initial(name: str, rng: np.random.Generator, shapes: Sequence[tuple[int, ...]]) -> Array:
    """Return a start for weights (in, out) or kernels (k, k, in, out), each with its bias: (d,).

    A kernel reaches k² places, so that fan_in = k² · in and fan_out = k² · out.
    """
    layers = [(shape, prod(shape[:-1]), prod(shape[:-2]) * shape[-1]) for shape in shapes]
    return np.concatenate([INITIALISATIONS[name](rng, *layer) for layer in layers])


def without_validation(model: Any) -> Any:
    """Return a copy of the model that does not validate: for arrays that were checked before."""
    trusting = copy.copy(model)
    object.__setattr__(trusting, "validate", lambda w, D: None)
    return trusting


def linear_operator(model: Model, w: Array, D: Batch) -> "LinearOperator":
    """Return the Hessian ∇²f(w; D) as a (d, d) operator for `scipy.sparse.linalg`: `eigsh`, `cg`, ...

    model : a `Model`.
    w : the parameters, (d,), else ValueError.
    D : a `Batch`: X (B, p), y (B,), s (B,) or None.
    """
    from scipy.sparse.linalg import LinearOperator  # half of the time that fedref takes to import

    if w.ndim != 1:
        raise ValueError(f"w has shape {w.shape}, expected ({model.d},): one Hessian at a time")

    def product(v: Array) -> Array:
        return model.hvp(w, v.reshape(model.d), D)

    dtype = np.result_type(w, D.X)
    return LinearOperator((model.d, model.d), matvec=product, rmatvec=product, dtype=dtype)
