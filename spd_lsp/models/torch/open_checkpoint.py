"""From a folder to an engine through torch: the device, the weights, the threads.

No code that came with the weights is run, and nothing is fetched.

Legend: T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging
from transformers.utils.import_utils import is_accelerate_available

from ngram_builders.errors import UserError
from spd_lsp.models.base import Engine, ThreadCounts
from spd_lsp.models.fitting import DoesNotFit, check_memory, free_memory, memory_needed
from spd_lsp.models.hub import offline
from spd_lsp.models.torch.engine import TransformersEngine
from spd_lsp.settings import DEVICE_NAME

_SMALL_MODEL = 15_000_000  # parameters up to which calls, not bytes, take a step's time
_ATTENTION_LAYERS = {"full_attention", "sliding_attention"}
_STATE_LAYERS = {"linear_attention", "conv", "hybrid", "hybrid_sliding"}
_MAX_NAMES = 3  # of tensors in a sentence
_PROBE_LENGTH = 16  # T
_COMMON_PREFIX = _PROBE_LENGTH // 2
_ROUNDING = 1e-5  # difference of two logits, relative to the largest, that still counts as none
_ROUNDING_ULPS = 8  # in half precision


def open_model(folder: Path, device: str, report: Callable[[str], None]) -> Engine:
    """The model in a folder on a device by name; `auto` falls back to the CPU if the GPU lacks memory."""
    chosen = _choose_device(device)
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with offline():  # else parts of a network might fetch kernels
        config = _read_config(folder)
        _check_architecture(config, folder)
        try:
            return _open_on(chosen, folder, config)
        except DoesNotFit as error:
            if device != "auto" or chosen.type == "cpu":  # a GPU that was named is not replaced
                raise
            report(f"{error}; using the CPU")
        return _open_on(torch.device("cpu"), folder, config)


def _read_config(folder: Path) -> Any:
    """The configuration that transformers makes of a folder's config.json; unknown model families are refused."""
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a bad file raises many kinds
        raise UserError(
            f"{folder / 'config.json'}: transformers cannot read it without running the model's own code "
            f"({_first_line(error)}); choose a model of a family it knows"
        ) from error


def _open_on(device: torch.device, folder: Path, config: Any) -> Engine:
    """Load the weights, put them on a device and choose an engine; `DoesNotFit` if memory does not suffice."""
    try:
        dtype = _choose_dtype(device)
        cards = _choose_cards(device, folder.name, memory_needed(folder, dtype.itemsize))
        network = _load_network(folder, config, dtype, cards)
        if not cards:
            network = network.to(device)
        if dtype == torch.float32:  # others moved to a GPU
            _copy_mapped_weights(network)
        engine = TransformersEngine(network)
        _check_predictions(engine, network)  # a first pass takes memory of its own
    except UserError:
        raise
    except torch.OutOfMemoryError as error:
        raise DoesNotFit(
            f"the model in {folder} does not fit into the memory of {device}; try --device cpu"
        ) from error
    except ImportError as error:  # of weights in 4 or 8 bits
        raise UserError(
            f"{folder.name} needs packages that are not installed ({_first_line(error)}); install them, or choose "
            "the same model in 16 bits or as a GGUF file"
        ) from error
    except Exception as error:  # a bad file raises many kinds
        raise UserError(
            f"the weights in {folder} could not be opened ({_first_line(error)}); restore the files"
        ) from error
    if device.type == "cpu":
        # A small model's steps are calls rather than arithmetic.
        most = 1 if sum(parameter.numel() for parameter in network.parameters()) <= _SMALL_MODEL else 0
        engine.threads = ThreadCounts(lambda step, prompt: torch.set_num_threads(step), most)
    return engine


def _choose_cards(device: torch.device, name: str, needed: int) -> dict[int, int]:
    """The free bytes of each card over which a model is spread, since one has too few; none if the device will do.

    A card that was named by its number is not left. `DoesNotFit` if memory does not suffice.
    """
    if device.type != "cuda":
        check_memory(name, needed, free_memory(), str(device))
        return {}
    free = torch.cuda.mem_get_info(device)[0]
    if needed <= free or device.index is not None or torch.cuda.device_count() < 2:
        check_memory(name, needed, free, str(device))
        return {}
    cards = {number: torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count())}
    check_memory(name, needed, sum(cards.values()), f"all {len(cards)} GPUs together")
    if not is_accelerate_available():
        raise DoesNotFit(f"{name} fits on {len(cards)} GPUs together only; install accelerate to spread it")
    return cards


def _load_network(folder: Path, config: Any, dtype: torch.dtype, cards: dict[int, int]) -> Any:
    """The network with the weights of a folder; `UserError` unless it has them all, and no NaN among them.

    cards: over which it is spread; without any it is on the CPU.
    """
    opened: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        attn_implementation=None,  # transformers' choice, not the config's, which may name kernels to fetch
        experts_implementation=None,
        device_map="auto" if cards else None,
        max_memory=cards or None,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # they are named below
    )
    network, loading_info = opened
    # transformers fills what is missing with random numbers. What is tied to another tensor is not counted.
    parameters = {name for name, _ in network.named_parameters(remove_duplicate=False)}
    if missing := parameters & set(loading_info["missing_keys"]):
        raise _unusable(folder, f"the tensors {_list_some(missing)} are missing; restore the files")
    if mismatched := loading_info["mismatched_keys"]:
        shapes = [f"{name} has shape {list(found)} instead of {list(own)}" for name, found, own in mismatched]
        raise _unusable(folder, f"{_list_some(shapes)}; restore the files")
    weights = [(name, weight.data) for name, weight in network.named_parameters() if weight.is_floating_point()]
    if names := [name for name, weight in weights if weight.numel() and weight.max().isnan()]:
        raise _unusable(folder, f"there is NaN in {_list_some(names)}; restore the files")
    return network


def _check_predictions(engine: Engine, network: Any) -> None:
    """Raise if a first pass does not give numbers, or if later tokens change the logits of earlier ones."""
    embedding = network.get_input_embeddings().weight
    folder = network.config.name_or_path
    # Two texts with a common prefix are read in one pass of one shape.
    ids = [(7919 * number + 13) % len(embedding) for number in range(_PROBE_LENGTH)]  # from all over it
    other = [*ids[:_COMMON_PREFIX], *ids[_COMMON_PREFIX:][::-1]]
    logits = engine.forward_ids([ids, other], engine.new_cache())  # [2, T, V]
    if np.isnan(logits).any() or not np.isfinite(logits.max(axis=-1)).all():
        raise _unusable(folder, "its predictions are not numbers; restore the files, or try another --device")
    rounding = max(_ROUNDING, _ROUNDING_ULPS * torch.finfo(embedding.dtype).eps)
    first, second = logits[:, :_COMMON_PREFIX]
    differ = np.abs(first - second).max(axis=-1) > rounding * np.abs(first).max(axis=-1)  # [T]
    if differ.all():
        reason = "each token sees those that follow it, as in an encoder; choose a causal language model"
        raise _unusable(folder, reason)


def _unusable(folder: Path | str, reason: str) -> UserError:
    return UserError(f"the weights in {folder} cannot be used: {reason}")


def _list_some(names: Iterable[str]) -> str:
    """The first few in order. Example: ["b", "a", "d", "c"] -> `a, b, c and 1 more`."""
    known = sorted(names)
    more = f" and {len(known) - _MAX_NAMES} more" if len(known) > _MAX_NAMES else ""
    return ", ".join(known[:_MAX_NAMES]) + more


def _first_line(error: Exception) -> str:
    """The first line of an error's message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _copy_mapped_weights(network: Any) -> None:
    """Copy weights that are mapped from their file: if it is truncated, reading them ends this process."""
    for tensor in (*network.parameters(), *network.buffers()):
        if not tensor.untyped_storage().resizable():  # it is not torch's own
            tensor.data = tensor.data.clone()


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
