"""Query damaged tables through a compiled kernel, where every read or write beyond an array is a fault.

Run as a process of its own: LIBRARY SEED ROUNDS. Says "survived" if it did. All arrays that the kernel gets end,
or begin, at a page that must not be touched.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from ngram_builders.ngrams import count_streams
from ngram_builders.table import kernel, numpy_query
from ngram_builders.table.format import Columns
from ngram_builders.table.kernel import CompiledQuery
from ngram_builders.table.query import open_query
from ngram_builders.table.shared_library import open_library
from ngram_builders.table.writer import build_columns
from tests.ngram_builders.pools import packed_columns

PAGE = mmap.PAGESIZE
EQUAL_WEIGHTS = np.tri(9, 8, -1) / 10
ARRAYS = [field.name for field in fields(Columns) if field.name not in ("orders", "vocab_size")]
zeros, empty = np.zeros, np.empty


def guarded(array: np.ndarray, at_end: bool) -> np.ndarray:
    """Return a copy between two inaccessible pages, directly next to one of them."""
    pages = -(-max(array.nbytes, 1) // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    whole = np.frombuffer(memory, dtype=np.uint8)
    start = PAGE + (pages * PAGE - array.nbytes if at_end else 0)
    inside = whole[start : start + array.nbytes].view(array.dtype)
    inside[:] = array
    for edge in (0, (pages + 1) * PAGE):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(whole.ctypes.data + edge), PAGE, 0) == 0
    return inside


def table(random: np.random.Generator) -> Columns:
    """Return a small table of any kind."""
    vocab_size = int(random.choice([50, 70_000]))
    ids = random.integers(0, 49, size=400)
    ids[::2] = np.where(random.random(200) < 0.5, 0, ids[::2])
    text = np.concatenate([ids, np.tile(ids[:3], 300)])
    columns = build_columns(count_streams([text], orders=(2, 3, 5), vocab_size=vocab_size), vocab_size)
    return packed_columns(columns) if random.random() < 0.6 else columns


def damaged(columns: Columns, random: np.random.Generator) -> Columns:
    """Return the table with one or two arrays flipped, randomized, set to extremes, or truncated."""
    changed = {}
    for name in random.choice(ARRAYS, size=2):
        array = getattr(columns, name).copy()
        raw = array.view(np.uint8)
        kind = random.integers(5) if len(array) else 4
        if kind == 0:
            raw[random.integers(0, len(raw), size=3)] ^= np.uint8(1 << random.integers(8))
        elif kind == 1:
            raw[:] = random.integers(0, 256, size=len(raw))
        elif kind == 2:
            raw[:] = random.choice([0, 0x7F, 0x80, 0xFF])
        elif kind == 3:
            array = array[: random.integers(0, len(array) + 1)]
        else:
            array = array[:0]
        changed[name] = array
    orders = dict(columns.orders)
    if random.random() < 0.2:
        orders[3] = tuple(int(n) for n in random.choice([-1, 0, 1, 7, 13, 40, 63, 2**31, 2**62], size=2))
    return replace(columns, **changed, orders=orders)


def query_damaged(library: ctypes.CDLL, random: np.random.Generator) -> None:
    """Query damaged pools once; numpy must survive them too."""
    at_end = bool(random.random() < 0.5)
    pools = [[damaged(table(random), random) for _ in range(random.integers(1, 3))] for _ in range(2)]
    fenced = [
        [replace(one, **{name: guarded(getattr(one, name), at_end) for name in ARRAYS}) for one in pool]
        for pool in pools
    ]
    contexts = random.integers(-1, 50, size=(random.integers(0, 5), random.integers(0, 10)))
    contexts[:, -1:] = np.where(random.random(contexts[:, -1:].shape) < 0.5, 0, contexts[:, -1:])
    candidates = random.choice([-1, 2**31, 65_535, *range(50)], size=random.integers(0, 60))
    with np.errstate(all="ignore"):
        for answers in (CompiledQuery(library, fenced, [0.3, 0.7]), open_query(fenced, [0.3, 0.7]), numpy_query):
            pools_too = (fenced, [0.3, 0.7]) if answers is numpy_query else ()
            p, matched = answers.probabilities(*pools_too, contexts, candidates)
            ids = answers.successors(*pools_too[:1], contexts, int(random.integers(0, 30)))
            assert np.isfinite(p).all() and (p >= 0).all() and (p <= 1 + 1e-9).all()
            likely = guarded(random.random(int(random.integers(0, 60))).astype(np.float32) - 0.1, at_end)
            few = int(random.integers(0, 30))
            both, p_f = answers.mix_candidates(*pools_too, contexts, likely, few, EQUAL_WEIGHTS)
            assert np.isfinite(p_f).all() and (np.diff(both) > 0).all() and (both < len(likely)).all()
            chosen = np.unique(candidates)
            even = np.full(len(chosen), 0.1)
            assert np.isfinite(answers.mix(*pools_too, contexts, chosen, even, EQUAL_WEIGHTS)).all()
            assert np.isfinite(matched).all() and (np.diff(ids) > 0).all() and (ids >= 0).all()


def main(path: str, seed: str, rounds: str) -> None:
    """Query repeatedly; the kernel's own memory is fenced as well."""
    library = open_library(Path(path))
    kernel.np = type("Fenced", (), {**vars(np), "zeros": fence(zeros), "empty": fence(empty)})  # type: ignore[assignment]
    for number in range(int(rounds)):
        query_damaged(library, np.random.default_rng([int(seed), number]))
    sys.stdout.write("survived\n")


def fence(allocate):
    """Return the allocation function with fenced memory."""
    return staticmethod(lambda size, dtype=np.float64: guarded(allocate(size, dtype=dtype), at_end=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
