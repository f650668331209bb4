"""Any causal language model in transformers, on a CPU or a GPU; the steps of several requests are one pass.

Legend: N texts, T positions, L those of the longest text, M mixed tokens, D width, V vocabulary.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import DynamicCache

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from spd_lsp.models.base import Engine, ForwardInput


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
        for ids in (each.ids for each in inputs):
            if not 0 <= min(ids) <= max(ids) < self.vocabulary:  # after such an id a GPU works no more
                raise IndexError(f"expected ids from 0 to {self.vocabulary - 1}, found {min(ids)} to {max(ids)}")
        lengths = [each.cache.length for each in inputs]
        try:
            stepped = iter(self._step_all([each for each in inputs if each.weights is not None]))
            return [self._read_ids(each) if each.weights is None else next(stepped) for each in inputs]
        except BaseException as error:  # a further attempt finds all caches as they were
            for each, length in zip(inputs, lengths, strict=True):
                each.cache.crop(length)
            if isinstance(error, torch.OutOfMemoryError):
                remedy = "end what else computes there, choose a smaller model, or use --device cpu"
                raise UserError(f"{self.device} has no memory left for this request; {remedy}") from error
            raise

    def _read_ids(self, each: ForwardInput) -> Floats:
        ids = torch.tensor([list(each.ids)], device=self.device)  # [1, T]
        kept = 1 if each.last_only else 0  # 0 keeps all
        logits: Floats = self._run(each.cache, input_ids=ids, logits_to_keep=kept)[0].float().cpu().numpy()
        return logits

    def _step_all(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """Read a mixture for each input; one by one if the model takes no positions."""
        if not self.takes_positions and len(inputs) > 1:
            return [logits for each in inputs for logits in self._step_all([each])]
        if not inputs:
            return []
        embeds = superpose_embeddings(self.network, [(each.ids, each.weights) for each in inputs])
        if len(inputs) == 1:
            logits = self._run(inputs[0].cache, inputs_embeds=embeds[:, None])[:, 0]
        else:
            logits = _padded_step(self.network, embeds, [each.cache.kv for each in inputs])
        return list(logits.float().cpu().numpy())

    def _run(self, cache: TransformersCache, **inputs: Any) -> torch.Tensor:
        """Read new positions in one pass and add them to their cache. [1, T, V]."""
        logits: torch.Tensor = self.network(**inputs, past_key_values=cache.kv, use_cache=True).logits
        return logits


def superpose_embeddings(network: Any, mixtures: Sequence[tuple[Sequence[int], Any]]) -> torch.Tensor:
    """Mix the embeddings of ids by their weights. [N, D].

    x~ = sum_i gamma_i z_i, z_i the input embedding as the model itself scales it.
    """
    embedding = network.get_input_embeddings()
    device = embedding.weight.device
    tokens = torch.zeros(len(mixtures), max(len(ids) for ids, _ in mixtures), dtype=torch.int64)  # [N, M]
    gamma = torch.zeros(tokens.shape)  # [N, M]
    for row, (ids, weights) in enumerate(mixtures):
        tokens[row, : len(ids)] = torch.as_tensor(ids)
        gamma[row, : len(ids)] = torch.as_tensor(weights)
    z = embedding(tokens.to(device))  # [N, M, D]
    mixed: torch.Tensor = (gamma.to(device, z.dtype)[:, None] @ z)[:, 0]
    return mixed


class TransformersCache:
    """The cache of transformers for one text, which can be cropped and forked.

    Without a configuration it keeps all positions; models with sliding windows mask those out of sight.
    """

    def __init__(self, kv: DynamicCache) -> None:
        self.kv = kv

    @property
    def length(self) -> int:
        """As in `Cache`."""
        return int(self.kv.get_seq_length())

    def crop(self, length: int) -> None:
        """As in `Cache`, layer by layer: a failed pass has added to some of them only."""
        if length == 0:
            self.kv = DynamicCache()
        layers: list[Any] = self.kv.layers
        for layer in layers:
            surplus = layer.get_seq_length() - length
            if surplus > 0:
                layer.crop(-surplus)  # negative: so many positions less

    def fork(self, length: int) -> TransformersCache:
        """As in `Cache`. Both share their tensors: adding a position makes new ones."""
        forked = TransformersCache(copy.copy(self.kv))
        forked.kv.layers = [copy.copy(layer) for layer in self.kv.layers]
        forked.crop(length)
        return forked


def _padded_step(network: Any, embeds: torch.Tensor, texts: Sequence[DynamicCache]) -> torch.Tensor:
    """Read one more position of each text [N, D] and add it to their caches; return the logits [N, V].

    Padding is on the left, so that the last positions of all texts are side by side: sliding windows look back
    from the end.
    """
    # 1. Join the caches of all texts, with zeros before the shorter ones.
    lengths = [text.get_seq_length() for text in texts]
    longest = max(lengths)
    layers: list[Any] = [text.layers for text in texts]
    together = DynamicCache()
    for number, alike in enumerate(zip(*layers, strict=True)):
        keys, values = (
            torch.cat([pad(one, (0, 0, longest - one.shape[-2], 0)) for one in each])  # [N, H, L, C]
            for each in ([layer.keys for layer in alike], [layer.values for layer in alike])
        )
        together.update(keys, values, number)
    # 2. Read one position behind each.
    ends = torch.tensor(lengths, device=embeds.device)  # [N]
    places = torch.arange(longest + 1, device=embeds.device)  # [L + 1]
    out = network(
        inputs_embeds=embeds[:, None],
        attention_mask=(places >= longest - ends[:, None]).long(),  # [N, L + 1]
        position_ids=ends[:, None],
        past_key_values=together,
        use_cache=True,
    )
    # 3. Add it to the cache of its text.
    joined: list[Any] = together.layers
    for number, layer in enumerate(joined):
        for row, text in enumerate(texts):
            text.update(layer.keys[row : row + 1, :, -1:], layer.values[row : row + 1, :, -1:], number)
    logits: torch.Tensor = out.logits[:, -1]
    return logits
