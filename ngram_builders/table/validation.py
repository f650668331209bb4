"""Whether a table's columns are such as a build writes. Reads all of them, in chunks; a query does not.

Checksums reveal damage, not intent: whoever crafts a table can put them right. Queries survive any bytes, but only
rows in order give the same answers everywhere. Knows neither files nor checksums.

Dimensions: G entries, R rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ngram_builders.ngrams import hash_bits, other
from ngram_builders.table.format import COUNT_OVERFLOW, WIDE_ROW, Columns
from ngram_builders.table.suffix_array import SuffixArray

CHUNK_LENGTH = 1 << 20
_MAX_COUNT = 2**31 - 1  # of an n-gram


def find_invalid_section(columns: Columns) -> str | None:
    """The first section with data that no build writes, or None."""
    checks = {  # each relies on those before it
        "pointers": _rows_are_adjacent,
        "directory": _directories_cover_rows,
        "fingerprints": _contexts_ascend,
        "tokens": _tokens_ascend,
        "counts": _overflow_is_exact,
        "wide_totals": _totals_are_exact,
    }
    return next((section for section, is_valid in checks.items() if not is_valid(columns)), None)


def find_invalid_text(texts: SuffixArray, vocab_size: int) -> str | None:
    """The first section of the texts with data that no build writes, or None.

    How suffixes are sorted is not checked: in another order places are found at random, and no more.
    """
    text, suffixes, documents = texts.text, texts.suffixes, texts.documents
    if not len(text) or max(int(text[a:b].max()) for a, b in _chunks(0, len(text))) >= other(vocab_size):
        return "text"
    seen = np.zeros(len(text), dtype=bool)
    seen[suffixes[suffixes < len(text)]] = True
    if not seen.all():
        return "suffixes"
    starts = np.append(documents, np.uint32(len(text) - 1))
    ends_text = text[starts[starts < len(text)]] == text[-1]
    if int(starts[0]) != 0 or not (starts[:-1] < starts[1:]).all() or not ends_text.all():
        return "documents"
    return None


def _chunks(start: int, end: int) -> Iterator[tuple[int, int]]:
    """start ... end in chunks."""
    for first in range(start, end, CHUNK_LENGTH):
        yield first, min(first + CHUNK_LENGTH, end)


def _rows_are_adjacent(columns: Columns) -> bool:
    """Whether rows of at least one entry each lie side by side, from the first entry to the last."""
    pointers = columns.pointers
    if int(pointers[0]) != 0 or int(pointers[-1]) != len(columns.tokens):
        return False
    return all((pointers[a:b] < pointers[a + 1 : b + 1]).all() for a, b in _chunks(0, len(pointers) - 1))


def _directories_cover_rows(columns: Columns) -> bool:
    """Whether the orders' directories, one after the other, lead to every row once."""
    row = 0
    for order in columns.orders:
        directory = columns.order_directory(order)
        if not all((directory[a:b] <= directory[a + 1 : b + 1]).all() for a, b in _chunks(0, len(directory) - 1)):
            return False
        first, last = int(directory[0]), int(directory[-1])
        if first == last:
            continue  # without rows it may lead anywhere
        if first != row:
            return False
        row = last
    return row == len(columns.fingerprints)


def _contexts_ascend(columns: Columns) -> bool:
    """Whether each order's contexts ascend, each in the bucket of its hash."""
    for order, (_, bits) in columns.orders.items():
        directory, last = columns.order_directory(order), -1
        for start, end in _chunks(int(directory[0]), int(directory[-1])):
            hashes, buckets = columns.hashes(order, start, end)
            in_bucket = hashes >> (hash_bits(columns.vocab_size) - bits) == buckets
            if not ((np.diff(hashes, prepend=last) > 0).all() and in_bucket.all()):
                return False
            last = int(hashes[-1])
    return True


def _tokens_ascend(columns: Columns) -> bool:
    """Whether the tokens of each row ascend, none twice and none beyond OTHER."""
    tokens, pointers = columns.tokens, columns.pointers
    for start, end in _chunks(0, len(tokens)):
        chunk = tokens[start : end + 1]
        ascends = chunk[:-1] < chunk[1:]
        # The last token of a row need not be below the first of the next.
        rows = slice(*np.searchsorted(pointers, np.array([start + 1, start + len(chunk)], pointers.dtype)))
        ascends[pointers[rows].astype(np.int64) - 1 - start] = True
        if not ascends.all() or int(chunk.max()) > other(columns.vocab_size):
            return False
    return True


def _overflow_is_exact(columns: Columns) -> bool:
    """Whether every count is above 0, and the large ones, and no others, are in the overflow."""
    seen = 0
    for start, end in _chunks(0, len(columns.counts)):
        chunk = columns.counts[start:end]
        large = np.flatnonzero(chunk == COUNT_OVERFLOW) + start
        places = columns.overflow_places[seen : seen + len(large)]
        counts = columns.overflow_counts[seen : seen + len(large)]
        in_range = (counts >= COUNT_OVERFLOW) & (counts <= _MAX_COUNT)
        if not (chunk.all() and np.array_equal(places, large) and in_range.all()):
            return False
        seen += len(large)
    return seen == len(columns.overflow_places)


def _totals_are_exact(columns: Columns) -> bool:
    """Whether the wide rows, and no others, have totals, and these are right."""
    seen = row = 0
    pointers = columns.pointers
    while row < len(pointers) - 1:
        end = min(int(pointers[row]) + CHUNK_LENGTH, len(columns.tokens))
        last = int(np.searchsorted(pointers, pointers.dtype.type(end)))  # else pointers would be copied
        starts = pointers[row : last + 1].astype(np.int64)
        counts = columns.exact_counts(int(starts[0]), int(starts[-1]))
        sums = np.add.reduceat(counts, starts[:-1] - starts[0])
        wide = np.flatnonzero(np.diff(starts) >= WIDE_ROW)
        rows = columns.wide_rows[seen : seen + len(wide)]
        totals = columns.wide_totals[seen : seen + len(wide)]
        if not (np.array_equal(rows, wide + row) and np.array_equal(totals, sums[wide])):
            return False
        seen += len(wide)
        row += len(starts) - 1
    return seen == len(columns.wide_rows)


def find_foreign_ids(columns: Columns, texts: SuffixArray | None) -> str | None:
    """The first section with ids beyond the vocabulary, or None. OTHER is no id of a text."""
    allowed, vocab_size = {"tokens": other(columns.vocab_size)}, columns.vocab_size
    for section, ids in {"tokens": columns.tokens, "text": texts.text if texts else columns.tokens[:0]}.items():
        for start, end in _chunks(0, len(ids)):
            chunk = ids[start:end]
            if ((chunk >= vocab_size) & (chunk != allowed.get(section, 0))).any():
                return section
    return None
