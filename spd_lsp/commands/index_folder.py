"""The program that a server runs to build the table of a folder that an editor opened; no command for people.

In: the arguments of `index_folder` as JSON. Out: JSON objects, one a line: `progress` with the finished share, and
at last `built`, `large`, `skipped` or `failed` with a text. Ends with its standard input, and so with the server.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from ngram_builders.errors import UserError
from ngram_builders.sources.discovery import SourceFile, walk_sources
from ngram_builders.sources.filters import MAX_SOURCE_BYTES
from ngram_builders.sources.rules.selection import Selection
from spd_lsp.command_options import open_registry
from spd_lsp.commands.build_ngrams import build_table
from spd_lsp.ngrams.background_process import end_with_input
from spd_lsp.output.progress import format_bytes, format_count
from spd_lsp.settings import Settings

_MAX_FILES = 10_000
_MAX_BYTES = 25_000_000  # of source code; a table takes about eight times as much
_READING = 0.8  # share of the build's time that reading and tokenizing takes
_MIN_STEP = 0.01  # between two reports of progress


def index_folder(folder: str, data_dir: str, model: str, unlimited: bool) -> None:
    """Build the table of a folder, with the options of its last build, and print how that ends."""
    settings = Settings(data_dir=data_dir, model=model)
    root = Path(folder)
    try:
        own = (table for table in open_registry(settings).tables() if table.roots == (root,))
        chosen = (Selection.of(table.recipe) for table in own if table.model == model)
        selection = next(chosen, Selection())
        if not unlimited and (reason := _reason_not_to_build(root, selection)):
            _print_event(*reason)
            return
        _print_event("progress", 0.0)
        summary = build_table(settings, [root], partial(_report_progress, [0.0]), selection, name=None)
        _print_event("built", format_count(summary.files, "file"))
    except UserError as error:
        _print_event("failed", str(error))
    except OSError as error:  # such as a full disk, or a data folder that cannot be written
        _print_event("failed", f"{error.filename or data_dir}: {error.strerror}")


def _reason_not_to_build(folder: Path, selection: Selection) -> tuple[str, str] | None:
    """Whether a folder is `large` or to be `skipped`, and why; known as soon as a limit is reached."""
    files = size = 0
    for _, found in walk_sources(str(folder), selection):
        if isinstance(found, SourceFile):
            files += 1
            size += min(found.size, MAX_SOURCE_BYTES)  # the rest of a notebook is its outputs
        if files > _MAX_FILES or size > _MAX_BYTES:
            return "large", f"it has more than {files - 1:,} files, {format_bytes(size)}, of source code"
    return None if files else ("skipped", "it holds no source code")


def _report_progress(shown: list[float], stage: str, done: int, total: int) -> None:
    """Print the finished share, from one step to the next; `shown` holds the share that was printed last."""
    part = min(1.0, done / max(total, 1))
    share = {"bytes": _READING * part, "sorting": _READING + (1 - _READING) * part}.get(stage, 0.0)
    if share >= shown[0] + _MIN_STEP:
        shown[0] = share
        _print_event("progress", round(share, 3))


def _print_event(kind: str, value: object) -> None:
    print(json.dumps({kind: value}), flush=True)  # noqa: T201


if __name__ == "__main__":
    end_with_input()
    index_folder(**json.loads(sys.argv[1]))
