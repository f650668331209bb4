"""The tasks of a shared folder -> done, by datatrove's executors: this machine's workers, Slurm or Ray.

Each stage waits for the one before. What is done is kept as datatrove's completion marks in the folder, so that a
run goes on where one was stopped. datatrove pickles its executors to bring them to other processes; what they hold
of ours is the folder's path and how an encoder is made. Knows nothing of what the tasks do.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from loguru import logger

from ngram_builders.distributed.stages import STAGES, Encode, Plan, work_on
from ngram_builders.errors import UserError
from ngram_builders.programs import AWAY, find_program
from ngram_builders.table.format import replace_file

Report = Callable[[str, int, int], None]

EXECUTORS = ("local", "slurm", "ray")
_LATELY = 0.5  # seconds between looks at what is done here
REMOTELY = 10.0  # and at what a queue does
_JOBS = "jobs.msgpack"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """Where the tasks run."""

    executor: str = "local"
    workers: int = 0  # at once; 0: one per core here, no limit elsewhere
    share: tuple[int, int] = (1, 1)  # local: which of how many machines with the same folder this one is
    folder: Path | None = None  # where all machines reach it; None: in the domain's folder
    options: Mapping[str, Any] = field(default_factory=dict)  # further ones of datatrove's executor


@dataclass(frozen=True, slots=True)
class Step:
    """One stage as datatrove calls it."""

    stage: str
    work: Path
    make_encode: Callable[[], Encode]

    def __call__(self, data: object, rank: int, world_size: int) -> None:
        """Do one task."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # tasks run side by side, not the threads of one
        work_on(self.stage, rank, self.work, self.make_encode)


def run(work: Path, plan: Plan, cluster: Cluster, make_encode: Callable[[], Encode], report: Report) -> bool:
    """Do all tasks that are not done yet; False if another machine has the last one."""
    logger.remove()  # datatrove's logs are kept in files
    steps = [(Step(stage, work, make_encode), plan.tasks(stage)) for stage in STAGES]
    if cluster.executor == "slurm":
        return queue(work, steps, cluster, report)
    if cluster.executor == "ray":
        _start_ray()
    with ExitStack() as stack:
        pool = stack.enter_context(_workers_of(cluster)) if cluster.executor == "local" else None
        for number, (step, tasks) in enumerate(steps):
            mine = share_of(tasks, cluster.share)
            if not mine:
                continue
            for before, all_tasks in steps[:number]:
                wait_for(before, all_tasks, report)
            executor = executor_of(step, tasks, cluster, mine)
            executor.pool = pool
            with watched(step, tasks, report), told(step):
                executor.run()
            if executor.get_incomplete_ranks(mine):
                raise UserError(f"some tasks of stage {step.stage} failed; {mend(step)}")
    return bool(mine)


def share_of(tasks: int, share: tuple[int, int]) -> range:
    """The tasks of one of several machines. Example: 5, (1, 2) -> 0, 1, 2; 5, (2, 2) -> 3, 4"""
    machine, machines = share
    if not 1 <= machine <= machines:
        raise UserError(f"expected a share such as 1/2 or 2/2, found {machine}/{machines}; count from 1")
    return range(-(-tasks * (machine - 1) // machines), -(-tasks * machine // machines))


def executor_of(step: Step, tasks: int, cluster: Cluster, mine: range | None = None) -> Any:
    """datatrove's executor for one stage."""
    given: dict[str, Any] = {"pipeline": [step], "tasks": tasks, "logging_dir": str(logs(step))}
    kind: Any = {"local": Local, "slurm": Slurm, "ray": RayPipelineExecutor}[cluster.executor]
    workers = cluster.workers or -1
    if kind is Local:
        mine = range(tasks) if mine is None else mine
        given |= {"local_rank_offset": mine.start, "local_tasks": len(mine)}
    if kind is Slurm:
        if "partition" not in cluster.options:
            raise UserError("expected the partition of Slurm to use, found none; name it with --slurm-partition")
        given |= {
            "time": "24:00:00",
            "job_name": f"ngrams-{step.stage}",
            "qos": "",
            "env_command": f'export PYTHONSAFEPATH=1 PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"',
            # Without it a stage would wait for ever for one that failed.
            "sbatch_args": {"kill-on-invalid-dep": "yes"},
        }
    try:
        return kind(**{**given, "workers": workers, **cluster.options})
    except TypeError as error:
        raise UserError(
            f"expected options that datatrove's {kind.__name__} takes, found others ({error}); correct them"
        ) from error


class Local(LocalPipelineExecutor):  # type: ignore[misc]
    """datatrove's executor of one machine, with workers whose sudden death is noticed: its own waits for ever."""

    pool: ProcessPoolExecutor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "pool": None}  # it stays where it is when a worker gets the rest

    def run(self) -> None:
        """Do this machine's tasks that are not done; the first failure stops those not yet begun."""
        assert self.pool is not None
        first = self.local_rank_offset
        ranks = self.get_incomplete_ranks(range(first, first + self.local_tasks))
        futures = [self.pool.submit(self.run_quietly, rank) for rank in ranks]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            self.pool.shutdown(cancel_futures=True)
            raise

    def run_quietly(self, rank: int) -> None:
        """Do one task in a worker; what datatrove would print as well is in its log file."""
        with redirect_stderr(io.StringIO()):
            self._run_for_rank(rank)


def _workers_of(cluster: Cluster) -> ProcessPoolExecutor:
    """This machine's workers, started when there is work for them."""
    number = cluster.workers or os.cpu_count() or 1
    return ProcessPoolExecutor(number, mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Have this worker end when the process that started it is gone, however it went."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Slurm(SlurmPipelineExecutor):  # type: ignore[misc]
    """datatrove's executor for Slurm, without its further job that adds up statistics, of which we keep none."""

    def launch_merge_stats(self) -> None:
        """Submit nothing."""


def queue(work: Path, steps: list[tuple[Step, int]], cluster: Cluster, report: Report) -> bool:
    """Submit all stages to Slurm, each to begin after the one before, and wait; a run before may have done so."""
    jobs = work / _JOBS
    if not (jobs.exists() and any(map(_is_queued, msgpack.unpackb(jobs.read_bytes())))):
        executors: list[Any] = []
        for step, tasks in steps:
            executors.append(executor_of(step, tasks, cluster))
            executors[-1].depends = executors[-2] if len(executors) > 1 else None
        with told(steps[-1][0]):
            executors[-1].run()
        replace_file(jobs, [msgpack.packb([str(executor.job_id) for executor in executors])])
    for step, tasks in steps:
        while (done := finished(step)) < tasks:
            report(step.stage, done, tasks)
            if not any(map(_is_queued, msgpack.unpackb(jobs.read_bytes()))) and finished(step) < tasks:
                raise UserError(f"the jobs have ended without all tasks of stage {step.stage}; {mend(step)}")
            time.sleep(REMOTELY)
        report(step.stage, tasks, tasks)
    return True


def _is_queued(job: str) -> bool:
    """Whether Slurm still has something to do for a job."""
    if (squeue := find_program("squeue")) is None:
        raise UserError("expected Slurm's squeue here, found none; run this on a login node")
    answer = subprocess.run([squeue, "-h", "-j", job], capture_output=True, text=True, check=False, cwd=AWAY)
    return bool(answer.stdout.strip())


def _start_ray() -> None:
    """Connect to the cluster that RAY_ADDRESS names, or start one of this machine."""
    try:
        import ray
    except ImportError as error:
        raise UserError("expected Ray for --executor ray, found none; run: pip install ray") from error
    ray.init(ignore_reinit_error=True, log_to_driver=False)


@contextmanager
def told(step: Step) -> Iterator[None]:
    """Have what goes wrong end as one sentence."""
    try:
        yield
    except UserError:
        raise
    except BrokenProcessPool as error:
        raise UserError(
            f"a worker of stage {step.stage} was ended from outside, perhaps for lack of memory; "
            "use fewer --workers; the same command goes on where this one stopped"
        ) from error
    except FileNotFoundError as error:
        if error.filename != "sbatch":
            raise UserError(f"a task of stage {step.stage} failed ({error}); {mend(step)}") from error
        raise UserError("expected Slurm's sbatch here, found none; run this on a login node") from error
    except Exception as error:
        raise UserError(f"a task of stage {step.stage} failed ({error}); {mend(step)}") from error


def mend(step: Step) -> str:
    """What to do about a failed task."""
    return f"see the logs in {logs(step)}; the same command goes on where this one stopped"


@contextmanager
def watched(step: Step, tasks: int, report: Report) -> Iterator[None]:
    """Report how many tasks of a stage are done while it runs."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LATELY):
            report(step.stage, finished(step), tasks)

    thread = threading.Thread(target=watch, daemon=True)
    report(step.stage, finished(step), tasks)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        report(step.stage, finished(step), tasks)


def wait_for(step: Step, tasks: int, report: Report) -> None:
    """Wait until the other machines' tasks of a stage are done as well."""
    while (done := finished(step)) < tasks:
        report(step.stage, done, tasks)
        time.sleep(_LATELY)


def finished(step: Step) -> int:
    """How many tasks of a stage datatrove has marked as done."""
    try:
        return sum(1 for _ in (logs(step) / "completions").iterdir())
    except FileNotFoundError:
        return 0


def logs(step: Step) -> Path:
    """Where datatrove keeps the logs and marks of a stage."""
    return step.work / "logs" / step.stage
