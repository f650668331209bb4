"""Why files count or not, for `build-ngrams --why` and `--list-skipped`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from spd_lsp.output.printable import printable

if TYPE_CHECKING:
    from ngram_builders.sources.rules.selection import Selection
    from spd_lsp.output.progress import ReportProgress


def list_skipped(repos: Sequence[Path], selection: Selection, report: ReportProgress) -> Iterator[str]:
    """Yield what is left out, a line each: path, tab, reason."""
    from ngram_builders.build import find_skipped
    from ngram_builders.sources.discovery import display_path

    skipped = find_skipped(repos, selection, report)
    here = os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118
    for path in sorted(skipped, key=os.fsencode):
        end = os.sep if os.path.isdir(path) and not os.path.islink(path) else ""  # noqa: PTH112, PTH114
        shown = printable(display_path(path.removeprefix(here) + end))
        yield f"{shown}\t{skipped[path]}"


def explain(file: Path, repos: Sequence[Path], selection: Selection) -> str:
    """Explain in a line why a file is counted or skipped."""
    from ngram_builders.build import DUPLICATE, find_first_copy
    from ngram_builders.sources.discovery import display_path, explain_skipped
    from ngram_builders.sources.language_ids import language_of
    from ngram_builders.sources.rules.ignores import Exclusion

    around = [repo for repo in repos if file.parent.resolve().is_relative_to(repo.resolve())]
    found = explain_skipped(file, (around or repos)[0], selection)
    if found is None and (first := find_first_copy(file, repos, selection)):
        found = Exclusion(DUPLICATE, f"of {first}")
    if found is None:
        language = language_of(file, selection.languages) or "other"
        return f"{display_path(file)}: counted as {language}{_describe_secrets(file)}"
    return display_path(f"{file}: skipped: {found.reason}" + (f" ({found.rule})" if found.rule else ""))


def _describe_secrets(file: Path) -> str:
    """Say which lines of a file are not counted, and what kind of secret they look like; never what they say."""
    from ngram_builders.sources.filters import describe_secrets

    lines = enumerate(describe_secrets(str(file)).items())
    # Consecutive lines of a kind are one entry: their numbers grow as fast as their positions.
    runs = [
        [line for _, line in run] for _, run in groupby(lines, lambda item: (item[1][0] - item[0], item[1][1]))
    ]
    ranges = [f"{run[0][1]}: {run[0][0]}{f'-{run[-1][0]}' if len(run) > 1 else ''}" for run in runs]
    return f", except lines that look like secrets ({'; '.join(ranges)})" if ranges else ""
