"""Progress on standard error: bars on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from spd_lsp.output.printable import printable
from spd_lsp.output.terminal import console

ReportProgress = Callable[[str, int, int], None]  # stage, done, total

SHOW_AFTER = 1.0  # seconds
_LOG_EVERY = 30.0  # likewise, where there is no terminal


@contextmanager
def progress() -> Iterator[ReportProgress]:
    """A function that reports progress; each stage has a bar of its own, or lines in a log."""
    out = console()
    if not out.is_terminal:
        yield _Log().report
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    names = TextColumn("{task.description:<9}", markup=False)
    columns = (names, BarColumn(), TextColumn("{task.fields[amount]}"), TimeElapsedColumn())
    bars = Progress(*columns, console=out, transient=True)
    stages: dict[str, Any] = {}
    began = time.monotonic()

    def report(stage: str, done: int, total: int) -> None:
        if time.monotonic() < began + SHOW_AFTER:
            return
        if not stages:
            bars.start()
        if stage not in stages:
            stages[stage] = bars.add_task(printable(stage), amount="")
        bars.update(stages[stage], completed=done, total=total, amount=_amount(stage, done, total))

    try:
        yield report
    finally:
        if stages:
            bars.stop()


class _Log:
    """Says in lines how far each stage is, and when it may end."""

    def __init__(self) -> None:
        self._began: dict[str, tuple[float, int]] = {}  # when a stage was first heard of, and how far it was
        self._next = time.monotonic() + _LOG_EVERY

    def report(self, stage: str, done: int, total: int) -> None:
        """Write a line, unless the last one was just written."""
        now = time.monotonic()
        began, before = self._began.setdefault(stage, (now, done))
        if now < self._next or not total:
            return
        self._next = now + _LOG_EVERY
        text = f"{printable(stage)}: {_amount(stage, done, total)}"
        if done > before:
            end = time.localtime(time.time() + (now - began) * (total - done) / (done - before))
            text += f", done about {time.strftime('%a %H:%M', end)}"
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def format_bytes(number: int) -> str:
    """Example: 12345 -> `12.3 kB`."""
    return f"{number / 1e6:,.1f} MB" if number >= 1e6 else f"{number / 1e3:.1f} kB"


def format_count(number: int, noun: str) -> str:
    """Example: 1, "file" -> `1 file`; 2000, "file" -> `2,000 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _amount(stage: str, done: int, total: int) -> str:
    """Example: `12.1 MB of 40.0 MB`, `3 of 17`."""
    return f"{format_bytes(done)} of {format_bytes(total)}" if stage == "bytes" else f"{done:,} of {total:,}"
