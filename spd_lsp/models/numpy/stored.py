"""A decoder whose weights are mapped from a file: products in 8 bits, and token embeddings read row by row.

Legend: M positions, I inputs, O outputs, V vocabulary, D width.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.arrays import F32
from spd_lsp.models.base import Engine
from spd_lsp.models.checkpoint.limits import SMALL_MODEL, bytes_in_8_bits, check_free_memory, free_memory
from spd_lsp.models.checkpoint.load_progress import LoadProgress
from spd_lsp.models.checkpoint.weight_cache import StoredTensors, cache_path, is_made_of, open_cached
from spd_lsp.models.checkpoint.weight_files import tensor_names, tensor_sizes
from spd_lsp.models.numpy.decoder import (
    ArrayFunction,
    Decoder,
    DecoderConfig,
    Int8,
    Layer,
    LayerNorm,
    NumpyEngine,
    RMSNorm,
    gated_silu,
    gelu,
)
from spd_lsp.models.numpy.model_kernel import load_kernel
from spd_lsp.models.numpy.parallel import ParallelInt8, Threads
from spd_lsp.models.numpy.weights import UnsupportedModel, check_names
from spd_lsp.models.self_test import MAX_DIVERGENCE, all_logits, kl_divergence
from spd_lsp.models.threads import ThreadCountTuner

_IN_LAYER = re.compile(r"model\.layers\.(\d+)\.")
FIRST_LAYERS, FIRST_TOKENS = 2, 4096  # are tested where a checksum has shown that the weights are the same
_DAMAGES = (OSError, ValueError, LookupError, TypeError, RecursionError, UnsupportedModel)
_LINEARS = ("queries_keys_values", "attention_out", "up", "down")
_NORMS = ("attention_norm", "query_norm", "key_norm", "mlp_norm")
_ACTIVATIONS = {"gated_silu": gated_silu, "gelu": gelu}


class StoredEmbedding:
    """Token embeddings in the precision of the model's files; only rows that are asked for are read."""

    dtype = np.dtype(np.float32)

    def __init__(self, rows: np.ndarray[Any, Any]) -> None:
        """Rows in bfloat16, which NumPy does not know, come as 16-bit integers. [V, D]."""
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, ids: Any) -> F32:
        """The embeddings of some ids. [M, D]."""
        rows = self.rows[ids]
        if rows.dtype == np.uint16:
            return np.asarray((rows.astype(np.uint32) << 16).view(np.float32))
        return np.asarray(rows, np.float32)


def read_decoder(
    tensors: StoredTensors, threads: Threads, layers: int | None = None, tokens: int | None = None
) -> Decoder:
    """All parts, as the record says, or so many first layers that predict so many first tokens."""
    record, shape = tensors.record, tensors.record["shape"]
    frequencies = np.array(shape["frequencies"], np.float32)
    config = DecoderConfig(**{**shape, "frequencies": frequencies, "windows": shape["windows"][:layers]})
    parts = _Parts(tensors, config.epsilon, threads)
    return Decoder(
        config=config,
        embedding=StoredEmbedding(tensors.array(record["embedding"])),
        layers=[parts.layer(layer) for layer in record["layers"][:layers]],
        norm=parts.norm(record["norm"]),
        head=parts.linear(record["head"], tokens),
    )


class _Parts:
    """What a record describes, made of its tensors."""

    def __init__(self, tensors: StoredTensors, epsilon: float, threads: Threads) -> None:
        self.array, self.epsilon, self.threads = tensors.array, epsilon, threads

    def norm(self, place: dict[str, Any]) -> ArrayFunction:
        scale = RMSNorm(self.array(place["weight"]), self.epsilon)
        return LayerNorm(scale, self.array(place["bias"])) if place["bias"] else scale

    def linear(self, place: dict[str, Any], rows: int | None = None) -> ParallelInt8:
        bias = self.array(place["bias"])[:rows] if place["bias"] else None
        whole = Int8(self.array(place["values"])[:rows], self.array(place["scales"])[:rows], bias)
        return ParallelInt8(whole, self.threads)

    def layer(self, places: dict[str, Any]) -> Layer:
        parts: dict[str, Any] = {name: self.linear(places[name]) for name in _LINEARS}
        for name in _NORMS:
            parts[name] = places[name] and self.norm(places[name])
        return Layer(**parts, activate=_ACTIVATIONS[places["activate"]])


def open_stored(folder: Path, report: Callable[[str], None]) -> Engine | None:
    """The engine for a folder whose weights were converted before; None if they were not, or are damaged."""
    if load_kernel() is None:
        return None
    progress = LoadProgress(f"loading {folder.name} on cpu", report)
    try:
        path = cache_path(folder)
        check_free_memory(folder.name, path.stat().st_size, free_memory())
        tensors = open_cached(path, progress.note)
        return make_engine(tensors, is_tested=True) if is_made_of(folder, tensors.record["files"]) else None
    except _DAMAGES:
        return None


def memory_needed(folder: Path) -> int:
    """About how many bytes a model takes on a CPU, by the names of its weights: some that share them take more."""
    sizes, names = tensor_sizes(folder), tensor_names(folder)
    try:
        check_names(names, len({found[1] for found in map(_IN_LAYER.match, names) if found}))
    except UnsupportedModel:
        return 4 * sum(sizes)
    is_large = sum(sizes) > SMALL_MODEL and load_kernel() is not None
    return bytes_in_8_bits(sizes) if is_large else 4 * sum(sizes)


def make_engine(tensors: StoredTensors, *, is_tested: bool = False) -> NumpyEngine:
    """The engine; `UnsupportedModel` if its predictions, or those of its first layers, are not transformers'."""
    threads = Threads()
    engine = NumpyEngine(read_decoder(tensors, threads))
    _compare(NumpyEngine(read_decoder(tensors, threads, FIRST_LAYERS, FIRST_TOKENS)), tensors, "first_logits")
    if not is_tested:
        _compare(engine, tensors, "logits")
    engine.use_threads(ThreadCountTuner(lambda step, prompt: threads.set_count(step)))
    return engine


def _compare(engine: Engine, tensors: StoredTensors, name: str) -> None:
    """Raise `UnsupportedModel` if an engine's predictions are not those in the record."""
    logits, expected = all_logits(engine, tensors.record["probe"]), tensors.array(tensors.record[name])
    divergence = kl_divergence(logits, expected)
    if not divergence < MAX_DIVERGENCE:
        raise UnsupportedModel(f"in 8 bits, predictions differ by {divergence:.1e} nats")
