"""Figures look as the person has set matplotlib up, wherever a command is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

ASK = """
from spd_lsp.evaluation.report_writer import import_matplotlib
import os
here = os.getcwd()
print(import_matplotlib().rcParams["figure.figsize"], os.getcwd() == here)
"""


def test_the_settings_of_the_working_folder_are_not_read(tmp_path: Path):
    (tmp_path / "matplotlibrc").write_text("figure.figsize: 77, 88\n")
    done = subprocess.run([sys.executable, "-c", ASK], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "77" not in done.stdout
    assert done.stdout.endswith("True\n")
