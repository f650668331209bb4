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
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor
from loguru import logger

from ngram_builders.counting.memory import DEFAULT_MEMORY
from ngram_builders.counting.tokenize import Encode, ReportProgress
from ngram_builders.distributed.plan import Plan, delete_added_up
from ngram_builders.distributed.ray_cluster import start_ray
from ngram_builders.distributed.slurm import SlurmStage, job_name, run_on_slurm
from ngram_builders.distributed.stages import run_task
from ngram_builders.errors import UserError

_LOCAL_POLL_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """Where the tasks run."""

    executor: str = "local"  # or slurm, or ray
    workers: int = 0  # at once; 0: one per core here, no limit elsewhere
    folder: Path | None = None  # that all machines reach; None: the table's folder in the registry
    sbatch: Mapping[str, str] = field(default_factory=dict)  # Slurm's options


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
        """Report the number of finished tasks; return whether that is all of them."""
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
) -> None:
    """Run all tasks that are not finished."""
    logger.remove()  # datatrove's logs are kept in files
    stages = [StageRunner(stage, tasks, work, make_encode, memory) for stage, tasks in plan.stages.items()]
    if cluster.executor == "slurm":
        with _explain_failure(stages[-1]):
            run_on_slurm(work, plan, stages, lambda stage: make_executor(stage, cluster), report)
        return
    if cluster.executor == "ray":
        start_ray(memory)
    with _start_workers(cluster) as pool:  # without tasks it starts none
        for stage in stages:
            executor = make_executor(stage, cluster)
            if isinstance(executor, _Local):
                executor.pool = pool
            with _report_while_running(stage, report), _explain_failure(stage):
                executor.run()
            if executor.get_incomplete_ranks():
                raise UserError(f"some tasks of stage {stage.stage} failed; {stage.remedy}")
            delete_added_up(work, plan, stage.stage)


def make_executor(stage: StageRunner, cluster: Cluster) -> Any:
    """Make datatrove's executor for one stage."""
    arguments: dict[str, Any] = {
        "pipeline": [stage],
        "tasks": stage.tasks,
        "logging_dir": str(stage.logs),
        "workers": cluster.workers or -1,
    }
    if cluster.executor == "local":
        return _Local(**arguments)
    if cluster.executor == "ray":
        return RayPipelineExecutor(mem_per_cpu_gb=stage.memory / 2**30, **arguments)
    return SlurmStage(
        **arguments,
        partition="",
        time="",
        qos="",
        job_name=job_name(stage.work, stage.stage),
        env_command=f'export PYTHONSAFEPATH=1 PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"',
        # Without the first a stage would wait forever for one that failed.
        sbatch_args={"kill-on-invalid-dep": "yes", **cluster.sbatch},
        with_srun=False,  # srun asks the controller, and a job that starts while it is away would fail
    )


class _Local(LocalPipelineExecutor):  # type: ignore[misc]
    """datatrove's executor of one machine, except that it notices killed workers instead of waiting forever."""

    pool: ProcessPoolExecutor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "pool": None}  # the pool does not travel to its workers

    def run(self) -> None:
        """Run the unfinished tasks; the first failure cancels those that have not started."""
        assert self.pool is not None
        futures = [self.pool.submit(self.run_quietly, rank) for rank in self.get_incomplete_ranks()]
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
                "Slurm refused a job, for the reason that sbatch gives above; see the option --slurm"
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
