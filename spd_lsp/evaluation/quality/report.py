"""The report of `spd-lsp eval quality`.

Scores stand beside the number of drafts, the prior and the cost of each arm. A difference is bold only where its
95 % interval excludes zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spd_lsp.evaluation.bootstrap import RESAMPLES
from spd_lsp.evaluation.quality.statistics import ArmCost, Results, metric_names
from spd_lsp.evaluation.quality.store import Record
from spd_lsp.evaluation.report_writer import Report, markdown_table, percent, points

_METHOD = """\
Method: prompt, context, n-grams, stop rule and ranking are the product's; a completion ends with its line or after
{max_tokens} tokens. The prompt of an example is read once, untimed; the arms follow in a random order. Times are
those of decoding, n-gram look-ups and ranking of one completion. EM: exact match. ES: edit similarity,
1 - Levenshtein distance / longer length. KS: keystrokes saved when lines are typed (a character, accepting, and a
step down the list cost 1 each), with this many requests a line. In parentheses: 95 % bootstrap confidence
intervals, {resamples} resamples of packages and of files within them. Differences are paired; bold ones have an
interval that excludes zero.
Samplers draw once at each example."""


def quality_report(results: Results, facts: Mapping[str, Any]) -> Report:
    """Build the tables, and all numbers by slice."""
    slices = results.slices()
    data = {
        name: {
            "examples": len(records),
            "scores": [score for metric in metric_names(results.k) for score in results.scores(metric, records)]
            + results.keystrokes_saved(records),
            "costs": results.costs(records),
        }
        for name, records in slices.items()
    }
    return Report(
        "results",
        f"Decoders compared on {len(results.records):,} examples",
        facts,
        [*_parts(results, slices, facts)],
        {"slices": data},
    )


def _parts(results: Results, slices: Mapping[str, Sequence[Record]], facts: Mapping[str, Any]) -> Iterator[str]:
    yield _METHOD.format(max_tokens=facts.get("max_tokens", 24), resamples=f"{RESAMPLES:,}")
    for number, (name, records) in enumerate(slices.items()):
        yield f"## {name} ({len(records):,} examples)"
        if number:
            yield _slice_table(results, records)
        else:
            yield from _primary_parts(results, records)


def _primary_parts(results: Results, records: Sequence[Record]) -> Iterator[str]:
    """The examples by which arms are compared."""
    yield _main_table(results, records)
    if typed := results.typed(records):
        yield f"KS is over {len(typed):,} of these examples."
    for family in results.against:
        yield f"### Difference from {family}{'' if '@' in family else ' with the same n-grams'}, paired"
        yield _difference_table(results, records, family)


def _main_table(results: Results, records: Sequence[Record]) -> str:
    k = results.k
    names = ["EM@1", f"EM@{k}", f"ES@{k}"]
    scores = [results.scores(name, records) for name in names]
    saved = {score.arm: percent(score.value) for score in results.keystrokes_saved(records)}
    requests = {arm: f"{number:.1f}" for arm, number in results.requests(records).items()}
    shown = results.scores(f"shown@{k}", records)
    rows = [["arm", "drafts", *names, "KS", "requests", "passes", "rows", "p50 ms", "p95 ms", "CPU ms"]]
    for a, cost in enumerate(results.costs(records)):
        cells = [percent(column[a].value, bounds=i < 2) for i, column in enumerate(scores)]
        drafts = f"{shown[a].value.mean:.1f}"
        typed = (saved.get(cost.arm, ""), requests.get(cost.arm, ""))
        rows.append([cost.arm, drafts, *cells, *typed, *_cost_cells(cost)])
    return markdown_table(rows)


def _cost_cells(cost: ArmCost) -> list[str]:
    times = (cost.wall_p50, cost.wall_p95, cost.cpu_mean)
    return [f"{cost.passes:.1f}", f"{cost.rows:.1f}", *(f"{ms:.0f}" for ms in times)]


def _slice_table(results: Results, records: Sequence[Record]) -> str:
    """The scores of each arm on a slice of the examples."""
    k = results.k
    names = ["EM@1", f"EM@{k}", f"ES@{k}"]
    scores = [results.scores(name, records) for name in names]
    rows = [["arm", *names, *(f"EM@{k} less {family}" for family in results.against)]]
    for a, label in enumerate(results.labels):
        cells = [percent(column[a].value, bounds=i < 2) for i, column in enumerate(scores)]
        rows.append([label, *cells, *(points(scores[1][a].less.get(family)) for family in results.against)])
    return markdown_table(rows)


def _difference_table(results: Results, records: Sequence[Record], family: str) -> str:
    """Each arm less the one of a family that has the same prior."""
    k = results.k
    columns = [results.scores(name, records) for name in ("EM@1", f"EM@{k}", f"ES@{k}")]
    saved = {score.arm: points(score.less.get(family)) for score in results.keystrokes_saved(records)}
    rows = [["arm", *(column[0].metric for column in columns), "KS"]]
    for a, label in enumerate(results.labels):
        if family in columns[0][a].less:
            rows.append([label, *(points(column[a].less[family]) for column in columns), saved.get(label, "")])
    return markdown_table(rows)
