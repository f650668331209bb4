"""Any causal language model in transformers, on a CPU or a GPU; the steps of several requests are one pass.

Of the logits after a step, what is wanted is selected where they are: few numbers are copied to the host, once.

Legend: N rows of one text, R rows of all, T positions, L those of the longest text, M mixed tokens, D width,
V vocabulary, A tokens asked for.
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
from transformers.cache_utils import DynamicLayer

from ngram_builders.arrays import Floats, Ids
from ngram_builders.errors import UserError
from spd_lsp.models.base import Engine, ForwardInput, WeightedTokens
from spd_lsp.models.logits import Shortlist, Wanted

_ROOM = 256  # positions for which a cache gets memory at once
_SPARE = 16  # tokens beyond the likeliest, in case several are as likely as the last of these


class TransformersEngine(Engine):
    """A transformers model of any family."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.device = torch.device(network.device)
        self.chunk = 16 if self.device.type == "cpu" else 512
        self.selects = self.device.type != "mps"  # which shares its memory with the host
        config = network.config.get_text_config()
        self.max_positions = int(getattr(config, "max_position_embeddings", None) or 2048)
        self.vocabulary = network.get_input_embeddings().num_embeddings
        self.takes_positions = "position_ids" in inspect.signature(network.forward).parameters
        super().__init__()

    def new_cache(self) -> TransformersCache:
        """As in `Engine`."""
        return TransformersCache(_new_kv())

    @torch.inference_mode()
    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats | Shortlist]:
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
        kept = 1 if each.last_only else 0  # 0 keeps all
        return np.asarray(_on_host(self._run(each.cache, input_ids=ids, logits_to_keep=kept).float()))

    def _step_all(self, inputs: Sequence[ForwardInput]) -> list[Floats | Shortlist]:
        """Models whose positions are not given to them read one request's rows in each pass."""
        if not self.takes_positions and len(inputs) > 1:
            return [answer for each in inputs for answer in self._step_all([each])]
        if not inputs:
            return []
        embeds = superpose_embeddings(self.network, [mixture for each in inputs for mixture in each.mixtures])
        if len(inputs) == 1:
            logits = self._run(inputs[0].cache, inputs_embeds=embeds[:, None])[:, 0]
        else:
            logits = _padded_step(self.network, embeds, [each.cache.kv for each in inputs])
        parts = torch.split(logits, [len(each.mixtures) for each in inputs])
        return answers(parts, [each.wanted for each in inputs])

    def _run(self, cache: TransformersCache, **inputs: Any) -> torch.Tensor:
        """One pass over new positions, added to their cache. [N, T, V]."""
        logits: torch.Tensor = self.network(**inputs, past_key_values=cache.kv, use_cache=True).logits
        return logits


def superpose_embeddings(network: Any, mixtures: Sequence[WeightedTokens]) -> torch.Tensor:
    """x~ = sum_i gamma_i z_i of each mixture, z_i the input embedding as the model itself scales it. [R, D]."""
    embedding = network.get_input_embeddings()
    sent = np.zeros((2, len(mixtures), max(len(ids) for ids, _ in mixtures)), np.int32)  # [2, R, M]
    for row, (ids, weights) in enumerate(mixtures):
        sent[0, row, : len(ids)] = ids
        sent[1, row, : len(ids)] = np.asarray(weights, np.float32).view(np.int32)
    tokens, gamma = _on_device(sent, embedding.weight.device)
    z = embedding(tokens)  # [R, M, D]
    mixed: torch.Tensor = (gamma.view(torch.float32).to(z.dtype)[:, None] @ z)[:, 0]
    return mixed


def answers(parts: Sequence[torch.Tensor], wanted: Sequence[Wanted | None]) -> list[Floats | Shortlist]:
    """What is wanted of the logits of each request: a shortlist of [1, V], or all of [N, V]."""
    selected = [(part, what) for part, what in zip(parts, wanted, strict=True) if what]
    shortlists = iter(
        _select(torch.cat([part for part, _ in selected]), [what for _, what in selected]) if selected else ()
    )
    return [
        next(shortlists) if what else np.array(_on_host(part.float()))  # no request keeps what others got
        for part, what in zip(parts, wanted, strict=True)
    ]


def _select(logits: torch.Tensor, wanted: Sequence[Wanted]) -> list[Shortlist]:
    """The shortlist of each row of logits [R, V]; of equally likely tokens, those with the lowest ids."""
    logits = logits.float()
    size = logits.shape[1]
    most = min(size, max(one.n for one in wanted) + _SPARE)
    values, places = logits.topk(most)  # [R, most]
    # While that is computed, n-grams are looked up.
    asked = [ids[(ids >= 0) & (ids < size)] for ids in (one.asked() for one in wanted)]
    sent = np.zeros((len(wanted), 1 + max(map(len, asked))), np.int32)  # [R, 1 + A]
    sent[:, 0] = np.array([one.tau for one in wanted], np.float32).view(np.int32)
    for row, ids in zip(sent, asked, strict=True):
        row[1 : 1 + len(ids)] = ids
    received = _on_device(sent, logits.device)
    tau = received[:, :1].view(torch.float32)
    total = ((logits - values[:, :1]) / tau).exp().sum(dim=1, keepdim=True)
    numbers = torch.cat([total, values, logits.gather(1, received[:, 1:].long())], dim=1)
    found = _on_host(torch.cat([places.int(), numbers.view(torch.int32)], dim=1))  # [R, most + 1 + most + A]
    return [_shortlist(row, most, one.n, ids) for row, one, ids in zip(found, wanted, asked, strict=True)]


def _shortlist(row: Any, most: int, n: int, asked: Ids) -> Shortlist:
    """A shortlist of what was copied: `most` ids, the total, as many logits, and those of what was asked."""
    ids = row[:most].astype(np.int64)
    total, numbers = row[most:].view(np.float32)[0], row[most + 1 :].view(np.float32)
    likeliest = np.lexsort((ids, -numbers[:most]))[:n]
    logits = np.concatenate([numbers[likeliest], numbers[most : most + len(asked)]])
    return Shortlist(np.concatenate([ids[likeliest], asked]), logits, len(likeliest), float(total))


def _on_device(numbers: Any, device: torch.device) -> torch.Tensor:
    """An array on a device; the host waits for nothing that is computed there."""
    tensor = torch.from_numpy(numbers)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _on_host(tensor: torch.Tensor) -> Any:
    """A tensor as an array on the host, which waits for it: the one place where it does."""
    return tensor.cpu().numpy()


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
            self.kv = _new_kv()
        layers: list[Any] = self.kv.layers
        for layer in layers:
            surplus = layer.get_seq_length() - length
            if surplus > 0:
                layer.crop(-surplus)  # negative: so many positions less

    def fork(self, length: int) -> TransformersCache:
        """As in `Cache`. Nothing is copied until one of both goes on."""
        forked = TransformersCache(copy.copy(self.kv))
        layers: list[Any] = self.kv.layers
        for layer in layers:
            layer.owns_room = False
        forked.kv.layers = [copy.copy(layer) for layer in layers]
        forked.crop(length)
        return forked

    def select_rows(self, parents: Sequence[int]) -> TransformersCache:
        """As in `Cache`."""
        selected = self.fork(self.length)
        selected.kv.batch_select_indices(torch.tensor(list(parents)))
        return selected


def _new_kv() -> DynamicCache:
    kv = DynamicCache()
    kv.layer_class_to_replicate = _RoomyLayer
    return kv


class _RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values in memory with room behind them for new positions: the others stay where they are."""

    keys: Any
    values: Any
    room: Sequence[torch.Tensor] = ()  # of which keys and values are the beginning
    owns_room = False  # or else a fork may see what is written

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Add positions; all keys and values [N, H, T, C]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        added = key_states, value_states
        length = self.get_seq_length()
        end = length + key_states.shape[-2]
        if not self.owns_room or end > self.room[0].shape[-2]:
            before = (self.keys, self.values) if length else [new[:, :, :0] for new in added]
            self.room = [pad(kv, (0, 0, 0, end - length + _ROOM)) for kv in before]
            self.owns_room = True
        for room, new in zip(self.room, added, strict=True):
            room[:, :, length:end] = new
        self.keys, self.values = (room[:, :, :end] for room in self.room)
        return self.keys, self.values


def _padded_step(network: Any, embeds: torch.Tensor, texts: Sequence[DynamicCache]) -> torch.Tensor:
    """Read one more position in each row of all texts [R, D] and add it to their caches; the logits [R, V].

    Padding is on the left so that what a text sees stands where it stood: sliding windows look back from the end.
    """
    layers: list[Any] = [text.layers for text in texts]
    rows = [len(first.keys) for first, *_ in layers]
    lengths = [text.get_seq_length() for text in texts]
    longest = max(lengths)
    row_lengths = _on_device(np.repeat(lengths, rows), embeds.device)  # [R]
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
