"""Parameters with the names of a Llama, put together as the weights of a NumPy decoder.

Comes in: how to find a parameter by its name, and whom to tell where it lies now. Goes out: a `Decoder`. What
reads the same input is one matrix, so that a step makes fewer and longer products.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from spd_lsp.engine.linears import Dense
from spd_lsp.engine.numpy_decoder import Decoder, Layer, Shape

Floats = npt.NDArray[np.floating[Any]]
Find = Callable[[str], Floats | None]  # a parameter by its name
Keep = Callable[[str, Floats], None]  # a weight's name, and the view of the fused matrix that holds it now

# Parameters of a model and of each of its layers: those it must have and those it may have.
EMBEDDING, NORM, HEAD = "model.embed_tokens", "model.norm", "lm_head"
NEEDED_IN_LAYER = (
    *("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)
NORMS_OF_HEADS = ("self_attn.q_norm", "self_attn.k_norm")


class Unlike(Exception):
    """The model is not of the shape that the NumPy decoder computes; says in what."""


def compare_names(names: Set[str], layers: int) -> None:
    """Raise `Unlike` if there are too few or other parameters."""
    needed = {f"{EMBEDDING}.weight", f"{NORM}.weight"}
    allowed = {f"{HEAD}.weight"}  # not there where it is the embedding
    for place in (f"model.layers.{number}." for number in range(layers)):
        needed |= {f"{place}{name}.weight" for name in NEEDED_IN_LAYER}
        allowed |= {f"{place}{name}.bias" for name in NEEDED_IN_LAYER if name.endswith("_proj")}
        allowed |= {f"{place}{name}.weight" for name in NORMS_OF_HEADS}
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
        blocks = [self.layer(f"model.layers.{number}.") for number in range(layers)]
        return Decoder(shape, embedding, blocks, self.vector(NORM), head)

    def layer(self, place: str) -> Layer:
        """One block."""
        query_norm, key_norm = (self.found_vector(f"{place}{name}") for name in NORMS_OF_HEADS)
        return Layer(
            attention_norm=self.vector(f"{place}input_layernorm"),
            queries_keys_values=self.fuse(*(f"{place}self_attn.{name}_proj" for name in "qkv")),
            query_norm=query_norm,
            key_norm=key_norm,
            attention_out=self.fuse(f"{place}self_attn.o_proj"),
            mlp_norm=self.vector(f"{place}post_attention_layernorm"),
            gate_up=self.fuse(f"{place}mlp.gate_proj", f"{place}mlp.up_proj"),
            down=self.fuse(f"{place}mlp.down_proj"),
        )

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

    def found_vector(self, name: str) -> Floats | None:
        """Likewise, if it is there."""
        found = self.find(f"{name}.weight")
        return None if found is None else np.asarray(found, np.float32)

    def there(self, name: str) -> Floats:
        """A parameter that must be there."""
        found = self.find(name)
        if found is None:
            raise Unlike(f"it has no parameter {name}")
        return found
