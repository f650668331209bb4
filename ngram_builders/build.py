"""Repositories -> an n-gram table: survey -> tokenize -> count -> write -> register. Knows no tokenizer.

The token ids that an earlier build left are reused, and its table if nothing changed. The table is the same, byte
for byte, as one made from nothing. An incremental build leaves the table as it is and writes the difference beside
it.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ngram_builders.counting.external_merge import check_text_size
from ngram_builders.counting.memory import DEFAULT_MEMORY, share_memory
from ngram_builders.counting.pipeline import CountOptions, CountTask, MissingTokens
from ngram_builders.counting.token_cache import CACHE_FILE, TokenCache, remove
from ngram_builders.counting.tokenize import Encode, ReportProgress, TokenizedFiles, tokenize_files
from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, TokenSpace, check_orders
from ngram_builders.registry.assignments import KNOWN_LANGUAGES
from ngram_builders.registry.model_match import is_for_another_model, name_for_model
from ngram_builders.registry.ngram_table import NgramTable, resolve_roots
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.discovery import Survey, display_path, survey
from ngram_builders.sources.filters import is_notebook
from ngram_builders.sources.rules.selection import EVERYTHING, Selection
from ngram_builders.table_update import TableUpdate

DUPLICATE = "duplicate"
_NO_TABLES: Mapping[str, Path] = MappingProxyType({})
_MAX_ATTEMPTS = 3  # at reading files again whose tokens the cache has lost


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildSummary:
    """What a build counted, what it skipped by reason, and where the table is."""

    name: str
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
    def of(cls, made: NgramTable, started: float, skipped: Counter[str], **details: Any) -> BuildSummary:
        """Summarize a build that started at this time of `time.perf_counter`."""
        return cls(
            name=made.name,
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
    name: str | None,
    encode: Encode,
    *,
    token_space: TokenSpace,
    registry: Registry,
    orders: Sequence[int] = ORDERS,
    min_count: int | Mapping[int, int] = 1,
    min_files: int = 1,
    memory: int = DEFAULT_MEMORY,
    selection: Selection = EVERYTHING,
    model: str = "",
    fresh: bool = False,
    incremental: bool = False,
    companion_tables: Mapping[str, Path] = _NO_TABLES,
    report: ReportProgress = ignore_progress,
) -> BuildSummary:
    """Count the sources of some repositories and install their table, named after the folder by default.

    encode turns texts into ids without end of text. The same files give the same table, byte for byte. Files that
    have not changed since the last build are not read or tokenized again, unless fresh. incremental: where
    little changed, the table stays and that is added to it as a segment. min_files: n-grams that fewer distinct
    texts contain cannot be read back from the table. memory: of this process, in bytes. model is recorded for
    rebuilds. companion_tables: other tables that serve the same files; the summary has the perplexity with each.
    """
    started = time.perf_counter()
    survey_ns = time.time_ns()
    orders = check_orders(orders)
    share_memory(memory)
    options = CountOptions(
        token_space=token_space,
        orders=orders,
        min_count=min_count_by_order(orders, min_count),
        min_files=min_files,
        memory=memory,
    )
    surveyed = survey_sources(roots, selection, report)
    check_text_size(sum(file.size for file in surveyed.files if not is_notebook(file.path)))
    name = (
        default_name(roots, registry, model, token_space.fingerprint)
        if name is None
        else registry.check_new_name(name)
    )
    recipe: dict[str, Any] = {
        "orders": list(orders),
        "min_count": list(options.min_count.values()),
        **selection.as_recipe(),
        "model": model,
    }
    recipe |= {"min_files": min_files} if min_files > 1 else {}
    with registry.lock_for_build(name) as home:
        if fresh:
            remove(home / CACHE_FILE)
        with TokenCache(home / CACHE_FILE, token_space.fingerprint) as cache:
            for _ in range(_MAX_ATTEMPTS):
                tokenized = tokenize_files(surveyed.files, cache, encode, survey_ns, report)
                _check_sources(tokenized, surveyed, roots)
                task = CountTask(tokenized.files, cache.token_counts(), options)
                update = TableUpdate(name, roots, recipe, task, registry, cache, companion_tables, report)
                try:
                    made, changed = update.run(fresh=fresh, incremental=incremental)
                    break
                except MissingTokens as missing:
                    cache.drop_texts(missing.args)
            else:
                raise UserError(f"{CACHE_FILE} of {name} keeps losing tokens; run the same command with --fresh")
            cache.keep_only(made.layers, [file.path for file in surveyed.files])
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


def survey_sources(roots: Sequence[Path], selection: Selection, report: ReportProgress) -> Survey:
    """Find all files that are source by their names."""
    report("survey", 0, 1)
    surveyed = survey(*roots, selection=selection)
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


def default_name(roots: Sequence[Path], registry: Registry, model: str = "", fingerprint: str = "") -> str:
    """Return the name of the model's own table of these folders, if it has a default one; else one that is free.

    After the first folder, or after it and the model where another model has that name, or with a digest. No new
    table is named like a built-in one.
    """
    folders = resolve_roots(roots)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folders[0].name).strip("-.")[:56].rstrip(".") or "repository"
    known = {table.name: table for table in registry.tables()}
    names = [
        name,
        name_for_model(name, model),
        _with_digest(name, folders[0]),
        _with_digest(name, folders[0], model),
    ]
    if name in known and known[name].roots not in ((), folders):
        names[1:3] = names[2:0:-1]  # the model's name would not tell this repository from the other

    if name.lower() in KNOWN_LANGUAGES:
        names.insert(1, f"{name}-code")

    def is_own(table: NgramTable) -> bool:
        return not (fingerprint and is_for_another_model(table, model, fingerprint))

    own = (name for name in names if name in known and known[name].roots == folders and is_own(known[name]))
    new = (name for name in names if name.lower() not in KNOWN_LANGUAGES)
    free = (name for name in new if name not in known or (not known[name].roots and is_own(known[name])))
    return next(chain(own, free), names[-1])


def _with_digest(name: str, *parts: object) -> str:
    """Append a digest of what tells it from others of the same name."""
    whole = b"\0".join(os.fsencode(str(part)) for part in parts)
    return f"{name}-{hashlib.blake2b(whole, digest_size=3).hexdigest()}"
