"""Any language model through transformers: slower than an engine of its own, and what those are measured by.

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
from spd_lsp.models.base import Runner
from spd_lsp.models.topk import Mixture


class CausalModel(Runner):
    """A transformers model of any family."""

    def __init__(self, network: Any) -> None:
        self.network = network.eval()
        self.embed = network.get_input_embeddings()
        self.device = torch.device(network.device)
        config = network.config.get_text_config()
        self.max_positions = int(getattr(config, "max_position_embeddings", None) or 2048)
        super().__init__()

    def empty(self) -> TensorCache:
        """As in `Runner`."""
        return TensorCache(DynamicCache())

    @torch.inference_mode()
    def superpose(self, rows: Sequence[Mixture]) -> torch.Tensor:
        """As in `Runner`."""
        mixed = []
        for ids, weights in rows:
            embedded = self.embed(torch.tensor(list(ids), device=self.device))  # [M, D]
            gamma = torch.as_tensor(np.asarray(weights), dtype=embedded.dtype, device=self.device)  # [M]
            mixed.append(gamma @ embedded)
        return torch.stack(mixed)

    def forward(self, embedded: torch.Tensor, cache: TensorCache) -> Floats:
        """As in `Runner`."""
        found: Floats = self.run(cache, inputs_embeds=embedded[:, None])[:, 0]
        return found

    def read(self, ids: Sequence[Sequence[int]], cache: TensorCache, *, last: bool = False) -> Floats:
        """As in `Runner`."""
        inputs = torch.tensor([list(row) for row in ids], device=self.device)  # [N, T]
        return self.run(cache, input_ids=inputs, logits_to_keep=1 if last else 0)  # 0 keeps all

    @torch.inference_mode()
    def run(self, cache: TensorCache, **inputs: Any) -> Floats:
        """One pass over new positions, added to their cache."""
        out = self.network(**inputs, past_key_values=cache.held, use_cache=True)
        logits: Floats = out.logits.float().cpu().numpy()
        return logits


class TensorCache:
    """The cache of transformers, which can go back, be copied and become several rows.

    Without a configuration it keeps all positions; models with sliding windows mask what they must not see.
    """

    def __init__(self, held: DynamicCache) -> None:
        self.held = held

    def crop(self, length: int) -> None:
        """As in `Cache`, layer by layer: a pass that broke off has added to some of them only."""
        if length == 0:
            self.held = DynamicCache()
        layers: list[Any] = self.held.layers
        for layer in layers:
            surplus = layer.get_seq_length() - length
            if surplus > 0:
                layer.crop(-surplus)  # negative: so many positions less

    def fork(self, length: int) -> TensorCache:
        """As in `Cache`. Layers replace their tensors and never write into them, so that nothing is copied."""
        forked = TensorCache(copy.copy(self.held))
        forked.held.layers = [copy.copy(layer) for layer in self.held.layers]
        forked.crop(length)
        return forked

    def rows(self, parents: Sequence[int]) -> TensorCache:
        """As in `Cache`."""
        chosen = self.fork(self.held.get_seq_length())
        chosen.held.batch_select_indices(torch.tensor(list(parents)))
        return chosen
