"""The machine is named, and what runs apart has a process of its own."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from spd_lsp.evaluation.bench.machine import (
    describe_machine,
    held_bytes,
    load_average,
    peak_bytes,
    reset_peak,
    run_in_fresh_process,
)


def test_a_task_apart_runs_in_another_process_and_its_answer_comes_back():
    assert run_in_fresh_process(abs, -3) == 3
    assert run_in_fresh_process(os.getpid) != os.getpid()


def test_what_goes_wrong_apart_goes_wrong_here():
    with pytest.raises(ValueError, match="invalid literal"):
        run_in_fresh_process(int, "x")


def test_the_machine_is_named_with_its_cores_threads_and_versions():
    facts = describe_machine("cpu")
    assert "cores" in facts["processor"]
    assert facts["device"] == "cpu"
    assert all(name in facts["versions"] for name in ("Python", "torch", "transformers", "numpy"))
    assert load_average()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="held memory is read from /proc")
def test_the_peak_is_what_was_held_at_most_since_it_was_forgotten():
    held, peak = run_in_fresh_process(
        hold, 40_000_000
    )  # in a process where nothing else takes or gives back memory meanwhile
    assert held + 30_000_000 < peak < held + 60_000_000


def hold(size: int) -> tuple[int, int]:
    """What was held before a block of memory, and the peak after it was given back."""
    np.ones(2 * size, np.uint8).sum()  # a higher peak before, which is to be forgotten
    reset_peak()
    before = held_bytes()
    np.ones(size, np.uint8).sum()
    return before, peak_bytes()
