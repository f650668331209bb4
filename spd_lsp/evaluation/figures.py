"""Results of `eval quality` -> one figure: exact match by arm with its interval, and against the time it takes."""

from __future__ import annotations

from typing import Any

from spd_lsp.evaluation.bootstrap import Interval
from spd_lsp.evaluation.tables import Results

_COLOURS = {"none": "#999999", "built-in": "#c9a227", "repository": "#5b8e7d", "repository+file": "#23527c"}


def draw(figure: Any, results: Results) -> None:
    """Three panels, of the first slice, which is the primary one."""
    name, records = next(iter(results.slices().items()))
    by_arm, by_wall, by_cpu = figure.subplots(1, 3)
    for metric, offset, filled in ((f"EM@{results.k}", -0.12, True), ("EM@1", 0.12, False)):
        for at, (arm, score) in enumerate(zip(results.arms, results.scores(metric, records), strict=True)):
            colour = _COLOURS[arm.prior]
            span(by_arm, score.value, at + offset, colour)
            face = colour if filled else "white"
            by_arm.plot(100 * score.value.mean, at + offset, "o", color=colour, markerfacecolor=face, markersize=6)
    by_arm.set_yticks(range(len(results.arms)), results.labels)
    by_arm.invert_yaxis()
    by_arm.set(xlabel=f"exact match, %: filled EM@{results.k}, hollow EM@1; bars: 95 % intervals")
    scores, costs = results.scores(f"EM@{results.k}", records), results.costs(records)
    _by_time(by_wall, results, scores, [cost.wall_p50 for cost in costs], "wall-clock")
    _by_time(by_cpu, results, scores, [cost.cpu_p50 for cost in costs], "processor time")
    for prior in dict.fromkeys(arm.prior for arm in results.arms):
        by_wall.plot([], [], "o", color=_COLOURS[prior], label=f"n-grams: {prior}")
    by_wall.legend(fontsize=8)
    for axes in (by_arm, by_wall, by_cpu):
        axes.grid(alpha=0.3)
    figure.suptitle(f"{name}, {len(records):,} places", fontsize=10)


def span(axes: Any, value: Interval, at: float, colour: str) -> None:
    """An interval as a line."""
    axes.plot([100 * value.low, 100 * value.high], [at, at], color=colour, linewidth=1.5)


def _by_time(axes: Any, results: Results, scores: Any, times: Any, what: str) -> None:
    """EM@k against the median time of a completion."""
    for arm, score, time in zip(results.arms, scores, times, strict=True):
        axes.plot(time, 100 * score.value.mean, "o", color=_COLOURS[arm.prior])
        axes.annotate(arm.family, (time, 100 * score.value.mean), (4, 3), textcoords="offset points", fontsize=7)
    axes.set(xlabel=f"median {what} of a completion after the prompt, ms", ylabel=f"EM@{results.k}, %")
    axes.set_xlim(left=0)
