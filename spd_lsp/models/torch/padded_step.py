"""One step of several texts, each at a position of its own: a pass over their caches, padded on the left.

Padding is on the left so that what a text sees stands where it stood: sliding windows look back from the end.

Legend: N rows of one text, R rows of all, L positions of the longest, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad
from transformers import DynamicCache


def padded_step(network: Any, embeds: torch.Tensor, texts: Sequence[DynamicCache]) -> torch.Tensor:
    """Read one more position in each row of all texts [R, D] and add it to their caches; the logits [R, V]."""
    layers: list[Any] = [text.layers for text in texts]
    rows = [len(first.keys) for first, *_ in layers]
    lengths = [text.get_seq_length() for text in texts]
    longest = max(lengths)
    row_lengths = torch.tensor(np.repeat(lengths, rows), device=embeds.device)  # [R]
    places = torch.arange(longest + 1, device=embeds.device)  # [L + 1]
    together = _join(layers, longest)
    out = network(
        inputs_embeds=embeds[:, None],
        attention_mask=(places >= longest - row_lengths[:, None]).long(),  # [R, L + 1]
        position_ids=row_lengths[:, None],
        past_key_values=together,
        use_cache=True,
    )
    _add_last_position(together, texts, rows)
    logits: torch.Tensor = out.logits[:, -1]
    return logits


def _join(layers: Sequence[Any], length: int) -> DynamicCache:
    """The rows of all texts as one cache of a length, with zeros before the shorter ones."""
    together = DynamicCache()
    for number, alike in enumerate(zip(*layers, strict=True)):
        keys = torch.cat([_padded(layer.keys, length) for layer in alike])
        values = torch.cat([_padded(layer.values, length) for layer in alike])
        together.update(keys, values, number)
    return together


def _padded(kv: torch.Tensor, length: int) -> torch.Tensor:
    """Keys or values [N, H, T, C] with zeros before them: [N, H, length, C]."""
    return pad(kv, (0, 0, length - kv.shape[-2], 0))


def _add_last_position(together: DynamicCache, texts: Sequence[DynamicCache], rows: Sequence[int]) -> None:
    """Give each text what the pass has added to its rows."""
    layers: list[Any] = together.layers
    for number, layer in enumerate(layers):
        keys, values = layer.keys[:, :, -1:].split(rows), layer.values[:, :, -1:].split(rows)
        for text, new_keys, new_values in zip(texts, keys, values, strict=True):
            text.update(new_keys, new_values, number)
