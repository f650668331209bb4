"""A registry and a repository, both empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngram_builders.registry.registry import Registry


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "data" / "ngrams")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo" / "inner").mkdir(parents=True)
    return tmp_path / "repo"
