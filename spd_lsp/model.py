"""A causal language model that takes a mixture of embeddings as its next input, and keeps its cache.

Any Hugging Face model through transformers. Comes in: ids, or ids with weights. Goes out: the next token's
logits as a NumPy array. Knows nothing of text or drafts. One thread at a time.

Legend: V vocabulary, D width, T new positions, M mixed tokens, N rows.
"""

from __future__ import annotations

import copy
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
        self.after: Floats | None = None  # the logits after the last of them, if they were computed [V]
        self.rows: DynamicCache | None = None  # the cache of the last `step_rows`

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
        kept = shared(self.cached, ids)
        if kept == len(ids) == len(self.cached) and self.after is not None:
            self.crop(kept)
            return np.array(self.after)
        kept = min(kept, len(ids) - 1)  # the last token runs again: its logits are not kept
        self.crop(kept)
        for start in range(kept, len(ids), CHUNK):
            check()
            chunk = torch.tensor([list(ids[start : start + CHUNK])], device=self.device)  # [1, T]
            self.after = self.forward(self.cache, input_ids=chunk)[0]
            self.cached = list(ids[: start + CHUNK])
        assert self.after is not None
        return np.array(self.after)

    @torch.inference_mode()
    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """Read one more position, the superposed embedding of these ids, and give the logits after it [V]."""
        assert self.rows is None, "rows have been read since the last prefill: go on with `step_rows`"
        found: Floats = self.forward(self.cache, inputs_embeds=self.superpose(ids, weights)[None, None])[0]
        return found

    @torch.inference_mode()
    def step_rows(self, rows: Sequence[tuple[Sequence[int], Floats]], parents: Sequence[int]) -> Floats:
        """Read one more position in each of N rows and give their logits [N, V], in one forward pass.

        A row is (ids, weights) to superpose; row i goes on from row `parents[i]` of the last call. Before the
        first call there is one row, number 0: the prompt with what `step` has added.
        """
        self.rows = rows_of(self.cache if self.rows is None else self.rows, parents)
        mixed = torch.stack([self.superpose(ids, weights) for ids, weights in rows])  # [N, D]
        return self.forward(self.rows, inputs_embeds=mixed[:, None])

    @torch.inference_mode()
    def read_drafts(self, drafts: Sequence[Sequence[int]]) -> list[Floats]:
        """log p of each token of each draft after the last prefill's prompt, all drafts in one forward pass.

        The cache is as after the prefill. A draft's first token is judged by the prefill's logits.
        """
        assert self.after is not None, "drafts are read after a prefill"
        self.crop(len(self.cached))
        first = torch.as_tensor(self.after).log_softmax(dim=-1)  # [V]
        longest = max(len(draft) for draft in drafts) - 1  # nobody asks what comes after a draft
        if longest < 1:
            return [first[list(draft)].numpy().astype(np.float64) for draft in drafts]
        # Shorter drafts are filled up on the right, where no token of theirs looks.
        filled = [[*draft[:-1], *[0] * longest][:longest] for draft in drafts]
        inputs = torch.tensor(filled, device=self.device)  # [N, T]
        copied = rows_of(self.cache, [0] * len(drafts))
        logits = self.network(input_ids=inputs, past_key_values=copied, use_cache=True).logits  # [N, T, V]
        found: list[Floats] = []
        for draft, after in zip(drafts, logits, strict=True):
            logp = torch.cat([first[None], after[: len(draft) - 1].float().cpu().log_softmax(dim=-1)])
            found.append(logp[range(len(draft)), list(draft)].numpy().astype(np.float64))  # [len(draft)]
        return found

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

    def forward(self, cache: DynamicCache, **inputs: torch.Tensor) -> Floats:
        """One pass over new positions of N rows, appended to their cache; the logits after the last [N, V]."""
        out = self.network(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits: Floats = out.logits[:, -1].float().cpu().numpy()
        return logits

    def crop(self, length: int) -> None:
        """Forget all positions from `length` on, the superposed ones and the rows with them."""
        surplus = self.cache.get_seq_length() - length
        self.rows = None
        if length < len(self.cached):
            self.cached, self.after = self.cached[:length], None
        if length == 0:
            self.cache = DynamicCache()
        elif surplus > 0:
            self.cache.crop(-surplus)  # negative: so many positions less


def rows_of(cache: DynamicCache, parents: Sequence[int]) -> DynamicCache:
    """A cache whose row i is row `parents[i]` of another; that one stays as it is."""
    chosen = copy.copy(cache)
    chosen.layers = [
        copy.copy(layer) for layer in cache.layers
    ]  # layers replace their tensors, never write in them
    chosen.batch_select_indices(torch.tensor(list(parents)))
    return chosen


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
