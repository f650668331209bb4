"""The start of a run from a published model: a GGUF file goes in, a folder with fewer tokens comes out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from spd_lsp.models.llama.context import LlamaModel
from spd_lsp.models.llama.header import read_header
from spd_lsp.models.llama.tokenizer import build_tokenizer
from spd_lsp.training.gguf_weights import read_model
from spd_lsp.training.tokenizer import END, FILE, PAD, PREFIX, SUFFIX, save_tokenizer
from spd_lsp.training.trimming import count_tokens, trim_tokenizer

# The special tokens, in the order of their ids, and those of SmolLM2 whose embeddings they take over.
MARKS = {
    END: "<|endoftext|>",
    SUFFIX: "<filename>",
    PREFIX: "<jupyter_code>",
    FILE: "<file_sep>",
    PAD: "<empty_output>",
}


def _open_base_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file, which cuts text as llama.cpp does."""
    return build_tokenizer(read_header(path), LlamaModel(path).tokenize, bos=None)


def write_base(path: Path, texts: Iterable[str], size: int, length: int, tokens: Path, start: Path) -> None:
    """Write a model with the `size` tokens that serve these texts best: tokenizer and weights, to two folders."""
    old = _open_base_tokenizer(path)
    trimmed, origins = trim_tokenizer(old, MARKS, count_tokens(old, texts), size)
    model = _keep_embeddings(read_model(path), old.get_vocab(), origins)
    model.config.max_position_embeddings = 2 * length  # it read longer texts before
    model.config.bos_token_id = model.config.eos_token_id = trimmed.token_to_id(END)
    model.config.pad_token_id = trimmed.token_to_id(PAD)
    save_tokenizer(trimmed, tokens, length)
    model.save_pretrained(start)


def _keep_embeddings(
    model: LlamaForCausalLM, ids: Mapping[str, int], origins: Sequence[str | None]
) -> LlamaForCausalLM:
    """Give the model the embeddings of these old tokens, in this order; None stands for the mean of all."""
    old = model.model.embed_tokens.weight.detach()  # [V, D]
    mean = old.mean(dim=0)
    rows = torch.stack([mean if name is None else old[ids[name]] for name in origins])  # [W, D]
    model.resize_token_embeddings(len(origins), mean_resizing=False)
    model.model.embed_tokens.weight.data.copy_(rows)
    return model
