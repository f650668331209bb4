"""Perplexity of drafts by rank against nucleus, greedy and beam (table 1; table 3: other models).

The paper judges drafts of Llama-2-7B by Llama-2-70B. Here the drafting model judges its own, which favours what
that model likes, greedy and beam most of all; so beside it stands how much of the real continuation was written.

Dimensions: N passages, K drafts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.evaluation.bootstrap import Interval, mean_interval, mean_intervals
from spd_lsp.evaluation.paper.drafting import METHODS, REAL_TEXT, DraftWriter, matched_tokens, nats
from spd_lsp.evaluation.paper.passages import Passage
from spd_lsp.evaluation.report_writer import Cell, Report, ReportTable

Groups = Sequence[tuple[str, str]]  # repository and file of each passage


@dataclass(frozen=True, slots=True)
class DraftScores:
    """What the drafts of one method are at one passage [K], nan where a draft is missing."""

    nats: Floats  # a token
    matched: Floats  # tokens before the first mistake
    passes: int = 0
    rows: int = 0


def measure(writer: DraftWriter, passage: Passage, *, k: int, prefix: int, tokens: int) -> dict[str, DraftScores]:
    """Write k drafts by each method, and judge them all in one pass, the real text among them."""
    ids = passage.prefix(prefix)
    truth = passage.continuation(tokens)
    drafts = {method.name: writer.write(method, passage, k=k, prefix=prefix, tokens=tokens) for method in METHODS}
    texts = {REAL_TEXT: [truth]} | {name: [list(d.ids) for d in written.best] for name, written in drafts.items()}
    judged = iter(nats(writer.model, ids, [text for of_method in texts.values() for text in of_method]))
    scores = {}
    for name, of_method in texts.items():
        means = [float(next(judged).mean()) for _ in of_method]
        matched = [float(matched_tokens(text, truth)) for text in of_method]
        costs = (drafts[name].passes, drafts[name].rows) if name in drafts else ()
        scores[name] = DraftScores(_padded(means, k), _padded(matched, k), *costs)
    return scores


def _padded(values: Sequence[float], k: int) -> Floats:
    """Values of up to k drafts, nan for missing ones. -> [K]"""
    return np.array([*values, *[np.nan] * (k - len(values))])


def summarise(
    measured: Sequence[Mapping[str, DraftScores]], groups: Groups, facts: Mapping[str, Any], k: int
) -> Report:
    """The paper's mean of perplexities, less that of a nucleus sample; matches and cost."""
    names = list(measured[0])
    nats = {name: np.stack([one[name].nats for one in measured]) for name in names}  # [N, K]
    matched = {name: np.stack([one[name].matched for one in measured]) for name in names}
    papers = {name: _by_rank(np.exp(nats[name]), groups, name) for name in names}
    matches: list[list[Cell]] = [
        [
            name,
            mean_interval(matched[name][:, 0], groups),
            mean_interval(np.nanmax(matched[name], axis=1), groups),
            float(np.mean([one[name].passes for one in measured])),
            float(np.mean([one[name].rows for one in measured])),
        ]
        for name in names
        if name != REAL_TEXT
    ]
    tables = [
        ReportTable(
            "Mean of the drafts' perplexities, as in table 1.",
            ["method", *(f"draft {rank + 1}" for rank in range(k)), "best"],
            [[name, *ranks] for name, ranks in papers.items()],
        ),
        _difference_table(nats, groups),
        ReportTable(
            "Tokens of the real text before the first mistake, and the cost.",
            ["method", "draft 1", f"best of {k}", "passes", "positions read after the prompt"],
            matches,
        ),
    ]
    return Report("perplexity", "Perplexity of drafts by rank", facts, tables, papers)


def _difference_table(nats: Mapping[str, Floats], groups: Groups) -> ReportTable:
    """The best draft of each passage against one nucleus sample, which took as many passes or more."""
    sample = np.nanmean(np.exp(nats["nucleus"]), axis=1)
    rows: list[list[Cell]] = [
        [name, mean_interval(np.nanmin(np.exp(own), axis=1) - sample, groups)]
        for name, own in nats.items()
        if not _is_sampled(name) and name != REAL_TEXT
    ]
    caption = "The best draft of each passage less one nucleus sample, paired: below 0 it is more likely."
    return ReportTable(caption, ["best draft by", "perplexity"], rows)


def _is_sampled(name: str) -> bool:
    """Whether drafts have no rank."""
    return name.startswith("nucleus")


def _by_rank(values: Floats, groups: Groups, name: str) -> list[Interval]:
    """The mean of each rank, and of the best draft of each passage. [N, K] -> K + 1 intervals"""
    ranked = values
    if _is_sampled(name):  # any sample stands for all
        ranked = np.repeat(np.nanmean(values, axis=1, keepdims=True), values.shape[1], axis=1)
    return mean_intervals(np.column_stack([ranked, np.nanmin(values, axis=1)]), groups)
