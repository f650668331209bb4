"""Whether a table's columns are such as a build writes. Reads all of them, in chunks; a query does not.

Checksums reveal damage, not intent: whoever crafts a table can put them right. Queries survive any bytes, but only
rows in order give the same answers everywhere. Knows neither files nor checksums.

Dimensions: G entries, R rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ngram_builders.ngrams import hash_bits, other
from ngram_builders.table.format import BLOCK_ROWS, COUNT_OVERFLOW, ONES, POINTERS, WIDE, WIDE_ROW, Columns
from ngram_builders.table.suffix_array import SuffixArray

CHUNK_LENGTH = 1 << 20
_MAX_COUNT = 2**31 - 1  # of an n-gram


def find_invalid_section(columns: Columns) -> str | None:
    """The first section with data that no build writes, or None."""
    checks = (  # each relies on those before it
        ("wide_widths", _wide_rows_are_counted),
        ("pointers", _rows_are_adjacent),
        ("directory", _directories_cover_rows),
        ("heads", _contexts_ascend),
        ("counts", _overflow_is_exact),
        ("counts", _shapes_fit_counts),
        ("tokens", _tokens_ascend),
        ("wide_totals", _totals_are_exact),
    )
    return next((section for section, is_valid in checks if not is_valid(columns)), None)


def find_invalid_text(texts: SuffixArray, vocab_size: int) -> str | None:
    """The first section of the texts with data that no build writes, or None.

    How suffixes are sorted is not checked: in another order places are found at random, and no more.
    """
    text, suffixes, documents = texts.text, texts.places(), texts.documents
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


def _wide_rows_are_counted(columns: Columns) -> bool:
    """Whether each block's pointer says how many rows before it have their width stored, and these are wide."""
    is_wide = (columns.heads & WIDE) == WIDE
    before = np.append(0, np.cumsum(is_wide))
    blocks = np.append(np.arange(0, len(is_wide), BLOCK_ROWS), len(is_wide))
    return bool(
        np.array_equal(columns.pointers[2::POINTERS], before[blocks])
        and len(columns.wide_widths) == before[-1]
        and (columns.wide_widths >= WIDE_ROW).all()
    )


def _rows_are_adjacent(columns: Columns) -> bool:
    """Whether the blocks of rows lie side by side, from the first entry to the last, and so do their counts."""
    pointers = columns.pointers.astype(np.int64).reshape(-1, POINTERS)[:, :2]
    ends = np.zeros(2, dtype=np.int64)
    for start, end in _chunks(0, len(columns.heads)):
        widths, is_stored = columns.layout(start, end)
        sizes = np.stack((widths, widths * is_stored), axis=1)
        before = ends + np.cumsum(sizes, axis=0) - sizes
        blocks = slice(-(-start // BLOCK_ROWS), -(-end // BLOCK_ROWS))
        if not np.array_equal(pointers[blocks], before[-start % BLOCK_ROWS :: BLOCK_ROWS]):
            return False
        ends = before[-1] + sizes[-1]
    lengths = [len(columns.tokens), len(columns.counts)]
    return bool(ends.tolist() == pointers[-1].tolist() == lengths)


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
    return row == len(columns.heads)


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
    for start, end in _chunks(0, len(columns.heads)):
        widths, tokens, _ = columns.read_rows(start, end)
        ascends = tokens[:-1] < tokens[1:]
        # The last token of a row need not be below the first of the next.
        ascends[np.cumsum(widths)[:-1] - 1] = True
        if not ascends.all() or int(tokens.max()) > other(columns.vocab_size):
            return False
    return True


def _overflow_is_exact(columns: Columns) -> bool:
    """Whether every count is above 0, and the large ones, and no others, are in the overflow.

    The counts of a segment may be below 0, and are all in place.
    """
    seen = 0
    if columns.is_signed:
        return bool(columns.counts.all()) and not len(columns.overflow_places)
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


def _shapes_fit_counts(columns: Columns) -> bool:
    """Whether the counts of short rows are stored if, and only if, they are not all 1."""
    for start, end in _chunks(0, len(columns.heads)):
        widths, _, counts = columns.read_rows(start, end)
        is_stored = columns.layout(start, end)[1]
        all_ones = np.logical_and.reduceat(counts == 1, np.cumsum(widths) - widths)
        if (is_stored & all_ones & (widths <= ONES)).any():
            return False
    return True


def _totals_are_exact(columns: Columns) -> bool:
    """Whether the totals of the wide rows are right."""
    seen = 0
    for start, end in _chunks(0, len(columns.heads)):
        widths, _, counts = columns.read_rows(start, end)
        totals = np.add.reduceat(counts, np.cumsum(widths) - widths)[widths >= WIDE_ROW]
        if not np.array_equal(columns.wide_totals[seen : seen + len(totals)], totals):
            return False
        seen += len(totals)
    return True


def find_foreign_ids(columns: Columns, texts: SuffixArray | None) -> str | None:
    """The first section with ids beyond the vocabulary, or None. OTHER is no id of a text."""
    allowed, vocab_size = {"tokens": other(columns.vocab_size)}, columns.vocab_size
    for section, ids in {"tokens": columns.tokens, "text": texts.text if texts else columns.tokens[:0]}.items():
        for start, end in _chunks(0, len(ids)):
            chunk = ids[start:end]
            if ((chunk >= vocab_size) & (chunk != allowed.get(section, 0))).any():
                return section
    return None
