"""Which documents get no completions: those in a disabled language, and files that may hold secrets.

In: a file's name or LSP language id. Out: the reason, or an empty string.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePath

from ngram_builders.sources.language_ids import language_of

# Language ids of files that are never indexed as source, by extension or by name.
_NON_SOURCE_IDS = {
    "md": "markdown",
    "markdown": "markdown",
    "txt": "plaintext",
    "csv": "csv",
    "tsv": "tsv",
    "log": "log",
    "commit_editmsg": "git-commit",
    "merge_msg": "git-commit",
    "git-rebase-todo": "git-rebase",
}


def language_id(path: PurePath) -> str | None:
    """The language id that an editor would send for a file. Example: `notes.md` -> "markdown"."""
    return language_of(path) or _NON_SOURCE_IDS.get(path.suffix.lower()[1:] or path.name.lower())


def exclusion_reason(language: str | None, disabled: Collection[str], *, may_hold_secrets: bool) -> str:
    """Why a file gets no completions, or an empty string."""
    if language in disabled:
        return f"completions are off for {language}"
    return "this file may hold secrets" if may_hold_secrets else ""
