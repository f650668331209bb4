"""Outdated n-gram tables are rebuilt in background processes of low priority, one at a time.

In: outdated tables, and the command that rebuilds one. A server notices the new table by itself. A build that
fails is not repeated for the same table. One that found nothing to write, as where files were changed and changed
back, is repeated after a pause, longer each time.
"""

from __future__ import annotations

import math
import subprocess
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from ngram_builders.programs import NEUTRAL_CWD
from ngram_builders.registry.ngram_table import NgramTable
from spd_lsp.ngrams.background_process import BACKGROUND, lower_priority


@dataclass(slots=True)
class _Attempt:
    """The builds of a table that is to be replaced."""

    paths: tuple[Path, ...]
    builds: int = 0
    not_before: float = 0.0  # on the monotonic clock, may the next one begin


class Rebuilder:
    """Runs at most one build, which is stopped with this object."""

    def __init__(self, command: Callable[[NgramTable], Sequence[str]]) -> None:
        self.command = command
        self.tried: dict[str, _Attempt] = {}  # by table
        self.running: tuple[NgramTable, subprocess.Popen[bytes]] | None = None
        self.problems: list[str] = []

    def update(self, outdated: Sequence[NgramTable]) -> list[str]:
        """Check on the running build, and start the next one; the tables of which one ended well. Never blocks."""
        built: list[str] = []
        if self.running is not None:
            table, process = self.running
            if process.poll() is None:
                return built
            self.running = None
            end(process)
            if process.returncode != 0:
                self.problems.append(outdated_message(table))
            else:
                ended = self.tried[table.name]
                ended.not_before = monotonic() + 2**ended.builds
                built = [table.name]
        for table in outdated:
            if table.name not in self.tried or self.tried[table.name].paths != table.paths:
                self.tried[table.name] = _Attempt(table.paths)
            attempt = self.tried[table.name]
            if self.running is None and attempt.not_before <= monotonic():
                self.start(table)
        return built

    def start(self, table: NgramTable) -> None:
        """Rebuild a table in the background, from a working folder that is no repository.

        The build's standard input ends when this process does, however that ends.
        """
        attempt = self.tried[table.name]
        nothing = subprocess.DEVNULL
        attempt.builds += 1
        attempt.not_before = math.inf
        try:
            process = subprocess.Popen(
                list(self.command(table)),
                stdin=subprocess.PIPE,
                stdout=nothing,
                stderr=nothing,
                cwd=NEUTRAL_CWD,
                creationflags=BACKGROUND,
            )
        except OSError:
            self.problems.append(outdated_message(table))
            return
        lower_priority(process.pid)
        self.running = table, process
        weakref.finalize(self, end, process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a build; the next one resumes it."""
    if process.poll() is None:
        process.terminate()
        process.wait()
    if process.stdin:
        process.stdin.close()


def outdated_message(table: NgramTable) -> str:
    """Return the message for a table that was not rebuilt."""
    return f"n-gram table {table.name} is outdated; run: spd-lsp ngrams rebuild {table.name}"
