"""Repositories -> an n-gram table: survey -> tokenize -> sort -> write -> register. Knows no tokenizer.

A file in a state that the cache knows is not read, and a text whose digest it knows is not tokenized; the table is
the same, byte for byte, as one made from nothing. While one batch of files is tokenized the next one is read.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.errors import UserError
from ngram_builders.index.suffix_array import build_suffix_array
from ngram_builders.index.table_file import TableSummary, write_table
from ngram_builders.registry.ngram_table import (
    NgramTable,
    check_name,
    is_for_another_model,
    resolve_roots,
    short_name,
    table_name,
)
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.discovery import SourceFile, display_path, survey
from ngram_builders.sources.filters import UNREADABLE, NotSource, decode_source, read_file
from ngram_builders.sources.language_ids import DATA_LANGUAGES, language_of
from ngram_builders.sources.masking import MARK
from ngram_builders.sources.rules.selection import EVERYTHING, Selection
from ngram_builders.token_cache import CACHE_FILE, FileState, TokenCache, remove_cache, text_digest
from ngram_builders.token_space import TokenSpace, with_boundaries

DUPLICATE = "duplicate"
SHARD_TOKENS = 16_000_000  # sorted in 3 seconds and 350 MB
Encode = Callable[[Sequence[str]], Iterable[Sequence[int]]]
ReportProgress = Callable[[str, int, int], None]  # stage, done, total
BATCH_FILES = 1_000
_BATCH_CHARACTERS = 1_000_000
SETTLED_NS = 2_000_000_000  # since a file's last change; within it, another change may leave no trace
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildSummary:
    """The files and tokens that a build counted, the files that it skipped by reason, and the table's path."""

    name: str
    files: int
    tokens: int
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

    @classmethod
    def of(cls, made: NgramTable, started: float, skipped: Counter[str], **details: Any) -> BuildSummary:
        """Summarize a build that started at this time of `time.perf_counter`."""
        return cls(
            name=made.name,
            files=made.files,
            tokens=made.tokens,
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
    name: str | None,
    encode: Encode,
    *,
    token_space: TokenSpace,
    registry: Registry,
    selection: Selection = EVERYTHING,
    model: str = "",
    fresh: bool = False,
    report: ReportProgress = ignore_progress,
) -> BuildSummary:
    """Sort the sources of some repositories into a table and install it, named after the folder by default.

    encode turns texts into ids without end of text. Files that have not changed since the last build are not read
    or tokenized again, unless fresh. model is recorded for rebuilds.
    """
    started = time.perf_counter()
    survey_ns = time.time_ns()
    report("survey", 0, 1)
    surveyed = survey(*roots, selection=selection)
    report("survey", 1, 1)
    if not surveyed.files:
        raise _no_sources(roots, surveyed.count_skipped())
    name = default_name(roots, registry, model, token_space.fingerprint) if name is None else check_name(name)
    recipe: dict[str, Any] = {**selection.as_recipe(), "model": model}

    def build_with(cache: TokenCache) -> tuple[NgramTable, TokenizedFiles, bool]:
        tokenized = _tokenize_files(surveyed.files, cache, encode, survey_ns, report)
        for root in roots:
            if not root.is_dir():  # a table of nothing would replace that of what was just being deleted
                raise UserError(f"{display_path(root)} vanished during the build; run the same command again")
        if not tokenized.files:
            raise _no_sources(roots, surveyed.count_skipped() + tokenized.skipped)
        shards = _split_into_shards(tokenized.files, cache.token_counts(), SHARD_TOKENS)
        before = registry.find(name).paths if name in registry.names() else ()
        writes = [partial(_write_shard, shard, cache, token_space, report) for shard in shards]
        table = registry.install(name, writes, roots=roots, recipe=recipe)
        cache.keep_only([path.name for path in table.paths], [file.path for file in surveyed.files])
        return table, tokenized, fresh or table.paths != before  # a file's name is the digest of its content

    with registry.lock_for_build(name) as home:
        if fresh:
            remove_cache(home / CACHE_FILE)
        (table, tokenized, is_new), problem = _with_cache(home / CACHE_FILE, token_space.fingerprint, build_with)
    skipped = surveyed.count_skipped() + tokenized.skipped
    skipped[DUPLICATE] += len(tokenized.files) - table.files
    return BuildSummary.of(
        table,
        started,
        skipped,
        changed=is_new,
        masked=tokenized.masked,
        reused=tokenized.reused,
        encoded=tokenized.encoded,
        encoding_seconds=tokenized.encoding_seconds,
        problem=problem,
    )


def _with_cache(file: Path, fingerprint: str, work: Callable[[TokenCache], T]) -> tuple[T, str | None]:
    """Run a build with its cache, else with a new one, else without. -> its result, and the problem or None"""
    path: Path | None = file
    problem: str | None = None
    while True:
        try:
            with TokenCache(path, fingerprint) as cache:
                return work(cache), problem
        except sqlite3.Error as error:
            if path is None or "is full" in str(error):
                folder = "the folder for temporary files" if path is None else file.parent
                remedy = "free space there and run the same command again"
                raise UserError(f"cannot write to {folder}: {error}; {remedy}") from error
            # SQLite's operational errors are not about what the file holds: it may be locked, or in a bad place.
            is_usable = problem is None and not isinstance(error, sqlite3.OperationalError)
            path = file if is_usable else None
            remedy = "started a new cache" if is_usable else "continued without a cache"
            problem = f"cannot use the cached tokens in {file}: {error}; {remedy}"
            if is_usable:
                remove_cache(file)


def _split_into_shards(
    files: Iterable[FileState], token_counts: Mapping[bytes, int], most: int
) -> list[list[FileState]]:
    """Split files, in the order of their digests, into shards of so many tokens at most, or of one text."""
    shards: list[list[FileState]] = []
    tokens, last = 0, b""
    for state in sorted(files, key=lambda state: (state.digest, state.file.path)):
        if state.digest != last:
            count = token_counts[state.digest] + 2  # with its boundaries
            if not shards or tokens + count > most:
                shards.append([])
                tokens = 0
            tokens += count
            last = state.digest
        shards[-1].append(state)
    return shards


def _write_shard(
    files: Sequence[FileState], cache: TokenCache, token_space: TokenSpace, report: ReportProgress, path: Path
) -> None:
    """Sort the texts of some files and write them to a path."""
    digests = list(dict.fromkeys(state.digest for state in files))
    report("sorting", 0, 1)
    streams = (with_boundaries(cache.ids(one), token_space.end_of_text) for one in digests)
    languages: dict[bytes, str] = {}  # the first path of a text decides its language
    for state in files:
        languages.setdefault(state.digest, language_of(state.file.path, DATA_LANGUAGES) or "other")
    write_shard(path, streams, Counter(languages.values()), token_space)
    report("sorting", 1, 1)
    cache.record_files(table_name(path), files)  # before a server can see the table


def write_shard(path: Path, streams: Iterable[Ints], sources: Mapping[str, int], token_space: TokenSpace) -> None:
    """Sort texts, given with their boundaries, and write them to a path. sources: files by language."""
    array = build_suffix_array(streams)
    summary = TableSummary(
        fingerprint=token_space.fingerprint,
        vocab_size=token_space.vocab_size,
        tokens=array.tokens,
        files=len(array.breaks) - 1,
        sources=dict(sorted(sources.items())),
    )
    write_table(path, array, summary)


@dataclass(slots=True)
class _Batch:
    """Some files that were read."""

    files: int = 0  # readable or not
    size: int = 0  # of all of them
    states: list[FileState] = field(default_factory=list)  # of those that could be read
    texts: dict[bytes, str] = field(default_factory=dict)  # to tokenize, by digest


@dataclass(slots=True)
class TokenizedFiles:
    """The files that count, in the order of their paths, and the cost of tokenizing them."""

    files: list[FileState] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    reused: int = 0  # files that were not read
    masked: int = 0  # lines that hold a secret, of all distinct texts
    encoded: int = 0  # tokens that were not in the cache
    encoding_seconds: float = 0.0


def _tokenize_files(
    files: Sequence[SourceFile], cache: TokenCache, encode: Encode, survey_ns: int, report: ReportProgress
) -> TokenizedFiles:
    """Tokenize all source files into the cache. survey_ns: a time before the files were surveyed."""
    # 1. Find the files whose states or texts the cache does not know.
    known = set(cache.token_counts())
    states = {
        path: state for path, state in cache.file_states().items() if state.skip_reason or state.digest in known
    }
    changed = [file for file in files if file.path not in states or states[file.path].file != file]
    for file in changed:
        states.pop(file.path, None)
    result = TokenizedFiles(reused=len(files) - len(changed))
    # 2. Read and tokenize them.
    total_bytes = sum(file.size for file in changed)
    bytes_done = 0
    for batch in _in_background(_read_batches(changed, known)):
        started = time.perf_counter()
        ids = (
            [np.asarray(ids, dtype=np.int64) for ids in encode(list(batch.texts.values()))] if batch.texts else []
        )
        result.encoding_seconds += time.perf_counter() - started
        result.encoded += sum(map(len, ids))
        settled, unsettled = [], []
        for state in batch.states:
            if max(state.file.mtime_ns, state.file.ctime_ns) < survey_ns - SETTLED_NS:
                settled.append(state)
            else:
                unsettled.append(state.file.path)
        cache.add(dict(zip(batch.texts, ids, strict=True)), settled, unsettled)
        states.update((state.file.path, state) for state in batch.states)
        result.skipped[UNREADABLE] += batch.files - len(batch.states)
        bytes_done += batch.size
        report("bytes", bytes_done, total_bytes)
    # 3. Account for every file.
    masked: dict[bytes, int] = {}
    for state in (states[file.path] for file in files if file.path in states):
        if state.skip_reason:
            result.skipped[state.skip_reason] += 1
        else:
            masked[state.digest] = state.masked
            result.files.append(state)
    result.masked = sum(masked.values())
    return result


def _read_batches(files: Iterable[SourceFile], known: set[bytes]) -> Iterator[_Batch]:
    """Read files in batches that keep an encoder's threads busy and its memory small."""
    batch = _Batch()
    characters = 0
    for file in files:
        batch.files += 1
        batch.size += file.size
        with suppress(OSError):  # it was there in the survey
            try:
                data = read_file(file.path)
                text, skip_reason = decode_source(data, file.path)
            except NotSource as reason:
                data, text, skip_reason = b"", "", str(reason)
            digest = text_digest(data if skip_reason else text.encode())
            batch.states.append(FileState(file, digest, skip_reason, text.count(MARK)))
            if not skip_reason and digest not in known:
                known.add(digest)
                batch.texts[digest] = text
                characters += len(text)
        if batch.files >= BATCH_FILES or characters >= _BATCH_CHARACTERS:
            yield batch
            batch = _Batch()
            characters = 0
    if batch.files:
        yield batch


def _in_background(items: Iterable[T]) -> Iterator[T]:
    """Yield the same items, each made in another thread while the one before is used."""
    source = iter(items)
    with ThreadPoolExecutor(1) as worker:
        upcoming = worker.submit(next, source, None)
        while (item := upcoming.result()) is not None:
            upcoming = worker.submit(next, source, None)
            yield item


def _no_sources(roots: Sequence[Path], skipped: Counter[str]) -> UserError:
    """The error for a repository without source code; it counts the skipped files by reason."""
    folders = ", ".join(map(display_path, roots)) or "the given files"
    others = ", ".join(f"{number:,} {reason}" for reason, number in skipped.most_common()) or "nothing"
    return UserError(f"no source code in {folders} (skipped: {others}); name a folder with sources")


def default_name(roots: Sequence[Path], registry: Registry, model: str = "", fingerprint: str = "") -> str:
    """Return the name of the model's own table of these folders, if it has a default one; else one that is free.

    After the first folder, or after it and the model where another model has that name, or with a digest.
    """
    folders = resolve_roots(roots)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folders[0].name).strip("-.")[:56].rstrip(".") or "repository"
    known = {table.name: table for table in registry.tables()}
    digest = hashlib.blake2b(b"\0".join((os.fsencode(folders[0]), os.fsencode(model))), digest_size=3).hexdigest()
    suffix = re.sub(r"[^A-Za-z0-9._-]+", "-", short_name(model)).strip("-.")[:24] or "other"
    names = [name, f"{name[: 62 - len(suffix)]}-{suffix}".rstrip("."), f"{name}-{digest}"]
    if name in known and known[name].roots not in ((), folders):
        del names[1]  # the model's name would not tell this repository from the other

    others = {one for one in known if fingerprint and is_for_another_model(known[one], model, fingerprint)}
    own = (one for one in names if one in known.keys() - others and known[one].roots == folders)
    free = (one for one in names if one not in known or (not known[one].roots and one not in others))
    return next(chain(own, free), names[-1])
