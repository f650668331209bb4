"""Perplexity of drafts by rank against nucleus, greedy, beam and n-grams alone (table 1; table 3: other models).

The paper judges drafts of Llama-2-7B by Llama-2-70B. A judge that is the drafting model itself favours what that
model likes, greedy and beam most of all; so the same judge is also told what the repository's n-grams know, and
beside every judge stands how much of the real continuation was written.

Legend: N passages, K drafts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.evaluation.bootstrap import Interval, mean, means
from spd_lsp.evaluation.paper.drafting import WAYS, Judge, Way, Writer, informed, matched
from spd_lsp.evaluation.paper.passages import Passage
from spd_lsp.evaluation.report_writer import Cell, Report, Table, error_bars, plain_ticks
from spd_lsp.ngrams.interpolation import Mixture

Groups = Sequence[tuple[str, str]]  # repository and file of each passage

REAL = "the real text"

_PAPERS_MEAN = "Mean of the drafts' perplexities by the judge, as in table 1."
_LESS = "The best draft of each place less one nucleus sample there, paired: below 0 it is the likelier one."
_OVER_ALL = "Perplexity over all tokens by the judge: the exponential of the mean surprise."
_INFORMED = "The same, by a judge that is told what the repository's n-grams know."
_MATCHED = "Tokens of the real text written before the first mistake, and what it took."


@dataclass(frozen=True, slots=True)
class Written:
    """What one way wrote at one passage: nats a token by draft, [K]; nan where there was no draft."""

    judged: Floats
    informed: Floats
    matched: Floats  # tokens right before the first mistake
    passes: int
    rows: int


def measure(
    writer: Writer,
    judge: Judge,
    passage: Passage,
    *,
    k: int,
    prefix: int,
    tokens: int,
    ways: Sequence[Way] = WAYS,
    known: Mixture | None = None,
) -> dict[str, Written]:
    """Write k drafts in each way, and judge them all in one pass, the real text among them.

    The judge is told what `known` knows, or else what the writer's n-grams do.
    """
    read, truth = passage.prefix(prefix), passage.continuation(tokens)
    drafts = {way.name: writer.write(way, passage, k=k, prefix=prefix, tokens=tokens) for way in ways}
    texts = {REAL: [truth]} | {name: [list(draft.ids) for draft in found.best] for name, found in drafts.items()}
    flat = [text for found in texts.values() for text in found]
    surprises = iter(judge.surprise(writer.tokens, read, flat))
    mixture = (known or writer.mixtures.get(passage.repository)) if judge.same else None
    results = {}
    for name, found in texts.items():
        told = [next(surprises) for _ in found]
        also = [informed(nats, mixture, read, text) for nats, text in zip(told, found, strict=True)]
        cost = drafts.get(name)
        results[name] = Written(
            padded([float(s.mean()) for s in told], k),
            padded([float(s.mean()) for s in also], k),
            padded([float(matched(text, truth)) for text in found], k),
            cost.passes if cost else 0,
            cost.rows if cost else 0,
        )
    return results


def padded(values: Sequence[float], k: int) -> Floats:
    """Values of up to k drafts, nan for those that are missing. -> [K]."""
    return np.array([*values, *[np.nan] * (k - len(values))])


def summarise(
    measured: Sequence[Mapping[str, Written]], groups: Groups, facts: Mapping[str, Any], k: int
) -> Report:
    """Tables: the paper's mean of perplexities; perplexity of all tokens; that of a judge told of n-grams."""
    names = list(measured[0])
    nats = {name: np.stack([one[name].judged for one in measured]) for name in names}  # [N, K]
    told = {name: np.stack([one[name].informed for one in measured]) for name in names}
    right = {name: np.stack([one[name].matched for one in measured]) for name in names}
    arithmetic = {name: _ranked(np.exp(nats[name]), groups, spread(name)) for name in names}
    overall, aware = (
        {name: exponential(_ranked(found[name], groups, spread(name))) for name in names} for found in (nats, told)
    )
    tables = [
        _rank_table(caption, found, k)
        for caption, found in ((_PAPERS_MEAN, arithmetic), (_OVER_ALL, overall), (_INFORMED, aware))
    ]
    rights: list[list[Cell]] = [
        [
            name,
            mean(right[name][:, 0], groups),
            mean(np.nanmax(right[name], axis=1), groups),
            *costs(measured, name),
        ]
        for name in names
        if name != REAL
    ]
    taken = ["drafts by", "draft 1", f"best of {k}", "passes", "positions read after the prompt"]
    tables.append(Table(_MATCHED, taken, rights))
    tables.insert(1, _less_than_nucleus(nats, told, groups))
    data = {name: {"perplexity": overall[name], "informed": aware[name]} for name in names}
    return Report(
        "perplexity",
        "Perplexity of drafts by rank",
        facts,
        tables,
        data,
        lambda figure: draw(figure, data, k),
        (11.0, 4.6),
    )


def _rank_table(caption: str, found: Mapping[str, Sequence[Interval]], k: int) -> Table:
    """A row for each way: its drafts by rank, and the best of each passage."""
    heads = ["drafts by", *(f"draft {rank + 1}" for rank in range(k)), "best"]
    return Table(caption, heads, [[name, *ranks] for name, ranks in found.items()])


def _less_than_nucleus(nats: Mapping[str, Floats], told: Mapping[str, Floats], groups: Groups) -> Table:
    """The best draft of each place against one nucleus sample there, which took as many passes or more."""
    rows: list[list[Cell]] = []
    for name in nats:
        if not spread(name) and name != REAL:
            pairs = [(np.exp(nats[name]), np.exp(nats["nucleus"])), (told[name], told["nucleus"])]
            less = [np.nanmin(one, axis=1) - np.nanmean(other, axis=1) for one, other in pairs]
            rows.append([name, *means(np.column_stack(less), groups)])
    return Table(_LESS, ["best draft by", "perplexity by the judge", "nats a token, judge told of n-grams"], rows)


def spread(name: str) -> bool:
    """Whether drafts have no rank: samples are all alike, so that each place stands for any of them."""
    return name.startswith("nucleus")


def _ranked(values: Floats, groups: Groups, alike: bool) -> list[Interval]:
    """The mean of each rank, and of the best draft of each passage. [N, K] -> K + 1 means."""
    by_rank = np.repeat(np.nanmean(values, axis=1, keepdims=True), values.shape[1], axis=1) if alike else values
    return means(np.column_stack([by_rank, np.nanmin(values, axis=1)]), groups)


def exponential(found: Iterable[Interval]) -> list[Interval]:
    """Nats a token as perplexity."""
    return [Interval(*(float(np.exp(nats)) for nats in (one.mean, one.low, one.high))) for one in found]


def costs(measured: Sequence[Mapping[str, Written]], name: str) -> tuple[float, float]:
    """Mean passes and positions."""
    passes = [one[name].passes for one in measured]
    return float(np.mean(passes)), float(np.mean([one[name].rows for one in measured]))


def draw(figure: Any, data: Mapping[str, Mapping[str, Sequence[Interval]]], k: int) -> None:
    """Perplexity by rank, a row of points for each way, for both judges."""
    names = list(data)[::-1]
    for axes, judge, title in zip(
        figure.subplots(1, 2, sharey=True),
        ("perplexity", "informed"),
        ("judge", "judge with n-grams"),
        strict=True,
    ):
        for rank in range(k + 1):
            found = [data[name][judge][rank] for name in names]
            errors = error_bars(found)
            places = np.arange(len(names)) + (k / 2 - rank) * 0.18
            label = f"draft {rank + 1}" if rank < k else "best of all"
            values = [one.mean for one in found]
            axes.errorbar(values, places, xerr=errors, fmt="o", markersize=3, linewidth=0.9, label=label)
        axes.set(xscale="log", xlabel=f"perplexity by the {title} (95 %)")
        axes.set_yticks(range(len(names)), names)
        plain_ticks(axes.xaxis)
        axes.grid(axis="x", alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncol=k + 1)
