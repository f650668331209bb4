"""A table's columns -> what in them no build writes, if anything. Reads all of them, in pieces; a query does not.

Checksums tell damage, not intent: whoever crafts a table puts them right. What reads tables bears any bytes, but
only rows in order give the same numbers everywhere. Knows neither files nor checksums.

Dimensions: G entries, R rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ngram_builders.arrays import I64, Ints
from ngram_builders.ngrams import hash_bits, other
from ngram_builders.table.format import FINGERPRINT_BITS, OVERFLOW, WIDE_ROW, Columns

CHUNK_LENGTH = 1 << 20  # values looked at at once
_MOST = 2**31 - 1  # the largest count of an n-gram


def find_unsound_section(columns: Columns) -> str | None:
    """The first section found that holds what no build writes, or None."""
    if not _are_whole_rows(columns.pointers, len(columns.tokens)):
        return "pointers"
    if not _divide_all_rows(columns):
        return "directory"
    checks = {"fingerprints": _are_in_order, "tokens": _ascend, "counts": _are_counted, "wide_totals": _add_up}
    return next((section for section, sound in checks.items() if not sound(columns)), None)


def _pieces(start: int, end: int) -> Iterator[tuple[int, int]]:
    """start ... end, cut to pieces."""
    for first in range(start, end, CHUNK_LENGTH):
        yield first, min(first + CHUNK_LENGTH, end)


def _are_whole_rows(pointers: Ints, entries: int) -> bool:
    """Whether rows of at least one entry each lie side by side, from the first entry to the last."""
    if int(pointers[0]) != 0 or int(pointers[-1]) != entries:
        return False
    return all((pointers[a:b] < pointers[a + 1 : b + 1]).all() for a, b in _pieces(0, len(pointers) - 1))


def _divide_all_rows(columns: Columns) -> bool:
    """Whether the orders' directories, one after the other, lead to every row once."""
    row = 0
    for base, bits in columns.orders.values():
        directory = columns.directory[base : base + 2**bits + 1]
        if not all((directory[a:b] <= directory[a + 1 : b + 1]).all() for a, b in _pieces(0, len(directory) - 1)):
            return False
        first, last = int(directory[0]), int(directory[-1])
        if first != row and first != last:  # without rows it may lead anywhere
            return False
        row = last if first != last else row
    return row == len(columns.fingerprints)


def _are_in_order(columns: Columns) -> bool:
    """Whether each order's contexts ascend, each in the bucket of its hash."""
    hashed = hash_bits(columns.vocab_size)
    for base, bits in columns.orders.values():
        directory = columns.directory[base : base + 2**bits + 1]
        last = -1
        for start, end in _pieces(int(directory[0]), int(directory[-1])):
            rows = np.arange(start, end).astype(directory.dtype)  # of another type the directory would be copied
            buckets = np.searchsorted(directory, rows, side="right") - 1
            upper = buckets >> (bits - (hashed - FINGERPRINT_BITS))
            hashes = (upper << FINGERPRINT_BITS) | columns.fingerprints[start:end].astype(np.int64)
            if not ((np.diff(hashes, prepend=last) > 0).all() and (hashes >> (hashed - bits) == buckets).all()):
                return False
            last = int(hashes[-1])
    return True


def _ascend(columns: Columns) -> bool:
    """Whether the tokens of each row ascend, none twice and none beyond OTHER."""
    tokens, pointers = columns.tokens, columns.pointers
    for start, end in _pieces(0, len(tokens)):
        piece = tokens[start : end + 1]
        sound = piece[:-1] < piece[1:]
        # What stands last in its row need not be below what follows.
        within = slice(*np.searchsorted(pointers, np.array([start + 1, start + len(piece)], pointers.dtype)))
        sound[pointers[within].astype(np.int64) - 1 - start] = True
        if not sound.all() or int(piece.max()) > other(columns.vocab_size):
            return False
    return True


def _are_counted(columns: Columns) -> bool:
    """Whether every count is above 0, and just the large ones stand in the overflow."""
    seen = 0
    for start, end in _pieces(0, len(columns.counts)):
        piece = columns.counts[start:end]
        large = np.flatnonzero(piece == OVERFLOW) + start
        places, counts = (a[seen : seen + len(large)] for a in (columns.overflow_places, columns.overflow_counts))
        if not (
            piece.all() and np.array_equal(places, large) and ((counts >= OVERFLOW) & (counts <= _MOST)).all()
        ):
            return False
        seen += len(large)
    return seen == len(columns.overflow_places)


def _add_up(columns: Columns) -> bool:
    """Whether just the wide rows have totals, and these are right."""
    seen = 0
    for start, end in _pieces(0, len(columns.pointers) - 1):
        wide = np.flatnonzero(np.diff(columns.pointers[start : end + 1]) >= WIDE_ROW) + start
        rows = columns.wide_rows[seen : seen + len(wide)]
        totals = columns.wide_totals[seen : seen + len(wide)]
        if not (np.array_equal(rows, wide) and np.array_equal(totals, _sums(columns, wide))):
            return False
        seen += len(wide)
    return seen == len(columns.wide_rows)


def _sums(columns: Columns, rows: I64) -> I64:
    """What the counts of each of some rows, ascending, add up to."""
    borders = columns.pointers[np.stack([rows, rows + 1], axis=1).reshape(-1)].astype(np.int64)
    return np.diff(_up_to(columns, borders))[::2]


def _up_to(columns: Columns, borders: I64) -> I64:
    """The sums of all counts between the first of ascending borders and each of them."""
    sums = np.zeros(len(borders), dtype=np.int64)
    total = 0
    for start, end in _pieces(int(borders[0]), int(borders[-1])) if len(borders) else ():
        counts = columns.counts[start:end].astype(np.int64)
        large = np.flatnonzero(counts == OVERFLOW)
        at = np.searchsorted(columns.overflow_places, (large + start).astype(columns.overflow_places.dtype))
        counts[large] = columns.overflow_counts[at]
        running = total + np.cumsum(counts)
        inside = slice(*np.searchsorted(borders, [start + 1, end + 1]))
        sums[inside] = running[borders[inside] - start - 1]
        total = int(running[-1])
    return sums
