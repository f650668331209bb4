"""llama.cpp as an engine: a superposed step is one `llama_decode` of one mixed embedding.

Its caches are sequences of one context: what two of them share is stored once, so forks and rows cost nothing.
The state of a recurrent layer is copied as a pass adds to it, and cannot be cropped: see `StateCache`.

Legend: N rows and T positions of one input, D width, V vocabulary.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from spd_lsp.models.base import Engine, ForwardInput, ThreadCounts, WeightedTokens
from spd_lsp.models.fitting import check_memory, free_memory
from spd_lsp.models.llama.context import LlamaContext, Slot, Stopped
from spd_lsp.models.llama.gguf_file import TokenEmbeddings
from spd_lsp.models.llama.library import ALL_LAYERS, load_library
from spd_lsp.models.llama.model import LlamaModel, loaded, opening
from spd_lsp.models.stored import find_parts

_LARGE = 500_000_000  # bytes of weights, beyond which a second of a CPU reads fewer tokens than a chunk has
_LARGE_CHUNK = 16
_SHORT = 8  # tokens that are read sooner than they would be stopped
_MAX_STATES = 4  # of a prompt: after all of it, and where one goes back to as it changes
_MIN_POSITIONS = 64
_ALIKE = 0.01  # of the range of logits: by how much they differ where a mixture is read as what it is


def open_gguf(path: Path, device: str = "auto", report: Callable[[str], None] = lambda text: None) -> LlamaEngine:
    """The model in a GGUF file on `cpu`, or with all layers on the GPU that the library was built for."""
    has_gpu = bool(load_library().llama_supports_gpu_offload())
    if device not in ("auto", "cpu") and not has_gpu:
        raise UserError(
            f"device {device!r} is not available: this build of xllamacpp computes on the CPU; "
            "install one for your GPU, or use --device auto"
        )
    check_memory(path.name, sum(part.stat().st_size for part in find_parts(path)), free_memory())
    report(f"loading {path.name} in llama.cpp")
    uses_gpu = has_gpu and device != "cpu"
    with opening(path) as state:
        model = loaded[state] = LlamaModel(path, ALL_LAYERS if uses_gpu else 0)
        if not model.predicts_next_token:
            raise UserError(
                f"{path.name} is a {model.metadata('general.architecture')} model, which does not predict the "
                "next token; choose another one"
            )
        if model.max_positions < _MIN_POSITIONS:
            raise UserError(f"{path} does not state its context length; choose another file")
        engine = LlamaEngine(model, "gpu" if uses_gpu else "cpu")
        engine.embedding_scale = engine.find_embedding_scale()
    engine.threads = ThreadCounts(engine.context.set_threads)
    return engine


class LlamaEngine(Engine):
    """A GGUF model in llama.cpp."""

    forks_are_free = True

    def __init__(self, model: LlamaModel, device: str) -> None:
        self.context = LlamaContext(model)
        self.embeddings = TokenEmbeddings(model.path, model.size, model.width)
        self.embedding_scale = 1.0  # of a mixture, where the library scales the embeddings of tokens only
        self.max_positions = model.max_positions
        self.device = device
        self.keeps_positions = model.keeps_positions
        self.most_prompts = 4 if self.keeps_positions else 2  # states take memory
        super().__init__()
        if device == "gpu":
            self.chunk = 512
        elif model.file_size > _LARGE:
            self.chunk = _LARGE_CHUNK

    def new_cache(self) -> SequenceCache | StateCache:
        """As in `Engine`."""
        return SequenceCache(self.context) if self.keeps_positions else StateCache(self.context)

    def read_chunk(self, ids: Sequence[int], cache: Any, check: Callable[[], None]) -> Floats:
        """As in `Engine`. A pass is stopped when `check` raises; one of a few tokens is over sooner."""
        if len(ids) < _SHORT:
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
                    row.add(len(own) // len(each.cache.rows), is_prompt=bool(each.ids))
        return [logits[id(each)] for each in inputs]

    def _slots(self, each: ForwardInput) -> list[Slot]:
        """An input's positions, row by row."""
        slots = []
        is_mixed = _is_mixed(each)
        rows: Any = each.ids or [[self._input(one) if is_mixed else one[0][0]] for one in each.mixtures]
        for cache, row in zip(each.cache.rows, rows, strict=True):
            sequence = cache.begin()
            for number, value in enumerate(row):
                last = number == len(row) - 1
                token = value if isinstance(value, np.ndarray) else self._checked(value)
                slots.append(Slot(token, cache.length + number, sequence, last or not each.last_only))
        return slots

    def _input(self, mixture: WeightedTokens) -> Floats:
        """x~ = sum_i gamma_i z_i, as the first layer reads it. [D]."""
        ids, weights = mixture
        gamma = np.asarray(weights, np.float32) * np.float32(self.embedding_scale)
        return np.asarray(gamma @ self.embeddings.rows([self._checked(token) for token in ids]))

    def find_embedding_scale(self) -> float:
        """The factor with which a mixture of a token with itself predicts what the token does.

        Gemma's embeddings are scaled where tokens are read, and not where mixtures are.
        """
        token = self.context.model.size // 2
        expected = self.forward_ids([[token]], self.new_cache())[0, -1]
        if not np.isfinite(expected).all():
            raise UserError(
                f"{self.context.model.path.name} computes NaN instead of numbers here; fetch the file again"
            )
        for scale in (1.0, float(self.context.model.width) ** 0.5):
            self.embedding_scale = scale
            found = self.forward([([token, token], np.array([0.5, 0.5]))], self.new_cache())[0]
            if np.abs(found - expected).max() <= _ALIKE * np.ptp(expected):
                return scale
        raise UserError(
            f"{self.context.model.path.name} does not read mixtures of embeddings as it reads tokens; "
            "choose another model"
        )

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

    def begin(self) -> int:
        """The sequence to which a pass is to add, without what an interrupted one has left."""
        self.crop(self.length)
        return self.sequence

    def add(self, positions: int, *, is_prompt: bool) -> None:
        """Take note that the pass has added this many."""
        self.length += positions

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


class StateCache:
    """States of a recurrent model after some positions of a prompt, and after a draft of it, a sequence each.

    A pass adds to a copy of the last one, so that none ever changes, and copies of this cache share them. Cropped,
    it is as long as the longest that is left.
    """

    def __init__(
        self, context: LlamaContext, states: Sequence[SequenceCache] = (), draft: SequenceCache | None = None
    ) -> None:
        self.context = context
        self.states = list(states)  # the shortest first
        self.draft = draft
        self.next: SequenceCache | None = None  # that a pass adds to

    @property
    def length(self) -> int:
        """The positions that the next one follows."""
        return self.draft.length if self.draft else self.states[-1].length if self.states else 0

    @property
    def rows(self) -> list[StateCache]:
        """As in `SequenceCache`."""
        return [self]

    def begin(self) -> int:
        """As in `SequenceCache`."""
        last = self.draft or (self.states[-1] if self.states else None)
        self.next = last.fork(last.length) if last else SequenceCache(self.context)
        return self.next.sequence

    def add(self, positions: int, *, is_prompt: bool) -> None:
        """As in `SequenceCache`; a draft's earlier states are not kept, nor are more than a few of a prompt."""
        assert self.next is not None
        self.next.add(positions, is_prompt=is_prompt)
        if is_prompt:
            self.states.append(self.next)
            self._forget_one()
        self.draft = None if is_prompt else self.next
        self.next = None

    def _forget_one(self) -> None:
        """Of too many states, drop the one that saves least: positions, by how far from the end a text changes."""
        if len(self.states) <= _MAX_STATES:
            return
        lengths = [0, *(state.length for state in self.states)]
        saved = [(length - before) / (lengths[-1] - length) for before, length in pairwise(lengths[:-1])]
        del self.states[saved.index(min(saved))]

    def crop(self, length: int) -> None:
        """Drop the states behind `length`."""
        cropped = self.fork(length)
        self.states, self.draft, self.next = cropped.states, cropped.draft, None

    def fork(self, length: int) -> StateCache:
        """Another cache with the same states up to `length`."""
        draft = self.draft if self.draft and self.draft.length <= length else None
        return StateCache(self.context, [state for state in self.states if state.length <= length], draft)

    def select_rows(self, parents: Sequence[int]) -> SequenceRows:
        """As in `SequenceCache`."""
        return SequenceRows([self.fork(self.length) for _ in parents])


class SequenceRows:
    """Several sequences of the same length, which a pass reads together."""

    def __init__(self, rows: list[Any]) -> None:
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
