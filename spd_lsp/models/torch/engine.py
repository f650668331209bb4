"""The torch decoder as an engine: on CUDA a step is one launch, and the steps of several requests are one step.

Short reads and steps of all requests make one pass, at whatever position each of them is; long reads make a pass
each. Nothing is done on the device but in passes, which are made in one thread; requests may prepare theirs in
any.

Nothing here has run on a GPU yet: see `cuda_graphs.py`.

Legend: as in `decoder.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ngram_builders.arrays import Floats
from spd_lsp.models.base import MAX_CHUNK, ChunkSizer, Engine, ForwardInput
from spd_lsp.models.topk import TopKRequest
from spd_lsp.models.torch.cuda_graphs import Capture, Forward
from spd_lsp.models.torch.decoder import PastKV, TorchDecoder
from spd_lsp.models.torch.kv_cache import CachedSequence, SequenceRows, SlotPool
from spd_lsp.models.torch.padded_batch import PaddedBatch, PassShape, SequenceGroup

_MAX_SHORT_READ = 8  # tokens of a sequence that are read with others' steps: what is typed between two requests
MIN_MIXED = 16  # K of captured steps, more than the usual number of drafts; doubled where it is not enough
_MIN_EXTRA, _MIN_K = 256, 32  # X and R of captured steps, likewise
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128)  # B of captured steps
# Not cuDNN's, which prepares each new length for longer than it then takes.
_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_ONE = np.ones(1, np.float32)


class TorchEngine(Engine):
    """A decoder with some cached prompts."""

    def __init__(
        self,
        decoder: TorchDecoder,
        capture: Capture | None = None,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`capture` makes graphs of steps; if it fails, that is reported and steps run eagerly."""
        self.decoder = decoder
        self.read_recurring = decoder.read  # for shapes that recur; a compiled version may replace it
        self.device = decoder.embedding.device
        self.max_positions = decoder.config.max_positions
        self.vocabulary = len(decoder.embedding)
        self.capture, self.report = capture, report
        heads, width = decoder.config.key_heads, decoder.config.head_width
        self.pool = SlotPool(len(decoder.layers), heads, width, decoder.embedding.dtype, self.device)
        self.graphs: dict[PassShape, tuple[PaddedBatch, Forward]] = {}
        self.reallocations = 0  # of the pool, when the graphs were captured
        self.max_groups = 1 << 10  # in one pass; fewer once memory has run out
        super().__init__()
        if capture:  # a GPU: short reads are captured, and long ones take it no time
            self.chunks = ChunkSizer(first=MAX_CHUNK, least=MAX_CHUNK)

    def new_cache(self) -> CachedSequence:
        """As in `Engine`."""
        return CachedSequence(self.pool)

    def release(self) -> None:
        """As in `Engine`."""
        super().release()
        self.graphs.clear()
        del self.decoder, self.read_recurring, self.pool

    @torch.inference_mode()
    def warm_up(self, lengths: Sequence[int]) -> None:
        """Capture a step of one sequence of each of these lengths, while nobody is waiting."""
        self._grow_pool(1, padded_length(max(lengths)))
        top_k = TopKRequest(1, [np.zeros(1, np.int64)]) if self.selects_on_device else None
        for length in lengths:
            sequence = self.new_cache()
            self.pool.assign([sequence], contiguous=True)
            sequence.length = length - 1  # of whatever was in that slot
            self.forward_batch([ForwardInput(sequence, [((0,), _ONE)], top_k=top_k)])

    @torch.inference_mode()
    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """As in `Engine`. If anything fails, no cache has changed."""
        groups = [self._group(each) for each in inputs]
        logits: dict[int, Floats] = {}
        with self._on_device():
            for batch in _batches(groups):
                for group, rows in zip(batch, self._read_what_fits(batch), strict=True):
                    logits[id(group)] = rows
        for group in groups:
            for sequence in group.sequences:
                sequence.length += group.length
        # Logits of prompts are kept for long: not as a part of what others got from the same pass.
        return [
            np.array(logits[id(group)]).reshape(len(each.ids), -1, self.vocabulary)
            if each.ids
            else logits[id(group)]
            for group, each in zip(groups, inputs, strict=True)
        ]

    def _on_device(self) -> AbstractContextManager[object]:
        """Of several GPUs, use the one that has the weights."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    def _group(self, each: ForwardInput) -> SequenceGroup:
        """An input as mixtures. Invalid ids raise IndexError: a GPU would fail for good."""
        for ids in each.ids or [ids for ids, _ in each.mixtures]:
            if len(ids) and not 0 <= min(ids) <= max(ids) < self.vocabulary:
                raise IndexError(f"expected ids from 0 to {self.vocabulary - 1}, found {max(ids)}")
        if not each.ids:
            return SequenceGroup(each.cache, each.mixtures, 1, True, each.top_k)
        mixtures = [((token,), _ONE) for row in each.ids for token in row]
        return SequenceGroup(each.cache, mixtures, len(each.ids[0]), each.last_only)

    def _read_what_fits(self, groups: Sequence[SequenceGroup]) -> list[Floats]:
        """One pass, or several if memory does not suffice for so many rows, which is not tried again."""
        if len(groups) <= self.max_groups:
            try:
                return self.read_groups(groups)
            except torch.OutOfMemoryError:
                if len(groups) == 1:
                    raise
                self.max_groups = len(groups) // 2
                self.report(f"reads {self.max_groups} requests at once: there is no memory for more")
        size = self.max_groups  # which may shrink on the way
        parts = [groups[start : start + size] for start in range(0, len(groups), size)]
        return [logits for part in parts for logits in self._read_what_fits(part)]

    def read_groups(self, groups: Sequence[SequenceGroup]) -> list[Floats]:
        """One pass; the logits that each group wants, as rows: [W, V], or as `unpack_top_k` reads them."""
        with self.pool.lock:
            for group in groups:
                if isinstance(group.cache, SequenceRows):
                    group.cache.assign_slots()
                for sequence in group.sequences:
                    sequence.crop(sequence.length)  # what an interrupted pass has left
            recurs = self.capture is not None and _recurs(groups)
            shape = self._assign_slots(groups, recurs)
            batch, replay = self.graphs.get(shape) or (PaddedBatch(shape, self.device), None)
            counts = batch.fill(groups, self.pool.size, self.vocabulary)
            logits = (replay or self._forward(batch, recurs))()
        for group in groups:
            for sequence in group.sequences:
                sequence.stored = sequence.length + group.length
        parts = np.split(batch.fetch(logits)[: sum(counts)], np.cumsum(counts)[:-1])
        return [batch.trim(rows, group, self.vocabulary) for rows, group in zip(parts, groups, strict=True)]

    def _assign_slots(self, groups: Sequence[SequenceGroup], recurs: bool) -> PassShape:
        """Give all sequences slots; the shape of a pass over them, padded if it is to recur."""
        sequences = [sequence for group in groups for sequence in group.sequences]
        length = max(group.length for group in groups)
        mixed = max(len(ids) for group in groups for ids, _ in group.mixtures)
        past = padded_length(max(sequence.length for sequence in sequences) + length)
        rows = len(sequences)
        if recurs:
            rows = next((size for size in _BATCH_SIZES if size >= rows), -(-rows // 32) * 32)
        self._grow_pool(rows, past)
        contiguous = recurs or len(sequences) > 1
        self.pool.assign(sequences, contiguous)
        first = 0 if contiguous else sequences[0].slot or 0
        selection = _padded_selection(groups, self.vocabulary)
        if recurs and length == 1:
            return PassShape(rows, 1, rows, _next_double(mixed, MIN_MIXED), rows, first, past, *selection)
        if recurs:
            return PassShape(rows, _MAX_SHORT_READ, rows * _MAX_SHORT_READ, mixed, rows, first, past)
        new = sum(len(group.mixtures) for group in groups)
        wanted = sum(len(group.sequences) if group.last_only else len(group.mixtures) for group in groups)
        return PassShape(rows, length, new, mixed, wanted, first, past, *selection)

    def _grow_pool(self, slots: int, capacity: int) -> None:
        """Grow the pool if need be; graphs know its old address."""
        self.pool.grow(slots, capacity)
        if self.reallocations != self.pool.reallocations:
            self.graphs.clear()
            self.reallocations = self.pool.reallocations

    def _forward(self, batch: PaddedBatch, recurs: bool) -> Forward:
        """A pass that has no graph yet, captured if its shape is to recur."""
        keys, values = self.pool.kv
        shape = batch.shape
        read = self.read_recurring if recurs else self.decoder.read
        past = PastKV(list(keys), list(values), shape.first, shape.rows, shape.past)

        def forward() -> torch.Tensor:
            with sdpa_kernel(_ATTENTION):
                return read(batch.inputs, past, shape.k)

        if not recurs or self.capture is None:
            return forward
        try:
            replay = self.capture(forward)
        except RuntimeError as error:
            self.report(f"runs step by step: capturing one failed ({str(error).splitlines()[0]})")
            self.capture = None
            self.graphs.clear()
            return forward
        self.graphs[shape] = batch, replay
        return replay


def _batches(groups: Sequence[SequenceGroup]) -> list[list[SequenceGroup]]:
    """Which groups share a pass: short ones, by whether all logits are wanted; long ones are read alone."""
    long = [[group] for group in groups if group.length > _MAX_SHORT_READ]
    short = [group for group in groups if group.length <= _MAX_SHORT_READ]
    by_kind = ([group for group in short if (group.top_k is None) == whole] for whole in (True, False))
    return [*long, *(batch for batch in by_kind if batch)]


def _recurs(groups: Sequence[SequenceGroup]) -> bool:
    """Whether a pass is of a kind that comes again and again: steps, or what one person has typed."""
    [group, *others] = groups
    typed = not others and len(group.sequences) == 1 and group.last_only and group.length <= _MAX_SHORT_READ
    return typed or all(group.length == 1 for group in groups)


def padded_length(length: int) -> int:
    """L for sequences of some length, two sizes in each octave: 512, 1024, 1536, 2048, 3072, 4096 ..."""
    padded = 512
    while padded < length:
        padded += max(512, 1 << (padded.bit_length() - 2))
    return padded


def _next_double(count: int, least: int) -> int:
    """The first of `least`, twice as many, four times as many ... that is enough: shapes are to recur."""
    while least < count:
        least *= 2
    return least


def _padded_selection(groups: Sequence[SequenceGroup], vocabulary: int) -> tuple[int, int]:
    """X and R of a pass, enough for every group; 0 and 0 for whole logits."""
    requests = [group.top_k for group in groups if group.top_k]
    if not requests:
        return 0, 0
    extra = max(len(ids) for request in requests for ids in request.extra_ids)
    k = max(request.k for request in requests)
    return _next_double(extra, _MIN_EXTRA), min(_next_double(k, _MIN_K), vocabulary)
