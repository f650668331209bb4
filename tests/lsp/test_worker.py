"""What the thread does between requests, and for requests that nobody waits for any more."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from spd_lsp.lsp.worker import CancellationToken, Worker
from tests.lsp.lsp_client import FakeCompleter, until


async def test_a_wake_up_during_the_last_slice_starts_another_one():
    """The slice has looked for work already, and will say that nothing is left."""
    slices: list[float] = []
    started, may_end = threading.Event(), threading.Event()

    def work(seconds: float) -> bool:
        slices.append(seconds)
        started.set()
        assert may_end.wait(20)
        return False

    completer: Any = SimpleNamespace(run_idle_work=work, update_documents=lambda changes, active: None)
    worker = Worker(completer)
    worker.wake()
    await until(started.is_set)
    worker.wake()
    may_end.set()
    await until(lambda: len(slices) == 2)
    worker.close()


async def test_work_that_nobody_waits_for_is_told_to_stop():
    fake: Any = FakeCompleter()
    worker, token, may_end = Worker(fake), CancellationToken(), threading.Event()
    waiting = asyncio.ensure_future(worker.run(lambda: may_end.wait(20), token))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert token.is_cancelled
    may_end.set()
    worker.close()
