"""Packages -> tables in the registry, one for each version, shared by all projects that depend on it.

A version never changes, so its table is built once, and nothing is kept for another build.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from ngram_builders.counting.pipeline import CountOptions, CountTask, count_ngrams
from ngram_builders.counting.token_cache import TokenCache
from ngram_builders.counting.tokenize import Encode, Report, count_languages, tokenize_files
from ngram_builders.dependencies.packages import Package
from ngram_builders.registry.domains import Domain
from ngram_builders.registry.model_match import is_for_another_model, name_for_model
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.discovery import SourceFile, walk_sources
from ngram_builders.sources.filters import check_status
from ngram_builders.table.format import TableSummary
from ngram_builders.table.writer import write_table

DEPENDENCY_WEIGHT = 0.03  # against 0.7 for the project's own code; more raises perplexity
_MAX_FILES = 5_000  # of a package
_MAX_BYTES = 20_000_000


def build_package(
    package: Package, encode: Encode, options: CountOptions, registry: Registry, model: str, report: Report
) -> Domain | None:
    """Build the table of a package; None for one without source code."""
    name = _name_for(package, registry, model, options.fingerprint)
    files = list(source_files(package))
    with TokenCache(None, options.fingerprint) as cache:
        tokenized = tokenize_files(files, cache, encode, time.time_ns(), report)
        task = CountTask(tokenized.files, cache.token_counts(), options)
        if not task.files:
            return None

        def write(path: Path) -> TableSummary:
            return write_table(
                path,
                count_ngrams(task, None, cache, path.parent, report),
                fingerprint=options.fingerprint,
                vocab_size=options.vocab_size,
                orders=options.orders,
                min_count=options.min_count,
                tokens=task.count_tokens(task.digests),
                files=len(task.digests),
                sources=count_languages(task.files),
            )

        recipe = {"package": str(package), "model": model}
        return registry.install(name, write, weight=DEPENDENCY_WEIGHT, recipe=recipe)


def find_table(package: Package, registry: Registry, model: str, fingerprint: str) -> Domain | None:
    """Find the table of a package for a model's tokenizer; None if there is none that can serve."""
    name = _name_for(package, registry, model, fingerprint)
    domain = registry.find(name) if name in registry.names() else None
    return domain if domain and domain.fault is None and domain.fingerprint == fingerprint else None


def _name_for(package: Package, registry: Registry, model: str, fingerprint: str) -> str:
    """The name of a package's table, with the model's where another model has that name."""
    name = package.table_name
    taken = name in registry.names() and is_for_another_model(registry.find(name), model, fingerprint)
    return name_for_model(name, model) if taken else name


def source_files(package: Package) -> Iterator[SourceFile]:
    """The source files of a package, up to a limit. Ignore files of the project around it do not apply."""
    files = size = 0
    for place in package.sources:
        for found in _walk(place):
            files, size = files + 1, size + found.size
            if files > _MAX_FILES or size > _MAX_BYTES:
                return
            yield found


def _walk(place: Path) -> Iterator[SourceFile]:
    """The source files of a folder, or a single one."""
    if place.is_dir():
        yield from (
            found
            for _, found in walk_sources(str(place), with_outer_ignores=False)
            if isinstance(found, SourceFile)
        )
    elif check_status(status := place.lstat()) is None:
        yield SourceFile.of(str(place), status)
