"""Tables of results in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spd_lsp.evaluation.bootstrap import Interval

_NUMBER = re.compile(r"\**[-+]?\d")


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is its head, numbers are aligned right."""
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    columns = [[row[at] for row in body if row[at]] for at in range(len(head))]
    numeric = [bool(column) and all(map(_NUMBER.match, column)) for column in columns]
    rule = ["--:" if at and numeric[at] else "---" for at in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *body])


def percent(value: Interval) -> str:
    """Example: `24.5 (20.1 to 28.9)`."""
    return f"{100 * value.mean:.1f} ({100 * value.low:.1f} to {100 * value.high:.1f})"


def points(value: Interval | None) -> str:
    """Format a difference in percentage points, bold if its interval excludes zero."""
    if value is None:
        return ""
    text = f"{100 * value.mean:+.1f} ({100 * value.low:+.1f} to {100 * value.high:+.1f})"
    return f"**{text}**" if value.low > 0 or value.high < 0 else text
