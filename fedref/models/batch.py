"""One batch of samples, the D of every equation."""

from collections.abc import Callable
from typing import NamedTuple

from fedref.models.numerics import Array


class Batch(NamedTuple):
    """Samples with labels and, if wanted, weights.

    X : (..., B, p) features.
    y : (..., B) labels.
    s : (..., B) weights ≥ 0, or None (all equal).
    A weight of 0 is padding: such a sample counts for nothing. Leading axes are independent
    batches (clients, samples, ...) and broadcast against those of w.

    >>> import numpy as np
    >>> D = Batch(np.ones((5, 3)), np.zeros(5, int))
    >>> D.per_sample().X.shape      # five batches of one sample each
    (5, 1, 3)
    """

    X: Array
    y: Array
    s: Array | None = None

    def per_sample(self) -> "Batch":
        """Return the samples as B batches of one: `model.grad(w, D.per_sample())` is (..., B, d).

        A `w` with leading axes of its own needs one for the samples: `w[..., None, :]`.
        A sample of weight 0 has loss 0 and gradient 0 (up to the L2 term).
        """
        s = None if self.s is None else self.s[..., None]
        return Batch(self.X[..., None, :], self.y[..., None], s)


#: Returns all training data of one client, gathered when it is called.
AllData = Callable[[], Batch]
