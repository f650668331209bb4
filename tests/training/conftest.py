"""A tiny tokenizer and a tiny model, so that every step of the recipe runs in a second."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from spd_lsp.training.base_model import MARKS
from spd_lsp.training.tokenizer import open_tokenizer, save_tokenizer
from spd_lsp.training.trimming import count_tokens, trim_tokenizer
from tests.training.base_files import byte_level_tokenizer, random_llama

VOCABULARY = 320
LENGTH = 48


@pytest.fixture(scope="session")
def sources() -> list[str]:
    """Some real code: of this project's own."""
    paths = sorted((Path(__file__).parents[2] / "ngram_builders").rglob("*.py"))[:40]
    return [text for path in paths if (text := path.read_text(encoding="utf-8"))]


@pytest.fixture(scope="session")
def tokenizer_folder(sources: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    old = byte_level_tokenizer(sources, 900)
    trimmed, _ = trim_tokenizer(old, MARKS, count_tokens(old, sources), VOCABULARY)
    save_tokenizer(trimmed, folder, LENGTH)
    return folder


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder: Path) -> Tokenizer:
    return open_tokenizer(tokenizer_folder)


@pytest.fixture
def model() -> LlamaForCausalLM:
    """A model that knows nothing."""
    return random_llama(VOCABULARY, spread=0.02)


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
