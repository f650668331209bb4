"""The machine under the numbers: its name, how fast it reads weights, and how much memory a contender takes."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

_WIDTH = 1024  # of the matrix that stands for a model's weights
MOST = 1 << 28  # bytes of it, far more than processors keep; it is read several times for a larger model
_PROCESSOR = "model name"


def describe(device: str) -> dict[str, str]:
    """What a reader must know to compare numbers with others'."""
    import torch
    import transformers

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts = {
        "processor": f"{processor()}, {cores} cores",
        "threads": f"{torch.get_num_threads()} (torch), {os.environ.get('OMP_NUM_THREADS', 'not set')} (BLAS)",
        "system": f"{platform.system()} {platform.release()}",
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}, numpy {np.__version__}",
        "device": device,
    }
    if device.startswith("cuda"):
        facts["device"] += f", {torch.cuda.get_device_name()}"
    return facts


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith(_PROCESSOR))
    return next(named, platform.processor() or platform.machine())


def load() -> str:
    """How many processes wanted to run in the last minute, where the system says."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


class WeightReader:
    """A matrix that stands for a model's weights: reading it costs what reading them does.

    A small model stays in the processor's cache from one token to the next, and so does a matrix of its size.
    """

    def __init__(self, size: int, device: str) -> None:
        """`size`: bytes of weights."""
        import torch

        self.size = size
        self.device = torch.device(device)
        self.times = -(-size // MOST)
        rows = max(1, size // (4 * _WIDTH * self.times))
        self.matrix = torch.ones((rows, _WIDTH), device=self.device)
        self.vector = torch.ones(_WIDTH, device=self.device)
        self.multiply = self.fastest()

    def fastest(self) -> Callable[[], Any]:
        """A product of matrix and vector by torch, or by NumPy where that is faster."""
        import time

        import torch

        ways: list[Callable[[], Any]] = [lambda: torch.mv(self.matrix, self.vector)]
        if self.device.type == "cpu":
            matrix, vector = self.matrix.numpy(), self.vector.numpy()
            ways.append(lambda: matrix @ vector)

        def seconds(way: Callable[[], Any]) -> float:
            started = time.process_time()
            way()
            return time.process_time() - started

        return min(ways, key=lambda way: min(seconds(way) for _ in range(5)))

    def read(self) -> None:
        """Read as many bytes as the weights take."""
        for _ in range(self.times):
            self.multiply()
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize()


def apart(task: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of a task in a fresh process, whose memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        return processes.submit(task, *arguments).result()


def peak_bytes() -> int:
    """The most memory that this process ever held."""
    return status("VmHWM") or _most_held()


def forget_peak() -> None:
    """Let the peak be what is held now, where the system offers that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def held_bytes() -> int:
    """The memory that this process holds, 0 where the system does not say."""
    return status("VmRSS")


def status(field: str) -> int:
    """A number of bytes from what Linux says of this process, 0 elsewhere."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)


def _most_held() -> int:
    """The peak by the system's accounting, which may count what the parent held at the start."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
