"""Which of the folders that an editor opens are indexed: no home directory, none twice, none against a choice.

In: a folder, the registry, the tokenizer's fingerprint. Out: why it is not indexed. Of the folder only its path is
looked at.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from ngram_builders.registry.registry import FolderChoice, Registry
from spd_lsp.lsp.documents import file_path

EXCLUDED = "you excluded it"
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/private/tmp")


def local_folder(uri: str) -> Path | None:
    """The real path of a folder that an editor opened; None if it is not on this machine."""
    path = file_path(uri)
    try:
        return path.resolve() if path and path.is_dir() else None
    except (OSError, RuntimeError):
        return None


def refusal(folder: Path, registry: Registry) -> str:
    """Why a folder, a real path, is not indexed even if the user asks for it; an empty string if it may be."""
    tables = registry.folder.resolve()
    if folder == Path(folder.anchor):
        return "it is the root of a file system"
    if _home().is_relative_to(folder):
        return "it is a home directory, or holds one"
    if folder in {Path(name).resolve() for name in (*_TEMPORARY, tempfile.gettempdir())}:
        return "it is the folder for temporary files"
    if tables.is_relative_to(folder) or folder.is_relative_to(tables):
        return "the n-gram tables are in it"
    return ""


def _home() -> Path:
    """The user's home directory; a folder that does not exist if there is none."""
    try:
        return Path.home().resolve()
    except RuntimeError:
        return Path(tempfile.gettempdir()).resolve()


def reason_not_to_index(folder: Path, registry: Registry, fingerprint: str) -> str:
    """Why a folder that was opened is not indexed by itself; an empty string if it should be."""
    if reason := refusal(folder, registry):
        return reason
    if registry.folder_choices().get(folder) is FolderChoice.EXCLUDED:
        return EXCLUDED
    if any(map(folder.is_relative_to, registry.assignments().workspaces)):
        return "you chose its tables"
    fitting = [one for one in registry.tables() if one.fault is None and one.fingerprint == fingerprint]
    if any(folder.is_relative_to(root) for table in fitting for root in table.roots):
        return "it has a table"
    return ""


def exclude_folder(folder: Path, registry: Registry) -> str:
    """Never index a folder by itself again, and delete the tables of it alone; what was done."""
    registry.choose_folder(folder, FolderChoice.EXCLUDED)
    own = [table.name for table in registry.tables() if table.roots == (folder,)]
    for name in own:
        registry.remove(name)
    deleted = f"; its tables were deleted: {', '.join(own)}" if own else ""
    return f"{folder} is not indexed any more{deleted}"
