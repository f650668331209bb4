"""Weights are read once; a running model does not depend on their files any more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.networks import NETWORKS, random_network

ROOT = Path(__file__).parents[3]
CUT = """
import json, os, sys
from pathlib import Path
from spd_lsp.models.torch.open_checkpoint import open_model

folder = Path(sys.argv[1])
engine = open_model(folder, "cpu", lambda text: None)
before = engine.prefill([4, 5]).tolist()
os.truncate(folder / "model.safetensors", 0)
engine.prefill([6])
print(json.dumps(before == engine.prefill([4, 5]).tolist()))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows lets nobody cut a mapped file short")
def test_weights_cut_short_while_the_model_runs_change_nothing(tmp_path: Path) -> None:
    """Stored in the type that is computed with, they would be read from the file at every pass."""
    random_network(NETWORKS["llama"]).save_pretrained(tmp_path)
    done = subprocess.run([sys.executable, "-c", CUT, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert json.loads(done.stdout) is True
