"""Whether a table's columns are such as a build writes. Reads all of them, in chunks; a query does not.

Checksums reveal damage, not intent: whoever crafts a table can put them right. Queries survive any bytes, but only
rows in order give the same answers everywhere. Knows neither files nor checksums.

Dimensions: G entries, R rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ngram_builders.ngrams import hash_bits, other
from ngram_builders.table.format import POINTERS, SECTION_DTYPES, Columns
from ngram_builders.table.suffix_array import SuffixArray
from ngram_builders.table.writer import group_by_context

CHUNK_LENGTH = 1 << 20
_ROW_SECTIONS = [name for name in SECTION_DTYPES if name != "directory"]


def find_invalid_section(columns: Columns) -> str | None:
    """The first section in which a build of the same counts would have written something else, or None."""
    if not _directories_cover_rows(columns):
        return "directory"
    try:
        return _find_difference(columns)
    except (ValueError, IndexError):  # of widths and places that lead beyond the arrays
        return "pointers"


def _find_difference(columns: Columns) -> str | None:
    """Group the counts of all rows again, and compare."""
    done = dict.fromkeys(_ROW_SECTIONS, 0)  # compared so far
    last = -1
    for order, (_, bits) in columns.orders.items():
        directory = columns.order_directory(order)
        for start, end in _chunks(int(directory[0]), int(directory[-1])):
            hashes, buckets = columns.hashes(order, start, end)
            if (hashes >> (hash_bits(columns.vocab_size) - bits) != buckets).any():
                return "heads"
            run = columns.run(order, start, end)
            if not run.counts.all() or (run.counts.min() < 0 and not columns.is_signed):
                return "counts"
            if int(run.records[0]) <= last or (run.records[:-1] >= run.records[1:]).any():
                return "tokens"
            last = int(run.records[-1])
            before = [done["tokens"], done["counts"], done["wide_totals"]]
            rows = group_by_context(run, columns.vocab_size, start, before, is_signed=columns.is_signed)
            for name in _ROW_SECTIONS:
                part = getattr(columns, name)[done[name] : done[name] + len(rows[name])]
                if not np.array_equal(part, rows[name]):
                    return name
                done[name] += len(part)
    ends = [done["tokens"], done["counts"], done["wide_totals"]]
    if columns.pointers[done["pointers"] :].tolist() != ends:
        return "pointers"
    done["pointers"] += POINTERS
    return next((name for name, length in done.items() if length != len(getattr(columns, name))), None)


def find_invalid_text(texts: SuffixArray, vocab_size: int) -> str | None:
    """The first section of the texts with data that no build writes, or None.

    How suffixes are sorted is not checked: in another order places are found at random, and no more.
    """
    text = texts.text
    suffixes = texts.places()
    documents = texts.documents
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


def find_foreign_ids(columns: Columns, texts: SuffixArray | None) -> str | None:
    """The first section with ids beyond the vocabulary, or None. OTHER is no id of a text."""
    allowed = {"tokens": other(columns.vocab_size)}
    vocab_size = columns.vocab_size
    for section, ids in {"tokens": columns.tokens, "text": texts.text if texts else columns.tokens[:0]}.items():
        for start, end in _chunks(0, len(ids)):
            chunk = ids[start:end]
            if ((chunk >= vocab_size) & (chunk != allowed.get(section, 0))).any():
                return section
    return None
