"""A model in llama.cpp and what it has read: sequences of positions that share one cache.

Caches of other threads may ask for sequences while a pass is computed: one lock guards the library.

Legend: B slots of a pass, D width, V vocabulary.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from spd_lsp.models.llama.library import (
    MAX_SEQUENCES,
    Batch,
    context_settings,
    first_byte_test,
    last_error,
)
from spd_lsp.models.llama.model import LlamaModel

_INITIAL_POSITIONS = 4096  # of all sequences together; more when they are needed
_INITIAL_SEQUENCES = 64  # prompts and drafts of one person; each takes memory for a row of logits
_INITIAL_STATES = 20  # where each takes memory for a state, too: in Mamba 2, 4 bytes x width x state size a layer
_NO_ROOM, _STOPPED = 1, 2  # what llama_decode returns when the cache is full, and when it was stopped
_LOOK_SECONDS = 0.02  # between two looks at whether a pass is to be stopped


class Stopped(Exception):
    """A pass ended early; it added nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """One position of a pass: a token or its embedding, of a sequence."""

    input: int | Floats
    position: int
    sequence: int
    wants_logits: bool


class LlamaContext:
    """One cache for many sequences, and the passes that fill it."""

    def __init__(self, model: LlamaModel) -> None:
        self.model = model
        self.library = model.library
        self.lock = threading.RLock()
        self.more = _INITIAL_SEQUENCES if model.keeps_positions else _INITIAL_STATES  # sequences at a time
        self.free = list(range(self.more))
        self.sequences = self.more
        self.dropped: list[int] = []  # sequences whose caches are gone; a collector must not wait for the lock
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

    def set_threads(self, step: int, prompt: int) -> None:
        """How many threads compute a step, and a prompt."""
        self.threads = step, prompt
        with self.lock:
            self.library.llama_set_n_threads(self.pointer, step, prompt)

    def new_sequence(self) -> int:
        """The number of an empty sequence."""
        with self.lock:
            self._forget_dropped()
            if not self.free and self.sequences == MAX_SEQUENCES:
                raise UserError(f"llama.cpp serves {MAX_SEQUENCES} sequences at once; all are in use")
            if not self.free:
                self._grow(0, min(self.sequences + self.more, MAX_SEQUENCES))
            return self.free.pop()

    def drop_sequence(self, sequence: int) -> None:
        """Forget a sequence, soon."""
        self.dropped.append(sequence)

    def _forget_dropped(self) -> None:
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

    def read(self, slots: Sequence[Slot]) -> Floats:
        """One pass; the logits of the slots that want them. [wanting, V]."""
        with self.lock:
            self._forget_dropped()
            if len(slots) > self.positions:
                self._grow(len(slots))
            batch = self._batch(slots)
            try:
                while (status := self.library.llama_decode(self.pointer, batch)) == _NO_ROOM:
                    self._grow(len(slots))
                if status == _STOPPED:
                    raise Stopped
                if status:
                    raise RuntimeError(f"llama_decode failed with status {status} ({last_error()})")
                wanting = [number for number, slot in enumerate(slots) if slot.wants_logits]
                logits = np.empty((len(wanting), self.model.size), np.float32)
                for row, number in zip(logits, wanting, strict=True):
                    found = self.library.llama_get_logits_ith(self.pointer, number)
                    row[:] = np.ctypeslib.as_array(found, (self.model.size,))
                return logits
            finally:
                self.library.llama_batch_free(batch)

    @contextmanager
    def stopping_when(self, check: Callable[[], None]) -> Iterator[None]:
        """Stop a pass within that runs while `check` raises, which another thread calls: it ends as `Stopped`."""
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

    def _batch(self, slots: Sequence[Slot]) -> Any:
        """The slots as the library reads them: all tokens, or all embeddings."""
        mixed = not isinstance(slots[0].input, int)
        batch: Batch = self.library.llama_batch_init(len(slots), self.model.width if mixed else 0, 1)
        batch.n_tokens = len(slots)
        for number, slot in enumerate(slots):
            if isinstance(slot.input, int):
                batch.token[number] = slot.input
            batch.pos[number] = slot.position
            batch.n_seq_id[number] = 1
            batch.seq_id[number][0] = slot.sequence
            batch.logits[number] = slot.wants_logits
        if mixed:
            embeddings = np.ctypeslib.as_array(batch.embd, (len(slots), self.model.width))
            embeddings[:] = np.stack([np.asarray(slot.input) for slot in slots])
        return batch

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
        """What a sequence holds, as the library writes it."""
        size = self.library.llama_state_seq_get_size(self.pointer, sequence)
        buffer = ctypes.create_string_buffer(size)
        written = self.library.llama_state_seq_get_data(self.pointer, buffer, size, sequence)
        return buffer.raw[:written]
