"""Opens the language model in a folder: GGUF files in llama.cpp, the bundled model among them, others in torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.extras import missing_for_models
from spd_lsp.models.base import Engine
from spd_lsp.models.checkpoint.limits import check_config_sizes
from spd_lsp.models.llama.prepared import read_source
from spd_lsp.models.no_model import open_no_model


def load(folder: Path, device: str = "auto", report: Callable[[str], None] = lambda text: None) -> Engine:
    """Open the model in a folder on a device (`auto`, `cpu`, `cuda`, `mps`); never runs code that came with it.

    GGUF files run in llama.cpp. Torch, which takes seconds and much memory to import, is imported for others only.
    """
    if source := read_source(folder):
        if source.is_vocabulary:
            return open_no_model(folder)
        from spd_lsp.models.llama.open_gguf import open_gguf

        return open_gguf(source, device, report)
    check_packages(folder)
    check_config_sizes(folder)
    report(f"loading {folder.name}")
    from spd_lsp.models.torch.open_checkpoint import open_model

    return open_model(folder, device, report)


def check_packages(folder: Path) -> None:
    """Raise `UserError` if a model's folder needs packages that are not installed."""
    if read_source(folder) is None and (missing := missing_for_models()):
        raise UserError(f"the model {folder} {missing}; or take a GGUF file, which needs nothing more")
