"""How many threads a large model computes with, found while it works and found again when work becomes slow.

An editor has busy neighbours: with one thread more than there are idle cores, each product waits for a thread that
does not run, and a step takes several times as long. So the count is measured, on the steps that are asked for
anyway, and never is it all cores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median

TRIES = 6  # steps with each count
RECENT = 24  # steps that say how fast work is now
_SLOWER = 2.0  # a recent median so often as long as when the count was chosen asks for another trial
_WORTH = 1.15  # how often as fast more threads must be


def counts_below(cores: int) -> list[int]:
    """Counts worth a trial. Example: 8 cores -> [1, 2, 4]."""
    return [count for count in (1, 2, 4) if count == 1 or count < cores]


class Threads:
    """Tries counts, fewest first, and keeps the best; `use` sets a count."""

    def __init__(self, counts: Sequence[int], use: Callable[[int], None]) -> None:
        self.counts = counts
        self.use = use
        self.begin()

    def begin(self) -> None:
        """Start a trial."""
        self.trial: list[list[float]] = [[]]  # the times with each count so far
        self.expected = 0.0  # the median step of the chosen count; 0 during a trial
        self.recent: deque[float] = deque(maxlen=RECENT)
        self.use(self.counts[0])

    def note(self, seconds: float) -> None:
        """A step has taken so long."""
        if self.expected:
            self.recent.append(seconds)
            if len(self.recent) == RECENT and median(self.recent) > _SLOWER * self.expected:
                self.begin()
            return
        self.trial[-1].append(seconds)
        if len(self.trial[-1]) < TRIES:
            return
        if len(self.trial) < len(self.counts):
            self.use(self.counts[len(self.trial)])
            self.trial.append([])
        else:
            self.choose()

    def choose(self) -> None:
        """End the trial: take the fewest threads that no larger count beats clearly."""
        times = [median(each) for each in self.trial]
        best = next(i for i, time in enumerate(times) if all(time <= _WORTH * later for later in times[i + 1 :]))
        self.expected = times[best]
        self.use(self.counts[best])
