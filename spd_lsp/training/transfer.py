"""A start for a run from a model of another tokenizer: model and tokenizers go in, the model to train comes out.

The layers stay as they are; only the embedding is made anew. A token whose bytes were one token before keeps its
row, every other gets the mean of the rows of the tokens that spelt it. It may be given more layers, which at first
change nothing.

Dimensions: V tokens, W tokens of the new tokenizer, D width.
"""

from __future__ import annotations

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

_OUTPUTS = ("self_attn.o_proj.weight", "mlp.down_proj.weight")  # what a layer adds comes out of these two alone


def spell_tokens(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """The old tokens that spell each new one, [W]; a special token is the one of its name."""
    known = old.get_vocab()
    names = sorted(new.get_vocab().items(), key=lambda item: item[1])
    return [
        [known[name]] if name in known else [token.id for token in old.model.tokenize(name)] for name, _ in names
    ]


def transfer_vocabulary(model: LlamaForCausalLM, old: Tokenizer, new: Tokenizer) -> LlamaForCausalLM:
    """The model with the new tokenizer's embedding, which is its output, too."""
    config = LlamaConfig.from_dict(model.config.to_dict() | {"vocab_size": new.get_vocab_size()})
    weights = model.state_dict()
    embedding = model.model.embed_tokens.weight.detach()  # [V, D]
    rows = torch.stack([embedding[ids].mean(dim=0) for ids in spell_tokens(old, new)])  # [W, D]
    return _filled(config, weights | dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), rows))


def add_layers(model: LlamaForCausalLM, layers: int) -> LlamaForCausalLM:
    """The same function with more layers: copies of some, evenly between, that add nothing until they learn to."""
    had = model.config.num_hidden_layers
    config = LlamaConfig.from_dict(model.config.to_dict() | {"num_hidden_layers": layers})
    sources = [place * had // layers for place in range(layers)]
    weights = model.state_dict()
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("model.layers.")}
    for place, source in enumerate(sources):
        copied = place > 0 and sources[place - 1] == source
        for name, tensor in model.model.layers[source].state_dict().items():
            kept[f"model.layers.{place}.{name}"] = (
                torch.zeros_like(tensor) if copied and name in _OUTPUTS else tensor
            )
    return _filled(config, kept)


def _filled(config: LlamaConfig, weights: dict[str, Tensor]) -> LlamaForCausalLM:
    """A model of this shape and these weights."""
    model = LlamaForCausalLM(config)
    model.load_state_dict(weights)
    return model
