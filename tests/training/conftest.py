"""A tiny tokenizer and a tiny model, so that every step of the recipe runs in a second."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from spd_lsp.training.gguf_model import PRE_TOKENIZER, write_gguf
from spd_lsp.training.recipe import MARKS
from spd_lsp.training.tokenizer import count_tokens, trim_tokenizer

BASE_TOKENS = 700
VOCABULARY = 320


@pytest.fixture(scope="session")
def sources() -> list[str]:
    """Some real code: of this project's own."""
    paths = sorted((Path(__file__).parents[2] / "ngram_builders").rglob("*.py"))[:40]
    return [text for path in paths if (text := path.read_text(encoding="utf-8"))]


def byte_level_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Tokens of these texts, which are cut as SmolLM2 cuts them; some bytes have none, as there."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = PRE_TOKENIZER
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


@pytest.fixture(scope="session")
def old(sources: list[str]) -> Tokenizer:
    """The tokenizer of a published model in small."""
    return byte_level_tokenizer(sources, BASE_TOKENS)


@pytest.fixture(scope="session")
def published(old: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That model's file."""
    path = tmp_path_factory.mktemp("published") / "published.gguf"
    write_gguf(random_llama(BASE_TOKENS), old, "published", path)
    return path


@pytest.fixture(scope="session")
def tokenizer(old: Tokenizer, sources: list[str]) -> Tokenizer:
    return trim_tokenizer(old, MARKS, count_tokens(old, sources), VOCABULARY)[0]
