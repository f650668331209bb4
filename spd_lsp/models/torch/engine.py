"""Any causal language model in transformers, on a CPU or a GPU; the steps of several requests are one pass.

Legend: N texts, T positions, L those of the longest text, M mixed tokens, D width, V vocabulary, H heads of
width C.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad
from transformers import DynamicCache

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from spd_lsp.models.base import Engine, ForwardInput

_ROOM = 256  # positions by which the shapes of a compiled step grow: a GPU records each of them once
_MIXED = 8  # tokens: likewise for how many are mixed
_ALIKE = 0.05  # of the range of logits: how far those of a compiled step may be from others in 16 bits

Mixture = tuple[Sequence[int], Any]  # ids and their weights
KeysValues = list[tuple[torch.Tensor, ...]]  # two of each layer [N, H, L, C]
Step = Callable[..., tuple[torch.Tensor, KeysValues]]  # `_step`, or compiled

log = logging.getLogger(__name__)


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
        self.compiled_step: Step | None = None
        super().__init__()

    def compile_steps(self, **options: Any) -> None:
        """Compile the step of a single text with these options of `torch.compile`.

        Raises, and changes nothing, if the model cannot be compiled or predicts something else then.
        """
        compiled = torch.compile(_step, fullgraph=True, **options)
        ids, weights = [0, 1], np.array([0.5, 0.5])
        for length in (2, _ROOM):  # of two shapes
            cache = self.new_cache()
            self.forward([0] * length, cache)
            expected = self.forward(ids, cache.fork(length), weights)
            for _ in range(3):  # a GPU compiles it, then records it, then replays it
                with torch.inference_mode():
                    logits = self._padded_step([cache.fork(length)], [(ids, weights)], compiled)
            found = logits[0].float().cpu().numpy()
            if not np.abs(found - expected).max() <= _ALIKE * np.ptp(expected):
                raise ArithmeticError("it predicts something else then")
        self.compiled_step = compiled

    def new_cache(self) -> TransformersCache:
        """As in `Engine`."""
        return TransformersCache()

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
        if not inputs or (not self.takes_positions and len(inputs) > 1):
            return [logits for each in inputs for logits in self._step_all([each])]
        caches: list[TransformersCache] = [each.cache for each in inputs]
        mixtures = [(each.ids, each.weights) for each in inputs]
        if len(inputs) > 1:
            logits = self._padded_step(caches, mixtures)
        elif self.compiled_step and caches[0].length:
            try:
                logits = self._padded_step(caches, mixtures, self.compiled_step)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # of many kinds
                log.warning("steps are not compiled any more: %s", type(error).__name__)
                self.compiled_step = None
                return self._step_all(inputs)
        else:
            embeds = superpose_embeddings(self.network, mixtures)
            logits = self._run(caches[0], inputs_embeds=embeds[:, None])[:, 0]
        return list(logits.float().cpu().numpy())

    def _run(self, cache: TransformersCache, **inputs: Any) -> torch.Tensor:
        """Read new positions in one pass and add them to their cache. [1, T, V]."""
        logits, cache.kv = _read(self.network, cache.padded(cache.length), **inputs)
        cache.length = cache.kv[0][0].shape[-2]
        return logits

    def _padded_step(
        self, caches: Sequence[TransformersCache], mixtures: Sequence[Mixture], compiled: Step | None = None
    ) -> torch.Tensor:
        """Read one more position of each text and add it to its cache; return the logits [N, V].

        Padding is on the left, so that the last positions of all texts are side by side: sliding windows look back
        from the end.
        """
        # 1. Join the keys and values of all texts; the shapes of a compiled step hardly ever change.
        lengths = [cache.length for cache in caches]
        longest = -(-(lengths[0] + 2) // _ROOM) * _ROOM - 1 if compiled else max(lengths)
        kv, *others = [cache.padded(longest) for cache in caches]
        if others:
            kv = [tuple(map(torch.cat, zip(*layer, strict=True))) for layer in zip(kv, *others, strict=True)]
        # 2. Read one position behind each.
        tokens, gamma = _as_tensors(mixtures, self.device)
        ends = torch.tensor(lengths, device=self.device)  # [N]
        if compiled:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        logits, kv = (compiled or _step)(self.network, tokens, gamma, kv, ends)
        # 3. Add it to the cache of its text. The next compiled step writes where this one has written.
        for row, cache in enumerate(caches):
            cache.length += 1
            kept = longest if compiled else cache.length
            cache.kv = [tuple(one[row : row + 1, :, -kept:].clone() for one in layer) for layer in kv]
        return logits


def _step(
    network: Any, tokens: torch.Tensor, gamma: torch.Tensor, kv: KeysValues, ends: torch.Tensor
) -> tuple[torch.Tensor, KeysValues]:
    """Read one position behind texts that end at `ends` [N], with padding on their left.

    tokens, gamma: what is mixed there [N, M]. Returns the logits [N, V], and all keys and values.
    """
    length = kv[0][0].shape[-2]
    places = torch.arange(length + 1, device=ends.device)  # [L + 1]
    logits, kv = _read(
        network,
        kv,
        inputs_embeds=_superpose(network, tokens, gamma)[:, None],
        attention_mask=(places >= length - ends[:, None]).long(),  # [N, L + 1]
        position_ids=ends[:, None],
    )
    return logits[:, -1], kv


def _read(network: Any, kv: KeysValues, **inputs: Any) -> tuple[torch.Tensor, KeysValues]:
    """Read positions behind those of `kv`; return the logits [N, T, V], and all keys and values."""
    cache = DynamicCache(kv or None)
    logits: torch.Tensor = network(**inputs, past_key_values=cache, use_cache=True).logits
    layers: list[Any] = cache.layers
    return logits, [(layer.keys, layer.values) for layer in layers]


def superpose_embeddings(network: Any, mixtures: Sequence[Mixture]) -> torch.Tensor:
    """Mix the embeddings of ids by their weights. [N, D].

    x~ = sum_i gamma_i z_i, z_i the input embedding as the model itself scales it.
    """
    return _superpose(network, *_as_tensors(mixtures, network.get_input_embeddings().weight.device))


def _superpose(network: Any, tokens: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    z = network.get_input_embeddings()(tokens)  # [N, M, D]
    mixed: torch.Tensor = (gamma.to(z.dtype)[:, None] @ z)[:, 0]
    return mixed


def _as_tensors(mixtures: Sequence[Mixture], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and weights, each [N, M], with zeros behind them."""
    longest = max(len(ids) for ids, _ in mixtures)
    tokens = torch.zeros(len(mixtures), -(-longest // _MIXED) * _MIXED, dtype=torch.int64)
    gamma = torch.zeros(tokens.shape)
    for row, (ids, weights) in enumerate(mixtures):
        tokens[row, : len(ids)] = torch.as_tensor(ids)
        gamma[row, : len(ids)] = torch.as_tensor(weights)
    return tokens.to(device), gamma.to(device)


class TransformersCache:
    """Keys and values of one text. Passes replace them and never change them: forks share them.

    All positions are kept; models with sliding windows mask those out of sight.
    """

    def __init__(self, kv: KeysValues | None = None, length: int = 0) -> None:
        self.kv = kv or []  # [1, H, L, C]: of `length` positions, behind padding
        self.length = length

    def crop(self, length: int) -> None:
        """As in `Cache`."""
        if dropped := max(0, self.length - length):
            self.kv = [tuple(one[:, :, :-dropped] for one in layer) for layer in self.kv if length]
            self.length = length

    def fork(self, length: int) -> TransformersCache:
        """As in `Cache`."""
        forked = TransformersCache(self.kv, self.length)
        forked.crop(length)
        return forked

    def padded(self, length: int) -> KeysValues:
        """Return keys and values [1, H, length, C], with as many zeros on the left as they lack."""
        missing = length - self.kv[0][0].shape[-2] if self.kv else 0  # of padding; below 0: there is too much
        return [tuple(pad(one, (0, 0, missing, 0)) for one in layer) for layer in self.kv] if missing else self.kv
