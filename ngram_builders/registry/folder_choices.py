"""What is remembered of the folders that editors opened: indexed, excluded, or allowed although they are large.

In: a registry's folder, a user's folder. Out: the choice, by the folder's real path. Nothing is written into the
user's folders themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path

from ngram_builders.registry.locks import hold_lock
from ngram_builders.registry.ngram_table import PARSE_ERRORS, read_record, write_record

_CHOICES_FILE = "folders.msgpack"
_LOCK_FILE = ".lock"  # that of the registry


class FolderChoice(enum.Enum):
    """What was decided about a folder."""

    INDEXED = "indexed"  # by itself, of which the user has been told
    ALLOWED = "allowed"  # by the user, whatever its size
    EXCLUDED = "excluded"  # by the user


def read_folder_choices(registry: Path) -> dict[Path, FolderChoice]:
    """Read all choices; none if there is no record or it is damaged."""
    try:
        record = read_record(registry / _CHOICES_FILE)
        return {Path(str(folder)): FolderChoice(choice) for folder, choice in record.items()}
    except PARSE_ERRORS:
        return {}


def write_folder_choice(registry: Path, folder: Path, choice: FolderChoice) -> None:
    """Remember the choice for a folder."""
    registry.mkdir(parents=True, exist_ok=True, mode=0o700)
    with hold_lock(registry / _LOCK_FILE):
        _write_choices(registry, {**read_folder_choices(registry), folder: choice})


def record_indexed(folder: Path, registry: Path) -> tuple[bool, bool]:
    """Remember that a folder was indexed; whether that is new, and whether it is the first folder of all."""
    choices = read_folder_choices(registry)
    if choices.get(folder) in (None, FolderChoice.EXCLUDED):
        write_folder_choice(registry, folder, FolderChoice.INDEXED)
    return folder not in choices, not choices


def forget_missing_folders(registry: Path) -> None:
    """Forget folders that are gone. The caller holds the registry's lock."""
    choices = read_folder_choices(registry)
    kept = {folder: choice for folder, choice in choices.items() if folder.is_dir()}
    if kept != choices:
        _write_choices(registry, kept)


def _write_choices(registry: Path, choices: Mapping[Path, FolderChoice]) -> None:
    """Replace the record."""
    record = {str(folder): choice.value for folder, choice in sorted(choices.items())}
    write_record(registry / _CHOICES_FILE, record)
