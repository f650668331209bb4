"""A packed run resumes where it was, and other files are rejected."""

from __future__ import annotations

import json
import tarfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from ngram_builders.errors import UserError
from spd_lsp.training import checkpoint
from spd_lsp.training.handover import pack_run, unpack_run
from spd_lsp.training.recipe import record_plan
from spd_lsp.training.train import TrainingPlan, train

ROWS = np.random.default_rng(0).integers(0, 320, size=(5, 48)).astype(np.uint16)
PLAN = TrainingPlan(tokens=4 * 2 * 48, rows_a_step=2, warm_up=0)


@pytest.fixture
def work(model: LlamaForCausalLM, tokenizer_folder: Path, tmp_path: Path) -> Path:
    """A work folder after two of four steps."""
    work = tmp_path / "work"
    train(model, ROWS, PLAN, work / "run", stop=lambda progress: progress.step == 2)
    record_plan(work / "run", PLAN)
    (work / "tokenizer").symlink_to(tokenizer_folder)
    model.config.save_pretrained(work / "run" / "start")
    return work


def test_a_packed_run_can_be_resumed_elsewhere(work: Path, model: LlamaForCausalLM, tmp_path: Path) -> None:
    size = pack_run(work, tmp_path / "run.tar.xz")
    assert size == (tmp_path / "run.tar.xz").stat().st_size < (work / "run" / checkpoint.FULL_FILE).stat().st_size
    unpack_run(tmp_path / "run.tar.xz", tmp_path / "there")
    there = tmp_path / "there"
    assert (there / "tokenizer" / "tokenizer.json").read_bytes() == (
        work / "tokenizer/tokenizer.json"
    ).read_bytes()
    assert json.loads((there / "run" / "plan.json").read_text()) == asdict(PLAN)
    steps: list[int] = []
    train(model, ROWS, PLAN, there / "run", lambda progress, loss: steps.append(progress.step))
    assert steps == [3, 4]


def test_packed_weights_keep_eight_significant_bits() -> None:
    weights = torch.randn(1000) * torch.logspace(-3, 1, 1000)
    assert torch.allclose(checkpoint.round_weights(weights).float(), weights, rtol=2**-8 + 2**-11, atol=1e-6)


def test_unpacking_never_overwrites_another_run(work: Path, tmp_path: Path) -> None:
    pack_run(work, tmp_path / "run.tar.xz")
    with pytest.raises(UserError, match="already has a run"):
        unpack_run(tmp_path / "run.tar.xz", work)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no run/weights\.safetensors; .*training train --work"):
        pack_run(tmp_path, tmp_path / "run.tar.xz")


@pytest.mark.parametrize("kind", ["cut", "other", "text"])
def test_any_other_file_is_refused_in_one_sentence(work: Path, tmp_path: Path, kind: str) -> None:
    archive = tmp_path / "run.tar.xz"
    pack_run(work, archive)
    if kind == "cut":
        archive.write_bytes(archive.read_bytes()[:2000])
    elif kind == "text":
        archive.write_text("no archive")
    else:
        with tarfile.open(archive, "w:xz") as packed:
            packed.add(work / "run" / "plan.json", "../plan.json")
    with pytest.raises(UserError, match="not an archive written by `pack`"):
        unpack_run(archive, tmp_path / "there")
    assert not (tmp_path / "plan.json").exists()
