"""Matrix products of a decoder's weights with a few positions at once.

Legend: M positions, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ngram_builders.arrays import Floats

_MAX_SINGLE_ROWS = 2  # up to so many, reading the weights once for each beats packing them for a matrix product
_BLAS_TILE = 4  # rows that BLAS computes at once: three cost more than four


class Linear(Protocol):
    """x W + b, however W is stored."""

    size: int  # numbers in W

    def __call__(self, x: Floats) -> Floats:
        """[M, I] -> [M, O]."""


class Dense:
    """x W + b in the precision of the weights, which are [I, O] in any memory layout."""

    def __init__(self, weight: Floats, bias: Floats | None = None) -> None:
        self.weight = weight
        self.bias = bias
        self.size = weight.size

    def __call__(self, x: Floats) -> Floats:
        """[M, I] -> [M, O]."""
        if len(x) <= _MAX_SINGLE_ROWS:
            y: Floats = np.empty((len(x), self.weight.shape[1]), self.weight.dtype)
            for row, out in zip(x, y, strict=True):
                np.dot(row, self.weight, out=out)
        else:
            y = np.dot(_padded(x), self.weight)[: len(x)]
        if self.bias is not None:
            y += self.bias
        return y


def _padded(x: Floats) -> Floats:
    """The same rows, then zeros up to whole tiles: [M, I] -> [M or a little more, I]."""
    missing = -len(x) % _BLAS_TILE
    return np.concatenate([x, np.zeros((missing, x.shape[1]), x.dtype)]) if missing else x
