"""Perplexity of drafts by rank against nucleus, greedy and beam (table 1; table 3: other models).

The paper judges drafts of Llama-2-7B by Llama-2-70B. A judge that is the drafting model itself favours what that
model likes, greedy and beam most of all; so the same judge is also given the repository's n-grams, and beside
every judge stands how much of the real continuation was written.

Dimensions: N passages, K drafts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.evaluation.bootstrap import Interval, mean_interval, mean_intervals
from spd_lsp.evaluation.paper.drafting import (
    METHODS,
    REAL_TEXT,
    DraftWriter,
    Judge,
    matched_tokens,
    nats_with_ngrams,
)
from spd_lsp.evaluation.paper.passages import Passage
from spd_lsp.evaluation.report_writer import Cell, Panel, Report, ReportTable

Groups = Sequence[tuple[str, str]]  # repository and file of each passage


@dataclass(frozen=True, slots=True)
class DraftScores:
    """Nats a token of the drafts of one method at one passage [K], nan where a draft is missing."""

    nats: Floats
    nats_with_ngrams: Floats
    matched: Floats  # tokens before the first mistake
    passes: int
    rows: int


def measure(
    writer: DraftWriter,
    judge: Judge,
    passage: Passage,
    *,
    k: int,
    prefix: int,
    tokens: int,
) -> dict[str, DraftScores]:
    """Write k drafts by each method, and judge them all in one pass, the real text among them."""
    ids, truth = passage.prefix(prefix), passage.continuation(tokens)
    drafts = {method.name: writer.write(method, passage, k=k, prefix=prefix, tokens=tokens) for method in METHODS}
    texts = {REAL_TEXT: [truth]} | {name: [list(d.ids) for d in written.best] for name, written in drafts.items()}
    judged = iter(judge.nats(writer.tokens, ids, [text for of_method in texts.values() for text in of_method]))
    mixture = writer.mixtures.get(passage.repository) if judge.same_tokenizer else None
    scores = {}
    for name, of_method in texts.items():
        nats = [next(judged) for _ in of_method]
        informed = [nats_with_ngrams(n, mixture, ids, text) for n, text in zip(nats, of_method, strict=True)]
        scores[name] = DraftScores(
            _padded([float(n.mean()) for n in nats], k),
            _padded([float(n.mean()) for n in informed], k),
            _padded([float(matched_tokens(text, truth)) for text in of_method], k),
            drafts[name].passes if name in drafts else 0,
            drafts[name].rows if name in drafts else 0,
        )
    return scores


def _padded(values: Sequence[float], k: int) -> Floats:
    """Values of up to k drafts, nan for missing ones. -> [K]"""
    return np.array([*values, *[np.nan] * (k - len(values))])


def summarise(
    measured: Sequence[Mapping[str, DraftScores]], groups: Groups, facts: Mapping[str, Any], k: int
) -> Report:
    """The paper's mean of perplexities; perplexity of all tokens; that of the judge with n-grams; matches."""
    names = list(measured[0])
    nats = {name: np.stack([one[name].nats for one in measured]) for name in names}  # [N, K]
    informed = {name: np.stack([one[name].nats_with_ngrams for one in measured]) for name in names}
    matched = {name: np.stack([one[name].matched for one in measured]) for name in names}
    papers = {name: _by_rank(np.exp(nats[name]), groups, name) for name in names}
    overall = {name: perplexities(_by_rank(nats[name], groups, name)) for name in names}
    aware = {name: perplexities(_by_rank(informed[name], groups, name)) for name in names}
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
        _rank_table("Mean of the drafts' perplexities by the judge, as in table 1.", papers, k),
        _difference_table(nats, informed, groups),
        _rank_table("Perplexity over all tokens by the judge: the exponential of the mean nats.", overall, k),
        _rank_table("Perplexity over all tokens by the judge with the repository's n-grams.", aware, k),
        ReportTable(
            "Tokens of the real text before the first mistake, and the cost.",
            ["method", "draft 1", f"best of {k}", "passes", "positions read after the prompt"],
            matches,
        ),
    ]
    data = {name: {"perplexity": overall[name], "informed": aware[name]} for name in names}
    panels = [_panel("judge", overall, k), _panel("judge with n-grams", aware, k)]
    return Report("perplexity", "Perplexity of drafts by rank", facts, tables, data, panels)


def _rank_table(caption: str, by_rank: Mapping[str, Sequence[Interval]], k: int) -> ReportTable:
    """A row for each method: its drafts by rank, and the best of each passage."""
    heads = ["method", *(f"draft {rank + 1}" for rank in range(k)), "best"]
    return ReportTable(caption, heads, [[name, *ranks] for name, ranks in by_rank.items()])


def _difference_table(nats: Mapping[str, Floats], informed: Mapping[str, Floats], groups: Groups) -> ReportTable:
    """The best draft of each passage against one nucleus sample, which took as many passes or more."""
    rows: list[list[Cell]] = []
    for name in nats:
        if not _is_sampled(name) and name != REAL_TEXT:
            pairs = [(np.exp(nats[name]), np.exp(nats["nucleus"])), (informed[name], informed["nucleus"])]
            less = [np.nanmin(own, axis=1) - np.nanmean(other, axis=1) for own, other in pairs]
            rows.append([name, *mean_intervals(np.column_stack(less), groups)])
    caption = "The best draft of each passage less one nucleus sample, paired: below 0 it is more likely."
    heads = ["best draft by", "perplexity by the judge", "nats a token by the judge with n-grams"]
    return ReportTable(caption, heads, rows)


def _is_sampled(name: str) -> bool:
    """Whether drafts have no rank."""
    return name.startswith("nucleus")


def _by_rank(values: Floats, groups: Groups, name: str) -> list[Interval]:
    """The mean of each rank, and of the best draft of each passage. [N, K] -> K + 1 intervals"""
    ranked = values
    if _is_sampled(name):  # any sample stands for all
        ranked = np.repeat(np.nanmean(values, axis=1, keepdims=True), values.shape[1], axis=1)
    return mean_intervals(np.column_stack([ranked, np.nanmin(values, axis=1)]), groups)


def perplexities(nats: Iterable[Interval]) -> list[Interval]:
    """Nats a token -> perplexity."""
    return [Interval(*(float(np.exp(n)) for n in (one.mean, one.low, one.high))) for one in nats]


def _panel(judge: str, by_rank: Mapping[str, Sequence[Interval]], k: int) -> Panel:
    """Perplexity by rank, a row of points for each method."""
    series = {
        f"draft {rank + 1}" if rank < k else "best of all": [
            (name, ranks[rank]) for name, ranks in by_rank.items()
        ]
        for rank in range(k + 1)
    }
    return Panel(f"perplexity by the {judge} (95 %)", "", series, log="x", horizontal=True)
