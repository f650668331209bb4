"""KV caches in NumPy: the keys and values of the positions read before, and attention over them.

A `KVCache` holds one row of positions and grows at its end. A `SharedPrefixCache` holds several rows that continue
one prefix, each in its own way; the prefix is stored and read once. In a `MixtureCache` mixtures of drafts
continue a prompt, and in the last layer each draft. A `JoinedCache` lets one pass read positions of several
caches. None of them knows about weights.

Legend: M new positions, L positions before them, N rows, T new positions of each row (M = N T), S positions of a
row after the prefix; G key heads, Q query heads for each of them, C width of a head. Where a window hides the
first positions from all new ones, L and S count those after them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import copy
from functools import cache, lru_cache
from itertools import accumulate
from typing import Protocol

import numpy as np

from ngram_builders.arrays import I64, Floats

INITIAL_CAPACITY = 2048  # positions of a row at most; with huge pages untouched memory is held, too
INITIAL_TAIL = 16  # positions of each row after a shared prefix
NO_WINDOW = sys.maxsize  # longer than any text
_MAX_SINGLE_ROWS = 3  # up to so many rows are faster one by one, which spares packing the matrix


class AttentionCache(Protocol):
    """Where the layers of a pass put keys and values of new positions, and look up earlier ones."""

    def reserve(self, count: int) -> I64:
        """Allocate M positions and return which ones they are [M]."""

    def attend(self, layer: int, queries: Floats, keys: Floats, values: Floats, window: int = NO_WINDOW) -> Floats:
        """Store keys and values [M, G, C] and attend with scaled queries [M, G Q, C].

        Each position sees itself and those before it, `window` positions at most. -> [M, G Q C].
        """

    def advance(self, count: int) -> None:
        """End the pass: its M positions count from now on. An interrupted one leaves no trace."""


class KVCache:
    """Keys and values of one row of positions."""

    def __init__(self, layers: int, heads: int, width: int, capacity: int = 0) -> None:
        self.keys = np.empty((layers, heads, capacity or INITIAL_CAPACITY, width), np.float32)
        self.values = np.empty_like(self.keys)  # both [layers, G, capacity, C]
        self.length = 0

    def reserve(self, count: int) -> I64:
        """As in `AttentionCache`."""
        needed = self.length + count
        if needed > self.keys.shape[2]:
            self.keys, self.values = (_grown(array, 2, needed) for array in (self.keys, self.values))
        return np.arange(self.length, needed)

    def attend(self, layer: int, queries: Floats, keys: Floats, values: Floats, window: int = NO_WINDOW) -> Floats:
        """As in `AttentionCache`."""
        count, end = len(queries), self.length + len(queries)
        self.keys[layer, :, self.length : end] = keys.swapaxes(0, 1)
        self.values[layer, :, self.length : end] = values.swapaxes(0, 1)
        first = max(0, self.length + 1 - window)  # what the first new position sees, and so all of them
        q = _by_key_head(queries, self.keys.shape[1])  # [G, M Q, C]
        scores = _matmul(q, self.keys[layer, :, first:end].swapaxes(1, 2))  # [G, M Q, L + M]
        if count > 1:
            split = scores.reshape(len(q), count, -1, end - first)  # [G, M, Q, L + M]
            _mask(split.swapaxes(1, 2), self.length - first, window)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        mixed = _matmul(scores, self.values[layer, :, first:end])  # [G, M Q, C]
        mixed /= scores.sum(axis=-1, keepdims=True)
        return _by_position(mixed, count)

    def advance(self, count: int) -> None:
        """As in `AttentionCache`."""
        self.length += count

    def crop(self, length: int) -> None:
        """Drop all positions from `length` on."""
        self.length = min(self.length, length)

    def fork(self, length: int) -> KVCache:
        """A copy of the first positions."""
        layers, heads, _, width = self.keys.shape
        forked = KVCache(layers, heads, width, max(self.keys.shape[2], length))
        forked.keys[:, :, :length] = self.keys[:, :, :length]
        forked.values[:, :, :length] = self.values[:, :, :length]
        forked.length = length
        return forked

    def of_layer(self, number: int) -> KVCache:
        """The positions of one layer, not copied; those that are added later are not in it."""
        one = copy(self)
        one.keys, one.values = self.keys[number, None], self.values[number, None]
        return one

    def select_rows(self, parents: Sequence[int]) -> SharedPrefixCache:
        """As many rows as there are parents, all of which continue this one."""
        return SharedPrefixCache(self, len(parents))

    def select_drafts(self, parents: Sequence[int]) -> MixtureCache:
        """As many drafts as there are parents, all of which continue this prompt."""
        return MixtureCache(self, len(parents))


class SharedPrefixCache:
    """Keys and values of N rows that continue one prefix."""

    def __init__(self, prefix: KVCache, rows: int) -> None:
        layers, heads, _, width = prefix.keys.shape
        self.prefix = prefix
        self.keys = np.empty((layers, rows, heads, INITIAL_TAIL, width), np.float32)  # [layers, N, G, capacity, C]
        self.values = np.empty_like(self.keys)
        self.length = 0  # S

    def select_rows(self, parents: Sequence[int]) -> SharedPrefixCache:
        """Row i becomes what row `parents[i]` is now; there may be more or fewer."""
        if list(parents) != list(range(self.keys.shape[1])):
            self.keys, self.values = self.keys.take(parents, axis=1), self.values.take(parents, axis=1)
        return self

    def reserve(self, count: int) -> I64:
        """As in `AttentionCache`; positions are numbered row by row."""
        rows = self.keys.shape[1]
        needed = self.length + count // rows  # S + T
        if needed > self.keys.shape[3]:
            self.keys, self.values = (_grown(array, 3, needed) for array in (self.keys, self.values))
        return np.tile(np.arange(self.prefix.length + self.length, self.prefix.length + needed), rows)

    def attend(self, layer: int, queries: Floats, keys: Floats, values: Floats, window: int = NO_WINDOW) -> Floats:
        """As in `AttentionCache`: one softmax over the prefix and each row's own tail."""
        _, rows, heads, _, width = self.keys.shape
        each = len(queries) // rows  # T
        end, group = self.length + each, queries.shape[1] // heads  # S + T, Q
        tail_keys, tail_values = self.keys[layer, :, :, :end], self.values[layer, :, :, :end]  # [N, G, S + T, C]
        tail_keys[:, :, self.length :] = keys.reshape(rows, each, heads, width).swapaxes(1, 2)
        tail_values[:, :, self.length :] = values.reshape(rows, each, heads, width).swapaxes(1, 2)
        q = _by_key_head(queries, heads)  # [G, N T Q, C]
        q_rows = q.reshape(heads, rows, -1, width).swapaxes(0, 1)  # [N, G, T Q, C]
        first = max(0, self.prefix.length + self.length + 1 - window)  # what the first new positions see
        first_tail, prefix = max(0, first - self.prefix.length), slice(first, self.prefix.length)
        scores = _matmul(q, self.prefix.keys[layer, :, prefix].swapaxes(1, 2))  # [G, N T Q, L]
        tail = q_rows @ tail_keys[:, :, first_tail:].swapaxes(2, 3)  # [N, G, T Q, S + T]
        if each > 1:
            split = tail.reshape(rows, heads, each, group, -1)  # [N, G, T, Q, S + T]
            _mask(split.swapaxes(2, 3), self.length - first_tail, window)
            split = scores.reshape(heads, rows, each, group, scores.shape[2])  # [G, N, T, Q, L]
            _mask(split.swapaxes(2, 3), scores.shape[2] + self.length, window)
        by_row = scores.reshape(heads, rows, each * group, scores.shape[2]).swapaxes(0, 1)  # [N, G, T Q, L]
        highest = np.maximum(by_row.max(axis=-1, keepdims=True, initial=-np.inf), tail.max(axis=-1, keepdims=True))
        by_row -= highest
        tail -= highest
        np.exp(scores, out=scores)
        np.exp(tail, out=tail)
        mixed = _matmul(scores, self.prefix.values[layer, :, prefix])  # [G, N T Q, C]
        mixed = mixed.reshape(heads, rows, -1, width).swapaxes(0, 1)  # [N, G, T Q, C]
        mixed = mixed + tail @ tail_values[:, :, first_tail:]
        mixed /= by_row.sum(axis=-1, keepdims=True) + tail.sum(axis=-1, keepdims=True)
        return _by_position(mixed.swapaxes(0, 1).reshape(heads, -1, width), len(queries))

    def advance(self, count: int) -> None:
        """As in `AttentionCache`."""
        self.length += count // self.keys.shape[1]


class MixtureCache:
    """Keys and values of mixtures of K drafts after a prompt, and in the last layer those of each draft."""

    def __init__(self, prompt: KVCache, drafts: int) -> None:
        self.prompt = prompt
        self.last_layer = len(prompt.keys) - 1
        self.drafts = SharedPrefixCache(prompt.of_layer(self.last_layer), drafts)

    def select_drafts(self, parents: Sequence[int]) -> MixtureCache:
        """Draft i continues what draft `parents[i]` is now; there may be more or fewer."""
        self.drafts = self.drafts.select_rows(parents)
        return self

    def reserve(self, count: int) -> I64:
        """As in `AttentionCache`; a mixture and its drafts are at one position."""
        self.drafts.reserve(self.drafts.keys.shape[1])
        return self.prompt.reserve(count)

    def attend(self, layer: int, queries: Floats, keys: Floats, values: Floats, window: int = NO_WINDOW) -> Floats:
        """As in `AttentionCache`: M = 1 mixture, or in the last layer M = K drafts."""
        if layer < self.last_layer:
            return self.prompt.attend(layer, queries, keys, values, window)
        return self.drafts.attend(0, queries, keys, values, window)

    def advance(self, count: int) -> None:
        """As in `AttentionCache`."""
        self.drafts.advance(self.drafts.keys.shape[1])
        self.prompt.advance(count)


class JoinedCache:
    """Caches of several prompts, so that one pass reads positions of all.

    The products with the weights, which cost a pass its time, get one tall matrix; attention stays with each
    cache.
    """

    def __init__(self, caches: Sequence[AttentionCache], counts: Sequence[int]) -> None:
        self.members = [
            (member, count, slice(end - count, end))
            for member, count, end in zip(caches, counts, accumulate(counts), strict=True)
        ]

    def reserve(self, count: int) -> I64:
        """As in `AttentionCache`."""
        return np.concatenate([member.reserve(own) for member, own, _ in self.members])

    def attend(self, layer: int, queries: Floats, keys: Floats, values: Floats, window: int = NO_WINDOW) -> Floats:
        """As in `AttentionCache`, each member with its part of the positions."""
        return np.concatenate(
            [member.attend(layer, queries[own], keys[own], values[own], window) for member, _, own in self.members]
        )

    def advance(self, count: int) -> None:
        """As in `AttentionCache`."""
        for member, own, _ in self.members:
            member.advance(own)


def _matmul(rows: Floats, matrices: Floats) -> Floats:
    """[G, R, X] times [G, X, Y] -> [G, R, Y]."""
    if not 1 < rows.shape[1] <= _MAX_SINGLE_ROWS:
        return np.asarray(rows @ matrices)
    return np.asarray((rows[:, :, None] @ matrices[:, None])[:, :, 0])


def _by_key_head(queries: Floats, heads: int) -> Floats:
    """Group queries that read the same keys: [M, G Q, C] -> [G, M Q, C]."""
    count, _, width = queries.shape
    return np.asarray(queries.reshape(count, heads, -1, width).swapaxes(0, 1).reshape(heads, -1, width))


def _by_position(mixed: Floats, count: int) -> Floats:
    """And back: [G, M Q, C] -> [M, G Q C]."""
    heads, _, width = mixed.shape
    return np.asarray(mixed.reshape(heads, count, -1, width).swapaxes(0, 1).reshape(count, -1))


def _mask(scores: Floats, column: int, window: int) -> None:
    """Let each of T new positions, the first in `column`, see itself and those before it, `window` at most.

    [..., T, S], changed in place.
    """
    count, width = scores.shape[-2:]
    if column < width:
        scores[..., column:] += _causal_mask(count)
    hidden = min(column + count - window, width)  # columns that the last position no longer sees
    if hidden > 0:
        scores[..., :hidden] += _window_mask(count, hidden, column - window)


@cache
def _causal_mask(count: int) -> Floats:
    """-inf where a position would see a later one, else 0. [T, T]."""
    return np.triu(np.full((count, count), -np.inf, np.float32), k=1)


@lru_cache(maxsize=64)
def _window_mask(count: int, columns: int, lag: int) -> Floats:
    """-inf where position i would see a column up to i + lag, which may be negative; else 0. [T, columns]."""
    return np.tril(np.full((count, columns), -np.inf, np.float32), k=lag)


def _grown(array: Floats, axis: int, needed: int) -> Floats:
    """A copy of at least twice the capacity along an axis; what is beyond the old end is not set."""
    shape = list(array.shape)
    shape[axis] = max(needed, 2 * shape[axis])
    grown: Floats = np.empty(shape, array.dtype)
    grown.swapaxes(0, axis)[: array.shape[axis]] = array.swapaxes(0, axis)
    return grown
