"""A large model on a CPU: its weights are converted to 8 bits the first time, one matrix after the other.

Two things are compared with transformers: a small network of the architecture in single precision, in every way of
reading, and the predictions of the 8-bit weights. Neither needs all weights in single precision.
"""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ngram_builders.arrays import Floats
from ngram_builders.registry.locks import hold_lock
from ngram_builders.table.mapping import map_file
from spd_lsp.models.base import Engine
from spd_lsp.models.checkpoint.limits import SMALL_MODEL, bytes_in_8_bits, check_free_memory, free_memory
from spd_lsp.models.checkpoint.load_progress import LoadProgress
from spd_lsp.models.checkpoint.mapped_pages import MappedPages
from spd_lsp.models.checkpoint.validate import check_causal
from spd_lsp.models.checkpoint.weight_cache import (
    CannotCache,
    Output,
    StoredTensors,
    TensorWriter,
    cache_path,
    describe_files,
    note_refusal,
    read_refusal,
    writing,
)
from spd_lsp.models.checkpoint.weight_files import main_dtype, tensor_sizes
from spd_lsp.models.numpy.convert import convert
from spd_lsp.models.numpy.decoder import NumpyEngine
from spd_lsp.models.numpy.model_kernel import load_kernel
from spd_lsp.models.numpy.quantize import write_in_8_bits
from spd_lsp.models.numpy.stored import FIRST_LAYERS, FIRST_TOKENS, make_engine, open_stored
from spd_lsp.models.numpy.weights import UnsupportedModel
from spd_lsp.models.self_test import all_logits
from spd_lsp.models.torch.small_network import check_small_network
from spd_lsp.models.torch.streamed import compute_in_single_precision
from spd_lsp.models.transformers_engine import TransformersEngine

_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16}
_STARTED = 0.5  # the share of the first loading that is done when the conversion begins: the imports
_LOCK_SECONDS = 3600.0  # that the conversion of another process may take


@dataclass(frozen=True, slots=True)
class Conversion:
    """The model in a folder that is converted; `load` loads its network in a precision."""

    folder: Path
    load: Callable[[torch.dtype], Any]
    report: Callable[[str], None]
    size: int  # about that of the result, in bytes


def open_in_8_bits(
    folder: Path, config: Any, load: Callable[[torch.dtype], Any], report: Callable[[str], None]
) -> Engine | None:
    """The engine for a model's folder, whose weights are converted unless they are in the cache.

    None for small models, for architectures that the engine does not compute, where 8 bits change predictions, and
    without the compiled kernel.
    """
    sizes = tensor_sizes(folder)
    if sum(sizes) <= SMALL_MODEL or getattr(config, "quantization_config", None) or load_kernel() is None:
        return None
    try:
        check_small_network(config, lambda small: NumpyEngine(convert(small)))
    except UnsupportedModel:
        return None  # `fastest_engine` says why
    size = bytes_in_8_bits(sizes)
    check_free_memory(folder.name, size, free_memory())
    try:
        return _open(Conversion(folder, load, report, size))
    except UnsupportedModel as reason:
        report(f"{folder.name} runs in 32 bits: {reason}")
        return None


def _open(conversion: Conversion) -> Engine:
    """By way of the cache, or in memory where nothing can be cached."""
    try:
        path = cache_path(conversion.folder)
        if reason := read_refusal(path):
            raise UnsupportedModel(reason)
        with _alone(path.parent):
            return open_stored(conversion.folder, conversion.report) or _convert_into(path, conversion)
    except CannotCache as error:
        name = conversion.folder.name
        conversion.report(f"{name} in 8 bits cannot be kept for the next time: {error}")
    data = mmap.mmap(-1, 2 * conversion.size)  # memory is taken when it is written to
    _convert(conversion, data)
    return make_engine(StoredTensors(data, data.tell()))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One conversion at a time on this machine: others would need as much memory, and might do the same."""
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            held.enter_context(hold_lock(folder / ".lock", _LOCK_SECONDS))
        except OSError as error:
            raise CannotCache(error.strerror) from error
        yield


def _convert_into(path: Path, conversion: Conversion) -> Engine:
    with writing(path, conversion.size) as out:
        _convert(conversion, out)
    data = map_file(path)
    try:
        return make_engine(StoredTensors(data, len(data)))
    except UnsupportedModel as reason:
        path.unlink()
        note_refusal(path, str(reason))
        raise


def _convert(conversion: Conversion, out: Output) -> None:
    """Write the weights, and what transformers predicts with those of the folder."""
    progress = LoadProgress(f"converting {conversion.folder.name} to 8 bits, once", conversion.report)
    progress.note(_STARTED)
    network = conversion.load(_DTYPES.get(main_dtype(conversion.folder), torch.float32))
    progress.note(_STARTED + 0.05)
    pages = MappedPages()

    def give_back(weight: torch.Tensor) -> None:
        if weight.is_contiguous():
            pages.give_back(weight.data_ptr(), weight.nbytes)

    compute_in_single_precision(network, give_back)
    probe = check_causal(TransformersEngine(network), network)
    writer = TensorWriter(out)
    record = write_in_8_bits(network, writer, progress.part(_STARTED + 0.15, 0.95), give_back)
    logits = {"logits": probe.logits, "first_logits": _first_logits(network, probe.ids)}
    record |= {name: writer.write(each.astype(np.float32)) for name, each in logits.items()}
    writer.finish({**record, "probe": probe.ids, "files": describe_files(conversion.folder)})
    del network
    gc.collect()  # modules refer to each other; the weights are no longer mapped


def _first_logits(network: Any, ids: list[int]) -> Floats:
    """What the first layers predict of the first tokens of the vocabulary. [T, V]."""
    layers = network.model.layers
    network.model.layers = layers[:FIRST_LAYERS]
    try:
        return all_logits(TransformersEngine(network), ids)[:, :FIRST_TOKENS]
    finally:
        network.model.layers = layers
