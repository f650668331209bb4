"""The process that builds a table: its events, and how it ends with the server."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spd_lsp.lsp.indexing import build_process
from spd_lsp.lsp.indexing.build_process import BuildEvent, BuildTask, run_build

TASK = BuildTask("", "", "", unlimited=False, sources=True, dependencies=False, interpreter="")
EVENT = """print('{"kind": "%s", "text": "%s"}', flush=True)"""

RUNNING = f"{EVENT % ('progress', '')}; input()"

# A server that ends while a build runs, at several moments.
ENDING = f"""
import asyncio, gc, sys
from spd_lsp.lsp.indexing import build_process
from tests.lsp.indexing.test_build_process import TASK
build_process.python = lambda *command: [sys.executable, "-c", {RUNNING!r}]

async def serve(cancelled):
    begun = asyncio.Event()
    async def build():
        async for event in build_process.run_build(TASK):
            begun.set()
    task = asyncio.ensure_future(build())
    await begun.wait()
    for _ in range(cancelled):
        task.cancel()
        await asyncio.sleep(0)

for cancelled in range(4):
    asyncio.run(serve(cancelled))
    gc.collect()
"""


def running(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Have builds run a program instead."""
    monkeypatch.setattr(build_process, "python", lambda *command: [sys.executable, "-c", program])


async def test_what_the_process_prints_are_the_events(monkeypatch: pytest.MonkeyPatch):
    running(monkeypatch, f"{EVENT % ('progress', '')}; {EVENT % ('built', '2 files')}")
    assert [event async for event in run_build(TASK)] == [BuildEvent("progress"), BuildEvent("built", "2 files")]


@pytest.mark.parametrize("program", ["", EVENT % ("progress", ""), "1 / 0"])
async def test_one_that_ends_early_has_failed(monkeypatch: pytest.MonkeyPatch, program: str):
    running(monkeypatch, program)
    assert [event async for event in run_build(TASK)][-1] == BuildEvent("failed", "the build ended early")


def test_a_server_that_ends_meanwhile_prints_nothing():
    ended = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
