"""How far something is, as bars on standard error where that is a terminal: the one progress of all commands.

In: what is done, how much of it, of how much. Knows nothing of what is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from spd_lsp.printable import printable
from spd_lsp.terminal import console

Report = Callable[[str, int, int], None]  # what is done, how much of it, of how much
Item = TypeVar("Item")

PATIENCE = 1.0  # seconds before anything is shown


@contextmanager
def progress() -> Iterator[Report]:
    """A bar for each stage of what takes a while; nothing without a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    out = console()
    names = TextColumn("{task.description:<9}", markup=False)
    columns = (names, BarColumn(), TextColumn("{task.fields[amount]}"), TimeElapsedColumn())
    bars = Progress(*columns, console=out, transient=True)
    stages: dict[str, Any] = {}
    began = time.monotonic()

    def report(stage: str, done: int, total: int) -> None:
        if not out.is_terminal or time.monotonic() < began + PATIENCE:
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
def resumable() -> Iterator[Report]:
    """The same for a command that keeps what it has done: told to stop, it says that it can go on."""
    try:
        with progress() as report:
            yield report
    except KeyboardInterrupt:
        click.echo("interrupted: the same command goes on from here", err=True)
        click.get_current_context().exit(130)


def track(items: Iterable[Item], what: str, total: int = 0) -> Iterator[Item]:
    """The items one by one, with a bar; `total` where they do not tell how many they are."""
    total = len(items) if isinstance(items, Sized) else total
    with progress() as report:
        for done, item in enumerate(items):
            report(what, done, total)
            yield item


def size(number: int) -> str:
    """Bytes, readable. Example: 12345 -> `12.3 kB`."""
    return f"{number / 1e6:,.1f} MB" if number >= 1e6 else f"{number / 1e3:.1f} kB"


def _amount(stage: str, done: int, total: int) -> str:
    """How much of a stage is done. Example: `12.1 MB of 40.0 MB`, `3 of 17`."""
    return f"{size(done)} of {size(total)}" if stage == "bytes" else f"{done:,} of {total:,}"
