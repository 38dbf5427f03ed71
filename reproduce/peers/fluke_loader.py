"""A loader of fluke's kind for its adapters."""

import torch
from fluke.data import FastDataLoader


class Loader(FastDataLoader):
    """The plan's batches in the place of shuffled ones."""

    def __init__(self, pairs):
        self.pairs, self.turn = list(pairs), iter(pairs)
        self.size, self.n_batches = sum(len(y) for _, y in pairs), len(pairs)
        self.tensors = [torch.cat(x) for x in zip(*pairs)]

    __len__ = lambda self: self.n_batches  # noqa: E731
    __iter__ = lambda self: iter(self.pairs)  # noqa: E731
    __next__ = lambda self: next(self.turn)  # noqa: E731
