"""What a server runs as a process to build the table of a folder that an editor opened; no command for people.

In: a `BuildTask` of `spd_lsp.lsp.indexing.build_process` as JSON. Out: `BuildEvent`s, one a line, as JSON.
Ends with its standard input, and so with the server. Stops at a size or a time for which the user should be asked.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngram_builders.dependencies.project import PACKAGES
from ngram_builders.errors import UserError
from ngram_builders.sources.rules.selection import EVERYTHING, Selection
from spd_lsp.commands.build_ngrams import count
from spd_lsp.commands.dependencies import count_dependencies
from spd_lsp.commands.ngrams import open_registry
from spd_lsp.lsp.indexing.build_process import BuildTask
from spd_lsp.ngrams.background_process import end_with_input
from spd_lsp.output.progress import format_bytes, format_count
from spd_lsp.settings import Settings

_MAX_FILES = 10_000
_MAX_BYTES = 25_000_000  # of source code; a table takes about eight times as much
_MAX_SURVEY_SECONDS = (
    10.0  # of processor time, as are all limits: in the background, time on the clock says little
)
_MAX_SECONDS = 60.0
_STAGES = {"bytes": (0.0, 0.5), "counting": (0.5, 0.45), "measuring": (0.95, 0.05)}  # start and width, as shares
_MIN_STEP = 0.01  # between two reports of progress


class _TooLarge(Exception):
    """The folder exceeds a limit; the text says what was found until then."""


@dataclass
class _Size:
    """The source code of a folder, as far as it was surveyed."""

    files: int = 0
    bytes: int = 0


def _main(task: BuildTask) -> None:
    """Build the tables of a folder's sources and of its dependencies."""
    end_with_input()
    settings = Settings(data_dir=task.data_dir, python_interpreter=task.interpreter)
    try:
        root = Path(task.folder)
        built = _build_sources(settings, root, task.model, task.unlimited) if task.sources else ""
        if task.dependencies and (built or not task.sources):
            packages = _build_dependencies(settings, root, task.model, task.unlimited)
            built = ", ".join(filter(None, (built, packages)))
        nothing = "it holds no source code" if task.sources else "it and its packages have tables"
        _print_event("built" if built else "skipped", text=built or nothing)
    except _TooLarge as found:
        _print_event("large", text=str(found))
    except UserError as error:
        _print_event("failed", text=str(error))
    except OSError as error:  # such as a full disk, or a data folder that cannot be written
        _print_event("failed", text=f"{error.filename or task.data_dir}: {error.strerror}")


def _build_sources(settings: Settings, root: Path, model: str, unlimited: bool) -> str:
    """Build the folder's own table; what was counted, or an empty string if there is nothing to count."""
    selection = _recorded_selection(settings, root, model)
    size = _survey(root, unlimited, selection)
    if not size.files:
        return ""
    _print_event("progress", share=0.0)
    progress = _Progress(size, unlimited)
    options: dict[str, Any] = {"name": None, "engine": "local", "model": model, "selection": selection}
    summary = count(settings, [root], progress.report, **options)
    return format_count(summary.files, "file")


def _build_dependencies(settings: Settings, root: Path, model: str, unlimited: bool) -> str:
    """Build the tables that the folder's packages lack; how many, or an empty string for none.

    Those for which there is no time are built when the folder is opened again.
    """
    started = time.time()

    def report(stage: str, done: int, total: int) -> None:
        if stage == PACKAGES:
            _print_event("progress", share=round(done / total, 3))

    def has_time() -> bool:
        return unlimited or time.process_time() < _MAX_SECONDS

    tables = count_dependencies(settings, root, model, report, has_time)
    new = sum(table.built >= started for table in tables)
    return format_count(new, "package") if new else ""


def _recorded_selection(settings: Settings, root: Path, model: str) -> Selection:
    """What the user chose to count when the folder's table was built before."""
    own = (one for one in open_registry(settings).tables() if one.roots == (root,))
    return next((Selection.of(one.recipe) for one in own if one.recipe.get("model") == model), Selection())


def _survey(folder: Path, unlimited: bool, selection: Selection = EVERYTHING) -> _Size:
    """Find out how much source code there is; raises _TooLarge as soon as a limit is reached."""
    from ngram_builders.sources.discovery import SourceFile, walk_sources
    from ngram_builders.sources.filters import MAX_SOURCE_BYTES

    size = _Size()
    for _, found in walk_sources(str(folder), selection):
        if isinstance(found, SourceFile):
            size.files += 1
            size.bytes += min(found.size, MAX_SOURCE_BYTES)  # the rest of a notebook is its outputs
        if unlimited:
            continue
        if size.files > _MAX_FILES or size.bytes > _MAX_BYTES:
            raise _TooLarge(f"more than {size.files - 1:,} files, {format_bytes(size.bytes)}, of source code")
        if time.process_time() > _MAX_SURVEY_SECONDS:
            if not size.files:
                return size
            raise _TooLarge("very many files")
    return size


class _Progress:
    """Prints how far a build is, and ends one that takes too long."""

    def __init__(self, size: _Size, unlimited: bool) -> None:
        self.size = size
        self.unlimited = unlimited
        self.share = 0.0

    def report(self, stage: str, done: int, total: int) -> None:
        """Note how much of a stage is done."""
        if not self.unlimited and time.process_time() > _MAX_SECONDS:
            raise _TooLarge(f"{self.size.files:,} files, {format_bytes(self.size.bytes)}, of source code")
        start, width = _STAGES.get(stage, (0.0, 0.0))
        share = start + width * min(1.0, done / max(total, 1))
        if share >= self.share + _MIN_STEP:
            self.share = share
            _print_event("progress", share=round(share, 3))


def _print_event(kind: str, text: str = "", share: float = 0.0) -> None:
    """Tell the server."""
    sys.stdout.write(json.dumps({"kind": kind, "text": text, "share": share}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main(BuildTask(**json.loads(sys.argv[1])))
