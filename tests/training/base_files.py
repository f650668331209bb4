"""A published model in small: a Llama with random weights and byte-level tokens, as a GGUF file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from spd_lsp.models.llama.pre_tokenizers import PATTERNS, pre_tokenizer
from spd_lsp.training.base_model import MARKS
from spd_lsp.training.export_gguf import write_gguf

BASE_TOKENS = 700


def byte_level_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Tokens of these texts, which are cut as SmolLM2 cuts them; some bytes have none, as there."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(PATTERNS["StarCoder"])
    tokenizer.decoder = decoders.ByteLevel()
    letters = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - {"À", "Á"})
    special = list(dict.fromkeys(MARKS.values()))
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=letters, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def random_llama(size: int, spread: float = 0.2, seed: int = 0) -> LlamaForCausalLM:
    """A model whose logits differ clearly, unless its weights' spread is the usual one: 0.02."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": 50_000.0},
        initializer_range=spread,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def write_published(texts: Iterable[str], path: Path) -> Tokenizer:
    """Write such a model, and return its tokenizer."""
    tokenizer = byte_level_tokenizer(texts, BASE_TOKENS)
    write_gguf(random_llama(BASE_TOKENS), tokenizer, "published", path)
    return tokenizer
