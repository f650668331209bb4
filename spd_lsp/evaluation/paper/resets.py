"""Long completions with and without resets (section 5.3, appendix I): does starting again stop repetition?

Every s tokens one draft goes on alone, from a cache that holds its own tokens. The paper samples that draft, here
with equal probability; the product takes the best one, so that the same input gives the same drafts. Both are
tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from spd_lsp.decoding.superposed import superpose
from spd_lsp.evaluation.bootstrap import mean_intervals
from spd_lsp.evaluation.paper.diversity import distinct_share
from spd_lsp.evaluation.paper.drafting import (
    DEFAULTS,
    NUCLEUS,
    PAPER,
    REAL_TEXT,
    SPD_LINEAR,
    SPD_PAPER,
    DraftWriter,
    Judge,
    Method,
    nats_with_ngrams,
)
from spd_lsp.evaluation.paper.passages import Passage
from spd_lsp.evaluation.paper.perplexity import perplexities
from spd_lsp.evaluation.report_writer import Cell, Panel, Report, ReportTable
from spd_lsp.settings import Settings

_INTERVALS = (0, 10, 20, 40)  # tokens between resets to the best draft
_SAMPLED_INTERVALS = (10, 20)  # tokens between resets to a sampled draft
_FORMULAS = ((SPD_PAPER, PAPER), (SPD_LINEAR, DEFAULTS))
_PARTS = 4  # of a draft, at whose ends repetition is measured
_METHODS = (
    *(
        Method(name + (f", reset every {s}" if s else ""), "superposed", replace(base, reset_every=s), ngrams=True)
        for name, base in _FORMULAS
        for s in _INTERVALS
    ),
    Method("greedy, linear n-grams", "greedy", ngrams=True),
    Method("nucleus", "nucleus", NUCLEUS),
    Method("nucleus, linear n-grams", "nucleus", NUCLEUS, ngrams=True),
)


def measure(
    writer: DraftWriter, judge: Judge, passage: Passage, *, k: int, prefix: int, tokens: int
) -> dict[str, list[float]]:
    """For the first draft of each method: distinct trigrams up to each part, and nats a token by both judges."""
    ids = passage.prefix(prefix)
    texts = {REAL_TEXT: passage.continuation(tokens)}
    for method in _METHODS:
        drafts = 1 if method.decoder == "nucleus" else k
        texts[method.name] = list(
            writer.write(method, passage, k=drafts, prefix=prefix, tokens=tokens).best[0].ids
        )
    for name, base in _FORMULAS:
        for every in _SAMPLED_INTERVALS:
            settings = replace(base, drafts=k)
            text = write_with_sampled_resets(writer, passage, settings, prefix=prefix, tokens=tokens, every=every)
            texts[f"{name}, sampled every {every}"] = text
    mixture = writer.mixtures.get(passage.repository) if judge.same_tokenizer else None
    judged = judge.nats(writer.tokens, ids, list(texts.values()))
    return {
        name: [
            *(distinct_share(text[: tokens * part // _PARTS], 3) for part in range(1, _PARTS + 1)),
            float(nats.mean()),
            float(nats_with_ngrams(nats, mixture, ids, text).mean()),
        ]
        for (name, text), nats in zip(texts.items(), judged, strict=True)
    }


def write_with_sampled_resets(
    writer: DraftWriter, passage: Passage, settings: Settings, *, prefix: int, tokens: int, every: int
) -> list[int]:
    """Every so many tokens, sample one of the drafts and start again behind it; the passage is the seed."""
    start = writer.start(passage, prefix, ngrams=True)
    rng = np.random.default_rng(list(start.prompt))
    ids: tuple[int, ...] = ()
    while len(ids) < tokens:
        part = replace(settings, max_tokens=min(every, tokens - len(ids)))
        drafts = superpose(writer.model, start.continued_by(ids) if ids else start, part).best
        ids += drafts[int(rng.integers(len(drafts)))].ids
    return list(ids)


def summarise(
    measured: Sequence[Mapping[str, Sequence[float]]],
    groups: Sequence[tuple[str, str]],
    facts: Mapping[str, Any],
    tokens: int,
) -> Report:
    """Repetition as drafts grow, and their perplexity."""
    values = {name: mean_intervals(np.array([one[name] for one in measured]), groups) for name in measured[0]}
    lengths = [tokens * part // _PARTS for part in range(1, _PARTS + 1)]
    rows: list[list[Cell]] = [
        [name, *intervals[:_PARTS], *perplexities(intervals[_PARTS:])] for name, intervals in values.items()
    ]
    heads = ["first draft by", *(f"{n} tokens" for n in lengths), "perplexity", "by the judge with n-grams"]
    caption = "Share of distinct trigrams in the first so many tokens; perplexity of the whole."
    series = {name: list(zip(lengths, intervals[:_PARTS], strict=True)) for name, intervals in values.items()}
    return Report(
        "resets", "Resets in long completions", facts, [ReportTable(caption, heads, rows)],
        {"lengths": lengths, "methods": values}, [Panel("tokens", "distinct trigrams", dict(series))],
    )  # fmt: skip
