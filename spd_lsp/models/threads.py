"""How many threads a model computes with: as many as there are cores, fewer while other programs use those.

With one thread more than there are idle cores, each product waits for a thread that does not run, and a step
takes several times as long. So what others compute is looked at again and again. Reading a prompt takes all
cores that they leave. Steps wait for memory rather than for arithmetic: their count is measured on steps that are
needed anyway, and again when they become slow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from time import monotonic

from spd_lsp.models.cores import Neighbours, all_cores, usable_cores

TRIAL_STEPS = 6  # with each count
RECENT_STEPS = 24  # whose median is the current speed
LOOK_SECONDS = 0.25  # between two looks at what other programs compute
_MAX_COUNT = 8  # of a step's threads: the memory is busy then
_SLOWDOWN = 2.0  # relative to the trial, from which the counts are tried again
_MIN_SPEEDUP = 1.15  # for which more threads are used


def thread_counts(cores: int) -> list[int]:
    """Counts to try. Example: 6 cores -> [1, 2, 4, 6]."""
    most = min(cores, _MAX_COUNT)
    return [count for count in (1, 2, 4) if count < most] + [most]


class ThreadCountTuner:
    """Chooses a count for steps and one for prompts."""

    def __init__(
        self,
        set_counts: Callable[[int, int], None],
        cores: int | None = None,
        limit: int | None = None,
        busy_cores: Callable[[], float] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`set_counts` takes the count of a step's threads and that of a prompt's.

        cores: of the machine. limit: how many of them may be used. busy_cores: how many others keep busy.
        """
        self.set_counts = set_counts
        self.cores = self.idle = cores or all_cores()
        self.most = self.limit = limit or usable_cores()
        self.busy_cores = busy_cores or Neighbours().busy_cores
        self.clock, self.looked = clock, clock()
        self.trials: dict[int, list[float]] = {}  # the times of steps, by their count of threads
        self.recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self.free = self._free_cores()
        self._choose()

    def limit_to(self, count: int) -> None:
        """Use no more threads than this; 0: as many as this process may."""
        self.limit = min(self.most, count or self.most)
        self._update()

    def look_around(self) -> None:
        """Take account of what other programs compute, if that was not done just now."""
        if (now := self.clock()) - self.looked >= LOOK_SECONDS:
            self.looked, self.idle = now, self.cores - round(self.busy_cores())
            self._update()

    def note_step(self, seconds: float) -> None:
        """Take account of how long a step took."""
        self.look_around()
        trial = self.trials.setdefault(self.count, [])
        if len(trial) < TRIAL_STEPS:
            trial.append(seconds)
            if len(trial) == TRIAL_STEPS:
                self._choose()
            return
        self.recent.append(seconds)
        if len(self.recent) == RECENT_STEPS and median(self.recent) > _SLOWDOWN * median(trial):
            self.trials.clear()
            self._choose()

    def _free_cores(self) -> int:
        return max(1, min(self.limit, self.idle))

    def _update(self) -> None:
        """Choose again if more or fewer cores are free; what was slow because they were not is tried again."""
        before, self.free = self.free, self._free_cores()
        if self.free > before:
            self.trials = {count: times for count, times in self.trials.items() if count <= before}
        if self.free != before:
            self._choose()

    def _choose(self) -> None:
        """Take the fewest threads that were not tried, or else those that no larger count beats clearly."""
        counts = thread_counts(self.free)
        untried = (count for count in counts if len(self.trials.get(count, ())) < TRIAL_STEPS)
        self.count = next(untried, 0) or self._best(counts)
        self.recent.clear()
        self.set_counts(self.count, self.free)

    def _best(self, counts: Sequence[int]) -> int:
        times = {count: median(self.trials[count]) for count in counts}
        return next(
            n for n in counts if all(times[n] <= _MIN_SPEEDUP * times[more] for more in counts if more > n)
        )
