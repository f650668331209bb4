"""A GGUF file and a transformers model hold the same weights: llama.cpp computes what transformers does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from spd_lsp.models.llama.header import read_header
from spd_lsp.training.export_gguf import write_gguf
from spd_lsp.training.gguf_weights import read_model
from tests.training.base_files import BASE_TOKENS, byte_level_tokenizer, random_llama, write_published


@pytest.fixture(scope="module")
def published(sources: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("published") / "published.gguf"
    write_published(sources, path)
    return path


def test_llama_cpp_predicts_what_transformers_does(published: Path, sources: list[str]) -> None:
    """Its products have eight bits, so they agree roughly; with rows in another order they would not at all."""
    pytest.importorskip("xllamacpp")
    from spd_lsp.models.llama.context import LlamaContext, LlamaModel, Slot

    llama = LlamaModel(published)
    ids = llama.tokenize(sources[0][:300])
    context = LlamaContext(llama)
    sequence = context.new_sequence()
    found = context.read([Slot(token, place, sequence, True) for place, token in enumerate(ids)])
    with torch.inference_mode():
        wanted = read_model(published)(input_ids=torch.tensor([ids])).logits[0].numpy()
    assert found.shape == wanted.shape
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.99
    assert np.abs(found - wanted).mean() < 0.15 * wanted.std()


def test_llama_cpp_cuts_text_as_the_tokenizer_does(published: Path, sources: list[str]) -> None:
    pytest.importorskip("xllamacpp")
    from spd_lsp.models.llama.context import LlamaModel

    tokenizer = byte_level_tokenizer(sources, BASE_TOKENS)
    tokenizer.encode_special_tokens = True
    text = sources[1] + "x = 12345  # größer 日本\r\n\t<|endoftext|>\n\n   "
    assert LlamaModel(published).tokenize(text) == tokenizer.encode(text).ids


def test_a_model_that_is_read_and_written_again_is_the_same(
    published: Path, sources: list[str], tmp_path: Path
) -> None:
    first = read_model(published)
    write_gguf(first, byte_level_tokenizer(sources, BASE_TOKENS), "published", tmp_path / "again.gguf")
    for (name, parameter), again in zip(
        first.named_parameters(), read_model(tmp_path / "again.gguf").parameters(), strict=True
    ):
        torch.testing.assert_close(parameter, again, msg=name)


def test_matrices_have_four_bits_and_the_embedding_eight(published: Path) -> None:
    header = read_header(published)
    kinds = {name: tensor.kind for name, tensor in header.tensors.items()}
    assert (kinds["blk.1.attn_q.weight"], kinds["token_embd.weight"], kinds["output_norm.weight"]) == (2, 8, 0)


def test_quantised_weights_are_near_the_models(published: Path) -> None:
    model, stored = random_llama(BASE_TOKENS), read_model(published)
    for name, parameter in model.named_parameters():
        error = (parameter - stored.get_parameter(name)).abs().mean() / parameter.abs().mean()
        assert error < 0.1, name
