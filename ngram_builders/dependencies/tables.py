"""Packages -> tables in the registry, one for each version, shared by all projects that have the same code of it.

Code that has a table is not counted again, and nothing is kept for another build.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ngram_builders.counting.pipeline import CountOptions, CountTask, write_counted_table
from ngram_builders.counting.token_cache import TokenCache
from ngram_builders.counting.tokenize import Encode, ReportProgress, tokenize_files
from ngram_builders.dependencies.packages import Package
from ngram_builders.errors import UserError
from ngram_builders.registry.domains import Domain
from ngram_builders.registry.model_match import is_for_another_model, name_for_model
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.discovery import SourceFile, walk_sources
from ngram_builders.sources.filters import check_status, read_source_text
from ngram_builders.table.format import TableSummary

DEPENDENCY_WEIGHT = 0.03  # against 0.7 for the project's own code; more raises perplexity
_MAX_FILES = 5_000  # of a package
_MAX_BYTES = 20_000_000
_MAX_NAME_LENGTH = 46  # that leaves room for a digest
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class PackageCode:
    """A package's source files, and a digest of their texts."""

    package: Package
    files: tuple[SourceFile, ...]
    digest: str

    @classmethod
    def of(cls, package: Package) -> PackageCode:
        """Read the code of a package."""
        files = tuple(source_files(package))
        digests = sorted(hashlib.blake2b(read_source_text(file.path)[0].encode()).digest() for file in files)
        return cls(package, files, hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest())


@dataclass(frozen=True, slots=True)
class PackageTables:
    """The tables of packages for one model's tokenizer.

    A project brings its environment, so a package may be other code than its name and version say: projects only
    share the table of the same code.
    """

    registry: Registry
    model: str
    encode: Encode
    options: CountOptions

    def build(self, code: PackageCode, report: ReportProgress) -> Domain | None:
        """Build the table of a package; None for one without source code.

        If another process makes a table of that name meanwhile, it serves where it is of the same code.
        """
        name = self._name_for(code)
        is_new = self._named(name) is None
        with TokenCache(None, self.options.fingerprint) as cache:
            tokenized = tokenize_files(code.files, cache, self.encode, time.time_ns(), report)
            task = CountTask(tokenized.files, cache.token_counts(), self.options)
            if not task.files:
                return None

            def write(path: Path) -> TableSummary:
                return write_counted_table(path, task, None, cache, report)

            recipe = {"package": str(code.package), "code": code.digest, "model": self.model}
            try:
                return self.registry.install(
                    name, write, weight=DEPENDENCY_WEIGHT, recipe=recipe, overwrite=not is_new
                )
            except UserError:
                if is_new and self._named(name):
                    return self.find(code)
                raise

    def find(self, code: PackageCode) -> Domain | None:
        """Find the table of a package; None if there is none that can serve."""
        domain = self._named(self._name_for(code))
        return (
            domain if domain and domain.fault is None and domain.fingerprint == self.options.fingerprint else None
        )

    def _name_for(self, code: PackageCode) -> str:
        """The name of a package's table, with the code's digest or the model where another one has that name."""
        name = code.package.table_name
        if (one := self._named(name)) and one.recipe.get("code") != code.digest:
            name = f"{name[:_MAX_NAME_LENGTH]}-{code.digest[:_DIGITS]}"
        other = self._named(name)
        is_taken = other and is_for_another_model(other, self.model, self.options.fingerprint)
        return name_for_model(name, self.model) if is_taken else name

    def _named(self, name: str) -> Domain | None:
        return self.registry.find(name) if name in self.registry.names() else None


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
    elif check_status(status := place.lstat(), str(place)) is None:
        yield SourceFile.of(str(place), status)
