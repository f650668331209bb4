"""Files to count in tasks."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Texts whose copies end up in different shards."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for number in range(9):
        (folder / f"{number}.py").write_text(f"import os\nvalue_{number % 6} = {number % 6}\n" * (1 + number % 6))
    (folder / "x.go").write_text("package main\n")
    (folder / "y.py").write_text("package main\n")
    (folder / "README.md").write_text("no source\n")
    return folder
