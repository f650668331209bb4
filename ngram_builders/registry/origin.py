"""What a table was made from: commits of repositories, and what an exported file says of itself.

In: a repository's folder, a domain's recipe, a file's header. Out: plain facts. Git is not run, as a repository
may name programs for it to run. Nobody vouches for the files: only the start of regular ones is read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngram_builders.sources.git_repository import follow

if TYPE_CHECKING:
    from ngram_builders.registry.domains import Domain

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REFERENCE = re.compile(r"refs(?:/[^/\\\0]+)+")
_MAX_FILE_BYTES = 1 << 12
_MAX_PACKED_BYTES = 1 << 24  # of a file that lists all branches and tags
_MAX_TIME = 253402300800.0  # the year 10000, which no date can be formatted of
_MAX_TEXT_LENGTH = 200  # of what a stranger's file says
_SHORT = 9  # digits of a commit, as people know it
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True)
class Origin:
    """What an exported file says of how it was made."""

    model: str = ""
    built: float = 0.0  # seconds since 1970
    sources: str = ""  # names of folders, without where they lie
    revision: str = ""  # with a comma between those of several

    def describe(self) -> str:
        """The sources with their revisions, empty if they are not known."""
        return with_revision(self.sources, self.revision)


def is_time(seconds: float) -> bool:
    """Whether a number, which may be NaN, is a time that can be shown as a date."""
    return 0 <= seconds < _MAX_TIME


def origin_of(domain: Domain) -> Origin:
    """What may be told of a domain to people who get its table."""
    if "imported" in domain.recipe:
        return read_origin(domain.recipe)
    return Origin(
        model=str(domain.recipe.get("model") or ""),
        built=domain.built,
        sources=", ".join(root.name for root in domain.roots),
        revision=",".join(filter(None, read_revisions(domain.recipe, len(domain.roots)))),
    )


def to_fields(origin: Origin) -> dict[str, Any]:
    """What is stored of it; a model's folder without where it lies."""
    model = Path(origin.model).name if Path(origin.model).is_absolute() else origin.model
    return {"origin": {**asdict(origin), "model": model}}


def read_origin(fields: Mapping[str, Any]) -> Origin:
    """What a header or a recipe says of the origin; nothing if that is impossible."""
    stored = fields.get("origin")
    if not isinstance(stored, dict):
        return Origin()
    built = stored.get("built")
    texts = {name: stored.get(name) for name in ("model", "sources", "revision")}
    return Origin(
        built=float(built) if isinstance(built, int | float) and is_time(built) else 0.0,
        **{name: text[:_MAX_TEXT_LENGTH] for name, text in texts.items() if isinstance(text, str)},
    )


def with_revision(source: str, revision: str) -> str:
    """Example: shop, 1a2b3c4d5e6f... -> shop at 1a2b3c4d5."""
    commits = ", ".join(commit[:_SHORT] for commit in revision.split(","))
    return f"{source} at {commits}" if source and revision else source


def record_revisions(roots: Iterable[Path]) -> dict[str, Any]:
    """The commits that are checked out in some folders, as part of a recipe."""
    revisions = [find_revision(root) or "" for root in roots]
    return {"revisions": revisions} if any(revisions) else {}


def without_revisions(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a build alone."""
    return {option: value for option, value in recipe.items() if option != "revisions"}


def read_revisions(recipe: Mapping[str, Any], sources: int) -> Sequence[str]:
    """The commit of each source, "" where it is not known."""
    recorded = recipe.get("revisions")
    known = [str(one) for one in recorded] if isinstance(recorded, list) else []
    return (known if len(known) == sources else []) or [""] * sources


def find_revision(folder: Path) -> str | None:
    """The commit that is checked out in a folder, as far as its files tell."""
    real = folder.resolve()
    for above in (real, *real.parents):
        if (mark := above / ".git").exists():
            own = mark if mark.is_dir() else _follow(above, _read(mark), "gitdir:")
            return _read_head(own) if own else None
    return None


def _follow(folder: Path, text: str, label: str = "") -> Path | None:
    """The folder that a file in another one names, if it is on this machine."""
    name = text.removeprefix(label).strip()
    return follow(folder, name) if text.startswith(label) and "\0" not in name else None


def _read_head(own: Path) -> str | None:
    """The commit that a repository's HEAD names, also through a branch."""
    head = _read(own / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else None
    reference = head.removeprefix("ref:").strip()
    if not _REFERENCE.fullmatch(reference) or ".." in reference:
        return None
    shared = _follow(own, _read(own / "commondir")) or own  # of a work tree beside the first
    if _COMMIT.fullmatch(commit := _read(shared / reference).strip()):
        return commit
    packed = _read(shared / "packed-refs", _MAX_PACKED_BYTES)
    match = re.search(rf"^({_COMMIT.pattern}) {re.escape(reference)}$", packed, re.MULTILINE)
    return match[1] if match else None


def _read(file: Path, limit: int = _MAX_FILE_BYTES) -> str:
    """The start of a regular file, empty for anything else."""
    try:
        descriptor = os.open(file, _FLAGS)
        with os.fdopen(descriptor, "rb") as data:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return data.read(limit).decode("utf-8", "replace") if regular else ""
    except (OSError, ValueError):
        return ""
