"""What n-gram tables bring to a folder that they were not built from: completions with each, and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.evaluation.commands import open_quality_run
from spd_lsp.evaluation.quality.arms import FULL, Arm
from spd_lsp.evaluation.quality.held_out_ngrams import AddedTable
from spd_lsp.evaluation.quality.metrics import keystrokes_saved
from spd_lsp.evaluation.quality.store import Record
from spd_lsp.models.base import Engine
from spd_lsp.output.printable import as_json, printable
from spd_lsp.output.progress import ReportProgress, format_count

_SHOWN = 3  # places at which a table harms


@dataclass(frozen=True, slots=True)
class TableComparison:
    """The completions at some places, with each table and without."""

    k: int  # completions that are offered
    arms: Sequence[str]  # the first is without a table
    records: Sequence[Record]
    lines: Mapping[str, int]  # of each place's key, from 1

    def describe(self) -> Iterator[str]:
        """A line for each table and weight, and places at which it harms."""
        files = {record["example"]["file"] for record in self.records}
        yield f"{format_count(len(self.records), 'place')} in {format_count(len(files), 'file')}, in %"
        saved = "keystrokes saved"
        yield f"{'':28} {'EM@1':>6} {f'EM@{self.k}':>6} {saved:>17} {'better':>7} {'worse':>6}"
        first = self.arms[0]
        for arm in self.arms:
            better = self.moved_up(arm, first)
            worse = self.moved_up(first, arm)
            numbers = f"{self.matched(arm, 1):6.1f} {self.matched(arm, self.k):6.1f} {self.saved(arm):17.1f}"
            changes = "" if arm == first else f" {len(better):7} {len(worse):6}"
            yield f"{'none' if arm == first else arm:28} {numbers}{changes}"
        for arm in self.arms[1:]:
            for record in self.moved_up(first, arm)[:_SHOWN]:
                yield self._harm(arm, record)

    def matched(self, arm: str, k: int) -> float:
        """EM@k in percent."""
        return 100 * sum(self._rank(arm, record) < k for record in self.records) / len(self.records)

    def saved(self, arm: str) -> float:
        """Keystrokes that one acceptance at each place saves, in percent of what is to be typed."""
        pairs = [
            keystrokes_saved(self._drafts(arm, one), one["example"]["target"], self.k) for one in self.records
        ]
        return 100 * sum(saved for saved, _ in pairs) / sum(characters for _, characters in pairs)

    def moved_up(self, arm: str, other: str) -> list[Record]:
        """The places where what was written stands higher among one arm's completions than among another's."""
        return [one for one in self.records if self._rank(arm, one) < self._rank(other, one)]

    def _rank(self, arm: str, record: Record) -> int:
        """The place of what was written among the completions, from 0; as many as are offered where it is none."""
        shown = [*self._drafts(arm, record)[: self.k]]
        target = record["example"]["target"]
        return shown.index(target) if target in shown else self.k

    def _drafts(self, arm: str, record: Record) -> Sequence[str]:
        drafts: Sequence[str] = record["arms"][arm]["drafts"]
        return drafts

    def _harm(self, arm: str, record: Record) -> str:
        """Example: `django=0.3 harms app.py:7: "get(x)", number 1 without it, is number 2; number 1 is "pop()"`"""
        before, after = self._rank(self.arms[0], record), self._rank(arm, record)
        place = printable(f"{record['example']['file']}:{self.lines[record['key']]}")
        now = "is not offered" if after == self.k else f"is number {after + 1}"
        first = as_json(next(iter(self._drafts(arm, record)), ""))
        target = as_json(record["example"]["target"])
        return f"{arm} harms {place}: {target}, number {before + 1} without it, {now}; number 1 is {first}"


class _SharedReads:
    """A model that reads no draft of a prompt twice: with most tables and weights, most drafts are the same."""

    def __init__(self, model: Engine) -> None:
        self.model = model
        self.prompt: Sequence[int] = ()
        self.logits: Floats = np.empty(0)
        self.read: dict[tuple[int, ...], Floats] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def prefill(self, ids: Sequence[int], check: Callable[[], None] = lambda: None) -> Floats:
        """The logits after a prompt, which is read unless it is the last one."""
        if tuple(ids) != self.prompt:
            self.logits = self.model.prefill(ids, check)
            self.prompt = tuple(ids)
            self.read = {}
        return np.array(self.logits)

    def read_draft(self, draft: tuple[int, ...]) -> Floats:
        """The logits after a draft, which is read unless another arm has had it read."""
        if draft not in self.read:
            self.read[draft] = self.model.read_draft(draft)
        return np.array(self.read[draft])


def compare_tables(
    folder: Path, added: Sequence[AddedTable], options: dict[str, Any], places: int, report: ReportProgress
) -> TableComparison:
    """Complete at places in a folder without tables and with each; raise UserError if there is no code."""
    run = open_quality_run([folder], options, report, lambda text: None, may_leak=True)
    run.runner.model = cast(Engine, _SharedReads(run.runner.model))
    decoder = run.runner.completer.settings.decoder
    arms = [Arm(label, decoder, label, {}) for label in (FULL, *(table.label for table in added))]
    examples = run.primary_examples(places)
    (package,) = run.packages
    held_out = cache(run.package_ngrams(package, added).without)
    records = run.measure(examples, arms, held_out=held_out)
    files = {file.name: file.text for file in package.files}
    lines = {one.key: files[one.file].count("\n", 0, one.at) + 1 for one in examples}
    return TableComparison(run.options.drafts, [arm.label for arm in arms], records, lines)
