"""What an experiment found -> one Markdown table, one JSON file and one figure in a folder. Measures nothing."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from spd_lsp.evaluation.drawing import import_matplotlib
from spd_lsp.evaluation.paper.intervals import Mean
from spd_lsp.settings import UserError

Draw = Callable[[Any], None]  # draws on a matplotlib Figure

Cell = str | int | float | Mean | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under one caption; a mean is written with its interval."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int = 2

    def markdown(self) -> str:
        """The table, ready for a README."""
        rows = [[self.cell(cell) for cell in row] for row in self.rows]
        head = ["| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        return "\n".join([self.caption, "", *head, *("| " + " | ".join(row) + " |" for row in rows)])

    def cell(self, cell: Cell) -> str:
        """One cell as text."""
        if isinstance(cell, Mean):
            return f"{cell:.{self.digits}f}" if math.isfinite(cell.value) else "-"
        if isinstance(cell, float):
            return f"{cell:.{self.digits}f}" if math.isfinite(cell) else "-"
        return "-" if cell is None else str(cell)


@dataclass(frozen=True, slots=True)
class Report:
    """One experiment."""

    name: str
    title: str
    facts: Mapping[str, Any]  # model, seed, sizes: what somebody needs to repeat it
    tables: Sequence[Table]
    data: Mapping[str, Any] = field(default_factory=dict)  # what the figure was drawn from
    draw: Draw | None = None
    size: tuple[float, float] = (9.0, 4.0)  # of the figure, in inches

    def markdown(self) -> str:
        """All of it as text."""
        facts = ", ".join(f"{name} {value}" for name, value in self.facts.items())
        return "\n\n".join([f"## {self.title}", facts, *(table.markdown() for table in self.tables)]) + "\n"


def write(report: Report, folder: Path) -> list[Path]:
    """Write NAME.md, NAME.json and, where matplotlib is installed, NAME.png. -> what was written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / f"{report.name}.md", folder / f"{report.name}.json"]
        written[0].write_text(report.markdown(), encoding="utf-8")
        written[1].write_text(json.dumps(plain(report), indent=1), encoding="utf-8")
        if report.draw is not None and figures_possible():
            written.append(draw_figure(report.draw, report.size, folder / f"{report.name}.png"))
    except OSError as error:
        raise UserError(f"cannot write into {folder}: {error.strerror or error}; choose another --out") from error
    return written


def plain(report: Report) -> dict[str, Any]:
    """A report in what JSON knows."""
    tables = [
        {"caption": t.caption, "columns": list(t.columns), "rows": [[jsonable(c) for c in row] for row in t.rows]}
        for t in report.tables
    ]
    return {
        "name": report.name,
        "title": report.title,
        "facts": jsonable(report.facts),
        "tables": tables,
        "data": jsonable(report.data),
    }


def jsonable(value: Any) -> Any:
    """Arrays as lists, means as objects, what is no number as null."""
    if isinstance(value, Mean):
        return {name: jsonable(number) for name, number in dataclasses.asdict(value).items()}
    if isinstance(value, Mapping):
        return {str(key): jsonable(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def figures_possible() -> bool:
    """Whether figures can be drawn: matplotlib comes with the extra `bench`."""
    try:
        import_matplotlib()
    except ImportError:
        return False
    return True


def draw_figure(draw: Draw, size: tuple[float, float], path: Path) -> Path:
    """Draw and save as PNG, without a screen."""
    import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    figure.savefig(path)
    return path


def plain_ticks(axis: Any) -> None:
    """Round numbers along a logarithmic axis of a figure, written as such."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
