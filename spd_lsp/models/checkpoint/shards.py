"""Which files hold a model's weights: those of its own folder, whatever an index in it says."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath, PureWindowsPath

from ngram_builders.errors import UserError

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """The files that are read; some folders hold the same weights twice, for other programs."""
    if (folder / WHOLE).is_file():
        return [folder / WHOLE]
    try:
        return [folder / name for name in _named(folder)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return sorted(folder.glob("*.safetensors"))


def demand_own_files(folder: Path) -> None:
    """Raise `UserError` if the index of a folder names a file elsewhere; a damaged one is named later."""
    if (folder / WHOLE).is_file() or not (folder / INDEX).is_file():
        return
    try:
        names = _named(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    for name in names:
        if not _own(folder, name):
            raise UserError(
                f"{folder / INDEX}: expected the names of *.safetensors files in this folder, found {name!r}; "
                "restore the files"
            )


def _named(folder: Path) -> list[str]:
    return sorted({str(name) for name in json.loads((folder / INDEX).read_bytes())["weight_map"].values()})


def _own(folder: Path, name: str) -> bool:
    """Whether a name is that of a file in the folder, links followed, or of nothing at all."""
    odd = "\0" in name or not name.endswith(".safetensors") or PureWindowsPath(name).anchor
    if odd or ".." in PureWindowsPath(name).parts or PurePosixPath(name).is_absolute():
        return False
    path = folder / name
    if not path.exists():
        return not path.is_symlink()  # a missing file is named when it is read
    return path.is_file() and any(path.resolve().is_relative_to(room) for room in _rooms(folder))


def _rooms(folder: Path) -> list[Path]:
    """The folder, and where Hugging Face's store keeps what the files in it are links to."""
    home = folder.resolve()
    stored = home.parent.name == "snapshots"  # .../models--owner--name/snapshots/COMMIT
    return [home, home.parent.parent / "blobs"] if stored else [home]
