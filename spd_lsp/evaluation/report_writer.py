"""A report -> Markdown, JSON and a figure: the one writer of every command that measures. Measures nothing itself.

Figures need matplotlib, which comes with the extra `bench`; without it the rest is written.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.errors import UserError
from spd_lsp.evaluation.bootstrap import Interval
from spd_lsp.evaluation.drawing import import_matplotlib

Draw = Callable[[Any], None]  # draws on a matplotlib Figure

Cell = str | int | float | Interval | None

_ENDINGS = (".md", ".json", ".png")
_NUMBERS = re.compile(r"\**[-+]?\d")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under one caption; a mean is written with its interval."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int = 2

    def __str__(self) -> str:
        """The table in Markdown, ready for a README."""
        told = table([self.columns, *([self.cell(cell) for cell in row] for row in self.rows)])
        return f"{self.caption}\n\n{told}" if self.caption else told

    def cell(self, cell: Cell) -> str:
        """One cell as text."""
        if isinstance(cell, Interval):
            return f"{cell:.{self.digits}f}" if math.isfinite(cell.mean) else "-"
        if isinstance(cell, float):
            return f"{cell:.{self.digits}f}" if math.isfinite(cell) else "-"
        return "-" if cell is None else str(cell)


@dataclass(frozen=True, slots=True)
class Report:
    """What one command found."""

    name: str  # of its files
    title: str
    facts: Mapping[str, Any]  # model, seed, sizes: what somebody needs to repeat it
    parts: Sequence[Table | str]  # in their order; a text is Markdown
    data: Mapping[str, Any] = field(default_factory=dict)  # all numbers, none rounded
    draw: Draw | None = None
    size: tuple[float, float] = (9.0, 4.0)  # of the figure, in inches

    def markdown(self) -> str:
        """All of it as text."""
        facts = "\n".join(f"- {name}: {value}" for name, value in self.facts.items())
        return "\n\n".join([f"# {self.title}", *([facts] if facts else []), *map(str, self.parts)]) + "\n"

    def json(self) -> str:
        """All of it for programs; what is no number is null."""
        tables = [
            {"caption": one.caption, "columns": list(one.columns), "rows": [_jsonable(row) for row in one.rows]}
            for one in self.parts
            if isinstance(one, Table)
        ]
        told = {"name": self.name, "title": self.title, "facts": _jsonable(self.facts), "tables": tables}
        return json.dumps({**told, "data": _jsonable(self.data)}, indent=1, ensure_ascii=False) + "\n"


def write(report: Report, folder: Path) -> list[Path]:
    """Write NAME.md, NAME.json and, where it can be drawn, NAME.png. -> what was written."""
    endings = _ENDINGS if report.draw and figures_possible() else _ENDINGS[:-1]
    return [save(report, folder / f"{report.name}{ending}") for ending in endings]


def save(report: Report, path: Path) -> Path:
    """Write the report as the name's ending says; `check_target` has seen the name."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".png":
            path.write_text(report.markdown() if path.suffix == ".md" else report.json(), encoding="utf-8")
        elif report.draw is not None:
            _draw_figure(report.draw, report.size, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; choose another --out") from error
    return path


def check_target(path: Path, endings: Sequence[str] = _ENDINGS) -> None:
    """Refuse a file name with another ending, and a figure without what draws it."""
    if path.suffix not in endings:
        *others, last = endings
        raise UserError(
            f"expected a name that ends in {', '.join(others)} or {last}, found {path.name}; choose one"
        )
    if path.suffix == ".png" and not figures_possible():
        raise UserError("expected matplotlib for a figure, found none; run: pip install 'spd-lsp[bench]'")


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its first row the heads; numbers stand to the right, short rows are filled."""
    width = len(rows[0])
    filled = [[*(cell.replace("|", "\\|") for cell in row), *[""] * (width - len(row))] for row in rows]
    head, *body = filled
    rule = ["--:" if at and _numeric([line[at] for line in body]) else "---" for at in range(width)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *body])


def _numeric(cells: Sequence[str]) -> bool:
    """Whether a column holds numbers, beside cells that are empty."""
    return any(cells) and all(_NUMBERS.match(cell) or cell in ("", "-") for cell in cells)


def percent(value: Interval, *, bounds: bool = True) -> str:
    """Example: `24.5 (20.1 to 28.9)`, in per cent."""
    mean = f"{100 * value.mean:.1f}"
    return f"{mean} ({100 * value.low:.1f} to {100 * value.high:.1f})" if bounds else mean


def points(value: Interval | None) -> str:
    """A difference in percentage points; bold where the interval leaves zero out."""
    if value is None:
        return ""
    told = plain_points(value)
    return f"**{told}**" if value.low > 0 or value.high < 0 else told


def plain_points(value: Interval) -> str:
    """Example: `+2.1 (-0.3 to +4.5)`, in percentage points."""
    return f"{100 * value.mean:+.1f} ({100 * value.low:+.1f} to {100 * value.high:+.1f})"


def _jsonable(value: Any) -> Any:
    """Arrays as lists, records as objects, what is no number as null."""
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


def figures_possible() -> bool:
    """Whether figures can be drawn."""
    return find_spec("matplotlib") is not None


def _draw_figure(draw: Draw, size: tuple[float, float], path: Path) -> None:
    """Draw and save as PNG, without a screen."""
    import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    figure.savefig(path)


def error_bars(found: Sequence[Interval]) -> list[list[float]]:
    """How far intervals reach below and above their means."""
    return [[one.mean - one.low for one in found], [one.high - one.mean for one in found]]


def plain_ticks(axis: Any) -> None:
    """Round numbers along a logarithmic axis of a figure, written as such."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
