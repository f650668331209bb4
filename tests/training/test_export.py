"""An exported model loads in transformers, is small, and records its sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from spd_lsp.training.export import collect_facts, export, measure_exported, write_card
from spd_lsp.training.rows import SourceFile, write_held_out_rows
from spd_lsp.training.validation import HeldOutLoss
from tests.conftest import PACKAGE

KINDS = {"plain": HeldOutLoss(nats=30.0, tokens=10, bytes=40), "gaps": HeldOutLoss(nats=20.0, tokens=10, bytes=30)}
STARTER = PACKAGE / "starter"
LOSSES = {"python": KINDS, "rust": KINDS}


@pytest.fixture
def exported(model: LlamaForCausalLM, tokenizer_folder: Path, tmp_path: Path) -> Path:
    export(model, tokenizer_folder, tmp_path / "out")
    return tmp_path / "out"


def test_transformers_loads_the_export_and_continues_a_prompt(exported: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(exported)
    tokenizer = AutoTokenizer.from_pretrained(exported)
    prompt = tokenizer("<|suffix|>\n<|prefix|>def f(", return_tensors="pt").input_ids
    ids = model.float().generate(prompt, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    assert model.generation_config.eos_token_id == 0
    assert ids.shape[1] == prompt.shape[1] + 4


def test_weights_are_half_precision_and_tied(exported: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(exported)
    assert model.dtype == torch.float16
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_the_stored_weights_are_measured(
    exported: Path,
    tokenizer: Tokenizer,
    sources: list[str],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "python"
    package = [SourceFile(f"p/m{number}.py", text) for number, text in enumerate(sources)]
    write_held_out_rows([package], tokenizer, 300, 0, folder, most=4)
    for kind in ("plain", "gaps"):
        for part in ("ids", "measured"):
            path = folder / f"{kind}.{part}.npy"
            np.save(path, np.load(path)[:2, -48:])
    losses = measure_exported(exported, tmp_path, tokenizer)
    assert [*losses] == ["python"]
    assert losses["python"]["plain"].nats_per_token == pytest.approx(np.log(320), rel=0.2)


def test_the_card_counts_the_sources_and_states_the_losses(
    tmp_path: Path, manifest: list[dict[str, Any]], tokenizer: Tokenizer, model: LlamaForCausalLM
) -> None:
    progress = {"tokens": 731_136, "seconds": 9.0, "parameters": 9}
    facts = collect_facts(
        {"tokens": 730_080, "decay": 300_000}, progress, LOSSES, manifest, tokenizer, model.config
    )
    write_card(tmp_path, facts)
    card = (tmp_path / "MODEL_CARD.md").read_text()
    assert "| python | 1 | 3 | 1.5 |" in card
    assert "| rust | 3.000 | 1.082 | 2.000 | 0.962 | 10 |" in card
    assert "Llama: 2 layers, width 64, 4 heads, feed-forward 96" in card
    assert "byte-level BPE, 320 tokens" in card
    assert "train --tokens 730080 --decay 300000 --work DIR" in card
    written = json.loads((tmp_path / "training.json").read_text())
    assert written == facts
    assert written["sources"] == manifest


def test_the_card_that_ships_is_written_from_the_record_that_ships(tmp_path: Path) -> None:
    write_card(tmp_path, json.loads((STARTER / "training.json").read_text()))
    assert (tmp_path / "MODEL_CARD.md").read_text() == (STARTER / "MODEL_CARD.md").read_text()
