"""npm packages: a requirement goes in, the package's description and its sources come out. Nothing of it is run.

Most packages ship what a compiler or bundler made, some the sources beside it. Folders that are named for builds
are left out, and JavaScript where the TypeScript that it came from stands beside it. What a file itself gives away
is the filters' matter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from spd_lsp.training.corpus.package import Package, Source, fetched, unpacked

_TYPESCRIPT = (".ts", ".tsx", ".mts")
_JAVASCRIPT = (".js", ".mjs", ".jsx")
_DECLARATIONS = (".d.ts", ".d.mts")
_BUILT = frozenset(
    {"dist", "build", "umd", "cjs", "esm", "es", "es6", "esnext", "amd", "bundles", "out", "node_modules", "min"}
    | {"fesm2015", "fesm2022", "_esm", "_cjs", "commonjs", "output"}
)


def open_npm(requirement: str, archives: Path) -> Package:
    """A package's archive, fetched unless it is there."""
    into = archives / requirement.replace("/", "+")
    command = ["npm", "pack", "--silent", "--ignore-scripts", requirement]
    archive = fetched(command, requirement, into, "*.tgz", "npm")[0]
    return Package(describe(archive), lambda: source_files(archive))


def describe(archive: Path) -> Source:
    """Name, version, licence and checksum of a package, from its own package.json."""
    facts = json.loads(unpacked(archive, "package.json".__eq__)[0][1])
    return Source(
        name=str(facts["name"]),
        version=str(facts["version"]),
        licence=_licence_of(facts),
        archive=archive.name,
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        language="typescript",
    )


def _licence_of(facts: dict[str, Any]) -> str:
    """The licence as package.json states it, in the new form or one of the old ones."""
    stated = facts.get("license") or facts.get("licenses") or ""
    parts = stated if isinstance(stated, list) else [stated]
    return " OR ".join(str(part.get("type", "") if isinstance(part, dict) else part) for part in parts)


def source_files(archive: Path) -> list[tuple[str, bytes]]:
    """The sources that a person wrote, as far as names tell, in a stable order."""
    found = dict(unpacked(archive, lambda name: name.endswith(_TYPESCRIPT + _JAVASCRIPT)))
    return [(name, found[name]) for name in written(list(found))]


def written(names: Sequence[str]) -> list[str]:
    """TypeScript of `src` folders, else what there is more of: other TypeScript, or JavaScript, of `src` first."""
    kept = [name for name in names if not _BUILT.intersection(folders(name)) and ".min." not in name]
    typescript = [name for name in kept if name.endswith(_TYPESCRIPT) and not name.endswith(_DECLARATIONS)]
    javascript = [name for name in kept if name.endswith(_JAVASCRIPT)]
    return _in_src(typescript) or max(typescript, _in_src(javascript) or javascript, key=len)


def _in_src(names: Sequence[str]) -> list[str]:
    """Those that lie in a folder `src`, at any depth."""
    return [name for name in names if "src" in folders(name)]


def folders(name: str) -> tuple[str, ...]:
    """The folders a file lies in."""
    return PurePosixPath(name).parts[:-1]
