"""The processes in which each structure is built, opened and asked, apart from the others.

A build's time and its peak of memory are then its own, and so is the memory of what answers.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from spd_lsp.evaluation.contenders import BUILDS, READERS, Site
from spd_lsp.evaluation.stream import Steps, Stream

__all__ = ["Worker", "build", "open_cold", "run_apart", "serve"]

SPAWN = multiprocessing.get_context("spawn")


class Worker:
    """A process that answers with one structure until it is closed."""

    def __init__(self, task: Callable[..., None], *arguments: Any) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=guard, args=(task, theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, *question: Any) -> Any:
        """Its answer."""
        self.pipe.send(question)
        return self.answer()

    def answer(self) -> Any:
        """What it says next; RuntimeError with its reason if it failed."""
        try:
            kind, answer = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(
                f"its process ended with {self.process.exitcode}, perhaps for want of memory"
            ) from None
        if kind == "fault":
            raise RuntimeError(answer)
        return answer

    def close(self) -> None:
        """Let it end."""
        self.pipe.close()
        self.process.join()


def run_apart(task: Callable[..., None], *arguments: Any) -> Any:
    """The one answer of a task in a process of its own."""
    worker = Worker(task, *arguments)
    try:
        return worker.answer()
    finally:
        worker.close()


def guard(task: Callable[..., None], pipe: Connection, *arguments: Any) -> None:
    """Run a task; what goes wrong is its answer."""
    gc.disable()  # nothing here is cyclic, and looking for cycles takes most of the time with dictionaries
    try:
        task(pipe, *arguments)
    except (EOFError, KeyboardInterrupt):  # the asker has gone
        pass
    except Exception as error:
        pipe.send(("fault", f"{type(error).__name__}: {error}"))


def build(pipe: Connection, name: str, site: Site) -> None:
    """Build a structure: seconds of processor and wall clock, peak of memory, bytes left behind."""
    made = BUILDS[name]
    stream = Stream.load(site.folder)
    before, started = processor_seconds(), time.perf_counter()
    made.make(stream, site)
    answer = {
        "cpu_seconds": processor_seconds() - before,
        "wall_seconds": time.perf_counter() - started,
        "peak_bytes": peak_bytes(),
        "bytes": sum(path.stat().st_size for path in made.paths(site)),
    }
    pipe.send(("done", answer))


def processor_seconds() -> float:
    """Of this process and those it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def peak_bytes() -> int:
    """The most memory that this process or one that it has waited for ever held."""
    unit = 1 if sys.platform == "darwin" else 1024
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    return max(children, memory("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def memory(field: str) -> int:
    """A number of bytes from what Linux says of this process, 0 elsewhere."""
    # getrusage would count what the parent held when it started this process.
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)


def open_cold(pipe: Connection, name: str, site: Site, steps: Steps) -> None:
    """Open a structure that is not in the page cache: milliseconds to open, then to the first answer."""
    reader = READERS[name]
    made = BUILDS[reader.build]
    asked = reader.make(site)
    for path in made.paths(site):
        evict(path)
    times = [time.perf_counter()]
    asked.open()
    times.append(time.perf_counter())
    asked.step(asked.prepare(steps.contexts[0], steps.candidates[0]))
    times.append(time.perf_counter())
    pipe.send(("done", {"open_ms": 1e3 * (times[1] - times[0]), "first_ms": 1e3 * (times[2] - times[1])}))


def evict(path: Path) -> None:
    """Drop a file from the page cache, where the system offers that."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def serve(pipe: Connection, name: str, site: Site) -> None:
    """Answer questions until the asker goes: `time`, `probabilities`, `perplexity`, `bytes`."""
    reader = READERS[name]
    asked = reader.make(site)
    before = memory("VmRSS")
    asked.open()
    while True:
        what, *question = pipe.recv()
        if what == "time":
            pipe.send(("done", mean_microseconds(asked, *question)))
        elif what == "probabilities":
            answers = [asked.step(asked.prepare(*one)) for one in question[0]]
            pipe.send(("done", [asked.probabilities(answer) for answer in answers]))
        elif what == "bytes":
            pipe.send(("done", memory("VmRSS") - before))
        elif what == "perplexity":
            pipe.send(("done", asked.perplexity(Stream.load(site.folder).held_out)))


def mean_microseconds(asked: Any, steps: Steps) -> float:
    """Processor time of this thread per step, the call from Python and the answer's memory included."""
    questions = [asked.prepare(*one) for one in steps]
    step = asked.step
    started = time.thread_time_ns()
    for question in questions:
        step(question)
    return (time.thread_time_ns() - started) / 1e3 / len(questions)
