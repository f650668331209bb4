"""Which n-gram tables serve a folder, and the choice of others: `spd-lsp ngrams use`, for an editor's menu.

In: the registry, a folder's real path. Out: plain objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ngram_builders.registry.registry import Registry
from spd_lsp.progress import format_count


def list_tables(registry: Registry, folder: Path, fingerprint: str) -> list[dict[str, Any]]:
    """Each table that the model can use, and whether it serves files in the folder."""
    serving = {domain.name for domain, _ in registry.domains_for(folder / "file", None)}
    return [
        {
            "name": domain.name,
            "detail": f"{format_count(domain.files, 'file')}, {', '.join(domain.languages)}",
            "isUsed": domain.name in serving,
        }
        for domain in registry.domains()
        if domain.fault is None and domain.fingerprint == fingerprint
    ]


def use_tables(registry: Registry, folder: Path, names: Sequence[str]) -> None:
    """Serve the folder from these tables only, with their own weights; without names, from those that fit."""
    registry.assign_workspace(folder, [(name, registry.find(name).weight) for name in names])


def has_table(registry: Registry, path: Path, fingerprint: str) -> bool:
    """Whether a table of the folder around a file serves it, or one that was chosen for that folder."""
    return any(domain.fingerprint == fingerprint for domain, _ in registry.domains_for(path, None))
