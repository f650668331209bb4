"""GGUF models in several files: the name of any part, such as `m-00002-of-00003.gguf`, tells those of all."""

from __future__ import annotations

import re
from pathlib import Path

from ngram_builders.errors import UserError

_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.IGNORECASE | re.DOTALL)
_PROJECTOR = "mmproj"  # of images, beside a model
_MAX_NAMED = 3  # missing parts in a message


def find_parts(path: Path) -> list[Path]:
    """The files of the model that a file belongs to, in order; `UserError` if one is missing."""
    part = _PART.fullmatch(path.name)
    if part is None:
        return [path]
    stem, _, count, suffix = part.groups()
    parts = [path.with_name(f"{stem}-{number:05}-of-{count}{suffix}") for number in range(1, int(count) + 1)]
    missing = [one.name for one in parts if not one.is_file()]
    if missing or path not in parts:
        named = ", ".join(missing[:_MAX_NAMED]) + (" ..." if missing[_MAX_NAMED:] else "")
        raise UserError(f"{path} is one of {int(count)} parts, and {path.parent} lacks {named}; fetch all of them")
    return parts


def is_part(name: str) -> bool:
    """Whether a name is that of one of several parts."""
    return _PART.fullmatch(name) is not None


def whole_name(name: str) -> str:
    """A file's name without the number of its part. Example: `m-Q4_K-00001-of-00003.gguf` -> `m-Q4_K.gguf`."""
    part = _PART.fullmatch(name)
    return f"{part[1]}{part[4]}" if part else name


def is_model_file(name: str) -> bool:
    """Whether a name is that of a model in one file, or of its first part."""
    part = _PART.fullmatch(name)
    return name.lower().endswith(".gguf") and _PROJECTOR not in name and (part is None or int(part[2]) == 1)


def find_in_folder(folder: Path) -> Path | None:
    """The model in a folder that holds GGUF files and no other model; `UserError` if there are several."""
    if (folder / "config.json").is_file():
        return None
    models = sorted(
        path for path in folder.glob("*.[gG][gG][uU][fF]") if is_model_file(path.name) and path.is_file()
    )
    if len(models) > 1:
        raise UserError(f"{folder} holds {len(models)} GGUF models; name one of them, such as {models[0]}")
    return models[0] if models else None
