"""Settings that suit a model, found on a person's own code: which were tried, how one is chosen, where it is kept.

In: which places each way of decoding completed. Out: the way to keep, and what it gains where it was not chosen.
Knows no models and no text. What is kept is used wherever a person has not chosen otherwise.

Dimensions: P places, A ways.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spd_lsp.settings import Settings, fault

Floats = npt.NDArray[np.float64]
Tuned = dict[str, float]

FILE = "tuned.json"
# One change at a time: with a few hundred places a wider search would choose by chance.
GRID: tuple[Tuned, ...] = (
    {},  # the settings as they come
    {"temperature": 0.6},
    {"temperature": 0.8},
    {"temperature": 1.25},
    {"candidates": 8},
    {"candidates": 40},
)


def choose(hits: Floats) -> int:
    """The way that completes most, the first one if others only equal it. [P, A] -> a column."""
    return int(np.argmax(hits.mean(axis=0)))


def crossed(hits: Floats, files: Sequence[str]) -> Floats:
    """What choosing gains at places that it did not choose by: files in two halves, each judged by the other's.

    [P, A] -> [P], each place's hits by the way chosen without it less those by the first way.
    """
    order = {name: i for i, name in enumerate(sorted(set(files)))}
    second = np.array([order[name] % 2 == 1 for name in files])  # [P]
    gains = np.zeros(len(hits))
    for judged in (second, ~second):
        if judged.any() and not judged.all():
            gains[judged] = hits[judged, choose(hits[~judged])] - hits[judged, 0]
    return gains


def read_tuned(folder: Path, model: str) -> Tuned:
    """What was kept for a model; what cannot be read, or is no setting that can be tuned, counts as not kept."""
    found = read_all(folder).get(model, {})
    known = {f.name: f for f in dataclasses.fields(Settings)}
    names = {name for way in GRID for name in way}
    return {name: value for name, value in found.items() if name in names and fault(known[name], value) is None}


def read_all(folder: Path) -> dict[str, Tuned]:
    """Everything kept, by model."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {model: way for model, way in found.items() if isinstance(way, dict)} if isinstance(found, dict) else {}


def write_tuned(folder: Path, model: str, way: Mapping[str, float]) -> None:
    """Keep settings for a model, or forget them if there are none."""
    kept = {**read_all(folder), model: dict(way)}
    folder.mkdir(parents=True, exist_ok=True)
    passing = folder / f"{FILE}.{os.getpid()}"
    passing.write_text(json.dumps({name: found for name, found in sorted(kept.items()) if found}, indent=1))
    passing.replace(folder / FILE)


def with_tuned(settings: Settings, folder: Path, model: str) -> Settings:
    """Settings with what was tuned for the model, wherever they are as they come."""
    plain = Settings()
    tuned = read_tuned(folder, model)
    free: dict[str, Any] = {
        name: value for name, value in tuned.items() if getattr(settings, name) == getattr(plain, name)
    }
    return dataclasses.replace(settings, **free)
