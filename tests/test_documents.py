"""The documents become a site, in which every link leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", ".ci/docs", ".", str(out)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_site_has_a_page_for_each_document_and_no_dead_link(tmp_path: Path) -> None:
    built = build(ROOT, tmp_path)
    assert (built.returncode, built.stderr) == (0, "")
    assert {"README.html", "editors/README.html", "spd_lsp/starter/MODEL_CARD.html", ".ci/docs/python.html"} <= {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")
    }
    python = (tmp_path / ".ci/docs/python.html").read_text(encoding="utf-8")
    assert "spd_lsp.load" in python
    assert "num_return_sequences" in python
