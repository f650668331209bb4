"""Language models from a folder, each run by the fastest engine that computes what transformers computes.

`CausalModel` is the reference: any Hugging Face model through transformers. `load` opens the weights and chooses.

Legend: V vocabulary, D width, T new positions, M mixed tokens, N rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache
from transformers.utils import logging as transformers_logging

from spd_lsp.engine.choice import fastest
from spd_lsp.engine.runner import Floats, Mixture, Runner
from spd_lsp.settings import UserError


class CausalModel(Runner):
    """A transformers model of any family: the reference for faster engines."""

    def __init__(self, network: Any) -> None:
        self.network = network.eval()
        self.embed = network.get_input_embeddings()
        self.device = torch.device(network.device)
        config = network.config.get_text_config()
        self.max_positions = int(getattr(config, "max_position_embeddings", None) or 2048)
        super().__init__()

    def empty(self) -> TensorCache:
        """As in `Runner`."""
        return TensorCache(DynamicCache())

    @torch.inference_mode()
    def superpose(self, rows: Sequence[Mixture]) -> torch.Tensor:
        """As in `Runner`."""
        mixed = []
        for ids, weights in rows:
            embedded = self.embed(torch.tensor(list(ids), device=self.device))  # [M, D]
            gamma = torch.as_tensor(np.asarray(weights), dtype=embedded.dtype, device=self.device)  # [M]
            mixed.append(gamma @ embedded)
        return torch.stack(mixed)

    def forward(self, embedded: torch.Tensor, cache: TensorCache) -> Floats:
        """As in `Runner`."""
        found: Floats = self.run(cache, inputs_embeds=embedded[:, None])[:, 0]
        return found

    def read(self, ids: Sequence[Sequence[int]], cache: TensorCache, *, last: bool = False) -> Floats:
        """As in `Runner`."""
        inputs = torch.tensor([list(row) for row in ids], device=self.device)  # [N, T]
        return self.run(cache, input_ids=inputs, logits_to_keep=1 if last else 0)  # 0 keeps all

    @torch.inference_mode()
    def run(self, cache: TensorCache, **inputs: Any) -> Floats:
        """One pass over new positions, added to their cache."""
        out = self.network(**inputs, past_key_values=cache.held, use_cache=True)
        logits: Floats = out.logits.float().cpu().numpy()
        return logits


class TensorCache:
    """The cache of transformers, which can go back, be copied and become several rows.

    Without a configuration it keeps all positions; models with sliding windows mask what they must not see.
    """

    def __init__(self, held: DynamicCache) -> None:
        self.held = held

    def crop(self, length: int) -> None:
        """As in `Cache`, layer by layer: a pass that broke off has added to some of them only."""
        if length == 0:
            self.held = DynamicCache()
        layers: list[Any] = self.held.layers
        for layer in layers:
            surplus = layer.get_seq_length() - length
            if surplus > 0:
                layer.crop(-surplus)  # negative: so many positions less

    def fork(self, length: int) -> TensorCache:
        """As in `Cache`. Layers replace their tensors and never write into them, so that nothing is copied."""
        forked = TensorCache(copy.copy(self.held))
        forked.held.layers = [copy.copy(layer) for layer in self.held.layers]
        forked.crop(length)
        return forked

    def rows(self, parents: Sequence[int]) -> TensorCache:
        """As in `Cache`."""
        chosen = self.fork(self.held.get_seq_length())
        chosen.held.batch_select_indices(torch.tensor(list(parents)))
        return chosen


def load(folder: Path, device: str = "auto", report: Callable[[str], None] = lambda text: None) -> Runner:
    """Open the model in a folder on a device (`auto`, `cpu`, `cuda`, `mps`); never runs code that came with it."""
    chosen = choose_device(device)
    report(f"loading {folder.name} on {chosen}")
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    config = read_config(folder)
    refuse_state_space(config, folder)
    try:
        network: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=choose_dtype(chosen),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        )
        reference = CausalModel(network.to(chosen))
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"the model in {folder} does not fit into the memory of {chosen}; try --device cpu"
        ) from error
    except Exception as error:  # a bad file raises many kinds
        raise UserError(
            f"the weights in {folder} could not be opened ({first_line(error)}); restore the files"
        ) from error
    return fastest(reference, network, lambda why: report(f"{folder.name} {why}"))


def read_config(folder: Path) -> Any:
    """The model's description; families that transformers does not know are refused."""
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        raise UserError(
            f"{folder / 'config.json'}: transformers cannot read it without running foreign code "
            f"({first_line(error)}); choose a model of a family it knows"
        ) from error


def refuse_state_space(config: Any, folder: Path) -> None:
    """Raise for models whose cache cannot go back: superposed steps could not be taken off again."""
    family = config.model_type
    architecture = AutoModelForCausalLM._model_mapping.get(type(config), None)
    if architecture is None:
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
    if not available.get(name.split(":")[0], False):
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


def first_line(error: Exception) -> str:
    """What an exception says, in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
