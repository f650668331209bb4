"""Opens the language model in a folder: GGUF files in llama.cpp, the bundled model among them, others in torch."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.extras import missing_for_models
from spd_lsp.models.base import Engine
from spd_lsp.models.checkpoint.limits import check_config_sizes, check_free_memory, free_memory, memory_needed
from spd_lsp.models.checkpoint.load_progress import LoadProgress
from spd_lsp.models.llama.prepared import read_source
from spd_lsp.models.no_model import open_no_model

# What takes seconds to import, and the share of opening a model of 0.5 billion parameters that is done before.
_IMPORTS = {"torch": 0.0, "transformers": 0.2, "transformers.modeling_utils": 0.3}
_GPU_DEVICES = ("nvidiactl", "kfd", "dxg")  # of Nvidia, of AMD, and of Windows where Linux runs on it


def load(folder: Path, device: str = "auto", report: Callable[[str], None] = lambda text: None) -> Engine:
    """Open the model in a folder on a device (`auto`, `cpu`, `cuda`, `mps`); never runs code that came with it.

    GGUF files run in llama.cpp. Torch, which takes seconds and much memory to import, is imported for others only.
    """
    if source := read_source(folder):
        if source.is_vocabulary:
            return open_no_model(folder)
        from spd_lsp.models.llama.open_gguf import open_gguf

        return open_gguf(source, device, report)
    check_config_sizes(folder)
    if missing := missing_for_models():
        raise UserError(f"{folder.name} {missing}")
    if device == "cpu" or (device == "auto" and not _may_have_gpu()):  # said before torch takes its seconds
        check_free_memory(folder.name, memory_needed(folder), free_memory())
    progress = LoadProgress(f"loading {folder.name}", report)
    for name, share in _IMPORTS.items():
        progress.note(share)
        import_module(name)
    from spd_lsp.models.open_checkpoint import open_model

    return open_model(folder, device, report)


def _may_have_gpu() -> bool:
    """Whether torch might find one, which takes seconds to ask."""
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    if sys.platform == "win32":
        return Path(os.environ.get("SYSTEMROOT", "C:/Windows"), "System32", "nvcuda.dll").exists()
    return any(Path("/dev", name).exists() for name in _GPU_DEVICES)
