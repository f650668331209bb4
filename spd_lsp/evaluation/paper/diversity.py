"""Repetition within drafts and similarity among them, by length (figure 8).

Repetition: the share of distinct n-grams among a draft's n-grams. Similarity: Self-BLEU (Zhu et al., "Texygen",
2018), the BLEU of each draft with the others as references; BLEU as in Papineni et al., 2002, with the first
smoothing of Chen and Cherry, 2014, without which a short draft has none. In tokens, as in the paper's code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spd_lsp.evaluation.bootstrap import mean_intervals
from spd_lsp.evaluation.paper.drafting import METHODS, REAL_TEXT, SPD_LINEAR, SPD_PAPER, DraftWriter
from spd_lsp.evaluation.paper.passages import Passage
from spd_lsp.evaluation.report_writer import Cell, Panel, Report, ReportTable

_NAMES = ("nucleus", "beam", SPD_PAPER, SPD_LINEAR, "nucleus, linear n-grams", "beam, linear n-grams")
_COMPARED = [method for method in METHODS if method.name in _NAMES]
LENGTHS = (5, 10, 15, 20)
_BLEU_ORDER = 4
_EPSILON = 0.1  # the count where no n-gram matches
_MEASURES = ("unigrams", "bigrams", "trigrams", "Self-BLEU")


def _ngrams(ids: Sequence[int], n: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(ids[i : i + n]) for i in range(len(ids) - n + 1))


def distinct_share(ids: Sequence[int], n: int) -> float:
    """The share of distinct n-grams, nan if there are none. Example: [5, 7, 5, 7], 2 -> 2 of 3"""
    counts = _ngrams(ids, n)
    return len(counts) / counts.total() if counts else math.nan


def bleu(candidate: Sequence[int], references: Sequence[Sequence[int]]) -> float:
    """BLEU of one text, of n-grams up to its length or 4."""
    orders = range(1, min(_BLEU_ORDER, len(candidate)) + 1)
    logs = [math.log(_precision(candidate, references, n)) for n in orders]
    # Brevity: the reference nearest in length, the shorter of two as near.
    nearest = min((len(one) for one in references), key=lambda length: (abs(length - len(candidate)), length))
    brevity = min(0.0, 1 - nearest / len(candidate))
    return math.exp(brevity + sum(logs) / len(logs))


def _precision(candidate: Sequence[int], references: Sequence[Sequence[int]], n: int) -> float:
    """The share of a text's n-grams in the references, each as often as the reference that has it most."""
    counts = _ngrams(candidate, n)
    allowed: Counter[tuple[int, ...]] = Counter()
    for reference in references:
        allowed |= _ngrams(reference, n)
    return ((counts & allowed).total() or _EPSILON) / counts.total()


def self_bleu(drafts: Sequence[Sequence[int]]) -> float:
    """The mean BLEU of each draft against the others, nan for a single one."""
    if len(drafts) < 2:
        return math.nan
    return float(np.mean([bleu(draft, [*drafts[:i], *drafts[i + 1 :]]) for i, draft in enumerate(drafts)]))


def measures_of(drafts: Sequence[Sequence[int]]) -> list[float]:
    """The mean distinct shares of unigrams, bigrams and trigrams, and Self-BLEU."""
    return [
        *(float(np.mean([distinct_share(draft, n) for draft in drafts])) for n in (1, 2, 3)),
        self_bleu(drafts),
    ]


def measure(writer: DraftWriter, passage: Passage, *, k: int, prefix: int) -> dict[tuple[str, int], list[float]]:
    """The measures by method and length, those of the real text among them."""
    results = {(REAL_TEXT, n): [*measures_of([passage.continuation(n)])[:3], math.nan] for n in LENGTHS}
    for method in _COMPARED:
        for n in LENGTHS:
            drafts = writer.write(method, passage, k=k, prefix=prefix, tokens=n)
            results[method.name, n] = measures_of([draft.ids for draft in drafts.best])
    return results


def summarise(
    measured: Sequence[Mapping[tuple[str, int], Sequence[float]]],
    groups: Sequence[tuple[str, str]],
    facts: Mapping[str, Any],
) -> Report:
    """A table by method and length, and both panels of figure 8."""
    values = {key: mean_intervals(np.array([one[key] for one in measured]), groups) for key in measured[0]}
    rows: list[list[Cell]] = [[name, length, *row] for (name, length), row in values.items()]
    table = ReportTable(
        "Share of distinct n-grams in a draft (1: no repetition), and Self-BLEU of drafts (1: all the same).",
        ["method", "tokens", *_MEASURES],
        rows,
        digits=3,
    )
    names = list(dict.fromkeys(name for name, _ in values))
    data = {name: {m: [values[name, n][at] for n in LENGTHS] for at, m in enumerate(_MEASURES)} for name in names}
    panels = [
        Panel("tokens of a draft", what, {name: [(n, values[name, n][at]) for n in LENGTHS] for name in names})
        for at, what in ((2, "distinct trigrams"), (3, "Self-BLEU"))
    ]
    whole = {"lengths": LENGTHS, "methods": data}
    return Report("diversity", "Repetition and diversity by length", facts, [table], whole, panels)
