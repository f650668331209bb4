"""Write a report as Markdown, JSON and a figure: the one writer of every command that measures something.

Figures need matplotlib, which the extra `bench` installs; without it the rest is written.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np

from ngram_builders.errors import UserError
from ngram_builders.programs import NEUTRAL_CWD
from spd_lsp.evaluation.bootstrap import Interval
from spd_lsp.extras import install_command

Cell = str | int | float | Interval | None
PlotPoint = tuple[float | str, Interval]  # x, a number or a category, and y

_SUFFIXES = (".md", ".json", ".png")
_NUMBER = re.compile(r"\**[-+]?\d")


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Rows of cells under a caption; an interval is one cell."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int = 2

    def __str__(self) -> str:
        """Return the table in Markdown."""
        text = markdown_table([self.columns, *([self._cell(cell) for cell in row] for row in self.rows)])
        return f"{self.caption}\n\n{text}" if self.caption else text

    def _cell(self, cell: Cell) -> str:
        if isinstance(cell, float | Interval):
            mean = cell.mean if isinstance(cell, Interval) else cell
            return f"{cell:.{self.digits}f}" if math.isfinite(mean) else "-"
        return "-" if cell is None else str(cell)


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot of a figure: a line with error bars for each series."""

    x_label: str
    y_label: str
    series: Mapping[str, Sequence[PlotPoint]]
    log: str = ""  # the logarithmic axes: "x", "y" or "xy"
    horizontal: bool = False  # categories are listed down the left side

    def draw(self, axes: Any) -> None:
        """Draw on matplotlib axes."""
        for number, (name, points) in enumerate(self.series.items()):
            positions = [x for x, _ in points]
            values = [y.mean for _, y in points]
            errors = [[y.mean - y.low for _, y in points], [y.high - y.mean for _, y in points]]
            if self.horizontal:
                offset = 0.18 * (number - (len(self.series) - 1) / 2)
                places = [at + offset for at in range(len(points))]
                axes.errorbar(values, places, xerr=errors, fmt="o", markersize=3, linewidth=1, label=name)
                axes.set_yticks(range(len(points)), positions)
            else:
                axes.errorbar(positions, values, yerr=errors, marker=".", capsize=2, linewidth=1, label=name)
        if self.horizontal:
            axes.invert_yaxis()
        for axis in self.log:
            getattr(axes, f"set_{axis}scale")("log")
            _write_plain_ticks(getattr(axes, f"{axis}axis"))
        axes.set(xlabel=self.x_label, ylabel=self.y_label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=6)


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one command."""

    name: str  # of its files
    title: str
    facts: Mapping[str, Any]  # model, seed, sizes: what it takes to reproduce the numbers
    parts: Sequence[ReportTable | str]  # in order; a string is Markdown
    data: Mapping[str, Any] = field(default_factory=dict)  # all numbers, unrounded
    panels: Sequence[Panel] = ()  # of its figure

    def markdown(self) -> str:
        """Return the report as text."""
        facts = "\n".join(f"- {name}: {value}" for name, value in self.facts.items())
        return "\n\n".join([f"# {self.title}", *([facts] if facts else []), *map(str, self.parts)]) + "\n"

    def json(self) -> str:
        """Return the report for programs; nan becomes null."""
        tables = [
            {"caption": part.caption, "columns": list(part.columns), "rows": [_jsonable(row) for row in part.rows]}
            for part in self.parts
            if isinstance(part, ReportTable)
        ]
        head = {"name": self.name, "title": self.title, "facts": _jsonable(self.facts), "tables": tables}
        return json.dumps({**head, "data": _jsonable(self.data)}, indent=1, ensure_ascii=False) + "\n"


def write(report: Report, folder: Path) -> list[Path]:
    """Write NAME.md, NAME.json and, with matplotlib, NAME.png. -> the files written."""
    suffixes = _SUFFIXES if report.panels and _can_draw_figures() else _SUFFIXES[:-1]
    return [save(report, folder / f"{report.name}{suffix}") for suffix in suffixes]


def publish(report: Report, folder: Path) -> None:
    """Write a report to a folder, print it, and name its files on standard error."""
    written = write(report, folder)
    click.echo(report.markdown())
    click.echo(f"wrote {', '.join(map(str, written))}", err=True)
    if report.panels and not _can_draw_figures():
        click.echo(f"no figure: matplotlib is missing; run: {install_command('bench')}", err=True)


def save(report: Report, path: Path) -> Path:
    """Write the report in the format of the file's suffix, which `check_target` has accepted."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".png":
            path.write_text(report.markdown() if path.suffix == ".md" else report.json(), encoding="utf-8")
        else:
            _draw_figure(report.panels, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; choose another --out") from error
    return path


def check_target(path: Path) -> None:
    """Refuse a file name with an unknown suffix, and a figure without matplotlib."""
    if path.suffix not in _SUFFIXES:
        raise UserError(f"cannot write {path.name}: the name must end in .md, .json or .png")
    if path.suffix == ".png" and not _can_draw_figures():
        raise UserError(f"a figure needs matplotlib; run: {install_command('bench')}")


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is its head, short rows are filled, numbers are aligned right."""
    width = len(rows[0])
    filled = [[*(cell.replace("|", "\\|") for cell in row), *[""] * (width - len(row))] for row in rows]
    head, *body = filled
    rule = ["--:" if at and _is_numeric([line[at] for line in body]) else "---" for at in range(width)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *body])


def _is_numeric(cells: Sequence[str]) -> bool:
    """Whether all cells of a column that are not empty hold numbers."""
    return any(cells) and all(_NUMBER.match(cell) or cell in ("", "-") for cell in cells)


def percent(value: Interval, *, bounds: bool = True) -> str:
    """Example: `24.5 (20.1 to 28.9)`."""
    mean = f"{100 * value.mean:.1f}"
    return f"{mean} ({100 * value.low:.1f} to {100 * value.high:.1f})" if bounds else mean


def points(value: Interval | None) -> str:
    """Format a difference in percentage points, bold if its interval excludes zero."""
    if value is None:
        return ""
    text = _plain_points(value)
    return f"**{text}**" if value.low > 0 or value.high < 0 else text


def _plain_points(value: Interval) -> str:
    """Example: `+2.1 (-0.3 to +4.5)`."""
    return f"{100 * value.mean:+.1f} ({100 * value.low:+.1f} to {100 * value.high:+.1f})"


def _jsonable(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _jsonable({one.name: getattr(value, one.name) for one in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {str(key): _jsonable(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [_jsonable(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _can_draw_figures() -> bool:
    return find_spec("matplotlib") is not None


def _draw_figure(panels: Sequence[Panel], path: Path) -> None:
    """Draw panels side by side and save them as PNG, without a display."""
    import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = max(
        (len(points) for panel in panels if panel.horizontal for points in panel.series.values()), default=0
    )
    figure = Figure(figsize=(5.4 * len(panels), max(4.4, 1.5 + 0.34 * rows)), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        panel.draw(axes)
    figure.savefig(path)


def import_matplotlib() -> Any:
    """Import matplotlib without the `matplotlibrc` of the working directory, which others may have written."""
    before = Path.cwd()
    os.chdir(NEUTRAL_CWD)
    try:
        import matplotlib
    finally:
        os.chdir(before)
    return matplotlib


def _write_plain_ticks(axis: Any) -> None:
    """Label a logarithmic axis with round numbers."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
