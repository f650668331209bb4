"""Repositories -> an n-gram table: survey -> tokenize -> sort -> write -> register. Knows no tokenizer.

Token ids of earlier builds are reused; the table is the same, byte for byte, as one made from nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

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
from ngram_builders.sources.discovery import display_path, survey
from ngram_builders.sources.rules.selection import EVERYTHING, Selection
from ngram_builders.token_cache import CACHE_FILE, FileState, TokenCache, remove_cache
from ngram_builders.token_space import TokenSpace, with_boundaries
from ngram_builders.tokenized_files import (
    Encode,
    ReportProgress,
    TokenizedFiles,
    count_languages,
    tokenize_files,
)

DUPLICATE = "duplicate"
SHARD_TOKENS = 16_000_000  # sorted in 3 seconds and 350 MB
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildSummary:
    """What a build counted, what it skipped by reason, and where the table is."""

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
        tokenized = tokenize_files(surveyed.files, cache, encode, survey_ns, report)
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
    """Do the work of a build with its cache; if that fails with a new one, or none. -> result, what went wrong."""
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
    write_shard(path, streams, count_languages(files), token_space)
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


def _no_sources(roots: Sequence[Path], skipped: Counter[str]) -> UserError:
    """The error of a repository without source, with what was there instead."""
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
