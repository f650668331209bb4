"""Language models by their folder, each run by the fastest engine that computes what transformers computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spd_lsp.models.base import Runner
from spd_lsp.models.checkpoint.sizes import demand_possible_sizes
from spd_lsp.models.numpy.recorded import open_recorded


def load(folder: Path, device: str = "auto", report: Callable[[str], None] = lambda text: None) -> Runner:
    """Open the model in a folder on a device (`auto`, `cpu`, `cuda`, `mps`); never runs code that came with it.

    Torch, which takes seconds and much memory, is imported for models that need it. A recorded one is small: on a
    GPU its steps would take longer, so `auto` does not look for one.
    """
    demand_possible_sizes(folder)
    if device in ("auto", "cpu") and (recorded := open_recorded(folder, report)):
        return recorded

    from spd_lsp.models.open_checkpoint import open_model

    return open_model(folder, device, report)
