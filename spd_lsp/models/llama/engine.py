"""llama.cpp as an engine: a superposed step is one `llama_decode` of one mixed embedding.

Caches are sequences of one context: positions that two of them share are stored once, so forks cost nothing. The
state of a recurrent layer changes with each pass and cannot be cropped: see `StateCache`.

Legend: T positions of one input, B those of a pass, D width, V vocabulary.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from spd_lsp.models.base import Engine, ForwardInput, ThreadCounts
from spd_lsp.models.fitting import check_memory, free_memory
from spd_lsp.models.llama.gguf_file import LlamaModel, TokenEmbeddings, loaded, opening
from spd_lsp.models.llama.library import (
    ALL_LAYERS,
    MAX_SEQUENCES,
    Batch,
    context_settings,
    first_byte_test,
    last_error,
    load_library,
)
from spd_lsp.models.stored import find_parts

_INITIAL_POSITIONS = 4096  # of all sequences together; more when they are needed
_INITIAL_SEQUENCES = 64  # prompts and drafts of one person; each takes memory for a row of logits
_INITIAL_STATES = 20  # where each takes memory for a state, too: in Mamba 2, 4 bytes x width x state size a layer
_NO_ROOM, _STOPPED = 1, 2  # what llama_decode returns when the cache is full, and when it was stopped
_SHORT = 8  # tokens that are read sooner than they would be stopped
_LOOK_SECONDS = 0.02  # between two looks at whether a pass is to be stopped
_LARGE = 500_000_000  # bytes of weights, beyond which a second of a CPU reads fewer tokens than a chunk has
_LARGE_CHUNK = 16
_MAX_STATES = 4  # of a prompt: after all of it, and where one goes back to as it changes
_MIN_POSITIONS = 64
_ALIKE = 0.01  # of the range of logits: the largest difference of a mixture that is read as its only token


def open_gguf(path: Path, device: str = "auto", report: Callable[[str], None] = lambda text: None) -> LlamaEngine:
    """Open a GGUF file on `cpu`, or with all layers on the GPU that the library was built for."""
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

    def read_chunk(self, ids: Sequence[int], cache: Any, check: Callable[[], None]) -> Any:
        """As in `Engine`. The pass is stopped when `check` raises: a chunk takes up to a second of one core."""
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
            group = [each for each in inputs if (each.weights is not None and len(each.ids) > 1) == mixed]
            parts = [
                _Part(each.cache.begin(), each.cache.length, self._values(each, mixed), each.last_only)
                for each in group
            ]
            for each, part, found in zip(group, parts, self.context.read(parts), strict=True):
                is_prompt = each.weights is None
                each.cache.add(len(part.values), is_prompt=is_prompt)
                logits[id(each)] = found if is_prompt else found[0]
        return [logits[id(each)] for each in inputs]

    def _values(self, each: ForwardInput, mixed: bool) -> Any:
        """Return the ids of an input [T], or x~ = sum_i gamma_i z_i as the first layer reads it [1, D]."""
        size = self.context.model.size
        if not 0 <= min(each.ids) <= max(each.ids) < size:  # the library ends the process for others
            raise IndexError(f"expected ids from 0 to {size - 1}, found {min(each.ids)} to {max(each.ids)}")
        if not mixed:
            return np.array(each.ids, np.int32)
        gamma = np.asarray(each.weights, np.float32) * np.float32(self.embedding_scale)
        return (gamma @ self.embeddings.rows(each.ids))[None]

    def find_embedding_scale(self) -> float:
        """Return the factor with which a mixture of a token with itself predicts what the token does.

        Gemma 3's embeddings are scaled where tokens are read, and not where mixtures are.
        """
        token = self.context.model.size // 2
        expected = self.forward([token], self.new_cache())[-1]
        mixed = self.forward([token, token], self.new_cache(), np.array([0.5, 0.5]))
        is_alike = np.abs(mixed - expected).max() <= _ALIKE * np.ptp(expected)
        return 1.0 if is_alike else float(self.context.model.width) ** 0.5


class _Part(NamedTuple):
    """New positions of one sequence."""

    sequence: int
    start: int  # the first position
    values: Any  # ids [T] or a mixed embedding [1, D]
    last_only: bool  # whether logits are computed after the last position only


class Stopped(Exception):
    """A pass ended early; it added nothing."""


class LlamaContext:
    """One cache for many sequences, and the passes that fill it.

    Other threads may ask for sequences while a pass is computed: one lock guards the library.
    """

    def __init__(self, model: LlamaModel) -> None:
        self.model = model
        self.library = model.library
        self.lock = threading.RLock()
        self.more = _INITIAL_SEQUENCES if model.keeps_positions else _INITIAL_STATES  # sequences at a time
        self.free = list(range(self.more))
        self.sequences = self.more
        self.dropped: list[int] = []  # of deleted caches; garbage collection must not wait for the lock
        self.threads = (1, 1)
        self.stop = ctypes.create_string_buffer(2)  # a text that is empty while a pass may go on
        self.positions = min(_INITIAL_POSITIONS, max(512, model.max_positions))
        self._open()

    def _open(self) -> None:
        """Make a context of this many positions and sequences."""
        settings = context_settings(self.positions, self.sequences)
        pointer = self.library.llama_init_from_model(self.model.pointer, settings)
        if not pointer:
            raise UserError(f"llama.cpp has no room for {self.positions:,} positions: {last_error()}")
        self.pointer = pointer
        self.memory = self.library.llama_get_memory(pointer)
        # The model is an argument, too, so that it outlives its context.
        self.close = weakref.finalize(self, lambda model, free: free(pointer), self.model, self.library.llama_free)
        self.set_threads(*self.threads)
        self.library.llama_set_abort_callback(pointer, first_byte_test(), ctypes.addressof(self.stop))

    @contextmanager
    def stopping_when(self, check: Callable[[], None]) -> Iterator[None]:
        """Stop a pass that runs within, which then raises `Stopped`, while `check` raises in another thread."""
        is_over = threading.Event()

        def look() -> None:
            while not is_over.wait(_LOOK_SECONDS):
                try:
                    check()
                except Exception:
                    self.stop.value = b"1"

        watcher = threading.Thread(target=look, name="spd-lsp-stop", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()
            self.stop.value = b""

    def set_threads(self, step: int, prompt: int) -> None:
        """Compute a step, and a prompt, in this many threads."""
        self.threads = step, prompt
        with self.lock:
            self.library.llama_set_n_threads(self.pointer, step, prompt)

    def new_sequence(self) -> int:
        """Return the number of an empty sequence."""
        with self.lock:
            self._clear_dropped()
            if not self.free and self.sequences == MAX_SEQUENCES:
                raise UserError(f"llama.cpp has {MAX_SEQUENCES} sequences; all are in use")
            if not self.free:
                self._grow(0, min(self.sequences + self.more, MAX_SEQUENCES))
            return self.free.pop()

    def _clear_dropped(self) -> None:
        while self.dropped:
            sequence = self.dropped.pop()
            self.library.llama_memory_seq_rm(self.memory, sequence, -1, -1)
            self.free.append(sequence)

    def crop(self, sequence: int, length: int) -> None:
        """Drop the positions of a sequence from `length` on."""
        with self.lock:
            self.library.llama_memory_seq_rm(self.memory, sequence, length, -1)

    def copy(self, source: int, target: int, length: int) -> None:
        """Give an empty sequence the first positions of another, without copying what they hold."""
        with self.lock:
            self.library.llama_memory_seq_cp(self.memory, source, target, 0, length)

    def read(self, parts: Sequence[_Part]) -> list[Floats]:
        """Read all parts in one pass; return the logits of each, [T, V] or [1, V] after the last position only.

        The values of all parts are ids, or of all are embeddings.
        """
        if not parts:
            return []
        # 1. Lay out the positions of all parts one behind the other, as `llama_batch` has them.
        lengths = [len(part.values) for part in parts]
        values = np.concatenate([part.values for part in parts])  # [B] or [B, D]
        positions = np.concatenate([part.start + np.arange(len(part.values)) for part in parts]).astype(np.int32)
        sequences = np.repeat([part.sequence for part in parts], lengths).astype(np.int32)
        kept = [np.arange(len(part.values)) >= part.last_only * (len(part.values) - 1) for part in parts]
        keeps_logits = np.concatenate(kept).astype(np.int8)
        ones = np.ones(len(values), np.int32)
        addresses = sequences.ctypes.data + sequences.itemsize * np.arange(len(values), dtype=np.uintp)
        batch = Batch(len(values), pos=positions.ctypes.data, n_seq_id=ones.ctypes.data)
        batch.seq_id, batch.logits = addresses.ctypes.data, keeps_logits.ctypes.data
        if values.ndim == 1:
            batch.token = values.ctypes.data
        else:
            batch.embd = values.ctypes.data
        with self.lock:
            # 2. Read them, in a larger context if this one is full.
            self._clear_dropped()
            if len(values) > self.positions:
                self._grow(len(values))
            while (status := self.library.llama_decode(self.pointer, batch)) == _NO_ROOM:
                self._grow(len(values))
            if status == _STOPPED:
                raise Stopped
            if status:
                raise RuntimeError(f"llama_decode failed with status {status} ({last_error()})")
            # 3. Copy the logits.
            logits = np.empty((int(keeps_logits.sum()), self.model.size), np.float32)
            for row, number in zip(logits, np.flatnonzero(keeps_logits).tolist(), strict=True):
                found = self.library.llama_get_logits_ith(self.pointer, number)
                row[:] = np.ctypeslib.as_array(found, (self.model.size,))
        return np.split(logits, np.cumsum([rows.sum() for rows in kept])[:-1])

    def _grow(self, new: int, sequences: int = 0) -> None:
        """Move all to a larger context, with room for new positions or for this many sequences.

        Sequences share nothing there.
        """
        used = set(range(self.sequences)) - set(self.free)
        held = sum(1 + self.library.llama_memory_seq_pos_max(self.memory, sequence) for sequence in used)
        needed = max(new + held, 2 * self.positions if new else 0)
        stored = {sequence: self._state(sequence) for sequence in used}
        self.close()
        while self.positions < needed:
            self.positions *= 2
        self.free += range(self.sequences, sequences)
        self.sequences = max(self.sequences, sequences)
        self._open()
        for sequence, state in stored.items():
            if state and not self.library.llama_state_seq_set_data(self.pointer, state, len(state), sequence):
                raise RuntimeError(f"llama.cpp could not restore what it had read ({last_error()})")

    def _state(self, sequence: int) -> bytes:
        """Return the content of a sequence as the library writes it."""
        size = self.library.llama_state_seq_get_size(self.pointer, sequence)
        buffer = ctypes.create_string_buffer(size)
        written = self.library.llama_state_seq_get_data(self.pointer, buffer, size, sequence)
        return buffer.raw[:written]


class SequenceCache:
    """The positions of one sequence."""

    def __init__(self, context: LlamaContext) -> None:
        self.context = context
        self.sequence = context.new_sequence()
        self.length = 0
        weakref.finalize(self, context.dropped.append, self.sequence)

    def begin(self) -> int:
        """Return the sequence to which a pass is to add, without what a failed one has left."""
        self.crop(self.length)
        return self.sequence

    def add(self, positions: int, *, is_prompt: bool) -> None:
        """Count the positions that a pass has added."""
        self.length += positions

    def crop(self, length: int) -> None:
        """As in `Cache`."""
        self.length = min(self.length, length)
        self.context.crop(self.sequence, self.length)

    def fork(self, length: int) -> SequenceCache:
        """As in `Cache`."""
        forked = SequenceCache(self.context)
        forked.length = length
        self.context.copy(self.sequence, forked.sequence, length)
        return forked


class StateCache:
    """States of a recurrent model after some positions of a prompt, and after a draft of it, a sequence each.

    A pass adds to a copy of the last one, so that none ever changes, and forks of this cache share them. A cropped
    cache is as long as the longest state that is left.
    """

    def __init__(
        self, context: LlamaContext, states: Sequence[SequenceCache] = (), draft: SequenceCache | None = None
    ) -> None:
        self.context = context
        self.states = list(states)  # the shortest first
        self.draft = draft
        self.next: SequenceCache | None = None  # to which a pass adds

    @property
    def length(self) -> int:
        """As in `Cache`."""
        return self.draft.length if self.draft else self.states[-1].length if self.states else 0

    def begin(self) -> int:
        """As in `SequenceCache`."""
        last = self.draft or (self.states[-1] if self.states else None)
        self.next = last.fork(last.length) if last else SequenceCache(self.context)
        return self.next.sequence

    def add(self, positions: int, *, is_prompt: bool) -> None:
        """As in `SequenceCache`; earlier states of a draft are dropped, and of a prompt all but a few."""
        new, self.next = self.next, None
        assert new is not None
        new.add(positions, is_prompt=is_prompt)
        self.draft = None if is_prompt else new
        if is_prompt:
            self.states.append(new)
        if len(self.states) > _MAX_STATES:
            # Drop the one that saves least: positions, by how far from the end a text changes.
            lengths = [0, *(state.length for state in self.states)]
            saved = [(length - before) / (lengths[-1] - length) for before, length in pairwise(lengths[:-1])]
            del self.states[saved.index(min(saved))]

    def crop(self, length: int) -> None:
        """As in `Cache`: drop the states behind `length`."""
        cropped = self.fork(length)
        self.states, self.draft, self.next = cropped.states, cropped.draft, None

    def fork(self, length: int) -> StateCache:
        """As in `Cache`, with the same states up to `length`."""
        draft = self.draft if self.draft and self.draft.length <= length else None
        return StateCache(self.context, [state for state in self.states if state.length <= length], draft)
