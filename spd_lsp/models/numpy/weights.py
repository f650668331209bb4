"""Parameters with the names of a Llama or StarCoder2, put together as the weights of a NumPy decoder.

Comes in: how to find a parameter by its name, and whom to tell where it lies now. Goes out: a `Decoder`. What
reads the same input is one matrix, so that a step makes fewer and longer products.
"""

from __future__ import annotations

from collections.abc import Callable, Set

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.models.numpy.decoder import Decoder, Layer, LayerNorm, Part, RootMeanSquare, Shape, gated, gelu
from spd_lsp.models.numpy.linear import Dense

Find = Callable[[str], Floats | None]  # a parameter by its name
Keep = Callable[[str, Floats], None]  # a weight's name, and the view of the fused matrix that holds it now

# Parameters of a model and of each of its layers: those it must have and those it may have.
EMBEDDING, NORM, HEAD = "model.embed_tokens", "model.norm", "lm_head"
_NEEDED_IN_LAYER = (
    *("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    "post_attention_layernorm",
)
GATED_MLP, PLAIN_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), ("mlp.c_fc", "mlp.c_proj")
_NORMS_OF_HEADS = ("self_attn.q_norm", "self_attn.k_norm")


class Unlike(Exception):
    """The model is not of the shape that the NumPy decoder computes; says in what."""


def compare_names(names: Set[str], layers: int) -> None:
    """Raise `Unlike` if there are too few or other parameters."""
    if layers > len(names):  # nothing is to be made for so many
        raise Unlike(f"it has {layers} layers and {len(names)} parameters")
    needed = {f"{EMBEDDING}.weight", f"{NORM}.weight"}
    allowed = {f"{HEAD}.weight", f"{NORM}.bias"}  # no head where it is the embedding
    for place in (f"model.layers.{number}." for number in range(layers)):
        mlp = PLAIN_MLP if f"{place}{PLAIN_MLP[0]}.weight" in names else GATED_MLP
        needed |= {f"{place}{name}.weight" for name in (*_NEEDED_IN_LAYER, *mlp)}
        allowed |= {f"{place}{name}.bias" for name in (*_NEEDED_IN_LAYER, *mlp)}
        allowed |= {f"{place}{name}.weight" for name in _NORMS_OF_HEADS}
    for name in sorted(needed - names or names - needed - allowed)[:1]:
        raise Unlike(f"it has {'no' if name in needed else 'a'} parameter {name}")


class Assembly:
    """Finds, fuses and tells."""

    def __init__(self, find: Find, keep: Keep) -> None:
        self.find = find
        self.keep = keep

    def decoder(self, layers: int, shape: Shape) -> Decoder:
        """All weights."""
        tied = self.find(f"{HEAD}.weight") is None
        head = self.fuse(EMBEDDING if tied else HEAD)
        embedding = head.weight.T if tied else self.vector(EMBEDDING)
        blocks = [self.layer(f"model.layers.{number}.", shape.epsilon) for number in range(layers)]
        return Decoder(shape, embedding, blocks, self.norm(NORM, shape.epsilon), head)

    def layer(self, place: str, epsilon: float) -> Layer:
        """One block."""
        query_norm, key_norm = (
            self.norm(f"{place}{name}", epsilon) if self.has(f"{place}{name}") else None
            for name in _NORMS_OF_HEADS
        )
        has_gate = self.has(f"{place}{GATED_MLP[0]}")
        *up, down = (f"{place}{name}" for name in (GATED_MLP if has_gate else PLAIN_MLP))
        return Layer(
            attention_norm=self.norm(f"{place}input_layernorm", epsilon),
            queries_keys_values=self.fuse(*(f"{place}self_attn.{name}_proj" for name in "qkv")),
            query_norm=query_norm,
            key_norm=key_norm,
            attention_out=self.fuse(f"{place}self_attn.o_proj"),
            mlp_norm=self.norm(f"{place}post_attention_layernorm", epsilon),
            up=self.fuse(*up),
            activate=gated if has_gate else gelu,
            down=self.fuse(down),
        )

    def norm(self, name: str, epsilon: float) -> Part:
        """A normalisation: one with a bias is around the mean."""
        scale, bias = RootMeanSquare(self.vector(name), epsilon), self.find(f"{name}.bias")
        return scale if bias is None else LayerNorm(scale, np.asarray(bias, np.float32))

    def fuse(self, *names: str) -> Dense:
        """Several linears that read the same input as one, [I, O]."""
        sizes = [self.there(f"{name}.weight").shape for name in names]
        weight: Floats = np.empty((sizes[0][1], sum(size[0] for size in sizes)), np.float32)
        start = 0
        for name, (outputs, _) in zip(names, sizes, strict=True):
            columns = weight[:, start : start + outputs]
            columns[:] = self.there(f"{name}.weight").T
            self.keep(f"{name}.weight", columns.T)
            start += outputs
        biases = [bias for name in names if (bias := self.find(f"{name}.bias")) is not None]
        if len(biases) not in (0, len(names)):
            raise Unlike("some of its linears have biases")
        return Dense(weight, np.concatenate(biases, dtype=np.float32) if biases else None)

    def vector(self, name: str) -> Floats:
        """A parameter as it is, in single precision."""
        return np.asarray(self.there(f"{name}.weight"), np.float32)

    def has(self, name: str) -> bool:
        """Whether there is such a part."""
        return self.find(f"{name}.weight") is not None

    def there(self, name: str) -> Floats:
        """A parameter that must be there."""
        found = self.find(name)
        if found is None:
            raise Unlike(f"it has no parameter {name}")
        return found
