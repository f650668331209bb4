"""Where nothing is offered, whoever asks: languages that a person switched off, and files that may hold secrets.

In: a file's name and its language as an editor calls it. Out: why not, or nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePath

from ngram_builders.sources.language_ids import language_of
from ngram_builders.sources.secret_files import is_secret

# Of what is never counted as source: how editors call it, by extension or by name.
_NO_SOURCE = {
    "md": "markdown",
    "markdown": "markdown",
    "txt": "plaintext",
    "csv": "csv",
    "tsv": "tsv",
    "commit_editmsg": "git-commit",
    "merge_msg": "git-commit",
    "git-rebase-todo": "git-rebase",
}


def editors_name(path: PurePath) -> str | None:
    """A file's language as an editor would call it. Example: `notes.md` -> "markdown"."""
    return language_of(path) or _NO_SOURCE.get(path.suffix.lower()[1:] or path.name.lower())


def refusal(path: PurePath, language: str | None, off: Collection[str]) -> str:
    """Why this file gets no completion whatever is asked in it, or nothing."""
    if language in off:
        return f"completions are off for {language}"
    return "this file may hold secrets" if is_secret(path) else ""
