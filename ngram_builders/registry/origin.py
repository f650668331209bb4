"""What a table was made from, as an exported file says it of itself.

In: a table's recipe, a file's header. Out: plain facts. Nobody vouches for the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line reads origins without NumPy
    from ngram_builders.registry.ngram_table import NgramTable

_MAX_TIME = 253402300800.0  # the year 10000, which no date can be formatted of
_MAX_TEXT_LENGTH = 200  # of what a stranger's file says


@dataclass(frozen=True, slots=True)
class Origin:
    """What an exported file says of how it was made."""

    model: str = ""
    built: float = 0.0  # seconds since 1970
    sources: str = ""  # names of folders, without where they lie


def is_time(seconds: float) -> bool:
    """Whether a number, which may be NaN, is a time that can be shown as a date."""
    return 0 <= seconds < _MAX_TIME


def origin_of(table: NgramTable) -> Origin:
    """What may be told of a table to people who get its table."""
    if "imported" in table.recipe:
        return read_origin(table.recipe)
    return Origin(
        model=str(table.recipe.get("model") or ""),
        built=table.built,
        sources=", ".join(root.name for root in table.roots),
    )


def to_fields(origin: Origin) -> dict[str, Any]:
    """What is stored of it; a model's folder without where it lies."""
    model = Path(origin.model).name if Path(origin.model).is_absolute() else origin.model
    return {"origin": {**asdict(origin), "model": model}}


def read_origin(fields: Mapping[str, Any]) -> Origin:
    """What a header or a recipe says of the origin; nothing if that is impossible."""
    stored = fields.get("origin")
    if not isinstance(stored, dict):
        return Origin()
    built = stored.get("built")
    texts = {name: stored.get(name) for name in ("model", "sources")}
    return Origin(
        built=float(built) if isinstance(built, int | float) and is_time(built) else 0.0,
        **{name: text[:_MAX_TEXT_LENGTH] for name, text in texts.items() if isinstance(text, str)},
    )
