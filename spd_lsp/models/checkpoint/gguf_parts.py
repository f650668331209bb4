"""GGUF models in several files: the name of any part, such as `m-00002-of-00003.gguf`, tells those of all."""

from __future__ import annotations

import re
from pathlib import Path

from ngram_builders.errors import UserError

_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.IGNORECASE | re.DOTALL)
_PROJECTOR = "mmproj"  # of images, beside a model


def _parts_of(path: Path) -> list[Path]:
    """The files of the model that a file belongs to, in order, whether they are there or not."""
    part = _PART.fullmatch(path.name)
    if part is None:
        return [path]
    stem, _, count, suffix = part.groups()
    return [path.with_name(f"{stem}-{number:05}-of-{count}{suffix}") for number in range(1, int(count) + 1)]


def find_parts(path: Path) -> list[Path]:
    """The same; `UserError` if one is missing."""
    parts = _parts_of(path)
    missing = [one.name for one in parts if not one.is_file()]
    if len(parts) != 1 and (missing or path not in parts):
        named = ", ".join(missing[:3])
        raise UserError(f"{path} is one of {len(parts)} parts, and {path.parent} lacks {named}; fetch all of them")
    return parts


def whole_name(name: str) -> str:
    """A file's name without the number of its part. Example: `m-Q4_K-00001-of-00003.gguf` -> `m-Q4_K.gguf`."""
    return _PART.sub(r"\1\4", name)


def find_models(folder: Path, pattern: str = "*") -> list[Path]:
    """The GGUF models in a folder, each by its first part; incomplete ones and projectors of images left out."""
    names = (path for path in sorted(folder.glob(pattern)) if path.name.lower().endswith(".gguf"))
    return [
        path
        for path in names
        if _PROJECTOR not in path.name
        and path in _parts_of(path)[:1]
        and all(part.is_file() for part in _parts_of(path))
    ]
