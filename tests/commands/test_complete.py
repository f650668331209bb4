"""What `spd-lsp complete` prints: the order of its lines is that of the probabilities that they show."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from spd_lsp.cli import main

CODE = """import os


def names(path):
    with
"""


def test_lines_are_in_the_order_of_their_probability_and_beginnings_show_none(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CODE)
    command = ["--data-dir", str(tmp_path / "data"), "complete", f"{tmp_path}/a.py:5:9"]
    table = CliRunner().invoke(main, command, catch_exceptions=False).stdout
    shown = [float(p) for p in re.findall(r"^ +\d +([\d.]+)%  ", table, re.MULTILINE)]
    assert shown and shown == sorted(shown, reverse=True)
    answer = json.loads(CliRunner().invoke(main, [*command, "--json"], catch_exceptions=False).stdout)
    printed = [one["probability"] for one in answer["completions"]]
    assert [round(100 * p, 1) for p in printed if p is not None] == shown
