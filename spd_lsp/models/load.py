"""Opens the language model in a folder with the fastest engine that computes what transformers computes."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.extras import missing_for_models
from spd_lsp.models.base import Engine
from spd_lsp.models.checkpoint.limits import check_config_sizes, check_free_memory, free_memory
from spd_lsp.models.checkpoint.load_progress import LoadProgress
from spd_lsp.models.llama.prepared import read_source
from spd_lsp.models.numpy.int8 import engine_in_8_bits
from spd_lsp.models.numpy.recorded import open_recorded
from spd_lsp.models.numpy.stored import memory_needed, open_stored

# What takes seconds to import, and the share of opening a model of 0.5 billion parameters that is done then.
_IMPORTS = {"torch": 0.2, "transformers": 0.3, "transformers.modeling_utils": 0.5}
_GPU_DEVICES = ("nvidiactl", "kfd", "dxg")  # of Nvidia, of AMD, and of Windows where Linux runs on it


def load(folder: Path, device: str = "auto", report: Callable[[str], None] = lambda text: None) -> Engine:
    """Open the model in a folder on a device (`auto`, `cpu`, `cuda`, `mps`); never runs code that came with it.

    Torch, which takes seconds and much memory to import, is imported only for models without a record. Those with
    one are so small that a GPU would take longer: `auto` does not look for one. They run in 8 bits.
    """
    if source := read_source(folder):
        from spd_lsp.models.llama.open_gguf import open_gguf

        return open_gguf(source, device, report)
    check_config_sizes(folder)
    if device in ("auto", "cpu") and (recorded := open_recorded(folder, report)):
        engine = engine_in_8_bits(recorded, report)
        del recorded
        _return_freed_memory()
        return engine

    progress = LoadProgress(f"loading {folder.name}", report)
    progress.note(0)
    on_cpu = device == "cpu" or (device == "auto" and not may_have_gpu())
    if on_cpu and (stored := open_stored(folder, report)):
        return stored
    if missing := missing_for_models():
        raise UserError(f"{folder.name} {missing}")
    if on_cpu:  # those that need more than that are refused when this is known
        check_free_memory(folder.name, memory_needed(folder), free_memory())
    for name, share in _IMPORTS.items():
        import_module(name)
        progress.note(share)
    from spd_lsp.models.open_checkpoint import open_model

    return open_model(folder, device, report)


def may_have_gpu() -> bool:
    """Whether torch might find one, which takes seconds to ask."""
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    if sys.platform == "win32":
        return Path(os.environ.get("SYSTEMROOT", "C:/Windows"), "System32", "nvcuda.dll").exists()
    return any(Path("/dev", name).exists() for name in _GPU_DEVICES)


def _return_freed_memory() -> None:
    """Give the system back what was freed: glibc keeps 30 MB of the floats that became 8-bit weights."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)
