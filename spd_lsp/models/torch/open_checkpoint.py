"""From a folder to an engine through torch: the device, the weights, the threads.

No code that came with the weights is run, and nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from ngram_builders.errors import UserError
from spd_lsp.models.base import Engine, ThreadCounts
from spd_lsp.models.fitting import DoesNotFit, check_memory, free_memory, memory_needed
from spd_lsp.models.hub import offline
from spd_lsp.models.torch.engine import TransformersEngine
from spd_lsp.settings import DEVICE_NAME

_ATTENTION_LAYERS = {"full_attention", "sliding_attention"}
_STATE_LAYERS = {"linear_attention", "conv", "hybrid", "hybrid_sliding"}


def open_model(folder: Path, device: str, report: Callable[[str], None]) -> Engine:
    """Open the model in a folder on a device by name; `auto` falls back to the CPU if the GPU lacks memory."""
    chosen = _choose_device(device)
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with offline():  # else parts of a network might fetch kernels
        config = _read_config(folder)
        _check_architecture(config, folder)
        try:
            return _open_on(chosen, folder, config, report)
        except DoesNotFit as error:
            if device != "auto" or chosen.type == "cpu":  # a GPU that was named is not replaced
                raise
            report(f"{error}; using the CPU")
        return _open_on(torch.device("cpu"), folder, config, report)


def _read_config(folder: Path) -> Any:
    """Return the configuration that transformers makes of config.json; unknown model families are refused."""
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a bad file raises many kinds
        raise UserError(
            f"{folder / 'config.json'}: transformers cannot read it without running the model's own code "
            f"({_first_line(error)}); choose a model of a family it knows"
        ) from error


def _open_on(device: torch.device, folder: Path, config: Any, report: Callable[[str], None]) -> Engine:
    """Load the weights, put them on a device and make an engine; `DoesNotFit` if memory does not suffice."""
    # 1. Check the memory. Weights too large for one card are spread over all, unless a card was named.
    is_cuda = device.type == "cuda"
    dtype = torch.float32
    if device.type != "cpu":
        dtype = torch.bfloat16 if is_cuda and torch.cuda.is_bf16_supported() else torch.float16
    needed = memory_needed(folder, dtype.itemsize)
    free = torch.cuda.mem_get_info(device)[0] if is_cuda else free_memory()
    cards = torch.cuda.device_count() if is_cuda and device.index is None else 1
    is_spread = cards > 1 and free is not None and needed > free
    if is_spread:
        free = sum(torch.cuda.mem_get_info(number)[0] for number in range(cards))
    check_memory(folder.name, needed, free, f"{cards} GPUs together" if is_spread else str(device))
    try:
        # 2. Load the weights.
        opened: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            attn_implementation=None,  # transformers' choice, not the config's, which may name kernels to fetch
            experts_implementation=None,
            device_map="auto" if is_spread else None,
            output_loading_info=True,
        )
        network, loading_info = opened
        # transformers fills missing tensors with random numbers. Those tied to another tensor are not counted.
        parameters = {name for name, _ in network.named_parameters(remove_duplicate=False)}
        if missing := sorted(parameters & set(loading_info["missing_keys"])):
            raise UserError(f"{folder} lacks {len(missing)} tensors such as {missing[0]}; restore the files")
        # 3. Read one token: a first pass takes memory of its own, and half precision may overflow.
        engine = TransformersEngine(network if is_spread else network.to(device))
        if not np.isfinite(engine.forward([0], engine.new_cache()).max()):
            raise UserError(
                f"the predictions of the model in {folder} are not numbers; restore the files, or try another "
                "--device"
            )
    except UserError:
        raise
    except torch.OutOfMemoryError as error:
        raise DoesNotFit(
            f"the model in {folder} does not fit into the memory of {device}; try --device cpu"
        ) from error
    except ImportError as error:  # of weights in 4 or 8 bits, or for several cards
        raise UserError(
            f"{folder.name} needs packages that are not installed ({_first_line(error)}); install them, or choose "
            "the same model in 16 bits or as a GGUF file"
        ) from error
    except Exception as error:  # a bad file raises many kinds
        raise UserError(
            f"the weights in {folder} could not be opened ({_first_line(error)}); restore the files"
        ) from error
    if is_cuda and not is_spread:
        _compile_steps(engine, folder.name, report)
    if device.type == "cpu":
        engine.threads = ThreadCounts(lambda step, prompt: torch.set_num_threads(step))
    return engine


def _compile_steps(engine: TransformersEngine, name: str, report: Callable[[str], None]) -> None:
    """Have a GPU launch each step as a whole, not as hundreds of operations; report why if that fails."""
    report(f"compiling {name}")
    try:
        engine.compile_steps(mode="reduce-overhead", dynamic=True)
    except Exception as error:  # compilers raise many kinds
        report(f"{name} is slower than it could be: it cannot be compiled ({_first_line(error)})")


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


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
    # Of a hybrid family, some models have no layers that keep a state.
    layers = set(getattr(config.get_text_config(), "layer_types", None) or ())
    attends = bool(layers) and layers <= _ATTENTION_LAYERS
    if not attends and (layers & _STATE_LAYERS or getattr(architecture, "_is_stateful", False)):
        raise UserError(
            f"{folder.name} is a {family} model, whose state cannot be rolled back after a draft; "
            "choose an attention-only model, or a GGUF file of this one"
        )


def _choose_device(name: str) -> torch.device:
    """Return the device by name; `auto` takes CUDA, then MPS, then the CPU."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    usable = [kind for kind, is_available in available.items() if is_available]
    if name == "auto":
        return torch.device(usable[0])
    if not (DEVICE_NAME.fullmatch(name) and name.split(":")[0] in usable):
        raise UserError(f"device {name!r} is not available here, found: {', '.join(usable)}; use --device auto")
    return torch.device(name)
