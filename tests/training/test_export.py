"""An exported model loads in transformers, is small, and records its sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

import spd_lsp
from spd_lsp.training.export import (
    ExportedWeights,
    collect_facts,
    export,
    measure_exported,
    measure_storage,
    round_to_int8,
    write_card,
)
from spd_lsp.training.rows import SourceFile, write_held_out_rows
from spd_lsp.training.train import TrainingPlan, train
from spd_lsp.training.validation import HeldOutLoss

KINDS = {"plain": HeldOutLoss(nats=30.0, tokens=10, bytes=40), "gaps": HeldOutLoss(nats=20.0, tokens=10, bytes=30)}
STARTER = Path(spd_lsp.__file__).parent / "starter"
LOSSES = {"python": KINDS, "rust": KINDS}


@pytest.fixture
def exported(config: LlamaConfig, tokenizer_folder: Path, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    rows = np.random.default_rng(0).integers(0, 320, size=(4, 48)).astype(np.uint16)
    train(config, rows, TrainingPlan(tokens=192, rows_a_step=2, low="float32"), tmp_path / "run")
    return tmp_path / "out", export(config, ExportedWeights(tmp_path / "run"), tokenizer_folder, tmp_path / "out")


def test_transformers_loads_the_export_and_continues_a_prompt(exported: tuple[Path, dict[str, Any]]) -> None:
    model = AutoModelForCausalLM.from_pretrained(exported[0])
    tokenizer = AutoTokenizer.from_pretrained(exported[0])
    prompt = tokenizer("<|suffix|>\n<|prefix|>def f(", return_tensors="pt").input_ids
    ids = model.float().generate(prompt, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    assert model.generation_config.eos_token_id == 0
    assert ids.shape[1] == prompt.shape[1] + 4


def test_weights_are_half_precision_and_tied(exported: tuple[Path, dict[str, Any]]) -> None:
    model = AutoModelForCausalLM.from_pretrained(exported[0])
    assert model.dtype == torch.float16
    assert model.lm_head.weight is model.model.embed_tokens.weight
    size = (exported[0] / "model.safetensors").stat().st_size
    assert size < 2 * exported[1]["parameters"] + 8192


def test_weights_are_averaged_with_other_models(
    exported: tuple[Path, dict[str, Any]], config: LlamaConfig, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    others = [LlamaForCausalLM(config) for _ in range(2)]
    for number, other in enumerate(others):
        other.save_pretrained(tmp_path / f"{number}")
    run = tmp_path / "run"
    trained, _ = ExportedWeights(run).load(config)
    averaged, _ = ExportedWeights(run, {tmp_path / "0": 0.25, tmp_path / "1": 0.125}).load(config)
    parts = (model.parameters() for model in (trained, *others, averaged))
    for new, first, second, mean in zip(*parts, strict=True):
        assert torch.allclose(mean, 0.625 * new + 0.25 * first + 0.125 * second, atol=1e-6)
        assert not torch.equal(first, new)


def test_the_stored_weights_are_measured(
    exported: tuple[Path, dict[str, Any]],
    config: LlamaConfig,
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
    losses = measure_exported(exported[0], tmp_path, tokenizer)
    assert [*losses] == ["python"]
    assert losses["python"]["plain"].nats_per_token == pytest.approx(np.log(320), rel=0.2)
    storage = measure_storage(config, ExportedWeights(tmp_path / "run"), folder, tokenizer)
    assert storage["float16"] == pytest.approx(losses["python"]["plain"].nats_per_token, abs=1e-4)
    assert storage["int8, a scale a row"] == pytest.approx(storage["float32"], abs=0.01)


def test_eight_bit_weights_are_off_by_half_a_step_at_most() -> None:
    weight = torch.randn(7, 40) * torch.logspace(-3, 2, 7)[:, None]
    steps = weight.abs().amax(dim=1, keepdim=True) / 127
    assert ((round_to_int8(weight) - weight).abs() <= 0.5001 * steps).all()
    assert torch.equal(round_to_int8(weight[0]), weight[0])


def test_the_card_counts_the_sources_and_states_the_losses(
    exported: tuple[Path, dict[str, Any]],
    manifest: list[dict[str, Any]],
    tokenizer: Tokenizer,
    config: LlamaConfig,
) -> None:
    out, progress = exported
    facts = collect_facts({"seed": 0}, progress, LOSSES, {"float16": 3.0}, manifest, tokenizer, config)
    write_card(out, facts)
    card = (out / "MODEL_CARD.md").read_text()
    assert "| python | 1 | 3 | 1.5 |" in card
    assert "| rust | 3.000 | 1.082 | 2.000 | 0.962 | 10 |" in card
    assert "Llama: 4 layers, width 16, 4 heads, feed-forward 24" in card
    assert "byte-level BPE, 320 tokens; no token holds text before a newline, none crosses a word" in card
    assert f"all --work DIR --vocabulary 320 --tokens {progress['tokens']}" in card
    assert "| float16 | 0." in card
    written = json.loads((out / "training.json").read_text())
    assert written == facts
    assert written["sources"] == manifest
    facts["plan"] |= {"phase": "decay", "decay": 4_600_000, "python_share": 0.7}
    write_card(out, facts)
    card = (out / "MODEL_CARD.md").read_text()
    assert "a quarter TypeScript and JavaScript; of the last 4.6 million, 70 % were Python |" in card
    assert "--decay 4600000 --python-share 0.7" in card


def test_the_card_that_ships_is_written_from_the_record_that_ships(tmp_path: Path) -> None:
    write_card(tmp_path, json.loads((STARTER / "training.json").read_text()))
    assert (tmp_path / "MODEL_CARD.md").read_text() == (STARTER / "MODEL_CARD.md").read_text()
