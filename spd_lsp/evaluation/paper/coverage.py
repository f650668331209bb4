"""Coverage at equal compute: nucleus samples, and samples finished by superposed decoding (section 4.5, table 2).

The share of places where one generation is right, by the number n of samples that were paid for. A sample whose
first tokens are drawn and then finished by k superposed drafts costs the passes of one sample. Right on code: the
rest of the line. A third kind finishes the same beginnings greedily: what is gained over it is due to superposing,
the rest to drawing fewer tokens.

Legend: N samples of a place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from spd_lsp.completion.tokenizer import Tokens
from spd_lsp.decoding.superposed import Start, superpose
from spd_lsp.evaluation.bootstrap import Interval, means
from spd_lsp.evaluation.paper.drafting import NUCLEUS, PLAIN, Writer, samples
from spd_lsp.evaluation.paper.passages import Passage
from spd_lsp.evaluation.report_writer import Cell, Report, Table, error_bars

_BUDGETS = (1, 2, 5, 10, 20)
_SPLICED = 3  # tokens drawn before superposing begins
FINISHES = {"nucleus": 0, "nucleus then greedy": 1, "nucleus then SPD-2": 2, "nucleus then SPD-3": 3}
_COVERED = "Places where a generation is the rest of the line, in percent, by samples paid for."
_MORE = "Points more than plain samples with the same n-grams, in pairs."
_NGRAMS = {"": False, ", nested n-grams": True}


def rest_of_line(tokens: Tokens, passage: Passage, longest: int) -> str | None:
    """What follows up to the end of the line, or None if that is nothing or longer than so many tokens."""
    text = tokens.bytes_of(passage.continuation(longest)).decode(errors="ignore")
    line, newline, _ = text.partition("\n")
    return line.rstrip() if newline and line.strip() else None


def first_line(tokens: Tokens, ids: Sequence[int]) -> str:
    """The text that a draft would put into the line."""
    return tokens.bytes_of(ids).decode(errors="ignore").partition("\n")[0].rstrip()


def coverage(right: int, drawn: int, n: int) -> float:
    """The chance that n of the samples hold a right one: 1 - C(drawn - right, n) / C(drawn, n).

    Chen et al., "Evaluating Large Language Models Trained on Code", 2021, equation 1.

    Example: 1 right of 2, n = 1 -> .5.
    """
    if drawn - right < n:
        return 1.0
    return float(1 - np.prod(1 - n / np.arange(drawn - right + 1, drawn + 1)))


def measure(
    writer: Writer, passage: Passage, truth: str, *, prefix: int, tokens: int, budgets: Sequence[int] = _BUDGETS
) -> dict[str, list[float]]:
    """Coverage by budget, and passes a sample, for each kind of finish with and without n-grams."""
    found: dict[str, list[float]] = {}
    for suffix, ngrams in _NGRAMS.items():
        bare = writer.start(passage, prefix, ngrams=ngrams)
        start = replace(
            bare,
            stop=lambda ids: ends_line(writer.tokens, ids),
            reads=lambda ids: first_line(writer.tokens, ids),
        )
        drawn = samples(writer.model, start, replace(NUCLEUS, drafts=max(budgets), max_tokens=tokens)).best
        for name, k in FINISHES.items():
            finish = _finisher(writer, start, k, tokens)
            tries = [finish(tuple(draft.ids)) for draft in drawn]
            right = sum(truth in {first_line(writer.tokens, ids) for ids in texts} for texts, _ in tries)
            passes = float(np.mean([passes for _, passes in tries]))
            found[name + suffix] = [*(coverage(right, len(drawn), n) for n in budgets), passes]
    return found


def ends_line(tokens: Tokens, ids: Sequence[int]) -> bool:
    """Whether a draft has ended its line or its text."""
    return tokens.ends(ids[-1]) or b"\n" in tokens.bytes_of(ids[-1:])


Finish = Callable[[tuple[int, ...]], tuple[list[tuple[int, ...]], int]]


def _finisher(writer: Writer, start: Start, k: int, tokens: int) -> Finish:
    """What makes generations of one sample, and says how many passes they took; equal beginnings are done once."""
    done: dict[tuple[int, ...], tuple[list[tuple[int, ...]], int]] = {}

    def finish(ids: tuple[int, ...]) -> tuple[list[tuple[int, ...]], int]:
        begun = ids[:_SPLICED]
        if not k or len(ids) <= _SPLICED:
            return [ids], len(ids)
        if begun not in done:
            settings = replace(PLAIN, drafts=k, max_tokens=tokens - _SPLICED)
            drafts = superpose(writer.model, start.after(begun), settings)
            # The first pass reads the last drawn token, as the sample's own next pass would.
            done[begun] = [(*begun, *draft.ids) for draft in drafts.best], _SPLICED + drafts.passes
        return done[begun]

    return finish


def summarise(
    measured: Sequence[Mapping[str, Sequence[float]]],
    groups: Sequence[tuple[str, str]],
    facts: Mapping[str, Any],
    budgets: Sequence[int] = _BUDGETS,
) -> Report:
    """Coverage in percent by budget, as table 2; and what each finish adds to plain samples, in pairs."""
    percent = {
        name: 100 * np.array([one[name][:-1] for one in measured]) for name in measured[0]
    }  # [places, budgets]
    passes = {name: float(np.mean([one[name][-1] for one in measured])) for name in measured[0]}
    found = {name: means(values, groups) for name, values in percent.items()}
    more = {
        name: means(values - percent[f"nucleus{suffix}"], groups)
        for suffix in _NGRAMS
        for name, values in percent.items()
        if name.startswith("nucleus then") and name.endswith("n-grams") == bool(suffix)
    }
    heads = [f"n = {n}" for n in budgets]
    rows: list[list[Cell]] = [[name, *values, passes[name]] for name, values in found.items()]
    tables = [
        Table(_COVERED, ["generations by", *heads, "passes a sample"], rows, digits=1),
        Table(_MORE, ["generations by", *heads], [[name, *values] for name, values in more.items()], digits=1),
    ]
    data = {"budgets": list(budgets), "ways": found, "more": more}
    return Report(
        "coverage",
        "Coverage at equal compute",
        facts,
        tables,
        data,
        lambda figure: draw(figure, budgets, found, more),
        (11.0, 4.6),
    )


def draw(
    figure: Any,
    budgets: Sequence[int],
    found: Mapping[str, Sequence[Interval]],
    more: Mapping[str, Sequence[Interval]],
) -> None:
    """Coverage by budget; and what each finish adds, with intervals."""
    whole, added = figure.subplots(1, 2)
    for at, (name, values) in enumerate(found.items()):
        style, colour = "--" if name.endswith("n-grams") else "-", f"C{at % len(FINISHES)}"
        whole.plot(budgets, [one.mean for one in values], style, marker=".", color=colour, label=name)
        if name in more:
            errors = error_bars(more[name])
            places = np.array(budgets) * (0.92 + 0.025 * at)  # beside each other
            line = [one.mean for one in more[name]]
            added.errorbar(places, line, yerr=errors, linestyle=style, marker=".", color=colour, capsize=2)
    whole.set(xlabel="samples paid for", ylabel="places with a right line, %", xscale="log")
    added.set(xlabel="samples paid for", ylabel="points more than plain samples (95 %)", xscale="log")
    added.axhline(0, color="grey", linewidth=0.8)
    for axes in (whole, added):
        axes.set_xticks(list(budgets), list(budgets))
        axes.minorticks_off()
    figure.legend(*whole.get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncol=4)
