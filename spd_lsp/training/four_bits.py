"""GGML's Q4_0: what a weight becomes in the file, and already while the model learns.

A block is 32 weights, a float16 scale and four bits for each: weight = scale * (bits - 8). The scale makes the
largest weight -8. Better scales can be searched, but weights that have learnt with these ones need none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_BLOCK = 32
_ROWS = 1 << 14  # blocks at a time: they fit into the cache


# Dimensions: N blocks.
def quantise(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Return the rows of a matrix, whose length is a multiple of 32, as the bytes of their blocks."""
    blocks = torch.from_numpy(values).reshape(-1, _BLOCK)  # [N, 32]
    packed = [_pack(part) for part in torch.split(blocks, _ROWS)]
    return torch.cat(packed).numpy().reshape(len(values), -1)


def round_into(low: Tensor, values: Tensor) -> None:
    """Write what a matrix becomes in four bits into another one of its shape."""
    parts = (torch.split(matrix.view(-1, _BLOCK), _ROWS) for matrix in (low, values))
    for into, blocks in zip(*parts, strict=True):
        scale = _scales(blocks)
        into.copy_(_steps(blocks, scale).mul_(scale))


def _scales(blocks: Tensor) -> Tensor:
    """Return the scale [N, 1] of each block [N, 32], as it is stored."""
    extreme = blocks.gather(1, blocks.abs().argmax(dim=1, keepdim=True))  # [N, 1]
    return (extreme / -8).half().float()


def _steps(blocks: Tensor, scale: Tensor) -> Tensor:
    """Return the nearest multiples of the scale that four bits can say, -8 to 7."""
    return (blocks / torch.where(scale == 0, 1.0, scale)).round_().clamp_(-8, 7)


def _pack(blocks: Tensor) -> Tensor:
    """Return the bytes of blocks, [N, 18]: the scale, then the first half's bits below those of the second."""
    scale = _scales(blocks)
    bits = (_steps(blocks, scale) + 8).to(torch.uint8)  # [N, 32]
    return torch.cat((scale.half().view(torch.uint8), bits[:, :16] | bits[:, 16:] << 4), dim=1)
