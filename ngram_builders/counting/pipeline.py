"""Documents whose ids a store has -> sorted runs of their n-grams: all counted, or a table and what changed since.

Knows ids and tables, not text. Both ways give the same runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ngram_builders.arrays import Ints
from ngram_builders.counting.external_merge import Counter, apply_change, shared
from ngram_builders.counting.token_cache import Document, Store
from ngram_builders.ngrams import Run, merge, negate, stream
from ngram_builders.table.reader import Table

_TEXTS = 256  # taken from the store at once
FEW = 16  # likewise, where few are wanted
MEMORY = 64 * 2**20  # bytes of counts held; merging takes several times as much, and more is not faster
BLOCK = 500_000  # tokens counted at once
CHANGED = 0.2  # of a table's tokens; with more, counting all is as quick
_CHANGED_TOKENS = 4_000_000  # a difference is held in memory

Report = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """How texts are counted."""

    fingerprint: str  # of the tokenizer
    vocab_size: int
    end_of_text: int
    orders: tuple[int, ...]
    min_count: Mapping[int, int]  # order -> least count
    min_files: int = 1  # texts that must have an n-gram


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be counted, and how."""

    documents: Sequence[Document]
    sizes: Mapping[bytes, int]  # tokens of each text in the store
    terms: Terms

    @property
    def digests(self) -> list[bytes]:
        """The distinct texts, in the order of their first paths."""
        return list(dict.fromkeys(document.digest for document in self.documents))

    def tokens(self, digests: Sequence[bytes]) -> int:
        """All that is predicted in some texts: their tokens, and an end-of-text each."""
        return sum(self.sizes[digest] + 1 for digest in digests)


@dataclass(frozen=True, slots=True)
class Earlier:
    """A table that was counted in the same way, and what it was made of."""

    table: Table
    documents: Sequence[Document]


class Lost(Exception):
    """The store does not have the ids of these texts any more; the arguments are the digests."""


def count(task: Task, earlier: Earlier | None, store: Store, folder: Path, report: Report) -> Iterator[Run]:
    """The n-grams of all documents, in sorted pieces of whole contexts; what memory does not hold, folder does."""
    change = None if earlier is None else _change_since(earlier, task)
    if earlier is None or change is None:
        runs = counted(task.digests, task, store, folder, report).runs()
        least = task.terms.min_files
        if least == 1:
            return runs
        files = counted(task.digests, task, store, folder, report, once=True).runs()
        return shared(runs, files, least, task.terms.vocab_size)
    added, removed = (counted(digests, task, store, folder, report) for digests in change)
    difference = merge([*added.runs(), *(negate(run) for run in removed.runs())])
    return apply_change(earlier.table.runs(), difference, task.terms.vocab_size)


def _change_since(earlier: Earlier, task: Task) -> tuple[list[bytes], list[bytes]] | None:
    """The texts that came and those that went; None if a table cannot be changed by them, or not quickly."""
    if task.terms.min_files > 1 or any(least > 1 for least in task.terms.min_count.values()):
        return None
    before, now = {document.digest for document in earlier.documents}, set(task.digests)
    added, removed = sorted(now - before), sorted(before - now)
    if not task.sizes.keys() >= set(removed):
        return None
    changed = task.tokens(added) + task.tokens(removed)
    return (added, removed) if changed <= min(CHANGED * earlier.table.summary.tokens, _CHANGED_TOKENS) else None


def counted(
    digests: Sequence[bytes], task: Task, store: Store, folder: Path, report: Report, *, once: bool = False
) -> Counter:
    """The counts of some texts; `once` in each of them."""
    terms, total = task.terms, task.tokens(digests)
    counter = Counter(
        folder, orders=terms.orders, vocab_size=terms.vocab_size, memory=MEMORY, block=BLOCK, once=once
    )
    for streams in streams_of(digests, task, store):
        counter.add(streams)
        report("counting", counter.tokens, total)
    return counter


def streams_of(digests: Sequence[bytes], task: Task, store: Store, step: int = _TEXTS) -> Iterator[list[Ints]]:
    """The texts as they are counted, some at a time."""
    for start in range(0, len(digests), step):
        some = digests[start : start + step]
        ids = store.ids(some)
        if lost := set(some) - ids.keys():
            raise Lost(*sorted(lost))
        yield [stream(ids[digest], task.terms.end_of_text) for digest in some]
