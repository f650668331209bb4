"""Cores are counted as the processor has them and the system allows; neighbours are what is busy beside us."""

from __future__ import annotations

import os

import pytest

from spd_lsp.models import threads
from spd_lsp.models.threads import Neighbours, all_cores, usable_cores


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Eight processors, two on each core, all of which this process may use."""
    for number in range(8):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{number % 4},{number % 4 + 4}\n")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    return tmp_path


@pytest.mark.parametrize(("count", "expected"), [(None, 1), (2, 2), (4, 4), (16, 8)])
def test_where_the_system_does_not_tell_it_is_llama_cpps_guess(tmp_path, monkeypatch, count, expected):
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert all_cores(tmp_path / "none") == expected


@pytest.mark.parametrize(
    ("quota", "expected"), [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("", 4), ("1 0", 1)]
)
def test_a_container_is_not_exceeded(machine, quota, expected):
    (machine / "cpu.max").write_text(quota)
    assert usable_cores(machine, machine / "cpu.max") == expected


def test_the_environment_and_the_system_bound_the_cores(machine, monkeypatch):
    assert all_cores(machine) == 4  # two processors that share one count once
    for value, expected in (("3", 3), ("99", 4), ("0", 1), ("many", 4)):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert usable_cores(machine, machine / "none") == expected
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 4}, raising=False)
    assert usable_cores(machine, machine / "none") == 2


def test_neighbours_are_what_is_busy_beside_this_process():
    busy, own, now = [100.0], [40.0], [0.0]
    neighbours = Neighbours(lambda: busy[0], lambda: own[0], lambda: now[0])
    assert neighbours.busy_cores() == 0.0
    busy[0], own[0], now[0] = 106.0, 41.0, 2.0
    assert neighbours.busy_cores() == 2.5
    busy[0], own[0], now[0] = 108.0, 43.1, 3.0  # counted in ticks of the clock: a little less than ours
    assert neighbours.busy_cores() == 0.0


STAT = "cpu  1000 5000 300 9000 70 10 20 30 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"


@pytest.mark.parametrize(("niceness", "ticks"), [(0, 1360), (10, 6360)])
def test_what_is_nice_keeps_no_cores_from_others_that_are_not(tmp_path, monkeypatch, niceness, ticks):
    stat = tmp_path / "stat"
    stat.write_text(STAT)
    monkeypatch.setattr(threads, "_TIMES", stat)
    monkeypatch.setattr(os, "nice", lambda change: niceness, raising=False)
    monkeypatch.setattr(os, "sysconf", lambda name: 100, raising=False)
    assert threads._busy_seconds() == ticks / 100
