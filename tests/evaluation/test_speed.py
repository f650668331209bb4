"""`bench` measures decoders on the starter, and what someone who types sees."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.evaluation.speed import speed_report, spread
from tests.conftest import PACKAGE


def run(*arguments: object) -> str:
    done = CliRunner().invoke(main, ["bench", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.slow
def test_every_decoder_is_measured_in_every_round():
    shown = run("-k", "1,3", "--repeat", 2)
    rows = [line.split(" | ") for line in shown.splitlines() if line.startswith("| ")][2:]
    assert [(row[0].strip("| "), row[1]) for row in rows] == [
        ("greedy", "1"), ("superposed", "1"), ("best-first", "1"),
        ("superposed", "3"), ("best-first", "3"), ("nucleus", "3"), ("beam", "3"),
    ]  # fmt: skip
    assert rows[0][3:] == ["1.00 (1.00 to 1.00)", "16", "15 |"]
    assert "Peak memory: " in shown


def test_ratios_are_taken_within_rounds():
    runs = {("greedy", 1): [(10.0, 16, 15), (20.0, 16, 15)], ("beam", 3): [(30.0, 16, 45), (60.0, 16, 45)]}
    assert "| beam | 3 | 45.00 (37.50 to 52.50) | 3.00 (3.00 to 3.00) | 16 | 45 |" in speed_report(runs, "m")
    assert spread([1, 2, 3, 4, 5]) == "3.00 (2.00 to 4.00)"


@pytest.mark.parametrize("text", ["0", "17", "few", "1,x"])
def test_other_numbers_of_drafts_are_refused(text: str):
    done = CliRunner().invoke(main, ["bench", "-k", text])
    assert (done.exit_code, "takes numbers from 1 to 16" in done.output) == (1, True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
def test_typing_is_answered_and_costs_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPD_LSP_DATA_DIR", str(tmp_path))
    shown = run("--typing", PACKAGE / "settings.py", "--keys", 12)
    rows = dict(line.strip("| ").split(" | ") for line in shown.splitlines()[2:])
    assert rows["keys"] == "12"
    assert float(rows["processor time, ms a key"]) > 0
    assert 50 < float(rows["peak memory, MiB"]) < 2_000
