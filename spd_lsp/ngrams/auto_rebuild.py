"""Domains that fell far behind their files are built again beside the server, one at a time and out of its way.

In: domains that are outgrown, and the command that builds one. Out: processes; a server notices the new table by
itself. Each table is given up for a new one at most once, so that what fails is not tried again and again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from ngram_builders.programs import AWAY
from ngram_builders.registry.domains import Domain

_LEAST_PRIORITY = 19


class Rebuilder:
    """At most one build at a time, which ends when this object does."""

    def __init__(self, command: Callable[[Domain], Sequence[str]]) -> None:
        self.command = command
        self.tried: dict[str, Path] = {}  # domain -> the table that was to be replaced
        self.running: tuple[Domain, subprocess.Popen[bytes]] | None = None
        self.problems: list[str] = []

    def tend(self, outgrown: Iterable[Domain]) -> None:
        """See whether the last build ended, and start the next one. Never waits."""
        if self.running is not None:
            domain, process = self.running
            if process.poll() is None:
                return
            self.running = None
            if process.returncode != 0:
                self.problems.append(outdated_message(domain))
        waiting = (domain for domain in outgrown if self.tried.get(domain.name) != domain.path)
        if (chosen := next(waiting, None)) is not None:
            self.tried[chosen.name] = chosen.path
            self.start(chosen)

    def start(self, domain: Domain) -> None:
        """Build a domain in a process that gives way to others and works where no repository is."""
        nothing = subprocess.DEVNULL
        below_normal = getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0)  # Windows
        try:
            process = subprocess.Popen(
                list(self.command(domain)),
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                cwd=AWAY,
                creationflags=below_normal,
            )
        except OSError:
            self.problems.append(outdated_message(domain))
            return
        if sys.platform != "win32":
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, _LEAST_PRIORITY)
        self.running = domain, process
        weakref.finalize(self, end, process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a build; run again, it goes on from there."""
    if process.poll() is None:
        process.terminate()
        process.wait()


def outdated_message(domain: Domain) -> str:
    """What to tell a person whose domain is not built again."""
    return f"n-gram domain {domain.name} is far behind its files; run: spd-lsp ngrams rebuild {domain.name}"
