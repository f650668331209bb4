"""`bench` measures the starter, and prints and writes the results."""

from __future__ import annotations

import json
import os
import sys

import pytest
from click.testing import CliRunner

from ngram_builders.errors import UserError
from spd_lsp.cli import main
from spd_lsp.evaluation.bench.command import THREAD_VARIABLES, parse_numbers


@pytest.fixture(autouse=True)
def restore_threads(monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, os.environ.get(name, "1"))


@pytest.mark.slow
def test_a_small_run_reports_every_part(tmp_path):
    prompt = tmp_path / "prompt.py"
    prompt.write_text("def add(first, second):\n    return first + second\n\n\nprint(add(1, 2))\n")
    out = tmp_path / "bench.json"
    command = [
        "bench",
        "-k",
        "2",
        "--tokens",
        "3",
        "--repeat",
        "1",
        "--prompt-file",
        str(prompt),
        "--out",
        str(out),
    ]
    result = CliRunner().invoke(main, [*command, "--no-memory"], catch_exceptions=False)
    assert result.exit_code == 0
    for part in ("superposed decoding, k = 2", "n-gram look-ups", "processor:"):
        assert part in result.output
    plain = json.loads(out.read_text())["data"]
    passes = {(run["name"], run["k"]): run["rounds"][0]["passes"] for run in plain["runs"]}
    assert passes["superposed", 2] == passes["greedy", 1] == passes["beam", 2] == 3


@pytest.mark.slow
def test_memory_is_measured_in_a_separate_process(tmp_path):
    if not sys.platform.startswith("linux"):
        pytest.skip("held memory is read from /proc")
    from spd_lsp.evaluation.bench.run import memory_of
    from spd_lsp.evaluation.bench.setup import BenchOptions
    from tests.conftest import STARTER

    held, peak = memory_of(
        BenchOptions(STARTER, "starter", "cpu", "x = 1\n" * 40, (2,), 2, 1, 1, True), ("superposed", 2)
    )
    assert peak >= held > 50_000_000


@pytest.mark.parametrize(("text", "ks"), [("3", (3,)), ("8,1, 3,3", (1, 3, 8))])
def test_numbers_of_drafts_are_sorted_and_distinct(text, ks):
    assert parse_numbers(text) == ks


@pytest.mark.parametrize("text", ["", "0", "17", "3;5", "three", "1,,2"])
def test_other_numbers_of_drafts_are_refused(text):
    with pytest.raises(UserError, match="-k takes numbers from 1 to 16"):
        parse_numbers(text)


def test_an_unknown_format_is_refused_before_anything_is_measured(tmp_path):
    result = CliRunner().invoke(main, ["bench", "--out", str(tmp_path / "bench.txt")])
    assert result.exit_code == 1
    assert "must end in .md or .json" in result.output


def test_a_prompt_that_is_too_short_is_refused(tmp_path):
    short = tmp_path / "short.py"
    short.write_text("x = 1\n")
    result = CliRunner().invoke(main, ["bench", "--prompt-file", str(short)])
    assert result.exit_code == 1
    assert "name a longer file" in result.output
