"""Packages that a project's package.json declares, from its node_modules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ngram_builders.dependencies.packages import Package, existing, folder_within, read_manifest

_NAME = re.compile(r"(?:@[\w.-]+/)?[\w-][\w.-]*", re.ASCII)
_VERSION = re.compile(r"[\w.+-]{1,100}", re.ASCII)
_BUILT = ("dist", "build")  # where most packages have their code, and builds of other repositories have none


def find_packages(project: Path) -> Iterator[Package]:
    """Find the declared packages that are installed, also where pnpm links them within node_modules."""
    declared = _read_json(project / "package.json").get("dependencies")
    for name in sorted(declared) if isinstance(declared, dict) else []:
        folder = folder_within(project / "node_modules" / name, project) if _NAME.fullmatch(name) else None
        version = _read_json(folder / "package.json").get("version") if folder else None
        if folder and isinstance(version, str) and _VERSION.fullmatch(version):
            yield Package("npm", name, version, existing([folder, *(folder / built for built in _BUILT)]))


def _read_json(path: Path) -> dict[str, Any]:
    """Read an object; an empty one if there is none."""
    try:
        value = json.loads(read_manifest(path))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
