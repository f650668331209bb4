"""Runs the tasks of a shared folder: on this machine's workers, on Ray, or by datatrove's executor on Slurm.

Each stage waits for the one before. Finished tasks are marked in the folder, so a run continues where one was
stopped, and what a killed worker did not finish is done by others. Processes are sent the folder's path and how to
make an encoder. Knows nothing of what the tasks do.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from multiprocessing import get_context, parent_process
from pathlib import Path

from loguru import logger

from ngram_builders.counting.memory import DEFAULT_MEMORY
from ngram_builders.counting.tokenize import Encode, ReportProgress
from ngram_builders.distributed.plan import Plan, delete_added_up
from ngram_builders.distributed.ray_cluster import run_on_ray, start_ray
from ngram_builders.distributed.slurm import SlurmStage, job_name, run_on_slurm
from ngram_builders.distributed.stages import run_task
from ngram_builders.errors import UserError

_LOCAL_POLL_SECONDS = 0.5
_MAX_KILLED = 2  # workers of a stage, whose tasks are given to others


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

    def run(self, rank: int) -> None:
        """Run one task where datatrove does not, and leave the marks and logs that it leaves."""
        try:
            self(None, rank, self.tasks)
        except Exception:
            log = self.logs / "logs" / f"task_{rank:05d}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(traceback.format_exc(), encoding="utf-8")
            raise
        self._marks.mkdir(parents=True, exist_ok=True)
        (self._marks / f"{rank:05d}").touch()

    def unfinished(self) -> list[int]:
        """The tasks that are to be run."""
        return [rank for rank in range(self.tasks) if not (self._marks / f"{rank:05d}").exists()]

    @property
    def _marks(self) -> Path:
        return self.logs / "completions"

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
            finished = sum(1 for _ in self._marks.iterdir())
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
            run_on_slurm(work, plan, stages, lambda stage: slurm_stage(stage, cluster), report)
        return
    workers = _Workers(cluster.workers or os.cpu_count() or 1)  # without tasks none starts
    run_stage = workers.run
    if cluster.executor == "ray":
        start_ray(memory)
        run_stage = partial(run_on_ray, workers=cluster.workers)
    try:
        for stage in stages:
            with _report_while_running(stage, report), _explain_failure(stage):
                run_stage(stage)
            delete_added_up(work, plan, stage.stage)
    finally:
        workers.stop()


def slurm_stage(stage: StageRunner, cluster: Cluster) -> SlurmStage:
    """datatrove's executor for one stage."""
    return SlurmStage(
        pipeline=[stage],
        tasks=stage.tasks,
        logging_dir=str(stage.logs),
        workers=cluster.workers or -1,
        partition="",
        time="",
        qos="",
        job_name=job_name(stage.work, stage.stage),
        env_command=f'export PYTHONSAFEPATH=1 PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"',
        # Without the first a stage would wait forever for one that failed.
        sbatch_args={"kill-on-invalid-dep": "yes", **cluster.sbatch},
        with_srun=False,  # srun asks the controller, and a job that starts while it is away would fail
    )


class _Workers:
    """This machine's worker processes, others in their place where some are killed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        """Prepare workers; each starts when there is a task for it."""
        return ProcessPoolExecutor(self._count, mp_context=get_context("spawn"), initializer=_exit_with_parent)

    def run(self, stage: StageRunner) -> None:
        """Run a stage's unfinished tasks; the first that fails cancels those that have not started."""
        for killed in count():
            futures = [self._pool.submit(stage.run, rank) for rank in stage.unfinished()]
            try:
                for future in as_completed(futures):
                    future.result()
                return
            except BrokenProcessPool:
                if killed == _MAX_KILLED:
                    raise
                self._pool = self._start()
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Begin no more tasks."""
        self._pool.shutdown(cancel_futures=True)


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
