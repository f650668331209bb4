"""What a package is, whatever its language, and how the files that name one are read.

What a repository brings is data: manifests are searched for names and versions, nothing is run or imported, and no
link leads out of the project or of the user's own caches.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ngram_builders.sources.git_repository import read_regular_file

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_MAX_MANIFEST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Package:
    """One version of a package, and where its code is."""

    ecosystem: str
    name: str
    version: str
    sources: tuple[Path, ...]  # folders and files

    def __str__(self) -> str:
        return f"{self.ecosystem}:{self.name}@{self.version}"


def read_manifest(path: Path) -> str:
    """Read the start of a small text file; empty if there is none. Links, pipes and devices are none."""
    return read_regular_file(str(path), _MAX_MANIFEST_BYTES, _NO_FOLLOW).decode("utf-8", errors="replace")


def folder_within(folder: Path, outer: Path) -> Path | None:
    """Return the real path of a folder if it lies in another one, links followed; else None."""
    try:
        real = folder.resolve()
        return real if real.is_dir() and real.is_relative_to(outer.resolve()) else None
    except (OSError, RuntimeError):
        return None


def existing(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The paths that are there and are no links."""
    return tuple(path for path in paths if path.exists() and not path.is_symlink())
