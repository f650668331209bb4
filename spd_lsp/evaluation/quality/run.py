"""Run every arm on every example: from packages and options to records in a store.

Leaks are refused before a model is loaded. The prompt of an example is read once, untimed; then every arm finds
its positions in the cache, in an order drawn for that example. So arms differ only in how they decode, and a slow
stretch of the machine hits all of them alike.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from spd_lsp import __version__
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.completion.typed_along import CompletionRequest
from spd_lsp.evaluation.quality.arm_runner import ArmRequest, ArmResult, ArmRunner
from spd_lsp.evaluation.quality.arms import ARM_KINDS, Arm
from spd_lsp.evaluation.quality.examples import PRIMARY, Example, PackageFile, PackageFiles, sample_examples
from spd_lsp.evaluation.quality.held_out_ngrams import AddedTable, HeldOutNgrams, PackageNgrams
from spd_lsp.evaluation.quality.leaks import refuse_leaks
from spd_lsp.evaluation.quality.metrics import type_line
from spd_lsp.evaluation.quality.store import Record, ResultStore
from spd_lsp.models.checkpoint.hub import STARTER, bundled_tables, locate, shipped_settings
from spd_lsp.models.llama.prepared import read_source
from spd_lsp.models.load import load
from spd_lsp.output.progress import ReportProgress
from spd_lsp.settings import Settings

HeldOut = Callable[[PackageFile], HeldOutNgrams]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """What the user chose."""

    model: str = STARTER
    device: str = "auto"
    drafts: int = 3
    files: int = 25
    seed: int = 0
    max_tokens: int = 24
    language: Sequence[str] = ("python",)
    out: Path = Path("eval-quality")


@dataclass(frozen=True, slots=True)
class QualityRun:
    """Packages, examples, a model and the store of results."""

    options: RunOptions
    packages: Sequence[PackageFiles]
    examples: Sequence[Example]
    tokens: ModelTokenizer
    folder: Path  # of the model
    trained_on: str  # a sentence for the report
    store: ResultStore
    runner: ArmRunner
    report: ReportProgress

    @property
    def facts(self) -> dict[str, Any]:
        """What it takes to reproduce the results."""
        return _facts_of(self.options, self.packages, self.folder) | {"trained on": self.trained_on}

    def primary_examples(self, limit: int | None = None) -> Sequence[Example]:
        """The first examples of the primary strata."""
        return [example for example in self.examples if example.stratum in PRIMARY][:limit]

    def package_ngrams(self, package: PackageFiles, added: Sequence[AddedTable] = ()) -> PackageNgrams:
        """Count a package's n-grams; the starter's built-in tables stand beside them, and those added."""
        return PackageNgrams(package, self.tokens, bundled_tables(self.options.model, self.folder), added)

    def held_out_ngrams(self) -> HeldOut:
        """A function from a file to what the others know of it; a package is counted once."""
        packages = {package.name: package for package in self.packages}
        counts = cache(lambda name: self.package_ngrams(packages[name]))
        return lambda file: counts(file.package).without(file)

    def measure(
        self, examples: Sequence[Example], arms: Sequence[Arm], *, typed: int = 0, held_out: HeldOut | None = None
    ) -> list[Record]:
        """Measure what the store lacks and return the records of these examples.

        The lines of the first `typed` primary examples are also typed. `held_out` replaces `held_out_ngrams`.
        """
        held_out = held_out or self.held_out_ngrams()
        primary = [example.key for example in examples if example.stratum in PRIMARY]
        typed_keys = frozenset(primary[:typed])
        stored = {record["key"]: record for record in self.store.records()}
        files = {(file.package, file.name): file for package in self.packages for file in package.files}
        done = 0
        for (package, name), group in groupby(examples, lambda example: (example.package, example.file)):
            work = [(e, *_missing_arms(e, arms, typed_keys, stored.get(e.key, {}))) for e in group]
            if any(asked or typing for _, asked, typing in work):
                file = files[package, name]
                ngrams = held_out(file)
            for number, (example, asked, typing) in enumerate(work, done):
                self.report("examples", number, len(examples))
                if asked or typing:
                    trial = ExampleTrial(example, file, ngrams, self.runner)
                    self.store.append(trial.record(asked, typing))
            done += len(work)
        self.report("examples", len(examples), len(examples))
        keys = {example.key for example in examples}
        return [record for record in self.store.records() if record["key"] in keys]


def _missing_arms(
    example: Example, arms: Sequence[Arm], typed: frozenset[str], record: Record
) -> tuple[list[Arm], list[Arm]]:
    """The arms that an example's record lacks, and those it lacks a typed line of."""
    asked = [arm for arm in arms if arm.label not in record.get("arms", {})]
    typing = [arm for arm in arms if arm.types_lines and example.key in typed]
    return asked, [arm for arm in typing if arm.label not in record.get("typed", {})]


class ExampleTrial:
    """All arms on one example."""

    def __init__(self, example: Example, file: PackageFile, ngrams: HeldOutNgrams, runner: ArmRunner) -> None:
        self.example = example
        self.file = file
        self.line_seen = ngrams.line_seen(example)
        self.runner = runner
        self.mixtures = ngrams.mixtures(example)
        self.around = cache(lambda: ngrams.surroundings(example))

    def record(self, asked: Sequence[Arm], typing: Sequence[Arm]) -> Record:
        """Complete with some arms, and type the line with some."""
        example = self.example
        record: Record = {"key": example.key, "example": dataclasses.asdict(example), "seen": self.line_seen}
        if asked:
            record |= self._results(asked)
        if typing:
            record["typed"] = {arm.label: self._typed_line(arm) for arm in typing}
        return record

    def _results(self, arms: Sequence[Arm]) -> dict[str, Any]:
        """What each arm writes, in an order drawn for this example."""
        request = self._request()
        warm_ms = self.runner.warm_up(request)
        order = random.Random(self.example.key).sample(list(arms), len(arms))
        results = {arm.label: self._complete(arm, request).record() for arm in order}
        return {"prompt_tokens": len(request.prompt.ids), "warm_ms": warm_ms, "arms": results}

    def _typed_line(self, arm: Arm) -> Mapping[str, int]:
        target = self.example.target
        most = arm.settings.get("drafts", self.runner.settings.drafts)
        text = text_without_target(self.file.text, self.example, "")
        start = CompletionRequest(text, self.example.at, self.file.language, None, "", explicit=False)
        line = type_line(
            target, lambda written: self._complete(arm, self._request(written)).completions, most, start
        )
        return dataclasses.asdict(line)

    def _request(self, written: str = "") -> ArmRequest:
        """The request once so much of the target is written."""
        text = text_without_target(self.file.text, self.example, written)
        return self.runner.request(text, self.example.at + len(written), self.file.language)

    def _complete(self, arm: Arm, request: ArmRequest) -> ArmResult:
        around = self.around() if ARM_KINDS[arm.kind].is_text else None
        return self.runner.complete(arm, request, self.mixtures[arm.prior], around)


def text_without_target(text: str, example: Example, written: str) -> str:
    """The file with only `written` of the target."""
    end = example.line_end
    if text[end - 1 : end] == "\n":
        end -= 1
    return text[: example.at] + written + text[end:]


def open_run(
    packages: Sequence[PackageFiles],
    options: RunOptions,
    report: ReportProgress,
    tell: Callable[[str], None],
    *,
    may_leak: bool = False,
) -> QualityRun:
    """Sample examples, refuse packages that the model was trained on unless they may leak, load the model."""
    examples = sample_examples(packages, options.seed, options.files, options.language)
    folder = locate(options.model, tell)
    tokens = ModelTokenizer(folder)
    store = ResultStore(options.out, _facts_of(options, packages, folder))
    trained_on = "not compared" if may_leak else refuse_leaks(packages, folder)
    chosen = Settings(drafts=options.drafts, max_tokens=options.max_tokens)
    made_for: dict[str, Any] = dict(shipped_settings(options.model, folder))
    settings = dataclasses.replace(chosen, **made_for)
    runner = ArmRunner(load(folder, options.device, tell), tokens, settings)
    return QualityRun(options, packages, examples, tokens, folder, trained_on, store, runner, report)


def _facts_of(options: RunOptions, packages: Sequence[PackageFiles], folder: Path) -> dict[str, Any]:
    """What decides the results of an example; results with other facts are not mixed with these."""
    return {
        "model": options.model,
        "weights": _weights_digest(folder),
        "packages": ", ".join(package.name for package in packages),
        "seed": options.seed,
        "k": options.drafts,
        "max_tokens": options.max_tokens,
        "version": __version__,
    }


def _weights_digest(folder: Path) -> str:
    """The first digits of a SHA-256 digest of a model's weights."""
    gguf = read_source(folder)
    weights = hashlib.sha256()
    for path in [Path(gguf.path)] if gguf else sorted(folder.glob("*.safetensors")):
        weights.update(path.read_bytes())
    return weights.hexdigest()[:16]
