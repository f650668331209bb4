"""What a build would count, and which of two equal files: for `--dry-run` and `--why`. Writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ngram_builders.build import DUPLICATE, ignore_progress, survey_sources
from ngram_builders.counting.tokenize import ReportProgress, text_digest
from ngram_builders.sources.discovery import survey
from ngram_builders.sources.filters import is_notebook, read_source_text
from ngram_builders.sources.language_ids import DATA_LANGUAGES, language_of
from ngram_builders.sources.masking import MARK, find_masked_lines


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """What a build would count, by language, and what it would skip, by reason."""

    files: dict[str, int]
    bytes: dict[str, int]
    skipped: dict[str, int]
    masked: int = 0


def preview(
    roots: Sequence[Path], language: str | None = None, report: ReportProgress = ignore_progress
) -> Preview:
    """Read all sources and say what a build would count."""
    surveyed = survey_sources(roots, language, report)
    files, sizes, skipped = Counter[str](), Counter[str](), surveyed.count_skipped()
    known: set[bytes] = set()
    masked = 0
    for done, file in enumerate(surveyed.files):
        report("files", done, len(surveyed.files))
        text, reason = read_source_text(file.path)
        if reason is None and (digest := text_digest(text.encode())) in known:
            reason = DUPLICATE
        if reason is not None:
            skipped[reason] += 1
            continue
        known.add(digest)
        masked += len(find_masked_lines(text))
        name = language_of(file.path, DATA_LANGUAGES) or "other"
        files[name] += 1
        sizes[name] += file.size
    report("files", len(surveyed.files), len(surveyed.files))
    return Preview(files=dict(files), bytes=dict(sizes), skipped=dict(sorted(skipped.items())), masked=masked)


def find_first_copy(file: Path, roots: Sequence[Path], language: str | None = None) -> Path | None:
    """Return the file that a build counts instead of an equal one; None if it counts this one."""
    path = str(file.parent.resolve() / file.name)
    text = read_source_text(path)[0]
    size = len(text.encode())
    max_size = size + text.count("\n") + 3  # with long line ends and a byte order mark
    for other in survey(*roots, language=language).files:
        if other.path == path:
            return None
        is_as_long = size <= 2 * other.size and (other.size <= max_size or is_notebook(other.path))
        may_be_equal = is_as_long or MARK in text
        if may_be_equal and read_source_text(other.path) == (text, None):
            return Path(other.path)
    return None
