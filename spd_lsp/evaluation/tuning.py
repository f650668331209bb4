"""Tune settings for a model on repositories: coordinate descent on half of the files, judged on the other half.

All measurements are kept in the run's store, so that an interrupted search resumes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

import numpy as np

from ngram_builders.arrays import F64
from ngram_builders.ngrams import ORDERS
from ngram_builders.registry.domains import DEFAULT_WEIGHT
from ngram_builders.sources.language_ids import closest_language
from ngram_builders.table.order_weights import OrderWeights
from spd_lsp.evaluation.bootstrap import Bootstrap, Interval
from spd_lsp.evaluation.coordinate_descent import Search, descend
from spd_lsp.evaluation.quality.arms import FULL, Arm
from spd_lsp.evaluation.quality.examples import Example, PackageFile, PackageFiles
from spd_lsp.evaluation.quality.held_out_ngrams import HeldOutNgrams, PackageNgrams
from spd_lsp.evaluation.quality.run import QualityRun
from spd_lsp.evaluation.quality.store import Record
from spd_lsp.evaluation.report_writer import Cell, Report, ReportTable, plain_points
from spd_lsp.ngrams.interpolation import BUILT_IN_WEIGHT, ORDER_WEIGHTS
from spd_lsp.ngrams.tuned_settings import WEIGHTS_KEY, Tuned
from spd_lsp.ngrams.weight_fitting import MAX_FIT_TOKENS, Observed, ScoringModel, fit_weights, observe_documents
from spd_lsp.settings import Settings

REPORT_NAME = "tune"
_READING_COST = 0.25  # keystrokes that reading a draft costs; a guess


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The settings to keep, and the report."""

    kept: Mapping[str, Any]  # for `write_tuned`; empty if the defaults are no worse
    search: Search
    report: Report


@dataclass(frozen=True, slots=True)
class Drafts:
    """Drafts of some examples [D]: their calibrated probability, whether they match, and their length."""

    probability: F64
    right: F64
    characters: F64
    examples: int

    def keystrokes_saved(self, min_probability: float) -> float:
        """Keystrokes an example that drafts save, less the cost of reading those that are shown."""
        shown = self.probability >= min_probability
        return float(((self.right * (self.characters - 1) - _READING_COST) * shown).sum() / max(self.examples, 1))


class Tuner:
    """Measures settings on examples; order weights are fitted when a setting first needs them."""

    def __init__(self, run: QualityRun, examples: Sequence[Example]) -> None:
        self.run = run
        self.k = run.options.drafts
        self.examples = examples  # the half by which settings are chosen
        packages = {package.name: package for package in run.packages}
        self._ngrams = cache(lambda name: run.package_ngrams(packages[name]))
        self._held_out = cache(self._without)
        self._order_weights: OrderWeights | None = None

    def _without(self, file: PackageFile, fitted: bool) -> HeldOutNgrams:
        ngrams: PackageNgrams = self._ngrams(file.package)
        return ngrams.without(file, self.order_weights() if fitted else None)

    def order_weights(self) -> OrderWeights:
        """Fit order weights to the files of the examples."""
        if self._order_weights is None:
            read = [one for number, package in enumerate(self.run.packages) for one in self._read(package, number)]
            fit = fit_weights(read)
            rows = fit.weights if fit else ORDER_WEIGHTS
            # Rounded down, so that no row sums to more than 1.
            self._order_weights = tuple(tuple(math.floor(1e4 * weight) / 1e4 for weight in row) for row in rows)
        return self._order_weights

    def _read(self, package: PackageFiles, number: int) -> Iterator[Observed]:
        """What orders and model say of the examples' files, each without its own counts."""
        self.run.report("weights", number, len(self.run.packages))
        names = {example.file for example in self.examples if example.package == package.name}
        ngrams: PackageNgrams = self._ngrams(package.name)
        streams = [stream for file, stream in zip(ngrams.files, ngrams.streams, strict=True) if file.name in names]
        languages = {closest_language(file.language, ngrams.built_in) for file in ngrams.files}
        built_in = [[table.columns] for name, table in ngrams.built_in.items() if name in languages]
        shares = [DEFAULT_WEIGHT, *(BUILT_IN_WEIGHT for _ in built_in)]
        model = cast(ScoringModel, self.run.runner.model)  # as `load` opened it
        limit = MAX_FIT_TOKENS // len(self.run.packages)
        yield from observe_documents(model, [[ngrams.columns], *built_in], shares, streams, ORDERS, limit)

    def measure(self, settings: Sequence[Tuned], examples: Sequence[Example]) -> list[Record]:
        """The records of these examples, with all settings in them."""
        for fitted in (False, True):
            if arms := [arm_of(one) for one in settings if (WEIGHTS_KEY in one) == fitted]:
                self.run.measure(examples, arms, held_out=partial(self._held_out, fitted=fitted))
        keys = {example.key for example in examples}
        return [record for record in self.run.store.records() if record["key"] in keys]

    def score(self, settings: Sequence[Tuned]) -> list[tuple[float, ...]]:
        """EM@k, then EM@1, of each."""
        records = self.measure(settings, self.examples)
        return [tuple(float(_matches(records, one, n).mean()) for n in (self.k, 1)) for one in settings]


def arm_of(settings: Tuned) -> Arm:
    """The arm of some settings."""
    chosen = {name: value for name, value in settings.items() if name != WEIGHTS_KEY}
    label = ":".join(["superposed", *(f"{name}={value}" for name, value in settings.items())])
    return Arm(f"{label}@{FULL}", "superposed", FULL, chosen)


def _matches(records: Sequence[Record], settings: Tuned, k: int) -> F64:
    """Whether one of the first k drafts is an exact match. [N]"""
    label = arm_of(settings).label
    return np.array([float(one["example"]["target"] in one["arms"][label]["drafts"][:k]) for one in records])


def tune_settings(run: QualityRun, examples: Sequence[Example]) -> TuningResult:
    """Search on one half of the files, judge on the other, and say what to keep."""
    names = {example.key: f"{example.package}/{example.file}" for example in examples}
    second_half = frozenset(sorted(set(names.values()))[1::2])
    chosen_by, judged_by = (
        [e for e in examples if (names[e.key] in second_half) == half] for half in (False, True)
    )
    tuner = Tuner(run, chosen_by)
    search = descend(tuner.score)
    records = tuner.measure([{}, search.best], judged_by)
    gains = {n: _gain(records, search.best, n) for n in (1, tuner.k)}
    kept: dict[str, Any] = dict(search.best) if gains[tuner.k].mean > 0 else {}
    best: Tuned = search.best if kept else {}
    bound = _best_min_probability(_drafts_of(tuner.measure([best], chosen_by), best, tuner.k), best)
    drafts = _drafts_of(records, best, tuner.k)
    if kept.get(WEIGHTS_KEY):
        kept[WEIGHTS_KEY] = tuner.order_weights()
    if bound and drafts.keystrokes_saved(bound) > drafts.keystrokes_saved(Settings().min_probability):
        kept["min_probability"] = bound
    tables = [
        _gain_table(records, search, gains, tuner.k),
        _search_table(search, tuner.k),
        _bound_table(drafts, bound),
    ]
    facts = {**run.facts, "examples to choose by": len(chosen_by), "examples to judge by": len(judged_by)}
    weights = tuner.order_weights() if any(WEIGHTS_KEY in one for one in search.tried) else ()
    data = {"kept": kept, "best": search.best, "weights": weights}
    return TuningResult(kept, search, Report(REPORT_NAME, "Tuned settings", facts, tables, data))


def _gain(records: Sequence[Record], settings: Tuned, k: int) -> Interval:
    """EM@k of settings less that of the defaults, paired."""
    examples = [record["example"] for record in records]
    bootstrap = Bootstrap([one["package"] for one in examples], [one["file"] for one in examples])
    gains = _matches(records, settings, k) - _matches(records, {}, k)
    return bootstrap.intervals(gains[:, None], np.ones((len(gains), 1)))[0]


def _drafts_of(records: Sequence[Record], settings: Tuned, k: int) -> Drafts:
    label = arm_of(settings).label
    rows = [
        (p, float(text == one["example"]["target"]), float(len(text)))
        for one in records
        for text, p in zip(one["arms"][label]["drafts"][:k], one["arms"][label]["probabilities"], strict=False)
    ]
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return Drafts(table[:, 0], table[:, 1], table[:, 2], len(records))


def _best_min_probability(drafts: Drafts, settings: Tuned) -> float:
    """The probability from which drafts are worth reading; 0 where drafts have no calibrated probability."""
    defaults = Settings()
    for name in ("ranking", "interpolation"):
        if settings.get(name, getattr(defaults, name)) != getattr(defaults, name):
            return 0.0
    order = np.argsort(-drafts.probability, kind="stable")
    saved = np.cumsum(np.where(drafts.right[order] > 0, drafts.characters[order] - 1, 0) - _READING_COST)
    if not len(saved) or saved[-1] >= saved.max():
        return 0.0
    last = int(np.flatnonzero(saved == saved.max())[-1])
    return math.floor(1000 * float(drafts.probability[order][last])) / 1000


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Example: `temperature 0.3, ranking mean`"""
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "defaults"


def _gain_table(records: Sequence[Record], search: Search, gains: Mapping[int, Interval], k: int) -> ReportTable:
    """The defaults and the best settings, on the files that nothing was chosen by."""
    rows: list[list[Cell]] = [
        [describe_settings(one), *(f"{100 * _matches(records, one, n).mean():.1f}" for n in (1, k))]
        for one in ([{}, search.best] if search.best else [{}])
    ]
    if search.best:
        rows.append(["difference", *(plain_points(gains[n]) for n in (1, k))])
    caption = f"On {len(records)} examples of files that nothing was chosen by, in percent, with 95 % intervals"
    return ReportTable(caption, ["settings", "EM@1", f"EM@{k}"], rows)


def _search_table(search: Search, k: int) -> ReportTable:
    """All settings, step by step, with the choice of each step marked."""
    rows: list[list[Cell]] = [
        [step.coordinate, describe_settings(one), f"{100 * score[1]:.1f}", f"{100 * score[0]:.1f}",
         "*" * (i == step.best)]
        for step in search.steps
        for i, (one, score) in enumerate(zip(step.tried, step.scores, strict=True))
    ]  # fmt: skip
    return ReportTable("The search, in percent", ["step", "settings", "EM@1", f"EM@{k}", "kept"], rows)


def _bound_table(drafts: Drafts, tuned: float) -> ReportTable:
    """What hiding improbable drafts gains, on the files that nothing was chosen by."""
    rows: list[list[Cell]] = []
    for bound in sorted({0.0, tuned, 0.02, 0.05, 0.1, 0.2}):
        shown = drafts.probability >= bound
        right, said = (
            f"{100 * values[shown].mean():.1f}" if shown.any() else "-"
            for values in (drafts.right, drafts.probability)
        )
        offered = f"{shown.sum() / max(drafts.examples, 1):.2f}"
        saved = drafts.keystrokes_saved(bound)
        rows.append([f"{bound:.3f}", offered, right, said, saved, "*" * (bound == tuned)])
    caption = f"Drafts hidden below a probability; reading one costs {_READING_COST} keystrokes"
    heads = ["min_probability", "drafts an example", "right, %", "calibrated, %", "keystrokes saved", "tuned"]
    return ReportTable(caption, heads, rows)
