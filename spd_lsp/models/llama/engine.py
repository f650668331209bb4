"""llama.cpp as an engine: a superposed step is one `llama_decode` of one mixed embedding.

Its caches are sequences of one context: what two of them share is stored once, so forks and rows cost nothing.

Legend: N rows and T positions of one input, D width, V vocabulary.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.models.base import MIN_CHUNK, ChunkSizer, Engine, ForwardInput, WeightedTokens
from spd_lsp.models.llama.context import LlamaContext, LlamaModel, Slot, Stopped
from spd_lsp.models.llama.embeddings import TokenEmbeddings

# On a CPU a pass can be stopped, and is read again then: it may take longer, as larger ones cost less a token.
_CHUNK = 64  # tokens
_CHUNK_SECONDS = 1.0  # of processor time, since a busy machine is no reason to read less


class LlamaEngine(Engine):
    """A GGUF model in llama.cpp."""

    forks_are_free = True

    def __init__(self, model: LlamaModel, embeddings: TokenEmbeddings, device: str) -> None:
        self.context = LlamaContext(model)
        self.embeddings = embeddings
        self.embedding_scale = 1.0  # of a mixture, where the library scales the embeddings of tokens only
        self.max_positions = model.max_positions
        self.device = device
        super().__init__()
        if device == "cpu":
            self.chunks = ChunkSizer(_CHUNK_SECONDS, _CHUNK, _CHUNK)
            self.clock = time.thread_time

    def new_cache(self) -> SequenceCache:
        """As in `Engine`."""
        return SequenceCache(self.context)

    def release_memory(self) -> None:
        """As in `Engine`."""
        self.context.shrink()

    def read_chunk(self, ids: Sequence[int], cache: SequenceCache, check: Callable[[], None]) -> Floats:
        """As in `Engine`. A pass is stopped when `check` raises; one of a few tokens is over sooner."""
        if len(ids) < MIN_CHUNK:
            return super().read_chunk(ids, cache, check)
        while True:
            try:
                with self.context.stopping_when(check):
                    return super().read_chunk(ids, cache, check)
            except Stopped:
                check()

    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """As in `Engine`, in one pass for ids and one for mixtures. If one fails, its caches have not changed."""
        logits: dict[int, Floats] = {}
        for mixed in (False, True):
            group = [each for each in inputs if _is_mixed(each) == mixed]
            slots = [self._slots(each) for each in group]
            if not group:
                continue
            rows = self.context.read([slot for own in slots for slot in own])
            ends = np.cumsum([sum(slot.wants_logits for slot in own) for own in slots])
            for each, own, part in zip(group, slots, np.split(rows, ends[:-1]), strict=True):
                logits[id(each)] = part.reshape(len(each.ids), -1, part.shape[1]) if each.ids else part
                for row in each.cache.rows:
                    row.length += len(own) // len(each.cache.rows)
        return [logits[id(each)] for each in inputs]

    def _slots(self, each: ForwardInput) -> list[Slot]:
        """An input's positions, row by row."""
        slots = []
        is_mixed = _is_mixed(each)
        rows: Any = each.ids or [[self._input(one) if is_mixed else one[0][0]] for one in each.mixtures]
        for cache, row in zip(each.cache.rows, rows, strict=True):
            cache.crop(cache.length)  # what an interrupted pass has left
            for number, value in enumerate(row):
                last = number == len(row) - 1
                token = value if isinstance(value, np.ndarray) else self._checked(value)
                slots.append(Slot(token, cache.length + number, cache.sequence, last or not each.last_only))
        return slots

    def _input(self, mixture: WeightedTokens) -> Floats:
        """x~ = sum_i gamma_i z_i, as the first layer reads it. [D]."""
        ids, weights = mixture
        gamma = np.asarray(weights, np.float32) * np.float32(self.embedding_scale)
        return np.asarray(gamma @ self.embeddings.rows([self._checked(token) for token in ids]))

    def _checked(self, token: int) -> int:
        """An id the library may look up: it ends the process for others."""
        if not 0 <= token < self.context.model.size:
            raise IndexError(f"expected ids from 0 to {self.context.model.size - 1}, found {token}")
        return int(token)


def _is_mixed(each: ForwardInput) -> bool:
    """Whether an input has to be read as embeddings."""
    return any(len(ids) > 1 for ids, _ in each.mixtures)


class SequenceCache:
    """The positions of one sequence."""

    def __init__(self, context: LlamaContext) -> None:
        self.context = context
        self.sequence = context.new_sequence()
        self.length = 0
        weakref.finalize(self, context.drop_sequence, self.sequence)

    @property
    def rows(self) -> list[SequenceCache]:
        """The sequences that one more position of each row is added to."""
        return [self]

    def crop(self, length: int) -> None:
        """Drop all positions from `length` on."""
        self.length = min(self.length, length)
        self.context.crop(self.sequence, self.length)

    def fork(self, length: int) -> SequenceCache:
        """Another sequence with the same first positions."""
        forked = SequenceCache(self.context)
        forked.length = length
        self.context.copy(self.sequence, forked.sequence, length)
        return forked

    def select_rows(self, parents: Sequence[int]) -> SequenceRows:
        """As many rows as there are parents, all of which continue this one."""
        return SequenceRows([self.fork(self.length) for _ in parents])


class SequenceRows:
    """Several sequences of the same length, which a pass reads together."""

    def __init__(self, rows: list[SequenceCache]) -> None:
        self.rows = rows

    def select_rows(self, parents: Sequence[int]) -> SequenceRows:
        """Row i becomes what row `parents[i]` is now; the first heir of a row keeps its sequence."""
        inherited: set[int] = set()
        heirs = []
        for parent in parents:
            row = self.rows[parent]
            heirs.append(row.fork(row.length) if parent in inherited else row)
            inherited.add(parent)
        return SequenceRows(heirs)
