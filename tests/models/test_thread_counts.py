"""As many threads as there are cores that this process may use and other programs leave free."""

from __future__ import annotations

import os
import time

import pytest

from spd_lsp.models import base
from spd_lsp.models.base import ThreadCounts, usable_cores


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Sixteen processors, two on each core, all of which this process may use; nothing computes on them."""
    for number in range(16):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{number % 8},{number % 8 + 8}\n")
    (tmp_path / "stat").write_text("cpu  0 0 0 0 0 0 0 0 0 0\n")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)
    monkeypatch.setattr(os, "sysconf", lambda name: 100, raising=False)
    for name, place in {"_CPUS": "", "_TIMES": "stat", "_QUOTA": "cpu.max"}.items():
        monkeypatch.setattr(base, name, tmp_path / place)
    return tmp_path


@pytest.mark.parametrize(
    ("quota", "expected"), [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), ("", 8), ("1 0", 1)]
)
def test_a_container_is_not_exceeded(machine, quota, expected):
    (machine / "cpu.max").write_text(quota)
    assert usable_cores() == expected


def test_the_environment_and_the_system_bound_the_cores(machine, monkeypatch):
    for value, expected in (("3", 3), ("99", 8), ("0", 1), ("many", 8)):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert usable_cores() == expected
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 8}, raising=False)
    assert usable_cores() == 2  # two processors that share one count once


def test_half_of_them_where_the_system_does_not_say_what_others_compute(machine):
    (machine / "stat").unlink()
    assert usable_cores() == 8


def test_busy_neighbours_keep_their_cores_and_the_user_bounds_the_count(machine, monkeypatch):
    now, own, used = [0.0], [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "process_time", lambda: own[0])
    counts = ThreadCounts(lambda *count: used.append(count))
    assert used == [(4, 8)]  # for a step, which waits for memory, and for a prompt
    ticks = 0
    for busy, mine, expected in [(1.3, 1.0, 7), (5.6, 0.0, 2), (12.0, 0.0, 1), (0.0, 8.0, 8)]:
        now[0] += 2.0
        own[0] += 2.0 * mine
        ticks += round(200 * (busy + mine))
        (machine / "stat").write_text(f"cpu  {ticks} 99999 0 5 5 0 0 0 0 0\n")  # what is nice gives way
        counts.look_around()
        assert used[-1] == (min(4, expected), expected), busy
    counts.limit_to(2)
    assert used[-1] == (2, 2)
    counts.limit_to(0)
    assert used[-1] == (4, 8)
    before = len(used)
    (machine / "stat").write_text("cpu  999999 0 0 0 0 0 0 0 0 0\n")
    counts.look_around()  # so soon again, nothing is read
    assert len(used) == before
