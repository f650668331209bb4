"""Decode with the same weights in llama.cpp: k rows of a batch after one prompt.

Its functions are called directly, so that no server, tokenizer, sampler or engine of ours is timed.

Dimensions: V vocabulary, k rows.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.models.llama.context import LlamaModel
from spd_lsp.models.llama.library import Batch, context_settings, describe_library, load_library


class LlamaCpp:
    """A model in llama.cpp: the prompt is read once, then k rows continue it, one token of each per pass."""

    def __init__(self, file: Path, rows: int, positions: int, threads: int) -> None:
        """Load a GGUF file. `positions` counts the prompt and all drafts together."""
        self.library = load_library()
        model = LlamaModel(file)
        context = self.library.llama_init_from_model(model.pointer, context_settings(positions, rows))
        self.context, self.size, self.width = context, max(positions, rows), model.size
        self.batch: Any = self.library.llama_batch_init(self.size, 0, 1)
        self.memory = self.library.llama_get_memory(context)
        self.library.llama_set_n_threads(context, threads, threads)
        weakref.finalize(self, _release, self.library, self.batch, context, model)

    def __str__(self) -> str:
        """Describe the library, for a report."""
        return describe_library()

    def prefill(self, prompt: Sequence[int], rows: int) -> Floats:
        """Read a prompt into an empty cache for this many rows. Return the logits [V] of its last position."""
        self.library.llama_memory_clear(self.memory, False)
        last = len(prompt) - 1
        for position, token in enumerate(prompt):
            self.put(position, token, position, 0, logits=position == last)
        self.decode(len(prompt))
        for row in range(1, rows):
            self.library.llama_memory_seq_cp(self.memory, 0, row, -1, -1)
        return self.logits(last)

    def step(self, tokens: Ids, position: int) -> Floats:
        """Read one more token in each row, [k] -> logits [k, V]."""
        for row, token in enumerate(tokens.tolist()):
            self.put(row, token, position, row, logits=True)
        self.decode(len(tokens))
        return np.stack([self.logits(row) for row in range(len(tokens))])

    def put(self, slot: int, token: int, position: int, row: int, *, logits: bool) -> None:
        """Fill a slot of the batch."""
        self.batch.token[slot], self.batch.pos[slot] = token, position
        self.batch.n_seq_id[slot], self.batch.logits[slot] = 1, logits
        self.batch.seq_id[slot][0] = row

    def decode(self, size: int) -> None:
        """Read the first slots of the batch."""
        self.batch.n_tokens = size
        if status := self.library.llama_decode(self.context, self.batch):
            raise RuntimeError(f"llama_decode failed with status {status}")

    def logits(self, slot: int) -> Floats:
        """Return a view [V] of a slot's logits, which the next pass overwrites."""
        return np.ctypeslib.as_array(self.library.llama_get_logits_ith(self.context, slot), (self.width,))

    def drafts(self, prompt: Sequence[int], k: int, tokens: int, begun: Callable[[], Any]) -> Ids:
        """Continue the k likeliest first tokens greedily: [k, tokens]. `begun` is called after the first token."""
        steps = [top_tokens(self.prefill(prompt, k), k)]
        begun()
        for done in range(tokens - 1):
            steps.append(self.step(steps[-1], len(prompt) + done).argmax(axis=1))
        return np.stack(steps, axis=1)


def top_tokens(logits: Floats, k: int) -> Ids:
    """Return the k likeliest tokens, best first. [V] -> [k]."""
    top = np.argpartition(-logits, k)[:k]
    ordered: Ids = top[np.argsort(-logits[top])]
    return ordered


def _release(library: Any, batch: Batch, context: int, model: LlamaModel) -> None:
    """Free the batch and the context, and the model after them."""
    library.llama_batch_free(batch)
    library.llama_free(context)
