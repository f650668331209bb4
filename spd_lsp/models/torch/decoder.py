"""A decoder in plain torch, for any device and precision: Llama, Qwen2, Qwen3, Mistral, SmolLM, StarCoder2.

Comes in: tensors of fixed shapes, all of which can be written to again before the next pass. Goes out: logits. A
pass asks nothing of the host: which texts it reads, and where in them, it finds in tensors, so that it can be
captured once and replayed. Knows neither prompts nor drafts, nor where the weights are from.

Legend: M new positions in all, K mixed tokens, D width, H query heads, G key heads, Q query heads a key head,
C width of a head, F inner width, V vocabulary; B rows attended to, T new positions of each at most, L positions a
row is looked at, W positions whose logits are wanted, R and A tokens whose logits are, likely and asked ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from spd_lsp.models.numpy.kv_cache import EVERYTHING


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
    """What a pass reads. New positions stand one after the other; those that fill a shape up are read into a row
    that nobody looks at."""

    ids: Tensor  # [M, K]
    weights: Tensor  # [M, K], in single precision
    positions: Tensor  # [M], of each new position in its text
    rows: Tensor  # [M], where its keys and values go
    starts: Tensor  # [B], the first new position of each row attended to
    spread: Tensor | None  # [B T], which new position each place of the rows is; None: they are the same, in order
    gathered: Tensor | None  # [M], and back
    wanted: Tensor  # [W], of the new positions
    asked: Tensor | None  # [W, A], of which tokens; None: of all
    temperatures: Tensor | None  # [W, 1]


class Past(NamedTuple):
    """Keys and values of earlier positions, [R, G, room, C] for each layer, and the part that is looked at."""

    keys: list[Tensor]
    values: list[Tensor]
    first: int  # the rows attended to are first ... first + B
    rows: int  # B
    length: int  # L

    def seen(self, held: Tensor) -> Tensor:
        """The part of keys or values that is looked at, in place: [R, G, room, C] -> [B, G, L, C]."""
        return held[self.first : self.first + self.rows, :, : self.length]


@dataclass(frozen=True)
class TorchDecoder:
    """The weights of a model and the sizes that do not show in them."""

    embedding: Tensor  # [V, D]
    layers: list[Layer]
    norm: Norm  # D
    head: Affine  # D -> V
    query_heads: int
    key_heads: int
    head_width: int
    frequencies: Tensor  # [C / 2], radians a position
    rotation_scale: float  # YaRN scales queries and keys
    max_positions: int
    windows: Sequence[int] = ()  # of each layer: how many positions one sees, itself included; (): all

    @property
    def size(self) -> int:
        """Bytes of weights that a pass reads, an embedding that is also the head counted once."""
        linears = [one for layer in self.layers for one in layer if isinstance(one, Affine)]
        return sum(one.weight.numel() * one.weight.element_size() for one in [*linears, self.head])

    def read(self, new: Inputs, past: Past, count: int = 0) -> Tensor:
        """One pass over new positions, whose keys and values join the past. -> logits [W, V].

        If tokens are asked for, only the R = `count` likeliest ones and those: see `_likeliest`.
        """
        heads, turned = self.query_heads, self.query_heads + self.key_heads
        x = self.superpose(new.ids, new.weights)  # [M, D]
        cos, sin = self.rotation(new.positions)
        windows = self.windows or [EVERYTHING] * len(self.layers)
        unseen = {window: hidden(new, past, window, heads // self.key_heads, x.dtype) for window in set(windows)}
        for layer, keys, values, window in zip(self.layers, past.keys, past.values, windows, strict=True):
            qkv = layer.queries_keys_values(layer.attention_norm(x))
            qkv = qkv.view(len(x), -1, self.head_width)  # [M, H + 2 G, C]
            qk = _rotate(self.normalise_heads(qkv[:, :turned], layer), cos, sin)
            keys[new.rows, :, new.positions] = qk[:, heads:]
            values[new.rows, :, new.positions] = qkv[:, turned:]
            found = attend(qk[:, :heads], past.seen(keys), past.seen(values), new, unseen[window])
            x = x + layer.attention_out(found)
            x = x + layer.down(layer.activate(layer.up(layer.mlp_norm(x))))
        logits = self.head(self.norm(x[new.wanted])).float()
        return logits if new.asked is None else _likeliest(logits, new, count)

    def superpose(self, ids: Tensor, weights: Tensor) -> Tensor:
        """x~ = sum_i gamma_i z_i in single precision: [M, K] twice -> [M, D]."""
        mixed = (F.embedding(ids, self.embedding) * weights[..., None]).sum(dim=1)
        return mixed.to(self.embedding.dtype)

    def normalise_heads(self, qk: Tensor, layer: Layer) -> Tensor:
        """Queries and keys [M, H + G, C] as the layer normalises them, if it does."""
        if layer.query_norm is None or layer.key_norm is None:
            return qk
        queries, keys = qk[:, : self.query_heads], qk[:, self.query_heads :]
        return torch.cat([layer.query_norm(queries), layer.key_norm(keys)], dim=1)

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of rotary embeddings, by halves of a head: [M, 1, 2, C / 2] twice."""
        angles = positions[:, None].float() * self.frequencies  # [M, C / 2]
        cos, sin = angles.cos() * self.rotation_scale, angles.sin() * self.rotation_scale
        both = torch.stack([cos, cos], dim=1)[:, None], torch.stack([-sin, sin], dim=1)[:, None]
        return both[0].to(self.embedding.dtype), both[1].to(self.embedding.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (first half, second half) of a head by its position's angle: [M, H, C] -> the same shape."""
    halves = x.view(*x.shape[:2], 2, -1)  # [M, H, 2, C / 2]
    return torch.addcmul(halves * cos, halves.flip(2), sin).flatten(2)


def gated(gate_up: Tensor) -> Tensor:
    """SiLU(gate) * up: [..., 2 F] -> [..., F]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def gelu(x: Tensor) -> Tensor:
    """By its approximation with tanh: [..., F] -> [..., F]."""
    return F.gelu(x, approximate="tanh")


def hidden(new: Inputs, past: Past, window: int, beside: int, dtype: torch.dtype) -> Tensor:
    """-inf where a new position would see a later one or one that its window has passed, else 0.

    Once for each of Q heads. [B, 1, T Q, L].
    """
    places = len(new.positions) if new.spread is None else len(new.spread)
    steps = torch.arange(places // past.rows, device=new.starts.device)  # [T]
    at = torch.arange(past.length, device=new.starts.device)  # [L]
    last = (new.starts[:, None] + steps)[..., None]  # [B, T, 1]
    unseen = at > last  # [B, T, L]
    if window < EVERYTHING:
        unseen = unseen | (at <= last - window)
    mask = torch.zeros(unseen.shape, dtype=dtype, device=unseen.device).masked_fill_(unseen, -torch.inf)
    return mask[:, None, :, None].expand(-1, -1, -1, beside, -1).flatten(2, 3)


def attend(queries: Tensor, keys: Tensor, values: Tensor, new: Inputs, hidden: Tensor) -> Tensor:
    """Attention of new positions [M, H, C], each over what its text holds up to itself [B, G, L, C]. -> [M, H C].

    The query heads that share keys stand beside each other as if they were positions: nothing is repeated. Scores
    are in single precision inside; in bfloat16, those of models with large biases would be off by whole units.
    """
    rows, groups, _, width = keys.shape
    q = queries if new.spread is None else queries[new.spread]  # [B T, H, C]
    q = q.reshape(rows, -1, groups, q.shape[1] // groups, width).transpose(1, 2)  # [B, G, T, Q, C]
    mixed = F.scaled_dot_product_attention(q.flatten(2, 3), keys, values, attn_mask=hidden)  # [B, G, T Q, C]
    found = (
        mixed.view(q.shape).transpose(1, 2).reshape(len(queries) if new.spread is None else len(new.spread), -1)
    )
    return found if new.gathered is None else found[new.gathered]


def _likeliest(logits: Tensor, new: Inputs, count: int) -> Tensor:
    """What is wanted of logits [W, V], side by side as numbers: [W, R + R + A + 1].

    The R largest, their ids, those of asked tokens, and the logarithm of the sum of exp(logit / tau).
    """
    assert new.asked is not None
    assert new.temperatures is not None
    best = logits.topk(count, dim=-1)
    log_z = (logits / new.temperatures).logsumexp(dim=-1, keepdim=True)
    return torch.cat([best.values, best.indices.float(), logits.gather(1, new.asked), log_z], dim=1)
