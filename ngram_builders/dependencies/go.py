"""Modules that a project's go.mod requires itself, from Go's module cache."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ngram_builders.dependencies.packages import Package, folder_within, read_manifest

_REQUIRED = re.compile(
    r"^[ \t]*(?:require[ \t]+)?([\w.-]+(?:/[\w.~-]+)+)[ \t]+(v[\w.+-]+)[ \t]*(//.*)?$", re.MULTILINE
)


def find_packages(project: Path) -> Iterator[Package]:
    """Find the required modules that are downloaded; indirect ones are the requirements of others."""
    for name, version, comment in _REQUIRED.findall(read_manifest(project / "go.mod")):
        path = re.sub("[A-Z]", lambda letter: "!" + letter[0].lower(), f"{name}@{version}")
        folder = folder_within(_cache() / path, _cache())
        if folder and "indirect" not in comment:
            yield Package("go", name, version, (folder,))


def _cache() -> Path:
    """Go's module cache, where Go looks for it."""
    if cache := os.environ.get("GOMODCACHE"):
        return Path(cache)
    first = os.environ.get("GOPATH", "").partition(os.pathsep)[0]
    return (Path(first) if first else Path.home() / "go") / "pkg" / "mod"
