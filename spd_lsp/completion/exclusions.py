"""Files in which nothing is completed, whoever asks, and the language of a file by its name."""

from __future__ import annotations

from pathlib import PurePath

from ngram_builders.sources.language_ids import language_of
from ngram_builders.sources.secret_files import is_secret
from spd_lsp.settings import Settings

OFF = "completions are off"
MAY_HOLD_SECRETS = "this file may hold secrets"
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


def exclusion_reason(path: PurePath, settings: Settings, language: str | None = None) -> str:
    """Why a file gets no completions, or an empty string; the language is that of its name, if not given."""
    language = language or language_id(path)
    if language and language.casefold() in map(str.casefold, settings.disabled_languages):
        return f"{OFF} for {language}"
    return MAY_HOLD_SECRETS if is_secret(path) else ""


def language_id(path: PurePath) -> str | None:
    """The language id that an editor would send for a file. Example: `notes.md` -> "markdown"."""
    return language_of(path) or _NON_SOURCE_IDS.get(path.suffix.lower()[1:] or path.name.lower())
