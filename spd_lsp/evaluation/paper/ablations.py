"""What the number of drafts, the prefix, the length, and the n-grams change (figures 9, 10, 11; table 4).

One thing is changed at a time, at the same places. As in the paper, the best of the k superposed drafts stands
against one draft of nucleus sampling and of greedy decoding. N-grams here are the repository's alone, so that
orders and storage are all that differs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.ngrams import count_streams
from ngram_builders.table.writer import write_table
from spd_lsp.evaluation.bootstrap import Interval, means
from spd_lsp.evaluation.paper.drafting import NUCLEUS, PAPER, SPD, Judge, Way, Writer
from spd_lsp.evaluation.paper.passages import Passage, Source
from spd_lsp.evaluation.paper.perplexity import Written, exponential, measure
from spd_lsp.evaluation.report_writer import Cell, Report, Table, error_bars, plain_ticks
from spd_lsp.ngrams.interpolation import Mixture

_NESTED = "SPD, nested n-grams"
_SINGLE = (Way("nucleus, one draft", "nucleus", NUCLEUS), Way("greedy", "greedy"))
_SUPERPOSED = (Way(SPD, "superposed", PAPER, ngrams=True), Way(_NESTED, "superposed", ngrams=True))

_DRAFTS = (1, 2, 3, 5, 8)
PREFIXES = (15, 64, 128, 256, 512)
LENGTHS = (5, 10, 15, 20)
ORDERS: Mapping[str, tuple[int, ...]] = {"none": (), "2-4": (2, 3, 4), "2-6": (2, 3, 4, 5, 6)}
_BASE = (3, 128, 10)  # drafts, prefix, tokens: where nothing is said


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting of one thing."""

    factor: str
    value: str
    drafts: int = _BASE[0]
    prefix: int = _BASE[1]
    tokens: int = _BASE[2]
    orders: str = "2-6"


def _trials() -> Iterator[Trial]:
    """Everything that is tried."""
    yield from (Trial("drafts", str(k), drafts=k) for k in _DRAFTS)
    yield from (Trial("prefix", str(n), prefix=n) for n in PREFIXES)
    yield from (Trial("tokens", str(n), tokens=n) for n in LENGTHS)
    yield from (Trial("n-gram orders", name, orders=name) for name in ORDERS)


def mixtures(sources: Sequence[Source], vocab_size: int, orders: Sequence[int]) -> dict[str, Mixture]:
    """What n-grams of these orders know in each repository; nothing where there are none."""
    if not orders:
        return {}
    return {source.name: Mixture([[source.columns(vocab_size, orders)]], [0.7]) for source in sources}


def stored_bytes(sources: Sequence[Source], writer: Writer, orders: Sequence[int]) -> int:
    """What tables of these orders take on disk, all repositories together."""
    if not orders:
        return 0
    size = writer.tokens.vocab_size
    with tempfile.TemporaryDirectory() as folder:
        for n, source in enumerate(sources):
            write_table(
                Path(folder) / f"{n}.ngt",
                [count_streams(source.counted, orders=orders, vocab_size=size)],
                fingerprint=writer.tokens.fingerprint,
                vocab_size=size,
                orders=orders,
                min_count={},
                tokens=sum(map(len, source.counted)),
                files=len(source.counted),
                sources={},
            )
        return sum(path.stat().st_size for path in Path(folder).iterdir())


def attempt(
    known: Mapping[str, Mapping[str, Mixture]], writer: Writer, judge: Judge, passage: Passage
) -> dict[Trial, dict[str, Written]]:
    """All trials at one place. Drafts that a trial shares with an earlier one are written once."""
    found: dict[Trial, dict[str, Written]] = {}
    done: dict[tuple[int, int, int, str], dict[str, Written]] = {}
    for trial in _trials():
        at = (trial.drafts, trial.prefix, trial.tokens, trial.orders)
        if at not in done:
            told = Writer(writer.model, writer.tokens, dict(known[trial.orders]))
            judged_by = Writer(writer.model, writer.tokens, dict(known["2-6"]))
            done[at] = _try_one(told, judged_by, judge, passage, trial)
        found[trial] = done[at]
    return found


def _try_one(writer: Writer, judging: Writer, judge: Judge, passage: Passage, trial: Trial) -> dict[str, Written]:
    """The best of k superposed drafts, and single ones."""
    known = judging.mixtures.get(passage.repository)
    size = {"prefix": trial.prefix, "tokens": trial.tokens}
    superposed = measure(writer, judge, passage, k=trial.drafts, ways=_SUPERPOSED, known=known, **size)
    return superposed | measure(writer, judge, passage, k=1, ways=_SINGLE, known=known, **size)


def summarise(
    measured: Sequence[Mapping[Trial, Mapping[str, Written]]],
    groups: Sequence[tuple[str, str]],
    facts: Mapping[str, Any],
    stored: Mapping[str, int],
) -> Report:
    """For each thing changed: perplexity of the best draft by both judges, and tokens right, by way."""
    names = [way.name for way in (*_SUPERPOSED, *_SINGLE)]
    rows: list[list[Cell]] = []
    data: dict[str, dict[str, dict[str, list[Interval]]]] = {}
    for trial in measured[0]:
        for name in names:
            found = _best_of([one[trial][name] for one in measured], groups)
            bytes_taken = f"{stored[trial.orders] / 1e6:.1f} MB" if trial.factor == "n-gram orders" else ""
            rows.append([trial.factor, trial.value, name, *found, bytes_taken])
            data.setdefault(trial.factor, {}).setdefault(name, {})[trial.value] = found
    k, prefix, tokens = _BASE
    table = Table(
        f"The best draft of each place. Where nothing is said: {k} drafts, prefix {prefix}, {tokens} tokens, 2-6.",
        ["changed", "to", "drafts by", "mean perplexity", "perplexity of all tokens",
         "by the judge told of n-grams", "tokens right", "tables"],
        rows,
    )  # fmt: skip
    return Report("ablations", "Ablations", facts, [table], data, lambda figure: draw(figure, data), (12.0, 4.0))


def _best_of(found: Sequence[Written], groups: Sequence[tuple[str, str]]) -> list[Interval]:
    """Mean perplexity, perplexity, that by the informed judge, tokens right: of the best draft by each."""
    nats = np.array([np.nanmin(one.judged) for one in found])
    told = np.array([np.nanmin(one.informed) for one in found])
    right = np.array([np.nanmax(one.matched) for one in found])
    papers, judged, aware, matched = means(np.column_stack([np.exp(nats), nats, told, right]), groups)
    return [papers, *exponential([judged, aware]), matched]


def draw(figure: Any, data: Mapping[str, Mapping[str, Mapping[str, Sequence[Interval]]]]) -> None:
    """Perplexity of the best draft by the informed judge, a panel for each thing changed."""
    for axes, (factor, ways) in zip(figure.subplots(1, len(data), sharey=True), data.items(), strict=True):
        for name, values in ways.items():
            found = [mean[2] for mean in values.values()]
            errors = error_bars(found)
            axes.errorbar(
                list(values), [one.mean for one in found], yerr=errors, marker=".", capsize=2, label=name
            )
        axes.set(xlabel=factor)
    figure.axes[0].set(ylabel="perplexity, judge told of n-grams", yscale="log")
    plain_ticks(figure.axes[0].yaxis)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncol=4)
