"""The KV cache of a device: slots that passes read, and backups of sequences that were evicted from them.

A sequence that is read occupies a slot of the pool, whose address never changes while a graph over it may be
replayed; slots in use are contiguous. When another sequence needs the slot, the sequence is evicted to a tensor of
its own; positions that were backed up before are not copied again. Knows nothing about weights.

Any thread may crop and fork a sequence; everything else happens in the one thread that computes.

Legend: S slots, G key heads, C width of a head, capacity: positions that a slot has memory for.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

_BACKUP_STEP = 128  # positions; backups have a multiple of them


class SlotPool:
    """Slots that passes read. One more is for padding; nobody reads it."""

    def __init__(self, layers: int, heads: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self.layers, self.heads, self.width = layers, heads, width
        self.dtype, self.device = dtype, device
        self.lock = threading.RLock()
        self.occupants: list[weakref.ref[CachedSequence] | None] = []  # by slot
        self.capacity = 0
        self.kv = self._allocate(0, 0)  # [keys or values, layers, S + 1, G, capacity, C]
        self.reallocations = 0  # after which graphs know an old address

    def _allocate(self, slots: int, capacity: int) -> Tensor:
        """Zeros: what is hidden from attention must still be a number."""
        shape = (2, self.layers, slots + 1, self.heads, capacity, self.width)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    @property
    def size(self) -> int:
        """S."""
        return len(self.occupants)

    def grow(self, slots: int, capacity: int) -> None:
        """Make sure that there are at least so many slots of such a capacity."""
        if slots <= self.size and capacity <= self.capacity:
            return
        slots, capacity = max(slots, self.size), max(capacity, self.capacity)
        grown = self._allocate(slots, capacity)
        grown[:, :, : self.size, :, : self.capacity] = self.kv[:, :, : self.size]
        self.kv, self.capacity = grown, capacity
        self.occupants += [None] * (slots - self.size)
        self.reallocations += 1

    def occupant(self, slot: int) -> CachedSequence | None:
        """The sequence in a slot."""
        reference = self.occupants[slot]
        return None if reference is None else reference()

    def assign(self, sequences: Sequence[CachedSequence], contiguous: bool = False) -> None:
        """Give each sequence a slot; `contiguous`: the first slots, as many as there are sequences."""
        allowed = range(len(sequences) if contiguous else self.size)
        waiting = [sequence for sequence in sequences if sequence.slot not in allowed]
        taken = {sequence.slot for sequence in sequences}
        free = [slot for slot in allowed if slot not in taken]
        free.sort(key=lambda slot: self.occupant(slot) is not None)  # empty ones first
        for sequence, slot in zip(waiting, free, strict=False):
            self._load(sequence, slot)

    def _load(self, sequence: CachedSequence, slot: int) -> None:
        """Bring a sequence into a slot, and evict its occupant."""
        if (occupant := self.occupant(slot)) is not None:
            occupant.evict()
        if sequence.stored:
            source = sequence.parent or sequence
            self.kv[:, :, slot, :, : sequence.stored] = source.kv()[..., : sequence.stored, :]
        if sequence.slot is not None:
            self.occupants[sequence.slot] = None
        sequence.slot, sequence.parent = slot, None
        self.occupants[slot] = weakref.ref(sequence)


class CachedSequence:
    """Keys and values of one sequence, wherever they are: the `Cache` of a prompt."""

    def __init__(self, pool: SlotPool, parent: CachedSequence | None = None) -> None:
        """`parent`: the sequence that this one continues, until it gets a slot of its own."""
        self.pool = pool
        self.parent = parent
        self.length: int = parent.length if parent else 0  # positions that count
        self.stored = self.length  # and those of a pass whose other parts are still being computed
        self.slot: int | None = None
        self.backup: Tensor | None = None  # [keys or values, layers, G, capacity, C]
        self.backed_up = 0  # positions in the backup

    def crop(self, length: int) -> None:
        """Drop all positions from `length` on."""
        with self.pool.lock:
            self.length = self.stored = min(self.length, length)
            self.backed_up = min(self.backed_up, length)

    @torch.inference_mode()
    def fork(self, length: int) -> CachedSequence:
        """A copy of the first positions, as a backup."""
        forked = CachedSequence(self.pool)
        with self.pool.lock:
            forked.length = forked.stored = length
            if length:
                forked._back_up(self.kv(), length)
        return forked

    def select_rows(self, parents: Sequence[int]) -> SequenceRows:
        """As many sequences as there are parents, all of which continue this one."""
        return SequenceRows([CachedSequence(self.pool, self) for _ in parents], self.length)

    def kv(self) -> Tensor:
        """Where its positions are. [keys or values, layers, G, capacity, C]."""
        if self.slot is not None:
            return self.pool.kv[:, :, self.slot]
        assert self.backup is not None
        return self.backup

    def evict(self) -> None:
        """Leave the slot."""
        assert self.slot is not None
        if self.stored > self.backed_up:
            self._back_up(self.kv(), self.stored)
        self.pool.occupants[self.slot], self.slot = None, None

    def _back_up(self, kv: Tensor, length: int) -> None:
        """Copy positions up to `length`, as far as they are not in the backup."""
        if self.backup is None or self.backup.shape[3] < length:
            pool = self.pool
            shape = (2, pool.layers, pool.heads, -(-length // _BACKUP_STEP) * _BACKUP_STEP, pool.width)
            grown = torch.empty(shape, dtype=pool.dtype, device=pool.device)
            if self.backup is not None:
                grown[..., : self.backed_up, :] = self.backup[..., : self.backed_up, :]
            self.backup = grown
        new = slice(self.backed_up, length)
        self.backup[..., new, :] = kv[..., new, :]
        self.backed_up = length


class SequenceRows:
    """N sequences that continue one prefix: the `Cache` of drafts."""

    def __init__(self, sequences: list[CachedSequence], prefix: int) -> None:
        self.sequences = sequences
        self.prefix = prefix  # positions that are the same in all
        self.parents: Sequence[int] = range(len(sequences))  # which one each continues, in the next pass

    def select_rows(self, parents: Sequence[int]) -> SequenceRows:
        """Sequence i becomes what sequence `parents[i]` is now; there may be more or fewer."""
        self.parents = list(parents)
        return self

    def assign_slots(self) -> None:
        """Give each sequence a slot, with what the one that it continues has."""
        old, pool, count = self.sequences, self.sequences[0].pool, len(self.parents)
        added = [CachedSequence(pool, old[parent]) for parent in self.parents[len(old) :]]
        pool.grow(len(old) + len(added), 0)
        pool.assign([*old, *added])
        kept = old[:count]
        changed = [
            (sequence, old[parent])
            for sequence, parent in zip(kept, self.parents, strict=False)
            if sequence is not old[parent]
        ]
        if changed:
            tail = slice(self.prefix, old[0].length)
            to, source = ([sequence.slot for sequence in side] for side in zip(*changed, strict=True))
            pool.kv[:, :, to, :, tail] = pool.kv[:, :, source, :, tail]
        self.sequences = [*kept, *added]
        self.parents = range(count)
