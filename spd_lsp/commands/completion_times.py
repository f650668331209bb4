"""How long a completion takes with a model on this machine: measured once, or estimated from the bundled model's.

A pass reads all weights once: what the model does in it grows with their size, what is done besides does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import platformdirs

from spd_lsp.completion.loading import load_completer
from spd_lsp.models.checkpoint.hub import STARTER, starter_file
from spd_lsp.models.checkpoint.stored_models import StoredModel
from spd_lsp.settings import Settings

_SOURCE = "import os\n\n\ndef names(path):\n    found = []\n    for name in os.listdir(path):\n        found."
_KEYS = "append"  # typed behind it, one by one, so that the prompt stays in the cache
_PASSES = 10  # of a completion of one line; how many there are depends on the text


@dataclass(frozen=True, slots=True)
class Pace:
    """What passes of the bundled model take now, in seconds."""

    step: float  # in the model
    rest: float  # besides
    size: int  # of its weights, in bytes

    def seconds(self, size: int) -> float:
        """About what a completion takes with a model of this many bytes."""
        return _PASSES * (self.step * size / self.size + self.rest)


def measure(model: str, report: Callable[[str], None] = lambda text: None) -> float:
    """The seconds that a completion of ten passes takes with a model, most of its prompt read."""
    return _PASSES * sum(_measure(model, report))


def measure_pace() -> Pace:
    """What passes of the bundled model take."""
    return Pace(*_measure(STARTER, lambda text: None), starter_file().stat().st_size)


def _measure(model: str, report: Callable[[str], None]) -> tuple[float, float]:
    """The seconds of a pass in the model, and of what is done besides; medians, as other programs delay some."""
    completer = load_completer(Settings(model=model), report, ngrams=False)
    engine: Any = completer.model
    note = engine.on_step
    steps = []
    rests = []

    def on_step(seconds: float) -> None:
        steps.append(seconds)
        note(seconds)

    engine.on_step = on_step
    for typed in range(len(_KEYS)):
        source = _SOURCE + _KEYS[:typed]
        before = len(steps)
        result = completer.complete(source, len(source), "python", explicit=True)
        rests.append((result.seconds - sum(steps[before:])) / max(result.passes, 1))
    return median(steps or [0.0]), median(rests[1:])  # no model takes no steps; the first rest has read the prompt


def measured_times() -> dict[str, float]:
    """The seconds measured on this machine, by what `key_of` makes of a model."""
    try:
        return dict(json.loads(_file().read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def note_time(model: StoredModel, seconds: float) -> None:
    """Remember a measurement."""
    times = {**measured_times(), key_of(model): seconds}
    _file().parent.mkdir(parents=True, exist_ok=True)
    _file().write_text(json.dumps(times), encoding="utf-8")


def key_of(model: StoredModel) -> str:
    """What changes when a model's files do."""
    return f"{model.path}, {model.size} bytes"


def _file() -> Path:
    return platformdirs.user_cache_path("spd-lsp", appauthor=False) / "completion-times.json"
