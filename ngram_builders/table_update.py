"""A domain's files, counted -> its table, as far as the domain does not have it yet.

A table is written anew, from the one before where little changed, or what changed is added to it as a segment.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from ngram_builders.counting.layers import (
    Files,
    change_between,
    count_kept_layers,
    files_after,
    record_of,
    texts_of,
)
from ngram_builders.counting.pipeline import (
    CountTask,
    MissingTokens,
    PreviousTable,
    can_add,
    load_streams,
    write_counted_table,
    write_segment,
)
from ngram_builders.counting.token_cache import TokenCache
from ngram_builders.counting.tokenize import ReportProgress, count_languages
from ngram_builders.errors import UserError
from ngram_builders.registry.domains import Domain, resolve_roots, table_name
from ngram_builders.registry.origin import without_revisions
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.language_ids import closest_language
from ngram_builders.table.format import TableSummary
from ngram_builders.table.order_weights import measure_perplexity
from ngram_builders.table.reader import Table
from ngram_builders.table.suffix_array import SuffixArray, build_suffix_array

_SAMPLE_BATCH = 16  # texts loaded at once, where few are needed
_MAX_SEARCHED_TOKENS = 2**23  # of a table that holds its texts; sorting them takes 35 bytes of memory for each
_BYTES_PER_TOKEN = 70  # on disk while a table is made: spilled counts, sections, and the table
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_AGAIN = "and run the same command again, which continues from here"


def keeps_texts(tokens: int, min_count: Collection[int], min_files: int = 1) -> bool:
    """Whether a table of so many tokens holds the texts themselves: not where rare n-grams are left out of it."""
    return min_files == 1 and all(least == 1 for least in min_count) and tokens <= _MAX_SEARCHED_TOKENS


@dataclass(frozen=True, slots=True)
class TableUpdate:
    """Counts a task's files, and writes and registers their table, as far as the domain does not have it yet."""

    name: str
    roots: Sequence[Path]
    recipe: Mapping[str, Any]
    task: CountTask
    registry: Registry
    cache: TokenCache
    beside: Mapping[str, Path]
    report: ReportProgress
    perplexity: dict[str, float] = field(default_factory=dict)

    def run(self, *, fresh: bool, incremental: bool) -> tuple[Domain, bool]:
        """Return the domain with its table, and whether that is a new one; raises MissingTokens."""
        if missing := set(self.task.digests) - self.task.token_counts.keys():
            raise MissingTokens(*missing)
        domain = None if fresh else self._find_domain()
        if domain and incremental and (extended := self._extend(domain)):
            return extended
        previous = self._open_previous(domain) if domain else None
        if domain and previous and self._is_up_to_date(domain, previous):
            self.cache.record_files(domain.path.name, self.task.files)  # paths and times may differ
            return self.registry.record_recipe(domain, self.recipe), False
        made = self.registry.install(
            self.name, lambda path: self._write(path, previous), roots=self.roots, recipe=self.recipe
        )
        return made, domain is None or made.paths != domain.paths

    def _find_domain(self) -> Domain | None:
        """Find the domain as it is, None if there is none or it is damaged."""
        with suppress(UserError):
            domain = self.registry.find(self.name)
            return None if domain.fault else domain
        return None

    # --- a segment --------------------------------------------------------------------------------------------

    def _extend(self, domain: Domain) -> tuple[Domain, bool] | None:
        """Add what changed to a domain as a segment; None if its base has to be written anew."""
        recorded = [self.cache.indexed_files(layer) for layer in domain.layers]
        if not all(recorded) or not self._has_same_options(domain):
            return None
        states, now = files_after(recorded), set(self.task.digests)
        if texts_of(states[-1]) == now:
            before = states[-2] if len(states) > 1 else {}
            self.cache.record_files(domain.layers[-1], record_of(before, self.task.files))
            return self.registry.record_recipe(domain, self.recipe), False
        base, texts = Table.open(domain.path), set[bytes]().union(*map(texts_of, states))
        if not self.task.token_counts.keys() >= texts or base.holds_texts != self._keeps_texts:
            return None
        if not can_add(change_between(texts_of(states[0]), now), base.summary.tokens, self.task):
            return None
        layers = count_kept_layers(states, now, lambda change: self.task.count_tokens(change.digests))
        kept = [domain.path, *domain.segments][:layers]
        made = self.registry.install(
            self.name,
            lambda path: self._write_segment(path, kept, states[layers - 1]),
            roots=self.roots,
            recipe=self.recipe,
            kept=kept,
        )
        return made, True

    def _has_same_options(self, domain: Domain) -> bool:
        """Whether a domain was built from the same folders in the same way."""
        return (
            not domain.partitions
            and self._is_counted_alike(domain, Table.open(domain.path).summary)
            and domain.roots == resolve_roots(self.roots)
            and without_revisions(domain.recipe) == without_revisions(self.recipe)
        )

    def _write_segment(self, path: Path, kept: Sequence[Path], before: Files) -> TableSummary:
        """Write what changed since some layers of the table to a path, and summarize all of them."""
        change = change_between(texts_of(before), self.task.digests)
        with self._explain_full_disk(path.parent, change.digests):
            texts = self._sort_texts(change.added) if self._keeps_texts else None
            segment = write_segment(path, change, self.task, self.cache, self.report, texts)
        self.cache.record_files(table_name(path), record_of(before, self.task.files))
        summaries = [*(Table.open(file).summary for file in kept), segment]
        return replace(
            summaries[0],
            tokens=self.task.count_tokens(self.task.digests),
            files=len(self.task.digests),
            sources=dict(count_languages(self.task.files)),
            ngrams=sum(one.ngrams for one in summaries),
            size=sum(one.size for one in summaries),
        )

    # --- the whole table --------------------------------------------------------------------------------------

    def _open_previous(self, domain: Domain) -> PreviousTable | None:
        """Open the base of a domain's table, to add changes; None if it was counted otherwise or is damaged."""
        files = self.cache.indexed_files(domain.path.name)
        with suppress(UserError):
            table = Table.open(domain.path, self.task.options.fingerprint, stays_mapped=True)
            if files and self._is_counted_alike(domain, table.summary):
                table.verify_checksums()  # damage must not be copied into a sound table
                return PreviousTable(table, files)
        return None

    def _is_counted_alike(self, domain: Domain, had: TableSummary) -> bool:
        """Whether a table was counted with the same options."""
        options, min_files = self.task.options, domain.recipe.get("min_files", 1)
        counted = (had.fingerprint, had.orders, had.min_count, had.vocab_size, min_files)
        min_count = tuple(options.min_count.values())
        return counted == (options.fingerprint, options.orders, min_count, options.vocab_size, options.min_files)

    def _is_up_to_date(self, domain: Domain, previous: PreviousTable) -> bool:
        """Whether a build would only write what is there."""
        return (
            not domain.segments
            and {file.digest for file in previous.files} == set(self.task.digests)
            and previous.table.summary.sources == count_languages(self.task.files)
            and previous.table.holds_texts == self._keeps_texts
            and domain.roots == resolve_roots(self.roots)
            and without_revisions(domain.recipe) == without_revisions(self.recipe)
        )

    def _write(self, path: Path, previous: PreviousTable | None) -> TableSummary:
        """Write the table to a path, and record what it was made of."""
        with self._explain_full_disk(path.parent, self.task.digests):
            texts = self._sort_texts(sorted(self.task.digests)) if self._keeps_texts else None
            summary = write_counted_table(path, self.task, previous, self.cache, self.report, texts)
        self._measure(path)
        self.cache.record_files(table_name(path), self.task.files)
        return summary

    @property
    def _keeps_texts(self) -> bool:
        options, tokens = self.task.options, self.task.count_tokens(self.task.digests)
        return keeps_texts(tokens, options.min_count.values(), options.min_files)

    def _sort_texts(self, digests: Sequence[bytes]) -> SuffixArray:
        """The suffix array of texts in the order of their digests, by which servers know them."""
        options = self.task.options
        batches = load_streams(digests, self.task, self.cache)
        texts = (stream[1:-1] for stream in chain.from_iterable(batches))
        return build_suffix_array(texts, options.end_of_text, options.vocab_size)

    def _measure(self, path: Path) -> None:
        """Measure the perplexity of the table's own files, with and without that of their main language."""
        self.report("measuring", 0, 1)
        beside = {}
        files_by_language = count_languages(self.task.files)
        if name := closest_language(max(files_by_language, key=files_by_language.__getitem__), self.beside):
            with suppress(UserError):  # a table that cannot serve is left out
                beside[name] = Table.open(self.beside[name], self.task.options.fingerprint).columns
        batches = load_streams(sorted(self.task.digests), self.task, self.cache, _SAMPLE_BATCH)
        streams, orders = chain.from_iterable(batches), self.task.options.orders
        table = Table.open(path, stays_mapped=True)
        found = measure_perplexity(table.columns, streams, orders, beside, release=table.release_pages)
        self.perplexity.update(found)
        self.report("measuring", 1, 1)

    @contextmanager
    def _explain_full_disk(self, folder: Path, digests: Sequence[bytes]) -> Iterator[None]:
        """Say how much room a table of these texts takes, if the disk or a limit allows less."""
        try:
            yield
        except (OSError, UserError) as error:
            raise _no_room(error, folder, self.task.count_tokens(digests)) or error from error


def _no_room(error: Exception, folder: Path, tokens: int) -> UserError | None:
    """The error of a disk without room for a table, or of a limit; None if the error is another one."""
    cause = error.__cause__ if isinstance(error, UserError) else error
    if not isinstance(cause, OSError) or cause.errno not in (*_DISK_FULL, errno.EFBIG):
        return None
    needed = tokens * _BYTES_PER_TOKEN / 2**20
    if cause.errno == errno.EFBIG:
        return UserError(
            f"the build needs up to {needed:,.0f} MiB in {folder}, and a file may not be so large there: "
            f"raise the limit (`ulimit -f`, or the file system's own) {_AGAIN}"
        )
    with suppress(OSError):
        free = shutil.disk_usage(folder).free / 2**20
        return UserError(
            f"{folder} has {free:,.0f} MiB free and the build needs up to {needed:,.0f}; free some space {_AGAIN}"
        )
    return None
