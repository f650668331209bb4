"""Equal requests share a run, typing along leaves it, any other request stops it: on a bare event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

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


async def test_an_equal_request_after_a_cancel_shares_what_still_runs(scheduler: Scheduler):
    work, other = Work(), Work("again")
    waiting = asyncio.ensure_future(scheduler.run("doc", "same", work))
    await until(lambda: work.steps == 1)
    waiting.cancel()
    again = asyncio.ensure_future(scheduler.run("doc", "same", other.go()))
    await asyncio.sleep(0)
    work.go()
    assert await again == "done"
    assert not other.over


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


async def test_a_run_ends_within_one_step_once_it_does_not_fit_what_was_typed(scheduler: Scheduler):
    work = Work("done")
    older = asyncio.ensure_future(scheduler.run("doc", "x = ", work))
    await until(lambda: work.steps == 1)
    newer = asyncio.ensure_future(scheduler.finish_earlier("doc", "x = no"))
    await asyncio.sleep(0)
    assert not newer.done()
    work.go()
    await newer
    assert work.steps == 1 and not KEPT
    assert await scheduler.run("doc", "x = no", Work("ne").go()) == "ne"
    with pytest.raises(Cancelled):
        await older


async def test_of_two_that_wait_for_the_same_run_only_the_newer_goes_on(scheduler: Scheduler):
    work = Work("done")
    asking = [asyncio.ensure_future(scheduler.run("doc", "x = ", work))]
    await until(lambda: work.steps == 1)
    for text in ("x = d", "x = do"):
        asking.append(asyncio.ensure_future(scheduler.finish_earlier("doc", text)))  # type: ignore[arg-type]
        await asyncio.sleep(0)
    work.go()
    done = await asyncio.gather(*asking, return_exceptions=True)
    assert [isinstance(one, Cancelled) for one in done] == [True, True, False]


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


@pytest.mark.parametrize(
    ("edited", "stops"), [("x = do", False), ("x = don", False), ("x = d", False), ("y = d", True)]
)
async def test_an_edit_stops_a_run_unless_it_is_on_the_way_to_it_or_goes_on_from_it(
    scheduler: Scheduler, edited: str, stops: bool
):
    work = Work("ne")
    waiting = asyncio.ensure_future(scheduler.run("doc", "x = do", work))
    await until(lambda: work.steps == 1)
    scheduler.note_edit("doc", edited)
    work.go()
    done = (await asyncio.gather(waiting, return_exceptions=True))[0]
    assert isinstance(done, Cancelled) if stops else done == "ne"


async def test_an_error_reaches_all_callers_and_is_not_kept(scheduler: Scheduler):
    def fails(token: CancellationToken) -> str:
        raise ValueError("broken")

    waiting = [asyncio.ensure_future(scheduler.run("doc", "same", fails)) for _ in range(2)]
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in done] == [ValueError, ValueError]
    assert await scheduler.run("doc", "same", Work("now").go()) == "now"


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
