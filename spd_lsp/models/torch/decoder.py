"""A decoder in plain torch, for any device and precision: Llama, Qwen2, Qwen3, Mistral, SmolLM, StarCoder2.

Tensors of fixed shapes come in, all of which can be overwritten before the next pass; logits go out. A pass needs
nothing from the host: which sequences it reads, and where in them, it finds in tensors, so that it can be captured
once and replayed. Knows neither prompts nor drafts, nor where the weights come from.

Legend: M new positions in all, K mixed tokens, D width, H query heads, G key heads, Q query heads for each of
them, C width of a head, F inner width, V vocabulary; B slots attended to, T new positions of each at most, L
positions of a slot that are attended to, W positions whose logits are wanted, R top tokens and X extra ones among
them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

NO_WINDOW = sys.maxsize  # longer than any text


class Affine(NamedTuple):
    """x W^T + b."""

    weight: Tensor  # [O, I]
    bias: Tensor | None  # [O]

    def __call__(self, x: Tensor) -> Tensor:
        """[..., I] -> [..., O]."""
        return F.linear(x, self.weight, self.bias)


class Norm(NamedTuple):
    """Normalisation over the last axis: by the root of the mean square or, with a bias, around the mean."""

    weight: Tensor  # [D]
    bias: Tensor | None  # [D]
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        if self.bias is None:
            return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """What the weights do not show."""

    query_heads: int  # H
    key_heads: int  # G
    head_width: int  # C
    epsilon: float  # of the norms
    rotation_scale: float  # YaRN scales queries and keys
    max_positions: int
    windows: Sequence[int] = ()  # of each layer: how many positions it sees, itself included; (): all

    def windows_of(self, layers: int) -> Sequence[int]:
        """The window of each layer."""
        return self.windows or [NO_WINDOW] * layers


class Layer(NamedTuple):
    """The weights of one block."""

    attention_norm: Norm  # D
    queries_keys_values: Affine  # D -> (H + 2 G) C
    query_norm: Norm | None  # C, as Qwen3 has it
    key_norm: Norm | None  # C
    attention_out: Affine  # H C -> D
    mlp_norm: Norm  # D
    up: Affine  # D -> F, or 2 F with a gate before it
    activate: Callable[[Tensor], Tensor]  # what `up` gives -> F
    down: Affine  # F -> D


class Inputs(NamedTuple):
    """What a pass reads. New positions stand one after the other; padding is written to a slot of its own."""

    ids: Tensor  # [M, K]
    weights: Tensor  # [M, K], in single precision
    positions: Tensor  # [M], of each new position in its sequence
    slots: Tensor  # [M], where its keys and values go
    starts: Tensor  # [B], the first new position of each slot attended to
    wanted: Tensor  # [W], of the new positions
    to_padded: Tensor | None = None  # [B T], the new position at each place of the padded batch; None: in order
    from_padded: Tensor | None = None  # [M], and back
    extra_ids: Tensor | None = None  # [W, X], whose logits are wanted; None: those of all tokens
    temperatures: Tensor | None = None  # [W, 1]


class PastKV(NamedTuple):
    """Keys and values of earlier positions, [S, G, capacity, C] for each layer, and what is attended to."""

    keys: list[Tensor]
    values: list[Tensor]
    first: int  # the slots attended to are first ... first + B
    rows: int  # B
    length: int  # L

    def visible(self, kv: Tensor) -> Tensor:
        """The attended part of keys or values, in place: [S, G, capacity, C] -> [B, G, L, C]."""
        return kv[self.first : self.first + self.rows, :, : self.length]


@dataclass(frozen=True)
class TorchDecoder:
    """The weights of a model and its configuration."""

    config: DecoderConfig
    embedding: Tensor  # [V, D]
    layers: list[Layer]
    norm: Norm  # D
    head: Affine  # D -> V
    frequencies: Tensor  # [C / 2], radians a position

    def read(self, new: Inputs, past: PastKV, k: int = 0) -> Tensor:
        """One pass over new positions, whose keys and values join the past. -> logits [W, V].

        If extra ids are given, only their logits and the R = `k` largest are returned: see `_select`.
        """
        heads, group = self.config.query_heads, self.config.query_heads // self.config.key_heads
        rotated = heads + self.config.key_heads
        x = self.superpose(new.ids, new.weights)  # [M, D]
        cos, sin = self.rotation(new.positions)
        windows = self.config.windows_of(len(self.layers))
        masks = {window: attention_mask(new, past, window, group, x.dtype) for window in set(windows)}
        for layer, keys, values, window in zip(self.layers, past.keys, past.values, windows, strict=True):
            qkv = layer.queries_keys_values(layer.attention_norm(x))
            qkv = qkv.view(len(x), -1, self.config.head_width)  # [M, H + 2 G, C]
            qk = _rotate(self.normalise_heads(qkv[:, :rotated], layer), cos, sin)
            keys[new.slots, :, new.positions] = qk[:, heads:]
            values[new.slots, :, new.positions] = qkv[:, rotated:]
            mixed = _attend(qk[:, :heads], past.visible(keys), past.visible(values), new, masks[window])
            x = x + layer.attention_out(mixed)
            x = x + layer.down(layer.activate(layer.up(layer.mlp_norm(x))))
        logits = self.head(self.norm(x[new.wanted])).float()
        return logits if new.extra_ids is None else _select(logits, new, k)

    def superpose(self, ids: Tensor, weights: Tensor) -> Tensor:
        """x~ = sum_i gamma_i z_i in single precision: [M, K] twice -> [M, D]."""
        mixed = (F.embedding(ids, self.embedding) * weights[..., None]).sum(dim=1)
        return mixed.to(self.embedding.dtype)

    def normalise_heads(self, qk: Tensor, layer: Layer) -> Tensor:
        """Queries and keys [M, H + G, C] as the layer normalises them, if it does."""
        if layer.query_norm is None or layer.key_norm is None:
            return qk
        queries, keys = qk[:, : self.config.query_heads], qk[:, self.config.query_heads :]
        return torch.cat([layer.query_norm(queries), layer.key_norm(keys)], dim=1)

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of rotary embeddings, by halves of a head: [M, 1, 2, C / 2] twice."""
        angles = positions[:, None].float() * self.frequencies  # [M, C / 2]
        cos, sin = angles.cos() * self.config.rotation_scale, angles.sin() * self.config.rotation_scale
        both = torch.stack([cos, cos], dim=1)[:, None], torch.stack([-sin, sin], dim=1)[:, None]
        return both[0].to(self.embedding.dtype), both[1].to(self.embedding.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (first half, second half) of a head by its position's angle: [M, H, C] -> [M, H, C]."""
    halves = x.view(*x.shape[:2], 2, -1)  # [M, H, 2, C / 2]
    return torch.addcmul(halves * cos, halves.flip(2), sin).flatten(2)


def gated_silu(gate_up: Tensor) -> Tensor:
    """SiLU(gate) * up: [..., 2 F] -> [..., F]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def gelu(x: Tensor) -> Tensor:
    """GELU in its approximation by tanh: [..., F] -> [..., F]."""
    return F.gelu(x, approximate="tanh")


def attention_mask(new: Inputs, past: PastKV, window: int, group: int, dtype: torch.dtype) -> Tensor:
    """-inf where a new position would see a later one or one beyond its window, else 0, for each of Q heads.

    [B, 1, T Q, L].
    """
    places = len(new.positions) if new.to_padded is None else len(new.to_padded)
    steps = torch.arange(places // past.rows, device=new.starts.device)  # [T]
    at = torch.arange(past.length, device=new.starts.device)  # [L]
    last = (new.starts[:, None] + steps)[..., None]  # [B, T, 1]
    hidden = at > last  # [B, T, L]
    if window < NO_WINDOW:
        hidden = hidden | (at <= last - window)
    mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)
    return mask[:, None, :, None].expand(-1, -1, -1, group, -1).flatten(2, 3)


def _attend(queries: Tensor, keys: Tensor, values: Tensor, new: Inputs, mask: Tensor) -> Tensor:
    """Attention of new positions [M, H, C], each over its sequence up to itself [B, G, L, C]. -> [M, H C].

    The query heads that share keys stand beside each other as if they were positions: nothing is repeated. Scores
    are in single precision inside; in bfloat16, those of models with large biases would be off by whole units.
    """
    rows, groups, _, width = keys.shape
    q = queries if new.to_padded is None else queries[new.to_padded]  # [B T, H, C]
    count = len(q)
    q = q.reshape(rows, -1, groups, q.shape[1] // groups, width).transpose(1, 2)  # [B, G, T, Q, C]
    mixed = F.scaled_dot_product_attention(q.flatten(2, 3), keys, values, attn_mask=mask)  # [B, G, T Q, C]
    flat = mixed.view(q.shape).transpose(1, 2).reshape(count, -1)  # [B T, H C]
    return flat if new.from_padded is None else flat[new.from_padded]


def _select(logits: Tensor, new: Inputs, k: int) -> Tensor:
    """The wanted part of logits [W, V], side by side as numbers: [W, R + R + X + 1].

    The R largest, their ids, those of extra ids, and the logarithm of the sum of exp(logit / tau).
    """
    assert new.extra_ids is not None
    assert new.temperatures is not None
    best = logits.topk(k, dim=-1)
    log_z = (logits / new.temperatures).logsumexp(dim=-1, keepdim=True)
    return torch.cat([best.values, best.indices.float(), logits.gather(1, new.extra_ids), log_z], dim=1)
