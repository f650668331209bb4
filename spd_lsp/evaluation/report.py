"""Results of `eval quality` -> a report. Measures nothing.

Every statement names the number of drafts and the prior, and stands beside its cost. A difference is called one
only where its 95 % interval leaves zero out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spd_lsp.evaluation.arms import DRAWN
from spd_lsp.evaluation.bootstrap import REPETITIONS
from spd_lsp.evaluation.figures import draw
from spd_lsp.evaluation.leaks import Finding
from spd_lsp.evaluation.report_writer import Report, percent, plain_points, points, table
from spd_lsp.evaluation.store import Record
from spd_lsp.evaluation.tables import Cost, Results, metric_names


@dataclass(frozen=True, slots=True)
class Shown:
    """Places to print with what the arms answered: how many, and what decides which."""

    places: int = 12
    seed: int = 0


_TWELVE = Shown()
_HOW = """\
How it was taken: prompt, context, n-grams, stop rule and ranking are the product's; every completion ends with its
line or after {max_tokens} tokens. At each place the prompt is read once, before the arms and untimed; then every
arm finds its positions in the cache, in an order drawn for that place. Times are one completion's decoding, n-gram
look-ups and ranking. EM is exact match; ES edit similarity, 1 - Levenshtein / longer length; matched: characters
of the longest draft that can be taken as it is, of all characters. KS: keystrokes saved when lines are typed
through (a character 1, accepting 1, each step down the list 1). In brackets: 95 % intervals, packages and files
within them drawn again {repetitions} times. Differences are paired; only bold ones are shown, the intervals of
the others hold zero. A sampler's drafts are one draw for each place."""


def report_of(
    results: Results, run: Mapping[str, Any], findings: Sequence[Finding], shown: Shown = _TWELVE
) -> Report:
    """The tables, what they were taken from, completions picked at random, and all numbers by slice."""
    slices = {
        name: {
            "places": len(records),
            "scores": [score for metric in metric_names(results.k) for score in results.scores(metric, records)]
            + results.keystrokes(records),
            "costs": results.costs(records),
        }
        for name, records in results.slices().items()
    }
    return Report(
        "results",
        f"Completions compared at {len(results.records):,} places",
        run,
        [*parts(results, run, findings, shown)],
        {"leaks": findings, "slices": slices},
        (lambda figure: draw(figure, results)) if slices else None,
        (15.0, 1.5 + 0.34 * len(results.arms)),
    )


def parts(results: Results, run: Mapping[str, Any], findings: Sequence[Finding], shown: Shown) -> Iterator[str]:
    """The report, part by part."""
    yield _HOW.format(max_tokens=run.get("max_tokens", 24), repetitions=f"{REPETITIONS:,}")
    for number, (name, records) in enumerate(results.slices().items()):
        yield f"## {name} ({len(records):,} places)"
        if number:
            yield _short_table(results, records)
        else:
            yield from _primary_parts(results, records)
    yield "## Leak checks"
    yield table(
        [["check", "package", "verdict", "found"], *([f.check, f.subject, f.verdict, f.text] for f in findings)]
    )
    if shown.places:
        yield f"## {shown.places} places picked at random (seed {shown.seed})"
        yield from _examples(results, shown)


def _primary_parts(results: Results, records: Sequence[Record]) -> Iterator[str]:
    """What is told of the places by which ways are compared."""
    yield _main_table(results, records)
    if typed := results.typed(records):
        yield f"KS is over {len(typed):,} of these places."
    if apart := results.timed_apart(records):
        yield f"Times were taken in another run than those of {results.labels[0]}: {', '.join(apart)}."
    told = [*_sentences(results, records), *_expectations(results, records)]
    yield "\n".join(f"- {sentence}" for sentence in told)
    for family in results.against:
        yield f"### Less {family} with the same n-grams, paired"
        yield _difference_table(results, records, family)
    yield f"### EM@{results.k} by package, %"
    yield _package_table(results, records)


def _main_table(results: Results, records: Sequence[Record]) -> str:
    """Quality and cost of each arm."""
    k = results.k
    names = ["EM@1", f"EM@{k}", f"ES@{k}", f"matched@{k}", f"first token@{k}", f"distinct@{k}"]
    scores = [results.scores(name, records) for name in names]
    saved = {score.arm: percent(score.value) for score in results.keystrokes(records)}
    shown = results.scores(f"shown@{k}", records)
    rows = [["arm", "drafts", *names, "KS", "passes", "rows", "p50 ms", "p95 ms", "CPU ms"]]
    for a, cost in enumerate(results.costs(records)):
        cells = [percent(column[a].value, bounds=i < 2) for i, column in enumerate(scores)]
        rows.append(
            [
                cost.arm,
                f"{shown[a].value.mean:.1f}",
                *cells,
                saved.get(cost.arm, ""),
                *_spent(cost),
            ]
        )
    return table(rows)


def _sentences(results: Results, records: Sequence[Record]) -> Iterator[str]:
    """What the first arm does beside those it is compared with, in words that say what each had."""
    metric = f"EM@{results.k}"
    scores = {score.arm: score for score in results.scores(metric, records)}
    costs = {cost.arm: cost for cost in results.costs(records)}
    shown = {score.arm: score.value.mean for score in results.scores(f"shown@{results.k}", records)}
    first = results.arms[0]
    own = scores[first.label].value.mean
    for family, difference in scores[first.label].less.items():
        other = f"{family}@{first.prior}"
        here, there = costs[first.label], costs[other]
        verdict = "" if difference.low > 0 or difference.high < 0 else "; no difference shown"
        theirs = scores[other].value.mean
        yield (
            f"{first.family} ({shown[first.label]:.1f} drafts) with n-grams of {first.prior} scored {metric} "
            f"{100 * own:.1f} % against {100 * theirs:.1f} % for {family} ({shown[other]:.1f} drafts) with the "
            f"same n-grams (difference {plain_points(difference)}{verdict}) at p50 {here.wall_p50:.0f} ms against "
            f"{there.wall_p50:.0f} ms, of processor time {here.cpu_p50:.0f} ms against {there.cpu_p50:.0f} ms"
        )


def _expectations(results: Results, records: Sequence[Record]) -> Iterator[str]:
    """What samplers would score on average, from more draws at some of the places."""
    for k in dict.fromkeys((1, results.k)):
        for score in results.expected(k, records):
            yield (
                f"{score.arm}: {k} draw{'s' * (k > 1)} would score EM@{k} {percent(score.value)} % on average, by "
                f"{DRAWN} draws at {len(results.sampled(records)):,} of these places"
            )


def _short_table(results: Results, records: Sequence[Record]) -> str:
    """EM, ES and matched ratio of each arm on a part of the places."""
    k = results.k
    names = ["EM@1", f"EM@{k}", f"ES@{k}", f"matched@{k}"]
    scores = [results.scores(name, records) for name in names]
    rows = [["arm", *names, *(f"EM@{k} less {family}" for family in results.against)]]
    for a, label in enumerate(results.labels):
        cells = [percent(column[a].value, bounds=i < 2) for i, column in enumerate(scores)]
        rows.append([label, *cells, *(points(scores[1][a].less.get(family)) for family in results.against)])
    return table(rows)


def _difference_table(results: Results, records: Sequence[Record], family: str) -> str:
    """Each arm less the one of a family that has the same prior."""
    k = results.k
    columns = [results.scores(name, records) for name in ("EM@1", f"EM@{k}", f"ES@{k}", f"matched@{k}")]
    saved = {score.arm: points(score.less.get(family)) for score in results.keystrokes(records)}
    rows = [["arm", *(column[0].metric for column in columns), "KS"]]
    for a, label in enumerate(results.labels):
        if family in columns[0][a].less:
            rows.append([label, *(points(column[a].less[family]) for column in columns), saved.get(label, "")])
    return table(rows)


def _package_table(results: Results, records: Sequence[Record]) -> str:
    """EM@k of each arm in each package: packages differ more than arms do."""
    packages = sorted({record["place"]["package"] for record in records})
    parts = [[record for record in records if record["place"]["package"] == name] for name in packages]
    columns = [results.scores(f"EM@{results.k}", part) for part in parts]
    heads = [f"{name} ({len(part)})" for name, part in zip(packages, parts, strict=True)]
    rows = [[label, *(f"{100 * c[a].value.mean:.0f}" for c in columns)] for a, label in enumerate(results.labels)]
    return table([["arm", *heads], *rows])


def _spent(cost: Cost) -> list[str]:
    """Costs as cells."""
    return [
        f"{cost.passes:.1f}",
        f"{cost.rows:.1f}",
        f"{cost.wall_p50:.0f}",
        f"{cost.wall_p95:.0f}",
        f"{cost.cpu_mean:.0f}",
    ]


def _examples(results: Results, shown: Shown) -> Iterator[str]:
    """Places picked at random, the same for the same results, with what some arms answered."""
    records = results.slices().get(next(iter(results.slices()), ""), [])
    # By their keys, so that other weights are shown at the same places.
    records = sorted(records, key=lambda record: str(record["key"]))
    picked = random.Random(shown.seed).sample(records, min(shown.places, len(records)))
    for record in picked:
        place = record["place"]
        lines = [f"{place['stratum']}, line {record['seen']}, {place['file']}", f"target    {place['target']}"]
        for arm in results.arms:
            if arm.prior == "repository+file":
                lines += [
                    f"{arm.family:20} {draft}" for draft in record["arms"][arm.label]["drafts"] or ["(none)"]
                ]
        yield "```\n" + "\n".join(lines) + "\n```"
