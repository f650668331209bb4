"""The inputs of one pass over several sequences, padded to a fixed shape.

The tensors keep their addresses, so that a captured graph reads what is filled in before each replay.

Legend: as in `decoder.py`; N sequences of one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ngram_builders.arrays import Floats
from spd_lsp.models.topk import TopKRequest, WeightedTokens
from spd_lsp.models.torch.decoder import Inputs
from spd_lsp.models.torch.kv_cache import CachedSequence, SequenceRows


@dataclass(eq=False)
class SequenceGroup:
    """One request's part of a pass: T new positions of each of N sequences."""

    cache: CachedSequence | SequenceRows
    mixtures: Sequence[WeightedTokens]  # N T, sequence by sequence
    length: int  # T
    last_only: bool  # whether only the logits after each sequence's last position are wanted
    top_k: TopKRequest | None = None  # and only some of those

    @property
    def sequences(self) -> list[CachedSequence]:
        """N, once the rows of a `SequenceRows` have slots."""
        return [self.cache] if isinstance(self.cache, CachedSequence) else self.cache.sequences


@dataclass(frozen=True, slots=True)
class PassShape:
    """All that must not change while a graph is replayed."""

    rows: int  # B
    length: int  # T
    new: int  # M
    mixed: int  # K
    wanted: int  # W
    first: int  # slot
    past: int  # L
    extra: int = 0  # X; 0 for whole logits
    k: int = 0  # R, likewise

    @property
    def dense(self) -> bool:
        """Whether each row has as many new positions."""
        return self.new == self.rows * self.length

    @property
    def dimensions(self) -> dict[str, tuple[int, ...]]:
        """Those of each tensor of integers; absent ones have none."""
        return {
            "ids": (self.new, self.mixed),
            "positions": (self.new,),
            "slots": (self.new,),
            "starts": (self.rows,),
            "to_padded": (0 if self.dense else self.rows * self.length,),
            "from_padded": (0 if self.dense else self.new,),
            "wanted": (self.wanted,),
            "extra_ids": (self.wanted, self.extra),
        }


class PaddedBatch:
    """The tensors of one shape, on the device and on the host."""

    def __init__(self, shape: PassShape, device: torch.device) -> None:
        self.shape, self.device = shape, device
        ints = self._on_host(torch.zeros(sum(map(prod, shape.dimensions.values())), dtype=torch.int64))
        floats = self._on_host(torch.ones(shape.new * shape.mixed + shape.wanted))
        # On a CPU both are the same memory, and copying it to itself does nothing.
        self.copies = [(ints, ints.to(device)), (floats, floats.to(device))]
        self.host = _views(shape, ints.numpy(), floats.numpy())
        views = _views(shape, *(target for _, target in self.copies))
        self.inputs = Inputs(**{name: view for name, view in views.items() if view.numel()})

    def _on_host(self, tensor: Tensor) -> Tensor:
        """Pinned, for a GPU to copy from by itself."""
        return tensor.pin_memory() if self.device.type == "cuda" else tensor

    def fill(self, groups: Sequence[SequenceGroup], padding_slot: int, vocabulary: int) -> list[int]:
        """Write all that a pass reads; how many positions' logits each group wants."""
        host = self.host
        for name, view in host.items():
            view.fill({"slots": padding_slot, "temperatures": 1}.get(name, 0))
        counts, new, wanted = [], 0, 0
        for group in groups:
            before = wanted
            for number, sequence in enumerate(group.sequences):
                assert sequence.slot is not None
                row = sequence.slot - self.shape.first
                start = row * self.shape.length if self.shape.dense else new
                self._fill_sequence(sequence, row, start, group.mixtures[number * group.length :][: group.length])
                new += group.length
                ends = range(start + group.length - 1 if group.last_only else start, start + group.length)
                host["wanted"][wanted : wanted + len(ends)] = ends
                if group.top_k:  # ids beyond the vocabulary are replaced: see `trim`
                    extra_ids = group.top_k.extra_ids[number]
                    host["extra_ids"][wanted, : len(extra_ids)] = np.minimum(extra_ids, vocabulary - 1)
                    host["temperatures"][wanted] = group.top_k.temperature
                wanted += len(ends)
            counts.append(wanted - before)
        for source, target in self.copies:
            target.copy_(source, non_blocking=True)
        return counts

    def _fill_sequence(
        self, sequence: CachedSequence, row: int, start: int, mixtures: Sequence[WeightedTokens]
    ) -> None:
        """Write the new positions of a sequence, the first of which is position `start` of the pass."""
        host, count, place = self.host, len(mixtures), row * self.shape.length
        new = slice(start, start + count)
        for m, (ids, gamma) in enumerate(mixtures, start):
            host["ids"][m, : len(ids)], host["weights"][m, : len(ids)] = ids, gamma
        host["positions"][new] = range(sequence.length, sequence.length + count)
        host["slots"][new] = sequence.slot
        host["starts"][row] = sequence.length
        if not self.shape.dense:
            host["to_padded"][place : place + count] = range(start, start + count)
            host["from_padded"][new] = range(place, place + count)

    def fetch(self, logits: Tensor) -> Floats:
        """Wait for a pass, and return its logits as an array of its own."""
        if self.device.type != "cuda":
            return np.array(logits.numpy())
        # A new tensor each time: copying a batch of vocabularies takes milliseconds, and freed ones are reused.
        fetched = torch.empty(logits.shape, dtype=logits.dtype, pin_memory=True)
        fetched.copy_(logits, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(torch.cuda.current_stream(self.device))
        done.synchronize()
        return np.asarray(fetched.numpy())

    def trim(self, rows: Floats, group: SequenceGroup, vocabulary: int) -> Floats:
        """What a group wanted of its rows of a pass, without padding; -inf for ids beyond the vocabulary."""
        if group.top_k is None:
            return rows
        k, extra_ids = group.top_k.k, np.stack(group.top_k.extra_ids)
        best, ids, extra, log_z = np.split(rows, np.cumsum([self.shape.k, self.shape.k, self.shape.extra]), axis=1)
        known = np.where(extra_ids < vocabulary, extra[:, : extra_ids.shape[1]], -np.inf)
        return np.concatenate([best[:, :k], ids[:, :k], known, log_z], axis=1)


def _views(shape: PassShape, ints: Any, floats: Any) -> dict[str, Any]:
    """The parts of two arrays or tensors by the names that `Inputs` gives them."""
    views, start = {}, 0
    for name, dimensions in shape.dimensions.items():
        end = start + prod(dimensions)
        views[name] = ints[start:end].reshape(dimensions)
        start = end
    ids = shape.new * shape.mixed
    return {**views, "weights": floats[:ids].reshape(shape.new, shape.mixed), "temperatures": floats[ids:, None]}
