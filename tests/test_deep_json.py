"""What is nested deeper than anything means is refused in a sentence; the server lives."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import STARTER_FILES

DEEP = 100_000


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.slow
def test_a_deep_model_folder_is_refused_in_a_sentence(tmp_path: Path) -> None:
    shutil.copy(STARTER_FILES / "tokenizer.json", tmp_path)
    (tmp_path / "config.json").write_text(f'{{"model_type":"llama","hidden_size":{nested(DEEP)}}}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "a.py").write_text("x = 1\n")
    command = [sys.executable, "-m", "spd_lsp", "complete", "a.py:1:3", "--model", str(tmp_path)]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "Traceback" not in found.stderr
    assert found.stderr.splitlines()[-1].startswith("Error: ")
