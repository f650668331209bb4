"""Outdated n-gram tables are rebuilt in background processes of low priority, one at a time.

In: outdated domains, and the command that rebuilds one. A server notices the new table by itself. Each table is
rebuilt at most once, so that a build that fails is not repeated.
"""

from __future__ import annotations

import subprocess
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ngram_builders.programs import NEUTRAL_CWD
from ngram_builders.registry.domains import NgramTable
from spd_lsp.ngrams.background_process import BACKGROUND, lower_priority


class Rebuilder:
    """Runs at most one build, which is stopped with this object."""

    def __init__(self, command: Callable[[NgramTable], Sequence[str]]) -> None:
        self.command = command
        self.tried: dict[str, tuple[Path, ...]] = {}  # table -> its files that are to be replaced
        self.running: tuple[NgramTable, subprocess.Popen[bytes]] | None = None
        self.problems: list[str] = []

    def update(self, outgrown: Iterable[NgramTable]) -> None:
        """Check on the running build, and start the next one. Never blocks."""
        if self.running is not None:
            domain, process = self.running
            if process.poll() is None:
                return
            self.running = None
            end(process)
            if process.returncode != 0:
                self.problems.append(outdated_message(domain))
        waiting = (domain for domain in outgrown if self.tried.get(domain.name) != domain.paths)
        if (chosen := next(waiting, None)) is not None:
            self.tried[chosen.name] = chosen.paths
            self.start(chosen)

    def start(self, domain: NgramTable) -> None:
        """Rebuild a table in the background, from a working folder that is no repository.

        The build's standard input ends when this process does, however that ends.
        """
        nothing = subprocess.DEVNULL
        try:
            process = subprocess.Popen(
                list(self.command(domain)),
                stdin=subprocess.PIPE,
                stdout=nothing,
                stderr=nothing,
                cwd=NEUTRAL_CWD,
                creationflags=BACKGROUND,
            )
        except OSError:
            self.problems.append(outdated_message(domain))
            return
        lower_priority(process.pid)
        self.running = domain, process
        weakref.finalize(self, end, process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a build; the next one resumes it."""
    if process.poll() is None:
        process.terminate()
        process.wait()
    if process.stdin:
        process.stdin.close()


def outdated_message(domain: NgramTable) -> str:
    """Return the message for a table that was not rebuilt."""
    return f"n-gram table {domain.name} is outdated; run: spd-lsp ngrams rebuild {domain.name}"
