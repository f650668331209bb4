"""A decoder in NumPy: Llama, Qwen2, Qwen3, Mistral, SmolLM, StarCoder2 and the starter on a CPU.

Comes in: embedded positions, and the memory of those before them. Goes out: what the model's head reads. NumPy
calls take about a microsecond where tensor libraries take ten, and small models are made of calls. Knows neither
prompts nor drafts, nor where the weights are from. Kinds differ in the parts that a layer is made of.

Legend: M new positions, D width, H query heads, G key heads, C width of a head, F inner width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import Floats
from spd_lsp.models.numpy.kv_cache import EVERYTHING, Memory
from spd_lsp.models.numpy.linear import Linear

Part = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one block."""

    attention_norm: Part  # [M, D] -> [M, D]
    queries_keys_values: Linear  # [M, D] -> [M, (H + 2 G) C]
    query_norm: Part | None  # [M, H, C] -> [M, H, C], as Qwen3 has it
    key_norm: Part | None  # [M, G, C] -> [M, G, C]
    attention_out: Linear  # [M, H C] -> [M, D]
    mlp_norm: Part  # [M, D] -> [M, D]
    up: Linear  # [M, D] -> [M, F], or [M, 2 F] with a gate before it
    activate: Part  # what `up` gives -> [M, F]
    down: Linear  # [M, F] -> [M, D]

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Its matrix products."""
        return self.queries_keys_values, self.attention_out, self.up, self.down


@dataclass(frozen=True, slots=True)
class Shape:
    """What does not show in the weights."""

    query_heads: int  # H
    key_heads: int  # G
    head_width: int  # C
    epsilon: float  # of the norms
    frequencies: Floats  # [C / 2], radians a position
    rotation_scale: float  # YaRN scales queries and keys
    max_positions: int
    windows: Sequence[int] = ()  # of each layer: how many positions one sees, itself included; (): all


@dataclass(frozen=True, slots=True)
class Decoder:
    """The weights of a model and its shape."""

    shape: Shape
    embedding: Floats  # [V, D]
    layers: list[Layer]
    norm: Part  # [M, D] -> [M, D]
    head: Linear  # [M, D] -> [M, V]

    @property
    def size(self) -> int:
        """How many numbers a pass reads, an embedding that is also the head counted once."""
        return sum(linear.size for layer in self.layers for linear in layer.linears) + self.head.size

    def read(self, x: Floats, memory: Memory) -> Floats:
        """One pass over new positions [M, D], which `memory` keeps. -> [M, D], normalised for the head."""
        count, heads, width = len(x), self.shape.query_heads, self.shape.head_width
        turned = heads + self.shape.key_heads
        windows = self.shape.windows or [EVERYTHING] * len(self.layers)
        cos, sin = rotation(self.shape, memory.reserve(count))  # [M, 1, 2, C / 2]
        for number, (layer, window) in enumerate(zip(self.layers, windows, strict=True)):
            mixed = layer.queries_keys_values(layer.attention_norm(x))
            qkv = mixed.reshape(count, -1, width)  # [M, H + 2 G, C]
            if layer.query_norm is not None and layer.key_norm is not None:
                qkv[:, :heads] = layer.query_norm(qkv[:, :heads])
                qkv[:, heads:turned] = layer.key_norm(qkv[:, heads:turned])
            qk = _rotate(qkv[:, :turned], cos, sin)
            qk[:, :heads] *= width**-0.5
            found = memory.attend(number, qk[:, :heads], qk[:, heads:], qkv[:, turned:], window)  # [M, H C]
            x = x + layer.attention_out(found)
            x += layer.down(layer.activate(layer.up(layer.mlp_norm(x))))
        memory.advance(count)
        return self.norm(x)


def rotation(shape: Shape, positions: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Cosines and signed sines of rotary embeddings, by halves of a head: [M, 1, 2, C / 2] twice."""
    angles = positions[:, None].astype(np.float32) * shape.frequencies  # [M, C / 2]
    cos, sin = np.cos(angles) * shape.rotation_scale, np.sin(angles) * shape.rotation_scale
    return np.stack([cos, cos], axis=1)[:, None], np.stack([-sin, sin], axis=1)[:, None]


@dataclass(frozen=True, slots=True)
class RootMeanSquare:
    """Normalisation by the root of the mean square over the last axis."""

    weight: Floats  # [D]
    epsilon: float

    def __call__(self, x: Floats) -> Floats:
        """[..., D] -> [..., D]."""
        mean_square = np.einsum("...d,...d->...", x, x) / x.shape[-1]
        normal: Floats = x * (1 / np.sqrt(mean_square + np.float32(self.epsilon)))[..., None]
        normal *= self.weight
        return normal


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """The same around the mean, with a bias: what deviates from the mean has the variance as its mean square."""

    scale: RootMeanSquare
    bias: Floats  # [D]

    def __call__(self, x: Floats) -> Floats:
        """[..., D] -> [..., D]."""
        found = self.scale(x - np.add.reduce(x, axis=-1, keepdims=True) / np.float32(x.shape[-1]))
        found += self.bias
        return found


def _rotate(x: Floats, cos: Floats, sin: Floats) -> Floats:
    """Turn each pair (first half, second half) of a head by its position's angle: [M, H, C] -> the same shape."""
    halves = x.reshape(*x.shape[:2], 2, -1)  # [M, H, 2, C / 2]
    turned: Floats = halves * cos
    turned += halves[:, :, ::-1] * sin
    return turned.reshape(x.shape)


def gated(gate_up: Floats) -> Floats:
    """SiLU(gate) * up: [M, 2 F] -> [M, F]. By tanh, which does not overflow."""
    inner = gate_up.shape[1] // 2
    half = gate_up[:, :inner] * np.float32(0.5)
    found: Floats = np.tanh(half)
    found += 1
    found *= half
    found *= gate_up[:, inner:]
    return found


def gelu(x: Floats) -> Floats:
    """x times the normal distribution's share below x, by its approximation with tanh: [M, F] -> [M, F]."""
    found: Floats = x * x
    found *= np.float32(0.044715)
    found += 1
    found *= x
    found *= np.float32((2 / np.pi) ** 0.5)
    np.tanh(found, out=found)
    found += 1
    found *= x
    found *= np.float32(0.5)
    return found
