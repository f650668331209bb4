"""What a run starts from is the published model with fewer tokens: those it keeps, it predicts as before."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from spd_lsp.training.base_model import MARKS, write_base
from spd_lsp.training.gguf_weights import read_model
from spd_lsp.training.tokenizer import SPECIAL, open_tokenizer
from tests.training.base_files import write_published


@pytest.mark.slow
def test_kept_tokens_have_the_logits_of_the_published_model(sources: list[str], tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    old = write_published(sources, tmp_path / "published.gguf")
    write_base(tmp_path / "published.gguf", sources, 600, 64, tmp_path / "tokenizer", tmp_path / "start")
    new = open_tokenizer(tmp_path / "tokenizer")
    assert [new.token_to_id(mark) for mark in SPECIAL] == [0, 1, 2, 3, 4]
    assert new.get_vocab_size() == 600

    before, after = read_model(tmp_path / "published.gguf"), LlamaForCausalLM.from_pretrained(tmp_path / "start")
    names = [name for name in new.get_vocab() if name in old.get_vocab() and name not in MARKS]
    assert len(names) > 590 - len(SPECIAL)
    text = new.encode(sources[0][:200]).tokens
    logits = []
    for model, tokenizer in ((before, old), (after, new)):
        ids = torch.tensor([[tokenizer.token_to_id(name) for name in text]])
        with torch.inference_mode():
            logits.append(model(input_ids=ids).logits[0][:, [tokenizer.token_to_id(name) for name in names]])
    torch.testing.assert_close(*logits)
