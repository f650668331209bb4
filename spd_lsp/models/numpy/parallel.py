"""Products with 8-bit weights by several threads: each computes some of the outputs. The numbers stay the same.

Legend: M positions, I inputs, O outputs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.models.numpy.decoder import Int8

_SMALLEST = 1 << 19  # weights; with fewer, waking a thread takes as long as it saves


class Threads:
    """How many threads the products of a model share, the calling one included."""

    def __init__(self) -> None:
        self.set_count(1)

    def set_count(self, count: int) -> None:
        """From the next product on. Threads end when nothing refers to their pool any more."""
        self.count = count
        self.pool = ThreadPoolExecutor(count - 1, thread_name_prefix="spd-lsp-product") if count > 1 else None


class ParallelInt8:
    """A product of which each thread computes a part."""

    def __init__(self, whole: Int8, threads: Threads) -> None:
        self.whole, self.threads, self.size = whole, threads, whole.size
        self.parts = [whole]

    def __call__(self, x: Floats) -> Floats:
        """[M, I] -> [M, O]."""
        pool, count = self.threads.pool, self.threads.count
        if pool is None or self.size < _SMALLEST:
            return self.whole(x)
        if len(self.parts) != count:
            self.parts = _cut(self.whole, count)
        others = [pool.submit(part, x) for part in self.parts[1:]]
        first = self.parts[0](x)
        return np.concatenate([first, *(other.result() for other in others)], axis=1)


def _cut(whole: Int8, count: int) -> list[Int8]:
    """Products of about as many outputs each."""
    outputs = len(whole.values)
    ends = [outputs * number // count for number in range(count + 1)]
    return [
        type(whole)(whole.values[a:b], whole.scales[a:b], None if whole.bias is None else whole.bias[a:b])
        for a, b in pairwise(ends)
    ]
