"""Measure all contenders in turn, round by round, so that disturbances hit them alike."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from random import Random
from typing import Any

from spd_lsp.evaluation.bench.clocks import Timing
from spd_lsp.evaluation.bench.contenders import CONTENDERS, TRANSFORMERS, BenchSetup, contender_keys
from spd_lsp.evaluation.bench.machine import (
    describe_machine,
    held_bytes,
    load_average,
    peak_bytes,
    reset_peak,
    run_in_fresh_process,
)
from spd_lsp.evaluation.bench.setup import BenchOptions, prepare
from spd_lsp.output.progress import ReportProgress

Key = tuple[str, int]  # a contender's name and its k


@dataclass(slots=True)
class BenchResults:
    """All measurements."""

    asked: dict[str, Any]
    machine: dict[str, str]
    load: tuple[str, str] = ("", "")  # load average before and after
    prompt: int = 0  # tokens
    runs: dict[Key, list[Timing]] = field(default_factory=dict)
    peaks: dict[Key, tuple[int, int]] = field(default_factory=dict)  # bytes with the model loaded, and at most


def run_bench(options: BenchOptions, report: ReportProgress) -> BenchResults:
    """Load everything, measure everything."""
    setup = prepare(options, parts=("engine", "transformers"))
    assert setup.model is not None
    results = BenchResults(
        {
            "model": options.model,
            "tokens": options.tokens,
            "rounds": options.repeat,
            "engine": type(setup.model).__name__,
        },
        describe_machine(str(setup.model.device)),
        prompt=len(setup.prompt),
    )
    before = load_average()
    _run_contenders(setup, options, results, report)
    if options.memory and results.machine["device"] == "cpu":
        _measure_memory(options, results, report)
    results.load = (before, load_average())
    return results


def _run_contenders(
    setup: BenchSetup, options: BenchOptions, results: BenchResults, report: ReportProgress
) -> None:
    """Run every contender once a round, in an order that changes from round to round."""
    unread = [name for name in CONTENDERS if name.startswith(TRANSFORMERS)] if setup.network is None else []
    keys = contender_keys(options.ks, unread)
    results.runs = {key: [] for key in keys}
    done = 0
    for number in range(options.repeat + 1):
        for name, k in Random(number).sample(keys, len(keys)):
            gc.collect()
            gc.disable()
            try:
                timing = CONTENDERS[name](setup, k)
            finally:
                gc.enable()
            if number:  # the first round warms up
                results.runs[name, k].append(timing)
            done += 1
            report("rounds", done, len(keys) * (options.repeat + 1))


def _measure_memory(options: BenchOptions, results: BenchResults, report: ReportProgress) -> None:
    """The memory of each contender at its largest k, each in a process of its own."""
    largest = max(options.ks)
    keys = [key for key in results.runs if key[1] == largest or key[0].endswith("greedy")]
    for done, key in enumerate(keys, 1):
        results.peaks[key] = run_in_fresh_process(memory_of, options, key)
        report("memory", done, len(keys))


def memory_of(options: BenchOptions, key: Key) -> tuple[int, int]:
    """Bytes that a process holds with the model loaded, and at most while a contender runs."""
    name, k = key
    setup = prepare(options, [TRANSFORMERS if name.startswith(TRANSFORMERS) else "engine"])
    reset_peak()
    held = held_bytes()
    CONTENDERS[name](setup, k)
    return held, peak_bytes()
