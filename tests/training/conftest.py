"""A tiny tokenizer and a tiny shape, so that every step of the recipe runs in a second."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig

from spd_lsp.training.tokenizer import learn_tokenizer, open_tokenizer, save_tokenizer
from spd_lsp.training.train import ModelShape, starter_config

VOCABULARY = 320
LENGTH = 48


@pytest.fixture(scope="session")
def sources() -> list[str]:
    """Some real code: this project's own."""
    folder = Path(__file__).parents[2] / "ngram_builders"
    return [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))]


@pytest.fixture(scope="session")
def tokenizer_folder(sources: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(learn_tokenizer(sources, VOCABULARY), folder, LENGTH)
    return folder


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder: Path) -> Tokenizer:
    return open_tokenizer(tokenizer_folder)


@pytest.fixture
def config() -> LlamaConfig:
    torch.set_num_threads(1)
    return starter_config(VOCABULARY, LENGTH, ModelShape(width=16, inner=24, layers=4, heads=4))


@pytest.fixture(scope="session")
def manifest() -> list[dict[str, object]]:
    """What the corpus step notes of two packages."""
    kept = {
        "name": "kept",
        "language": "python",
        "version": "1.0",
        "licence": "MIT",
        "archive": "kept.whl",
        "sha256": "ab" * 32,
    }
    return json.loads(
        json.dumps(
            [
                kept | {"files": 3, "bytes": 1_500_000, "left_out": {"empty": 1}, "skipped": ""},
                kept
                | {"name": "gone", "files": 0, "bytes": 0, "left_out": {}, "skipped": "its licence is unknown"},
            ]
        )
    )
