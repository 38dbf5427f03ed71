"""What a user writes: `mypy --strict` accepts it with the installed wheel, and it runs."""

import numpy as np

from fedref import Batch, run
from fedref.algorithms.per_fedavg import meta_gradient
from fedref.checks import complex_step_gradient, relative_error
from fedref.models import Logistic
from fedref.sampling import stream

model, rng = Logistic(3, 2), stream(0, "data")
D = Batch(rng.normal(size=(5, 3)), rng.integers(0, 2, 5))
w: np.ndarray = model.init(rng)
error: float = relative_error(
    model.grad(w, D), complex_step_gradient(lambda w: model.loss(w, D), w)
)
g: np.ndarray = meta_gradient(model, w, D, D, D, alpha=0.1)
rounds, accuracy = run(algorithm=["fedavg"], rounds=1).curve("fedavg", "accuracy")
print(error, g.shape, rounds, accuracy)
