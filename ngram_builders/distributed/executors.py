"""Runs the tasks of a shared folder by datatrove's executors: on this machine's workers, Slurm or Ray.

Each stage waits for the one before. datatrove marks finished tasks in the folder, so a run continues where one was
stopped. datatrove pickles its executors to bring them to other processes; of ours they hold the folder's path and
how to make an encoder. Knows nothing of what the tasks do.
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
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor
from loguru import logger

from ngram_builders.counting.memory import DEFAULT_MEMORY
from ngram_builders.counting.tokenize import Encode, ReportProgress
from ngram_builders.distributed.plan import Plan
from ngram_builders.distributed.ray_cluster import start_ray
from ngram_builders.distributed.slurm import SlurmStage, job_name, run_on_slurm
from ngram_builders.distributed.stages import run_task
from ngram_builders.errors import UserError

_EXECUTORS = ("local", "slurm", "ray")
_LOCAL_POLL_SECONDS = 0.5
_ALIVE_SECONDS = 60.0  # between two signs that a build waits for its tasks


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """Where the tasks run."""

    executor: str = "local"
    workers: int = 0  # at once; 0: one per core here, no limit elsewhere
    share: tuple[int, int] = (1, 1)  # local: which of how many machines with the same folder this one is
    folder: Path | None = None  # that all machines reach; None: the domain's folder
    options: Mapping[str, Any] = field(default_factory=dict)  # of datatrove's executor

    def __post_init__(self) -> None:
        """Refuse what no cluster is."""
        if self.executor not in _EXECUTORS:
            raise UserError(f"unknown executor {self.executor!r}; choose one of {', '.join(_EXECUTORS)}")
        machine, machines = self.share
        if not 1 <= machine <= machines:
            raise UserError(f"no machine has the share {machine}/{machines}; count from 1, as in 1/2 and 2/2")


@dataclass(frozen=True, slots=True)
class StageRunner:
    """One stage, as datatrove calls it and marks its progress."""

    stage: str
    tasks: int
    work: Path
    make_encode: Callable[[], Encode]
    memory: int = DEFAULT_MEMORY  # bytes, of each task

    def __call__(self, data: object, rank: int, world_size: int) -> None:
        """Run one task."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # tasks run side by side, not the threads of one
        run_task(self.stage, rank, self.work, self.make_encode, self.memory)

    @property
    def logs(self) -> Path:
        """Where datatrove keeps the logs and completion marks."""
        return self.work / "logs" / self.stage

    @property
    def remedy(self) -> str:
        """What to do about a failed task."""
        return f"see the logs in {self.logs}; the same command continues where this one stopped"

    def report_finished(self, report: ReportProgress) -> bool:
        """Report the number of finished tasks; return whether that is all of them. The folder stays a new one."""
        with suppress(OSError):
            if time.time() - self.work.stat().st_mtime > _ALIVE_SECONDS:
                os.utime(self.work)
        try:
            finished = sum(1 for _ in (self.logs / "completions").iterdir())
        except FileNotFoundError:
            finished = 0
        report(self.stage, finished, self.tasks)
        return finished >= self.tasks


def run_stages(
    work: Path,
    plan: Plan,
    cluster: Cluster,
    make_encode: Callable[[], Encode],
    report: ReportProgress,
    memory: int = DEFAULT_MEMORY,
) -> bool:
    """Run all tasks that are not finished; False if another machine has the last one."""
    logger.remove()  # datatrove's logs are kept in files
    stages = [StageRunner(stage, tasks, work, make_encode, memory) for stage, tasks in plan.stages.items()]
    if cluster.executor == "slurm":
        with _explain_failure(stages[-1]):
            run_on_slurm(work, stages, lambda stage: make_executor(stage, cluster), report)
        return True
    if cluster.executor == "ray":
        start_ray(cluster.options.get("cpus_per_task", 1), memory)
    with ExitStack() as stack:
        pool = stack.enter_context(_start_workers(cluster)) if cluster.executor == "local" else None
        for number, stage in enumerate(stages):
            share = select_share(stage.tasks, cluster.share)
            if not share:
                continue
            for before in stages[:number]:
                while not before.report_finished(report):  # other machines have the rest
                    time.sleep(_LOCAL_POLL_SECONDS)
            executor = make_executor(stage, cluster, share)
            executor.pool = pool
            with _report_while_running(stage, report), _explain_failure(stage):
                executor.run()
            if executor.get_incomplete_ranks(share):
                raise UserError(f"some tasks of stage {stage.stage} failed; {stage.remedy}")
    return bool(share)


def select_share(tasks: int, share: tuple[int, int]) -> range:
    """Return the tasks of one of several machines. Example: 5, (1, 2) -> 0, 1, 2; 5, (2, 2) -> 3, 4"""
    machine, machines = share
    return range(-(-tasks * (machine - 1) // machines), -(-tasks * machine // machines))


def make_executor(stage: StageRunner, cluster: Cluster, share: range | None = None) -> Any:
    """Make datatrove's executor for one stage."""
    kind: Any = {"local": _Local, "slurm": SlurmStage, "ray": RayPipelineExecutor}[cluster.executor]
    arguments: dict[str, Any] = {"pipeline": [stage], "tasks": stage.tasks, "logging_dir": str(stage.logs)}
    if kind is _Local:
        share = range(stage.tasks) if share is None else share
        arguments |= {"local_rank_offset": share.start, "local_tasks": len(share)}
    options: dict[str, Any] = dict(cluster.options)
    if kind is RayPipelineExecutor:
        arguments["mem_per_cpu_gb"] = stage.memory / options.get("cpus_per_task", 1) / 2**30
    if kind is SlurmStage:
        # Without the first a stage would wait for ever for one that failed.
        directives: dict[str, Any] = {"kill-on-invalid-dep": "yes"}
        directives |= {name: options.pop(name) for name in ("account", "mem") if name in options}
        arguments |= {
            "partition": "",
            "time": "",
            "job_name": job_name(stage.work, stage.stage),
            "qos": "",
            "env_command": f'export PYTHONSAFEPATH=1 PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"',
            "sbatch_args": directives,
            "with_srun": False,  # srun asks the controller, and a job that starts while it is away would fail
        }
    try:
        return kind(**{**arguments, "workers": cluster.workers or -1, **options})
    except TypeError as error:
        raise UserError(f"datatrove's {cluster.executor} executor refuses these options: {error}") from error


class _Local(LocalPipelineExecutor):  # type: ignore[misc]
    """datatrove's executor of one machine, except that it notices killed workers instead of waiting for ever."""

    pool: ProcessPoolExecutor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "pool": None}  # the pool does not travel to its workers

    def run(self) -> None:
        """Run this machine's unfinished tasks; the first failure cancels those that have not started."""
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
        """Run one task in a worker; what datatrove would print is in its log file too."""
        with redirect_stderr(io.StringIO()):
            self._run_for_rank(rank)


def _start_workers(cluster: Cluster) -> ProcessPoolExecutor:
    """Prepare this machine's workers; each starts when there is a task for it."""
    workers = cluster.workers or os.cpu_count() or 1
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_exit_with_parent)


def _exit_with_parent() -> None:
    """Have this worker exit when the process that started it is gone, however it ended."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _explain_failure(stage: StageRunner) -> Iterator[None]:
    """Turn failures into one sentence."""
    try:
        yield
    except UserError:
        raise
    except BrokenProcessPool as error:
        raise UserError(
            f"a worker of stage {stage.stage} was killed, perhaps for lack of memory; "
            "use fewer --workers; the same command continues where this one stopped"
        ) from error
    except Exception as error:
        if isinstance(error, FileNotFoundError) and error.filename == "sbatch":
            raise UserError("Slurm's sbatch is not installed here; run this on a login node") from error
        if isinstance(error, subprocess.CalledProcessError):
            raise UserError(
                "Slurm refused a job, for the reason that sbatch gives above; see --slurm options"
            ) from error
        raise UserError(f"a task of stage {stage.stage} failed ({error}); {stage.remedy}") from error


@contextmanager
def _report_while_running(stage: StageRunner, report: ReportProgress) -> Iterator[None]:
    """Report how many tasks of a stage are finished while it runs."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOCAL_POLL_SECONDS):
            stage.report_finished(report)

    thread = threading.Thread(target=watch, daemon=True)
    stage.report_finished(report)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        stage.report_finished(report)
