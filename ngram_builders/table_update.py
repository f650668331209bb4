"""A table's files, counted -> the table, as far as it is not there yet: whole, or what changed as a segment."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ngram_builders.counting.layers import (
    Files,
    change_between,
    files_after,
    record_of,
    texts_of,
)
from ngram_builders.counting.pipeline import (
    CountTask,
    MissingTokens,
    can_add,
    load_streams,
    write_counted_table,
)
from ngram_builders.counting.token_cache import TokenCache
from ngram_builders.counting.tokenize import ReportProgress, count_languages
from ngram_builders.errors import UserError
from ngram_builders.registry.ngram_table import NgramTable, resolve_roots, table_name
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.language_ids import closest_language
from ngram_builders.table.format import TableSummary
from ngram_builders.table.order_weights import measure_perplexity
from ngram_builders.table.reader import Table
from ngram_builders.table.suffix_array import SuffixArray, build_suffix_array

_SAMPLE_BATCH = 16  # texts loaded at once, where few are needed
_MAX_SEARCHED_TOKENS = 2**23  # of a table that holds its texts; sorting them takes 35 bytes of memory for each


def keeps_texts(tokens: int, min_count: Collection[int], min_files: int = 1) -> bool:
    """Whether a table of this many tokens holds the texts themselves: not if rare n-grams are left out."""
    return min_files == 1 and all(least == 1 for least in min_count) and tokens <= _MAX_SEARCHED_TOKENS


@dataclass(frozen=True, slots=True)
class TableUpdate:
    """Counts a task's files, and writes and registers their table, as far as it is not there yet."""

    name: str
    roots: Sequence[Path]
    recipe: Mapping[str, Any]
    task: CountTask
    registry: Registry
    cache: TokenCache
    companion_tables: Mapping[str, Path]
    report: ReportProgress
    perplexity: dict[str, float] = field(default_factory=dict)

    def run(self, *, fresh: bool, incremental: bool) -> tuple[NgramTable, bool]:
        """Return the table, and whether it is a new one; raises MissingTokens."""
        if missing := set(self.task.digests) - self.task.token_counts.keys():
            raise MissingTokens(*missing)
        table = None if fresh else self._find_table()
        if table and incremental and (extended := self._extend(table)):
            return extended
        if table and self._is_up_to_date(table):
            self.cache.record_files(table.path.name, self.task.files)  # paths and times may differ
            return table, False
        write = partial(self._write, measures=not incremental)  # nobody reads it of a server's own rebuild
        made = self.registry.install(self.name, write, roots=self.roots, recipe=self.recipe)
        return made, table is None or made.paths != table.paths

    def _find_table(self) -> NgramTable | None:
        """Find the table as it is, None if there is none or it is damaged."""
        with suppress(UserError):
            table = self.registry.find(self.name)
            return None if table.fault else table
        return None

    # --- a segment --------------------------------------------------------------------------------------------

    def _extend(self, table: NgramTable) -> tuple[NgramTable, bool] | None:
        """Add what changed to a table as a segment; None if its base has to be written anew."""
        recorded = [self.cache.indexed_files(layer) for layer in table.layers]
        base = Table.open(table.path)
        if not all(recorded) or not self._has_same_options(table, base.summary):
            return None
        states = files_after(recorded)
        now = set(self.task.digests)
        if texts_of(states[-1]) == now:
            before = states[-2] if len(states) > 1 else {}
            self.cache.record_files(table.layers[-1], record_of(before, self.task.files))
            return table, False
        change = change_between(texts_of(states[0]), now)
        if (base.texts is not None) != self._keeps_texts or not can_add(change, base.summary.tokens, self.task):
            return None
        made = self.registry.install(
            self.name,
            lambda path: self._write_segment(path, base.summary, states[0]),
            roots=self.roots,
            recipe=self.recipe,
            kept=[table.path],
        )
        return made, True

    def _write_segment(self, path: Path, base: TableSummary, before: Files) -> TableSummary:
        """Write what changed since the base of the table to a path, and summarize both."""
        change = change_between(texts_of(before), self.task.digests)
        texts = self._sort_texts(change.added) if self._keeps_texts else None
        segment = write_counted_table(path, self.task, self.cache, self.report, texts, change)
        self.cache.record_files(table_name(path), record_of(before, self.task.files))
        return replace(
            base,
            tokens=self.task.count_tokens(self.task.digests),
            files=len(self.task.digests),
            sources=dict(count_languages(self.task.files)),
            ngrams=base.ngrams + segment.ngrams,
            size=base.size + segment.size,
        )

    # --- the whole table --------------------------------------------------------------------------------------

    def _is_up_to_date(self, table: NgramTable) -> bool:
        """Whether a build would only write what is there."""
        files = self.cache.indexed_files(table.path.name)
        with suppress(UserError):
            base = Table.open(table.path)
            base.verify_checksums()
            return (
                not table.segments
                and {file.digest for file in files} == set(self.task.digests)
                and base.summary.sources == count_languages(self.task.files)
                and self._has_same_options(table, base.summary)
            )
        return False

    def _has_same_options(self, table: NgramTable, had: TableSummary) -> bool:
        """Whether a table was built from the same folders in the same way."""
        options = self.task.options
        space = options.token_space
        counted = (had.fingerprint, had.vocab_size, had.orders, had.min_count, table.recipe.get("min_files", 1))
        min_count = tuple(options.min_count.values())
        return (
            not table.partitions
            and counted == (space.fingerprint, space.vocab_size, options.orders, min_count, options.min_files)
            and table.roots == resolve_roots(self.roots)
            and table.recipe == self.recipe
        )

    def _write(self, path: Path, *, measures: bool) -> TableSummary:
        """Write the table to a path, and record what it was made of."""
        texts = self._sort_texts(sorted(self.task.digests)) if self._keeps_texts else None
        summary = write_counted_table(path, self.task, self.cache, self.report, texts)
        if measures:
            self._measure(path)
        self.cache.record_files(table_name(path), self.task.files)
        return summary

    @property
    def _keeps_texts(self) -> bool:
        options = self.task.options
        tokens = self.task.count_tokens(self.task.digests)
        return keeps_texts(tokens, options.min_count.values(), options.min_files)

    def _sort_texts(self, digests: Sequence[bytes]) -> SuffixArray:
        """The suffix array of texts in the order of their digests, by which servers know them."""
        options = self.task.options
        batches = load_streams(digests, self.task, self.cache)
        texts = (stream[1:-1] for stream in chain.from_iterable(batches))
        return build_suffix_array(texts, options.token_space.end_of_text, options.token_space.vocab_size)

    def _measure(self, path: Path) -> None:
        """Measure the perplexity of the table's own files, with and without that of their main language."""
        self.report("measuring", 0, 1)
        companions = {}
        files_by_language = count_languages(self.task.files)
        if name := closest_language(
            max(files_by_language, key=files_by_language.__getitem__), self.companion_tables
        ):
            with suppress(UserError):  # a table that cannot serve is left out
                companions[name] = Table.open(
                    self.companion_tables[name], self.task.options.token_space.fingerprint
                ).columns
        batches = load_streams(sorted(self.task.digests), self.task, self.cache, _SAMPLE_BATCH)
        streams = chain.from_iterable(batches)
        orders = self.task.options.orders
        table = Table.open(path)
        found = measure_perplexity(table.columns, streams, orders, companions, release=table.release_pages)
        self.perplexity.update(found)
        self.report("measuring", 1, 1)
