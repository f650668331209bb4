"""The steps run in order at tiny size, and a missing input is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from ngram_builders.errors import UserError
from spd_lsp.training.__main__ import main
from spd_lsp.training.corpus.gather import CORPUS_LANGUAGES
from spd_lsp.training.gguf_model import read_model
from spd_lsp.training.recipe import make_base, make_rows, make_starter, make_weights
from spd_lsp.training.tokenizer import SPECIAL, open_tokenizer
from spd_lsp.training.train import TrainingPlan


@pytest.mark.slow
def test_the_steps_lead_from_a_published_model_to_the_bundled_one(
    sources: list[str], published: Path, old: Tokenizer, tmp_path: Path
) -> None:
    # 1. A corpus, as the first step leaves it.
    for number, text in enumerate(sources):
        path = tmp_path / "corpus" / CORPUS_LANGUAGES[number % 2] / f"package{number % 3}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text[:3000])
    source = {"name": "kept", "language": "python", "version": "1.0", "licence": "MIT"}
    manifest = [source | {"archive": "kept.whl", "sha256": "ab", "files": 3, "bytes": 1_500_000, "skipped": ""}]
    (tmp_path / "corpus" / "sources.json").write_text(json.dumps(manifest))

    # 2. A base whose tokens are predicted as before.
    make_base(tmp_path, published, size=600, length=300)
    new = open_tokenizer(tmp_path / "tokenizer.json")
    assert [new.token_to_id(mark) for mark in SPECIAL] == [0, 1, 2, 3, 4]
    names = [name for name in new.get_vocab() if name in old.get_vocab() and name not in SPECIAL]
    text = new.encode(sources[0][:200]).tokens
    logits = []
    for model, tokenizer in (
        (read_model(published), old),
        (LlamaForCausalLM.from_pretrained(tmp_path / "start"), new),
    ):
        ids = torch.tensor([[tokenizer.token_to_id(name) for name in text]])
        with torch.inference_mode():
            logits.append(model(input_ids=ids).logits[0][:, [tokenizer.token_to_id(name) for name in names]])
    torch.testing.assert_close(*logits)

    # 3. Rows, training, export.
    make_rows(tmp_path, length=300)
    steps: list[int] = []
    make_weights(
        tmp_path, TrainingPlan(tokens=1800, decay=600), lambda progress, loss: steps.append(progress.step)
    )
    make_starter(tmp_path, tmp_path / "out")
    assert steps == [1, 2, 3]
    facts = json.loads((tmp_path / "out" / "training.json").read_text())
    assert facts["plan"]["tokens"] == facts["progress"]["tokens"] == 1800
    assert facts["sources"] == manifest and facts["settings"] == {"context_tokens": 384}
    card = (tmp_path / "out" / "MODEL_CARD.md").read_text()
    assert "Llama: 2 layers, width 64, 4 heads, feed-forward 96" in card and "600 tokens of its 49,152" in card
    assert "train --tokens 1800 --decay 600 --work DIR" in card
    file = tmp_path / "out" / "spd-lsp-starter.gguf"
    assert read_model(file).config.vocab_size == 600

    # 4. llama.cpp opens the file, and marks are what they were.
    pytest.importorskip("xllamacpp")
    from spd_lsp.models.llama.gguf_file import LlamaVocabulary

    assert LlamaVocabulary(file).encode("def f(x):\n    return x\n") == new.encode("def f(x):\n    return x\n").ids


@pytest.mark.parametrize(
    ("step", "before"), [("rows", "base MODEL.gguf"), ("train", "rows"), ("export", "base MODEL.gguf")]
)
def test_a_missing_step_is_named(tmp_path: Path, step: str, before: str) -> None:
    result = CliRunner().invoke(main, [step, "--work", str(tmp_path)])
    assert isinstance(result.exception, UserError)
    assert f"run: python -m spd_lsp.training {before} --work" in str(result.exception)
