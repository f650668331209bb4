"""npm packages: a requirement goes in, the package's description and its sources come out. Nothing of it is run.

Most packages contain compiled or bundled code, some also its sources. Folders with names of build outputs are
skipped, and JavaScript if its TypeScript is there too. The content of files is left to the filters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from spd_lsp.training.corpus.package import FetchedPackage, Source, fetch_archives, read_archive

_TYPESCRIPT = (".ts", ".tsx", ".mts")
_JAVASCRIPT = (".js", ".mjs", ".jsx")
_DECLARATIONS = (".d.ts", ".d.mts")
_BUILT = frozenset(
    {"dist", "build", "umd", "cjs", "esm", "es", "es6", "esnext", "amd", "bundles", "out", "node_modules", "min"}
    | {"fesm2015", "fesm2022", "_esm", "_cjs", "commonjs", "output"}
)


def open_npm(requirement: str, archives: Path) -> FetchedPackage:
    """Open a package, fetching it if necessary."""
    into = archives / requirement.replace("/", "+")
    command = ["npm", "pack", "--silent", "--ignore-scripts", requirement]
    archive = fetch_archives(command, requirement, into, "*.tgz", "npm")[0]
    return FetchedPackage(describe_archive(archive), lambda: source_files(archive))


def describe_archive(archive: Path) -> Source:
    """Return name, version, licence and checksum of a package, from its own package.json."""
    facts = json.loads(read_archive(archive, "package.json".__eq__)[0][1])
    return Source(
        name=str(facts["name"]),
        version=str(facts["version"]),
        licence=_licence_of(facts),
        archive=archive.name,
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        language="typescript",
    )


def _licence_of(facts: dict[str, Any]) -> str:
    """Return the licence as package.json states it, in the new form or one of the old ones."""
    stated = facts.get("license") or facts.get("licenses") or ""
    parts = stated if isinstance(stated, list) else [stated]
    return " OR ".join(str(part.get("type", "") if isinstance(part, dict) else part) for part in parts)


def source_files(archive: Path) -> list[tuple[str, bytes]]:
    """Return the handwritten sources, judging by their names, in a stable order."""
    contents = dict(read_archive(archive, lambda name: name.endswith(_TYPESCRIPT + _JAVASCRIPT)))
    return [(name, contents[name]) for name in select_sources(list(contents))]


def select_sources(names: Sequence[str]) -> list[str]:
    """Select TypeScript in `src` folders, else the more numerous of other TypeScript and JavaScript."""
    kept = [name for name in names if not _BUILT.intersection(folders(name)) and ".min." not in name]
    typescript = [name for name in kept if name.endswith(_TYPESCRIPT) and not name.endswith(_DECLARATIONS)]
    javascript = [name for name in kept if name.endswith(_JAVASCRIPT)]
    return _in_src(typescript) or max(typescript, _in_src(javascript) or javascript, key=len)


def _in_src(names: Sequence[str]) -> list[str]:
    """Return the names inside a folder `src`, at any depth."""
    return [name for name in names if "src" in folders(name)]


def folders(name: str) -> tuple[str, ...]:
    """Return the folders that contain a file."""
    return PurePosixPath(name).parts[:-1]
