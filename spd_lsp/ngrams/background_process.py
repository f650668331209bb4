"""Processes of low priority that end with the process that started them, and rebuilds of outdated tables."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ngram_builders.programs import NEUTRAL_CWD
from ngram_builders.registry.ngram_table import NgramTable

_PRIORITY = 10  # as `nice` has it; with the least, 3 seconds of work take minutes where all cores are busy


def start_in_background(command: Sequence[str], output: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Start a process of low priority, from a working folder that is no repository; OSError if that fails.

    Its standard input ends when this process does, however that ends.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.DEVNULL,
        cwd=NEUTRAL_CWD,
        creationflags=getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0),  # which only Windows has
    )
    if sys.platform != "win32":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _PRIORITY)
    return process


def end_with_input() -> None:
    """End this process with its standard input: a pipe from the other process, closed even if that is killed."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class Rebuilder:
    """Rebuilds outdated tables, one at a time; a build that runs is stopped with this object."""

    def __init__(self, command: Callable[[NgramTable], Sequence[str]]) -> None:
        self.command = command
        self.running: tuple[NgramTable, subprocess.Popen[bytes]] | None = None
        self.problems: list[str] = []
        self._failed: set[tuple[Path, ...]] = set()  # the files of tables whose build is not tried again

    def update(self, outdated: Sequence[NgramTable]) -> list[str]:
        """Check on the running build, and start the next one. Never blocks. -> the tables that were rebuilt."""
        built: list[str] = []
        if self.running is not None:
            table, process = self.running
            if process.poll() is None:
                return built
            self.running = None
            _end(process)
            if process.returncode == 0:
                built = [table.name]
            else:
                self._fail(table)
        for table in outdated:
            if self.running is None and table.name not in built and table.paths not in self._failed:
                try:
                    process = start_in_background(self.command(table))
                except OSError:
                    self._fail(table)
                else:
                    self.running = table, process
                    weakref.finalize(self, _end, process)
        return built

    def _fail(self, table: NgramTable) -> None:
        self._failed.add(table.paths)
        self.problems.append(outdated_message(table))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop a build; the next one resumes it."""
    process.terminate()
    process.wait()
    if process.stdin:
        process.stdin.close()


def outdated_message(table: NgramTable) -> str:
    """Return the message for a table that was not rebuilt."""
    return f"n-gram table {table.name} is outdated; run: spd-lsp ngrams rebuild {table.name}"
