"""A Ray cluster to run tasks on: connected to, or refused where tasks would wait forever."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ngram_builders.errors import UserError

if TYPE_CHECKING:
    from ngram_builders.distributed.executors import StageRunner

_ANSWER_SECONDS = 10.0  # for an address
_ROOM_SECONDS = 30.0  # for the machines of a cluster that has just started
_CLIENT_PORT = 10001
_RETRIES = 2  # of a task whose worker was killed


def start_ray(memory: int) -> None:
    """Connect to the cluster that RAY_ADDRESS names, or start one here; each task takes so many bytes."""
    try:
        import ray
    except ImportError as error:
        raise UserError("--executor ray needs Ray; run: pip install ray") from error
    check_address(os.environ.get("RAY_ADDRESS", ""))
    try:
        ray.init(ignore_reinit_error=True, log_to_driver=False)
    except Exception as error:
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"Ray does not start: {cause}; check RAY_ADDRESS, and that its version is the same"
        ) from error
    _wait_for_room(ray, memory)


def run_on_ray(stage: StageRunner, workers: int) -> None:
    """Run a stage's unfinished tasks, `workers` at once (0: any number); Ray repeats those of killed workers."""
    import ray

    task = ray.remote(num_cpus=1, memory=stage.memory, max_retries=_RETRIES)(_run)
    waiting = stage.unfinished()
    running: list[Any] = []
    try:
        while waiting or running:
            while waiting and len(running) < (workers or stage.tasks):
                running.append(task.remote(stage, waiting.pop(0)))
            done, running = ray.wait(running)
            ray.get(done)
    except BaseException:
        for one in running:
            ray.cancel(one)
        raise


def _run(stage: StageRunner, rank: int) -> None:
    stage.run(rank)


def check_address(address: str) -> None:
    """Refuse the address of a cluster at which nothing answers, for which Ray would wait for minutes."""
    url = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = url.hostname, url.port or _CLIENT_PORT
        if not host or address in ("auto", "local"):
            return
        socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        cause = (isinstance(error, OSError) and error.strerror) or str(error)
        raise UserError(
            f"no Ray cluster answers at RAY_ADDRESS={address} ({cause}); start it or correct the address"
        ) from error


def _wait_for_room(ray: Any, memory: int) -> None:
    """Wait until some machine is large enough for a task, however busy; UserError if none is after a while."""
    ends = time.monotonic() + _ROOM_SECONDS
    while True:
        machines: list[Mapping[str, float]] = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        sizes = [(one.get("memory", 0.0), one.get("CPU", 0.0)) for one in machines]
        if any(size[0] >= memory and size[1] >= 1 for size in sizes):
            return
        if time.monotonic() > ends:
            largest = max(sizes, default=(0.0, 0.0))
            raise UserError(
                f"no machine of the Ray cluster has 1 CPU and {memory / 1e9:.1f} GB for a task; the one "
                f"with the most memory has {largest[1]:g} and {largest[0] / 1e9:.1f} GB; add a larger one, or use "
                "less --memory"
            )
        time.sleep(1)
