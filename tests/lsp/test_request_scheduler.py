"""Equal requests share a run, typing along leaves it, any other request stops it: on a bare event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from spd_lsp.lsp.idle_work import IdleWorker
from spd_lsp.lsp.request_scheduler import CancellationToken, Cancelled, RequestScheduler
from tests.lsp.lsp_client import until

Scheduler = RequestScheduler[str, str]


KEPT: list[tuple[str, str]] = []


def keep(request: str, result: str) -> str:
    KEPT.append((request, result))
    return result


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    """Its requests are texts, of which one continues another if it begins with it."""
    KEPT.clear()
    with ThreadPoolExecutor(1) as worker:
        yield RequestScheduler(worker, lambda one, other: other.removeprefix(one) if one in other else "", keep)


class Work:
    """Steps that the test lets through one by one."""

    def __init__(self, answer: str = "done") -> None:
        self.answer = answer
        self.steps = 0
        self.over = False
        self.turns = threading.Semaphore(0)

    def __call__(self, token: CancellationToken) -> str:
        try:
            for _ in range(3):
                token.check()
                token.check_typed(lambda typed: self.answer.startswith(typed))
                self.steps += 1
                assert self.turns.acquire(timeout=20)
            return self.answer
        finally:
            self.over = True

    def go(self) -> Work:
        self.turns.release(99)
        return self


async def test_what_nobody_waits_for_keeps_no_other_document_waiting(scheduler: Scheduler):
    work = Work()
    waiting = asyncio.ensure_future(scheduler.run("doc", "request", work))
    await until(lambda: work.steps == 1)
    waiting.cancel()
    await asyncio.sleep(0)
    elsewhere = asyncio.ensure_future(scheduler.run("other", "b", Work("b").go()))
    await asyncio.sleep(0)
    work.go()
    assert await elsewhere == "b"
    assert work.steps == 1


async def test_what_fails_is_no_concern_of_a_request_that_continues_it(scheduler: Scheduler):
    begun, turn = threading.Event(), threading.Event()

    def fails(token: CancellationToken) -> str:
        begun.set()
        assert turn.wait(20)
        raise ValueError("broken")

    older = asyncio.ensure_future(scheduler.run("doc", "x = ", fails))
    await until(begun.is_set)
    newer = asyncio.ensure_future(scheduler.finish_earlier("doc", "x = d"))
    await asyncio.sleep(0)
    turn.set()
    await newer
    assert isinstance((await asyncio.gather(older, return_exceptions=True))[0], Cancelled)


async def test_a_wake_up_during_the_last_slice_starts_another_one():
    """The slice has looked for work already, and will say that nothing is left."""
    worker = ThreadPoolExecutor(1)
    slices: list[float] = []
    started, may_end = threading.Event(), threading.Event()

    def work(seconds: float) -> bool:
        slices.append(seconds)
        started.set()
        assert may_end.wait(20)
        return False

    idle_worker = IdleWorker(worker, lambda: False, work)
    idle_worker.wake()
    await until(started.is_set)
    idle_worker.wake()
    may_end.set()
    await until(lambda: len(slices) == 2)
