"""Three ways to choose shift and scale, with which features become (x − shift) / scale."""

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.lab.datasets.formats.arrays import BYTE
from fedref.models.numerics import Array
from fedref.rounds.federation import Source

SCALINGS = ("none", "unit", "standardise")


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


def usual_scaling(source: Source) -> str:
    """Return how features are scaled if nobody says it: those with a full scale become 0 to 1."""
    return "none" if source.full_scale is None else "unit"


def shift_and_scale(source: Source, scaling: str) -> tuple[Array | float, Array | float]:
    """Return none: 0, 1; unit: 0, the full scale; standardise: mean, std + 0.001, as FedProx has it."""
    if scaling == "none":
        return 0.0, 1.0
    if source.vocabulary is not None:  # the code of a character or a word is not a quantity
        wrong = f"scaling={scaling} is for numbers, and {source.name} holds codes"
        raise ConfigError(f"{wrong}; use scaling=none")
    if scaling == "standardise":
        mean, std = moments(source.X)
        return mean, std + 0.001
    if source.full_scale is None and source.X.dtype == np.uint8:
        return 0.0, BYTE
    if source.full_scale is None:
        raise ConfigError(
            f"scaling=unit needs the largest possible feature value, unknown for {source.name}; "
            "use scaling=none or scaling=standardise"
        )
    return 0.0, source.full_scale
