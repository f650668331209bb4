"""The report says what was measured and claims nothing that the spread swallows."""

from __future__ import annotations

import json

import pytest

from spd_lsp.evaluation.bench.clocks import Clocks, Timing
from spd_lsp.evaluation.bench.contenders import contender_keys
from spd_lsp.evaluation.bench.report import NO_DIFFERENCE, bench_report
from spd_lsp.evaluation.bench.run import BenchResults

SECONDS = {"superposed": 0.010, "greedy": 0.0101, "nucleus": 0.020}


def run_of(seconds: float) -> Timing:
    rest = Clocks(11 * seconds, 10 * seconds)
    return Timing(Clocks(1, 1), rest, 11, 11, 10, Clocks(9 * seconds, 8 * seconds), Clocks(seconds, seconds))


@pytest.fixture
def found() -> BenchResults:
    machine = {"processor": "Abacus 3000, 2 cores", "device": "cpu"}
    asked = {"model": "starter", "tokens": 11, "rounds": 4, "engine": "CausalModel"}
    result = BenchResults(asked, machine, ("0.1", "0.2"), prompt=512)
    for name, k in contender_keys([1, 3]):
        noise = (0.9, 1.1, 0.95, 1.05) if name == "superposed" else (1, 1, 1, 1)
        result.runs[name, k] = [run_of(SECONDS.get(name, 0.03) * factor) for factor in noise]
    result.peaks = {("beam", 3): (500_000_000, 700_000_000)}
    return result


def row(text: str, start: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_it_names_the_machine_the_model_and_the_load(found):
    text = bench_report(found).markdown()
    assert "Abacus 3000, 2 cores" in text
    assert "model: starter" in text
    assert "load average: 0.1 before, 0.2 after" in text


def test_a_ratio_that_the_spread_swallows_is_not_printed(found):
    text = bench_report(found).markdown()
    assert row(text, "superposed decoding, k = 3")[3] == NO_DIFFERENCE
    assert row(text, "nucleus, batched, k = 3")[3].startswith("1.98 (")


def test_it_compares_with_superposed_decoding_of_the_same_k(found):
    _, one, three = row(bench_report(found).markdown(), "nucleus, batched")
    assert one == ""
    assert three.startswith("2.0")


def test_it_tells_the_shares(found):
    text = bench_report(found).markdown()
    shares = [line for line in text.splitlines() if "10.0%" in line]
    assert [cell.strip() for cell in shares[-1].strip("|").split("|")][1:4] == ["10.0%", "10.0%", "80.0%"]


def test_it_tells_the_memory(found):
    text = bench_report(found).markdown()
    assert row(text[text.index("Memory") :], "beam search, batched, k = 3")[1:] == ["500", "200"]


def test_the_object_holds_every_round(found):
    plain = json.loads(bench_report(found).json())["data"]
    assert {len(one["rounds"]) for one in plain["runs"]} == {4}
    assert plain["runs"][0]["rounds"][0]["rest"]["cpu"] > 0


def test_on_a_gpu_the_wall_clock_decides(found):
    found.machine["device"] = "cuda:0"
    assert "wall clock for one more token" in bench_report(found).markdown()
    assert row(bench_report(found).markdown(), "nucleus, batched, k = 3")[1].startswith("22.0")
