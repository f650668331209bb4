"""Settings that `spd-lsp ngrams tune` found for a model, kept as JSON beside the n-gram tables.

They replace defaults only: a value that a user set stays.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngram_builders.table.order_weights import OrderWeights
from spd_lsp.settings import Settings, invalid_reason

Value = float | str
Tuned = Mapping[str, Value]  # setting -> value, where it differs from the default

TUNED_FILE = "tuned.json"
WEIGHTS_KEY = "weights"  # kept beside the settings: how much each n-gram order counts
TUNABLE = frozenset({
    "alpha", "candidates", "interpolation", "max_order", "min_probability", "ngram_weight", "ranking",
    "temperature",
})  # fmt: skip


def apply_tuned(settings: Settings, folder: Path, model: str) -> Settings:
    """Return the settings with defaults replaced by the values tuned for this model."""
    defaults = Settings()
    tuned = read_tuned(folder, model)
    if settings.interpolation not in (defaults.interpolation, tuned.get("interpolation", defaults.interpolation)):
        return settings  # values tuned for one formula do not suit the other
    changes: dict[str, Any] = {
        name: value for name, value in tuned.items() if getattr(settings, name) == getattr(defaults, name)
    }
    return dataclasses.replace(settings, **changes)


def read_tuned(folder: Path, model: str) -> dict[str, Value]:
    """Return the settings tuned for a model; unknown or invalid entries are ignored."""
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    return {
        name: value
        for name, value in _read_models(folder).get(model, {}).items()
        if name in TUNABLE and invalid_reason(fields[name], value) is None
    }


def read_order_weights(folder: Path, model: str) -> OrderWeights | None:
    """Return the order weights tuned for a model, or None if there are none or they are invalid."""
    values = _read_models(folder).get(model, {}).get(WEIGHTS_KEY)
    try:
        weights = tuple(tuple(float(weight) for weight in row) for row in values or ())
    except (TypeError, ValueError):
        return None
    is_valid = weights and all(min(row, default=-1) >= 0 and sum(row) <= 1 for row in weights)
    return weights if is_valid else None


def write_tuned(folder: Path, model: str, values: Mapping[str, Any]) -> None:
    """Store the values tuned for a model; an empty mapping removes them."""
    models = {name: kept for name, kept in sorted({**_read_models(folder), model: dict(values)}.items()) if kept}
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = folder / f"{TUNED_FILE}.{os.getpid()}"
    temporary.write_text(json.dumps(models, indent=1))
    temporary.replace(folder / TUNED_FILE)


def _read_models(folder: Path) -> dict[str, dict[str, Any]]:
    """Read the file: model -> values. Unreadable or malformed content counts as empty."""
    try:
        models = json.loads((folder / TUNED_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return (
        {model: values for model, values in models.items() if isinstance(values, dict)}
        if isinstance(models, dict)
        else {}
    )
