"""Coverage at equal compute: nucleus samples, and samples finished by superposed decoding (section 4.5, table 2).

The share of lines that one of the completions matches, by the number n of samples paid for. A sample whose first
tokens are drawn and then finished by k superposed drafts costs the passes of one sample. A third kind finishes the
same beginnings greedily: what is gained over it is due to superposing, the rest to drawing fewer tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.evaluation.bootstrap import mean_intervals
from spd_lsp.evaluation.paper.drafting import DEFAULTS, NUCLEUS, DraftWriter, continued, nucleus_samples
from spd_lsp.evaluation.paper.passages import Passage
from spd_lsp.evaluation.report_writer import Cell, Panel, Report, ReportTable

_BUDGETS = (1, 2, 5, 10, 20)
_SAMPLED_TOKENS = 3  # before superposed decoding begins
FINISHES = {"nucleus": 0, "nucleus then greedy": 1, "nucleus then SPD-2": 2, "nucleus then SPD-3": 3}
_SUFFIXES = {"": False, ", linear n-grams": True}

TokenIds = tuple[int, ...]


def rest_of_line_ids(tokens: ModelTokenizer, passage: Passage, limit: int) -> str | None:
    """What follows up to the end of the line, or None if that is nothing or longer than this many tokens."""
    text = tokens.bytes_of(passage.continuation(limit)).decode(errors="ignore")
    line, newline, _ = text.partition("\n")
    return line.rstrip() if newline and line.strip() else None


def added_text(tokens: ModelTokenizer, ids: Sequence[int]) -> str:
    """The text that a draft adds to the line."""
    return tokens.bytes_of(ids).decode(errors="ignore").partition("\n")[0].rstrip()


def coverage_at(right: int, drawn: int, n: int) -> float:
    """The chance that n of the samples hold a right one: 1 - C(drawn - right, n) / C(drawn, n).

    Chen et al., "Evaluating Large Language Models Trained on Code", 2021, equation 1.

    Example: 1 right of 2, n = 1 -> .5.
    """
    if drawn - right < n:
        return 1.0
    return float(1 - np.prod(1 - n / np.arange(drawn - right + 1, drawn + 1)))


def measure(
    writer: DraftWriter,
    passage: Passage,
    truth: str,
    *,
    prefix: int,
    tokens: int,
    budgets: Sequence[int] = _BUDGETS,
) -> dict[str, list[float]]:
    """Coverage by budget, and passes a sample, for each finish with and without n-grams."""
    results: dict[str, list[float]] = {}
    for suffix, ngrams in _SUFFIXES.items():
        start = replace(
            writer.start(passage, prefix, ngrams=ngrams),
            stop=lambda ids: _ends_line(writer.tokens, ids),
            text_of=lambda ids: added_text(writer.tokens, ids),
        )
        finish = _finisher(writer, start, tokens)
        settings = replace(NUCLEUS, drafts=max(budgets), max_tokens=tokens)
        samples = [tuple(draft.ids) for draft in nucleus_samples(writer.model, start, settings).best]
        for name, k in FINISHES.items():
            finished = [
                finish(ids[:_SAMPLED_TOKENS], k) if k and len(ids) > _SAMPLED_TOKENS else ([ids], len(ids))
                for ids in samples
            ]
            right = sum(truth in {added_text(writer.tokens, ids) for ids in texts} for texts, _ in finished)
            passes = float(np.mean([passes for _, passes in finished]))
            results[name + suffix] = [*(coverage_at(right, len(samples), n) for n in budgets), passes]
    return results


def _finisher(
    writer: DraftWriter, start: DecodingRequest, tokens: int
) -> Callable[[TokenIds, int], tuple[list[TokenIds], int]]:
    """A function that finishes a sample's beginning with k drafts and counts the passes, each beginning once."""

    @cache
    def finish(beginning: TokenIds, k: int) -> tuple[list[TokenIds], int]:
        settings = replace(DEFAULTS, drafts=k, max_tokens=tokens - _SAMPLED_TOKENS)
        drafts = superpose(writer.model, continued(start, beginning), settings)
        # The first pass reads the last drawn token, as the sample's own next pass would.
        return [(*beginning, *draft.ids) for draft in drafts.best], _SAMPLED_TOKENS + drafts.passes

    return finish


def _ends_line(tokens: ModelTokenizer, ids: Sequence[int]) -> bool:
    """Whether a draft has ended its line or its text."""
    return tokens.ends(ids[-1]) or b"\n" in tokens.bytes_of(ids[-1:])


def summarise(
    measured: Sequence[Mapping[str, Sequence[float]]],
    groups: Sequence[tuple[str, str]],
    facts: Mapping[str, Any],
    budgets: Sequence[int] = _BUDGETS,
) -> Report:
    """Coverage in percent by budget, as table 2; and what each finish adds to plain samples, paired."""
    percent = {name: 100 * np.array([one[name][:-1] for one in measured]) for name in measured[0]}  # [N, budgets]
    passes = {name: float(np.mean([one[name][-1] for one in measured])) for name in measured[0]}
    covered = {name: mean_intervals(values, groups) for name, values in percent.items()}
    gains = {
        name + suffix: mean_intervals(percent[name + suffix] - percent[f"nucleus{suffix}"], groups)
        for suffix in _SUFFIXES
        for name, k in FINISHES.items()
        if k
    }
    heads = ["method", *(f"n = {n}" for n in budgets)]
    rows: list[list[Cell]] = [[name, *values, passes[name]] for name, values in covered.items()]
    tables = [
        ReportTable(
            "Lines that a completion matches, in percent, by samples paid for.",
            [*heads, "passes a sample"],
            rows,
            digits=1,
        ),
        ReportTable(
            "Percentage points more than plain samples with the same n-grams, paired.",
            heads,
            [[name, *values] for name, values in gains.items()],
            digits=1,
        ),
    ]
    panels = [
        Panel("samples paid for", label, {
            name: list(zip(budgets, values, strict=True)) for name, values in lines.items()
        }, log="x")
        for label, lines in (("lines matched, %", covered), ("points more than plain samples", gains))
    ]  # fmt: skip
    data = {"budgets": list(budgets), "methods": covered, "more": gains}
    return Report("coverage", "Coverage at equal compute", facts, tables, data, panels)
