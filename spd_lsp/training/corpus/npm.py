"""npm packages: a requirement goes in, the package's description and its handwritten sources come out.

Most packages contain compiled or bundled code, some also its sources. Folders with names of build outputs are
skipped, and JavaScript if its TypeScript is there too. The content of files is left to the filters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from spd_lsp.training.corpus.package import Files, Source, fetch_archive, read_archive

_TYPESCRIPT = (".ts", ".tsx", ".mts")
_JAVASCRIPT = (".js", ".mjs", ".jsx")
_DECLARATIONS = (".d.ts", ".d.mts")
_BUILT = frozenset(
    {"dist", "build", "umd", "cjs", "esm", "es", "es6", "esnext", "amd", "bundles", "out", "node_modules", "min"}
    | {"fesm2015", "fesm2022", "_esm", "_cjs", "commonjs", "output"}
)


def open_npm(requirement: str, archives: Path) -> tuple[Source, Files]:
    """Open a package, fetching it if necessary."""
    command = ["npm", "pack", "--silent", "--ignore-scripts", requirement]
    archive = fetch_archive(command, archives / requirement.replace("/", "+"), "*.tgz")
    contents = dict(
        read_archive(archive, lambda name: name.endswith((*_TYPESCRIPT, *_JAVASCRIPT, "package.json")))
    )
    facts = json.loads(contents.pop("package.json"))
    source = Source.of(archive, facts["name"], facts["version"], _licence_of(facts), "typescript")
    return source, [(name, contents[name]) for name in select_sources(list(contents))]


def _licence_of(facts: dict[str, Any]) -> str:
    """Return the licence as package.json states it, in the new form or one of the old ones."""
    stated = facts.get("license") or facts.get("licenses") or ""
    parts = stated if isinstance(stated, list) else [stated]
    return " OR ".join(str(part.get("type", "") if isinstance(part, dict) else part) for part in parts)


def select_sources(names: Sequence[str]) -> list[str]:
    """Select TypeScript in `src` folders, else the more numerous of other TypeScript and JavaScript."""
    kept = [name for name in names if not _BUILT.intersection(_folders(name)) and ".min." not in name]
    typescript = [name for name in kept if name.endswith(_TYPESCRIPT) and not name.endswith(_DECLARATIONS)]
    javascript = [name for name in kept if name.endswith(_JAVASCRIPT)]
    return _in_src(typescript) or max(typescript, _in_src(javascript) or javascript, key=len)


def _in_src(names: Sequence[str]) -> list[str]:
    """Return the names inside a folder `src`, at any depth."""
    return [name for name in names if "src" in _folders(name)]


def _folders(name: str) -> tuple[str, ...]:
    """Return the folders that contain a file."""
    return PurePosixPath(name).parts[:-1]
