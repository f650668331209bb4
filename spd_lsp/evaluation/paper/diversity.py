"""Repetition within drafts and likeness among them, by length (figure 8).

Repetition: the share of different n-grams among a draft's n-grams. Likeness: Self-BLEU (Zhu et al., "Texygen",
2018), the BLEU of each draft with the others as references; BLEU as in Papineni et al., 2002, with the first
smoothing of Chen and Cherry, 2014, without which a short draft has none. In tokens, as in the paper's code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spd_lsp.evaluation.bootstrap import Interval, means
from spd_lsp.evaluation.paper.drafting import SPD, WAYS, Way, Writer
from spd_lsp.evaluation.paper.passages import Passage
from spd_lsp.evaluation.report_writer import Cell, Report, Table, error_bars

_COMPARED = ("nucleus", "beam", SPD, "SPD, nested n-grams", "nucleus, nested n-grams", "beam, nested n-grams")
LENGTHS = (5, 10, 15, 20)
_HIGHEST = 4  # n-grams of BLEU
_EPSILON = 0.1  # counted where no n-gram is right
_MEASURES = ("unigrams", "bigrams", "trigrams", "Self-BLEU")


def _grams(ids: Sequence[int], n: int) -> Counter[tuple[int, ...]]:
    """How often each n-gram occurs."""
    return Counter(tuple(ids[i : i + n]) for i in range(len(ids) - n + 1))


def uniqueness(ids: Sequence[int], n: int) -> float:
    """The share of different n-grams; nan where there is none. Example: [5, 7, 5, 7], 2 -> 2 of 3."""
    counts = _grams(ids, n)
    return len(counts) / counts.total() if counts else math.nan


def bleu(candidate: Sequence[int], references: Sequence[Sequence[int]]) -> float:
    """BLEU of one text, of n-grams up to its length or HIGHEST."""
    orders = range(1, min(_HIGHEST, len(candidate)) + 1)
    logs = [math.log(precision(candidate, references, n)) for n in orders]
    # Brevity: the reference nearest in length, the shorter of two as near.
    nearest = min((len(one) for one in references), key=lambda length: (abs(length - len(candidate)), length))
    brevity = min(0.0, 1 - nearest / len(candidate))
    return math.exp(brevity + sum(logs) / len(logs))


def precision(candidate: Sequence[int], references: Sequence[Sequence[int]], n: int) -> float:
    """The share of a text's n-grams that a reference has, each as often as the reference that has it most."""
    counts = _grams(candidate, n)
    allowed: Counter[tuple[int, ...]] = Counter()
    for reference in references:
        allowed |= _grams(reference, n)
    right = (counts & allowed).total()
    return (right or _EPSILON) / counts.total()


def self_bleu(drafts: Sequence[Sequence[int]]) -> float:
    """The mean BLEU of each draft against the others; nan for a single one."""
    if len(drafts) < 2:
        return math.nan
    return float(np.mean([bleu(draft, [*drafts[:i], *drafts[i + 1 :]]) for i, draft in enumerate(drafts)]))


def describe(drafts: Sequence[Sequence[int]]) -> list[float]:
    """MEASURES of the drafts of one place."""
    return [*(float(np.mean([uniqueness(draft, n) for draft in drafts])) for n in (1, 2, 3)), self_bleu(drafts)]


def _compared() -> list[Way]:
    """The ways of this experiment."""
    return [way for way in WAYS if way.name in _COMPARED]


def measure(
    writer: Writer, passage: Passage, *, k: int, prefix: int, lengths: Sequence[int] = LENGTHS
) -> dict[tuple[str, int], list[float]]:
    """MEASURES by way and length, the real text's among them."""
    found = {("the real text", n): [*describe([passage.continuation(n)])[:3], math.nan] for n in lengths}
    for way in _compared():
        for n in lengths:
            drafts = writer.write(way, passage, k=k, prefix=prefix, tokens=n)
            found[way.name, n] = describe([draft.ids for draft in drafts.best])
    return found


def summarise(
    measured: Sequence[Mapping[tuple[str, int], Sequence[float]]],
    groups: Sequence[tuple[str, str]],
    facts: Mapping[str, Any],
) -> Report:
    """A table by way and length, and both panels of figure 8."""
    found = {key: means(np.array([one[key] for one in measured]), groups) for key in measured[0]}
    rows: list[list[Cell]] = [[name, length, *values] for (name, length), values in found.items()]
    table = Table(
        "Different n-grams among all of a draft (1: no repetition), and likeness of drafts (1: all the same).",
        ["drafts by", "tokens", *_MEASURES],
        rows,
        digits=3,
    )
    names = list(dict.fromkeys(name for name, _ in found))
    lengths = list(dict.fromkeys(length for _, length in found))
    data = {
        name: {measure: [found[name, n][at] for n in lengths] for at, measure in enumerate(_MEASURES)}
        for name in names
    }
    return Report(
        "diversity",
        "Repetition and diversity by length",
        facts,
        [table],
        {"lengths": lengths, "ways": data},
        lambda figure: draw(figure, lengths, data),
        (10.0, 4.2),
    )


def draw(figure: Any, lengths: Sequence[int], data: Mapping[str, Mapping[str, Sequence[Interval]]]) -> None:
    """Trigram uniqueness, and Self-BLEU, by length."""
    for axes, measure in zip(figure.subplots(1, 2), ("trigrams", "Self-BLEU"), strict=True):
        for at, (name, found) in enumerate(data.items()):
            values = found[measure]
            if np.isfinite([one.mean for one in values]).any():
                errors = error_bars(values)
                line = [one.mean for one in values]
                axes.errorbar(lengths, line, yerr=errors, marker=".", capsize=2, color=f"C{at}", label=name)
        axes.set(xlabel="tokens of a draft", title=measure)
        axes.set_xticks(list(lengths))
    figure.legend(*figure.axes[0].get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncol=4)
