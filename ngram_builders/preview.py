"""What a build would count or skip: for `--dry-run`, `--list-skipped` and `--why`. Writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ngram_builders.build import DUPLICATE, ignore_progress, survey_sources
from ngram_builders.counting.tokenize import ReportProgress, text_digest
from ngram_builders.sources.discovery import SourceFile, survey
from ngram_builders.sources.filters import read_source_text
from ngram_builders.sources.language_ids import DATA_LANGUAGES, language_of
from ngram_builders.sources.masking import find_masked_lines
from ngram_builders.sources.name_rules import INTERNAL
from ngram_builders.sources.rules.selection import EVERYTHING, Selection


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """What a build would count, by language, and what it would skip, by reason."""

    files: dict[str, int]
    bytes: dict[str, int]
    skipped: dict[str, int]
    masked: int = 0


def preview(
    roots: Sequence[Path], selection: Selection = EVERYTHING, report: ReportProgress = ignore_progress
) -> Preview:
    """Read all sources and say what a build would count."""
    surveyed = survey_sources(roots, selection, report)
    files = Counter[str]()
    sizes = Counter[str]()
    skipped = surveyed.count_skipped()
    masked = 0
    for file, text, reason in _read(surveyed.files, report):
        if reason is not None:
            skipped[reason] += 1
            continue
        masked += len(find_masked_lines(text))
        name = language_of(file.path, DATA_LANGUAGES) or "other"
        files[name] += 1
        sizes[name] += file.size
    return Preview(files=dict(files), bytes=dict(sizes), skipped=dict(sorted(skipped.items())), masked=masked)


def find_skipped(
    roots: Sequence[Path], selection: Selection = EVERYTHING, report: ReportProgress = ignore_progress
) -> dict[str, str]:
    """Read all sources, and return what a build would skip, and why; a folder skipped as a whole is one entry."""
    surveyed = survey(*roots, selection=selection)
    by_name = {path: reason for path, reason in surveyed.skipped.items() if reason != INTERNAL}
    return by_name | {file.path: reason for file, _, reason in _read(surveyed.files, report) if reason is not None}


def _read(files: Sequence[SourceFile], report: ReportProgress) -> Iterator[tuple[SourceFile, str, str | None]]:
    """Read files; each with its text, or why it is skipped."""
    known: set[bytes] = set()
    for done, file in enumerate(files):
        report("files", done, len(files))
        text, reason = read_source_text(file.path)
        if reason is None and (digest := text_digest(text.encode())) in known:
            reason = DUPLICATE
        elif reason is None:
            known.add(digest)
        yield file, text, reason
    report("files", len(files), len(files))


def find_first_copy(file: Path, roots: Sequence[Path], selection: Selection = EVERYTHING) -> Path | None:
    """Return the file that a build counts instead of an equal one; None if it counts this one."""
    path = str(file.parent.resolve() / file.name)
    text = read_source_text(path)[0]
    for other in survey(*roots, selection=selection).files:
        if other.path == path:
            return None
        if read_source_text(other.path) == (text, None):
            return Path(other.path)
    return None
