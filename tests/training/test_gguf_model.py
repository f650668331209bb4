"""A GGUF file and a transformers model hold the same weights: llama.cpp computes what transformers does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer

from spd_lsp.training.gguf_model import read_model, read_tokenizer, write_gguf
from spd_lsp.training.rounding import round_to_four_bits


def test_llama_cpp_opens_the_file_and_predicts_what_transformers_does(published: Path, sources: list[str]) -> None:
    """Its products have eight bits, so they agree roughly; with rows in another order they would not at all."""
    pytest.importorskip("xllamacpp")
    from spd_lsp.models.llama.engine import LlamaEngine
    from spd_lsp.models.llama.gguf_file import LlamaModel, LlamaVocabulary

    llama = LlamaModel(published)
    ids = LlamaVocabulary(published).encode(sources[0][:300])
    engine = LlamaEngine(llama, "cpu")
    found = engine.forward(ids, engine.new_cache())
    with torch.inference_mode():
        wanted = read_model(published)(input_ids=torch.tensor([ids])).logits[0].numpy()
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.99
    assert np.abs(found - wanted).mean() < 0.15 * wanted.std()


def test_llama_cpp_cuts_text_as_the_tokenizer_does(published: Path, old: Tokenizer, sources: list[str]) -> None:
    pytest.importorskip("xllamacpp")
    from spd_lsp.models.llama.gguf_file import LlamaVocabulary

    text = sources[1] + "x = 12345  # größer 日本\r\n\t\n\n   "
    read = read_tokenizer(published)
    assert LlamaVocabulary(published).encode(text) == read.encode(text).ids == old.encode(text).ids


def test_a_model_that_is_read_and_written_again_is_the_same(published: Path, tmp_path: Path) -> None:
    first = read_model(published)
    write_gguf(first, read_tokenizer(published), "published", tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == published.read_bytes()


Q4_0 = GGMLQuantizationType.Q4_0


def test_what_is_rounded_is_stored_as_it_is_and_as_near_as_ggmls_own() -> None:
    weights = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    rounded = round_to_four_bits(torch.from_numpy(weights)).numpy()
    assert np.array_equal(dequantize(quantize(rounded, Q4_0), Q4_0), rounded)
    theirs = dequantize(quantize(weights, Q4_0), Q4_0)
    assert ((rounded - weights) ** 2).mean() == pytest.approx(((theirs - weights) ** 2).mean(), rel=0.02)
    assert not round_to_four_bits(torch.zeros(2, 32)).any()
