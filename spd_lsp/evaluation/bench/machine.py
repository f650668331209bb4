"""The machine: its name, and how much time and memory processes use."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np


def describe_machine(device: str) -> dict[str, str]:
    """What it takes to compare numbers with those of other machines."""
    import torch
    import transformers

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts = {
        "processor": f"{_processor_name()}, {cores} cores",
        "threads": f"{torch.get_num_threads()} (torch), {os.environ.get('OMP_NUM_THREADS', 'not set')} (BLAS)",
        "system": f"{platform.system()} {platform.release()}",
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}, numpy {np.__version__}",
        "device": device,
    }
    if device.startswith("cuda"):
        facts["device"] += f", {torch.cuda.get_device_name()}"
    return facts


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def load_average() -> str:
    """The load average of the last minute, where the system has one."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def processes_of(process: int) -> list[int]:
    """A process and those that it started, and these; it alone where the system does not say."""
    found = [process]
    for one in found:
        for thread in Path("/proc").glob(f"{one}/task/*"):  # a process is listed with the thread that started it
            found += map(int, read_proc(one, f"task/{thread.name}/children").split())
    return found


def processor_seconds(processes: Iterable[int]) -> float:
    """Processor time that processes have taken, 0 where the system does not say."""
    stats = (read_proc(process, "stat").rpartition(")")[2].split() for process in processes)
    return sum(sum(map(int, stat[11:15])) for stat in stats) / os.sysconf("SC_CLK_TCK")


def read_proc(process: int, name: str) -> str:
    """What Linux says of a process; an empty string elsewhere, and once it has ended."""
    try:
        return Path(f"/proc/{process}/{name}").read_text(encoding="ascii")
    except OSError:
        return ""


def run_in_fresh_process(task: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task in a new process, which has its memory to itself."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        return processes.submit(task, *arguments).result()


def peak_bytes() -> int:
    """The peak memory of this process."""
    return _status_bytes("VmHWM") or _accounted_peak()


def reset_peak() -> None:
    """Reset the peak to the current memory, where the system supports it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def held_bytes() -> int:
    """The resident memory of this process, 0 where the system does not say."""
    return _status_bytes("VmRSS")


def _status_bytes(field: str) -> int:
    """A field of /proc/self/status, 0 on other systems than Linux."""
    lines = read_proc(os.getpid(), "status").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)


def _accounted_peak() -> int:
    """The peak by the system's accounting, which may include what the parent held at the start."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
