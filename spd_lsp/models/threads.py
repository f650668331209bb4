"""How many threads a large model computes with: measured while it works, and again when its steps become slow.

An editor has busy neighbours: with one thread more than there are idle cores, each product waits for a thread that
does not run, and a step takes several times as long. So the count is measured on steps that are needed anyway, and
it is never all cores.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median

TRIAL_STEPS = 6  # with each count
RECENT_STEPS = 24  # whose median is the current speed
_SLOWDOWN = 2.0  # relative to the trial, from which the counts are tried again
_MIN_SPEEDUP = 1.15  # for which more threads are used


def usable_cores() -> int:
    """How many cores there are, or what the environment allows."""
    allowed, cores = os.environ.get("OMP_NUM_THREADS", ""), os.cpu_count() or 1
    return min(cores, max(1, int(allowed))) if allowed.isdecimal() else cores


def thread_counts(cores: int) -> list[int]:
    """Counts to try. Example: 8 cores -> [1, 2, 4]."""
    return [count for count in (1, 2, 4) if count == 1 or count < cores]


class ThreadCountTuner:
    """Tries counts, fewest first, and keeps the best."""

    def __init__(self, counts: Sequence[int], set_count: Callable[[int], None]) -> None:
        self.counts = counts
        self.set_count = set_count
        self._start_trial()

    def _start_trial(self) -> None:
        self.trial: list[list[float]] = [[]]  # the times with each count so far
        self.expected = 0.0  # the median step with the chosen count; 0 during a trial
        self.recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self.set_count(self.counts[0])

    def note_step(self, seconds: float) -> None:
        """Take account of how long a step took."""
        if self.expected:
            self.recent.append(seconds)
            if len(self.recent) == RECENT_STEPS and median(self.recent) > _SLOWDOWN * self.expected:
                self._start_trial()
            return
        self.trial[-1].append(seconds)
        if len(self.trial[-1]) < TRIAL_STEPS:
            return
        if len(self.trial) < len(self.counts):
            self.set_count(self.counts[len(self.trial)])
            self.trial.append([])
        else:
            self._end_trial()

    def _end_trial(self) -> None:
        """Keep the fewest threads that no larger count beats clearly."""
        times = [median(each) for each in self.trial]
        best = next(
            i for i, time in enumerate(times) if all(time <= _MIN_SPEEDUP * later for later in times[i + 1 :])
        )
        self.expected = times[best]
        self.set_count(self.counts[best])
