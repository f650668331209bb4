"""Any language model through transformers: slower than the engines of this project, and their reference.

Legend: N rows, T positions, M mixed tokens, D width, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Engine, ForwardInput
from spd_lsp.models.topk import WeightedTokens


class TransformersEngine(Engine):
    """A transformers model of any family."""

    def __init__(self, network: Any) -> None:
        self.network = network.eval()
        self.device = torch.device(network.device)
        config = network.config.get_text_config()
        self.max_positions = int(getattr(config, "max_position_embeddings", None) or 2048)
        super().__init__()

    def new_cache(self) -> TransformersCache:
        """As in `Engine`."""
        return TransformersCache(DynamicCache())

    def release(self) -> None:
        """As in `Engine`."""
        super().release()
        del self.network

    @torch.inference_mode()
    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """As in `Engine`, one pass after the other."""
        return [self._forward_ids(each) if each.ids else self._forward_mixtures(each) for each in inputs]

    def _forward_ids(self, each: ForwardInput) -> Floats:
        ids = torch.tensor([list(row) for row in each.ids], device=self.device)  # [N, T]
        return self._run(each.cache, input_ids=ids, logits_to_keep=1 if each.last_only else 0)  # 0 keeps all

    def _forward_mixtures(self, each: ForwardInput) -> Floats:
        embeds = torch.stack([self._superpose(mixture) for mixture in each.mixtures])  # [N, D]
        return np.asarray(self._run(each.cache, inputs_embeds=embeds[:, None])[:, 0])

    def _superpose(self, mixture: WeightedTokens) -> torch.Tensor:
        """x~ = sum_i gamma_i z_i, z_i the input embedding as the model itself scales it. [D]."""
        ids, weights = mixture
        embeds = self.network.get_input_embeddings()(torch.tensor(list(ids), device=self.device))  # [M, D]
        gamma = torch.as_tensor(np.asarray(weights), dtype=embeds.dtype, device=self.device)  # [M]
        return torch.as_tensor(gamma @ embeds)

    def _run(self, cache: TransformersCache, **inputs: Any) -> Floats:
        """One pass over new positions, added to their cache. [N, T, V]."""
        out = self.network(**inputs, past_key_values=cache.kv, use_cache=True)
        return np.asarray(out.logits.float().cpu().numpy())


class TransformersCache:
    """The cache of transformers, which can be cropped, forked and turned into several rows.

    Without a configuration it keeps all positions; models with sliding windows mask those out of sight.
    """

    def __init__(self, kv: DynamicCache) -> None:
        self.kv = kv

    def crop(self, length: int) -> None:
        """As in `Cache`, layer by layer: an interrupted pass has added to some of them only."""
        if length == 0:
            self.kv = DynamicCache()
        layers: list[Any] = self.kv.layers
        for layer in layers:
            surplus = layer.get_seq_length() - length
            if surplus > 0:
                layer.crop(-surplus)  # negative: so many positions less

    def fork(self, length: int) -> TransformersCache:
        """As in `Cache`. Layers replace their tensors and never write into them, so that nothing is copied."""
        forked = TransformersCache(copy.copy(self.kv))
        forked.kv.layers = [copy.copy(layer) for layer in self.kv.layers]
        forked.crop(length)
        return forked

    def select_rows(self, parents: Sequence[int]) -> TransformersCache:
        """As in `Cache`."""
        selected = self.fork(self.kv.get_seq_length())
        selected.kv.batch_select_indices(torch.tensor(list(parents)))
        return selected
