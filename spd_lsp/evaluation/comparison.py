"""What a comparison of structures found -> Markdown, JSON and a figure. Measures nothing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from spd_lsp.evaluation.drawing import import_matplotlib
from spd_lsp.settings import UserError

__all__ = ["Answers", "Built", "Comparison", "Setting", "check_target", "write"]

Setting = tuple[int, int]  # drafts, candidates


BUILDS_TAKEN = (
    "Median (least to most). Each build had the same ids, in memory or for KenLM as a text, and its own process. "
    "Bytes per n-gram: per distinct n-gram of those ids, whatever a structure keeps."
)
ANSWERS_TAKEN = (
    "Processor time of one decoding step: k drafts at random places of held-out text, all orders, C candidates; "
    "the call from Python included. KenLM is smoothed: one look-up a candidate answers for all orders together, "
    "and its perplexity on the held-out text stands where the others have their error."
)


@dataclass(slots=True)
class Built:
    """One way of building, measured some times."""

    name: str
    note: str = ""  # why there are no numbers
    cpu_seconds: list[float] = field(default_factory=list)
    wall_seconds: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    bytes: int = 0


@dataclass(slots=True)
class Answers:
    """One way of asking, measured some times."""

    name: str
    how: str
    note: str = ""  # why there are no numbers
    bytes: int = 0  # of its files, or of memory for what is loaded whole
    held_bytes: int = 0  # memory that it holds after all questions, mapped pages included
    open_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    step_us: dict[str, list[float]] = field(default_factory=dict)
    error: float | None = None  # greatest difference from the true probabilities
    perplexity: float | None = None


@dataclass(slots=True)
class Comparison:
    """All of it."""

    facts: dict[str, Any]
    tokens: int
    ngrams: int  # distinct ones of all orders
    settings: list[Setting]
    builds: list[Built]
    answers: list[Answers]


def label(setting: Setting) -> str:
    """A setting's name. Example: (3, 10) -> k=3 C=10"""
    return f"k={setting[0]} C={setting[1]}"


def as_markdown(found: Comparison) -> str:
    """Two tables and what they were taken from."""
    builds = [
        ["build", "CPU s", "M tokens / CPU s", "peak MB", "disk bytes / token", "disk bytes / n-gram"],
        *([row.name, *build_cells(row, found)] for row in found.builds),
    ]
    settings = [label(setting) for setting in found.settings]
    answers = [
        ["structure", "asked by", "open, cold, ms", "first step, ms", "memory MB", "bytes / n-gram"]
        + [f"{setting}, µs" for setting in settings]
        + ["error of p"],
        *([row.name, row.how, *answer_cells(row, settings, found.ngrams)] for row in found.answers),
    ]
    facts = [
        f"- {name}: {value:,}" if isinstance(value, int) else f"- {name}: {value}"
        for name, value in found.facts.items()
    ]
    return "\n".join(
        [
            "# N-gram structures compared",
            "",
            *facts,
            "",
            BUILDS_TAKEN,
            "",
            *as_table(builds),
            "",
            ANSWERS_TAKEN,
            "",
            *as_table(answers),
            "",
        ]
    )


def as_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; short rows are filled."""
    width = len(rows[0])
    lines = ["| " + " | ".join([*row, *[""] * (width - len(row))]) + " |" for row in rows]
    return [lines[0], "|" + "---|" * width, *lines[1:]]


def build_cells(row: Built, found: Comparison) -> list[str]:
    """A build's numbers, or why there are none."""
    if row.note:
        return [row.note]
    size = [f"{row.bytes / found.tokens:.1f}", f"{row.bytes / found.ngrams:.1f}"] if row.bytes else ["", ""]
    return [
        spread(row.cpu_seconds, "{:.1f}"),
        spread([found.tokens / 1e6 / seconds for seconds in row.cpu_seconds], "{:.2f}"),
        spread([peak / 1e6 for peak in row.peak_bytes], "{:.0f}"),
        *size,
    ]


def answer_cells(row: Answers, settings: Sequence[str], ngrams: int) -> list[str]:
    """A reader's numbers, or why there are none."""
    if row.note:
        return [row.note]
    sound = f"perplexity {row.perplexity:.2f}" if row.perplexity is not None else f"{row.error or 0:.1g}"
    return [
        spread(row.open_ms, "{:.1f}"),
        spread(row.first_ms, "{:.1f}"),
        f"{row.held_bytes / 1e6:.0f}",
        f"{row.bytes / ngrams:.1f}",
        *(spread(row.step_us[setting], "{:.0f}") for setting in settings),
        sound,
    ]


def spread(values: Sequence[float], form: str) -> str:
    """Example: [3, 1, 2], {:.0f} -> 2 (1 to 3)"""
    middle, least, most = (form.format(value) for value in (median(values), min(values), max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"


def as_json(found: Comparison) -> str:
    """All numbers, none rounded."""
    return json.dumps(dataclasses.asdict(found), indent=1) + "\n"


def draw(found: Comparison, path: Path) -> None:
    """Time per step, and bytes per n-gram, as bars."""
    import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [row for row in found.answers if not row.note][::-1]
    names = [row.name for row in rows]
    figure = Figure(figsize=(12, 1.5 + 0.55 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    thickness = 0.8 / len(found.settings)
    for place, setting in enumerate(map(label, found.settings)):
        offsets = [row + 0.4 - thickness * (place + 0.5) for row in range(len(rows))]
        left.barh(offsets, [median(row.step_us[setting]) for row in rows], thickness, label=setting)
    left.set(
        xscale="log", xlabel="µs of processor time per decoding step", yticks=range(len(rows)), yticklabels=names
    )
    left.legend()
    sizes = [row.bytes / found.ngrams for row in rows]
    bars = right.barh(range(len(rows)), sizes, 0.6, color="0.5")
    right.bar_label(bars, [f"{size:.1f}" for size in sizes], padding=3)
    right.set(xscale="log", xlabel="bytes per n-gram, on disk or in memory")
    figure.suptitle(f"{found.tokens / 1e6:.1f} M tokens, {found.ngrams / 1e6:.1f} M n-grams")
    figure.savefig(path, dpi=120)


WRITERS: Mapping[str, Callable[[Comparison, Path], object]] = {
    ".md": lambda found, path: path.write_text(as_markdown(found), encoding="utf-8"),
    ".json": lambda found, path: path.write_text(as_json(found), encoding="utf-8"),
    ".png": draw,
}


def check_target(path: Path) -> None:
    """Refuse a file name that no writer knows, and a figure without what draws it."""
    if path.suffix not in WRITERS:
        raise UserError(
            f"expected a name that ends in {', '.join(WRITERS)}, found {path.name}; choose one of those"
        )
    if path.suffix == ".png":
        from importlib.util import find_spec

        if find_spec("matplotlib") is None:
            raise UserError("expected matplotlib for a figure, found none; run: pip install 'spd-lsp[bench]'")


def write(found: Comparison, path: Path) -> None:
    """Write it as the name's ending says."""
    WRITERS[path.suffix](found, path)
