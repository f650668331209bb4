"""Fill each gap with every arm and run the programs: from tasks to records in a store.

The cursor stands on an empty line where the missing lines were. The prompt is the product's for a request by hand,
with so much context that nothing of these short programs is left out, in the model's own format and without
n-grams: there is no repository. It is read once, untimed; then every arm finds it in the cache.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spd_lsp import __version__
from spd_lsp.completion.draft_text import DraftText
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.infilling.sandbox import passes
from spd_lsp.evaluation.infilling.tasks import Task
from spd_lsp.evaluation.quality.arm_runner import ArmRequest, ArmRunner
from spd_lsp.evaluation.quality.arms import Arm
from spd_lsp.evaluation.quality.store import Record, ResultStore
from spd_lsp.models.checkpoint.hub import locate
from spd_lsp.models.load import load
from spd_lsp.output.progress import ReportProgress
from spd_lsp.settings import Settings

_WHOLE_PROGRAM = 4096  # tokens of context; the longest program has some 700


@dataclass(frozen=True, slots=True)
class InfillingRun:
    """A model and the store of its results."""

    facts: Mapping[str, Any]  # that decide the results
    runner: ArmRunner
    store: ResultStore
    report: ReportProgress

    def measure(self, tasks: Sequence[Task], arms: Sequence[Arm]) -> list[Record]:
        """Measure what the store lacks and return the records of these tasks."""
        stored = {record["key"]: record for record in self.store.records()}
        for number, task in enumerate(tasks):
            self.report("tasks", number, len(tasks))
            done = stored.get(task.name, {}).get("arms", {})
            if missing := [arm for arm in arms if arm.label not in done]:
                self.store.append(self._record(task, missing))
        asked = {task.name for task in tasks}
        return [record for record in self.store.records() if record["key"] in asked]

    def _record(self, task: Task, arms: Sequence[Arm]) -> Record:
        """What each arm writes, in an order drawn for this task, and which of its drafts is first to pass."""
        request = infilling_request(self.runner, task)
        began = time.process_time()
        self.runner.warm_up(request)
        record: Record = {
            "key": task.name,
            "problem": task.problem,
            "prompt_tokens": len(request.prompt.ids),
            "prompt_cpu_ms": 1000 * (time.process_time() - began),
            "omitted": request.texts.context.omitted,
        }
        verdicts: dict[str, bool] = {}
        results = {}
        for arm in random.Random(task.name).sample(list(arms), len(arms)):
            written = self.runner.complete(arm, request, None)
            solved_by = _first_to_pass(task, written.drafts, verdicts)
            exact = written.drafts[:1] == [task.solution]
            results[arm.label] = {**written.record(), "solved_by": solved_by, "exact": exact}
        return {**record, "arms": results}


def infilling_request(runner: ArmRunner, task: Task) -> ArmRequest:
    """The request of a cursor in the gap. Several lines end where the model ends the text, or its tokens do."""
    request = runner.request(task.source, len(task.before), "python")
    if task.is_line:
        return request
    context = dataclasses.replace(request.texts.context, shape="block", indent="")
    return dataclasses.replace(request, texts=DraftText(runner.tokens, request.prompt, context))


def _first_to_pass(task: Task, drafts: Sequence[str], verdicts: dict[str, bool]) -> int:
    """The place, from 1, of the first draft that passes the tests; 0 if none does. A program is run once."""
    for place, draft in enumerate(drafts, 1):
        if draft not in verdicts:
            verdicts[draft] = passes(task.program(draft))
        if verdicts[draft]:
            return place
    return 0


def open_run(
    settings: Settings, benchmark: Path, out: Path, report: ReportProgress, tell: Callable[[str], None]
) -> InfillingRun:
    """Open the store of a model's results, then the model."""
    folder = locate(settings.model, tell)
    tokens = ModelTokenizer(folder)
    facts = {
        "model": settings.model,
        "tokenizer": tokens.fingerprint,
        "fill-in-the-middle format": tokens.fill_format.name if tokens.fill_format else "none",
        "file": f"{benchmark.name} {hashlib.sha256(benchmark.read_bytes()).hexdigest()[:16]}",
        "k": settings.drafts,
        "max_tokens": settings.max_tokens,
        "version": __version__,
    }
    store = ResultStore(out, facts)
    settings = dataclasses.replace(settings, context_tokens=_WHOLE_PROGRAM)
    runner = ArmRunner(load(folder, settings.device, tell), tokens, settings)
    return InfillingRun(facts, runner, store, report)
