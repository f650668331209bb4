"""Results -> PNG figures: exact match by arm with its interval, and against the time it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spd_lsp.evaluation.drawing import import_matplotlib
from spd_lsp.evaluation.tables import Results
from spd_lsp.settings import UserError

__all__ = ["draw", "pyplot"]

COLOURS = {"none": "#999999", "built-in": "#c9a227", "repository": "#5b8e7d", "repository+file": "#23527c"}


def pyplot() -> Any:
    """matplotlib, drawing to files only."""
    try:
        matplotlib = import_matplotlib()
    except ImportError as error:
        raise UserError(
            "expected matplotlib for figures, found none; install it with `pip install 'spd-lsp[bench]'` or give "
            "--no-figures"
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def draw(folder: Path, results: Results) -> list[Path]:
    """Both figures of the first slice, the primary one."""
    name, records = next(iter(results.slices().items()), ("", []))
    if not records:
        return []
    plt = pyplot()
    title = f"{name}, {len(records):,} places"
    return [by_arm(plt, folder, results, records, title), by_time(plt, folder, results, records, title)]


def by_arm(plt: Any, folder: Path, results: Results, records: Any, title: str) -> Path:
    """EM@1 and EM@k of each arm, with 95 % intervals."""
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.34 * len(results.arms)), layout="constrained")
    places = range(len(results.arms))
    for metric, offset, filled in ((f"EM@{results.k}", -0.12, True), ("EM@1", 0.12, False)):
        for at, arm, score in zip(places, results.arms, results.scores(metric, records), strict=True):
            value, colour = score.value, COLOURS[arm.prior]
            axes.plot([100 * value.low, 100 * value.high], [at + offset] * 2, color=colour, linewidth=1.5)
            face = colour if filled else "white"
            axes.plot(100 * value.mean, at + offset, "o", color=colour, markerfacecolor=face, markersize=6)
    axes.set_yticks(list(places), results.labels)
    axes.invert_yaxis()
    axes.set_xlabel(f"exact match, %: filled EM@{results.k}, hollow EM@1; bars: 95 % intervals")
    axes.set_title(title, fontsize=10)
    axes.grid(axis="x", alpha=0.3)
    return save(plt, figure, folder / "exact-match.png")


def by_time(plt: Any, folder: Path, results: Results, records: Any, title: str) -> Path:
    """EM@k against the median time of a completion: of the clock, and of the processor."""
    figure, panels = plt.subplots(1, 2, figsize=(13, 5), layout="constrained", sharey=True)
    scores, costs = results.scores(f"EM@{results.k}", records), results.costs(records)
    for axes, times, what in (
        (panels[0], [cost.wall_p50 for cost in costs], "wall-clock"),
        (panels[1], [cost.cpu_p50 for cost in costs], "processor time"),
    ):
        for arm, score, time in zip(results.arms, scores, times, strict=True):
            value, colour = score.value, COLOURS[arm.prior]
            axes.plot([time] * 2, [100 * value.low, 100 * value.high], color=colour, linewidth=1, alpha=0.5)
            axes.plot(time, 100 * value.mean, "o", color=colour)
            axes.annotate(arm.family, (time, 100 * value.mean), (4, 3), textcoords="offset points", fontsize=7)
        axes.set_xlabel(f"median {what} of a completion after the prompt, ms")
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
    for prior in dict.fromkeys(arm.prior for arm in results.arms):
        panels[0].plot([], [], "o", color=COLOURS[prior], label=f"n-grams: {prior}")
    panels[0].set_ylabel(f"EM@{results.k}, % (bars: 95 % intervals)")
    panels[0].legend(fontsize=8)
    figure.suptitle(title, fontsize=10)
    return save(plt, figure, folder / "exact-match-by-time.png")


def save(plt: Any, figure: Any, path: Path) -> Path:
    """Write a figure and let go of it."""
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
