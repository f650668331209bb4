"""Progress bars on standard error, if that is a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from spd_lsp.output.printable import printable
from spd_lsp.output.terminal import console

ReportProgress = Callable[[str, int, int], None]  # stage, done, total

SHOW_AFTER = 1.0  # seconds


@contextmanager
def progress() -> Iterator[ReportProgress]:
    """A function that reports progress; each stage has a bar of its own."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    out = console()
    names = TextColumn("{task.description:<9}", markup=False)
    columns = (names, BarColumn(), TextColumn("{task.fields[amount]}"), TimeElapsedColumn())
    bars = Progress(*columns, console=out, transient=True)
    stages: dict[str, Any] = {}
    began = time.monotonic()

    def report(stage: str, done: int, total: int) -> None:
        if not out.is_terminal or time.monotonic() < began + SHOW_AFTER:
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


@contextmanager
def resumable_progress() -> Iterator[ReportProgress]:
    """The same for a command that can be interrupted and resumed."""
    import click  # which programs that only complete do without

    try:
        with progress() as report:
            yield report
    except KeyboardInterrupt:
        click.echo("interrupted; run the same command again to resume", err=True)
        click.get_current_context().exit(130)


def format_bytes(number: int) -> str:
    """Example: 12345 -> `12.3 kB`."""
    return f"{number / 1e6:,.1f} MB" if number >= 1e6 else f"{number / 1e3:.1f} kB"


def format_count(number: int, noun: str) -> str:
    """Example: 1, "file" -> `1 file`; 2000, "file" -> `2,000 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _amount(stage: str, done: int, total: int) -> str:
    """Example: `12.1 MB of 40.0 MB`, `3 of 17`."""
    return f"{format_bytes(done)} of {format_bytes(total)}" if stage == "bytes" else f"{done:,} of {total:,}"
