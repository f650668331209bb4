"""A stream of ids -> its suffix array, and that array -> probabilities, in numpy and in C. For comparison only.

Every n-gram is a range of the array: no counts are stored, all are found by binary search.

Dimensions: T ids, K drafts, L context tokens, O orders, S contexts (K * O), C candidates.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngram_builders.programs import find_program
from spd_lsp.evaluation.compiling import compile_library
from spd_lsp.evaluation.stream import CONTEXT, ORDERS, Stream

__all__ = ["SuffixArrayInC", "SuffixArrayInNumpy", "build", "missing", "missing_compiler"]

Ints = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]

SCANNED = 512  # ranges up to this are read through instead of searched
SOURCE = Path(__file__).with_name("suffix_array.c")


def missing() -> str:
    """What is not installed."""
    return "" if find_spec("pydivsufsort") else "pydivsufsort is not installed"


def missing_compiler() -> str:
    """What is not installed for the query in C."""
    return missing() or ("" if find_program("cc") else "no C compiler `cc`")


def build(stream: Stream, folder: Path) -> None:
    """Sort all places of the counted text; a separator after each document keeps n-grams from crossing."""
    import pydivsufsort

    separator = stream.vocab_size
    if separator >= 2**16:
        raise ValueError(f"vocabularies above {2**16 - 1:,} are not supported here")
    text = np.concatenate([part for ids in stream.counted for part in (ids, [separator])]).astype(np.uint16)
    heads = np.zeros(separator + 2, dtype=np.uint32)
    np.cumsum(np.bincount(text, minlength=separator + 1), out=heads[1:])
    np.save(folder / "text.npy", text)
    np.save(folder / "array.npy", pydivsufsort.divsufsort(text).astype(np.int32, copy=False))
    np.save(folder / "heads.npy", heads)


class SuffixArrayInNumpy:
    """All contexts and all candidates of a step searched at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self) -> None:
        """Map the files."""
        self.text = np.asarray(np.load(self.folder / "text.npy", mmap_mode="r"))
        self.array = np.asarray(np.load(self.folder / "array.npy", mmap_mode="r"))
        self.heads = np.load(self.folder / "heads.npy").astype(np.int64)
        self.separator = len(self.heads) - 2
        self.index = np.full(len(self.heads), -1)
        self.lengths = np.arange(1, CONTEXT + 1)

    def prepare(self, contexts: Ints, candidates: Ints) -> tuple[Ints, Ints]:
        """Its natural input."""
        return contexts, candidates

    def step(self, prepared: tuple[Ints, Ints]) -> Floats:
        """The answer to one step: [K, L], [C] -> p [K, O, C]."""
        contexts, candidates = prepared
        lengths = np.tile(self.lengths, len(contexts))  # [S] how many tokens this context has
        starts = CONTEXT - lengths
        rows = np.repeat(np.arange(len(contexts)), len(ORDERS))
        low, high = self.ranges(contexts, rows, starts)
        p = np.zeros((len(lengths), len(candidates)))
        narrow = np.flatnonzero((high > low) & (high - low <= SCANNED))
        wide = np.flatnonzero(high - low > SCANNED)
        if len(narrow):
            p[narrow] = self.scan(low[narrow], high[narrow], lengths[narrow], candidates)
        if len(wide):
            p[wide] = self.search(low[wide], high[wide], lengths[wide], candidates)
        return p.reshape(len(contexts), len(ORDERS), len(candidates))

    def ranges(self, contexts: Ints, rows: Ints, starts: Ints) -> tuple[Ints, Ints]:
        """Each context's range [S], [S]: one token more at a time, both ends searched at once."""
        head = contexts[rows, starts]
        low, high = self.heads[head], self.heads[head + 1]
        for i in range(1, CONTEXT):
            longer = np.flatnonzero((starts + i < CONTEXT) & (low < high))
            if not len(longer):
                break
            token = contexts[rows[longer], starts[longer] + i]
            bounds = self.bisect(
                low[longer, None], high[longer, None], i, np.stack((token, token + 1), axis=1)
            )  # [longer, 2]
            low[longer], high[longer] = bounds.T
        return low, high

    def bisect(self, low: Ints, high: Ints, column: Ints | int, tokens: Ints) -> Ints:
        """The first entry not below each token, in ranges sorted by that column; all broadcast together."""
        left = np.broadcast_to(low, tokens.shape).copy()
        size = np.broadcast_to(high, tokens.shape) - left
        for _ in range(int(size.max()).bit_length()):
            half = size >> 1
            middle = left + half
            below = self.text.take(self.array.take(middle, mode="clip") + column, mode="clip") < tokens
            below &= size > 0
            left = np.where(below, middle + 1, left)
            size = np.where(below, size - half - 1, half)
        return np.asarray(left)

    def scan(self, low: Ints, high: Ints, lengths: Ints, candidates: Ints) -> Floats:
        """Narrow ranges, read through: counts by candidate."""
        widths = high - low
        row = np.repeat(np.arange(len(low)), widths)
        places = np.arange(len(row)) + np.repeat(low - np.cumsum(widths) + widths, widths)
        following = self.text.take(self.array.take(places) + lengths[row])
        totals = np.bincount(row[following != self.separator], minlength=len(low))
        self.index[candidates] = np.arange(len(candidates))
        column = self.index.take(following)
        self.index[candidates] = -1
        hit = column >= 0
        cells = np.bincount(row[hit] * len(candidates) + column[hit], minlength=len(low) * len(candidates))
        return np.asarray(cells.reshape(len(low), -1) / np.maximum(totals, 1)[:, None])

    def search(self, low: Ints, high: Ints, lengths: Ints, candidates: Ints) -> Floats:
        """Wide ranges: both ends of every candidate, and where the separators begin, by binary search."""
        needles = np.concatenate((candidates, candidates + 1, [self.separator]))
        needles = np.broadcast_to(needles, (len(low), len(needles)))
        found = self.bisect(low[:, None], high[:, None], lengths[:, None], needles)
        number = len(candidates)
        totals = np.maximum(found[:, -1:] - low[:, None], 1)
        return np.asarray((found[:, number : 2 * number] - found[:, :number]) / totals)

    def probabilities(self, answer: Floats) -> Floats:
        """[K, O, C]"""
        return answer


class SuffixArrayInC(SuffixArrayInNumpy):
    """The same searched in C."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.call = compile_step()

    def open(self) -> None:
        """Map the files, and keep their addresses: finding them anew at each call takes longer than the call."""
        super().open()
        self.starts = self.heads.astype(np.uint32)
        self.slots = np.zeros(len(self.heads), dtype=np.int32)
        self.addresses = [column.ctypes.data for column in (self.text, self.array, self.starts)]
        self.slots_address = self.slots.ctypes.data

    def step(self, prepared: tuple[Ints, Ints]) -> Floats:
        """The answer to one step: [K, L], [C] -> p [K, O, C]."""
        contexts, candidates = prepared
        p = np.empty((len(contexts), len(ORDERS), len(candidates)))
        self.call(
            *self.addresses,
            self.separator,
            contexts.ctypes.data,
            len(contexts),
            CONTEXT,
            candidates.ctypes.data,
            len(candidates),
            self.slots_address,
            p.ctypes.data,
        )
        return p


def compile_step() -> Callable[..., None]:
    """The compiled function."""
    step = compile_library("cc", SOURCE).step
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    step.argtypes = [pointer, pointer, pointer, number, pointer, number, number, pointer, number, pointer, pointer]
    step.restype = None
    return step
