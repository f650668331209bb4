"""What changed since a table was built, as signed counts in memory: table and overlay together are up to date.

In: documents as arrays of ids, under the names of the places that hold them. Out: columns, to be asked in one pool
with the table's. Knows ids and keys, neither texts nor files. One thread changes an overlay; readers take its
`columns` whenever they like and never wait: each change publishes new ones and leaves the old ones as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.ngrams import ORDERS, Run, check_orders, count_streams, merge, negate
from ngram_builders.table.format import Columns
from ngram_builders.table.writer import build_columns

Streams = Sequence[Ints]

MAX_NGRAMS = 600_000  # n-grams; text of about 220,000 tokens, 15 MB
# A change is added to the first level, which is small; a level that is full goes into the next. So a change costs
# as little after many changes as after one, and there are never more sets of columns than levels.
LEVEL_SIZES = (4_096, 65_536, 2**31)
_BREAK = -1  # stands between two streams, and is no id
_NOTHING = Run(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int32))


class Overlay:
    """Signed counts of all that was added and taken back."""

    def __init__(self, *, vocab_size: int, orders: Sequence[int] = ORDERS, room: int = MAX_NGRAMS) -> None:
        self.vocab_size = vocab_size
        self.orders = check_orders(orders)
        self.room = room
        self.levels: list[Run] = [_NOTHING] * len(LEVEL_SIZES)
        self.level_columns: list[Columns | None] = [None] * len(LEVEL_SIZES)
        self.columns: tuple[Columns, ...] = ()
        self.full = False  # whether a change was refused

    @property
    def size(self) -> int:
        """How many n-grams are held."""
        return sum(map(len, self.levels))

    def change(self, old: Streams, new: Streams, *, share: float = 1.0) -> bool:
        """Take back the n-grams of some arrays of ids and add those of others; False if there is no room for it.

        Only what lies around the first and the last difference is counted. `share`: of the room, what may be used.
        """
        windows = _changed_windows(_join_streams(old), _join_streams(new), self.orders[-1] - 1)
        if not any(map(len, windows)):
            return True
        if self.size + 2 * sum(map(len, windows)) > self.room * share:
            self.full = True
            return False
        taken, added = (self.count(window) for window in windows)
        self.add(merge([added, negate(taken)]))
        return True

    def count(self, window: Ints) -> Run:
        """The n-grams of streams that were joined."""
        parts = np.split(window, np.flatnonzero(window == _BREAK))
        streams = [part[part != _BREAK] for part in parts]
        return count_streams(streams, orders=self.orders, vocab_size=self.vocab_size)

    def add(self, run: Run) -> None:
        """Add signed counts and publish the result."""
        for level, most in enumerate(LEVEL_SIZES):
            run = merge([self.levels[level], run])
            kept = run if len(run) <= most else _NOTHING
            self.levels[level] = kept
            self.level_columns[level] = build_columns(kept, self.vocab_size) if len(kept) else None
            if kept is run:
                break
        self.columns = tuple(columns for columns in self.level_columns if columns)


def _join_streams(streams: Streams) -> Ints:
    """Streams as one array, with breaks between them. Example: [1, 2], [3] -> [1, 2, BREAK, 3]"""
    parts: list[Ints] = []
    for one in streams:
        parts += [np.array([_BREAK]), one] if parts else [one]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _changed_windows(old: Ints, new: Ints, margin: int) -> tuple[Ints, Ints]:
    """Both arrays from the first to the last difference, with so many values more on each side.

    An n-gram of margin + 1 tokens or fewer that is not within its window is in both arrays, at like places.
    """
    before = _alike(old, new)
    after = _alike(old[before:][::-1], new[before:][::-1])
    if before + after == len(old) == len(new):
        return old[:0], new[:0]
    start = max(0, before - margin)
    return tuple(ids[start : len(ids) - after + min(margin, after)] for ids in (old, new))  # type: ignore[return-value]


def _alike(first: Ints, second: Ints) -> int:
    """How many values two arrays share at their start."""
    length = min(len(first), len(second))
    different = first[:length] != second[:length]
    at = int(different.argmax()) if length else 0
    return at if length and different[at] else length


@dataclass(frozen=True, slots=True, eq=False)
class CountedText:
    """What one place holds: equal keys mean equal text."""

    key: Hashable
    streams: tuple[Ints, ...]


class Ledger:
    """Which document each place holds now. A document counts once, however many places hold it.

    The overlay has the difference between these documents and those that the table contains.
    """

    def __init__(
        self,
        overlay: Overlay,
        contained: Mapping[Hashable, Hashable] | None = None,
        read: Callable[[Hashable], tuple[Ints, ...] | None] = lambda key: None,
    ) -> None:
        """`contained`: place -> key of what the table contains; `read`: the streams of such a key, if known."""
        self.overlay = overlay
        self.read = read
        self.keys: dict[Hashable, Hashable] = dict(contained or {})
        self.holders = Counter(self.keys.values())
        self.documents: dict[Hashable, CountedText] = {}  # those that are held and that the table does not contain

    def put(self, place: Hashable, document: CountedText | None, *, share: float = 1.0) -> bool:
        """Let a place hold this document, or none; False, and nothing changed, if that could not be counted."""
        old = self.keys.get(place)
        if document is not None and document.key == old:
            return True
        taken = self.streams(old) if old is not None and self.holders[old] == 1 else ()
        added = document.streams if document is not None and not self.holders[document.key] else ()
        if taken is None or not self.overlay.change(taken, added, share=share):
            return False
        if old is not None:
            self.release(place, old)
        if document is not None:
            self.keys[place] = document.key
            self.holders[document.key] += 1
            self.documents.setdefault(document.key, document)
        return True

    def held(self, place: Hashable) -> tuple[Ints, ...] | None:
        """What a place says; None if it holds nothing or nobody knows any more."""
        return self.streams(self.keys[place]) if place in self.keys else None

    def streams(self, key: Hashable) -> tuple[Ints, ...] | None:
        """What a document that is held says; None if nobody knows any more."""
        return self.documents[key].streams if key in self.documents else self.read(key)

    def release(self, place: Hashable, key: Hashable) -> None:
        """Note that a place does not hold a document any more."""
        del self.keys[place]
        self.holders[key] -= 1
        if not self.holders[key]:
            del self.holders[key]
            self.documents.pop(key, None)
