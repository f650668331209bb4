"""Progress on standard error: bars on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from spd_lsp.output.printable import printable

ReportProgress = Callable[[str, int, int], None]  # stage, done, total

_LOG_EVERY = 30.0  # seconds, where there is no terminal


@contextmanager
def progress() -> Iterator[ReportProgress]:
    """A function that reports progress; each stage has a bar of its own, or lines in a log."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def log(stage: str, done: int, total: int) -> None:
            nonlocal last
            if total and time.monotonic() >= last + _LOG_EVERY:
                last = time.monotonic()
                print(f"{stage}: {_amount(stage, done, total)}", file=sys.stderr, flush=True)  # noqa: T201

        yield log
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    names = TextColumn("{task.description:<9}", markup=False)
    columns = (names, BarColumn(), TextColumn("{task.fields[amount]}"), TimeElapsedColumn())
    console = Console(file=sys.__stderr__)  # bars control the terminal, and `guard_output` escapes what does
    stages: dict[str, Any] = {}
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bars:

        def report(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = bars.add_task(printable(stage), amount="")
            bars.update(stages[stage], completed=done, total=total, amount=_amount(stage, done, total))

        yield report


def format_bytes(number: int) -> str:
    """Example: 12345 -> `12.3 kB`."""
    return f"{number / 1e6:,.1f} MB" if number >= 1e6 else f"{number / 1e3:.1f} kB"


def format_count(number: int, noun: str) -> str:
    """Example: 1, "file" -> `1 file`; 2000, "file" -> `2,000 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _amount(stage: str, done: int, total: int) -> str:
    """Example: `12.1 MB of 40.0 MB`, `3 of 17`."""
    return f"{format_bytes(done)} of {format_bytes(total)}" if stage == "bytes" else f"{done:,} of {total:,}"
