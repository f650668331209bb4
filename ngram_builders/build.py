"""Repositories -> an n-gram table: survey -> tokenize -> count -> write -> register. Knows no tokenizer.

What an earlier build left is reused: its token ids, and its table, to which only the difference is added where
little changed. The table is the same, byte for byte, as one made from nothing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ngram_builders.counting.memory import DEFAULT_MEMORY, share_memory
from ngram_builders.counting.pipeline import (
    CountOptions,
    CountTask,
    MissingTokens,
    PreviousTable,
    load_streams,
    write_counted_table,
)
from ngram_builders.counting.token_cache import CACHE_FILE, TokenCache, remove
from ngram_builders.counting.tokenize import (
    Encode,
    ReportProgress,
    TokenizedFiles,
    count_languages,
    tokenize_files,
)
from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, check_orders
from ngram_builders.registry.domains import Domain, check_name, resolve_roots, table_name
from ngram_builders.registry.model_match import is_for_another_model, name_for_model
from ngram_builders.registry.origin import record_revisions, without_revisions
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.discovery import Survey, display_path, survey
from ngram_builders.sources.language_ids import closest_language
from ngram_builders.table.format import TableSummary
from ngram_builders.table.order_weights import measure_perplexity
from ngram_builders.table.reader import Table
from ngram_builders.table.suffix_array import SuffixArray, build_suffix_array

DUPLICATE = "duplicate"
_NO_TABLES: Mapping[str, Path] = MappingProxyType({})
_MAX_ATTEMPTS = 3  # at reading files again whose tokens the cache has lost
_SAMPLE_BATCH = 16  # texts loaded at once, where few are needed
_MAX_SEARCHED_TOKENS = 2**23  # of a table that holds its texts; sorting them takes 75 bytes of memory for each
_BYTES_PER_TOKEN = 70  # on disk while a table is made: spilled counts, sections, and the table
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildSummary:
    """What a build counted, what it skipped by reason, and where the table is."""

    domain: str
    files: int
    tokens: int
    ngrams: int
    bytes: int
    seconds: float
    skipped: dict[str, int]
    path: Path
    changed: bool = True  # whether the table is a new one
    masked: int = 0  # lines that are not counted, as they look like secrets
    reused: int = 0  # files that were not read again
    encoded: int = 0  # tokens that were not in the cache
    encoding_seconds: float = 0.0
    problem: str | None = None  # what went wrong without harm to the table
    perplexity: dict[str, float] = field(default_factory=dict)  # of held-out files, by tables used

    @classmethod
    def of(cls, made: Domain, started: float, skipped: Counter[str], **details: Any) -> BuildSummary:
        """Summarize a build that started at this time of `time.perf_counter`."""
        return cls(
            domain=made.name,
            files=made.files,
            tokens=made.tokens,
            ngrams=made.ngrams,
            bytes=made.size,
            seconds=time.perf_counter() - started,
            skipped={reason: number for reason, number in sorted(skipped.items()) if number},
            path=made.path,
            **details,
        )


def ignore_progress(stage: str, done: int, total: int) -> None:
    """Report progress to nobody."""


def build(
    roots: Sequence[Path],
    domain: str | None,
    encode: Encode,
    *,
    end_of_text: int,
    fingerprint: str,
    vocab_size: int,
    registry: Registry,
    orders: Sequence[int] = ORDERS,
    min_count: int | Mapping[int, int] = 1,
    min_files: int = 1,
    memory: int = DEFAULT_MEMORY,
    language: str | None = None,
    model: str = "",
    fresh: bool = False,
    beside: Mapping[str, Path] = _NO_TABLES,
    report: ReportProgress = ignore_progress,
) -> BuildSummary:
    """Count the sources of some repositories and install their table, named after the folder without a domain.

    encode turns texts into ids without end_of_text. The same files give the same table, byte for byte. What has
    not changed since the last build is not read, tokenized or counted again, unless fresh. min_files: n-grams that
    fewer distinct texts contain cannot be read back from the table. memory: of this process, in bytes. model is
    recorded for rebuilds. beside: other
    tables that serve the same files; the summary has the perplexity with each.
    """
    started, survey_ns = time.perf_counter(), time.time_ns()
    orders = check_orders(orders)
    share_memory(memory)
    options = CountOptions(
        fingerprint=fingerprint,
        vocab_size=vocab_size,
        end_of_text=end_of_text,
        orders=orders,
        min_count=min_count_by_order(orders, min_count),
        min_files=min_files,
        memory=memory,
    )
    surveyed = survey_sources(roots, language, report)
    name = default_name(roots, registry, model, fingerprint) if domain is None else check_name(domain)
    recipe: dict[str, Any] = {
        "orders": list(orders),
        "min_count": list(options.min_count.values()),
        "language": language,
        "model": model,
    }
    recipe |= ({"min_files": min_files} if min_files > 1 else {}) | record_revisions(roots)
    with registry.lock_for_build(name) as home:
        if fresh:
            remove(home / CACHE_FILE)
        with TokenCache(home / CACHE_FILE, fingerprint) as cache:
            for _ in range(_MAX_ATTEMPTS):
                tokenized = tokenize_files(surveyed.files, cache, encode, survey_ns, report)
                _check_sources(tokenized, surveyed, roots)
                task = CountTask(tokenized.files, cache.token_counts(), options)
                update = _TableUpdate(name, roots, recipe, task, registry, cache, beside, report)
                try:
                    made, changed = update.run(fresh)
                    break
                except MissingTokens as missing:
                    cache.drop_texts(missing.args)
            else:
                raise UserError(f"{CACHE_FILE} of {name} keeps losing tokens; run the same command with --fresh")
            cache.keep_only(made.path.name, [file.path for file in surveyed.files])
    skipped = surveyed.count_skipped() + tokenized.skipped
    skipped[DUPLICATE] += len(task.files) - len(task.digests)
    return BuildSummary.of(
        made,
        started,
        skipped,
        changed=changed,
        masked=tokenized.masked,
        reused=tokenized.reused,
        encoded=tokenized.encoded,
        encoding_seconds=tokenized.encoding_seconds,
        problem=cache.problem,
        perplexity=update.perplexity,
    )


def survey_sources(roots: Sequence[Path], language: str | None, report: ReportProgress) -> Survey:
    """Find all files that are source by their names."""
    report("survey", 0, 1)
    surveyed = survey(*roots, language=language)
    report("survey", 1, 1)
    if not surveyed.files:
        raise no_sources(roots, surveyed.count_skipped())
    return surveyed


def _check_sources(tokenized: TokenizedFiles, surveyed: Survey, roots: Sequence[Path]) -> None:
    """Refuse to replace a table by one of nothing, or of what was just being deleted."""
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{display_path(root)} vanished during the build; run the same command again")
    if not tokenized.files:
        raise no_sources(roots, surveyed.count_skipped() + tokenized.skipped)


def no_sources(roots: Sequence[Path], skipped: Counter[str]) -> UserError:
    """The error of a repository without source, with what was there instead."""
    folders = ", ".join(map(display_path, roots)) or "the given files"
    others = ", ".join(f"{number:,} {reason}" for reason, number in skipped.most_common()) or "nothing"
    return UserError(f"no source code in {folders} (skipped: {others}); name a folder with sources")


def min_count_by_order(orders: Sequence[int], min_count: int | Mapping[int, int]) -> dict[int, int]:
    """The least count of each order's n-grams."""
    return {order: min_count if isinstance(min_count, int) else min_count.get(order, 1) for order in orders}


def keeps_texts(tokens: int, min_count: Collection[int], min_files: int = 1) -> bool:
    """Whether a table of so many tokens holds the texts themselves: not where rare n-grams are left out of it."""
    return min_files == 1 and all(least == 1 for least in min_count) and tokens <= _MAX_SEARCHED_TOKENS


@dataclass(frozen=True, slots=True)
class _TableUpdate:
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

    def run(self, fresh: bool) -> tuple[Domain, bool]:
        """Return the domain with its table, and whether that is a new one; raises MissingTokens."""
        if missing := set(self.task.digests) - self.task.token_counts.keys():
            raise MissingTokens(*missing)
        domain = None if fresh else self._find_domain()
        previous = self._open_previous(domain) if domain else None
        if domain and previous and self._is_up_to_date(domain, previous):
            self.cache.record_files(domain.path.name, self.task.files)  # paths and times may differ
            return self.registry.record_recipe(domain, self.recipe), False
        made = self.registry.install(
            self.name, lambda path: self._write(path, previous), roots=self.roots, recipe=self.recipe
        )
        return made, domain is None or made.path != domain.path

    def _find_domain(self) -> Domain | None:
        """Find the domain as it is, None if there is none or it is damaged."""
        with suppress(UserError):
            domain = self.registry.find(self.name)
            return None if domain.fault else domain
        return None

    def _open_previous(self, domain: Domain) -> PreviousTable | None:
        """Open the domain's table to add changes to it; None if it was counted otherwise or is damaged."""
        files, options = self.cache.indexed_files(domain.path.name), self.task.options
        with suppress(UserError):
            table = Table.open(domain.path, options.fingerprint)
            had = table.summary
            counted = (had.orders, had.min_count, had.vocab_size, domain.recipe.get("min_files", 1))
            wanted = (options.orders, tuple(options.min_count.values()), options.vocab_size, options.min_files)
            if files and counted == wanted:
                table.verify_checksums()  # damage must not be copied into a sound table
                return PreviousTable(table, files)
        return None

    def _is_up_to_date(self, domain: Domain, previous: PreviousTable) -> bool:
        """Whether a build would only write what is there."""
        return (
            {file.digest for file in previous.files} == set(self.task.digests)
            and previous.table.summary.sources == count_languages(self.task.files)
            and (previous.table.texts is not None) == self._keeps_texts
            and domain.roots == resolve_roots(self.roots)
            and without_revisions(domain.recipe) == without_revisions(self.recipe)
        )

    def _write(self, path: Path, previous: PreviousTable | None) -> TableSummary:
        """Write the table to a path, and record what it was made of."""
        try:
            texts = self._sort_texts() if self._keeps_texts else None
            summary = write_counted_table(path, self.task, previous, self.cache, self.report, texts)
        except (OSError, UserError) as error:
            raise _disk_full(error, path.parent, self.task) or error from error
        self._measure(path)
        self.cache.record_files(table_name(path), self.task.files)
        return summary

    @property
    def _keeps_texts(self) -> bool:
        options, tokens = self.task.options, self.task.count_tokens(self.task.digests)
        return keeps_texts(tokens, options.min_count.values(), options.min_files)

    def _sort_texts(self) -> SuffixArray:
        """The suffix array of all texts, in the order of their digests, by which servers know them."""
        options = self.task.options
        batches = load_streams(sorted(self.task.digests), self.task, self.cache)
        texts = [stream[1:-1] for stream in chain.from_iterable(batches)]
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
        self.perplexity.update(measure_perplexity(Table.open(path).columns, streams, orders, beside))
        self.report("measuring", 1, 1)


def _disk_full(error: Exception, folder: Path, task: CountTask) -> UserError | None:
    """The error of a disk without room for a table; None if the error is another one."""
    cause = error.__cause__ if isinstance(error, UserError) else error
    if not isinstance(cause, OSError) or cause.errno not in _DISK_FULL:
        return None
    needed = task.count_tokens(task.digests) * _BYTES_PER_TOKEN / 2**20
    with suppress(OSError):
        free = shutil.disk_usage(folder).free / 2**20
        return UserError(
            f"{folder} has {free:,.0f} MiB free and the build needs up to {needed:,.0f}; "
            "free some space and run the same command again, which continues from here"
        )
    return None


def default_name(roots: Sequence[Path], registry: Registry, model: str = "", fingerprint: str = "") -> str:
    """Return the name of the model's own table of these folders, if it has a default one; else one that is free.

    After the first folder, or after it and the model where another model has that name, or with a digest.
    """
    folders = resolve_roots(roots)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folders[0].name).strip("-.")[:56].rstrip(".") or "repository"
    known = {domain.name: domain for domain in registry.domains()}
    names = [
        name,
        name_for_model(name, model),
        _with_digest(name, folders[0]),
        _with_digest(name, folders[0], model),
    ]
    if name in known and known[name].roots not in ((), folders):
        names[1:3] = names[2:0:-1]  # the model's name would not tell this repository from the other

    def is_own(domain: Domain) -> bool:
        return not (fingerprint and is_for_another_model(domain, model, fingerprint))

    own = (name for name in names if name in known and known[name].roots == folders and is_own(known[name]))
    free = (name for name in names if name not in known or (not known[name].roots and is_own(known[name])))
    return next(chain(own, free), names[-1])


def _with_digest(name: str, *parts: object) -> str:
    """Append a digest of what tells it from others of the same name."""
    whole = b"\0".join(os.fsencode(str(part)) for part in parts)
    return f"{name}-{hashlib.blake2b(whole, digest_size=3).hexdigest()}"
