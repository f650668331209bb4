"""A decoder in NumPy: Llama, Qwen2, Qwen3, Mistral, SmolLM, StarCoder2 and the starter on a CPU.

Ids or mixtures of ids come in; logits go out. NumPy calls take about a microsecond where tensor libraries take
ten, and small models are made of calls. Does not know where the weights come from. Model families differ in the
parts of a layer.

Legend: M new positions, D width, H query heads, G key heads, C width of a head, F inner width, V vocabulary;
I inputs and O outputs of a product; B inputs of a pass, each N rows of T positions (M = N T); K drafts.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from ngram_builders.arrays import F32, I8, I64, Floats
from spd_lsp.models.base import ChunkSizer, Engine, ForwardInput
from spd_lsp.models.numpy.kv_cache import (
    INITIAL_CAPACITY,
    NO_WINDOW,
    AttentionCache,
    JoinedCache,
    KVCache,
    MixtureCache,
)
from spd_lsp.models.numpy.model_kernel import (
    COARSE,
    FEWEST_OUTPUTS,
    SCRATCH,
    finest,
    load_kernel,
    multiply_in_numpy,
    weights_structure,
)

ArrayFunction = Callable[[Floats], Floats]

_MAX_SINGLE_ROWS = 2  # up to so many, reading the weights once for each beats packing them for a matrix product
_BLAS_TILE = 4  # rows that BLAS computes at once: three cost more than four
_SMALLEST_GAMMA = np.float32(1e-3)


class Embedding(Protocol):
    """The embedding of each token, however it is stored."""

    @property
    def dtype(self) -> Any:
        """Of the rows that are returned."""

    def __len__(self) -> int:
        """How many tokens there are."""

    def __getitem__(self, ids: Any, /) -> Any:
        """The embeddings of some ids. [M, D]."""


class Linear(Protocol):
    """x W + b, however W is stored."""

    size: int  # numbers in W

    def __call__(self, x: Floats) -> Floats:
        """[M, I] -> [M, O]."""


class Dense:
    """x W + b in the precision of the weights, which are [I, O] in any memory layout."""

    def __init__(self, weight: Floats, bias: Floats | None = None) -> None:
        self.weight = weight
        self.bias = bias
        self.size = weight.size

    def __call__(self, x: Floats) -> Floats:
        """[M, I] -> [M, O]."""
        if len(x) <= _MAX_SINGLE_ROWS:
            y: Floats = np.empty((len(x), self.weight.shape[1]), self.weight.dtype)
            for row, out in zip(x, y, strict=True):
                np.dot(row, self.weight, out=out)
        else:
            y = np.dot(_padded(x), self.weight)[: len(x)]
        if self.bias is not None:
            y += self.bias
        return y


class Int8:
    """x W + b with W in 8 bits, a scale for each output, and x quantized to 8 bits on the way.

    Needs no packing: the arrays may be those of a mapped file.
    """

    def __init__(self, values: I8, scales: F32, bias: F32 | None = None) -> None:
        self.values, self.scales, self.bias = values, scales, bias  # [O, I], [O], [O]
        self.size = values.size
        self.largest = COARSE  # value of a quantized row
        self.kernel = load_kernel() if len(values) >= FEWEST_OUTPUTS else None
        self.weights = weights_structure(values, scales, bias)
        self.address = ctypes.addressof(self.weights)

    def __call__(self, x: Floats) -> Floats:
        """[M, I] -> [M, O]."""
        if self.kernel is None:
            return multiply_in_numpy(x, self.values, self.scales, self.bias, self.largest)
        x = np.ascontiguousarray(x, np.float32)
        y = np.empty((len(x), len(self.values)), np.float32)
        scratch = np.empty(2 * x.size + SCRATCH * len(x), np.uint8)
        addresses = self.address, x.ctypes.data, len(x), self.largest, y.ctypes.data, scratch.ctypes.data
        self.kernel.library.multiply(self.kernel.instruction_set, *addresses)
        return y


class FineInt8(Int8):
    """The same with x in 15 bits, or as many as its length allows. For the head."""

    def __init__(self, values: I8, scales: F32, bias: F32 | None = None) -> None:
        super().__init__(values, scales, bias)
        self.largest = finest(values.shape[1])


def _padded(x: Floats) -> Floats:
    """The same rows, then zeros up to whole tiles: [M, I] -> [M or a little more, I]."""
    missing = -len(x) % _BLAS_TILE
    return np.concatenate([x, np.zeros((missing, x.shape[1]), x.dtype)]) if missing else x


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one block."""

    attention_norm: ArrayFunction  # [M, D] -> [M, D]
    queries_keys_values: Linear  # [M, D] -> [M, (H + 2 G) C]
    query_norm: ArrayFunction | None  # [M, H, C] -> [M, H, C], as Qwen3 has it
    key_norm: ArrayFunction | None  # [M, G, C] -> [M, G, C]
    attention_out: Linear  # [M, H C] -> [M, D]
    mlp_norm: ArrayFunction  # [M, D] -> [M, D]
    up: Linear  # [M, D] -> [M, F], or [M, 2 F] with a gate before it
    activate: ArrayFunction  # what `up` gives -> [M, F]
    down: Linear  # [M, F] -> [M, D]

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Its matrix products."""
        return self.queries_keys_values, self.attention_out, self.up, self.down


@dataclass(frozen=True, slots=True)
class DraftAdapter:
    """Tells drafts apart by their last two tokens, z_i and z_i', so that the last layer reads each draft.

    Beyond the paper, whose drafts share one next-token distribution. x is the mixture before the last layer:

        y_i = x + (1 - gamma_i) W_down(SiLU(W_gate u_i + v_gate log gamma_i) * (W_up u_i + v_up log gamma_i))
        u_i = [norm(x), norm(z_i), norm(z_i')]
    """

    gate_up: Linear  # W_gate and W_up: [K, 3 D] -> [K, 2 F]
    of_log_gamma: F32  # v_gate and v_up [2 F]
    down: Linear  # W_down: [K, F] -> [K, D]

    def __call__(self, x: Floats, last: Floats, before: Floats, gamma: Floats) -> Floats:
        """y of each draft: x [1, D], z and z' [K, D], gamma [K] -> [K, D]. Of a draft alone it is x."""
        u = np.concatenate([np.repeat(_normal(x), len(last), axis=0), _normal(last), _normal(before)], axis=1)
        weights = np.asarray(gamma, np.float32)[:, None]  # [K, 1]
        gate_up = self.gate_up(u) + np.log(np.maximum(weights, _SMALLEST_GAMMA)) * self.of_log_gamma
        return np.asarray(x + (1 - weights) * self.down(gated_silu(gate_up)))


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """What the weights do not show."""

    query_heads: int  # H
    key_heads: int  # G
    head_width: int  # C
    epsilon: float  # of the norms
    frequencies: Floats  # [C / 2], radians a position
    rotation_scale: float  # YaRN scales queries and keys
    max_positions: int
    windows: Sequence[int] = ()  # of each layer: how many positions it sees, itself included; (): all

    def windows_of(self, layers: int) -> Sequence[int]:
        """The window of each layer."""
        return self.windows or [NO_WINDOW] * layers


@dataclass(frozen=True, slots=True)
class Decoder:
    """The weights of a model and its configuration."""

    config: DecoderConfig
    embedding: Embedding  # [V, D]
    layers: list[Layer]
    norm: ArrayFunction  # [M, D] -> [M, D]
    head: Linear  # [M, D] -> [M, V]
    adapter: DraftAdapter | None = None

    @property
    def linears(self) -> list[Linear]:
        """Its matrix products."""
        of_adapter = [self.adapter.gate_up, self.adapter.down] if self.adapter else []
        return [*(linear for layer in self.layers for linear in layer.linears), self.head, *of_adapter]

    @property
    def size(self) -> int:
        """How many numbers a pass reads, an embedding that is also the head counted once."""
        return sum(linear.size for linear in self.linears)

    def read(self, x: Floats, cache: AttentionCache) -> Floats:
        """One pass over new positions [M, D], added to the cache. -> [M, D], normalised for the head."""
        position = _rotation(self.config, cache.reserve(len(x)))
        for number in range(len(self.layers)):
            x = self._read_layer(number, x, cache, position)
        cache.advance(len(x))
        return self.norm(x)

    def read_drafts(self, last: Floats, before: Floats, gamma: Floats, cache: MixtureCache) -> Floats:
        """One pass over the mixture of K drafts, added to the cache; its last layer reads each draft.

        last, before: embeddings of each draft's last token and of the one before it, [K, D] -> [K, D], normalised.
        """
        assert self.adapter is not None
        position, top = _rotation(self.config, cache.reserve(1)), len(self.layers) - 1
        x: Floats = np.asarray(gamma, np.float32)[None] @ last  # x~ = sum_i gamma_i z_i  [1, D]
        for number in range(top):
            x = self._read_layer(number, x, cache, position)
        x = self.adapter(x, last, before, gamma) if len(last) > 1 else x  # [K, D]
        x = self._read_layer(top, x, cache, position)
        cache.advance(1)
        return self.norm(x)

    def _read_layer(
        self, number: int, x: Floats, cache: AttentionCache, position: tuple[Floats, Floats]
    ) -> Floats:
        """One block: [M, D] -> [M, D]. position: cosines and sines, [M or 1, 1, 2, C / 2] twice."""
        layer, window = self.layers[number], self.config.windows_of(len(self.layers))[number]
        count, heads, width = len(x), self.config.query_heads, self.config.head_width
        rotated = heads + self.config.key_heads
        qkv = layer.queries_keys_values(layer.attention_norm(x)).reshape(count, -1, width)  # [M, H + 2 G, C]
        if layer.query_norm is not None and layer.key_norm is not None:
            qkv[:, :heads] = layer.query_norm(qkv[:, :heads])
            qkv[:, heads:rotated] = layer.key_norm(qkv[:, heads:rotated])
        qk = _rotate(qkv[:, :rotated], *position)
        qk[:, :heads] *= width**-0.5
        mixed = cache.attend(number, qk[:, :heads], qk[:, heads:], qkv[:, rotated:], window)  # [M, H C]
        x = x + layer.attention_out(mixed)
        x += layer.down(layer.activate(layer.up(layer.mlp_norm(x))))
        return x


_CHUNK, _CHUNK_SECONDS = 128, 1.0  # tokens, and processor time for them


class NumpyEngine(Engine):
    """A decoder with some cached prompts."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.max_positions = decoder.config.max_positions
        self.device = "cpu"
        self.tells_drafts_apart = decoder.adapter is not None
        super().__init__()
        # Of one size unless a whole second goes by: where a prompt is cut, 8-bit products are rounded otherwise.
        self.chunks, self.clock = ChunkSizer(_CHUNK_SECONDS, _CHUNK, _CHUNK), time.thread_time

    def new_cache(self) -> KVCache:
        """As in `Engine`."""
        config = self.decoder.config
        capacity = min(INITIAL_CAPACITY, config.max_positions)
        return KVCache(len(self.decoder.layers), config.key_heads, config.head_width, capacity)

    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """As in `Engine`, in one pass over the positions of all, but for drafts that are told apart."""
        alike = [each for each in inputs if not each.before]
        logits = iter(self._forward_alike(alike) if alike else [])
        return [self._forward_drafts(each) if each.before else next(logits) for each in inputs]

    def _forward_drafts(self, each: ForwardInput) -> Floats:
        """The logits after each draft of one mixture. [K, V]."""
        [(ids, gamma)] = each.mixtures
        tokens = np.asarray(self.decoder.embedding[[*ids, *each.before]], np.float32)  # [2 K, D]
        last, before = tokens[: len(ids)], tokens[len(ids) :]
        return self.decoder.head(self.decoder.read_drafts(last, before, gamma, each.cache))

    def _forward_alike(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """One pass over the positions of all."""
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
            return np.asarray(embedding[[token for row in each.ids for token in row]], np.float32)
        return np.stack(
            [
                np.asarray(weights, np.float32) @ np.asarray(embedding[list(ids)], np.float32)
                for ids, weights in each.mixtures
            ]
        )


def _split(rows: Floats, counts: Sequence[int]) -> list[Floats]:
    """Consecutive parts of so many rows each."""
    return [rows[end - count : end] for count, end in zip(counts, accumulate(counts), strict=True)]


def _rotation(config: DecoderConfig, positions: I64) -> tuple[Floats, Floats]:
    """Cosines and signed sines of rotary embeddings, by halves of a head: [M, 1, 2, C / 2] twice."""
    angles = positions[:, None].astype(np.float32) * config.frequencies  # [M, C / 2]
    cos, sin = np.cos(angles) * config.rotation_scale, np.sin(angles) * config.rotation_scale
    return np.stack([cos, cos], axis=1)[:, None], np.stack([-sin, sin], axis=1)[:, None]


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """Normalisation by the root of the mean square over the last axis."""

    weight: Floats  # [D]
    epsilon: float

    def __call__(self, x: Floats) -> Floats:
        """[..., D] -> [..., D]."""
        mean_square = np.einsum("...d,...d->...", x, x) / x.shape[-1]
        normal: Floats = x * (1 / np.sqrt(mean_square + np.float32(self.epsilon)))[..., None]
        normal *= self.weight
        return normal


_normal = RMSNorm(np.ones(1, np.float32), 1e-6)


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """The same around the mean, with a bias: the mean square of deviations from the mean is the variance."""

    scale: RMSNorm
    bias: Floats  # [D]

    def __call__(self, x: Floats) -> Floats:
        """[..., D] -> [..., D]."""
        normal = self.scale(x - np.add.reduce(x, axis=-1, keepdims=True) / np.float32(x.shape[-1]))
        normal += self.bias
        return normal


def _rotate(x: Floats, cos: Floats, sin: Floats) -> Floats:
    """Rotate each pair (first half, second half) of a head by its position's angle: [M, H, C] -> [M, H, C]."""
    halves = x.reshape(*x.shape[:2], 2, -1)  # [M, H, 2, C / 2]
    rotated: Floats = halves * cos
    rotated += halves[:, :, ::-1] * sin
    return rotated.reshape(x.shape)


def gated_silu(gate_up: Floats) -> Floats:
    """SiLU(gate) * up: [M, 2 F] -> [M, F]. By tanh, which does not overflow."""
    inner = gate_up.shape[1] // 2
    half = gate_up[:, :inner] * np.float32(0.5)
    y: Floats = np.tanh(half)
    y += 1
    y *= half
    y *= gate_up[:, inner:]
    return y


def gelu(x: Floats) -> Floats:
    """GELU in its approximation by tanh: [M, F] -> [M, F]."""
    y: Floats = x * x
    y *= np.float32(0.044715)
    y += 1
    y *= x
    y *= np.float32((2 / np.pi) ** 0.5)
    np.tanh(y, out=y)
    y += 1
    y *= x
    y *= np.float32(0.5)
    return y
