"""The newest request wins, equal ones share a run, and cancelling reaches the worker: on a bare event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from spd_lsp.lsp.request import CancellationToken, Cancelled, CancelReason, RequestScheduler
from tests.lsp.lsp_client import until

Scheduler = RequestScheduler[str, str]


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    with ThreadPoolExecutor(1) as worker:
        yield RequestScheduler(worker)


class Work:
    """Steps that the test lets through one by one."""

    def __init__(self, answer: str = "done") -> None:
        self.answer = answer
        self.steps = 0
        self.over = False
        self.turns = threading.Semaphore(0)

    def __call__(self, check: Callable[[], None]) -> str:
        try:
            for _ in range(3):
                check()
                self.steps += 1
                assert self.turns.acquire(timeout=20)
            return self.answer
        finally:
            self.over = True

    def go(self) -> Work:
        self.turns.release(99)
        return self


def test_the_first_reason_to_cancel_stays():
    cancel = CancellationToken()
    cancel.check()
    cancel.cancel(CancelReason.SUPERSEDED)
    cancel.cancel(CancelReason.SHUTDOWN)
    with pytest.raises(Cancelled) as caught:
        cancel.check()
    assert caught.value.reason is CancelReason.SUPERSEDED


async def test_a_result_is_returned(scheduler: Scheduler):
    assert await scheduler.run("doc", "request", Work("answer").go()) == "answer"


async def test_a_newer_request_cancels_the_older_one_within_one_step(scheduler: Scheduler):
    old = Work()
    waiting = asyncio.ensure_future(scheduler.run("doc", "old", old))
    await until(lambda: old.steps == 1)
    newer = asyncio.ensure_future(scheduler.run("doc", "new", Work("newer").go()))
    with pytest.raises(Cancelled) as caught:
        await waiting
    assert caught.value.reason is CancelReason.SUPERSEDED
    assert not old.over  # the older request is answered before the worker notices
    old.go()
    assert await newer == "newer"
    assert old.steps == 1


async def test_a_request_superseded_in_the_queue_never_runs(scheduler: Scheduler):
    first, second = Work(), Work()
    running = asyncio.ensure_future(scheduler.run("other", "a", first))
    await until(lambda: first.steps)
    queued = asyncio.ensure_future(scheduler.run("doc", "b", second))
    await asyncio.sleep(0.01)
    newest = asyncio.ensure_future(scheduler.run("doc", "c", Work("newest").go()))
    with pytest.raises(Cancelled):
        await queued
    first.go()
    assert (await running, await newest) == ("done", "newest")
    assert not second.over


async def test_equal_requests_share_one_run_while_it_lasts(scheduler: Scheduler):
    work, other = Work("shared"), Work("own")
    waiting = [asyncio.ensure_future(scheduler.run("doc", "same", w)) for w in (work, other)]
    await until(lambda: work.steps)
    work.go()
    assert await asyncio.gather(*waiting) == ["shared", "shared"]
    assert not other.over
    assert await scheduler.run("doc", "same", other.go()) == "own"


async def test_a_run_is_cancelled_with_its_last_caller(scheduler: Scheduler):
    work = Work()
    waiting = [asyncio.ensure_future(scheduler.run("doc", "same", work)) for _ in range(2)]
    await until(lambda: work.steps == 1)
    waiting[0].cancel()
    await asyncio.sleep(0)
    work.turns.release(1)
    await until(lambda: work.steps == 2)
    waiting[1].cancel()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(error, asyncio.CancelledError) for error in done)
    work.go()
    await until(lambda: work.over)
    assert work.steps == 2


async def test_an_equal_request_after_a_cancel_runs_again(scheduler: Scheduler):
    work = Work()
    waiting = asyncio.ensure_future(scheduler.run("doc", "same", work))
    await until(lambda: work.steps == 1)
    waiting.cancel()
    again = asyncio.ensure_future(scheduler.run("doc", "same", Work("again").go()))
    await asyncio.sleep(0)
    work.go()
    assert await again == "again"


async def test_an_error_reaches_all_callers_and_is_not_kept(scheduler: Scheduler):
    def fails(check: Callable[[], None]) -> str:
        raise ValueError("broken")

    waiting = [asyncio.ensure_future(scheduler.run("doc", "same", fails)) for _ in range(2)]
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in done] == [ValueError, ValueError]
    assert await scheduler.run("doc", "same", Work("now").go()) == "now"


async def test_during_the_delay_a_newer_request_replaces_it_for_free(scheduler: Scheduler):
    early = Work()
    waiting = asyncio.ensure_future(scheduler.run("doc", "early", early, delay=20.0))
    await asyncio.sleep(0.01)
    assert scheduler.busy
    assert await scheduler.run("doc", "late", Work("late").go()) == "late"
    with pytest.raises(Cancelled):
        await waiting
    assert not early.steps
    assert not scheduler.busy


async def test_a_loop_that_ends_stops_the_worker(scheduler: Scheduler):
    work = Work()
    waiting = asyncio.ensure_future(scheduler.run("doc", "request", work))
    await until(lambda: work.steps == 1)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    work.go()
    await until(lambda: work.over)
    assert work.steps == 1


async def test_dropping_a_request_reports_the_reason(scheduler: Scheduler):
    work = Work()
    waiting = asyncio.ensure_future(scheduler.run("doc", "request", work))
    await until(lambda: work.steps == 1)
    scheduler.drop_all(CancelReason.SHUTDOWN)
    with pytest.raises(Cancelled) as caught:
        await waiting
    assert caught.value.reason is CancelReason.SHUTDOWN
    work.go()
