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
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from loguru import logger

from ngram_builders.counting.tokenize import Encode, ReportProgress
from ngram_builders.distributed.stages import STAGES, Plan, run_task
from ngram_builders.errors import UserError
from ngram_builders.programs import AWAY, find_program
from ngram_builders.table.format import replace_file

_EXECUTORS = ("local", "slurm", "ray")
_LOCAL_POLL_SECONDS = 0.5
SLURM_POLL_SECONDS = 10.0
_JOBS = "jobs.msgpack"


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

    def __call__(self, data: object, rank: int, world_size: int) -> None:
        """Run one task."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # tasks run side by side, not the threads of one
        run_task(self.stage, rank, self.work, self.make_encode)

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
    work: Path, plan: Plan, cluster: Cluster, make_encode: Callable[[], Encode], report: ReportProgress
) -> bool:
    """Run all tasks that are not finished; False if another machine has the last one."""
    logger.remove()  # datatrove's logs are kept in files
    stages = [StageRunner(stage, plan.count_tasks(stage), work, make_encode) for stage in STAGES]
    if cluster.executor == "slurm":
        _run_on_slurm(work, stages, cluster, report)
        return True
    if cluster.executor == "ray":
        _start_ray()
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
    kind: Any = {"local": _Local, "slurm": _Slurm, "ray": RayPipelineExecutor}[cluster.executor]
    arguments: dict[str, Any] = {"pipeline": [stage], "tasks": stage.tasks, "logging_dir": str(stage.logs)}
    if kind is _Local:
        share = range(stage.tasks) if share is None else share
        arguments |= {"local_rank_offset": share.start, "local_tasks": len(share)}
    if kind is _Slurm:
        if "partition" not in cluster.options:
            raise UserError("Slurm needs a partition; name it with --slurm-partition")
        arguments |= {
            "time": "24:00:00",
            "job_name": f"ngrams-{stage.stage}",
            "qos": "",
            "env_command": f'export PYTHONSAFEPATH=1 PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"',
            # Without it a stage would wait for ever for one that failed.
            "sbatch_args": {"kill-on-invalid-dep": "yes"},
        }
    try:
        return kind(**{**arguments, "workers": cluster.workers or -1, **cluster.options})
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


class _Slurm(SlurmPipelineExecutor):  # type: ignore[misc]
    """datatrove's executor for Slurm, without its extra job that adds up statistics; there are none."""

    def launch_merge_stats(self) -> None:
        """Submit nothing."""


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


def _run_on_slurm(work: Path, stages: list[StageRunner], cluster: Cluster, report: ReportProgress) -> None:
    """Submit all stages to Slurm, each after the one before, unless an earlier run did; and wait for them."""
    file = work / _JOBS
    jobs: list[str] = msgpack.unpackb(file.read_bytes()) if file.exists() else []
    if not any(map(_is_queued, jobs)):
        executors: list[Any] = []
        for stage in stages:
            executors.append(make_executor(stage, cluster))
            executors[-1].depends = executors[-2] if len(executors) > 1 else None
        with _explain_failure(stages[-1]):
            executors[-1].run()
        jobs = [str(executor.job_id) for executor in executors]
        replace_file(file, [msgpack.packb(jobs)])
    for stage in stages:
        while not stage.report_finished(report):
            if not any(map(_is_queued, jobs)) and not stage.report_finished(report):
                raise UserError(f"the jobs ended before stage {stage.stage} was done; {stage.remedy}")
            time.sleep(SLURM_POLL_SECONDS)


def _is_queued(job: str) -> bool:
    """Whether a job is waiting or running."""
    if (squeue := find_program("squeue")) is None:
        raise UserError("Slurm's squeue is not installed here; run this on a login node")
    result = subprocess.run([squeue, "-h", "-j", job], capture_output=True, text=True, check=False, cwd=AWAY)
    return bool(result.stdout.strip())


def _start_ray() -> None:
    """Connect to the cluster that RAY_ADDRESS names, or start one on this machine."""
    try:
        import ray
    except ImportError as error:
        raise UserError("--executor ray needs Ray; run: pip install ray") from error
    ray.init(ignore_reinit_error=True, log_to_driver=False)


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
