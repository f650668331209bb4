"""One live computation a document: who asks the same shares it, who asks something newer ends it.

In: a document's name, a question (anything that compares) and blocking work that polls `check`. Out: the
answer, or `Cancelled` with the reason. Knows nothing of LSP, nor of what is computed.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeVar

Question = TypeVar("Question")
Result = TypeVar("Result")
Check = Callable[[], None]
Work = Callable[[Check], Result]


class Reason(enum.Enum):
    """Why a computation ended before its end."""

    CLIENT = "the editor cancelled the request"
    SUPERSEDED = "a newer request took its place"
    SHUTDOWN = "the server is shutting down"


class Cancelled(Exception):
    """Raised by `Cancel.check` inside the work, and by `LatestWins.ask` to those who waited for it."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Cancel:
    """Set on the event loop, polled in the worker thread."""

    def __init__(self) -> None:
        self.reason: Reason | None = None

    def cancel(self, reason: Reason) -> None:
        """Ask the work to stop; the first reason stays."""
        self.reason = self.reason or reason

    def check(self) -> None:
        """Raise Cancelled once someone has asked for it. Cheap enough for every token."""
        if self.reason is not None:
            raise Cancelled(self.reason)


class Job(Generic[Question, Result]):
    """One computation and the number of requests that wait for it."""

    def __init__(self, question: Question, cancel: Cancel, task: asyncio.Task[Result]) -> None:
        self.question = question
        self.cancel = cancel
        self.task = task
        self.waiting = 0

    def serves(self, question: Question) -> bool:
        """Whether its answer, finished or to come, answers this question."""
        failed = self.task.done() and (self.task.cancelled() or self.task.exception() is not None)
        return self.cancel.reason is None and not failed and self.question == question

    def stop(self, reason: Reason) -> None:
        """End it now for those who wait, and within one step in the worker."""
        if not self.task.done():
            self.cancel.cancel(reason)
            self.task.cancel()


class LatestWins(Generic[Question, Result]):
    """The newest question of each document, and its answer once known. To be used on one event loop."""

    def __init__(self, worker: Executor) -> None:
        self._worker = worker
        self._jobs: dict[str, Job[Question, Result]] = {}

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits to run."""
        return any(not job.task.done() for job in self._jobs.values())

    def last(self, document: str) -> tuple[Question, Result] | None:
        """The document's last question and its answer, if it was answered."""
        job = self._jobs.get(document)
        if job is None or not job.task.done() or not job.serves(job.question):
            return None
        return job.question, job.task.result()

    async def ask(
        self, document: str, question: Question, work: Work[Result], *, pause: float = 0.0, anew: bool = False
    ) -> Result:
        """Run `work(check)` in the worker, or share what the same question's run gives; a newer question ends it.

        pause: seconds to wait before the work starts, in which a newer question costs nothing.
        anew: whether an answer from before may not be given again.
        """
        job = self._jobs.get(document)
        if job is None or not job.serves(question) or (anew and job.task.done()):
            self.drop(document, Reason.SUPERSEDED)
            cancel = Cancel()
            job = Job(question, cancel, asyncio.ensure_future(self._run(work, cancel, pause)))
            self._jobs[document] = job
        job.waiting += 1
        try:
            return await asyncio.shield(job.task)
        except asyncio.CancelledError:
            if job.cancel.reason is None:
                raise  # our own request was cancelled, not the work
            raise Cancelled(job.cancel.reason) from None
        finally:
            job.waiting -= 1
            if not job.waiting:
                job.stop(Reason.CLIENT)

    def drop(self, document: str, reason: Reason) -> None:
        """Stop what runs for this document and forget its last answer."""
        if (job := self._jobs.pop(document, None)) is not None:
            job.stop(reason)

    def drop_all(self, reason: Reason) -> None:
        """Stop everything and forget every answer."""
        for document in list(self._jobs):
            self.drop(document, reason)

    async def _run(self, work: Work[Result], cancel: Cancel, pause: float) -> Result:
        try:
            await asyncio.sleep(pause)
            return await asyncio.get_running_loop().run_in_executor(self._worker, work, cancel.check)
        except asyncio.CancelledError:
            cancel.cancel(Reason.SHUTDOWN)  # the loop itself is ending, unless `stop` has said why
            raise
