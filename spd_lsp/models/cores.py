"""How many cores there are for arithmetic, and how many of them other programs keep busy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_TIMES = Path("/proc/stat")
_FEW = 4  # processors, of which llama.cpp counts each as a core where it cannot ask


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
        now, others = self.clock(), self._others()
        (before, others_before), self.last = self.last, (now, others)
        return max(0.0, others - others_before) / (now - before) if now > before else 0.0


def _busy_seconds() -> float:
    """For how long all processors have computed; what is nice leaves them to others, unless we are nice too."""
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
