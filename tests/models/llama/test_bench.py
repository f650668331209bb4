"""`bench` times a GGUF model as an engine, beside llama.cpp itself on the same file."""

from __future__ import annotations

from pathlib import Path

import pytest

from spd_lsp.evaluation.bench.contenders import CONTENDERS, LLAMA_CPP
from spd_lsp.evaluation.bench.run import run_bench
from spd_lsp.evaluation.bench.setup import BenchOptions, load_llama_cpp, prepare
from spd_lsp.models.checkpoint.hub import locate


@pytest.fixture
def options(gguf_folder):
    file = gguf_folder / "Q8_0.gguf"
    chosen = {"text": "x = [1, 2, 3]\n" * 5, "ks": (1, 2), "tokens": 4, "repeat": 1, "threads": 1}
    return BenchOptions(locate(str(file)), str(file), "auto", **chosen, memory=False)


@pytest.mark.slow
def test_its_greedy_draft_is_llama_cpps_and_k_drafts_cost_one_row(options):
    setup = prepare(options, ["engine", "transformers", "reading"])
    setup.llama_cpp, message = load_llama_cpp(setup, options)
    assert "its greedy draft is this engine's for 4 of 4 tokens" in message
    assert setup.reader.size == Path(options.model).stat().st_size
    drafted = CONTENDERS["superposed"](setup, 2)
    assert (drafted.passes, drafted.rows) == (4, 3)
    assert CONTENDERS[LLAMA_CPP](setup, 2).rows == 6


@pytest.mark.slow
def test_what_reads_no_gguf_files_is_left_out(options):
    runs = run_bench(options, lambda *progress: None).runs
    assert (LLAMA_CPP, 2) in runs
    assert not any("transformers" in name for name, _ in runs)
