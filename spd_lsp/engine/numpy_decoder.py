"""A decoder of the Llama shape in NumPy: Llama, Qwen2, Qwen3, Mistral, SmolLM and the starter on a CPU.

Comes in: embedded positions, and the memory of those before them. Goes out: what the model's head reads. NumPy
calls take about a microsecond where tensor libraries take ten, and small models are made of calls. Knows neither
prompts nor drafts, nor where the weights are from.

Legend: M new positions, D width, H query heads, G key heads, C width of a head, F inner width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spd_lsp.engine.keys_values import Memory
from spd_lsp.engine.linears import Linear

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one block."""

    attention_norm: Floats  # [D]
    queries_keys_values: Linear  # [M, D] -> [M, (H + 2 G) C]
    query_norm: Floats | None  # [C], as Qwen3 has it
    key_norm: Floats | None  # [C]
    attention_out: Linear  # [M, H C] -> [M, D]
    mlp_norm: Floats  # [D]
    gate_up: Linear  # [M, D] -> [M, 2 F]
    down: Linear  # [M, F] -> [M, D]

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Its matrix products."""
        return self.queries_keys_values, self.attention_out, self.gate_up, self.down


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


@dataclass(frozen=True, slots=True)
class Decoder:
    """The weights of a model and its shape."""

    shape: Shape
    embedding: Floats  # [V, D]
    layers: list[Layer]
    norm: Floats  # [D]
    head: Linear  # [M, D] -> [M, V]

    @property
    def size(self) -> int:
        """How many numbers a pass reads, an embedding that is also the head counted once."""
        return sum(linear.size for layer in self.layers for linear in layer.linears) + self.head.size

    def read(self, x: Floats, memory: Memory) -> Floats:
        """One pass over new positions [M, D], which `memory` keeps. -> [M, D], normalised for the head."""
        count, heads, width = len(x), self.shape.query_heads, self.shape.head_width
        turned, epsilon = heads + self.shape.key_heads, self.shape.epsilon
        cos, sin = rotation(self.shape, memory.reserve(count))  # [M, 1, 2, C / 2]
        for number, layer in enumerate(self.layers):
            mixed = layer.queries_keys_values(normalise(x, layer.attention_norm, epsilon))
            qkv = mixed.reshape(count, -1, width)  # [M, H + 2 G, C]
            if layer.query_norm is not None and layer.key_norm is not None:
                qkv[:, :heads] = normalise(qkv[:, :heads], layer.query_norm, epsilon)
                qkv[:, heads:turned] = normalise(qkv[:, heads:turned], layer.key_norm, epsilon)
            qk = rotate(qkv[:, :turned], cos, sin)
            qk[:, :heads] *= width**-0.5
            found = memory.attend(number, qk[:, :heads], qk[:, heads:], qkv[:, turned:])  # [M, H C]
            x = x + layer.attention_out(found)
            x += layer.down(gated(layer.gate_up(normalise(x, layer.mlp_norm, epsilon))))
        memory.advance(count)
        return normalise(x, self.norm, epsilon)


def rotation(shape: Shape, positions: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Cosines and signed sines of rotary embeddings, by halves of a head: [M, 1, 2, C / 2] twice."""
    angles = positions[:, None].astype(np.float32) * shape.frequencies  # [M, C / 2]
    cos, sin = np.cos(angles) * shape.rotation_scale, np.sin(angles) * shape.rotation_scale
    return np.stack([cos, cos], axis=1)[:, None], np.stack([-sin, sin], axis=1)[:, None]


def normalise(x: Floats, weight: Floats, epsilon: float) -> Floats:
    """Root mean square normalisation over the last axis."""
    mean_square = np.einsum("...d,...d->...", x, x) / x.shape[-1]
    normal: Floats = x * (1 / np.sqrt(mean_square + np.float32(epsilon)))[..., None]
    normal *= weight
    return normal


def rotate(x: Floats, cos: Floats, sin: Floats) -> Floats:
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
