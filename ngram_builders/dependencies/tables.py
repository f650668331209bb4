"""Packages -> tables in the registry, one for each version, shared by all projects that have the same code of it.

Code that has a table is not counted again, and nothing is kept for another build.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ngram_builders.counting.pipeline import CountOptions, CountTask, write_counted_table
from ngram_builders.counting.token_cache import TokenCache
from ngram_builders.counting.tokenize import Encode, ReportProgress, tokenize_files
from ngram_builders.dependencies.packages import Package
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.discovery import SourceFile, walk_sources
from ngram_builders.sources.filters import check_status, read_source_text
from ngram_builders.table.format import TableSummary

_MAX_FILES = 5_000  # of a package
_MAX_BYTES = 20_000_000
_MAX_NAME_LENGTH = 46  # that leaves room for a digest


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

    def build(self, code: PackageCode, report: ReportProgress) -> NgramTable | None:
        """Build the table of a package; None for one without source code."""
        with TokenCache(None, self.options.token_space.fingerprint) as cache:
            tokenized = tokenize_files(code.files, cache, self.encode, time.time_ns(), report)
            task = CountTask(tokenized.files, cache.token_counts(), self.options)
            if not task.files:
                return None

            def write(path: Path) -> TableSummary:
                return write_counted_table(path, task, cache, report)

            recipe = {"package": str(code.package), "model": self.model}
            return self.registry.install(self._name_for(code), write, recipe=recipe)

    def find(self, code: PackageCode) -> NgramTable | None:
        """Find the table of a package; None if there is none that can serve."""
        name = self._name_for(code)
        table = self.registry.find(name) if name in self.registry.names() else None
        return table if table and table.fault is None else None

    def _name_for(self, code: PackageCode) -> str:
        """The name of a package's table: no other code's and no other tokenizer's.

        Example: npm:@types/node@20.1.0 -> `npm-types-node@20.1.0-1f0c8a5be2d97364`.
        """
        package = code.package
        digest = hashlib.blake2b(
            f"{package}\0{code.digest}\0{self.options.token_space.fingerprint}".encode(), digest_size=8
        )
        name = re.sub(r"[^A-Za-z0-9._]+", "-", f"{package.ecosystem}-{package.name}").rstrip("-.")
        version = re.sub(r"[^A-Za-z0-9._-]+", "-", package.version).strip("-.")
        return f"{f'{name}@{version}'[:_MAX_NAME_LENGTH]}-{digest.hexdigest()}"


def source_files(package: Package) -> Iterator[SourceFile]:
    """The source files of a package, up to a limit. Ignore files of the project around it do not apply."""
    files = size = 0
    for place in package.sources:
        for found in _walk(place):
            files = files + 1
            size = size + found.size
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
