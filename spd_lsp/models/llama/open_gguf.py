"""From a GGUF file to an engine: the memory it needs, the device, the threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.limits import check_memory, free_memory
from spd_lsp.models.llama.context import LlamaModel
from spd_lsp.models.llama.embeddings import TokenEmbeddings, check_tensors
from spd_lsp.models.llama.engine import LlamaEngine
from spd_lsp.models.llama.header import GgufHeader, read_short_header
from spd_lsp.models.llama.library import ALL_LAYERS, load_library
from spd_lsp.models.llama.prepared import GgufSource
from spd_lsp.models.threads import ThreadCountTuner

_MIN_POSITIONS = 64


def open_gguf(source: GgufSource, device: str, report: Callable[[str], None]) -> LlamaEngine:
    """The engine for a file that passed its trial."""
    header = read_short_header(Path(source.path))
    check_tensors(header)
    check_memory(source.name, header.size, free_memory())
    report(f"loading {source.name} in llama.cpp")
    engine = open_file(header, device)
    engine.embedding_scale = source.embedding_scale
    engine.use_threads(ThreadCountTuner(engine.context.set_threads))
    return engine


def open_file(header: GgufHeader, device: str) -> LlamaEngine:
    """An engine on `cpu`, or with all layers on the GPU that the library was built for."""
    has_gpu = bool(load_library().llama_supports_gpu_offload())
    if device not in ("auto", "cpu") and not has_gpu:
        raise UserError(
            f"device {device!r} is not available: this build of xllamacpp computes on the CPU; "
            "install one for your GPU, or use --device auto"
        )
    if header.number("context_length") < _MIN_POSITIONS:
        raise UserError(f"{header.path} does not state its context length; choose another file")
    model = LlamaModel(header.path, ALL_LAYERS if has_gpu and device != "cpu" else 0)
    if not model.keeps_positions:
        raise UserError(
            f"{header.path.name} is a {header.architecture} model, whose state cannot be rolled back "
            "after a draft; choose an attention-only model"
        )
    return LlamaEngine(model, TokenEmbeddings(header), "gpu" if has_gpu and device != "cpu" else "cpu")
