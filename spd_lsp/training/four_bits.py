"""GGML's Q4_0 with the scale of each block chosen for the least squared error.

A block is 32 weights, a float16 scale and four bits for each: weight = scale * (bits - 8).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_BLOCK = 32
_ROWS = 1 << 14  # blocks at a time: they fit into the cache
# Steps that the largest weight of a block may take; llama.cpp knows the first.
_EXTREMES = tuple(sign * steps for steps in (8, 7, 7.25, 7.5, 7.75, 8.25, 8.5, 9, 9.5) for sign in (-1, 1))


# Dimensions: N blocks.
def quantise(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Return the rows of a matrix, whose length is a multiple of 32, as the bytes of their blocks."""
    blocks = torch.from_numpy(values).reshape(-1, _BLOCK)  # [N, 32]
    packed = [_pack(part, _best_scales(part)) for part in torch.split(blocks, _ROWS)]
    return torch.cat(packed).numpy().reshape(len(values), -1)


def _best_scales(blocks: Tensor) -> Tensor:
    """Return the scale [N, 1] of each block [N, 32] with the least squared error."""
    extreme = blocks.gather(1, blocks.abs().argmax(dim=1, keepdim=True))  # [N, 1]
    best, least = torch.zeros_like(extreme), torch.full_like(extreme, torch.inf)
    for steps in _EXTREMES:
        scale = (extreme / steps).half().float()  # as it is stored
        error = (_steps(blocks, scale) * scale - blocks).square().sum(dim=1, keepdim=True)
        best, least = torch.where(error < least, scale, best), torch.minimum(error, least)
    return best


def _steps(blocks: Tensor, scale: Tensor) -> Tensor:
    """Return the nearest multiples of the scale that four bits can say, -8 to 7."""
    return (blocks / torch.where(scale == 0, 1.0, scale)).round().clamp(-8, 7)


def _pack(blocks: Tensor, scale: Tensor) -> Tensor:
    """Return the bytes of blocks, [N, 18]: the scale, then the first half's bits below those of the second."""
    bits = (_steps(blocks, scale) + 8).to(torch.uint8)  # [N, 32]
    return torch.cat((scale.half().view(torch.uint8), bits[:, :16] | bits[:, 16:] << 4), dim=1)
