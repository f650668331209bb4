"""The NumPy decoder as an engine: ids and mixtures in, logits out.

Legend: B inputs, N rows and T positions of one of them, M = N T of its positions; D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Engine, ForwardInput
from spd_lsp.models.numpy.decoder import Decoder
from spd_lsp.models.numpy.kv_cache import INITIAL_CAPACITY, JoinedCache, KVCache


class NumpyEngine(Engine):
    """A decoder with some cached prompts."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.max_positions = decoder.config.max_positions
        self.device = "cpu"
        super().__init__()

    def new_cache(self) -> KVCache:
        """As in `Engine`."""
        config = self.decoder.config
        capacity = min(INITIAL_CAPACITY, config.max_positions)
        return KVCache(len(self.decoder.layers), config.key_heads, config.head_width, capacity)

    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """As in `Engine`, in one pass over the positions of all."""
        embeds = [self._embed(each) for each in inputs]  # B times [M, D]
        counts = [len(x) for x in embeds]
        cache = inputs[0].cache if len(inputs) == 1 else JoinedCache([each.cache for each in inputs], counts)
        hidden = _split(self.decoder.read(np.concatenate(embeds), cache), counts)
        wanted = [
            x.reshape(len(each.ids), -1, x.shape[1])[:, -1] if each.last_only else x
            for x, each in zip(hidden, inputs, strict=True)
        ]
        logits = _split(self.decoder.head(np.concatenate(wanted)), [len(x) for x in wanted])
        return [
            x.reshape(len(each.ids), -1, x.shape[1]) if each.ids else x
            for x, each in zip(logits, inputs, strict=True)
        ]

    def _embed(self, each: ForwardInput) -> Floats:
        """The embeddings of an input's ids, or x~ = sum_i gamma_i z_i for each of its mixtures. [M, D]."""
        embedding = self.decoder.embedding
        if each.ids:
            return np.asarray(embedding[[token for row in each.ids for token in row]])
        return np.stack(
            [np.asarray(weights, embedding.dtype) @ embedding[list(ids)] for ids, weights in each.mixtures]
        )


def _split(rows: Floats, counts: Sequence[int]) -> list[Floats]:
    """Consecutive parts of so many rows each."""
    return [rows[end - count : end] for count, end in zip(counts, accumulate(counts), strict=True)]
