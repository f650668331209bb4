"""A causal language model that takes a mixture of embeddings as its next input, and keeps its cache.

Any Hugging Face model through transformers. Comes in: ids, or ids with weights. Goes out: the next token's
logits as a NumPy array. Knows nothing of text or drafts. One thread at a time.

Legend: V vocabulary, D width, T new positions, N mixed tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache
from transformers.utils import logging as transformers_logging

from spd_lsp.settings import UserError

Floats = npt.NDArray[np.floating[Any]]

CHUNK = 128  # prompt tokens between two looks at `check`


class CausalModel:
    """A transformers model with one cache: the prompt's positions are kept, mixed ones are cut off again."""

    def __init__(self, network: Any) -> None:
        self.network = network.eval()
        self.embed = network.get_input_embeddings()
        self.cache = DynamicCache()
        self.cached: list[int] = []  # the ids whose keys and values the cache holds, from its first position on

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return torch.device(self.network.device)

    @property
    def max_positions(self) -> int:
        """The longest text the model was made for, in tokens."""
        return int(getattr(self.network.config.get_text_config(), "max_position_embeddings", None) or 2048)

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int], check: Callable[[], None] = lambda: None) -> Floats:
        """Read a prompt and give the logits after its last token [V]; what the last prompt shared is kept.

        `check` is called before each chunk of the prompt; if it raises, what was read so far stays valid.
        """
        assert ids, "a prompt has at least one token"
        kept = min(shared(self.cached, ids), len(ids) - 1)  # the last token runs again: its logits are not kept
        self.crop(kept)
        for start in range(kept, len(ids), CHUNK):
            check()
            chunk = torch.tensor([list(ids[start : start + CHUNK])], device=self.device)  # [1, T]
            logits = self.forward(input_ids=chunk)
            self.cached = list(ids[: start + CHUNK])
        return logits

    @torch.inference_mode()
    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """Read one more position, the superposed embedding of these ids, and give the logits after it [V]."""
        return self.forward(inputs_embeds=self.superpose(ids, weights)[None, None])

    @torch.inference_mode()
    def likelihoods(self, ids: Sequence[int]) -> Floats:
        """How likely each id was after those before it, the first left out. One pass of its own. -> [T - 1]."""
        read = torch.tensor([list(ids)], device=self.device)  # [1, T]
        logits = self.network(input_ids=read, use_cache=False).logits[0, :-1].float()  # [T - 1, V]
        p = logits.softmax(dim=-1).gather(1, read[0, 1:, None])[:, 0]
        found: Floats = p.cpu().numpy().astype(np.float64)
        return found

    def superpose(self, ids: Sequence[int], weights: Floats) -> torch.Tensor:
        """x~ = sum_i gamma_i z_i, with z_i the input embedding as the model itself scales it. -> [D]."""
        embedded = self.embed(torch.tensor(list(ids), device=self.device))  # [N, D]
        gamma = torch.as_tensor(np.asarray(weights), dtype=embedded.dtype, device=self.device)  # [N]
        mixed: torch.Tensor = gamma @ embedded
        return mixed

    def forward(self, **inputs: torch.Tensor) -> Floats:
        """One pass over new positions, appended to the cache; the last one's logits [V]."""
        out = self.network(**inputs, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        logits: Floats = out.logits[0, -1].float().cpu().numpy()
        return logits

    def crop(self, length: int) -> None:
        """Forget all positions from `length` on, the superposed ones with them."""
        surplus = self.cache.get_seq_length() - length
        self.cached = self.cached[:length]
        if length == 0:
            self.cache = DynamicCache()
        elif surplus > 0:
            self.cache.crop(-surplus)  # negative: so many positions less


def shared(old: Sequence[int], new: Sequence[int]) -> int:
    """How many ids two sequences have in common from their start. Example: [5, 7, 9], [5, 7, 8] -> 2."""
    both = min(len(old), len(new))
    differing = np.flatnonzero(np.asarray(old[:both]) != np.asarray(new[:both]))
    return int(differing[0]) if len(differing) else both


def load(folder: Path, device: str = "auto", report: Callable[[str], None] = lambda text: None) -> CausalModel:
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
            attn_implementation="sdpa",
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        )
        return CausalModel(network.to(chosen))
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"the model in {folder} does not fit into the memory of {chosen}; try --device cpu"
        ) from error
    except Exception as error:  # a bad file raises many kinds
        raise UserError(
            f"the weights in {folder} could not be opened ({first_line(error)}); restore the files"
        ) from error


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
