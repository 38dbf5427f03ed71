"""Layout, weights and refusals, on their own; what they mean for a model: test_properties.py."""

from functools import wraps
from types import SimpleNamespace

import numpy as np
import pytest

from fedref.boundary.errors import ConfigError
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic, base
from fedref.models.batch import Batch
from fedref.rounds.cost import Counter

SHAPES = [(2, 3), (3,), (3, 1), (1,)]


class Parts(base.FromLogits):
    """What follows from these shapes alone."""

    shapes = init = grad = loss_of = label_of = None

    def __init__(self, shapes=SHAPES):
        self.shapes = shapes


class Few(base.Model):
    """The functions that must be written, BinaryLogistic's; the rest is derived."""

    whole = BinaryLogistic(3, l2=0.3)
    features, classes, l2, d = 3, 2, 0.3, whole.d
    init, loss, grad, predict = whole.init, whole.loss, whole.grad, whole.predict


def test_what_a_model_of_few_functions_derives_is_what_a_whole_model_has():
    rng, few, whole = np.random.default_rng(1), Few(), Few.whole
    w, v = rng.normal(size=(2, 4, few.d))
    D = Batch(rng.normal(size=(4, 5, 3)), rng.integers(0, 2, (4, 5)))
    np.testing.assert_allclose(few.hvp(w, v, D), whole.hvp(w, v, D), rtol=1e-12)
    np.testing.assert_allclose(few.sample_losses(w, D), whole.sample_losses(w, D), rtol=1e-12)


def test_a_gradient_that_loses_the_complex_step_is_refused_and_a_constant_one_is_not():
    rng = np.random.default_rng(1)
    w, v, D = *rng.normal(size=(2, 4)), Batch(rng.normal(size=(50, 3)), rng.choice([-1, 1], 50))
    hinge = LinearSVM(3)  # piecewise constant, and so real at a complex w
    np.testing.assert_array_equal(base.Model.hvp(hinge, w, 9 * v, D), np.zeros(4))
    lossy = Few()
    object.__setattr__(lossy, "grad", lambda w, D: np.sign(w.real) * np.abs(w))
    with pytest.raises(ConfigError, match=r"^Few\.grad loses the imaginary part of w, as np\.abs"):
        lossy.hvp(w, v, D)
    np.testing.assert_array_equal(lossy.hvp(w, 0 * v, D), np.zeros(4))
    object.__setattr__(
        lossy, "grad", lambda w, D: 1.0 * (w.real > 5e-4)
    )  # jumps between the two steps
    np.testing.assert_array_equal(lossy.hvp(0 * w, np.ones(4), D), np.zeros(4))


@pytest.mark.parametrize("lead", [(), (2,), (2, 5), (1,), (0,)])
def test_unpack_gives_views_row_major_and_in_order_under_leading_axes(lead):
    w = np.zeros((*lead, 26))[..., ::2]  # a view itself
    views = Parts().unpack(w)
    assert [view.shape for view in views] == [(*lead, *shape) for shape in SHAPES]
    w[...] = np.arange(13)
    for view, (first, end) in zip(views, ((0, 6), (6, 9), (9, 12), (12, 13)), strict=True):
        assert (view.reshape(*lead, end - first) == np.arange(first, end)).all()
        view[...] = 7
    assert (w == 7).all()


@pytest.mark.parametrize("shape", [(12,), (14,), (), (13, 2)])
def test_unpack_refuses_a_wrong_length(shape):
    with pytest.raises(ValueError, match=r"expected \(\.\.\., 13\)"):
        Parts().unpack(np.zeros(shape))


def weights(s, dtype=np.float64):
    s = np.asarray(s)
    return base.mean_weights(Batch(np.zeros((*s.shape, 1)), np.zeros(s.shape, int), s), dtype)


def test_mean_weights():
    assert weights([1, 3, 0, 4]).tolist() == [1 / 8, 3 / 8, 0, 4 / 8]
    assert weights([[1, 3], [0, 0]]).tolist() == [[1 / 4, 3 / 4], [0, 0]]
    assert base.mean_weights(Batch(np.zeros((5, 2)), np.zeros(5, int)), float) == 1 / 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble, np.complex128])
def test_mean_weights_are_real(dtype):
    for s in (None, np.array([1, 2])):
        D = Batch(np.zeros((2, 1)), np.zeros(2, int), s)
        assert base.mean_weights(D, dtype).dtype == np.zeros(0, dtype).real.dtype


def test_check_names_what_is_wrong():
    X, y = np.zeros((4, 3)), np.zeros(4, int)
    model = Logistic(3, 2)
    w = np.zeros(model.d)
    base.check(model, w, Batch(X, y))
    for bad_w, D, message in [
        (w[:-1], Batch(X, y), r"w has shape \(7,\), expected \(..., d\) with d = 8"),
        (np.array(0.0), Batch(X, y), r"w has shape \(\)"),
        (w, Batch(X[:, :2], y), r"X has shape \(4, 2\), expected \(..., B, 3\)"),
        (w, Batch(X[0], y[0]), r"X has shape \(3,\)"),
        (w, Batch(X, y[:3]), r"y has shape \(3,\), expected \(4,\): one label a row"),
        (w, Batch(X, y, np.ones(3)), r"s has shape \(3,\), expected \(4,\): one weight a row"),
    ]:
        with pytest.raises(ValueError, match=message):
            base.check(model, bad_w, D)


@pytest.mark.parametrize(
    ("model", "wrong", "expected"),
    [
        (Logistic(3, 2), [0, 2], r"labels run from 0 to 2, expected integers from 0 to 1"),
        (Logistic(3, 2), [-1, 0], r"labels run from -1 to 0, expected integers from 0 to 1"),
        (Logistic(3, 2), [0.0, 0.5], r"expected integers from 0 to 1 \(Logistic\)"),
        (Logistic(3, 2), [0.0, np.nan], r"expected integers from 0 to 1"),
        (BinaryLogistic(3), [-1, 1], r"expected integers from 0 to 1 \(BinaryLogistic\)"),
        (LinearSVM(3), [0, 1], r"labels run from 0 to 1, expected one of \(-1, 1\) \(LinearSVM\)"),
        (LinearSVM(3), [-1, 3], r"expected one of \(-1, 1\)"),
        (SimpleNamespace(labels=(1, 2, 3)), [0, 4], "from 0 to 4, expected integers from 1 to 3"),
    ],
)
def test_check_labels(model, wrong, expected):
    with pytest.raises(ValueError, match=expected):
        base.check_labels(model, np.array(wrong))


def test_check_labels_takes_what_is_right():
    base.check_labels(Logistic(3, 2), np.array([], int))
    base.check_labels(Logistic(3, 2), np.array([0.0, 1.0]))
    base.check_labels(BinaryLogistic(3), np.array([True, False]))
    base.check_labels(LinearSVM(3), np.array([[-1, 1], [1, 1]], np.int8))
    base.check_labels(SimpleNamespace(labels=(1, 2, 3)), np.array([1, 2, 3]))


REQUIRED = {MLP: {"features": 3}, CNN: {}, LSTM: {"vocabulary": 5, "classes": 3, "length": 6}}


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (MLP, {"hidden": 80}, "MLP hidden is 80, expected a list"),
        (MLP, {"hidden": (2.5,)}, "MLP hidden is 2.5, expected a whole number"),
        (MLP, {"activation": "rleu"}, "MLP: unknown activation 'rleu': did you mean 'relu'"),
        (MLP, {"features": (3, 4)}, r"MLP features is \(3, 4\), expected a whole number"),
        (CNN, {"image": (15, 16)}, r"image \(15, 16\) is too small for 2 layers .* 16×16 or more"),
        (CNN, {"image": (3, 9), "channels": (4,), "kernel": 3}, r"1 layers .* 4×4 or more"),
        (CNN, {"image": (32,)}, r"image \(32,\): expected \(H, W\) or \(H, W, c\)"),
        (CNN, {"channels": 10}, "CNN channels is 10, expected a list"),
        (CNN, {"pool": "men"}, "unknown pool 'men': did you mean 'mean'"),
        (CNN, {"activation": "tahn"}, "unknown activation 'tahn': did you mean 'tanh'"),
        (LSTM, {"hidden": ()}, r"LSTM hidden is \(\), expected a width for each layer"),
        (LSTM, {"length": 2.5}, "LSTM length is 2.5, expected a whole number"),
        (LSTM, {"hidden": 256}, "LSTM hidden is 256, expected a list"),
        (LSTM, {"output": "lst"}, "unknown output 'lst': did you mean 'last'"),
        *((cls, {"initialisation": "glorto"}, "unknown initialisation 'glorto': did you mean")
          for cls in REQUIRED),
        *((cls, {name: 0 if name != "hidden" or cls is CNN else (3, 0)}, "0, expected .* least 1")
          for cls, names in ((MLP, ("features", "hidden", "classes")),
                             (CNN, ("kernel", "hidden", "classes")),
                             (LSTM, ("vocabulary", "classes", "length", "embedding", "hidden")))
          for name in names),
        *((CNN, {name: (32, 32, 0)}, f"CNN {name} is 0, expected .* at least 1")
          for name in ("image", "channels")),
    ],
)  # fmt: skip
def test_bad_arguments(cls, options, message):
    with pytest.raises(ConfigError, match=message):
        cls(**REQUIRED[cls] | options)


VECTOR, TWO, TEN = ((3, 1), (1,)), (0, 1), tuple(range(10))


@pytest.mark.parametrize(
    ("model", "features", "d", "shapes", "labels"),
    [
        (BinaryLogistic(3), 3, 4, VECTOR, TWO),
        (BinaryLogistic(3, bias=False), 3, 3, VECTOR[:1], TWO),
        (Logistic(3, 2), 3, 8, ((3, 2), (2,)), TWO),
        (LinearSVM(3), 3, 4, VECTOR, (-1, 1)),
        (LinearSVM(3, bias=False), 3, 3, VECTOR[:1], (-1, 1)),
        (MLP(784), 784, 68_270, ((784, 80), (80,), (80, 60), (60,), (60, 10), (10,)), TEN),
        (CNN(), 1024, 1_034_380, ((5, 5, 1, 20), (20,), (5, 5, 20, 50), (50,), (1250, 800), (800,),
                            (800, 10), (10,)), TEN),
        (LSTM(81, 80, 80), 80, 81 * 8 + 264 * 1024 + 1024 + 256 * 80 + 80,
         ((81, 8), (264, 1024), (1024,), (256, 80), (80,)), tuple(range(80))),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, base.Model) else "",
)  # fmt: skip
def test_layout_and_start(model, features, d, shapes, labels):
    assert (model.features, model.d, model.shapes) == (features, d, shapes)
    assert tuple(model.labels) == labels
    assert (model.inputs == "codes") == isinstance(model, LSTM)
    starts_at_0 = not model.init(np.random.default_rng(0)).any()
    assert starts_at_0 == isinstance(model, BinaryLogistic | Logistic | LinearSVM)


def test_what_a_model_is_without_options():
    """A change of one of these changes what a run without options trains."""
    assert (base.Model.l2, base.Model.inputs) == (0.0, "numbers")
    assert (BinaryLogistic(3).l2, BinaryLogistic(3).bias, Logistic(3, 2).l2) == (0.0, True, 0.0)
    svm = LinearSVM(3)
    assert (svm.l2, svm.squared, svm.bias) == (0.0, False, True)
    mlp = MLP(3)
    assert (mlp.hidden, mlp.classes, mlp.activation, mlp.l2) == ((80, 60), 10, "elu", 0.0)
    cnn = CNN()
    assert (cnn.image, cnn.channels, cnn.kernel, cnn.hidden) == ((32, 32), (20, 50), 5, 800)
    assert (cnn.classes, cnn.activation, cnn.pool, cnn.l2) == (10, "relu", "max", 0.0)
    assert mlp.initialisation == cnn.initialisation == "fan-in"


def test_the_share_of_a_sample_is_one_array_for_all_and_cannot_be_written():
    D = Batch(np.ones((3, 2)), np.zeros(3, int))
    share = base.mean_weights(D, np.float64)
    assert share == 1 / 3
    assert share is base.mean_weights(D, np.float64)
    with pytest.raises(ValueError, match="read-only"):
        share[...] = 1


def test_unvalidated_is_the_same_model_without_its_checks():
    model = Logistic(2, 3)
    w, fits = np.ones(model.d), Batch(np.eye(2), np.array([0, 2]))
    unfit = fits._replace(y=np.array([0, 3]))
    trusting = base.without_validation(model)
    for name, more in (("grad", (w,)), ("hvp", (w, w))):
        validated, bare = getattr(model, name), getattr(trusting, name)
        assert np.isfinite(bare(*more, unfit)).all()
        np.testing.assert_array_equal(bare(*more, fits), validated(*more, fits))
        with pytest.raises(ValueError, match="labels run from 0 to 3"):
            validated(*more, unfit)


def test_unvalidated_leaves_what_a_subclass_does_to_its_gradient():
    def clipped(grad):
        @wraps(grad)
        def clip(self, w, D):
            return np.clip(grad(self, w, D), -1e-3, 1e-3)

        return clip

    class Own(Logistic):
        @clipped
        def grad(self, w, D):
            return super().grad(w, D)

    class Theirs(Logistic):
        grad = clipped(Logistic.grad)

    D = Batch(np.eye(2), np.array([0, 2]))
    for kind in (Own, Theirs):
        model = kind(2, 3)
        assert np.abs(Counter(model).grad(np.ones(model.d), D)).max() == 1e-3


def test_no_codes_are_codes():
    model = LSTM(3, 2, 4, 2, (2,))
    D = Batch(np.zeros((0, 4), int), np.zeros(0, int))
    assert model.loss(np.ones(model.d), D) == 0
    assert model.predict(np.ones(model.d), D.X).shape == (0,)
