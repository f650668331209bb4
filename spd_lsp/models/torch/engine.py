"""Any causal language model in transformers, on a CPU or a GPU; the steps of several requests are one pass.

Legend: N rows of one text, R rows of all, T positions, L those of the longest text, M mixed tokens, D width,
V vocabulary.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad
from transformers import DynamicCache

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from spd_lsp.models.base import Engine, ForwardInput, WeightedTokens


class TransformersEngine(Engine):
    """A transformers model of any family."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.device = torch.device(network.device)
        self.chunk = 16 if self.device.type == "cpu" else 512
        config = network.config.get_text_config()
        self.max_positions = int(getattr(config, "max_position_embeddings", None) or 2048)
        self.vocabulary = network.get_input_embeddings().num_embeddings
        self.takes_positions = "position_ids" in inspect.signature(network.forward).parameters
        super().__init__()

    def new_cache(self) -> TransformersCache:
        """As in `Engine`."""
        return TransformersCache(DynamicCache())

    @torch.inference_mode()
    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """As in `Engine`: the steps of all requests in one pass, and each prompt in one of its own."""
        for each in inputs:
            self._check_ids(each)
        lengths = [each.cache.length for each in inputs]
        try:
            stepped = iter(self._step_all([each for each in inputs if not each.ids]))
            return [self._forward_ids(each) if each.ids else next(stepped) for each in inputs]
        except BaseException as error:  # whoever asks again finds all caches as they were
            for each, length in zip(inputs, lengths, strict=True):
                each.cache.crop(length)
            if isinstance(error, torch.OutOfMemoryError):
                remedy = "end what else computes there, choose a smaller model, or use --device cpu"
                raise UserError(f"{self.device} has no memory left for this request; {remedy}") from error
            raise

    def _check_ids(self, each: ForwardInput) -> None:
        """Raise `IndexError` for ids that the model does not have: after those, a GPU works no more."""
        for ids in each.ids or [ids for ids, _ in each.mixtures]:
            if len(ids) and not 0 <= min(ids) <= max(ids) < self.vocabulary:
                raise IndexError(f"expected ids from 0 to {self.vocabulary - 1}, found {max(ids)}")

    def _forward_ids(self, each: ForwardInput) -> Floats:
        ids = torch.tensor([list(row) for row in each.ids], device=self.device)  # [N, T]
        return self._run(each.cache, input_ids=ids, logits_to_keep=1 if each.last_only else 0)  # 0 keeps all

    def _step_all(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """Models whose positions are not given to them read one request's rows in each pass."""
        if len(inputs) > 1 and self.takes_positions:
            return self._step_together(inputs)
        return [self._step(each) for each in inputs]

    def _step(self, each: ForwardInput) -> Floats:
        embeds = superpose_embeddings(self.network, each.mixtures)
        return np.asarray(self._run(each.cache, inputs_embeds=embeds[:, None])[:, 0])

    def _step_together(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """One step of the rows of several requests. [N, V] for each."""
        embeds = superpose_embeddings(self.network, [mixture for each in inputs for mixture in each.mixtures])
        logits = _as_floats(_padded_step(self.network, embeds, [each.cache.kv for each in inputs]))
        ends = np.cumsum([len(each.mixtures) for each in inputs])[:-1]
        return [np.array(rows) for rows in np.split(logits, ends)]  # no request keeps what others got

    def _run(self, cache: TransformersCache, **inputs: Any) -> Floats:
        """One pass over new positions, added to their cache. [N, T, V]."""
        return _as_floats(self.network(**inputs, past_key_values=cache.kv, use_cache=True).logits)


def superpose_embeddings(network: Any, mixtures: Sequence[WeightedTokens]) -> torch.Tensor:
    """x~ = sum_i gamma_i z_i of each mixture, z_i the input embedding as the model itself scales it. [N, D]."""
    embedding = network.get_input_embeddings()
    rows = []
    for ids, weights in mixtures:
        z = embedding(torch.tensor(list(ids), device=embedding.weight.device))  # [M, D]
        gamma = torch.as_tensor(np.asarray(weights), dtype=z.dtype, device=z.device)  # [M]
        rows.append(gamma @ z)
    return torch.stack(rows)


def _as_floats(logits: torch.Tensor) -> Floats:
    """Logits as an array on the host."""
    return np.asarray(logits.float().cpu().numpy())


class TransformersCache:
    """The cache of transformers, which can be cropped, forked and turned into several rows.

    Without a configuration it keeps all positions; models with sliding windows mask those out of sight.
    """

    def __init__(self, kv: DynamicCache) -> None:
        self.kv = kv

    @property
    def length(self) -> int:
        """As in `Cache`."""
        return int(self.kv.get_seq_length())

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
        selected = self.fork(self.length)
        selected.kv.batch_select_indices(torch.tensor(list(parents)))
        return selected


def _padded_step(network: Any, embeds: torch.Tensor, texts: Sequence[DynamicCache]) -> torch.Tensor:
    """Read one more position in each row of all texts [R, D] and add it to their caches; the logits [R, V].

    Padding is on the left so that what a text sees stands where it stood: sliding windows look back from the end.
    """
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
        keys = layer.keys[:, :, -1:].split(rows)
        values = layer.values[:, :, -1:].split(rows)
        for text, new_keys, new_values in zip(texts, keys, values, strict=True):
            text.update(new_keys, new_values, number)
