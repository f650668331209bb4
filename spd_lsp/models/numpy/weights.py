"""Parameters named as in a Llama or StarCoder2, fused into the parts of a decoder.

Matrices that read the same input become one, so that a step makes fewer and longer products. What an engine makes
of the names is its own: see `Weights`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Set
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.models.numpy.decoder import (
    ArrayFunction,
    Decoder,
    DecoderConfig,
    Dense,
    Layer,
    LayerNorm,
    RMSNorm,
    gated_silu,
    gelu,
)

EMBEDDING, NORM, HEAD = "model.embed_tokens", "model.norm", "lm_head"
_LAYER = (
    *("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    "post_attention_layernorm",
)
_GATED_MLP, _PLAIN_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), ("mlp.c_fc", "mlp.c_proj")
_HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")


class UnsupportedModel(Exception):
    """Why the NumPy and torch decoders cannot compute a model."""


def check_names(names: Set[str], layers: int) -> None:
    """Raise `UnsupportedModel` unless the parameters are those of a decoder with so many layers."""
    if layers > len(names):  # before anything is allocated for so many
        raise UnsupportedModel(f"it has {layers} layers and {len(names)} parameters")
    required = {f"{EMBEDDING}.weight", f"{NORM}.weight"}
    optional = {f"{HEAD}.weight", f"{NORM}.bias"}  # no head where it is tied to the embedding
    for prefix in (f"model.layers.{number}." for number in range(layers)):
        mlp = _PLAIN_MLP if f"{prefix}{_PLAIN_MLP[0]}.weight" in names else _GATED_MLP
        required |= {f"{prefix}{name}.weight" for name in (*_LAYER, *mlp)}
        optional |= {f"{prefix}{name}.bias" for name in (*_LAYER, *mlp)}
        optional |= {f"{prefix}{name}.weight" for name in _HEAD_NORMS}
    for name in sorted(required - names or names - required - optional)[:1]:
        raise UnsupportedModel(f"it has {'no' if name in required else 'a'} parameter {name}")


class Weights(ABC):
    """A model's parameters, fused into an engine's parts."""

    def __init__(self, find: Callable[[str], Any], epsilon: float) -> None:
        """`find` returns a parameter by its name, or None; `epsilon` is that of the norms."""
        self.find = find
        self.epsilon = epsilon

    @abstractmethod
    def norm(self, name: str) -> Any:
        """A normalisation."""

    @abstractmethod
    def fuse(self, *names: str) -> Any:
        """Linears that read the same input, as one."""

    def get(self, name: str) -> Any:
        """A weight that must be there."""
        weight = self.find(f"{name}.weight")
        if weight is None:
            raise UnsupportedModel(f"it has no parameter {name}.weight")
        return weight

    def biases(self, names: tuple[str, ...]) -> list[Any]:
        """The biases of linears that are fused: one for each, or none."""
        biases = [bias for name in names if (bias := self.find(f"{name}.bias")) is not None]
        if len(biases) not in (0, len(names)):
            raise UnsupportedModel("some of its linears have biases")
        return biases

    def layer_parts(self, number: int, gated: Any, plain: Any) -> dict[str, Any]:
        """The parts of one block by the names that both `Layer` classes give them; the two are activations."""
        prefix = f"model.layers.{number}."
        head_norms = [
            None if self.find(f"{prefix}{name}.weight") is None else self.norm(prefix + name)
            for name in _HEAD_NORMS
        ]
        has_gate = self.find(f"{prefix}{_GATED_MLP[0]}.weight") is not None
        *up, down = (prefix + name for name in (_GATED_MLP if has_gate else _PLAIN_MLP))
        return {
            "attention_norm": self.norm(f"{prefix}input_layernorm"),
            "queries_keys_values": self.fuse(*(f"{prefix}self_attn.{name}_proj" for name in "qkv")),
            "query_norm": head_norms[0],
            "key_norm": head_norms[1],
            "attention_out": self.fuse(f"{prefix}self_attn.o_proj"),
            "mlp_norm": self.norm(f"{prefix}post_attention_layernorm"),
            "up": self.fuse(*up),
            "activate": gated if has_gate else plain,
            "down": self.fuse(down),
        }

    @property
    def head(self) -> str:
        """The name of the head, which may be the embedding."""
        return EMBEDDING if self.find(f"{HEAD}.weight") is None else HEAD


class NumpyWeights(Weights):
    """Parameters as arrays, stored in single precision."""

    def __init__(
        self,
        find: Callable[[str], Floats | None],
        epsilon: float,
        moved: Callable[[str, Floats], None] = lambda name, weight: None,
    ) -> None:
        """`moved` is given the name of a weight, and the view of a fused matrix that now holds it."""
        super().__init__(find, epsilon)
        self.moved = moved

    def norm(self, name: str) -> ArrayFunction:
        """As in `Weights`; one with a bias is around the mean."""
        scale, bias = RMSNorm(np.asarray(self.get(name), np.float32), self.epsilon), self.find(f"{name}.bias")
        return scale if bias is None else LayerNorm(scale, np.asarray(bias, np.float32))

    def fuse(self, *names: str) -> Dense:
        """As in `Weights`. The matrix is [I, O]."""
        weights = [self.get(name) for name in names]
        fused: Floats = np.empty((weights[0].shape[1], sum(map(len, weights))), np.float32)
        start = 0
        for name, weight in zip(names, weights, strict=True):
            columns = fused[:, start : start + len(weight)]
            columns[:] = weight.T
            self.moved(f"{name}.weight", columns.T)
            start += len(weight)
        biases = self.biases(names)
        return Dense(fused, np.concatenate(biases, dtype=np.float32) if biases else None)

    def decoder(self, layers: int, config: DecoderConfig) -> Decoder:
        """All parts."""
        head = self.fuse(self.head)
        tied = self.head == EMBEDDING
        embedding: Floats = head.weight.T if tied else np.asarray(self.get(EMBEDDING), np.float32)
        blocks = [Layer(**self.layer_parts(number, gated_silu, gelu)) for number in range(layers)]
        return Decoder(config, embedding, blocks, self.norm(NORM), head)
