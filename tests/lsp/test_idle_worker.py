"""Idle work misses no wake-up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from spd_lsp.lsp.idle_work import IdleWorker
from tests.lsp.lsp_client import until
from tests.processes import TIMEOUT


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


async def test_a_wake_up_during_the_last_slice_starts_another_one(executor: ThreadPoolExecutor):
    """The slice has looked for work already, and will say that nothing is left."""
    slices: list[float] = []
    started, may_end = threading.Event(), threading.Event()

    def work(seconds: float) -> bool:
        slices.append(seconds)
        started.set()
        assert may_end.wait(TIMEOUT)
        return False

    idle_worker = IdleWorker(executor, lambda: False, work)
    idle_worker.wake()
    await until(started.is_set)
    idle_worker.wake()
    may_end.set()
    await until(lambda: len(slices) == 2)
