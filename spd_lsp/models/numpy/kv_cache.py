"""What attention remembers: the keys and values of positions read before, and attention over them.

A `Row` grows at its end, in memory taken ahead. `Rows` are several that share a row's positions and go on each in
its own way; what they share is stored and read once. Knows nothing of weights.

Legend: M new positions, L positions before them, N rows, T new positions a row (M = N T), S positions of a row
after the shared ones; G key heads, Q query heads a key head, C width of a head. Where a window hides the first
positions from all new ones, L and S count those after them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Protocol

import numpy as np

from ngram_builders.arrays import I64, Floats

ROOM = 2048  # positions a row has memory for at first; what is not written to takes none
FEW = 3  # rows that are faster one by one
OWN_ROOM = 16  # and one of several, after what they share
EVERYTHING = sys.maxsize  # a window longer than any text


class Memory(Protocol):
    """Where a pass over new positions puts their keys and values, and looks for earlier ones."""

    def reserve(self, count: int) -> I64:
        """Make room for M positions; which ones they are [M]."""

    def attend(
        self, layer: int, queries: Floats, keys: Floats, values: Floats, window: int = EVERYTHING
    ) -> Floats:
        """Store keys and values [M, G, C] and attend with scaled queries [M, G Q, C] to all that each may see.

        That is itself and what was before it, `window` positions at most. -> [M, G Q C].
        """

    def advance(self, count: int) -> None:
        """The pass is over: its M positions count from now on. One that was broken off leaves no trace."""


class Row:
    """Keys and values of one row of positions."""

    def __init__(self, layers: int, heads: int, width: int, room: int = 0) -> None:
        self.keys = np.empty((layers, heads, room or ROOM, width), np.float32)  # [layers, G, room, C]
        self.values = np.empty_like(self.keys)
        self.length = 0

    def reserve(self, count: int) -> I64:
        """As in `Memory`."""
        needed = self.length + count
        if needed > self.keys.shape[2]:
            self.keys, self.values = (
                _widened(array, 2, max(needed, 2 * array.shape[2])) for array in (self.keys, self.values)
            )
        return np.arange(self.length, needed)

    def attend(
        self, layer: int, queries: Floats, keys: Floats, values: Floats, window: int = EVERYTHING
    ) -> Floats:
        """As in `Memory`."""
        count, end = len(queries), self.length + len(queries)
        self.keys[layer, :, self.length : end] = keys.swapaxes(0, 1)
        self.values[layer, :, self.length : end] = values.swapaxes(0, 1)
        first = max(0, self.length + 1 - window)  # what the first new position sees, and so all of them
        q = _by_key_head(queries, self.keys.shape[1])  # [G, M Q, C]
        scores = product(q, self.keys[layer, :, first:end].swapaxes(1, 2))  # [G, M Q, L + M]
        if count > 1:
            split = scores.reshape(len(q), count, -1, end - first)  # [G, M, Q, L + M]
            _hide(split.swapaxes(1, 2), self.length - first, window)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        mixed = product(scores, self.values[layer, :, first:end])  # [G, M Q, C]
        mixed /= scores.sum(axis=-1, keepdims=True)
        return _by_position(mixed, count)

    def advance(self, count: int) -> None:
        """As in `Memory`."""
        self.length += count

    def crop(self, length: int) -> None:
        """Forget all positions from `length` on."""
        self.length = min(self.length, length)

    def fork(self, length: int) -> Row:
        """Another row with the same first positions."""
        layers, heads, _, width = self.keys.shape
        other = Row(layers, heads, width, max(ROOM, length))
        other.keys[:, :, :length] = self.keys[:, :, :length]
        other.values[:, :, :length] = self.values[:, :, :length]
        other.length = length
        return other

    def rows(self, parents: Sequence[int]) -> Rows:
        """As many rows as there are parents, which go on from this one."""
        return Rows(self, len(parents))


class Rows:
    """Keys and values of N rows that share the positions of one."""

    def __init__(self, shared: Row, rows: int) -> None:
        layers, heads, _, width = shared.keys.shape
        self.shared = shared
        self.keys = np.empty((layers, rows, heads, OWN_ROOM, width), np.float32)  # [layers, N, G, room, C]
        self.values = np.empty_like(self.keys)
        self.length = 0  # S

    def rows(self, parents: Sequence[int]) -> Rows:
        """Row i becomes row `parents[i]` of before; there may be more or fewer."""
        if list(parents) != list(range(self.keys.shape[1])):
            self.keys, self.values = self.keys.take(parents, axis=1), self.values.take(parents, axis=1)
        return self

    def reserve(self, count: int) -> I64:
        """As in `Memory`; positions are given row by row."""
        rows = self.keys.shape[1]
        each = count // rows  # T
        needed = self.length + each
        if needed > self.keys.shape[3]:
            self.keys, self.values = (
                _widened(array, 3, max(needed, 2 * array.shape[3])) for array in (self.keys, self.values)
            )
        return np.tile(np.arange(self.shared.length + self.length, self.shared.length + needed), rows)

    def attend(
        self, layer: int, queries: Floats, keys: Floats, values: Floats, window: int = EVERYTHING
    ) -> Floats:
        """As in `Memory`. One softmax over two places: what all rows share, and what each has of its own."""
        _, rows, heads, _, width = self.keys.shape
        each = len(queries) // rows  # T
        end, beside = self.length + each, queries.shape[1] // heads  # S + T, Q
        own_keys, own_values = self.keys[layer, :, :, :end], self.values[layer, :, :, :end]  # [N, G, S + T, C]
        own_keys[:, :, self.length :] = keys.reshape(rows, each, heads, width).swapaxes(1, 2)
        own_values[:, :, self.length :] = values.reshape(rows, each, heads, width).swapaxes(1, 2)
        q = _by_key_head(queries, heads)  # [G, N T Q, C]
        q_own = q.reshape(heads, rows, -1, width).swapaxes(0, 1)  # [N, G, T Q, C]
        first = max(0, self.shared.length + self.length + 1 - window)  # what the first new positions see
        first_own, common = max(0, first - self.shared.length), slice(first, self.shared.length)
        scores = product(q, self.shared.keys[layer, :, common].swapaxes(1, 2))  # [G, N T Q, L]
        own = q_own @ own_keys[:, :, first_own:].swapaxes(2, 3)  # [N, G, T Q, S + T]
        if each > 1:
            split = own.reshape(rows, heads, each, beside, -1)  # [N, G, T, Q, S + T]
            _hide(split.swapaxes(2, 3), self.length - first_own, window)
            split = scores.reshape(heads, rows, each, beside, scores.shape[2])  # [G, N, T, Q, L]
            _hide(split.swapaxes(2, 3), scores.shape[2] + self.length, window)
        as_own = scores.reshape(heads, rows, each * beside, scores.shape[2]).swapaxes(0, 1)  # [N, G, T Q, L]
        highest = np.maximum(as_own.max(axis=-1, keepdims=True, initial=-np.inf), own.max(axis=-1, keepdims=True))
        as_own -= highest
        own -= highest
        np.exp(scores, out=scores)
        np.exp(own, out=own)
        found = product(scores, self.shared.values[layer, :, common])  # [G, N T Q, C]
        mixed = found.reshape(heads, rows, -1, width).swapaxes(0, 1)  # [N, G, T Q, C]
        mixed = mixed + own @ own_values[:, :, first_own:]
        mixed /= as_own.sum(axis=-1, keepdims=True) + own.sum(axis=-1, keepdims=True)
        return _by_position(mixed.swapaxes(0, 1).reshape(heads, -1, width), len(queries))

    def advance(self, count: int) -> None:
        """As in `Memory`."""
        self.length += count // self.keys.shape[1]


def product(rows: Floats, matrices: Floats) -> Floats:
    """[G, R, X] times [G, X, Y] -> [G, R, Y]; a few rows one by one, which spares packing the matrix."""
    if not 1 < rows.shape[1] <= FEW:
        return np.asarray(rows @ matrices)
    return np.asarray((rows[:, :, None] @ matrices[:, None])[:, :, 0])


def _by_key_head(queries: Floats, heads: int) -> Floats:
    """Queries put beside those that read the same keys: [M, G Q, C] -> [G, M Q, C]."""
    count, _, width = queries.shape
    beside: Floats = queries.reshape(count, heads, -1, width).swapaxes(0, 1)  # [G, M, Q, C]
    return beside.reshape(heads, -1, width)


def _by_position(mixed: Floats, count: int) -> Floats:
    """And back: [G, M Q, C] -> [M, G Q C]."""
    heads, _, width = mixed.shape
    apart: Floats = mixed.reshape(heads, count, -1, width).swapaxes(0, 1)  # [M, G, Q, C]
    return apart.reshape(count, -1)


def _hide(scores: Floats, place: int, window: int) -> None:
    """T new positions, the first in column `place`, each see themselves and those before, `window` at most.

    [..., T, S], changed in place.
    """
    count, width = scores.shape[-2:]
    if place < width:
        scores[..., place:] += later(count)
    hidden = min(place + count - window, width)  # columns that the last one no longer sees
    if hidden > 0:
        scores[..., :hidden] += passed(count, hidden, place - window)


@cache
def later(count: int) -> Floats:
    """-inf where a position would see a later one, else 0. [T, T]."""
    mask: Floats = np.triu(np.full((count, count), -np.inf, np.float32), k=1)
    return mask


@lru_cache(maxsize=64)
def passed(count: int, columns: int, lag: int) -> Floats:
    """-inf where position i would see a column up to i + lag, which may be negative; else 0. [T, columns]."""
    mask: Floats = np.tril(np.full((count, columns), -np.inf, np.float32), k=lag)
    return mask


def _widened(array: Floats, axis: int, room: int) -> Floats:
    """A copy with more room along an axis; what is beyond the old end is not set."""
    shape = list(array.shape)
    shape[axis] = room
    wider: Floats = np.empty(shape, array.dtype)
    wider.swapaxes(0, axis)[: array.shape[axis]] = array.swapaxes(0, axis)
    return wider
