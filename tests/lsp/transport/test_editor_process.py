"""A server notices that its editor's process has ended, and takes a process it cannot see for running."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from spd_lsp.lsp.transport import editor_process


async def test_without_a_process_id_there_is_no_end_to_wait_for(monkeypatch):
    monkeypatch.setattr(editor_process, "POLL_SECONDS", 0.001)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(editor_process.process_ended(lambda: None), 0.05)


async def test_the_process_is_polled_until_it_has_ended(monkeypatch):
    monkeypatch.setattr(editor_process, "POLL_SECONDS", 0.001)
    states = iter([True, True, False])
    monkeypatch.setattr(editor_process, "is_running", lambda process: next(states))
    process_ids = iter([None, 7, 7, 7])
    assert await editor_process.process_ended(lambda: next(process_ids)) == 7


@pytest.mark.skipif(sys.platform == "win32", reason="on Windows os.kill may end the process")
def test_a_process_that_is_not_on_this_machine_is_not_watched():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert editor_process.local_process(child.pid) is None
    assert editor_process.local_process(None) is None
    assert editor_process.local_process(os.getpid()) == os.getpid()
