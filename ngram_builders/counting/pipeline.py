"""Cached ids of texts -> sorted runs of their n-grams, and a table: of all of them, or of a change.

Knows ids and tables, not text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ngram_builders.arrays import Ints
from ngram_builders.counting.external_merge import NgramCounter, check_token_count, drop_unshared
from ngram_builders.counting.layers import Change, IndexedFile
from ngram_builders.counting.memory import DEFAULT_MEMORY, share_memory
from ngram_builders.counting.token_cache import TokenCache
from ngram_builders.counting.tokenize import ReportProgress, count_languages
from ngram_builders.ngrams import Run, TokenSpace, merge, negate, with_boundaries
from ngram_builders.table.format import TableSummary
from ngram_builders.table.suffix_array import SuffixArray
from ngram_builders.table.writer import write_table

_BATCH_TEXTS = 256  # read from the cache at once
MAX_CHANGED_SHARE = 0.2  # of a table's tokens; beyond, counting all is as quick
_MAX_CHANGED_TOKENS = 4_000_000  # a change is held in memory


@dataclass(frozen=True, kw_only=True, slots=True)
class CountOptions:
    """How texts are counted."""

    token_space: TokenSpace
    orders: tuple[int, ...]
    min_count: Mapping[int, int]  # by order
    min_files: int = 1  # texts that must contain an n-gram
    memory: int = DEFAULT_MEMORY  # bytes, of this process; the counts do not depend on it

    @property
    def is_pruned(self) -> bool:
        """Whether rare n-grams are left out."""
        return self.min_files > 1 or any(least > 1 for least in self.min_count.values())


@dataclass(frozen=True, slots=True)
class CountTask:
    """What to count, and how."""

    files: Sequence[IndexedFile]
    token_counts: Mapping[bytes, int]  # of each cached text, by digest
    options: CountOptions

    @property
    def digests(self) -> list[bytes]:
        """The distinct texts, in the order of their first paths."""
        return list(dict.fromkeys(file.digest for file in self.files))

    def count_tokens(self, digests: Sequence[bytes]) -> int:
        """Count what some texts add to a table: their tokens, and an end-of-text each."""
        return sum(self.token_counts[digest] + 1 for digest in digests)


class MissingTokens(Exception):
    """The cache no longer has the ids of these texts; the arguments are the digests."""


def write_counted_table(
    path: Path,
    task: CountTask,
    cache: TokenCache,
    report: ReportProgress,
    texts: SuffixArray | None = None,
    change: Change | None = None,
) -> TableSummary:
    """Count all texts and write their table, or a change as a segment; temporary files go beside it."""
    digests = task.digests if change is None else change.added
    counted = set(digests)
    return write_table(
        path,
        _count_ngrams(task, cache, path.parent, report)
        if change is None
        else [_count_change(change, task, cache, path.parent, report)],
        fingerprint=task.options.token_space.fingerprint,
        vocab_size=task.options.token_space.vocab_size,
        orders=task.options.orders,
        min_count=task.options.min_count,
        tokens=task.count_tokens(digests),
        files=len(digests),
        sources=count_languages(file for file in task.files if file.digest in counted),
        texts=texts,
        is_segment=change is not None,
    )


def _count_ngrams(task: CountTask, cache: TokenCache, folder: Path, report: ReportProgress) -> Iterator[Run]:
    """Count the n-grams of all texts, in sorted pieces of whole contexts; what exceeds memory goes to `folder`."""
    check_token_count(task.count_tokens(task.digests))
    runs = _count(task.digests, task, cache, folder, report).runs()
    if task.options.min_files == 1:
        return runs
    file_counts = _count(task.digests, task, cache, folder, report, once_per_stream=True).runs()
    return drop_unshared(runs, file_counts, task.options.min_files, task.options.token_space.vocab_size)


def can_add(change: Change, tokens: int, task: CountTask) -> bool:
    """Whether a change can be added to a table of this many tokens, quicker than counting all."""
    if task.options.is_pruned or not task.token_counts.keys() >= set(change.removed):
        return False  # pruned n-grams cannot be added to
    return task.count_tokens(change.digests) <= min(MAX_CHANGED_SHARE * tokens, _MAX_CHANGED_TOKENS)


def _count_change(change: Change, task: CountTask, cache: TokenCache, folder: Path, report: ReportProgress) -> Run:
    """Count what was added, less what was removed."""
    added, removed = (_count(digests, task, cache, folder, report) for digests in (change.added, change.removed))
    return merge([*added.runs(), *(negate(run) for run in removed.runs())])


def _count(
    digests: Sequence[bytes],
    task: CountTask,
    cache: TokenCache,
    folder: Path,
    report: ReportProgress,
    *,
    once_per_stream: bool = False,
) -> NgramCounter:
    """Count some texts."""
    counter = NgramCounter(
        folder,
        orders=task.options.orders,
        vocab_size=task.options.token_space.vocab_size,
        limits=share_memory(task.options.memory),
        once_per_stream=once_per_stream,
    )
    total = task.count_tokens(digests)
    for streams in load_streams(digests, task, cache):
        counter.add(streams)
        report("counting", counter.tokens, total)
    return counter


def load_streams(
    digests: Sequence[bytes], task: CountTask, cache: TokenCache, batch: int = _BATCH_TEXTS
) -> Iterator[list[Ints]]:
    """Load texts from the cache as they are counted, a batch at a time; raises MissingTokens."""
    for start in range(0, len(digests), batch):
        wanted = digests[start : start + batch]
        ids = cache.load_ids(wanted)
        if missing := set(wanted) - ids.keys():
            raise MissingTokens(*sorted(missing))
        yield [with_boundaries(ids[digest], task.options.token_space.end_of_text) for digest in wanted]
