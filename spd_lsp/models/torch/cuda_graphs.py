"""Passes of fixed shapes: tensors that are filled before each, and on CUDA the graph that is replayed.

Comes in: numbers of the host. Goes out: arrays of the host. Knows nothing of texts.

A graph is captured the first time that a shape is asked for, and costs one launch from then on, where the device
would wait for the host several hundred times a pass. Nothing here has run on a GPU yet: without one, the same work
runs eagerly, and that is what tests have compared.

Legend: as in `torch_decoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ngram_builders.arrays import I64, Floats
from spd_lsp.models.torch.decoder import Inputs

Work = Callable[[], Tensor]
Capture = Callable[[Work], Work]  # work that only reads and writes fixed tensors -> the same, replayed

WARM_UPS = 3  # runs before a capture, in which libraries take what memory they want


@dataclass(frozen=True, slots=True)
class Shape:
    """All that may not change while a graph is replayed."""

    rows: int  # B
    each: int  # T
    new: int  # M
    mixed: int  # K
    wanted: int  # W
    first: int  # row
    length: int  # L
    asked: int = 0  # A, or 0 for whole logits
    count: int = 0  # R, likewise

    @property
    def dense(self) -> bool:
        """Whether each row has as many new positions."""
        return self.new == self.rows * self.each


class Frame:
    """The tensors of one shape, on the device and on the host."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self.shape = shape
        dense = shape.dense
        sizes = {
            "ids": shape.new * shape.mixed,
            "positions": shape.new,
            "rows": shape.new,
            "starts": shape.rows,
            "spread": 0 if dense else shape.rows * shape.each,
            "gathered": 0 if dense else shape.new,
            "wanted": shape.wanted,
            "asked": shape.wanted * shape.asked,
        }
        total, self.device = sum(sizes.values()), device
        self.host_ints = self.on_host(torch.zeros(total, dtype=torch.int64))
        self.host_floats = self.on_host(torch.ones(shape.new * shape.mixed + shape.wanted))
        # On a CPU the two are the same memory, and a copy to itself does nothing.
        self.ints, self.floats = self.host_ints.to(device), self.host_floats.to(device)
        ends = np.cumsum(list(sizes.values())).tolist()
        self.parts = {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}
        given = {name: self.ints[part] for name, part in self.parts.items()}
        self.inputs = Inputs(
            given["ids"].view(shape.new, shape.mixed),
            self.floats[: shape.new * shape.mixed].view(shape.new, shape.mixed),
            given["positions"],
            given["rows"],
            given["starts"],
            None if dense else given["spread"],
            None if dense else given["gathered"],
            given["wanted"],
            given["asked"].view(shape.wanted, shape.asked) if shape.asked else None,
            self.floats[shape.new * shape.mixed :, None] if shape.asked else None,
        )

    def on_host(self, tensor: Tensor) -> Tensor:
        """In memory that a GPU can copy from by itself."""
        return tensor.pin_memory() if self.device.type == "cuda" else tensor

    def fill(self, weights: Floats, temperatures: Sequence[float], **numbers: I64) -> None:
        """Write what a pass reads, all of it."""
        ints = self.host_ints.numpy()
        for name, part in self.parts.items():
            if part.start < part.stop:
                ints[part] = numbers[name].ravel()
        floats = self.host_floats.numpy()
        floats[: weights.size] = weights.ravel()
        floats[weights.size :][: len(temperatures)] = temperatures  # what fills the shape up may have any
        self.ints.copy_(self.host_ints, non_blocking=True)
        self.floats.copy_(self.host_floats, non_blocking=True)

    def fetch(self, logits: Tensor) -> Floats:
        """Wait for a pass, and give what it found as an array of its own."""
        if self.device.type != "cuda":
            return np.array(logits.numpy())
        # New each time, as copying a batch of vocabularies takes milliseconds; what is dropped is used again.
        found = torch.empty(logits.shape, dtype=logits.dtype, pin_memory=True)
        found.copy_(logits, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(torch.cuda.current_stream(self.device))
        done.synchronize()
        return np.asarray(found.numpy())


class CudaCapture:
    """Captures work as CUDA graphs, which share one pool of memory: they never run at the same time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """The work, done as one launch. What it returns is written again at each replay."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UPS):
                work()
        current.wait_stream(self.stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may free memory meanwhile, and copy texts as soon as this is over.
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            found = work()

        def replay() -> Tensor:
            graph.replay()
            return found

        return replay
