"""From a folder to an engine through torch: the device, the weights, the threads.

No code that came with the weights is run, and none is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from ngram_builders.errors import UserError
from spd_lsp.models.base import Engine
from spd_lsp.models.checkpoint.limits import DoesNotFit, check_memory, free_memory, memory_needed
from spd_lsp.models.checkpoint.model_config import first_line, read_config
from spd_lsp.models.checkpoint.validate import (
    InvalidWeights,
    check_all_loaded,
    check_causal,
    check_no_nan,
)
from spd_lsp.models.threads import ThreadCountTuner
from spd_lsp.models.torch.engine import TransformersEngine
from spd_lsp.settings import DEVICE_NAME

_SMALL_MODEL = 15_000_000  # parameters up to which calls, not bytes, take a step's time
_ATTENTION_LAYERS = {"full_attention", "sliding_attention"}
_STATE_LAYERS = {"linear_attention", "conv", "hybrid", "hybrid_sliding"}


def open_model(folder: Path, device: str, report: Callable[[str], None]) -> Engine:
    """The model in a folder on a device by name; `auto` falls back to the CPU if the GPU lacks memory."""
    chosen = _choose_device(device)
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    config = read_config(folder)
    _check_architecture(config, folder)
    try:
        return _open_on(chosen, folder, config)
    except DoesNotFit as error:
        if device != "auto" or chosen.type == "cpu":  # a GPU that was named is not replaced
            raise
        report(f"{error}; using the CPU")
    return _open_on(torch.device("cpu"), folder, config)


def _open_on(device: torch.device, folder: Path, config: Any) -> Engine:
    """Load the weights, put them on a device and choose an engine; `DoesNotFit` if memory does not suffice."""
    with _naming(folder, device):
        dtype = _choose_dtype(device)
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()
        check_memory(folder.name, memory_needed(folder, dtype.itemsize), free, str(device))
        network = _load_network(folder, config, dtype).to(device)
        check_no_nan(network)
        if dtype == torch.float32:  # others moved to a GPU
            _copy_mapped_weights(network)
        engine = TransformersEngine(network)
        check_causal(engine, network)  # a first pass takes memory of its own
    if device.type == "cpu":
        set_thread_count(engine, sum(parameter.numel() for parameter in network.parameters()))
    return engine


@contextmanager
def _naming(folder: Path, device: torch.device) -> Iterator[None]:
    """Turn what opening raises into errors that name the folder."""
    try:
        yield
    except UserError:
        raise
    except InvalidWeights as error:
        raise UserError(f"the weights in {folder} cannot be used: {error}") from error
    except torch.OutOfMemoryError as error:
        raise DoesNotFit(
            f"the model in {folder} does not fit into the memory of {device}; try --device cpu"
        ) from error
    except ImportError as error:  # of weights in 4 or 8 bits
        raise UserError(
            f"{folder.name} needs packages that are not installed ({first_line(error)}); install them, or choose "
            "the same model in 16 bits or as a GGUF file"
        ) from error
    except Exception as error:  # a bad file raises many kinds
        raise UserError(
            f"the weights in {folder} could not be opened ({first_line(error)}); restore the files"
        ) from error


def _load_network(folder: Path, config: Any, dtype: torch.dtype) -> Any:
    """The network with the weights of a folder; raises `InvalidWeights` unless it has them all."""
    opened: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # `check_all_loaded` names them
    )
    network, loading_info = opened
    check_all_loaded(network, loading_info)
    return network


def _copy_mapped_weights(network: Any) -> None:
    """Copy weights that are mapped from their file: if it is truncated, reading them ends this process."""
    for tensor in (*network.parameters(), *network.buffers()):
        if not tensor.untyped_storage().resizable():  # it is not torch's own
            tensor.data = tensor.data.clone()


def set_thread_count(engine: Engine, parameters: int) -> None:
    """One thread for a small model, whose steps are calls rather than arithmetic; else what measures best."""
    limit = None if parameters > _SMALL_MODEL else 1
    engine.use_threads(ThreadCountTuner(lambda step, prompt: torch.set_num_threads(step), limit=limit))


def _check_architecture(config: Any, folder: Path) -> None:
    """Raise for models that do not predict the next token, and for those with a state instead of a KV cache.

    Superposed steps could not be taken back from such a state.
    """
    family = config.model_type
    architecture = AutoModelForCausalLM._model_mapping.get(type(config), None)
    if architecture is None or getattr(config, "is_encoder_decoder", False):
        raise UserError(
            f"{folder} holds a {family} model, which is not a causal language model; choose another one"
        )
    if _is_stateful(architecture, config):
        raise UserError(
            f"{folder.name} is a {family} model, whose state cannot be rolled back after a draft; "
            "choose an attention-only model"
        )


def _is_stateful(architecture: Any, config: Any) -> bool:
    """Whether some layers keep a state; of a hybrid family, some models have none."""
    layers = set(getattr(config.get_text_config(), "layer_types", None) or ())
    if layers and layers <= _ATTENTION_LAYERS:
        return False
    return bool(layers & _STATE_LAYERS) or bool(getattr(architecture, "_is_stateful", False))


def _choose_device(name: str) -> torch.device:
    """The device by name; `auto` takes CUDA, then MPS, then the CPU."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    usable = [kind for kind, is_available in available.items() if is_available]
    if name == "auto":
        return torch.device(usable[0])
    if not (DEVICE_NAME.fullmatch(name) and name.split(":")[0] in usable):
        raise UserError(f"device {name!r} is not available here, found: {', '.join(usable)}; use --device auto")
    return torch.device(name)


def _choose_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 on GPUs that compute in it, float16 on others, float32 on the CPU."""
    if device.type == "cpu":
        return torch.float32
    if device.type == "cuda" and torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return torch.float16
