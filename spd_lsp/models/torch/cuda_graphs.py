"""CUDA graphs: a pass of a fixed shape is captured once and costs one launch from then on.

Without a graph, the device would wait for the host several hundred times a pass. Nothing here has run on a GPU
yet: without one, the same passes run eagerly, and that is what tests have compared.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Forward = Callable[[], Tensor]
Capture = Callable[[Forward], Forward]  # a pass that only reads and writes fixed tensors -> the same, replayed

WARM_UPS = 3  # runs before a capture, in which libraries allocate what they need


class CudaCapture:
    """Captures passes as CUDA graphs, which share one memory pool: they never run at the same time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, forward: Forward) -> Forward:
        """The pass as one launch. The tensor it returns is overwritten by each replay."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UPS):
                forward()
        current.wait_stream(self.stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may free memory meanwhile, and copy sequences as soon as this is over.
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            logits = forward()

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay
