"""Ablations: the number of drafts, the prefix, the length, and the n-grams (figures 9, 10, 11; table 4).

One factor is changed at a time, at the same passages. As in the paper, the best of the k superposed drafts stands
against one draft of nucleus sampling and of greedy decoding. N-grams here are the repository's alone, so that
orders and storage are all that differs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.ngrams import count_streams
from ngram_builders.table.writer import write_table
from spd_lsp.evaluation.bootstrap import Interval, mean_intervals
from spd_lsp.evaluation.paper.drafting import (
    NUCLEUS,
    PAPER,
    REPOSITORY_WEIGHT,
    SPD_LINEAR,
    SPD_PAPER,
    DraftWriter,
    Judge,
    Method,
)
from spd_lsp.evaluation.paper.passages import Passage, RepositorySplit
from spd_lsp.evaluation.paper.perplexity import DraftScores, measure, perplexities
from spd_lsp.evaluation.report_writer import Cell, Panel, Report, ReportTable
from spd_lsp.ngrams.interpolation import Mixture

_SINGLE = (Method("nucleus, one draft", "nucleus", NUCLEUS), Method("greedy", "greedy"))
_SUPERPOSED = (
    Method(SPD_PAPER, "superposed", PAPER, ngrams=True),
    Method(SPD_LINEAR, "superposed", ngrams=True),
)
PREFIXES = (15, 64, 128, 256, 512)
LENGTHS = (5, 10, 15, 20)
ORDER_SETS: Mapping[str, tuple[int, ...]] = {"none": (), "2-4": (2, 3, 4), "2-6": (2, 3, 4, 5, 6)}
_ALL_ORDERS = "2-6"


@dataclass(frozen=True, slots=True)
class Trial:
    """One value of one factor; the other fields are the baseline."""

    factor: str
    value: str
    drafts: int = 3
    prefix: int = 128
    tokens: int = 10
    orders: str = _ALL_ORDERS


_TRIALS = (
    *(Trial("drafts", str(k), drafts=k) for k in (1, 2, 3, 5, 8)),
    *(Trial("prefix", str(n), prefix=n) for n in PREFIXES),
    *(Trial("tokens", str(n), tokens=n) for n in LENGTHS),
    *(Trial("n-gram orders", name, orders=name) for name in ORDER_SETS),
)


def mixtures(splits: Sequence[RepositorySplit], vocab_size: int, orders: Sequence[int]) -> dict[str, Mixture]:
    """The n-grams of these orders by repository."""
    if not orders:
        return {}
    return {split.name: Mixture([[split.columns(vocab_size, orders)]], [REPOSITORY_WEIGHT]) for split in splits}


def stored_bytes(splits: Sequence[RepositorySplit], writer: DraftWriter, orders: Sequence[int]) -> int:
    """The size on disk of tables of these orders, all repositories together."""
    if not orders:
        return 0
    size = writer.tokens.vocab_size
    with tempfile.TemporaryDirectory() as folder:
        for n, split in enumerate(splits):
            write_table(
                Path(folder) / f"{n}.ngt",
                [count_streams(split.counted, orders=orders, vocab_size=size)],
                fingerprint=writer.tokens.fingerprint,
                vocab_size=size,
                orders=orders,
                min_count={},
                tokens=sum(map(len, split.counted)),
                files=len(split.counted),
                sources={},
            )
        return sum(path.stat().st_size for path in Path(folder).iterdir())


def run_trials(
    by_orders: Mapping[str, dict[str, Mixture]], writer: DraftWriter, judge: Judge, passage: Passage
) -> dict[Trial, dict[str, DraftScores]]:
    """All trials at one passage; trials with the same parameters are run once."""
    results: dict[Trial, dict[str, DraftScores]] = {}
    done: dict[tuple[int, int, int, str], dict[str, DraftScores]] = {}
    judge_ngrams = by_orders[_ALL_ORDERS].get(passage.repository)
    for trial in _TRIALS:
        parameters = (trial.drafts, trial.prefix, trial.tokens, trial.orders)
        if parameters not in done:
            with_orders = DraftWriter(writer.model, writer.tokens, by_orders[trial.orders])
            done[parameters] = _run_trial(with_orders, judge, passage, trial, judge_ngrams)
        results[trial] = done[parameters]
    return results


def _run_trial(
    writer: DraftWriter, judge: Judge, passage: Passage, trial: Trial, judge_ngrams: Mixture | None
) -> dict[str, DraftScores]:
    """The k superposed drafts, and single drafts."""
    scores: dict[str, DraftScores] = {}
    for k, methods in ((trial.drafts, _SUPERPOSED), (1, _SINGLE)):
        scores |= measure(
            writer, judge, passage, k=k, prefix=trial.prefix, tokens=trial.tokens, methods=methods,
            judge_ngrams=judge_ngrams,
        )  # fmt: skip
    return scores


def summarise(
    measured: Sequence[Mapping[Trial, Mapping[str, DraftScores]]],
    groups: Sequence[tuple[str, str]],
    facts: Mapping[str, Any],
    stored: Mapping[str, int],
) -> Report:
    """By factor, value and method: perplexity of the best draft by both judges, and matched tokens."""
    names = [method.name for method in (*_SUPERPOSED, *_SINGLE)]
    rows: list[list[Cell]] = []
    data: dict[str, dict[str, dict[str, list[Interval]]]] = {}
    for trial in measured[0]:
        for name in names:
            scores = _best_draft([one[trial][name] for one in measured], groups)
            size = f"{stored[trial.orders] / 1e6:.1f} MB" if trial.factor == "n-gram orders" else ""
            rows.append([trial.factor, trial.value, name, *scores, size])
            data.setdefault(trial.factor, {}).setdefault(name, {})[trial.value] = scores
    table = ReportTable(
        "The best draft of each passage. Baseline: 3 drafts, prefix 128, 10 tokens, orders 2-6.",
        ["factor", "value", "method", "mean perplexity", "perplexity of all tokens",
         "by the judge with n-grams", "tokens matched", "tables"],
        rows,
    )  # fmt: skip
    panels = [
        Panel(factor, "perplexity, judge with n-grams", {
            name: [(value, scores[2]) for value, scores in by_value.items()] for name, by_value in methods.items()
        }, log="y")
        for factor, methods in data.items()
    ]  # fmt: skip
    return Report("ablations", "Ablations", facts, [table], data, panels)


def _best_draft(scores: Sequence[DraftScores], groups: Sequence[tuple[str, str]]) -> list[Interval]:
    """Mean perplexity, perplexity, that by the judge with n-grams, matched tokens: each of its best draft."""
    nats = np.array([np.nanmin(one.nats) for one in scores])
    informed = np.array([np.nanmin(one.nats_with_ngrams) for one in scores])
    matched = np.array([np.nanmax(one.matched) for one in scores])
    columns = np.column_stack([np.exp(nats), nats, informed, matched])
    papers, judged, aware, tokens = mean_intervals(columns, groups)
    return [papers, *perplexities([judged, aware]), tokens]
