"""Write a report as Markdown and JSON: the one writer of every command that measures something."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from ngram_builders.errors import UserError
from spd_lsp.evaluation.bootstrap import Interval

Cell = str | int | float | Interval | None

_SUFFIXES = (".md", ".json")
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
class Report:
    """The results of one command."""

    name: str  # of its files
    title: str
    facts: Mapping[str, Any]  # model, seed, sizes: what it takes to reproduce the numbers
    parts: Sequence[ReportTable | str]  # in order; a string is Markdown
    data: Mapping[str, Any] = field(default_factory=dict)  # all numbers, unrounded

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


def publish(report: Report, folder: Path) -> None:
    """Write NAME.md and NAME.json to a folder, print the report, and name its files on standard error."""
    written = [save(report, folder / f"{report.name}{suffix}") for suffix in _SUFFIXES]
    click.echo(report.markdown())
    click.echo(f"wrote {', '.join(map(str, written))}", err=True)


def save(report: Report, path: Path) -> Path:
    """Write the report in the format of the file's suffix, which `check_target` has accepted."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(report.markdown() if path.suffix == ".md" else report.json(), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; choose another --out") from error
    return path


def check_target(path: Path) -> None:
    """Refuse a file name with an unknown suffix."""
    if path.suffix not in _SUFFIXES:
        raise UserError(f"cannot write {path.name}: the name must end in .md or .json")


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
