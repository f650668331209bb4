"""How many threads a model computes with: as many as there are cores, fewer while other programs use those.

With one thread more than there are idle cores, each product waits for a thread that does not run, and a step
takes several times as long. So what others compute is looked at again and again. Reading a prompt takes all
cores that they leave. Steps wait for memory rather than for arithmetic: their count is measured on steps that are
needed anyway, and again when they become slow.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

TRIAL_STEPS = 6  # with each count
RECENT_STEPS = 24  # whose median is the current speed
LOOK_SECONDS = 0.25  # between two looks at what other programs compute
_MAX_COUNT = 8  # of a step's threads: the memory is busy then
_SLOWDOWN = 2.0  # relative to the trial, from which the counts are tried again
_MIN_SPEEDUP = 1.15  # for which more threads are used
_CPUS = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_TIMES = Path("/proc/stat")
_FEW = 4  # processors, of which llama.cpp counts each as a core where it cannot ask


def _thread_counts(cores: int) -> list[int]:
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`set_counts` takes the count of a step's threads and that of a prompt's.

        cores: of the machine. limit: how many of them may be used. busy_cores: how many others keep busy.
        """
        self.set_counts = set_counts
        self.cores = self.idle = cores or all_cores()
        self.most = self.limit = limit or usable_cores()
        self.busy_cores = busy_cores or Neighbours().busy_cores
        self.clock = clock
        self.looked = clock()
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
        before = self.free
        self.free = self._free_cores()
        if self.free > before:
            self.trials = {count: times for count, times in self.trials.items() if count <= before}
        if self.free != before:
            self._choose()

    def _choose(self) -> None:
        """Take the fewest threads that were not tried, or else those that no larger count beats clearly."""
        counts = _thread_counts(self.free)
        untried = (count for count in counts if len(self.trials.get(count, ())) < TRIAL_STEPS)
        self.count = next(untried, 0) or self._best(counts)
        self.recent.clear()
        self.set_counts(self.count, self.free)

    def _best(self, counts: Sequence[int]) -> int:
        times = {count: median(self.trials[count]) for count in counts}
        return next(
            n for n in counts if all(times[n] <= _MIN_SPEEDUP * times[more] for more in counts if more > n)
        )


def all_cores(cpus: Path = _CPUS) -> int:
    """The cores of this machine: two processors that share one compute no faster than one of them."""
    count = os.cpu_count() or 1
    return _cores(range(count), cpus) if cpus.is_dir() else count if count <= _FEW else count // 2


def usable_cores(cpus: Path = _CPUS, quota: Path = _QUOTA) -> int:
    """How many of them this process may use, by what the system and the environment allow."""
    most = [all_cores(cpus)]
    if hasattr(os, "sched_getaffinity"):
        most.append(_cores(os.sched_getaffinity(0), cpus))
    limit, _, period = _text(quota).partition(" ")  # of a container, in microseconds
    if limit.isdecimal() and period.isdecimal():
        most.append(int(limit) // max(1, int(period)))
    if (allowed := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
        most.append(int(allowed))
    return max(1, min(most))


def _cores(processors: Iterable[int], cpus: Path) -> int:
    siblings = (_text(cpus / f"cpu{number}" / "topology" / "thread_siblings_list") for number in processors)
    return len({shared or f"alone {number}" for number, shared in enumerate(siblings)})


class Neighbours:
    """What other programs compute, as far as the system tells: Linux does. Elsewhere they seem to be idle."""

    def __init__(
        self,
        busy_seconds: Callable[[], float] | None = None,
        own_seconds: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.busy_seconds = busy_seconds or _busy_seconds
        self.own_seconds = own_seconds
        self.clock = clock
        self.last = clock(), self._others()

    def _others(self) -> float:
        return self.busy_seconds() - self.own_seconds()

    def busy_cores(self) -> float:
        """How many cores they kept busy since this was last asked, on average. Example: 1.3."""
        now = self.clock()
        others = self._others()
        (before, others_before), self.last = self.last, (now, others)
        return max(0.0, others - others_before) / (now - before) if now > before else 0.0


def _busy_seconds() -> float:
    """For how long all processors have computed, but for what is nice: background work, unless we are nice too."""
    fields = _text(_TIMES).partition("\n")[0].split()[1:]
    if len(fields) < 8:
        return 0.0
    user, nice, system, _idle, _waiting, *interrupts = map(int, fields[:8])
    counted = nice if os.nice(0) > 0 else 0
    return (user + counted + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def _text(path: Path) -> str:
    """What a file of the system says; an empty string if there is none."""
    with suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace").strip()
    return ""
