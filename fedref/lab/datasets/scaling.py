"""Three ways to choose shift and scale, with which features become (x − shift) / scale."""

from collections.abc import Callable

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

Affine = tuple[Array | float, Array | float]


def moments(X: Array, block: int = 4096) -> tuple[Array, Array]:
    """Return mean (p,) and standard deviation (p,) of the columns of X (n, p), block by block.

    Integers are summed as integers, so that every machine gives the same result.
    """
    integers = X.dtype.kind in "iu" and X.dtype.itemsize <= 2  # n · 65535² stays below 2⁶³
    wide = np.int64 if integers else np.float64
    blocks = range(0, len(X), block)
    mean = sum(X[i : i + block].sum(0, dtype=wide) for i in blocks) / len(X)
    centre = 0 if integers else mean
    parts = (X[i : i + block].astype(wide) - centre for i in blocks)
    variance = sum(np.einsum("ij,ij->j", x, x) for x in parts) / len(X)
    variance = variance - mean**2 if integers else variance
    return np.asarray(mean), np.sqrt(np.maximum(variance, 0))


def refuse_codes(source: Source, scaling: str) -> None:
    """Refuse to scale codes: the code of a character or a word is not a quantity."""
    if source.vocabulary is not None:
        raise ConfigError(
            f"scaling={scaling} is for numbers, and {source.name} holds codes; use scaling=none"
        )


def unit(source: Source) -> Affine:
    """Return the shift and scale of x / full scale, which lies in [0, 1]."""
    refuse_codes(source, "unit")
    if source.full_scale is None:
        raise ConfigError(
            f"scaling=unit needs the largest possible feature value, unknown for {source.name}; "
            "use scaling=none or scaling=standardise"
        )
    return 0.0, source.full_scale


def standardise(source: Source) -> Affine:
    """Return the shift and scale of (x − mean) / (std + 0.001) over all rows, as FedProx has it."""
    refuse_codes(source, "standardise")
    mean, std = moments(source.X)
    return mean, std + 0.001


SCALINGS: dict[str, Callable[[Source], Affine]] = {
    "none": lambda source: (0.0, 1.0),
    "unit": unit,
    "standardise": standardise,
}
