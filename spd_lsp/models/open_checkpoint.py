"""From a folder to an engine through torch: the device, the weights, the threads.

No code that came with the weights is run, and none is fetched.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from ngram_builders.errors import UserError
from spd_lsp.models.backend_selection import SMALL, fastest
from spd_lsp.models.base import Runner
from spd_lsp.models.checkpoint.description import read_config
from spd_lsp.models.checkpoint.memory import DoesNotFit, demand_room, free_memory
from spd_lsp.models.checkpoint.validate import (
    Unsound,
    demand_all_weights,
    demand_causal,
    demand_numbers,
    made_for_another_task,
)
from spd_lsp.models.oom_fallback import Retreating
from spd_lsp.models.threads import Threads, counts_below
from spd_lsp.models.transformers_engine import CausalModel
from spd_lsp.settings import DEVICE_NAME

CORES = min(torch.get_num_threads(), os.cpu_count() or 1)  # or what the environment allows; read before any choice


def open_model(folder: Path, device: str, report: Callable[[str], None]) -> Runner:
    """The model in a folder on a device by name; one that does not fit into the GPU found goes to the CPU."""
    chosen = choose_device(device)
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    config = read_config(folder)
    refuse_others(config, folder)

    def open_on_cpu() -> Runner:
        return open_on(torch.device("cpu"), folder, config, report)

    try:
        engine = open_on(chosen, folder, config, report)
    except DoesNotFit as error:
        if device != "auto" or chosen.type == "cpu":
            raise
        report(f"{error}; taking the CPU")
        return open_on_cpu()
    if device != "auto" or chosen.type == "cpu":  # a GPU that was asked for by name is not replaced
        return engine
    return Retreating(engine, torch.OutOfMemoryError, open_on_cpu, report)


def open_on(device: torch.device, folder: Path, config: Any, report: Callable[[str], None]) -> Runner:
    """Read the weights, put them on a device and choose an engine; `DoesNotFit` if memory does not suffice."""
    dtype = choose_dtype(device)
    demand_room(folder, dtype.itemsize, _free_on(device), str(device))
    report(f"loading {folder.name} on {device}")
    try:
        network = _read_network(folder, config, dtype).to(device)
        reference = CausalModel(network)
        demand_causal(reference, network)  # a first pass takes memory of its own
    except Unsound as error:
        raise UserError(f"the weights in {folder} cannot be used: {error}") from error
    except torch.OutOfMemoryError as error:
        raise DoesNotFit(
            f"the model in {folder} does not fit into the memory of {device}; try --device cpu"
        ) from error
    except Exception as error:  # a bad file raises many kinds
        raise UserError(
            f"the weights in {folder} could not be opened ({_first_line(error)}); restore the files"
        ) from error
    engine = fastest(reference, network, lambda why: report(f"{folder.name} {why}"))
    if device.type == "cpu":
        choose_threads(engine, sum(parameter.numel() for parameter in network.parameters()))
    return engine


def _read_network(folder: Path, config: Any, dtype: torch.dtype) -> Any:
    """The network with the weights of a folder; raises `Unsound` unless it has them all."""
    opened: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # they are named
    )
    network, loaded = opened
    demand_all_weights(network, loaded)
    demand_numbers(network)
    if dtype == torch.float32:  # others go on to a GPU
        _keep_in_memory(network)
    return network


def _keep_in_memory(network: Any) -> None:
    """Take weights that are mapped from their file into memory: cut short, the file would end this process."""
    for tensor in (*network.parameters(), *network.buffers()):
        if not tensor.untyped_storage().resizable():  # it is not torch's own
            tensor.data = tensor.data.clone()


def choose_threads(engine: Runner, size: int) -> None:
    """One thread for what is small, whose steps are calls rather than work; else what measures best."""
    counts = counts_below(CORES) if size > SMALL else [1]
    engine.pace = Threads(counts, torch.set_num_threads).note


def _free_on(device: torch.device) -> int | None:
    """Bytes free on a device, where it says so."""
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    return free_memory()


def refuse_others(config: Any, folder: Path) -> None:
    """Raise for models that do not say what comes next, and for those whose cache cannot go back: superposed
    steps could not be taken off again.
    """
    family = config.model_type
    architecture = AutoModelForCausalLM._model_mapping.get(type(config), None)
    if architecture is None or made_for_another_task(config):
        raise UserError(f"expected a causal language model in {folder}, found {family}; choose another model")
    if getattr(architecture, "_is_stateful", False):
        raise UserError(
            f"{folder.name} is a {family} model, whose state cannot be taken back after a draft; "
            "choose an attention-only model"
        )


def choose_device(name: str) -> torch.device:
    """The device by name; `auto` takes CUDA, then MPS, then the CPU."""
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        return torch.device(next(kind for kind, there in available.items() if there))
    if not (DEVICE_NAME.fullmatch(name) and available.get(name.split(":")[0], False)):
        there = ", ".join(kind for kind, ok in available.items() if ok)
        raise UserError(f"device {name!r} is not available here, found: {there}; use --device auto")
    return torch.device(name)


def choose_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 on GPUs that compute in it, half precision on others, single precision on the CPU."""
    if device.type == "cpu":
        return torch.float32
    if device.type == "cuda" and torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return torch.float16


def _first_line(error: Exception) -> str:
    """What an exception says, in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
