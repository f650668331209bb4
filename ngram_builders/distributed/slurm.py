"""Stages as Slurm's job arrays: submitted once, each after the one before, and waited for.

A job's name holds the digest of the build, so that whoever runs the same command again finds its jobs in the
queue, also those that a killed run submitted. A `squeue` that fails is no sign that they have ended.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datatrove.executor import SlurmPipelineExecutor

from ngram_builders.counting.tokenize import ReportProgress
from ngram_builders.distributed.plan import Plan, delete_added_up
from ngram_builders.errors import UserError
from ngram_builders.programs import NEUTRAL_CWD, find_program

if TYPE_CHECKING:
    from ngram_builders.distributed.executors import StageRunner

POLL_SECONDS = 10.0
_SILENT_SECONDS = 900.0  # that squeue may fail, as while Slurm's controller starts again
_SQUEUE_SECONDS = 60.0
# Slurm's reasons for a pending job that time alone does not change.
_HOPELESS = re.compile(
    r"Partition(Time|Node)Limit|BadConstraints|Invalid(Account|QOS)|(QOS|Assoc)Max\w+Per(Job|Node)\w*"
    r"|JobHeld(User|Admin)|JobHoldMaxRequeue|DependencyNeverSatisfied|ReservationDeleted|AccountNotAllowed"
)


class _QueueUnknown(Exception):
    """squeue did not say what is in the queue; the text says why."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job array in the queue."""

    number: str
    state: str
    reason: str  # why it is pending
    name: str

    @property
    def is_hopeless(self) -> bool:
        """Whether it will not start unless somebody changes something."""
        return self.state == "PENDING" and _HOPELESS.fullmatch(self.reason) is not None


class SlurmStage(SlurmPipelineExecutor):  # type: ignore[misc]
    """datatrove's executor for Slurm, without its extra job that adds up statistics; there are none."""

    def launch_merge_stats(self) -> None:
        """Submit nothing."""

    def get_sbatch_args(self, max_array: int = 1) -> dict[str, Any]:
        """The directives; what nobody chose is left to the cluster's defaults, and memory is that of a task."""
        chosen: dict[str, Any] = super().get_sbatch_args(max_array)
        if "mem" in chosen:
            del chosen["mem-per-cpu"]
        return {name: value for name, value in chosen.items() if value or name == "requeue"}


def job_name(work: Path, stage: str) -> str:
    """The name of a stage's jobs: nobody else's."""
    return f"ngrams-{stage}-{work.stem.rsplit('-', 1)[-1]}"


def run_on_slurm(
    work: Path,
    plan: Plan,
    stages: Sequence[StageRunner],
    make_executor: Callable[[StageRunner], Any],
    report: ReportProgress,
) -> None:
    """Submit the stages that are neither done nor in the queue, and wait for all of them."""
    names = [job_name(work, stage.stage) for stage in stages]
    try:
        queue = _read_queue(names)
    except _QueueUnknown as error:
        raise UserError(
            f"cannot tell whether jobs of an earlier run are still running: squeue fails ({error}); "
            "run the same command again when it answers"
        ) from error
    _submit(stages, names, queue, make_executor, report)
    for number, stage in enumerate(stages):
        finished = -1
        while not _is_done(stage, names, report):
            now = stage.tasks - len(stage.unfinished())
            if now == finished:
                raise UserError(f"the jobs ended before stage {stage.stage} was done; {stage.remedy}")
            finished = now
            _submit(stages[number:], names[number:], (), make_executor, report)  # what killed jobs did not finish
        delete_added_up(work, plan, stage.stage)


def _submit(
    stages: Sequence[StageRunner],
    names: Sequence[str],
    queue: Iterable[Job],
    make_executor: Callable[[StageRunner], Any],
    report: ReportProgress,
) -> None:
    """Submit each stage after the one before."""
    last: dict[str, str] = {}  # of several arrays of a stage each waits for the one before it
    for job in sorted(queue, key=lambda job: int(job.number)):
        last[job.name] = job.number
    before = None
    for stage, name in zip(stages, names, strict=True):
        if name not in last and not stage.report_finished(report):
            executor = make_executor(stage)
            executor.depends_job_id = before
            executor.launch_job()
            last[name] = str(executor.job_id)
        before = last.get(name, before)


def _is_done(stage: StageRunner, names: Sequence[str], report: ReportProgress) -> bool:
    """Wait until a stage is done, or no job is left; UserError once jobs cannot bring that about."""
    answered = time.monotonic()
    was_empty = False
    while not stage.report_finished(report):
        try:
            queue = _read_queue(names)
            answered = time.monotonic()
        except _QueueUnknown as error:
            if time.monotonic() - answered > _SILENT_SECONDS:
                raise UserError(
                    f"squeue has failed for {_SILENT_SECONDS / 60:.0f} minutes ({error}); the jobs may still run: "
                    "the same command finds them again and submits none twice"
                ) from error
        else:
            _check_hopeful(queue)
            if not queue and was_empty:  # files of another machine may be seen a little later than its end
                return stage.report_finished(report)
            was_empty = not queue
        time.sleep(POLL_SECONDS)
    return True


def _check_hopeful(queue: Sequence[Job]) -> None:
    """Report jobs that will never start."""
    if hopeless := [job for job in queue if job.is_hopeless]:
        numbers = " ".join(dict.fromkeys(job.number for job in queue))
        raise UserError(
            f"Slurm will not start job {hopeless[0].number}: {hopeless[0].reason}; run: scancel {numbers}, "
            "and then the same command with another --slurm option"
        )


def _read_queue(names: Sequence[str]) -> list[Job]:
    """The jobs of these names that wait or run; raises _QueueUnknown."""
    if (squeue := find_program("squeue")) is None:
        raise UserError("Slurm's squeue is not installed here; run this on a login node")
    command = [squeue, "--noheader", "--format=%F|%T|%r|%j", f"--name={','.join(names)}"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=NEUTRAL_CWD, timeout=_SQUEUE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise _QueueUnknown("it does not answer") from error
    if result.returncode:
        raise _QueueUnknown((result.stderr.strip().splitlines() or [f"status {result.returncode}"])[-1])
    rows = [line.strip().split("|", 3) for line in result.stdout.splitlines() if line.strip()]
    if not all(len(row) == 4 and row[0].isdigit() for row in rows):
        raise _QueueUnknown("its output is not a list of jobs")
    return [Job(*row) for row in rows]
