"""When to consolidate: a peak of the loss, then a plateau [apfl §3.3, alg.1 lines 9–16]."""

from typing import NamedTuple

import numpy as np


class PlateauDetector(NamedTuple):
    """A window over the global loss. A *peak* is seen when its mean exceeds mean_old + std_old; once
    a peak was seen and mean < δ_μ and std < δ_σ, importance is renewed, and mean_old, std_old are
    those of the window. A window that is not full yet decides nothing.

    >>> detector, renewals = PlateauDetector(delta_mu=1.0, delta_sigma=0.1, length=2), []
    >>> for loss in (3.0, 3.0, 0.5, 0.5, 0.5, 0.5):
    ...     detector, renew = detector.push(loss)
    ...     renewals.append(renew)
    >>> renewals        # the peak is seen at the 2nd loss, the plateau at the 4th
    [False, False, False, True, False, False]
    """

    delta_mu: float = 1.0
    delta_sigma: float = 0.5
    length: int = 5
    window: tuple[float, ...] = ()
    mean_old: float = 0.0
    std_old: float = 0.0
    peak: bool = False

    def push(self, loss: float) -> tuple["PlateauDetector", bool]:
        """The detector after one more loss, and whether importance is to be renewed now."""
        window = (*self.window, loss)[-self.length :]
        after = self._replace(window=window)
        if len(window) < self.length:
            return after, False
        mean, std = float(np.mean(window)), float(np.std(window))
        if self.peak and mean < self.delta_mu and std < self.delta_sigma:  # [apfl alg.1 line 10]
            return after._replace(mean_old=mean, std_old=std, peak=False), True
        if mean > self.mean_old + self.std_old:  # [apfl alg.1 line 14]
            after = after._replace(peak=True)
        return after, False
