"""Long completions with and without resets (section 5.3, appendix I): does starting again stop repetition?

Every s tokens one draft goes on alone, from a cache that holds its own tokens. The paper samples that draft, here
with even chances; the product takes the best one, so that the same input gives the same drafts. Both are tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from spd_lsp.decoding.superposed import superpose
from spd_lsp.evaluation.bootstrap import Interval, means
from spd_lsp.evaluation.paper.diversity import uniqueness
from spd_lsp.evaluation.paper.drafting import NUCLEUS, PAPER, PLAIN, SPD, Judge, Way, Writer, informed
from spd_lsp.evaluation.paper.passages import Passage
from spd_lsp.evaluation.paper.perplexity import exponential
from spd_lsp.evaluation.report_writer import Cell, Report, Table
from spd_lsp.settings import Settings

EVERY = (0, 10, 20, 40)
_SAMPLED = (10, 20)  # tokens between resets that sample a draft
_BOTH = ((SPD, PAPER), ("SPD, nested n-grams", PLAIN))
_PARTS = 4  # of a draft, over which repetition is told
_REAL = "the real text"


def ways(every: Sequence[int] = EVERY) -> list[Way]:
    """Superposed decoding with each reset, and what it is compared with."""
    return [
        *(
            Way(
                name + (f", reset every {s}" if s else ""), "superposed", replace(base, reset_every=s), ngrams=True
            )
            for name, base in _BOTH
            for s in every
        ),
        Way("greedy, nested n-grams", "greedy", ngrams=True),
        Way("nucleus", "nucleus", NUCLEUS),
        Way("nucleus, nested n-grams", "nucleus", NUCLEUS, ngrams=True),
    ]


def measure(
    writer: Writer, judge: Judge, passage: Passage, *, k: int, prefix: int, tokens: int
) -> dict[str, list[float]]:
    """For the first draft of each way: different trigrams up to each part, and nats a token by both judges."""
    read = passage.prefix(prefix)
    texts = {_REAL: passage.continuation(tokens)}
    for way in ways():
        drafts = writer.write(way, passage, k=1 if way.decoder == "nucleus" else k, prefix=prefix, tokens=tokens)
        texts[way.name] = list(drafts.best[0].ids)
    for name, base in _BOTH:
        for every in _SAMPLED:
            text = restarted(writer, passage, base, k=k, prefix=prefix, tokens=tokens, every=every)
            texts[f"{name}, sampled every {every}"] = text
    known = writer.mixtures.get(passage.repository) if judge.same else None
    surprises = judge.surprise(writer.tokens, read, list(texts.values()))
    return {
        name: [
            *(uniqueness(text[: tokens * part // _PARTS], 3) for part in range(1, _PARTS + 1)),
            float(nats.mean()),
            float(informed(nats, known, read, text).mean()),
        ]
        for (name, text), nats in zip(texts.items(), surprises, strict=True)
    }


def restarted(
    writer: Writer, passage: Passage, settings: Settings, *, k: int, prefix: int, tokens: int, every: int
) -> list[int]:
    """Every so many tokens one of the k drafts is drawn and drafts begin again after it; the place is the seed."""
    start = writer.start(passage, prefix, ngrams=True)
    random = np.random.default_rng(list(start.prompt))
    ids: tuple[int, ...] = ()
    while len(ids) < tokens:
        part = replace(settings, drafts=k, max_tokens=min(every, tokens - len(ids)))
        drafts = superpose(writer.model, start.after(ids) if ids else start, part).best
        ids += drafts[int(random.integers(len(drafts)))].ids
    return list(ids)


def summarise(
    measured: Sequence[Mapping[str, Sequence[float]]],
    groups: Sequence[tuple[str, str]],
    facts: Mapping[str, Any],
    tokens: int,
) -> Report:
    """Repetition as drafts grow, and their perplexity."""
    found = {name: means(np.array([one[name] for one in measured]), groups) for name in measured[0]}
    lengths = [tokens * part // _PARTS for part in range(1, _PARTS + 1)]
    rows: list[list[Cell]] = [
        [name, *values[:_PARTS], *exponential(values[_PARTS:])] for name, values in found.items()
    ]
    heads = ["first draft by", *(f"{n} tokens" for n in lengths), "perplexity", "by the judge told of n-grams"]
    table = Table(
        "Different trigrams among all, in the first so many tokens; perplexity of the whole.", heads, rows
    )
    data = {"lengths": lengths, "ways": found}
    return Report("resets", "Resets in long completions", facts, [table], data,
                  lambda figure: draw(figure, lengths, found), (7.5, 4.6))  # fmt: skip


def draw(figure: Any, lengths: Sequence[int], found: Mapping[str, Sequence[Interval]]) -> None:
    """Different trigrams by length."""
    axes = figure.subplots()
    for at, (name, values) in enumerate(found.items()):
        style = "-" if "every" in name else ":" if name == _REAL else "--"
        marker = "." if at < 10 else "s"  # colours begin again
        axes.plot(lengths, [one.mean for one in values[:_PARTS]], style, marker=marker, label=name)
    axes.set(xlabel="tokens", ylabel="different trigrams among all")
    axes.set_xticks(list(lengths))
    figure.legend(*axes.get_legend_handles_labels(), fontsize=6, loc="outside right upper")
