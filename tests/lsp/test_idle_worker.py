"""Idle work continues until nothing is left, waits for requests, and misses no wake-up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from spd_lsp.lsp import completion_worker
from spd_lsp.lsp.completion_worker import IdleWorker
from tests.lsp.lsp_client import until
from tests.processes import TIMEOUT


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


async def test_work_continues_until_nothing_is_left(executor: ThreadPoolExecutor):
    left = [True, True, False]
    idle_worker = IdleWorker(executor, lambda: False, lambda seconds: left.pop(0))
    idle_worker.wake()
    await until(lambda: not left)


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


async def test_nothing_runs_while_a_request_does(executor: ThreadPoolExecutor):
    busy, slices = [True], []
    idle_worker = IdleWorker(executor, lambda: busy[0], lambda seconds: bool(slices.append(seconds)))
    idle_worker.wake()
    await asyncio.sleep(0.05)
    assert not slices
    busy[0] = False
    await until(lambda: slices)


async def test_after_a_failure_the_next_wake_up_tries_again(executor: ThreadPoolExecutor, caplog):
    slices: list[float] = []

    def work(seconds: float) -> bool:
        slices.append(seconds)
        raise ValueError("terces"[::-1])

    idle_worker = IdleWorker(executor, lambda: False, work)
    for count in (1, 2):
        idle_worker.wake()
        await until(lambda count=count: len(slices) == count)
    await until(lambda: caplog.text.count("idle work failed: ValueError") == 2)
    assert "secret" not in caplog.text


async def test_a_stopped_worker_starts_no_more_slices(executor: ThreadPoolExecutor):
    slices: list[float] = []
    idle_worker = IdleWorker(executor, lambda: False, lambda seconds: slices.append(seconds) is None)
    idle_worker.wake()
    await until(lambda: slices)
    idle_worker.stop()
    await asyncio.get_running_loop().run_in_executor(executor, int)  # behind the slice that may be running
    before = len(slices)
    await asyncio.sleep(0.05)
    assert len(slices) == before


async def test_there_is_a_look_for_work_now_and_then_though_nobody_says_that_there_is_some(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(completion_worker, "LOOK_SECONDS", 0.01)
    slices: list[float] = []
    idle_worker = IdleWorker(executor, lambda: False, lambda seconds: bool(slices.append(seconds)))
    idle_worker.wake()
    await until(lambda: len(slices) > 3)
    idle_worker.stop()
