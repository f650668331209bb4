"""The safetensors files of a model folder, and what their headers say."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path, PurePosixPath, PureWindowsPath

from ngram_builders.errors import UserError

_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_MAX_HEADER_BYTES = 100_000_000  # safetensors opens no file with a longer one
_HEADER_LENGTH = struct.Struct("<Q")  # the first bytes of a file
_DAMAGES = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error)


def tensor_sizes(folder: Path) -> list[int]:
    """How many numbers each tensor in a folder has; damaged files, which are reported when opened, have none."""
    return [size for path in _weight_files(folder) for size in _sizes_in(path)]


def _weight_files(folder: Path) -> list[Path]:
    """The files in a folder that would be read: some hold the same weights twice, for other programs."""
    if (folder / _WHOLE).is_file():
        return [folder / _WHOLE]
    try:
        return [folder / name for name in _indexed_names(folder)]
    except _DAMAGES:
        return sorted(folder.glob("*.safetensors"))


def _sizes_in(path: Path) -> list[int]:
    if not path.is_file():  # a pipe would be read forever
        return []
    try:
        with path.open("rb") as file:
            [length] = _HEADER_LENGTH.unpack(file.read(_HEADER_LENGTH.size))
            if length > min(path.stat().st_size, _MAX_HEADER_BYTES):
                return []
            header = json.loads(file.read(length))
        return [math.prod(map(int, each["shape"])) for name, each in header.items() if name != "__metadata__"]
    except _DAMAGES:
        return []


def check_index(folder: Path) -> None:
    """Raise `UserError` if a folder's index names files elsewhere; a damaged one is reported when opened."""
    if (folder / _WHOLE).is_file() or not (folder / _INDEX).is_file():
        return
    try:
        names = _indexed_names(folder)
    except _DAMAGES:
        return
    for name in names:
        if not _is_inside(folder, name):
            raise UserError(f"{folder / _INDEX} names {name!r}, which is not a *.safetensors file in this folder")


def _indexed_names(folder: Path) -> list[str]:
    return sorted({str(name) for name in json.loads((folder / _INDEX).read_bytes())["weight_map"].values()})


def _is_inside(folder: Path, name: str) -> bool:
    """Whether a name is that of a file in the folder, links followed, or of no file at all."""
    odd = "\0" in name or not name.endswith(".safetensors") or PureWindowsPath(name).anchor
    if odd or ".." in PureWindowsPath(name).parts or PurePosixPath(name).is_absolute():
        return False
    path = folder / name
    if not path.exists():
        return not path.is_symlink()  # a missing file is reported when opened
    own = folder.resolve()
    allowed = [own]
    if own.parent.name == "snapshots":  # Hugging Face's store: models--owner--name/snapshots/COMMIT links to blobs
        allowed.append(own.parent.parent / "blobs")
    return path.is_file() and any(path.resolve().is_relative_to(place) for place in allowed)
