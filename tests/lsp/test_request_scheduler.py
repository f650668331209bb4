"""Newest wins, equal questions share, and cancelling reaches the worker: without LSP, on a bare loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from spd_lsp.lsp.request_scheduler import CancellationToken, Cancelled, CancelReason, RequestScheduler
from tests.lsp.lsp_client import until

Latest = RequestScheduler[str, str]


@pytest.fixture
def latest() -> Iterator[Latest]:
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


def test_the_first_reason_stays():
    cancel = CancellationToken()
    cancel.check()
    cancel.cancel(CancelReason.SUPERSEDED)
    cancel.cancel(CancelReason.SHUTDOWN)
    with pytest.raises(Cancelled) as caught:
        cancel.check()
    assert caught.value.reason is CancelReason.SUPERSEDED


async def test_an_answer_is_returned(latest: Latest):
    assert await latest.run("doc", "question", Work("answer").go()) == "answer"


async def test_a_newer_question_ends_the_older_one_within_one_step(latest: Latest):
    old = Work()
    waiting = asyncio.ensure_future(latest.run("doc", "old", old))
    await until(lambda: old.steps == 1)
    newer = asyncio.ensure_future(latest.run("doc", "new", Work("newer").go()))
    with pytest.raises(Cancelled) as caught:
        await waiting
    assert caught.value.reason is CancelReason.SUPERSEDED
    assert not old.over  # the older request is answered before the worker notices
    old.go()
    assert await newer == "newer"
    assert old.steps == 1


async def test_a_question_superseded_before_its_turn_never_runs(latest: Latest):
    first, second = Work(), Work()
    running = asyncio.ensure_future(latest.run("other", "a", first))
    await until(lambda: first.steps)
    queued = asyncio.ensure_future(latest.run("doc", "b", second))
    await asyncio.sleep(0.01)
    newest = asyncio.ensure_future(latest.run("doc", "c", Work("newest").go()))
    with pytest.raises(Cancelled):
        await queued
    first.go()
    assert (await running, await newest) == ("done", "newest")
    assert not second.over


async def test_equal_questions_share_one_run(latest: Latest):
    work, other = Work("shared"), Work("own")
    asked = [asyncio.ensure_future(latest.run("doc", "same", w)) for w in (work, other)]
    await until(lambda: work.steps)
    work.go()
    assert await asyncio.gather(*asked) == ["shared", "shared"]
    assert await latest.run("doc", "same", other) == "shared"
    assert not other.over
    assert await latest.run("doc", "same", other.go(), fresh=True) == "own"


async def test_a_run_ends_when_the_last_who_waits_leaves(latest: Latest):
    work = Work()
    asked = [asyncio.ensure_future(latest.run("doc", "same", work)) for _ in range(2)]
    await until(lambda: work.steps == 1)
    asked[0].cancel()
    await asyncio.sleep(0)
    work.turns.release(1)
    await until(lambda: work.steps == 2)
    asked[1].cancel()
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(error, asyncio.CancelledError) for error in done)
    work.go()
    await until(lambda: work.over)
    assert work.steps == 2


async def test_after_a_cancel_the_same_question_runs_anew(latest: Latest):
    work = Work()
    asked = asyncio.ensure_future(latest.run("doc", "same", work))
    await until(lambda: work.steps == 1)
    asked.cancel()
    again = asyncio.ensure_future(latest.run("doc", "same", Work("again").go()))
    await asyncio.sleep(0)
    work.go()
    assert await again == "again"


async def test_a_failure_reaches_everyone_and_is_not_kept(latest: Latest):
    def fails(check: Callable[[], None]) -> str:
        raise ValueError("broken")

    asked = [asyncio.ensure_future(latest.run("doc", "same", fails)) for _ in range(2)]
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(error) for error in done] == [ValueError, ValueError]
    assert await latest.run("doc", "same", Work("now").go()) == "now"


async def test_during_the_pause_a_newer_question_costs_nothing(latest: Latest):
    early = Work()
    asked = asyncio.ensure_future(latest.run("doc", "early", early, delay=20.0))
    await asyncio.sleep(0.01)
    assert latest.busy
    assert await latest.run("doc", "late", Work("late").go()) == "late"
    with pytest.raises(Cancelled):
        await asked
    assert not early.steps
    assert not latest.busy


async def test_a_loop_that_ends_stops_the_worker(latest: Latest):
    work = Work()
    asked = asyncio.ensure_future(latest.run("doc", "question", work))
    await until(lambda: work.steps == 1)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    work.go()
    await until(lambda: work.over)
    assert work.steps == 1


async def test_dropping_tells_the_reason(latest: Latest):
    work = Work()
    asked = asyncio.ensure_future(latest.run("doc", "question", work))
    await until(lambda: work.steps == 1)
    latest.drop_all(CancelReason.SHUTDOWN)
    with pytest.raises(Cancelled) as caught:
        await asked
    assert caught.value.reason is CancelReason.SHUTDOWN
    work.go()
